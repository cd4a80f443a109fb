"""A candidate was refused: what is wrong with it, and what is to be done next?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from agentkernel.agents.evidence import Evidence, evidence_of
from agentkernel.agents.known_fixes import KnownFixes, best_fix_text, no_known_fixes
from agentkernel.agents.protocols import Attempt, Diagnosis
from agentkernel.domain.candidate import Candidate
from agentkernel.domain.settings import MODEL_PREFIXES
from agentkernel.domain.verdict import (
    CompileFailed,
    ExecutionFailed,
    Failure,
    InputsChanged,
    LoadFailed,
    Mismatch,
    PolicyViolation,
    RaceFound,
    RunFailed,
    TimingDisputed,
    Verdict,
    WrongMeta,
)

PATIENCE = 2
"""After as many failures of one class under one strategy the strategy is given up."""
ALL_STRATEGIES = 3
"""After as many strategies with one failure class the class is not the strategy's fault, unless
some candidate was accepted: then it can be avoided. A model's next draft may always avoid it."""
RESOURCE_WORDS = ("out of resource", "shared memory", "registers", "ptxas", "too many resources")
REWRITE = {"mismatch:formula": "Mend the formula, or which elements go into it, by the evidence."}
"""Advice for one that can write another formula."""


class _Finding(NamedTuple):
    failure_class: str
    evidence: str
    repairable: bool
    advice: str


class RulesDebugger:
    """Failure class -> action, by fixed rules; repeated failures change the strategy."""

    def __init__(self, fixes: KnownFixes = no_known_fixes) -> None:
        """`fixes`: what is known of an error's text; it adds advice and decides nothing."""
        self._fixes = fixes

    def diagnose(
        self, candidate: Candidate, verdict: Verdict, history: Sequence[Attempt]
    ) -> Diagnosis:
        """What to do about a refused candidate; `history` may hold this attempt already."""
        if verdict.failure is None:
            finding = _Finding("unknown", f"gate {verdict.gate}", False, "Try the next hypothesis.")
        else:
            finding = classify(verdict.failure)
        known = self._fixes(verdict.failure) if verdict.failure is not None else ()
        evidence = evidence_of(candidate, verdict)
        earlier = [item for item in history if item.candidate.sha256 != candidate.sha256]
        if not finding.repairable and _rewritable(candidate, verdict):
            finding = finding._replace(
                repairable=True, advice=REWRITE.get(finding.failure_class, finding.advice)
            )
        action = "repair" if finding.repairable else "next_hypothesis"
        if _same(earlier, finding.failure_class, candidate.strategy) + 1 >= PATIENCE:
            action = "next_hypothesis"
        failed = _strategies(earlier, finding.failure_class, candidate.strategy)
        avoidable = any(_accepted(item) for item in earlier) or _by_model(candidate)
        if failed >= ALL_STRATEGIES and not avoidable:
            action = "give_up"
        return Diagnosis.model_validate(
            {
                "failure_class": finding.failure_class,
                "evidence": finding.evidence,
                "action": action,
                "advice": _advice(finding, evidence) + best_fix_text(known),
                "fixes": tuple(item.id for item in known),
                "line": evidence.line,
            }
        )


def classify(failure: Failure) -> _Finding:
    """The failure's class, the evidence for it, and what a coder can do about it."""
    if isinstance(failure, CompileFailed):
        return _compile(failure)
    if isinstance(failure, RunFailed):
        return _run(failure)
    if isinstance(failure, Mismatch):
        return _mismatch(failure)
    if isinstance(failure, PolicyViolation):
        text = f"line {failure.line}: {failure.rule}: {failure.text}"
        return _Finding("policy", text, True, "Write the refused construct as a Triton kernel.")
    if isinstance(failure, LoadFailed):
        advice = "Keep the original's constructor arguments and parameter names."
        return _Finding("load", _tail(failure.log), True, advice)
    if isinstance(failure, WrongMeta):
        text = f"output {failure.output}: expected {failure.expected}, found {failure.found}"
        return _Finding("meta", text, True, "Allocate the output as the original returns it.")
    if isinstance(failure, InputsChanged):
        return _inputs(failure)
    return _refused(failure)


