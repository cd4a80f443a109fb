"""Proof that the candidate's own kernels did the work, and nothing else, from the worker's trace.

Two kinds of evidence: what the tracer in the worker noted during the judged calls, and kernel
ablation, calls in which some of the candidate's kernels do nothing, compared outside like any
other. Outputs that stay right without a kernel were not its work. Uninitialised memory is filled
in the worker, with NaN where the dtype has it, so that nothing is right by accident. A truth
value may be, as it is filled with True: sources that return such are also called with zeros
there.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from agentkernel.domain.verdict import (
    CaseResult,
    ExecutionFailed,
    Failure,
    Mismatch,
    Policy,
    RunFailed,
)
from agentkernel.tools.judge.case_runner import CaseRunner
from agentkernel.tools.judge.cases.plan import Case, NotApplicable
from agentkernel.tools.judge.cases.values import Distribution
from agentkernel.tools.judge.comparison.compare import CaseOutcome
from agentkernel.tools.judge.execution.tracer import differs, random_state
from agentkernel.tools.judge.policy.families import DISGUISE, GraphOperators, Work, library_kind
from agentkernel.tools.judge.races import find_race
from agentkernel.tools.judge.settings import JudgeSettings
from agentkernel.tools.sandbox.protocol import JSON, WorkerFailed
from agentkernel.tools.sandbox.session import Worker

OPS = "agentkernel.tools.judge.execution.tracer"
SEED_STEP = 104_729
AGAIN_STEP = 15_485_863
CASES_ABLATED = 3
"""A kernel must change nothing in so many cases of different shapes to be called dead."""
COPIED_PLACES = 4
"""Kernels are taken for copies of their first tensors, of so many each by itself."""
TELLING: tuple[Distribution, ...] = ("large", "nan", "inf")
"""Values that a clamp and the like, which let normal ones pass, do not leave as they are."""
FILLS = (False, True)
"""Of unwritten memory in a silenced call: torch's own, then zeros."""
RULES = ("global-state", "deferred", "side-work")


@dataclass(frozen=True)
class TracedCall:
    """One call of forward: numbers of the launched kernels, torch operators by kind, whether the
    state of the random number generators changed, and the kernels of each CUDA graph replayed.
    `named` has those of `operators` that are the work of what the call itself `called`, `parts`
    what each such operator and each of the library computes. `raised`: it gave no answer."""

    launches: tuple[int, ...]
    operators: tuple[str, ...]
    library: tuple[str, ...]
    moved: tuple[str, ...]
    draws: bool
    named: tuple[str, ...] = ()
    called: Mapping[str, Work] = field(default_factory=dict)
    parts: tuple[tuple[str, ...], ...] = ()
    replays: tuple[tuple[int, ...], ...] = ()
    raised: bool = False


@dataclass(frozen=True)
class Trace:
    """What the worker saw: kernels as (name, line), calls in order, violations as (rule, text,
    number of the call; -1 while loading)."""

    kernels: tuple[tuple[str, int], ...]
    calls: tuple[TracedCall, ...]
    violations: tuple[tuple[str, str, int], ...]

    def names(self, kernels: Iterable[int]) -> str:
        """For people."""
        return ", ".join(f"{name} (line {line})" for name, line in map(self._at, kernels))

    def _at(self, kernel: int) -> tuple[str, int]:
        return self.kernels[kernel] if kernel < len(self.kernels) else ("?", 0)


