"""Does the table hold every candidate, and leave the text around it alone?"""

from __future__ import annotations

from pathlib import Path

import pytest

from agentkernel.bench.redteam.corpus import JudgedBy, read_corpus, undecided_finding
from agentkernel.bench.redteam.report import (
    BEGIN,
    END,
    CorpusSummary,
    markdown,
    summarise,
    write_table,
)
from agentkernel.domain.errors import OutputError
from tests.workflows.fakes import VERSIONS


def summary(corpus: Path) -> CorpusSummary:
    hostile, honest = read_corpus(corpus)
    lost = undecided_finding(hostile, "x")
    found = lost.evolve(gate="run", right=True, start_s=1.5, capture_s=0.5, cases_s=2.0)
    return summarise(
        corpus,
        [found],
        [honest],
        JudgedBy(judge_sha256="0" * 64, device="triton interpreter", versions=VERSIONS),
        jobs=2,
        wall_s=3.0,
    )


def test_numbers_are_counted_and_added_up(corpus: Path) -> None:
    made = summary(corpus)
    assert (made.judged, made.right, made.unexpected, made.skipped) == (1, 1, (), ("plus",))
    assert made.per_minute == 20.0
    assert (made.spent.start_s, made.spent.cases_s) == (1.5, 2.0)


def test_every_candidate_has_a_row(corpus: Path) -> None:
    entries = read_corpus(corpus)
    text = markdown(summary(corpus), entries)
    assert "| `nearly` | Adds a little more. | `plus` | correctness | run |" in text
    assert "| `plus` | Adds one. | `plus` | accepted | not tried |" in text
    wrong = summary(corpus)
    failed = wrong.found[0].evolve(right=False, gate="accepted")
    text = markdown(wrong.evolve(found=(failed,)), entries)
    assert "| **accepted** |" in text


def test_the_table_goes_between_the_markers(corpus: Path, tmp_path: Path) -> None:
    path = tmp_path / "redteam.md"
    entries = read_corpus(corpus)
    write_table(path, summary(corpus), entries)
    assert path.read_text().startswith(BEGIN)
    path.write_text(f"# Above\n\n{BEGIN}\nold\n{END}\n\nBelow\n")
    write_table(path, summary(corpus), entries)
    once = path.read_text()
    assert once.startswith(f"# Above\n\n{BEGIN}\n1 of 1 as expected")
    assert once.endswith(f"{END}\n\nBelow\n")
    assert "old" not in once
    write_table(path, summary(corpus), entries)
    assert path.read_text() == once


def test_a_text_without_markers_is_left_alone(corpus: Path, tmp_path: Path) -> None:
    path = tmp_path / "redteam.md"
    path.write_text("mine\n")
    with pytest.raises(OutputError, match="no place for the table"):
        write_table(path, summary(corpus), read_corpus(corpus))
    assert path.read_text() == "mine\n"
