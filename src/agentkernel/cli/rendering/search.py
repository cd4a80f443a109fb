"""Order of costs and measured times in a run's search, as a table."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from agentkernel.tools.search.order import MEASURED, Order


def order_table(orders: Sequence[Order]) -> Table:
    """One line a kind of kernel: Spearman's correlation of cost and time, and what share of the
    best speed the cheapest 8, 16 and 24 hold."""
    shown = Table(box=None, pad_edge=False)
    shown.add_column("kernels")
    headings = ("steps", "measured", "cost ~ time", *(f"best of {count}" for count in MEASURED))
    for heading in headings:
        shown.add_column(heading, justify="right")
    for item in orders:
        shown.add_row(
            item.pattern,
            str(item.segments),
            str(item.measured),
            f"{item.correlation:.2f}",
            *(f"{share:.1%}" for share in item.reached),
        )
    return shown
