"""Is a candidate judged once only, and again where the text or the judge is another?"""

from __future__ import annotations

from pathlib import Path

import pytest

from agentkernel.bench.redteam import runner
from agentkernel.bench.redteam.corpus import (
    CorpusEntry,
    CorpusFinding,
    Journal,
    JudgedBy,
    read_corpus,
)
from agentkernel.bench.redteam.runner import CorpusSettings, judge_corpus
from agentkernel.domain.errors import OutputError
from agentkernel.runtime.machine import installed_versions

QUICK = CorpusSettings(seeds=1, budget_s=0.0)


def journal(path: Path, judge: str = "judge", device: str = "triton interpreter") -> Journal:
    versions = installed_versions()
    return Journal(path, JudgedBy(judge_sha256=judge, device=device, versions=versions))


def found(entry: CorpusEntry, gate: str = "correctness") -> CorpusFinding:
    return CorpusFinding.model_validate(
        {
            "name": entry.name,
            "kind": entry.kind,
            "problem": entry.problem_name,
            "title": entry.title,
            "expected": gate,
            "gate": gate,
            "right": True,
        }
    )


@pytest.mark.slow
def test_the_second_call_judges_nothing(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, entries = tmp_path / "found.jsonl", read_corpus(corpus)
    first = judge_corpus(entries, QUICK, 1, lambda _: None, journal(path))
    assert len(path.read_text().splitlines()) == 2

    def nothing(left: list[CorpusEntry], *_: object, **__: object) -> list[object]:
        assert not left
        return []

    monkeypatch.setattr(runner, "_spread", nothing)
    heard: list[CorpusFinding] = []
    assert judge_corpus(entries, QUICK, 1, heard.append, journal(path)) == first
    assert len(heard) == 2
    assert len(path.read_text().splitlines()) == 2


def test_another_text_judge_or_device_is_another_question(corpus: Path, tmp_path: Path) -> None:
    path, entry = tmp_path / "found.jsonl", read_corpus(corpus)[0]
    journal(path).note(entry, found(entry))
    assert journal(path).known(entry) == found(entry)
    assert journal(path, judge="another").known(entry) is None
    assert journal(path, device="NVIDIA H200").known(entry) is None
    other = entry.evolve(source=entry.source + "\n")
    assert journal(path).known(other) is None
    reference = Path(entry.problem)
    reference.write_text(reference.read_text() + "\n")
    assert journal(path).known(entry) is None


def test_a_torn_line_costs_its_own_finding_only(corpus: Path, tmp_path: Path) -> None:
    path = tmp_path / "found.jsonl"
    first, second = read_corpus(corpus)
    journal(path).note(first, found(first))
    with path.open("a") as file:
        file.write('{"key": "ab')
    assert journal(path).known(first) == found(first)
    journal(path).note(second, found(second))
    again = journal(path)
    assert (again.known(first), again.known(second)) == (found(first), found(second))


def test_no_room_for_it_is_one_line(corpus: Path, tmp_path: Path) -> None:
    entry = read_corpus(corpus)[0]
    with pytest.raises(OutputError, match="missing"):
        journal(tmp_path / "missing" / "found.jsonl").note(entry, found(entry))
