"""Compilation of a candidate's kernels for a target, at the problem's real shapes."""

from __future__ import annotations

import hashlib
import math
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, cast

from agentkernel.domain.errors import one_line
from agentkernel.domain.problem import ScalarSpec
from agentkernel.domain.profile import CompileReport
from agentkernel.domain.target import Target
from agentkernel.domain.verdict import CompileFailed, LoadFailed, RunFailed
from agentkernel.runtime.stages import at
from agentkernel.runtime.timed_cpus import compiling_cpus
from agentkernel.tools.compile.instructions import Instructions, instructions_from
from agentkernel.tools.compile.occupancy import OVER_LIMIT
from agentkernel.tools.problem.inputs import default_value
from agentkernel.tools.problem.loading import LoadedProblem
from agentkernel.tools.sandbox.protocol import WorkerFailed, pack_request
from agentkernel.tools.sandbox.session import Worker, open_worker

if TYPE_CHECKING:
    from agentkernel.tools.sandbox.protocol import JSON

OP = "agentkernel.tools.compile.worker:compile_family"
ASSEMBLIES = ("ptx", "sass", "amdgcn")
ONE = "agentkernel.tools.compile.worker:compile_forward"
TIMEOUT_S = 180.0
REMEMBERED = 512
MOST_AT_ONCE = 26
"""Sources that one worker compiles side by side, each with an assembler: a worker that has more
than 64 processes (`Limits`) is ended, and some of them compile C as well (`worker.MOST_IN_C`)."""

CompileOutcome = CompileReport | CompileFailed | LoadFailed | RunFailed
Binary = dict[str, str]
"""See `binaries.taken`, which loads Triton."""


class _Memo:
    """Reports of this process by everything that they depend on, with binaries and without; the
    latest `REMEMBERED` ones."""

    def __init__(self) -> None:
        self._reports: OrderedDict[tuple[str, bool], Compilation] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: str, *, binaries: bool) -> Compilation | None:
        """The report of an equal compilation, if there was one; one with binaries where these are
        asked for."""
        with self._lock:
            found = self._reports.get((key, True))
            return found if found or binaries else self._reports.get((key, False))

    def put(self, key: str, made: Compilation, *, binaries: bool) -> None:
        """Keep a report; a failure may be this machine's (time, memory) and is not kept."""
        if isinstance(made.outcome, CompileReport):
            with self._lock:
                self._reports[key, binaries] = made
                while len(self._reports) > REMEMBERED:
                    self._reports.popitem(last=False)


_memo = _Memo()


def compile_candidate(
    loaded: LoadedProblem,
    source: str,
    target: Target,
    shape_set: int = 0,
    *,
    timeout_s: float = TIMEOUT_S,
    allow_unsandboxed: bool = False,
) -> CompileOutcome:
    """Cross-compile every kernel that one forward of `source` launches; no GPU is needed.

    Runs in a sandboxed worker on tensors without storage. A kernel that compiles and overflows the
    target's limits is part of the report (`fits` False); one that does not compile is a
    CompileFailed with the candidate's line where known.
    """
    (outcome,) = compile_many(
        loaded,
        [source],
        target,
        shape_set,
        timeout_s=timeout_s,
        allow_unsandboxed=allow_unsandboxed,
    )
    assert outcome is not None
    return outcome


def compile_many(
    loaded: LoadedProblem,
    sources: Sequence[str],
    target: Target,
    shape_set: int = 0,
    *,
    timeout_s: float = TIMEOUT_S,
    seconds: float = math.inf,
    allow_unsandboxed: bool = False,
) -> tuple[CompileOutcome | None, ...]:
    """`compile_candidate` for a family of sources, one outcome each, in one worker.

    As many at once as there are cores. `timeout_s` holds for each; no source begins after `seconds`
    (its outcome is None). What this process has compiled before is not compiled again.
    """
    (found,) = compile_families(
        [Family(loaded, tuple(sources), shape_set)],
        target,
        timeout_s=timeout_s,
        seconds=seconds,
        allow_unsandboxed=allow_unsandboxed,
    )
    return tuple(item.outcome for item in found)


