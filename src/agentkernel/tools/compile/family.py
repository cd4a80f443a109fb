"""How are many sources of one family compiled at once inside one worker?

Each in a forked process with a folder of its own, as many at a time as there are cores: the imports
are paid for once, and one that dies or hangs takes nobody along.
"""

from __future__ import annotations

import json
import os
import signal
import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

import torch._dynamo  # noqa: F401 - a second of imports that every fork would need

from agentkernel.runtime.processes import lower_priority
from agentkernel.tools.compile.op import compile_forward
from agentkernel.tools.sandbox.waiting import readable
from agentkernel.tools.sandbox.worker import WorkerState

if TYPE_CHECKING:
    from agentkernel.tools.sandbox.protocol import JSON


@dataclass
class _Child:
    """A forked process at work on source `index`; its answer arrives on `reader`."""

    index: int
    pid: int
    reader: int
    end_s: float
    answer: bytearray = field(default_factory=bytearray)


def compile_family(payload: Mapping[str, object], state: WorkerState) -> dict[str, JSON]:
    """`compile_forward` for each of `payload["sources"]`; the reply has its answers by index.

    Beside what compile_forward takes: `timeout_s` for each source, and `seconds`, after which none
    begins (its answer is None).
    """
    sources = cast("Sequence[str]", payload["sources"])
    last_start_s = time.monotonic() + cast(float, payload["seconds"])
    waiting = list(range(len(sources)))[::-1]
    running: list[_Child] = []
    answers: dict[int, JSON] = {}
    while waiting or running:
        while waiting and len(running) < len(os.sched_getaffinity(0)):
            index = waiting.pop()
            if time.monotonic() > last_start_s:
                answers[index] = None
            else:
                running.append(_fork(index, payload, state))
        for child in _finished(running):
            running.remove(child)
            answers[child.index] = _collect(child)
    return {"answers": [answers[index] for index in range(len(sources))]}


def _fork(index: int, payload: Mapping[str, object], state: WorkerState) -> _Child:
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        _work(index, payload, state, writer)
    os.close(writer)
    return _Child(index, pid, reader, time.monotonic() + cast(float, payload["timeout_s"]))


def _work(index: int, payload: Mapping[str, object], state: WorkerState, writer: int) -> None:
    """The child's whole life; it never returns. It gives way to what times."""
    code = 1
    try:
        lower_priority(0)
        scratch = state.scratch / f"source{index}"
        scratch.mkdir(exist_ok=True)
        own = WorkerState(scratch, state.device, state.interpret)
        source = cast("Sequence[str]", payload["sources"])[index]
        answer = compile_forward({**payload, "source": source}, own)
        with os.fdopen(writer, "wb") as line:
            line.write(json.dumps(answer).encode())
        code = 0
    except BaseException:  # noqa: BLE001 - the candidate may raise anything, SystemExit too
        traceback.print_exc(limit=-8)
    finally:
        os._exit(code)


def _finished(running: Sequence[_Child]) -> list[_Child]:
    """Children that closed their line or ran out of time, after at most a tenth of a second."""
    lines = {child.reader: child for child in running}
    done = []
    for line in readable(lines, 0.1):
        data = os.read(line, 1 << 16)
        lines[line].answer += data
        if not data:
            done.append(lines[line])
    now = time.monotonic()
    return done + [child for child in running if now > child.end_s and child not in done]


def _collect(child: _Child) -> JSON:
    """The answer of a child that is done, reaped; a failure where it has none."""
    os.close(child.reader)
    try:
        answer: JSON = json.loads(child.answer)
    except ValueError:
        answer = None
    if answer is not None:
        _end(child.pid)
        return answer
    if time.monotonic() > child.end_s:
        _end(child.pid)
        return {"failed": "timeout", "log": "no answer in time"}
    code = _end(child.pid, patience_s=1.0)
    return {"failed": "died", "log": f"the process that compiled it ended with exit code {code}"}


def _end(pid: int, patience_s: float = 0.0) -> int:
    """Reap a child, killed where it does not end by itself; its exit code."""
    end = time.monotonic() + patience_s
    while time.monotonic() < end:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status)
