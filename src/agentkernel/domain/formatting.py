"""Numbers as text: times, ratios, shares, errors, counts and prices, with their units."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agentkernel.domain.profile import Ratio

DASH = "–"
"""What stands where there is no value."""
NO_PRICE = "no price known"


def counted(names: Iterable[str]) -> list[str]:
    """Each name once, in the order in which it came first, with how often it came: `mm x 12`."""
    return [f"{name} x {n}" if n > 1 else name for name, n in Counter(names).items()]


def us(value: float | None) -> str:
    """Microseconds to three figures, in the unit that suits them; a dash for none."""
    if value is None:
        return DASH
    for unit, size in (("s", 1e6), ("ms", 1e3)):
        if value >= size:
            return f"{three_figures(value / size)} {unit}"
    return f"{three_figures(value)} µs"


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


def ratio_text(ratio: Ratio | None) -> str:
    """`1.31× (1.28 to 1.34)`, value and 95% interval; the value alone where there is none."""
    around = interval(ratio)
    return times(ratio.value if ratio else None) + (f" ({around})" if around else "")


def with_interval(ratio: Ratio | None, digits: int = 2, unit: str = "x") -> str:
    """`1.31x [1.28, 1.34]`, value and 95% interval; a dash for none."""
    if ratio is None:
        return DASH
    low, high = f"{ratio.low:.{digits}f}", f"{ratio.high:.{digits}f}"
    return f"{ratio.value:.{digits}f}{unit} [{low}, {high}]"


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


def three_figures(value: float) -> str:
    """`1.31`, `13.1`, `131`."""
    if value >= 99.95:
        return f"{value:.0f}"
    return f"{value:.1f}" if value >= 9.995 else f"{value:.2f}"


def count(number: int, noun: str) -> str:
    """`1 model`, `3 models`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def usd_text(cost_usd: float | None, unpriced: int) -> str:
    """`0.0123`, `at least 0.0123` where some of it has no price, or that none is known."""
    if cost_usd is None:
        return NO_PRICE
    text = f"{cost_usd:.4f}" if cost_usd >= 0.001 or cost_usd == 0 else f"{cost_usd:.2g}"
    return f"at least {text}" if unpriced else text


def microseconds(value: float | None) -> str:
    """`12.3`, or a dash."""
    return DASH if value is None else f"{value:.1f}"


MOST_DIGITS = 17
"""Decimal digits that tell any two fp64 numbers apart."""


def told_apart(first: float, second: float, digits: int = 6) -> tuple[str, str]:
    """Both with `digits` significant digits, or with as many more as tell them apart."""
    texts = f"{first:.{digits}g}", f"{second:.{digits}g}"
    if texts[0] != texts[1] or first == second or digits >= MOST_DIGITS:
        return texts
    return told_apart(first, second, digits + 1)
