"""NVIDIA's compute-sanitizer on the candidate's kernels, on request and never required.

The candidate is built and called once, on the smallest judged inputs, in a process of its own
under compute-sanitizer, inside the sandbox: first memcheck, then racecheck.
"""

from __future__ import annotations

import os
import pickle
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, cast

import cloudpickle
import torch

from agentkernel.domain.verdict import RaceFound, Verdict
from agentkernel.tools.judge.cases.selection import plan_cases
from agentkernel.tools.judge.cases.values import Sampler
from agentkernel.tools.judge.reference.rehearsal import rehearse
from agentkernel.tools.judge.settings import JudgeSettings, open_judge_worker
from agentkernel.tools.sandbox.protocol import WorkerFailed
from agentkernel.tools.sandbox.session import Worker
from agentkernel.tools.sandbox.worker import WorkerState

if TYPE_CHECKING:
    from agentkernel.tools.judge.cases.shapes import CaseShape
    from agentkernel.tools.problem.capture import Captured
    from agentkernel.tools.problem.loading import LoadedProblem
    from agentkernel.tools.sandbox.protocol import JSON

Tool = Literal["memcheck", "racecheck"]
TOOLS: tuple[Tool, ...] = ("memcheck", "racecheck")
PLACES = ("/usr/local/cuda/bin", "/usr/local/cuda/compute-sanitizer")
OPTIONS: dict[Tool, tuple[str, ...]] = {
    "memcheck": ("--report-api-errors", "no"),
    "racecheck": (),
}
SLOWDOWN = 5.0
"""The replay gets so many times the limit of a call, for each tool."""
OUTPUT_CHARS = 60_000
REPLAYED = "agentkernel: replayed"
"""What the replay prints at its end: without it, silence of the tool says nothing."""
MARK = "========="
PROBLEM = re.compile(
    r"(Invalid __\w+__ (?:read|write|atomic).*|Misaligned .*|Error: (?:Race|Potential).*"
    r"|(?:Invalid|Stack|Out-of-range).*address.*)"
)
LINE = re.compile(r"candidate\.py:(\d+)")
NOT_INSTALLED = "compute-sanitizer is not installed"


@dataclass(frozen=True)
class Sanitized:
    """What the tools found; `notes` say what could not be asked."""

    failure: RaceFound | None
    notes: tuple[str, ...] = ()


def with_sanitizer_findings(
    verdict: Verdict,
    loaded: LoadedProblem,
    captured: Captured,
    source: str,
    settings: JudgeSettings,
) -> Verdict:
    """`verdict` with what compute-sanitizer says: an accepted one may end at the gate "races"."""
    if not verdict.accepted:
        return verdict
    found = sanitize(loaded, captured, source, settings)
    verdict = verdict.evolve(notes=(*verdict.notes, *found.notes))
    if found.failure is None:
        return verdict
    return verdict.evolve(accepted=False, gate="races", failure=found.failure)


def sanitize(
    loaded: LoadedProblem,
    captured: Captured,
    source: str,
    settings: JudgeSettings,
    find: Callable[[], str | None] | None = None,
) -> Sanitized:
    """Run both tools; the first finding ends it. `find` gives the binary's path."""
    binary = (find or find_binary)()
    if binary is None:
        return Sanitized(None, (NOT_INSTALLED,))
    if settings.device != "cuda":
        return Sanitized(None, ("compute-sanitizer needs a GPU: not asked",))
    inputs = _tiny_inputs(loaded, captured, settings)
    if inputs is None:
        return Sanitized(None, ("compute-sanitizer was not asked: no small inputs were found",))
    notes: list[str] = []
    for tool in TOOLS:
        with open_judge_worker(settings) as worker:
            text = _ask(worker, tool, binary, loaded, source, inputs, settings)
        failure = read_findings(tool, text)
        if failure is not None:
            return Sanitized(failure, tuple(notes))
        notes.append(_summary(tool, text))
    return Sanitized(None, tuple(notes))


def find_binary() -> str | None:
    """Where compute-sanitizer is; None where it is not installed."""
    path = os.pathsep.join([os.environ.get("PATH", ""), *PLACES])
    return shutil.which("compute-sanitizer", path=path)