def _compile(failure: CompileFailed) -> _Finding:
    if any(word in failure.log.lower() for word in RESOURCE_WORDS):
        advice = "Take a smaller tile or fewer stages: the next schedule in the family."
        return _Finding("resources", _tail(failure.log), True, advice)
    where = "" if failure.line is None else f"line {failure.line}: "
    advice = "Mend the line that the compiler names, or take the next schedule."
    return _Finding("compile", where + _tail(failure.log), True, advice)


def _run(failure: RunFailed) -> _Finding:
    text = f"{failure.case}: {_tail(failure.log)}"
    match failure.reason:
        case "out_of_bounds":
            return _Finding("out_of_bounds", text, True, "Mask every load and store by the shape.")
        case "timeout":
            return _Finding("timeout", text, True, "Take a larger tile: too many programs.")
        case "memory":
            return _Finding("memory", text, True, "Allocate less: fuse away the intermediate.")
        case "died":
            return _Finding("died", text, False, "The process died; try another strategy.")
    if any(word in failure.log.lower() for word in RESOURCE_WORDS):
        return _Finding("resources", text, True, "Take a smaller tile or fewer stages.")
    return _Finding("raised", text, True, "Mend the exception in forward.")


def _mismatch(failure: Mismatch) -> _Finding:
    text = (
        f"{failure.case}: output {failure.output} is off: {failure.decisive}, "
        f"wrong: {failure.pattern}, "
        f"{failure.wrong_share:.1%} of the elements, first at {list(failure.first_index)}"
    )
    match failure.pattern:
        case "tail":
            advice = "The last partial tile is wrong: mask it, with the reduction's neutral value."
            return _Finding("mismatch:tail", text, True, advice)
        case "order":
            advice = "The result depends on program order: no program may read another's output."
            return _Finding("mismatch:order", text, False, advice)
        case "nan":
            advice = "Follow the original where it gives nan or inf: maximum first, then exp."
            return _Finding("mismatch:nan", text, True, advice)
    if failure.norm_error < 100 * failure.norm_allowed:
        advice = (
            "The formula is right, its rounding is not: accumulate in fp32, name the precision."
        )
        return _Finding("mismatch:precision", text, True, advice)
    return _Finding("mismatch:formula", text, False, "The formula is wrong: try another strategy.")


def _inputs(failure: InputsChanged) -> _Finding:
    text = f"{failure.case}: {failure.name} was written to"
    return _Finding("inputs", text, True, "Write to a new tensor, never to an input.")


def _refused(failure: ExecutionFailed | RaceFound | TimingDisputed) -> _Finding:
    """What the later gates say of a result that is right."""
    match failure.kind:
        case "execution":
            advice = "Let the candidate's own kernels do the work, and nothing outlive the call."
            text = f"{failure.rule}: {failure.text}"
            return _Finding(f"execution:{failure.rule}", text, True, advice)
        case "races":
            advice = "Add with tl.atomic_add, or give every program addresses of its own."
            text = f"line {failure.line}: {failure.text}"
            return _Finding("races", text, True, advice)
        case "timing":
            advice = "Let no work outlive the call: two clocks must agree on its time."
            return _Finding("timing", failure.text, False, advice)


def _advice(finding: _Finding, evidence: Evidence) -> str:
    """The advice of the class, after the rule of Triton that was broken where one is known."""
    rule = None if evidence.kind == "values" else evidence.rule
    return finding.advice if rule is None else f"{rule.rule} {rule.fix} {finding.advice}"


def _rewritable(candidate: Candidate, verdict: Verdict) -> bool:
    """True for a wrong result of a model, which can write another formula when it is told."""
    return _by_model(candidate) and isinstance(verdict.failure, Mismatch)


def _by_model(candidate: Candidate) -> bool:
    return candidate.coder.startswith(MODEL_PREFIXES)


def _same(history: Sequence[Attempt], failure_class: str, strategy: str) -> int:
    return sum(
        1
        for item in history
        if item.candidate.strategy == strategy and _class_of(item) == failure_class
    )


def _strategies(history: Sequence[Attempt], failure_class: str, strategy: str) -> int:
    failed = {item.candidate.strategy for item in history if _class_of(item) == failure_class}
    return len(failed | {strategy})


def _accepted(attempt: Attempt) -> bool:
    return attempt.verdict is not None and attempt.verdict.accepted


def _class_of(attempt: Attempt) -> str | None:
    failure = attempt.verdict.failure if attempt.verdict else None
    return None if failure is None else classify(failure).failure_class


def _tail(log: str) -> str:
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    return lines[-1][:300] if lines else "no log"
