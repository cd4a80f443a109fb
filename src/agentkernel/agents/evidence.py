"""Evidence about a candidate, as values that rules and prompts both read.

From a verdict: the compiler's message with the line at fault, the wrong values, or the fault.
From a profile: the bound, the distance to it, and what limits each kernel.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Literal, NamedTuple

from agentkernel.agents.diagnosis import (
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
from agentkernel.domain.candidate import Candidate
from agentkernel.domain.errors import whole_words
from agentkernel.domain.formatting import told_apart
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


class Excerpt(NamedTuple):
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


class Evidence(NamedTuple):
    """What a verdict on a refused candidate proves, a fact each."""

    kind: Literal["compile", "values", "fault"]
    """The compiler refused a kernel, the result is wrong, or anything else."""
    facts: tuple[Fact, ...]
    line: int | None = None
    """The candidate's line at fault, where known."""
    excerpt: Excerpt | None = None
    rule: TritonRule | None = None
    """The rule of Triton that was broken, where known."""


def evidence_of(candidate: Candidate, verdict: Verdict) -> Evidence:
    """What the verdict on a refused candidate proves."""
    failure = verdict.failure
    match failure:
        case None:
            gate = verdict.gate
            stopped = ("what happened", f"stopped at the gate {gate}")
            return Evidence("fault", _said(("fault", gate), stopped))
        case CompileFailed():
            return _compile(candidate.source, failure)
        case Mismatch():
            return _values(candidate, verdict, failure)
    return _fault(candidate.source, failure)


def refusal_facts(candidate: Candidate, verdict: Verdict | None) -> tuple[Fact, ...]:
    """Why a candidate was refused, a fact each; nothing for one that was not."""
    if verdict is None or verdict.accepted:
        return ()
    return evidence_of(candidate, verdict).facts


def refusal_line(candidate: Candidate, verdict: Verdict) -> str:
    """Why it was refused, on one line: what was found where, or what happened."""
    failure = verdict.failure
    if isinstance(failure, Mismatch):
        place = f"[{', '.join(map(str, failure.first_index))}] of output {failure.output}"
        expected, found = told_apart(failure.expected, failure.found)
        return (
            f"{failure.case}: expected {expected}, found {found} at {place}; "
            f"{failure.wrong_share:.0%} wrong ({failure.pattern})"
        )
    said = dict(evidence_of(candidate, verdict).facts)
    if isinstance(failure, CompileFailed):
        return said["error"]
    happened = said.get("what happened", "")
    return f"{said['case']}: {happened}" if "case" in said else happened


def _compile(source: str, failure: CompileFailed) -> Evidence:
    line, rule = blamed_line(source, failure.log, failure.line), broken_rule(failure.log)
    facts = _said(("line", line), ("error", last_log_line(failure.log)), *_broken(rule))
    return Evidence("compile", facts, line, excerpt(source, line), rule)


def _broken(rule: TritonRule | None) -> tuple[tuple[str, str], ...]:
    if rule is None:
        return ()
    return ("rule broken", f"{rule.name}: {rule.rule}"), ("usual fix", rule.fix)


def _values(candidate: Candidate, verdict: Verdict, failure: Mismatch) -> Evidence:
    form, times = error_form(failure), ratio(failure)
    expected, found = told_apart(failure.expected, failure.found)
    outside = OUTSIDE.search(failure.case)
    line = blamed_line(candidate.source, f"kernel {outside[1]}") if outside else None
    facts = _said(
        ("case", failure.case),
        ("output", failure.output),
        ("place", location_text(failure)),
        ("pattern", failure.pattern),
        ("first wrong index", str(list(failure.first_index))),
        ("expected there", expected),
        ("found there", found),
        ("found / expected", "" if times is None else told_apart(times, 1.0, 4)[0]),
        ("wrong elements", f"{failure.wrong_share:.2%}"),
        ("error", failure.decisive),
        ("form of the error", f"{form}: {explain_error(failure, form)}"),
        ("tile edges", tile_edges(failure, tile_sizes(candidate))),
        ("other cases", passing_text(verdict)),
        ("reads past every tensor", outside[1].rstrip(")") if outside else ""),
        ("input dtypes", ", ".join(input_dtypes(verdict))),
    )
    return Evidence("values", facts, line, excerpt(candidate.source, line))


