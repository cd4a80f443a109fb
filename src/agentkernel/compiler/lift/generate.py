"""Which code does TorchInductor write for a captured graph, under which settings?"""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from agentkernel.compiler.lift.child import Job, Request
from agentkernel.compiler.lift.code import InductorCode, NotLifted
from agentkernel.compiler.lift.record import Unrecordable, record_graph
from agentkernel.compiler.lift.variants import Variant
from agentkernel.domain.errors import one_line
from agentkernel.domain.target import Target
from agentkernel.runtime.processes import lower_priority
from agentkernel.tools.problem.capture import Captured
from agentkernel.tools.problem.specialise import UnknownSize, specialise

MODULE = "agentkernel.compiler.lift.child"
TIMEOUT_S = 120.0
LOG_CHARACTERS = 400
POLL_S = 0.1
"""How often a wait looks whether it has been called off."""

Outcome = InductorCode | NotLifted


def generate(
    captured: Captured, variant: Variant, target: Target, *, timeout_s: float = TIMEOUT_S
) -> Outcome:
    """What TorchInductor writes for `captured` at its declared sizes under `variant`.

    With a GPU the code is for that one, else for `target`. TorchInductor runs in a process of its
    own and nothing that it writes is run there.
    """
    return generate_many([(captured, variant)], target, timeout_s=timeout_s)[0]


def generate_many(
    jobs: Sequence[tuple[Captured, Variant]],
    target: Target,
    *,
    timeout_s: float = TIMEOUT_S,
    stop: threading.Event | None = None,
) -> tuple[Outcome, ...]:
    """`generate` for several graphs and variants, one outcome each, in one process while it lives.

    `timeout_s` holds for each on average. One that kills the process or outlasts the time costs
    that process, not the others' answers. `stop` calls it off: what has no answer then is not
    lifted.
    """
    found: dict[int, Outcome] = {}
    waiting: list[tuple[int, Job]] = []
    for place, (captured, variant) in enumerate(jobs):
        try:
            waiting.append((place, Job(record_graph(specialise(captured)), variant)))
        except (Unrecordable, UnknownSize) as error:
            found[place] = NotLifted(reason=str(error), stage="record")
    while waiting:
        if stop is not None and stop.is_set():
            off = NotLifted(reason="TorchInductor was called off", stage="generate")
            found |= dict.fromkeys([place for place, _ in waiting], off)
            break
        request = Request(tuple(job for _, job in waiting), target)
        for answer in _answers(request, timeout_s, stop or threading.Event()):
            found[waiting.pop(0)[0]] = answer
    return tuple(found[place] for place in range(len(jobs)))


def _answers(request: Request, timeout_s: float, stop: threading.Event) -> list[Outcome]:
    """Answers to the first jobs of `request`, at least one: a process that ends early has failed
    at the job after its last answer."""
    with tempfile.TemporaryDirectory(prefix="agentkernel-lift-") as folder:
        given, reply, log = (Path(folder) / name for name in ("request", "reply", "log"))
        given.write_bytes(pickle.dumps(request))
        ended = _run([str(given), str(reply)], log, timeout_s * len(request.jobs), folder, stop)
        lines = reply.read_text(encoding="utf-8").splitlines() if reply.is_file() else []
        words = log.read_text(encoding="utf-8", errors="replace")[-LOG_CHARACTERS:]
    answers = [_outcome(line) for line in lines if line.endswith("}")]
    if len(answers) < len(request.jobs):
        reason = f"TorchInductor's process {ended}: {one_line(words)}"
        answers.append(NotLifted(reason=reason, stage="generate"))
    return answers


def _outcome(line: str) -> Outcome:
    if '"source"' in line:
        return InductorCode.model_validate_json(line)
    return NotLifted.model_validate_json(line)


def _run(
    arguments: Sequence[str], log: Path, timeout_s: float, folder: str, stop: threading.Event
) -> str:
    """Run the child to its end, or end it and its children; how it ended. It ends with us."""
    caches = {
        "TORCHINDUCTOR_CACHE_DIR": f"{folder}/inductor",
        "TRITON_CACHE_DIR": f"{folder}/triton",
    }
    ours, theirs = os.pipe()
    with log.open("wb") as sink, os.fdopen(theirs, "wb"):
        process = subprocess.Popen(
            [sys.executable, "-m", MODULE, *arguments, str(ours)],
            pass_fds=(ours,),
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=subprocess.STDOUT,
            env=dict(os.environ) | caches,
            start_new_session=True,
        )
        os.close(ours)
        lower_priority(process.pid)
        try:
            return _ended(process, timeout_s, stop)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _ended(process: subprocess.Popen[bytes], timeout_s: float, stop: threading.Event) -> str:
    begin = time.monotonic()
    while time.monotonic() - begin < timeout_s:
        if stop.is_set():
            return "was called off"
        try:
            return f"ended with {process.wait(POLL_S)}"
        except subprocess.TimeoutExpired:
            continue
    return f"gave no answer within {timeout_s:g} s"
