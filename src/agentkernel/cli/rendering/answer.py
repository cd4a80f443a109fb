"""The answer of a run on the terminal: its colour, and the table of how it is used."""

from __future__ import annotations

from rich.table import Table
from rich.text import Text

from agentkernel.domain.certificate import Certificate
from agentkernel.workflows.answer import answer_sentence, surely_faster, use_lines
from agentkernel.workflows.outcome import Result


def answer(result: Result, certificate: Certificate | None) -> Text:
    """The first line of a result; green only where the 95% interval of a handed-over drop-in lies
    above 1."""
    return Text(answer_sentence(result, certificate), style=_style(result))


def _style(result: Result) -> str:
    if result.status == "failed":
        return "bold red"
    return "bold green" if surely_faster(result) else "bold yellow"


def use_table(result: Result, certificate: Certificate | None) -> Table | None:
    """The line that imports the drop-in, the call that applies it, and what it holds for; None
    where nothing is handed over."""
    rows = use_lines(result, certificate)
    if not rows:
        return None
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, text in rows:
        table.add_row(name, Text(text))
    return table
