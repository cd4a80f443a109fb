"""How do the figures and names of a night read?"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from agentkernel.domain.errors import one_line
from agentkernel.domain.night import LostJob, ModelRow, NightlyRun, RegionRow
from agentkernel.domain.profile import Ratio
from agentkernel.domain.region import Basis

DASH = "–"
SHOWN_JOBS = 3
"""Names of jobs in a line about many of them."""
SHORT = 10
"""Hex digits of a hash that people see."""
DTYPE = re.compile(r"\b(bfloat16|bf16|float(?:16|32|64)|f(?:16|32|64))\b")
DTYPES = {
    "bf16": "bfloat16",
    "f16": "float16",
    "f32": "float32",
    "f64": "float64",
}


def lost_text(lost: Sequence[LostJob]) -> list[tuple[str, str]]:
    """What was lost and why, one line a reason: a night that is killed again and again has many of
    the same."""
    by_reason: dict[str, list[LostJob]] = {}
    for item in lost:
        by_reason.setdefault(item.why, []).append(item)
    lines = []
    for why, items in by_reason.items():
        names = list(dict.fromkeys(item.job for item in items))
        shown = ", ".join(names[:SHOWN_JOBS])
        if len(names) > SHOWN_JOBS:
            shown += f" and {len(names) - SHOWN_JOBS} more"
        again = items[0].again if len(items) == 1 else len(items)
        lines.append((shown, f"{why}; done again {again}×"))
    return lines


def us(value: float | None) -> str:
    """Microseconds to three figures, in the unit that suits them; a dash for none."""
    if value is None:
        return DASH
    for unit, size in (("s", 1e6), ("ms", 1e3)):
        if value >= size:
            return f"{_three(value / size)} {unit}"
    return f"{_three(value)} µs"


def span(seconds: float | None) -> str:
    """`42 s`, `14 min 3 s`, `2 h 5 min`; a dash for none."""
    if seconds is None:
        return DASH
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s" if whole >= 10 or not seconds else f"{seconds:.1f} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s" if whole % 60 else f"{whole // 60} min"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def times(value: float | None) -> str:
    """`1.31×`, or a dash."""
    return DASH if value is None else f"{value:.2f}×"


def interval(ratio: Ratio | None) -> str:
    """The 95% interval, `1.28 to 1.34`; "" where there is none."""
    if ratio is None or ratio.low == ratio.high:
        return ""
    return f"{ratio.low:.2f} to {ratio.high:.2f}"


def percent(value: float | None) -> str:
    """A share, 0 to 1, in percent; a dash for none."""
    if value is None:
        return DASH
    return f"{value:.1%}" if 0 < abs(value) < 0.0995 else f"{value:.0%}"


def error_text(value: float | None) -> str:
    """`1.2e-07`, or a dash."""
    return DASH if value is None else f"{value:.1e}"


def when(stamp: str) -> str:
    """`2026-11-23 04:13 UTC` of an ISO 8601 time in UTC."""
    day, _, rest = stamp.partition("T")
    return f"{day} {rest[:5]} UTC" if rest else stamp


def region_label(row: RegionRow) -> str:
    """How a change, a test case and a comment name a region."""
    return f"{row.name} ({row.signature})"


def count(number: int, noun: str) -> str:
    """`1 model`, `3 models`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def unhelpful(row: ModelRow) -> tuple[str, ...]:
    """Signatures of the kernels that were dropped though the outputs are right with them."""
    return tuple(name for name in row.dropped if name not in row.left_out)


def dropped_text(row: ModelRow) -> Iterator[str]:
    """Which kernels were taken out of a model again: for its outputs, one a cause, or for no
    gain."""
    causes: dict[str, list[str]] = {}
    for name, why in row.left_out.items():
        causes.setdefault(one_line(why, 120), []).append(name)
    for why, names in causes.items():
        yield f"{count(len(names), 'kernel')} left out for the outputs: {why}"
    slow = unhelpful(row)
    if slow:
        yield f"{count(len(slow), 'kernel')} dropped: no help end to end"


def dtypes_of(texts: Iterable[str]) -> tuple[str, ...]:
    """The floating dtypes that the texts name, each once, by their long names."""
    found = {DTYPES.get(name, name): None for text in texts for name in DTYPE.findall(text)}
    return tuple(sorted(found))


def night_dtypes(night: NightlyRun) -> tuple[str, ...]:
    """The floating dtypes of all models and regions."""
    return dtypes_of([*(row.dtype for row in night.models), *(row.shapes for row in night.regions)])


def caption(night: NightlyRun, basis: Basis, dtypes: tuple[str, ...] = ()) -> str:
    """What must stand beside every figure: GPU or target, dtypes, versions."""
    versions = night.versions
    known = dtypes or night_dtypes(night)
    driver = f" (driver {versions.driver})" if versions.driver else ""
    where = (
        f"Measured on {night.gpu}{driver}"
        if basis == "measured"
        else f"Estimated for {night.target} by its roofline, measured on no GPU"
    )
    kinds = ", ".join(known) if known else "dtypes not recorded"
    return f"{where}; {kinds}; torch {versions.torch}, triton {versions.triton}"


def _three(value: float) -> str:
    if value >= 99.95:
        return f"{value:.0f}"
    return f"{value:.1f}" if value >= 9.995 else f"{value:.2f}"
