"""Work that a lane's process can do in the tests of `bench`, by the problem's name."""

from __future__ import annotations

import os
import time
from contextlib import nullcontext
from pathlib import Path

from agentkernel.bench.suite import BenchTask, Row
from agentkernel.domain.errors import MissingDependency
from agentkernel.runtime import gpu_lock


def work(task: BenchTask) -> Row:
    """Notes that it began; then crashes, raises, lingers or answers."""
    name = Path(task.problem.name).name
    note(task, name)
    if name.startswith("dies"):
        os._exit(9)
    if name.startswith("bug"):
        raise ZeroDivisionError("oops")
    if name.startswith("lacks"):
        raise MissingDependency("no driver here")
    if name.startswith("interrupted"):
        raise KeyboardInterrupt
    if name.startswith("endless"):
        time.sleep(120.0)
    if name.startswith("slow"):
        time.sleep(1.0)
    if name.startswith("measured"):
        measure(task, name)
    if name.startswith("poisons"):
        os.environ["POISONED"] = "1"
    return Row(
        error="lost" if "POISONED" in os.environ else None,
        key=task.key,
        name=task.problem.name,
        level=task.problem.level,
        coder="made up",
        target=os.environ["CUDA_VISIBLE_DEVICES"],
        planned=1,
    )


def measure(task: BenchTask, name: str) -> None:
    """As a run does: compiles without the GPU, works on it beside others, times alone."""
    for kind, door in (
        ("compiling", nullcontext()),
        ("working", gpu_lock.shared()),
        ("timing", gpu_lock.exclusive()),
    ):
        with door:
            begin = time.monotonic()
            time.sleep(0.3)
            with (Path(task.out) / "parts.txt").open("a") as file:
                device = os.environ["CUDA_VISIBLE_DEVICES"]
                file.write(f"{device} {kind} {begin} {time.monotonic()} {name}\n")


def note(task: BenchTask, name: str) -> None:
    """One line a problem begun, with the process that has it."""
    with (Path(task.out) / "begun.txt").open("a") as file:
        file.write(f"{name} {os.getpid()}\n")
