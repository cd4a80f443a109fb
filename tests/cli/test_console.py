"""Tables in pipes and on narrow terminals."""

from __future__ import annotations

import io

import pytest
from rich.console import Console
from rich.table import Table

from agentkernel.cli.console import console
from agentkernel.cli.rendering.text import PlainConsole, View, grid
from agentkernel.cli.runs import runs_table
from agentkernel.tools.run_store import RunSummary

IDS = ("residualnormflat-20261129-160355-161a", "convblock-20261129-153321-9f13")
RUNS = [
    RunSummary(
        id=name,
        folder=f"runs/{name}",
        created="2026-11-29T16:03:55+00:00",
        problem=name.split("-")[0],
        target="h100-sxm",
        status="kept_original",
    )
    for name in IDS
]


def test_in_a_pipe_a_row_is_one_line_that_ends_with_its_text(
    capsys: pytest.CaptureFixture[str],
) -> None:
    table = Table("name", "why", box=None, pad_edge=False)
    table.add_row("a", "word " * 200)
    table.add_row("b", "short")
    console().print(table)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3
    assert all(line == line.rstrip() for line in lines)


@pytest.mark.parametrize("width", [40, 80, 200])
def test_a_runs_id_is_whole_on_any_terminal(width: int, capsys: pytest.CaptureFixture[str]) -> None:
    PlainConsole(width=width).print(runs_table(RUNS))
    shown = capsys.readouterr().out
    assert all(name in shown for name in IDS)


def test_in_a_pipe_a_run_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    console().print(runs_table(RUNS))
    heading, *lines = capsys.readouterr().out.splitlines()
    assert heading.split() == ["run", "created", "problem", "target", "status"]
    assert [line.split()[0] for line in lines] == list(IDS)
    assert all(line.endswith("kept_original") for line in lines)


def test_a_word_of_a_table_is_never_broken() -> None:
    view = View(width=110, unicode=True)
    headings = ["", *(f"c{n}" for n in range(1, 8))]
    rows = [["launch", *["2 warps, 3 stages"] * 7], ["verdict", *["right (interpreted)"] * 7]]
    screen = Console(width=110, record=True, file=io.StringIO())
    screen.print(grid(headings, rows, view))
    assert screen.export_text().count("(interpreted)") == 7
