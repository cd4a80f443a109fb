"""How are bytes, seconds and figures read from the command line and written for people?"""

from __future__ import annotations

import re

from agentkernel.domain.errors import SettingError
from agentkernel.workflows.report_models import count_text, usd_text

SIZE = re.compile(r"^\s*(\d+(?:\.\d+)?)\s*([KMGT]?)(?:i?B)?\s*$", re.I)
SPAN = re.compile(r"^\s*(\d+(?:\.\d+)?)\s*(s|m|min|h)?\s*$", re.I)
SIZE_FACTORS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
SPAN_FACTORS = {"s": 1, "m": 60, "min": 60, "h": 3600}


def parse_bytes(text: str | None) -> int | None:
    """`512M` -> 536870912; powers of 1024."""
    if text is None:
        return None
    match = SIZE.match(text)
    if match is None or float(match[1]) == 0:
        raise SettingError(f"--max-memory {text!r} is no size. Expected e.g. 512M, 4G or 1048576.")
    return int(float(match[1]) * SIZE_FACTORS[match[2].upper()])


def parse_seconds(text: str | None) -> float | None:
    """`10m` -> 600.0."""
    if text is None:
        return None
    match = SPAN.match(text)
    if match is None or float(match[1]) == 0:
        raise SettingError(f"--time {text!r} is no time span. Expected e.g. 90s, 10m or 1h.")
    return float(match[1]) * SPAN_FACTORS[(match[2] or "s").lower()]


def show_us(value: float | None) -> str:
    """Microseconds to three figures, in the unit that suits them."""
    if value is None:
        return "-"
    if value >= 1e6:
        return f"{value / 1e6:.3g} s"
    if value >= 1e3:
        return f"{value / 1e3:.3g} ms"
    return f"{value:.3g} us"


def show_bytes(value: float | None) -> str:
    """Bytes in powers of 1024, at most one decimal."""
    if value is None:
        return "-"
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"


def show_ratio(value: float | None) -> str:
    """`1.31x`, or a dash for what nobody measured."""
    return "-" if value is None else f"{value:.2f}x"


def show_share(value: float | None) -> str:
    """A fraction in percent."""
    return "-" if value is None else f"{value:.0%}"


def show_error(value: float | None) -> str:
    """A relative error in two figures."""
    return "-" if value is None else f"{value:.1e}"


def show_span(seconds: float) -> str:
    """`1 h 2 min`, `3 min 4 s` or `5 s`."""
    whole = int(seconds)
    if whole >= 3600:
        return f"{whole // 3600} h {whole % 3600 // 60} min"
    if whole >= 60:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole} s"


def show_count(value: int | None) -> str:
    """`12,340`, or a dash for what nobody counted."""
    return "-" if not value else count_text(value)


def show_usd(value: float | None, unpriced: int = 0) -> str:
    """USD; `unpriced` answers among them have no known price."""
    return usd_text(value, unpriced)
