"""What a search's costs were worth is one line a kind of kernel."""

from __future__ import annotations

import io

from rich.console import Console

from agentkernel.cli.rendering.search import order_table
from agentkernel.tools.search.order import Order


def test_one_line_a_kind_of_kernel() -> None:
    screen = Console(width=100, record=True, file=io.StringIO())
    screen.print(order_table((Order("gemm", 2, 48, 0.714, (0.9, 0.955, 1.0)),)))
    heading, line = [text.split() for text in screen.export_text().splitlines()]
    assert heading[:3] == ["kernels", "steps", "measured"]
    assert line == ["gemm", "2", "48", "0.71", "90.0%", "95.5%", "100.0%"]
