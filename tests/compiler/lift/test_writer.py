"""TorchInductor works beside a run, and ends with it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from torch import nn

from agentkernel.compiler.lift.inductor_code import (
    InductorCode,
    NotLifted,
    find_variant,
    variants_for,
)
from agentkernel.compiler.lift.inductor_process import InductorWriter
from agentkernel.domain.errors import TimeIsUp
from agentkernel.tools.problem.capture import capture
from agentkernel.tools.problem.loading import problem_from_module
from agentkernel.tools.targets import find_target

pytestmark = pytest.mark.xdist_group("lift")


class Doubled(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2.0 + 1.0


@pytest.mark.slow
def test_a_graph_is_written_once_an_answer_a_variant() -> None:
    captured = capture(problem_from_module(Doubled(), [torch.randn(4, 8)]))
    variants = [find_variant("default"), find_variant("looped")]
    with InductorWriter(find_target("h200").target, variants) as writer:
        writer.begin(captured)
        found = writer.codes(captured)
        begin = time.monotonic()
        again = writer.codes(captured)
    assert again is found
    assert time.monotonic() - begin < 0.5
    assert [item.variant for item in found if isinstance(item, InductorCode)] == [
        "default",
        "looped",
    ]


def test_no_answer_is_waited_for_past_the_time_limit() -> None:
    captured = capture(problem_from_module(Doubled(), [torch.randn(4, 8)]))
    with InductorWriter(find_target("h200").target, left_s=lambda: 0.2) as writer:
        begin = time.monotonic()
        with pytest.raises(TimeIsUp):
            writer.codes(captured)
        assert time.monotonic() - begin < 2.0


def test_closing_ends_what_is_at_work() -> None:
    captured = capture(problem_from_module(Doubled(), [torch.randn(4, 8)]))
    writer = InductorWriter(find_target("h200").target)
    writer.begin(captured)
    time.sleep(1.0)
    begin = time.monotonic()
    writer.close()
    assert time.monotonic() - begin < 3.0
    assert all(isinstance(item, NotLifted) for item in writer.codes(captured))


RUN = """
import sys, torch
from torch import nn
from agentkernel.tools.problem.capture import capture
from agentkernel.compiler.lift.inductor_process import InductorWriter
from agentkernel.tools.problem.loading import problem_from_module
from agentkernel.tools.targets import find_target
writer = InductorWriter(find_target("h200").target)
writer.begin(capture(problem_from_module(nn.GELU(), [torch.randn(4, 8)])))
print("begun", flush=True)
sys.stdin.read()
"""


@pytest.mark.slow
def test_it_ends_with_a_run_that_is_killed() -> None:
    run = subprocess.Popen(
        [sys.executable, "-c", RUN], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert run.stdout.readline() == "begun\n"
    child = _child_of(run.pid)
    run.send_signal(signal.SIGKILL)
    run.communicate(timeout=20)
    for _ in range(100):
        if not _runs(child):
            break
        time.sleep(0.1)
    assert not _runs(child)


def _child_of(pid: int) -> int:
    """TorchInductor's process, once it is there."""
    for _ in range(200):
        for path in Path("/proc").glob("[0-9]*/status"):
            try:
                text = path.read_text()
                words = (path.parent / "cmdline").read_text()
            except OSError:
                continue
            if f"PPid:\t{pid}\n" in text and "lift.inductor_process" in words:
                return int(path.parent.name)
        time.sleep(0.1)
    raise AssertionError("it never began")


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


def test_variants_are_asked_for_by_what_a_graph_computes() -> None:
    pointwise, norm, layers = (
        {variant.name for variant in variants_for(kinds)}
        for kinds in ((), ("pointwise", "reduction"), ("matmul", "pointwise"))
    )
    assert pointwise == {"default", "pointwise_configs", "combo"}
    assert norm - pointwise == {"multi_kernel", "looped", "cooperative"}
    assert layers - pointwise == {"fusion", "padded", "gemm_triton"}
