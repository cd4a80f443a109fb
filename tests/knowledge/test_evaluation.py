"""Are recall, rank and misses counted as they are defined, and bad files named?"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from agentkernel.domain.errors import ProblemError
from agentkernel.domain.knowledge import Query, Structure
from agentkernel.knowledge.evaluation import evaluate, read_questions, score

FILES = {
    "modules.yaml": "- {id: m001, module: 'class Model: ...', wanted: w, ops: [add]}\n",
    "symptoms.yaml": "- {id: s001, symptom: It is slow., wanted: w, architecture: hopper}\n",
    "errors.yaml": "- {id: e001, error: 'at 1:2: boom', wanted: w, topic: t}\n"
    "- {id: e002, error: 'bang', wanted: w, topic: t}\n",
    "judgements.yaml": "m001: {answers: [kernels/a, kernels/b]}\ns001: {answers: [notes/x]}\n"
    "e001: {answers: [fixes/y]}\ne002: {gap: nobody wrote it down}\n",
}
ADD = Structure(ops=("add",))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    return tmp_path


def test_each_kind_asks_with_what_it_has(folder: Path) -> None:
    module, symptom, error, gap = read_questions(folder, lambda _: ADD)
    assert (module.query.structure, module.query.filters.kinds[0]) == (ADD, "pair")
    assert (symptom.query.text, symptom.query.filters.architecture) == ("It is slow.", "hopper")
    assert error.query.words == "at 1:2: boom"
    assert gap.answers == ()


def test_hits_ranks_and_misses(folder: Path) -> None:
    order = [f"kernels/{number}" for number in range(4)]
    found: dict[str, Sequence[str]] = {
        "class Model: ...": ["kernels/b", "kernels/a"],
        "It is slow.": [*order, "notes/z", "notes/x"],
        "at 1:2: boom": order,
    }
    asked: list[Query] = []

    def search(query: Query) -> Sequence[str]:
        asked.append(query)
        return found[query.text]

    result = evaluate("fake", read_questions(folder, lambda _: ADD), search)
    assert [query.limit for query in asked] == [10] * 3, "a gap is not asked"
    every = result.by_kind["all"]
    assert every.questions == 3
    assert every.recall == {
        1: pytest.approx(1 / 3),
        5: pytest.approx(1 / 3),
        10: pytest.approx(2 / 3),
    }
    assert every.mrr == pytest.approx((1 + 1 / 6) / 3)
    assert result.by_kind["module"].recall[1] == 1.0
    assert result.missed == ("s001", "e001")
    assert every.p95_ms >= every.p50_ms > 0


def test_what_comes_after_the_last_depth_is_not_found() -> None:
    found = score([11, 10, None], [1.0, 2.0, 3.0])
    assert found.recall == {1: 0.0, 5: 0.0, 10: pytest.approx(1 / 3)}
    assert found.mrr == pytest.approx(0.1 / 3)


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("judgements.yaml", "m001: {answers: []}\n", "nothing on 's001'"),
        ("judgements.yaml", "m001: {answer: [a]}\n", "judgements.yaml"),
        ("errors.yaml", "- {id: e001}\n", "errors.yaml"),
        ("errors.yaml", "- [\n", "errors.yaml"),
        ("errors.yaml", "5\n", "errors.yaml"),
    ],
)
def test_a_bad_file_is_one_line(folder: Path, name: str, text: str, words: str) -> None:
    (folder / name).write_text(text)
    with pytest.raises(ProblemError, match=words) as caught:
        read_questions(folder, lambda _: ADD)
    assert "\n" not in str(caught.value)