def read_findings(tool: Tool, text: str) -> RaceFound | None:
    """The first error in what the tool printed, with the candidate's line where it is named."""
    lines = [line.removeprefix(MARK).strip() for line in text.splitlines() if MARK in line]
    for number, line in enumerate(lines):
        if PROBLEM.match(line):
            block = [line]
            for other in lines[number + 1 : number + 8]:
                if not other or PROBLEM.match(other):
                    break
                block.append(other)
            where = LINE.search(" ".join(block))
            return RaceFound(
                tool=tool, line=int(where.group(1)) if where else 0, text="; ".join(block)[:600]
            )
    return None


def _summary(tool: Tool, text: str) -> str:
    if REPLAYED in text and "SUMMARY" in text:
        return f"compute-sanitizer {tool}: nothing found"
    tail = " ".join(text.split())[-200:]
    return f"compute-sanitizer {tool} could not run here: {tail}"


def _ask(
    worker: Worker,
    tool: Tool,
    binary: str,
    loaded: LoadedProblem,
    source: str,
    inputs: Sequence[object],
    settings: JudgeSettings,
) -> str:
    limit = SLOWDOWN * settings.time_limit_s
    payload = {
        "command": [binary, "--tool", tool, *OPTIONS[tool], "--print-limit", "20"],
        "limit_s": limit,
        "source": source,
        "call": {
            "init_args": tuple(loaded.init_args),
            "init_kwargs": dict(loaded.init_kwargs),
            "arguments": loaded.problem.arguments,
            "seed": settings.seed,
            "inputs": list(inputs),
        },
    }
    reply = worker.call(f"{__name__}:replay", payload, limit + settings.time_limit_s)
    return reply.log if isinstance(reply, WorkerFailed) else str(reply.get("output"))


def _tiny_inputs(
    loaded: LoadedProblem, captured: Captured, settings: JudgeSettings
) -> list[object] | None:
    """Host tensors for the smallest shapes that the reference takes; integers are all zero."""
    shapes: dict[str, CaseShape] = {}
    for case in plan_cases(loaded, captured, settings):
        shapes.setdefault(case.shape.label, case.shape)
    model = loaded.build(seed=settings.seed, device="cpu")
    sampler = Sampler(loaded, "cpu", settings.seed)
    for shape in sorted(shapes.values(), key=lambda item: item.elements):
        try:
            values = sampler.draw(shape.inputs, shape.index, "normal", settings.seed, 1.0, 0)
            rehearse(model, values)
        except Exception:  # noqa: BLE001, S112 - the user's module may raise anything: the next shape
            continue
        return values
    return None


def replay(payload: Mapping[str, object], state: WorkerState) -> dict[str, JSON]:
    """Op: the candidate's one call under the tool; its output, as text."""
    (state.scratch / "candidate.py").write_text(str(payload["source"]), encoding="utf-8")
    call = state.scratch / "replay.pickle"
    call.write_bytes(cloudpickle.dumps(payload["call"]))
    code = f"import sys; sys.path[:] = {sys.path!r}; from {__name__} import call_once; call_once()"
    python = [sys.executable, "-I", "-B", "-c", code, str(state.scratch), state.device]
    try:
        done = subprocess.run(
            [*cast("Sequence[str]", payload["command"]), *python],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=cast(float, payload["limit_s"]),
            check=False,
            env=os.environ | {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"},
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return {"output": f"{type(error).__name__}: {error}"}
    return {"output": done.stdout.decode(errors="replace")[-OUTPUT_CHARS:]}


def call_once() -> None:
    """Build `candidate.py` of the folder argv[1] and call it on the device argv[2]. In a process of
    its own, which the worker starts."""
    scratch, device = Path(sys.argv[1]), cast("Literal['cpu', 'cuda']", sys.argv[2])
    call = pickle.loads((scratch / "replay.pickle").read_bytes())
    state = WorkerState(scratch, device, interpret=device == "cpu")
    source = (scratch / "candidate.py").read_text(encoding="utf-8")
    names = ("init_args", "init_kwargs", "seed", "arguments")
    model = state.built(state.execute(source), "ModelNew", *(call.get(name) for name in names))
    values = [
        item.to(device) if isinstance(item, torch.Tensor) else item for item in call["inputs"]
    ]
    with torch.no_grad():
        model(*values)
    if device == "cuda":
        torch.cuda.synchronize()
    print(REPLAYED, flush=True)
