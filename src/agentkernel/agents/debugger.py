"""Debuggers that turn a refusal into a diagnosis and a next action, by rules or by a model.

The rules map a failure class to an action and change the strategy after repeated failures; a
model diagnoses within the limits that the rules set. Known fixes of the knowledge base are given
to both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, get_args

from pydantic import Field

from agentkernel.agents.answers import ask_or_tell
from agentkernel.agents.evidence import Evidence, evidence_of
from agentkernel.agents.history import tried
from agentkernel.agents.models.protocol import Model, OnText, ignore
from agentkernel.agents.prompts import inline, render, shortened
from agentkernel.agents.protocols import Action, Attempt, Debugger, Diagnosis
from agentkernel.agents.retriever import KnowledgeSearch
from agentkernel.domain.base import Frozen
from agentkernel.domain.candidate import Candidate
from agentkernel.domain.exchange import Message, ModelRequest, Sampling
from agentkernel.domain.knowledge import Entry, Filters, Query
from agentkernel.domain.settings import MODEL_PREFIXES
from agentkernel.domain.verdict import (
    NOT_JUDGED,
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
from agentkernel.knowledge.documents import match

MOST = 2
ADVICE_MOST = 400


class KnownFix(Frozen):
    """An entry that tells what fixes an error. Its text is data."""

    id: str
    title: str
    text: str
    literal: bool
    """One of its own error lines stands in the log; else it is only about the like."""


KnownFixes = Callable[[Failure], Sequence[KnownFix]]
"""The fixes for a failure, the surest first."""


def no_known_fixes(failure: Failure) -> tuple[KnownFix, ...]:
    """Nothing is known."""
    return ()


def fixes_from(base: KnowledgeSearch) -> KnownFixes:
    """The fixes of a knowledge base: those whose error lines stand in the log, then the nearest."""

    def known(failure: Failure) -> tuple[KnownFix, ...]:
        text = error_text(failure)
        if not text:
            return ()
        literal = match(text)
        hits = base.search(Query(words=text, filters=Filters(kinds=("fix",)), limit=MOST))
        found = [entry for name in literal if (entry := base.get(name)) is not None]
        found += [hit.entry for hit in hits if hit.entry.id not in literal]
        return tuple(_known(entry, entry.id in literal) for entry in found[:MOST])

    return known


def error_text(failure: Failure) -> str:
    """What an error said; "" for a failure that raised none."""
    return str(getattr(failure, "log", ""))


def best_fix_text(fixes: Sequence[KnownFix]) -> str:
    """The surest fix in a sentence, with its id, if its own error line was seen; else ""."""
    first = next((item for item in fixes if item.literal), None)
    return "" if first is None else f" Known ({first.id}): {first.title}. {_how(first.text)}"


def _how(text: str) -> str:
    """The first paragraph of what fixes it, on one line."""
    section = text.partition("## Fix")[2].strip().partition("\n\n")[0]
    line = " ".join(section.split())
    return line if len(line) <= ADVICE_MOST else f"{line[:ADVICE_MOST]}..."


def _known(entry: Entry, literal: bool) -> KnownFix:
    return KnownFix(id=entry.id, title=entry.title, text=entry.answer, literal=literal)


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


BEFORE_EXP = "Subtract the maximum before each exp."


@dataclass(frozen=True)
class RulesDebugger:
    """Failure class -> action, by fixed rules; repeated failures change the strategy."""

    fixes: KnownFixes = no_known_fixes
    """What is known of an error's text; it adds advice and decides nothing."""

    def diagnose(
        self, candidate: Candidate, verdict: Verdict, history: Sequence[Attempt]
    ) -> Diagnosis:
        """What to do about a refused candidate; `history` may hold this attempt already."""
        if verdict.failure is None:
            finding = _Finding("unknown", f"gate {verdict.gate}", False, "Try the next hypothesis.")
        else:
            finding = classify(verdict.failure)
            if finding.failure_class == "mismatch:nan" and "exp" in candidate.source:
                finding = finding._replace(advice=f"{finding.advice} {BEFORE_EXP}")
        known = self.fixes(verdict.failure) if verdict.failure is not None else ()
        evidence = evidence_of(candidate, verdict)
        earlier = [item for item in history if item.candidate.sha256 != candidate.sha256]
        if not finding.repairable and _rewritable(candidate, verdict):
            finding = finding._replace(
                repairable=True, advice=REWRITE.get(finding.failure_class, finding.advice)
            )
        action: Action = "repair" if finding.repairable else "next_hypothesis"
        if _same(earlier, finding.failure_class, candidate.strategy) + 1 >= PATIENCE:
            action = "next_hypothesis"
        failed = _strategies(earlier, finding.failure_class, candidate.strategy)
        avoidable = any(_accepted(item) for item in earlier) or _by_model(candidate)
        if failed >= ALL_STRATEGIES and not avoidable:
            action = "give_up"
        rule = evidence.rule
        advice = f"{rule.rule} {rule.fix} {finding.advice}" if rule else finding.advice
        return Diagnosis(
            failure_class=finding.failure_class,
            evidence=finding.evidence,
            action=action,
            advice=advice + best_fix_text(known),
            fixes=tuple(item.id for item in known),
            line=evidence.line,
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
        case "timeout" if failure.log.startswith(NOT_JUDGED):
            advice = "Nothing is known against it: a larger tile has fewer programs to interpret."
            return _Finding("timeout", text, True, advice)
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
            advice = "Follow the original where it gives nan or inf."
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


STRICTER = get_args(Action)
WORDS_MOST = 800
EDIT_MOST = 4_000


class Finding(Frozen):
    """A model's diagnosis."""

    cause: str = Field(description="what is wrong, in one or two sentences", min_length=1)
    line: int | None = Field(default=None, description="line of the file at fault", ge=1)
    action: Action = Field(description="repair, or whether another approach is the better way")
    advice: str = Field(description="what to do, in one or two sentences", min_length=1)
    edit: str = Field(
        default="", description="the smallest edit, as SEARCH/REPLACE blocks; may be empty"
    )


@dataclass
class ModelDebugger:
    """Diagnoses by asking; the rules' diagnosis is in the question, and stands where there is no
    answer. The failure class stays theirs, and the action can only become stricter."""

    model: Model
    rules: Debugger
    sampling: Sampling
    tell: OnText = field(default=ignore)
    fixes: KnownFixes = no_known_fixes

    def diagnose(
        self, candidate: Candidate, verdict: Verdict, history: Sequence[Attempt]
    ) -> Diagnosis:
        """What to do about a refused candidate; `history` may hold this attempt already."""
        ruled = self.rules.diagnose(candidate, verdict, history)
        evidence = evidence_of(candidate, verdict)
        ruled = ruled.evolve(line=ruled.line or evidence.line)
        if ruled.action == "give_up":
            return ruled
        found = self._ask(candidate, verdict, evidence, ruled, history)
        if found is None:
            return ruled
        line = found.line if found.line and found.line <= candidate.source.count("\n") + 1 else None
        return Diagnosis(
            failure_class=ruled.failure_class,
            evidence=ruled.evidence,
            action=max(ruled.action, found.action, key=STRICTER.index),
            advice=inline(f"{found.cause.rstrip('. ')}. {found.advice}", WORDS_MOST),
            line=evidence.line or line,
            edit=shortened(found.edit, EDIT_MOST),
            by=self.model.name,
            fixes=ruled.fixes,
        )

    def _ask(
        self,
        candidate: Candidate,
        verdict: Verdict,
        evidence: Evidence,
        ruled: Diagnosis,
        history: Sequence[Attempt],
    ) -> Finding | None:
        earlier = [item for item in history if item.candidate.sha256 != candidate.sha256]
        text = render(
            "diagnosis",
            candidate=candidate,
            verdict=verdict,
            evidence=evidence,
            ruled=ruled,
            fixes=self.fixes(verdict.failure) if verdict.failure is not None else (),
            history=tried(earlier),
        )
        question = ModelRequest(
            agent="debugger",
            round=candidate.round,
            messages=(Message(role="user", text=text),),
            sampling=self.sampling,
        )
        words = "diagnosis", "the rules diagnose"
        return ask_or_tell(self.model, question, Finding, self.tell, *words)
