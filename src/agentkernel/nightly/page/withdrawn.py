"""What was withdrawn and why, and what came in its place?"""

from __future__ import annotations

from agentkernel.domain.errors import one_line
from agentkernel.domain.night import RegionRow
from agentkernel.nightly.page.wording import SHORT

SINCE = "; since then: "
"""Between why a kernel was withdrawn and what its region came to, in a row's reason."""


def is_replaced(row: RegionRow) -> bool:
    """A kernel was withdrawn, and its region has one again."""
    return row.status == "withdrawn" and row.sha256 is not None


def withdrawn_text(row: RegionRow) -> str:
    """`kernel 1a2b3c4d5e: rejected at correctness; in its place 6f708192a3 (1.2x over eager)`."""
    cause, _, after = row.reason.partition(SINCE)
    old = f"kernel {row.parent[:SHORT]}" if row.parent else "its kernel"
    return f"{old}: {one_line(cause, 160) or 'it does not verify'}; {_in_its_place(row, after)}"


def _in_its_place(row: RegionRow, after: str) -> str:
    status, _, why = one_line(after, 160).partition(" (")
    around = f" ({why.removesuffix(')')})" if why else ""
    if row.sha256 is None:
        told = {"": "", "kept": ", the baseline is kept"}.get(status, f", {status}")
        return f"nothing in its place{told}{around}"
    if row.sha256 == row.parent:
        return f"in its place the same kernel, drafted and judged again{around}"
    return f"in its place {row.sha256[:SHORT]}{around}"