def assembly_of(
    loaded: LoadedProblem,
    source: str,
    target: Target,
    *,
    timeout_s: float = TIMEOUT_S,
    allow_unsandboxed: bool = False,
) -> dict[str, dict[str, str]] | CompileFailed | LoadFailed | RunFailed:
    """By kernel, what a cross-compilation of `source` writes: "ptx" and "sass", on AMD's GPUs
    "amdgcn". The candidate runs as in `compile_candidate`; nothing of it is remembered."""
    asked: dict[str, object] = {**_call(Family(loaded, (source,))), "source": source}
    asked |= {"target": target.model_dump_json(), "binaries": False, "assembly": True}
    with open_worker(device="cpu", interpret=False, allow_unsandboxed=allow_unsandboxed) as worker:
        reply = worker.call(ONE, asked, timeout_s)
    outcome = _read(cast("JSON | WorkerFailed", reply), loaded.problem.shape_sets[0].label).outcome
    if outcome is not None and not isinstance(outcome, CompileReport):
        return outcome
    texts = reply.get("assembly") if isinstance(reply, dict) else None
    # The process that answers has run the candidate: names become those of files.
    return {
        name: {kind: str(kinds[kind]) for kind in ASSEMBLIES if kind in kinds}
        for name, kinds in (texts.items() if isinstance(texts, dict) else ())
        if name.isidentifier() and isinstance(kinds, dict)
    }


@dataclass(frozen=True)
class Compilation:
    """A source's outcome (None: it did not get its turn) and, where they were asked for, the
    instruction counts of its launches and the binaries of its kernels."""

    outcome: CompileOutcome | None
    instructions: tuple[Instructions | None, ...] = ()
    binaries: tuple[Binary, ...] = ()


class Family(NamedTuple):
    """Sources that are called on the inputs of one shape set of one problem."""

    loaded: LoadedProblem
    sources: tuple[str, ...]
    shape_set: int = 0
    weight: float = 1.0
    """Beside other families one of twice the weight has two sources begun for one of theirs."""


def compile_families(
    families: Sequence[Family],
    target: Target,
    *,
    timeout_s: float = TIMEOUT_S,
    seconds: float = math.inf,
    allow_unsandboxed: bool = False,
    binaries: bool = False,
) -> tuple[tuple[Compilation, ...], ...]:
    """`compile_many` for several problems in one worker: the first source of each begins before
    the second of any, then by their weights. With `binaries`, the kernels and their instruction
    counts come along."""
    shared: dict[str, object] = {"target": target.model_dump_json()}
    calls = [_call(family) for family in families]
    scopes = [_digest(pack_request({**call, **shared})) for call in calls]
    keys = [
        [f"{scope}{_digest(source.encode())}" for source in family.sources]
        for scope, family in zip(scopes, families, strict=True)
    ]
    missing: dict[str, _Source] = {}
    for number, place in by_weight([(len(item.sources), item.weight) for item in families]):
        if not _memo.get(keys[number][place], binaries=binaries):
            missing[keys[number][place]] = _Source(number, families[number].sources[place])
    common = shared | {"binaries": binaries, "calls": calls, "timeout_s": timeout_s}
    common["seconds"] = seconds
    if missing:
        at(f"compiling {len(missing)} schedules")
    replies = _compile(list(missing.values()), common, allow_unsandboxed)
    found: dict[str, Compilation] = {}
    for (key, source), reply in zip(missing.items(), replies, strict=True):
        loaded, shape_set = families[source.call].loaded, families[source.call].shape_set
        found[key] = _read(reply, loaded.problem.shape_sets[shape_set].label)
        _memo.put(key, found[key], binaries=binaries)
    return tuple(
        tuple(
            found.get(key) or _memo.get(key, binaries=binaries) or Compilation(None) for key in some
        )
        for some in keys
    )


def by_weight(families: Sequence[tuple[int, float]]) -> list[tuple[int, int]]:
    """Family and place of every source, of families by their counts and weights: all first ones,
    then so that after any of them each family has had as many as its weight is worth."""
    turns = [
        (place > 0, place / max(weight, 1e-9), number, place)
        for number, (count, weight) in enumerate(families)
        for place in range(count)
    ]
    return [(number, place) for _, _, number, place in sorted(turns)]


def _read(reply: JSON | WorkerFailed, case: str) -> Compilation:
    """A reply's compilation; what is none, since the candidate that runs there wrote it, is one
    that failed."""
    try:
        return _compilation(reply, case)
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        log = f"no answer of a compilation: {one_line(f'{type(error).__name__}: {error}', 160)}"
        return Compilation(RunFailed(reason="raised", log=log, case=case))


def _compilation(reply: JSON | WorkerFailed, case: str) -> Compilation:
    outcome = _outcome(reply, case)
    if not isinstance(reply, dict) or "binaries" not in reply:
        return Compilation(outcome)
    counts = cast("Sequence[Mapping[str, object] | None]", reply["instructions"])
    binaries = cast("Sequence[Binary]", reply["binaries"])
    made = (None if item is None else instructions_from(item) for item in counts)
    return Compilation(outcome, tuple(made), tuple(binaries))


