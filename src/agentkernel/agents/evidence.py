"""What does a verdict prove about a candidate, as values that rules and models both read?"""

from __future__ import annotations

import re
from typing import Annotated, Literal, NamedTuple

from pydantic import Field

from agentkernel.agents.source_lines import Excerpt, blamed_line, excerpt
from agentkernel.agents.triton_rules import TritonRule, broken_rule
from agentkernel.agents.wrong_values import (
    ErrorForm,
    error_form,
    explain_error,
    input_dtypes,
    location_text,
    passing_text,
    ratio,
    tile_edges,
)
from agentkernel.domain.base import Frozen
from agentkernel.domain.candidate import Candidate
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

OUTSIDE = re.compile(r"loads outside of every tensor: (.*)")
CONSTANT = re.compile(r"\b([A-Z][A-Z0-9_]{0,40}) ?(?::[^=\n]{0,40})?= ?(\d{1,7})\b")
"""A tile size as files write it, at a launch or at their top."""


class Fact(NamedTuple):
    """One line of evidence."""

    name: str
    value: str


class CompileEvidence(Frozen):
    """The compiler refused a kernel: its words, the candidate's line, the rule behind them."""

    kind: Literal["compile"] = "compile"
    error: str
    line: int | None
    excerpt: Excerpt | None
    rule: TritonRule | None

    @property
    def facts(self) -> tuple[Fact, ...]:
        """The evidence, a line each."""
        broken = self.rule
        return _said(
            ("line", self.line),
            ("error", self.error),
            ("rule broken", f"{broken.name}: {broken.rule}" if broken else ""),
            ("usual fix", broken.fix if broken else ""),
        )


class ValuesEvidence(Frozen):
    """The result is wrong. `ratio` is found / expected of the first wrong element."""

    kind: Literal["values"] = "values"
    case: str
    output: int
    first_index: tuple[int, ...]
    expected: float
    found: float
    ratio: float | None
    wrong_share: float
    pattern: str
    place: str
    form: ErrorForm
    explained: str
    error: str
    tiles: str = ""
    passing: str = ""
    outside: str = ""
    """Kernels and lines that read past every tensor."""
    dtypes: tuple[str, ...] = ()
    line: int | None = None
    excerpt: Excerpt | None = None

    @property
    def facts(self) -> tuple[Fact, ...]:
        """The evidence, a line each."""
        return _said(
            ("case", self.case),
            ("output", self.output),
            ("place", self.place),
            ("pattern", self.pattern),
            ("first wrong index", str(list(self.first_index))),
            ("expected there", f"{self.expected:.6g}"),
            ("found there", f"{self.found:.6g}"),
            ("found / expected", "" if self.ratio is None else f"{self.ratio:.4g}"),
            ("wrong elements", f"{self.wrong_share:.2%}"),
            ("error", self.error),
            ("form of the error", f"{self.form}: {self.explained}"),
            ("tile edges", self.tiles),
            ("other cases", self.passing),
            ("reads past every tensor", self.outside),
            ("input dtypes", ", ".join(self.dtypes)),
        )


class FaultEvidence(Frozen):
    """Any other refusal: what happened, and the line where one is known."""

    kind: Literal["fault"] = "fault"
    fault: str
    text: str
    case: str = ""
    line: int | None = None
    excerpt: Excerpt | None = None
    rule: TritonRule | None = None

    @property
    def facts(self) -> tuple[Fact, ...]:
        """The evidence, a line each."""
        broken = self.rule
        return _said(
            ("fault", self.fault),
            ("case", self.case),
            ("line", self.line),
            ("what happened", self.text),
            ("rule broken", f"{broken.name}: {broken.rule}" if broken else ""),
            ("usual fix", broken.fix if broken else ""),
        )


Evidence = Annotated[CompileEvidence | ValuesEvidence | FaultEvidence, Field(discriminator="kind")]


def evidence_of(candidate: Candidate, verdict: Verdict) -> Evidence:
    """What the verdict on a refused candidate proves."""
    failure = verdict.failure
    match failure:
        case None:
            return FaultEvidence(fault=verdict.gate, text=f"stopped at the gate {verdict.gate}")
        case CompileFailed():
            return _compile(candidate.source, failure)
        case Mismatch():
            return _values(candidate, verdict, failure)
        case RunFailed():
            return _run(candidate.source, failure)
    return _fault(candidate.source, failure)


