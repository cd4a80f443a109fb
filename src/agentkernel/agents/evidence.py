"""Evidence about a candidate, as values that rules and prompts both read.

From a verdict: the compiler's message with the line at fault, the wrong values, or the fault.
From a profile: the bound, the distance to it, and what limits each kernel.
"""

from __future__ import annotations

import math
import re
from typing import Annotated, Literal, NamedTuple

from pydantic import Field

from agentkernel.agents.diagnosis import (
    ErrorForm,
    TritonRule,
    broken_rule,
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
from agentkernel.domain.plan import Analysis
from agentkernel.domain.profile import KernelResources, Measurement, Profile
from agentkernel.domain.target import Target
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

AROUND = 4
TRITON_PLACE = re.compile(r"at \d+:\d+:\n((?:.*\n)*?)[ \t]*\^")
"""Triton quotes the kernel up to the line in question, the last dozen lines at most."""
TRACEBACK_PLACE = re.compile(r'candidate\.py"?,? line (\d+)')
KERNEL_PLACE = re.compile(r"\bkernel \w+ line (\d+)")
LINE_MOST = 160


class Excerpt(Frozen):
    """A line of the candidate (from 1) with those around it, numbered; `>` marks it."""

    line: int
    text: str


def blamed_line(source: str, log: str, known: int | None = None) -> int | None:
    """The line that `log` blames. A kernel's own line, as Triton quotes it, goes before `known`,
    which may be the launch's."""
    quoted = TRITON_PLACE.findall(log)
    place = _quoted_at(source, quoted[-1]) if quoted else None
    if place is not None:
        return place
    named = [int(item) for item in KERNEL_PLACE.findall(log) or TRACEBACK_PLACE.findall(log)]
    return known or (named[-1] if named else None)


def excerpt(source: str, line: int | None) -> Excerpt | None:
    """The lines around `line`; None where the source has no such line."""
    lines = source.split("\n")
    if line is None or not 1 <= line <= len(lines):
        return None
    first, last = max(1, line - AROUND), min(len(lines), line + AROUND)
    shown = [
        f"{'>' if number == line else ' '} {number:4d} | {lines[number - 1][:LINE_MOST]}".rstrip()
        for number in range(first, last + 1)
    ]
    return Excerpt(line=line, text="\n".join(shown))


def _quoted_at(source: str, quoted: str) -> int | None:
    """The line where the quoted lines end; None where they stand nowhere or more than once."""
    wanted = [line.strip() for line in quoted.rstrip("\n").split("\n")]
    lines = [line.strip() for line in source.split("\n")]
    size = len(wanted)
    places = [at for at in range(len(lines) - size + 1) if lines[at : at + size] == wanted]
    return places[0] + size if len(places) == 1 else None


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


LOW_OCCUPANCY = 0.25
FULL = 0.9
MANY_LAUNCHES = 3
MOST_KERNELS = 8


class KernelPart(Frozen):
    """One launch: its share of the bytes that all launches touch (an estimate of its share of the
    time; nobody times launches apart), and its resources."""

    name: str
    grid: tuple[int, int, int]
    byte_share: float | None
    registers: int | None
    spill_bytes: int | None
    shared_bytes: int
    occupancy: float | None
    num_warps: int
    num_stages: int
    tensor_core: str | None


class SpeedEvidence(Frozen):
    """Where a candidate's time goes. `basis` says whether a GPU was asked."""

    kind: Literal["speed"] = "speed"
    basis: Literal["measured", "estimated"]
    bound: str
    time_us: float
    possible_us: float | None
    """The roofline; None where nobody knows it."""
    vs_eager: float | None
    vs_compile: float | None
    gb_per_s: float | None
    copy_gb_per_s: float | None
    tflops: float | None
    launches: int
    own_kernel_share: float | None
    kernels: tuple[KernelPart, ...]
    library_ops: tuple[str, ...]
    findings: tuple[str, ...]
    """What stands in the way, the gravest first."""

    @property
    def facts(self) -> tuple[Fact, ...]:
        """The evidence, a line each."""
        possible = self.possible_us
        rows: list[tuple[str, str]] = [
            ("bound by", self.bound),
            ("time", f"{self.time_us:.1f} us, {self.basis}"),
            ("possible", "" if possible is None else f"{possible:.1f} us on the roofline"),
            ("reached", _share(possible, self.time_us)),
            ("speedup over eager", _times(self.vs_eager)),
            ("speedup over torch.compile", _times(self.vs_compile)),
            ("bandwidth", _bandwidth(self.gb_per_s, self.copy_gb_per_s)),
            ("arithmetic", "" if self.tflops is None else f"{self.tflops:.2f} TFLOP/s"),
            ("launches", str(self.launches)),
            ("own kernels' share", _share(self.own_kernel_share, 1.0)),
            ("library calls", ", ".join(self.library_ops)),
        ]
        rows += [(f"kernel {item.name}", _kernel(item)) for item in self.kernels[:MOST_KERNELS]]
        rows += [("in the way", item) for item in self.findings]
        return tuple(Fact(name, value) for name, value in rows if value)


def speed_evidence(
    profile: Profile, analysis: Analysis | None = None, target: Target | None = None
) -> SpeedEvidence:
    """What `profile` says of its primary shapes; `analysis` brings the roofline class."""
    primary = profile.measurements[0] if profile.measurements else None
    report = profile.report
    kernels = report.kernels if report else ()
    library = report.library_ops if report else ()
    launches = primary.launches if primary else len(kernels) + len(library)
    bound = analysis.roofline if analysis else profile.estimate.bound
    roofline_us = analysis.bound_us if analysis else None
    return SpeedEvidence(
        basis="measured" if primary else "estimated",
        bound=bound,
        time_us=primary.candidate.median_us if primary else profile.estimate.time_us,
        possible_us=primary.roofline_us if primary else roofline_us,
        vs_eager=primary.vs_eager.value if primary else None,
        vs_compile=primary.vs_compile.value if primary and primary.vs_compile else None,
        gb_per_s=primary.achieved_gb_per_s if primary else None,
        copy_gb_per_s=primary.copy_gb_per_s if primary else None,
        tflops=primary.achieved_tflops if primary else None,
        launches=launches,
        own_kernel_share=primary.own_kernel_share if primary else None,
        kernels=_parts(kernels),
        library_ops=library,
        findings=_findings(kernels, library, primary, launches, bound, target),
    )


def _parts(kernels: tuple[KernelResources, ...]) -> tuple[KernelPart, ...]:
    total = sum(item.bytes_touched for item in kernels)
    return tuple(
        KernelPart(
            byte_share=item.bytes_touched / total if total else None,
            **item.model_dump(include=set(KernelPart.model_fields) - {"byte_share"}),
        )
        for item in kernels
    )


def _findings(
    kernels: tuple[KernelResources, ...],
    library: tuple[str, ...],
    primary: Measurement | None,
    launches: int,
    bound: str,
    target: Target | None,
) -> tuple[str, ...]:
    found = [words for item in kernels for words in _of_kernel(item, bound, target)]
    if primary and primary.roofline_fraction >= FULL:
        found.append(f"nothing much: {primary.roofline_fraction:.0%} of the roofline is reached")
    if launches >= MANY_LAUNCHES:
        found.append(f"{launches} launches, each reading what the one before wrote: fuse them")
    if primary and primary.own_kernel_share is not None and primary.own_kernel_share < FULL:
        rest = 1 - primary.own_kernel_share
        found.append(f"{rest:.0%} of the time is not in the own kernels: {', '.join(library)}")
    return tuple(dict.fromkeys(found))


def _of_kernel(kernel: KernelResources, bound: str, target: Target | None) -> list[str]:
    found = []
    if not kernel.fits:
        found.append(f"{kernel.name} does not fit the target: {kernel.error}")
    if kernel.spill_bytes:
        found.append(
            f"{kernel.name} spills {kernel.spill_bytes} bytes a thread: smaller tile, more warps"
        )
    if kernel.occupancy is not None and kernel.occupancy < LOW_OCCUPANCY:
        found.append(
            f"{kernel.name} keeps {kernel.occupancy:.0%} of an SM's warps resident "
            f"({kernel.registers} registers, {kernel.shared_bytes} bytes of shared memory)"
        )
    programs = math.prod(kernel.grid)
    if target is not None and programs < target.sm_count.value:
        found.append(
            f"{kernel.name} starts {programs} programs on {target.sm_count.value:.0f} SMs: split "
            "the work finer"
        )
    if bound == "compute" and kernel.tensor_core is None:
        found.append(f"{kernel.name} uses no tensor cores in a compute-bound problem")
    return found


def _kernel(item: KernelPart) -> str:
    words = [
        f"grid {'x'.join(map(str, item.grid))}",
        f"{item.num_warps} warps, {item.num_stages} stages",
        "" if item.registers is None else f"{item.registers} registers",
        "" if item.spill_bytes is None else f"{item.spill_bytes} bytes spilled",
        f"{item.shared_bytes} bytes shared" if item.shared_bytes else "",
        "" if item.occupancy is None else f"occupancy {item.occupancy:.0%}",
        item.tensor_core or "",
        "" if item.byte_share is None else f"{item.byte_share:.0%} of the bytes (estimated)",
    ]
    return ", ".join(word for word in words if word)


def _bandwidth(achieved: float | None, possible: float | None) -> str:
    if achieved is None:
        return ""
    limit = f" of {possible:.0f} GB/s that a copy reaches" if possible else ""
    return f"{achieved:.0f} GB/s{limit}"


def _share(part: float | None, whole: float) -> str:
    return "" if part is None or not whole else f"{part / whole:.0%}"


def _times(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}x"