class _Source(NamedTuple):
    """A source, and by which of the calls it is called."""

    call: int
    text: str


def _call(family: Family) -> dict[str, object]:
    return {
        "init_args": family.loaded.init_args,
        "init_kwargs": family.loaded.init_kwargs,
        "arguments": family.loaded.problem.arguments,
        "inputs": meta_inputs(family.loaded, family.shape_set),
    }


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _compile(
    sources: Sequence[_Source], common: dict[str, object], allow_unsandboxed: bool
) -> list[JSON | WorkerFailed]:
    """One answer a source. Where the worker as a whole is lost, each half gets one of its own, down
    to the source that takes its worker with it."""
    if not sources:
        return []
    with open_worker(device="cpu", interpret=False, allow_unsandboxed=allow_unsandboxed) as worker:
        reply = _ask(worker, sources, common)
    if not isinstance(reply, WorkerFailed):
        return reply
    if len(sources) == 1:
        return [reply]
    half = len(sources) // 2
    return [
        answer
        for some in (sources[:half], sources[half:])
        for answer in _compile(some, common, allow_unsandboxed)
    ]


def _ask(
    worker: Worker, sources: Sequence[_Source], common: dict[str, object]
) -> list[JSON | WorkerFailed] | WorkerFailed:
    at_once = min(compiling_cpus(), MOST_AT_ONCE)
    rows = -(-len(sources) // at_once)
    timeout_s = (rows + 1) * float(str(common["timeout_s"]))
    asked = {"sources": [tuple(item) for item in sources], "at_once": at_once}
    reply = worker.call(OP, {**common, **asked}, timeout_s)
    if isinstance(reply, WorkerFailed):
        return reply
    answers = reply.get("answers")
    if isinstance(answers, list) and len(answers) == len(sources):
        return with_binaries(answers, cast("Sequence[Binary]", reply.get("binaries") or ()))
    return WorkerFailed("raised", f"not one answer a source: {str(reply)[:300]}")


def with_binaries(answers: Sequence[JSON], made: Sequence[Binary]) -> list[JSON | WorkerFailed]:
    """The answers with their binaries, of which they have the hashes; what had no room is missing,
    and is compiled where it is loaded."""
    by_hash = {str(item.get("hash")): item for item in made if isinstance(item, dict)}
    found: list[JSON | WorkerFailed] = []
    for answer in answers:
        named = answer.get("binaries") if isinstance(answer, dict) else None
        if isinstance(answer, dict) and isinstance(named, list):
            own = [dict(by_hash[str(name)]) for name in named if str(name) in by_hash]
            answer = {**answer, "binaries": cast("JSON", own)}
        found.append(answer)
    return found


def meta_inputs(loaded: LoadedProblem, shape_set: int) -> tuple[object, ...]:
    """The inputs of one call: tensors of the real shapes and strides without storage, scalars."""
    import torch

    if loaded.live_inputs and shape_set == 0:
        return tuple(
            torch.empty_strided(item.shape, item.stride(), dtype=item.dtype, device="meta")
            if isinstance(item, torch.Tensor)
            else item
            for item in loaded.live_inputs
        )
    return tuple(
        default_value(spec, "meta")
        if isinstance(spec, ScalarSpec)
        else torch.empty(spec.shape, dtype=getattr(torch, spec.dtype), device="meta")
        for spec in loaded.problem.shape_sets[shape_set].inputs
    )


def _outcome(reply: JSON | WorkerFailed, case: str) -> CompileOutcome | None:
    if reply is None:
        return None
    if isinstance(reply, WorkerFailed):
        return RunFailed(reason=reply.reason, log=reply.log, case=case)
    if not isinstance(reply, dict):
        return RunFailed(reason="raised", log=f"no answer: {str(reply)[:300]}", case=case)
    if "failed" in reply:
        return _failure(str(reply["failed"]), str(reply["log"]), case)
    report = CompileReport.model_validate_json(str(reply["report"]))
    for kernel in report.kernels:
        if kernel.error is not None and not kernel.error.startswith(OVER_LIMIT):
            return CompileFailed(log=f"kernel {kernel.name}: {kernel.error}", line=kernel.line)
    return report


def _failure(stage: str, log: str, case: str) -> LoadFailed | RunFailed:
    if stage == "load":
        return LoadFailed(log=log)
    if stage == "timeout":
        return RunFailed(reason="timeout", log=log, case=case)
    return RunFailed(reason="died" if stage == "died" else "raised", log=log, case=case)