def _fault(source: str, failure: Failure) -> Evidence:
    fault: str = failure.kind
    case, line, rule = "", None, None
    match failure:
        case RunFailed():
            fault, case, text = f"run: {failure.reason}", failure.case, last_log_line(failure.log)
            line, rule = blamed_line(source, failure.log), broken_rule(text)
        case PolicyViolation() | RaceFound():
            by = failure.rule if isinstance(failure, PolicyViolation) else failure.tool
            text, line = f"{by}: {failure.text}", failure.line
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
    said = (("fault", fault), ("case", case), ("line", line), ("what happened", text))
    return Evidence("fault", _said(*said, *_broken(rule)), line, excerpt(source, line), rule)


def tile_sizes(candidate: Candidate) -> dict[str, int]:
    """Names and values of the constants that may be tile sizes."""
    written = {name: int(value) for name, value in CONSTANT.findall(candidate.source)}
    for constants in candidate.schedule.values():
        written |= {name: size for name, size in constants.items() if name.isupper()}
    return written


def last_log_line(log: str, most: int = 300) -> str:
    """The last line of a log that says something: an error's own message."""
    lines = [line.strip() for line in log.splitlines() if line.strip(" \t^~")]
    return whole_words(lines[-1], most) if lines else "no log"


def _said(*facts: tuple[str, str | int | None]) -> tuple[Fact, ...]:
    return tuple(Fact(name, str(value)) for name, value in facts if value not in ("", None))


LOW_OCCUPANCY = 0.25
FULL = 0.9
MANY_LAUNCHES = 3
MOST_KERNELS = 8
PRODUCTS = ("matmul", "convolution", "attention")
"""Kinds of library calls that multiply matrices."""


class SpeedEvidence(NamedTuple):
    """Where a candidate's time goes. `basis` says whether a GPU was asked."""

    basis: Literal["measured", "estimated"]
    facts: tuple[Fact, ...]
    findings: tuple[str, ...]
    """What stands in the way, the gravest first; the last of the facts."""


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
    basis: Literal["measured", "estimated"] = "measured" if primary else "estimated"
    time_us = primary.candidate.median_us if primary else profile.estimate.time_us
    bound_us = analysis.bound_us if analysis else None
    possible = primary.roofline_us if primary else bound_us
    costs = report.library_costs if report else ()
    # Where the library multiplies, the kernels beside it have no product to put on tensor cores.
    own_bound = "" if any(cost.kind in PRODUCTS for cost in costs) else bound
    findings = _findings(kernels, library, primary, launches, own_bound, target)
    facts = _said(
        ("bound by", bound),
        ("time", f"{time_us:.1f} us, {basis}"),
        ("possible", "" if possible is None else f"{possible:.1f} us on the roofline"),
        ("reached", _share(possible, time_us)),
        *(_measured(primary) if primary else ()),
        ("launches", str(launches)),
        ("own kernels' share", _share(primary.own_kernel_share, 1.0) if primary else ""),
        ("library calls", ", ".join(library)),
        *_kernels(kernels, sum(cost.bytes_moved for cost in costs)),
        *(("in the way", item) for item in findings),
    )
    return SpeedEvidence(basis, facts, findings)


def _measured(primary: Measurement) -> tuple[tuple[str, str], ...]:
    copied = primary.copy_gb_per_s
    limit = f" of {copied:.0f} GB/s that a copy reaches" if copied else ""
    compiled = f"{primary.vs_compile.value:.2f}x" if primary.vs_compile else ""
    return (
        ("speedup over eager", f"{primary.vs_eager.value:.2f}x"),
        ("speedup over torch.compile", compiled),
        ("bandwidth", f"{primary.achieved_gb_per_s:.0f} GB/s{limit}"),
        ("arithmetic", f"{primary.achieved_tflops:.2f} TFLOP/s"),
    )


def _kernels(kernels: tuple[KernelResources, ...], library_bytes: int) -> Iterator[tuple[str, str]]:
    """Each launch with its share of the bytes that all launches and library calls touch: an
    estimate of its share of the time, as nobody times launches apart."""
    total = sum(item.bytes_touched for item in kernels) + library_bytes
    for item in kernels[:MOST_KERNELS]:
        words = [
            f"grid {'x'.join(map(str, item.grid))}",
            f"{item.num_warps} warps, {item.num_stages} stages",
            "" if item.registers is None else f"{item.registers} registers",
            "" if item.spill_bytes is None else f"{item.spill_bytes} bytes spilled",
            f"{item.shared_bytes} bytes shared" if item.shared_bytes else "",
            "" if item.occupancy is None else f"occupancy {item.occupancy:.0%}",
            item.tensor_core or "",
            f"{item.bytes_touched / total:.0%} of the bytes (estimated)" if total else "",
        ]
        yield f"kernel {item.name}", ", ".join(word for word in words if word)


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


def _share(part: float | None, whole: float) -> str:
    return "" if part is None or not whole else f"{part / whole:.0%}"