def check_execution(
    worker: Worker,
    runner: CaseRunner,
    cases: Sequence[Case],
    source: str,
    settings: JudgeSettings,
    judged: Sequence[CaseResult],
    notes: list[str],
) -> Failure | None:
    """After every case passed: the gates "execution" and "races". `judged` are the calls made so
    far, in order; `notes` gets what is reported and not refused."""
    seen = drain_kept_calls(runner, settings)
    if isinstance(seen, RunFailed):
        return seen
    labels = [item.label for item in judged]
    originals = kept_originals(runner)
    failure: Failure | None = _complete(seen, labels) or check_trace(
        seen, settings.policy, labels, originals
    )
    if failure is None and any(item.computes for item in originals):
        failure = _launched(seen, labels)
    if failure is None:
        failure = _draws(seen, runner, cases, labels)
    notes += trace_notes(seen)
    if failure is None and seen.kernels and settings.policy != "any":
        computes = any(item.computes for item in originals)
        ablation = KernelAblation(worker, runner, settings, notes)
        failure = ablation.find(_tried(cases), seen, computes=computes)
    return failure or runner.observed.raced() or find_race(source)


def drain_kept_calls(runner: CaseRunner, settings: JudgeSettings) -> Trace | RunFailed:
    """What the worker has traced, without the calls that the candidate could refuse."""
    seen = drain_trace(runner.worker, settings)
    if isinstance(seen, RunFailed):
        return seen
    kept = tuple(call for at, call in enumerate(seen.calls) if at not in runner.refused)
    return dataclasses.replace(seen, calls=kept)


def kept_originals(runner: CaseRunner) -> list[GraphOperators]:
    """What the original's graph calls at the sizes of these calls."""
    return [item for at, item in enumerate(runner.asked) if at not in runner.refused]


def _launched(seen: Trace, labels: Sequence[str]) -> ExecutionFailed | None:
    """Some call has to launch a kernel of the candidate's, whatever the library does."""
    if any(call.launches for call in seen.calls):
        return None
    text = "no call launched a kernel of its own"
    return ExecutionFailed(rule="no-kernel", text=text, case=_label(labels, 0))


def drain_trace(worker: Worker, settings: JudgeSettings) -> Trace | RunFailed:
    """What the worker has seen since it was last asked."""
    reply = worker.call(f"{OPS}:drain", {}, settings.time_limit_s)
    if isinstance(reply, WorkerFailed):
        return RunFailed(reason=reply.reason, log=reply.log, case="after the last case")
    return parse_trace(reply)


def parse_trace(reply: Mapping[str, JSON]) -> Trace:
    """The worker's reply, of which nothing is taken for granted."""
    kernels = [
        (str(_at(item, 0))[:120], _number(_at(item, 1))) for item in _items(reply, "kernels")
    ]
    calls = [
        TracedCall(
            tuple(_number(number) for number in _items(item, "launches")),
            _strings(item, "operators"),
            _strings(item, "library"),
            _strings(item, "moved"),
            isinstance(item, dict) and item.get("draws") is True,
            _strings(item, "named"),
            _called(item),
            tuple(tuple(map(str, x)) for x in _items(item, "parts") if isinstance(x, list) and x),
            tuple(
                tuple(_number(number) for number in (graph if isinstance(graph, list) else []))
                for graph in _items(item, "replays")
            ),
            isinstance(item, dict) and item.get("raised") is True,
        )
        for item in _items(reply, "calls")
    ]
    violations = [
        (str(_at(item, 0)), str(_at(item, 1))[:400], _number(_at(item, 2)))
        for item in _items(reply, "violations")
    ]
    return Trace(tuple(kernels), tuple(calls), tuple(violations))


def _complete(seen: Trace, labels: Sequence[str]) -> ExecutionFailed | None:
    """Every call that the judge compared must have gone through the tracer."""
    if len(seen.calls) >= len(labels):
        return None
    text = (
        f"{len(labels)} calls were judged, the worker saw {len(seen.calls)}: it was tampered with"
    )
    return ExecutionFailed(rule="global-state", text=text)


