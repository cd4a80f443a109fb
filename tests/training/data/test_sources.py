"""Is every source read for what it proves, and nothing of it believed or run?"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agentkernel.domain.candidate import Candidate, Draft
from agentkernel.domain.errors import SettingError
from agentkernel.domain.knowledge import Entry
from agentkernel.knowledge.kernelbook import PERMISSIVE
from agentkernel.knowledge.store import open_knowledge_store
from agentkernel.storage.configuration import load_settings
from agentkernel.tools.problem.loading import load_problem
from agentkernel.tools.run_store import create_run
from agentkernel.tools.targets import find_target
from agentkernel.training.data.generator import make_problem
from agentkernel.training.data.pairs import problems_in
from agentkernel.training.data.sources import (
    Origin,
    UnreadableRow,
    fingerprint,
    origin_of,
    read_origin,
    read_reviews,
)
from agentkernel.training.settings import JudgedKernel
from tests.knowledge.kernelbook_rows import make_rows
from tests.training.data.judged_rows import kernel, made_rows, verdict, write_rows

BOMB = "import pathlib\npathlib.Path('{path}').write_text('run')\n"


def judged(origin: Origin) -> list[JudgedKernel]:
    return [row for row in read_origin(origin) if isinstance(row, JudgedKernel)]


def test_pairs_come_back_as_they_were_and_what_is_torn_is_counted(tmp_path: Path) -> None:
    rows = made_rows(4)
    path = write_rows(tmp_path / "pairs.jsonl.gz", rows)
    origin = origin_of(str(path))
    assert origin.kind == "pairs"
    assert judged(origin) == rows
    torn = tmp_path / "torn.jsonl.gz"
    torn.write_bytes(path.read_bytes()[:-40])
    found = list(read_origin(Origin("pairs", torn)))
    assert isinstance(found[-1], UnreadableRow)
    assert fingerprint(origin) != fingerprint(Origin("pairs", torn))
    plain = tmp_path / "plain.jsonl"
    plain.write_text(rows[0].model_dump_json() + '\n{"problem": 1, "kernel": "", "label": 2}\n[]\n')
    kinds = [type(item) for item in read_origin(origin_of(str(plain)))]
    assert kinds == [JudgedKernel, UnreadableRow, UnreadableRow]


def test_published_rows_are_somebodys_word_with_their_own_licence(tmp_path: Path) -> None:
    path = tmp_path / "set.jsonl"
    rows = list(make_rows(30))
    rows[0]["python_code"] = BOMB.format(path=tmp_path / "bomb") + str(rows[0]["python_code"])
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    origin = origin_of(str(path))
    assert origin.kind == "kernelbook"
    found = judged(origin)
    assert found
    assert {row.label for row in found} == {"not-judged"}
    assert {row.source for row in found} == {"kernelbook"}
    assert not (tmp_path / "bomb").exists()
    licences = {row.licence for row in found}
    assert len(licences) > 1
    nameless = judged(Origin("kernelbook", path, "MIT"))
    assert all("not stated" not in row.licence for row in nameless)


def test_published_modules_can_be_problems_under_the_name_that_pairs_are_made_of(
    tmp_path: Path,
) -> None:
    path = tmp_path / "set.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in make_rows(60)))
    found = list(problems_in(path))
    assert found
    assert all("class Model(" in item.text for item in found)
    assert {item.source for item in found} == {"kernelbook"}
    assert {item.licence for item in found} <= PERMISSIVE


def test_a_verified_entry_of_the_knowledge_base_is_no_verdict(tmp_path: Path) -> None:
    entry = Entry(
        id="generated/1",
        kind="pair",
        title="x",
        problem=make_problem(1).text,
        answer=kernel(),
        passages=("x",),
        source="x.py",
        licence="MIT",
        verified="gpu",
    )
    with open_knowledge_store(tmp_path / "base") as truth:
        truth.put([entry, entry.evolve(id="kernelbook/2")])
    origin = origin_of(str(tmp_path / "base"))
    assert origin.kind == "knowledge"
    (row,) = judged(origin)
    assert (row.label, row.verdict, row.source, row.licence) == (
        "not-judged",
        None,
        "knowledge",
        "MIT",
    )


def test_candidates_of_runs_come_with_the_verdicts_on_them(tmp_path: Path) -> None:
    file = tmp_path / "problem.py"
    file.write_text(make_problem(1).text)
    loaded = load_problem(str(file))
    store = create_run(
        loaded,
        load_settings().evolve(runs=str(tmp_path / "runs")),
        find_target("h100"),
        judge_sha256="0" * 64,
    )
    for number, accepted in ((2, True), (3, False), (4, None), (5, True)):
        text = kernel(number)
        candidate = Candidate(source=text, coder="compiler", round=number, strategy="fused")
        store.records.save_draft(str(number), Draft(candidate=candidate))
        if accepted is not None:
            found = verdict(text, accepted=accepted)
            # The last verdict is about another problem.
            of = loaded.problem.sha256 if number != 5 else "1" * 64
            store.records.save_verdict(str(number), found.evolve(problem=of))
    store.close()
    broken = tmp_path / "runs" / "broken-run"
    broken.mkdir()
    (broken / "run.json").write_text("{")
    origin = origin_of(str(tmp_path / "runs"), "Apache-2.0")
    assert origin.kind == "runs"
    rows = judged(origin)
    assert [(row.kernel, row.label) for row in rows] == [
        (kernel(2), "interpreter"),
        (kernel(3), "refused"),
    ]
    assert rows[0].facts["inputs"] == loaded.problem.shape_sets[0].label
    assert rows[0].licence == "Apache-2.0"
    assert judged(Origin("runs", tmp_path / "runs"))[0].licence == "not stated"
    assert sum(isinstance(item, UnreadableRow) for item in read_origin(origin)) == 1
    assert fingerprint(origin) == fingerprint(origin)


def test_a_teachers_reviews_are_read_whole_or_by_their_sections(tmp_path: Path) -> None:
    path = tmp_path / "reviews.jsonl"
    whole = "ANALYSIS: slow loads\nOPTIMIZATIONS:\n- wider\nESTIMATED_SPEEDUP: 1.5x"
    lines: list[dict[str, object]] = [
        {"kernel_sha256": "a", "by": "chat:x", "text": whole},
        {"kernel_sha256": "b", "analysis": "fine", "optimizations": ["none"]},
        {"kernel_sha256": 3},
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    origin = origin_of(str(path))
    assert origin.kind == "reviews"
    first, second, third = read_reviews(origin)
    assert not isinstance(first, UnreadableRow)
    assert not isinstance(second, UnreadableRow)
    assert isinstance(third, UnreadableRow)
    assert first.review.estimated_speedup == 1.5
    assert first.review.optimizations == ("wider",)
    assert second.review.analysis == "fine"


def test_what_cannot_be_told_is_said_with_the_way_to_say_it(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="Nothing at"):
        origin_of(str(tmp_path / "none"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(SettingError, match="pairs:"):
        origin_of(str(tmp_path / "empty"))
    assert origin_of(f"runs:{tmp_path / 'empty'}").kind == "runs"