def refusal_facts(candidate: Candidate, verdict: Verdict | None) -> tuple[Fact, ...]:
    """Why a candidate was refused, a fact each; nothing for one that was not."""
    if verdict is None or verdict.accepted:
        return ()
    return evidence_of(candidate, verdict).facts


def refusal_line(candidate: Candidate, verdict: Verdict) -> str:
    """Why it was refused, on one line: what was found where, or what happened."""
    evidence = evidence_of(candidate, verdict)
    match evidence:
        case ValuesEvidence():
            place = f"[{', '.join(map(str, evidence.first_index))}] of output {evidence.output}"
            return (
                f"{evidence.case}: expected {evidence.expected:.6g}, found {evidence.found:.6g} at "
                f"{place}; {evidence.wrong_share:.0%} wrong ({evidence.pattern})"
            )
        case CompileEvidence():
            return evidence.error
    return f"{evidence.case}: {evidence.text}" if evidence.case else evidence.text


def _compile(source: str, failure: CompileFailed) -> CompileEvidence:
    line = blamed_line(source, failure.log, failure.line)
    return CompileEvidence(
        error=last_log_line(failure.log),
        line=line,
        excerpt=excerpt(source, line),
        rule=broken_rule(failure.log),
    )


def _values(candidate: Candidate, verdict: Verdict, failure: Mismatch) -> ValuesEvidence:
    form = error_form(failure)
    outside = OUTSIDE.search(failure.case)
    line = blamed_line(candidate.source, f"kernel {outside[1]}") if outside else None
    return ValuesEvidence(
        case=failure.case,
        output=failure.output,
        first_index=failure.first_index,
        expected=failure.expected,
        found=failure.found,
        ratio=ratio(failure),
        wrong_share=failure.wrong_share,
        pattern=failure.pattern,
        place=location_text(failure),
        form=form,
        explained=explain_error(failure, form),
        error=failure.decisive,
        tiles=tile_edges(failure, tile_sizes(candidate)),
        passing=passing_text(verdict),
        outside=outside[1].rstrip(")") if outside else "",
        dtypes=input_dtypes(verdict),
        line=line,
        excerpt=excerpt(candidate.source, line),
    )


def _run(source: str, failure: RunFailed) -> FaultEvidence:
    line = blamed_line(source, failure.log)
    return FaultEvidence(
        fault=f"run: {failure.reason}",
        text=last_log_line(failure.log),
        case=failure.case,
        line=line,
        excerpt=excerpt(source, line),
        rule=broken_rule(last_log_line(failure.log)),
    )


def _fault(source: str, failure: Failure) -> FaultEvidence:
    case, line = "", None
    match failure:
        case PolicyViolation() | RaceFound():
            rule = failure.rule if isinstance(failure, PolicyViolation) else failure.tool
            text, line = f"{rule}: {failure.text}", failure.line
        case LoadFailed():
            text, line = last_log_line(failure.log), blamed_line(source, failure.log)
        case WrongMeta():
            case = failure.case
            text = f"output {failure.output}: expected {failure.expected}, found {failure.found}"
        case InputsChanged():
            case, text = failure.case, f"{failure.name} was written to"
        case ExecutionFailed():
            case, text = failure.case, f"{failure.rule}: {failure.text}"
        case TimingDisputed():
            text = failure.text
        case _:
            text = failure.kind
    around = excerpt(source, line)
    return FaultEvidence(fault=failure.kind, text=text, case=case, line=line, excerpt=around)


def tile_sizes(candidate: Candidate) -> dict[str, int]:
    """Names and values of the constants that may be tile sizes."""
    written = {name: int(value) for name, value in CONSTANT.findall(candidate.source)}
    for constants in candidate.schedule.values():
        written |= {name: size for name, size in constants.items() if name.isupper()}
    return written


def last_log_line(log: str, most: int = 300) -> str:
    """The last line of a log that says something: an error's own message."""
    lines = [line.strip() for line in log.splitlines() if line.strip(" \t^~")]
    return lines[-1][:most] if lines else "no log"


def _said(*facts: tuple[str, str | int | None]) -> tuple[Fact, ...]:
    return tuple(Fact(name, str(value)) for name, value in facts if value not in ("", None))