def check_trace(
    seen: Trace, policy: Policy, labels: Sequence[str], originals: Sequence[GraphOperators]
) -> ExecutionFailed | None:
    """The first thing that the policy does not allow; `originals` say for each call what the
    original's graph calls at its sizes, the last of them for all that follow."""
    for rule in RULES:
        for found, text, index in seen.violations:
            if found == rule:
                return ExecutionFailed(rule=rule, text=text, case=_label(labels, index))
    for index, call in enumerate(seen.calls):
        case = _label(labels, index)
        original = originals[min(index, len(originals) - 1)] if originals else GraphOperators()
        if policy == "triton" and not (call.launches or call.raised):
            return ExecutionFailed(
                rule="no-kernel", text="forward launched no kernel of its own", case=case
            )
        found_here = _forbidden(call, policy, original)
        if found_here:
            text = f"computed by torch: {', '.join(found_here[:8])}"
            return ExecutionFailed(rule="torch-compute", text=text, case=case)
        if policy == "mixed" and original.covered_by(call.parts):
            return ExecutionFailed(rule="library-alone", text=DISGUISE, case=case)
    return None


def _forbidden(call: TracedCall, policy: Policy, original: GraphOperators) -> tuple[str, ...]:
    if policy == "any":
        return ()
    if policy == "triton":
        return call.operators + call.library + call.moved
    needless = [name for name in call.library if library_kind(name) not in original.library]
    others = [text for text in call.operators if text not in call.named]
    more = original.refusal(call.called)
    return (
        *others,
        *(f"{name}, which the original has not" for name in needless),
        *([more] if more else []),
    )


def trace_notes(seen: Trace) -> list[str]:
    """What is allowed and worth knowing: the library's part, other operators, how many calls."""
    found = []
    for words, values in (
        ("the library computes", [call.library for call in seen.calls]),
        ("torch computes", [call.operators for call in seen.calls]),
        ("torch moves", [call.moved for call in seen.calls]),
    ):
        names = list(dict.fromkeys(item.split(" (")[0] for call in values for item in call))
        if names:
            found.append(f"{words}: {', '.join(names[:12])}")
    most = max((len(call.parts) for call in seen.calls), default=0)
    return [*found, f"library calls: {most} in a call of forward"] if most else found


def _draws(
    seen: Trace, runner: CaseRunner, cases: Sequence[Case], labels: Sequence[str]
) -> ExecutionFailed | None:
    """Random numbers drawn in a call, where the reference (asked again) draws none."""
    drawn = [index for index, call in enumerate(seen.calls) if call.draws]
    if not drawn or _reference_draws(runner, _tried(cases), runner.worker.device):
        return None
    return ExecutionFailed(
        rule="global-state",
        text="draws from torch's global random number generator; the original does not",
        case=_label(labels, drawn[0]),
    )


def _reference_draws(runner: CaseRunner, cases: Sequence[Case], device: str) -> bool:
    before = random_state(device)
    runner.run(cases[0])
    return differs(before, random_state(device))


def _tried(cases: Sequence[Case]) -> list[Case]:
    """The smallest cases of plain values, each shape once, under fresh seeds: nothing that was kept
    from an earlier call fits them."""
    plain = [
        dataclasses.replace(
            case,
            distribution="normal",
            order="ascending",
            layout="contiguous",
            follow_ups=(),
            edge="",
            module="",
            gradients=False,
            kind="",
        )
        for case in cases
        if case.required
    ]
    by_shape = {case.shape.label: case for case in plain}
    ordered = sorted(by_shape.values(), key=lambda case: case.shape.elements)
    ordered = [case for case in ordered if case.shape.elements > 1] or ordered
    return [
        dataclasses.replace(case, seed=case.seed + (i + 1) * SEED_STEP)
        for i, case in enumerate(ordered)
    ]


class KernelAblation:
    """Calls in which some of the candidate's kernels do nothing."""

    def __init__(
        self, worker: Worker, runner: CaseRunner, settings: JudgeSettings, notes: list[str]
    ) -> None:
        self._worker = worker
        self._trial = runner
        self._settings = settings
        self._notes = notes

    def find(self, cases: Sequence[Case], seen: Trace, *, computes: bool) -> Failure | None:
        """Outputs that nobody writes, kernels whose absence changes nothing in any of the first
        cases that launch them and, where the original `computes`, kernels that only copy."""
        try:
            with self._trial.remembering():
                wrong = self._find_unwritten(cases) or self._find_dead(cases, seen)
                return wrong or (self._find_copies(cases) if computes else None)
        finally:
            if self._worker.alive:
                self._ablate([])

    def _find_unwritten(self, cases: Sequence[Case]) -> Failure | None:
        """Truth values that are right only where unwritten memory is True: the whole candidate is
        asked with zeros there, under seeds of its own, so that nothing that it keeps fits later."""
        if not self._trial.observed.truths:
            return None
        for case in cases:
            asked = dataclasses.replace(case, seed=case.seed + len(cases) * SEED_STEP)
            outcome = self._run([], asked, zeros=True)
            if isinstance(outcome, CaseOutcome) and outcome.failure is not None:
                return _in_zeros(outcome.failure, asked)
        seen = drain_trace(self._worker, self._settings)  # these calls count for no other case
        return seen if isinstance(seen, RunFailed) else None

    def _find_dead(self, cases: Sequence[Case], seen: Trace) -> ExecutionFailed | None:
        open_questions = {number for call in seen.calls for number in call.launches}
        suspects: dict[int, list[Case]] = {number: [] for number in open_questions}
        needless: list[Case] = []
        tried = 0
        for case in cases:
            if not open_questions or tried == CASES_ABLATED or not self._worker.alive:
                break
            right, launched = self._without(None, case)
            if right is None or not launched:
                continue
            tried += 1
            needless += [case] if right else []
            for number in launched & open_questions:
                alone = right if len(launched) == 1 else self._needless(number, case)
                if alone:
                    suspects[number].append(case)
                elif alone is not None:
                    open_questions.discard(number)
        if tried and len(needless) == tried:
            return ExecutionFailed(
                rule="dead-kernel",
                text="the outputs are right with every kernel of the candidate silenced: "
                + seen.names(sorted(suspects)),
                case=needless[0].label,
            )
        return self._confirm({n: suspects[n] for n in open_questions if suspects[n]}, seen)

    def _find_copies(self, cases: Sequence[Case]) -> ExecutionFailed | None:
        """The outputs are right in every case, and for values that hardly anything leaves as they
        are, where each launch copies one of its tensors instead: then others have computed them."""
        special = [dataclasses.replace(cases[-1], distribution=name) for name in TELLING]
        for place in range(COPIED_PLACES):
            if all(self._copies(place, case) for case in (*cases, *special)):
                text = "every kernel of the candidate only copies: the outputs are right where each"
                return ExecutionFailed(
                    rule="dead-kernel",
                    text=f"{text} launch copies its tensor number {place + 1} instead",
                    case=cases[-1].label,
                )
        return None

    def _copies(self, place: int, case: Case) -> bool:
        outcome = self._run(None, case, copied=place)
        seen = drain_trace(self._worker, self._settings)  # these calls count for no other case
        if isinstance(outcome, NotApplicable):
            return case.distribution != "normal"
        return outcome.failure is None and self._worker.alive and not isinstance(seen, RunFailed)

    def _needless(self, number: int, case: Case) -> bool | None:
        """As `_without` says of one kernel. Scratch that is kept may have its work from a call in
        which others were silenced: what is right is asked again, under a fresh seed."""
        right = self._without([number], case)[0]
        if not right:
            return right
        fresh = dataclasses.replace(case, seed=case.seed + (number + 1) * AGAIN_STEP)
        return self._without([number], fresh)[0]

    def _confirm(
        self, suspects: Mapping[int, Sequence[Case]], seen: Trace
    ) -> ExecutionFailed | None:
        """Dead is what leaves even the last digits as they were; the others are noted."""
        for number, cases in sorted(suspects.items()):
            same = [self._same_digits([number], case) for case in cases]
            if all(same):
                return ExecutionFailed(
                    rule="dead-kernel",
                    text=f"{seen.names([number])} is launched and changes no output",
                    case=cases[0].label,
                )
            self._notes.append(f"the outputs stay right without {seen.names([number])}")
        return None

    def _same_digits(self, kernels: Sequence[int], case: Case) -> bool:
        return all(self._same_filled(kernels, case, zeros) for zeros in FILLS)

    def _same_filled(self, kernels: Sequence[int], case: Case, zeros: bool) -> bool:
        without = self._run(kernels, case, zeros)
        full = self._run([], case, zeros)
        if isinstance(without, NotApplicable) or isinstance(full, NotApplicable):
            return False
        return without.results == full.results

    def _without(self, kernels: Sequence[int] | None, case: Case) -> tuple[bool | None, set[int]]:
        """Whether the outputs are right without `kernels` (None where the case says nothing), and
        which kernels were launched or would have been."""
        outcome = self._run(kernels, case)
        right = _passed(outcome) and not self._by_accident(kernels, case)
        if not self._worker.alive:
            self._notes.append("a kernel that is missing ended the worker: not all were tried")
            return False, set()
        seen = drain_trace(self._worker, self._settings)
        if isinstance(outcome, NotApplicable) or isinstance(seen, RunFailed):
            return None, set()
        return right, {n for call in seen.calls for n in call.launches}

    def _by_accident(self, kernels: Sequence[int] | None, case: Case) -> bool:
        """Whether what is right without `kernels` are truth values that nobody wrote."""
        if not self._trial.observed.truths:
            return False
        outcome = self._run(kernels, case, zeros=True)
        wrong = outcome.failure if isinstance(outcome, CaseOutcome) else None
        return isinstance(wrong, Mismatch) and wrong.output in self._trial.observed.truths

    def _run(
        self,
        kernels: Sequence[int] | None,
        case: Case,
        zeros: bool = False,
        copied: int | None = None,
    ) -> CaseOutcome | NotApplicable:
        self._ablate(kernels, zeros, copied)
        return self._trial.run(case)

    def _ablate(
        self, kernels: Sequence[int] | None, zeros: bool = False, copied: int | None = None
    ) -> None:
        numbers = None if kernels is None else list(kernels)
        payload = {"kernels": numbers, "zeros": zeros, "copied": copied}
        self._worker.call(f"{OPS}:ablate", payload, self._settings.time_limit_s)


def _in_zeros(failure: Failure, case: Case) -> Failure:
    if not isinstance(failure, Mismatch):
        return failure
    return failure.evolve(case=f"{case.label}, unwritten memory is zero")


def _passed(outcome: CaseOutcome | NotApplicable) -> bool:
    return isinstance(outcome, CaseOutcome) and outcome.failure is None


def _label(labels: Sequence[str], index: int) -> str:
    if index < 0:
        return "while loading"
    return labels[index] if index < len(labels) else ""


def _items(reply: JSON | Mapping[str, JSON], key: str) -> Sequence[JSON]:
    value = reply.get(key) if isinstance(reply, Mapping) else None
    return value if isinstance(value, list) else []


def _at(item: JSON, index: int) -> JSON:
    return item[index] if isinstance(item, list) and len(item) > index else None


def _number(item: JSON) -> int:
    return item if isinstance(item, int) else 0


def _called(item: JSON) -> dict[str, Work]:
    found = item.get("called") if isinstance(item, dict) else None
    pairs = found.items() if isinstance(found, dict) else ()
    return {name: Work(_number(_at(work, 0)), _number(_at(work, 1))) for name, work in pairs}


def _strings(item: JSON, key: str) -> tuple[str, ...]:
    return tuple(str(value)[:200] for value in _items(item, key))
