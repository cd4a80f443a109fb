"""Each set of labelled questions is whole, and judged once by entries that exist."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml
from pydantic import TypeAdapter

from agentkernel.knowledge.documents import load_documents, load_fixes
from agentkernel.knowledge.evaluation import JUDGEMENTS, Judgement, LabelledQuestion, read_questions

FIRST = Path(__file__).parents[2] / "benchmarks" / "retrieval"
ARCHITECTURES = {item.id: item.architectures for item in load_documents()}
ENTRIES = ARCHITECTURES.keys() | {item.id for item in load_fixes()}
MAY_ANSWER = {
    "module": {"kernels"},
    "symptom": {"notes", "fixes"},
    "error": {"notes", "fixes"},
}
AT_MOST = 4
"""More answers than that and a question is too wide to measure anything."""


class Expected(NamedTuple):
    """How many questions a folder asks of each kind, how many are answered, and the first letters
    of their ids."""

    asked: dict[str, int]
    answered: dict[str, int]
    letters: dict[str, str]


class QuestionSet(NamedTuple):
    """One folder as it is read. `text` is its judgements as they stand in the file."""

    folder: str
    questions: tuple[LabelledQuestion, ...]
    judged: dict[str, Judgement]
    text: str


EXPECTED = {
    "": Expected(
        asked={"module": 82, "symptom": 84, "error": 84},
        answered={"module": 60, "symptom": 71, "error": 67},
        letters={"module": "m", "symptom": "s", "error": "e"},
    ),
    "unseen": Expected(
        asked={"module": 70, "symptom": 70, "error": 60},
        answered={"module": 44, "symptom": 54, "error": 42},
        letters={"module": "n", "symptom": "t", "error": "r"},
    ),
    "third": Expected(
        asked={"module": 60, "symptom": 60, "error": 50},
        answered={"module": 36, "symptom": 46, "error": 36},
        letters={"module": "p", "symptom": "u", "error": "v"},
    ),
}


@pytest.fixture(scope="module", params=EXPECTED, ids=lambda name: name or "first")
def labelled(request: pytest.FixtureRequest) -> QuestionSet:
    folder = str(request.param)
    text = (FIRST / folder / JUDGEMENTS).read_text(encoding="utf-8")
    return QuestionSet(
        folder=folder,
        questions=read_questions(FIRST / folder, lambda _: None),
        judged=TypeAdapter(dict[str, Judgement]).validate_python(yaml.safe_load(text)),
        text=text,
    )


def test_the_counts_of_each_kind(labelled: QuestionSet) -> None:
    expected = EXPECTED[labelled.folder]
    assert Counter(item.kind for item in labelled.questions) == expected.asked
    answered = Counter(item.kind for item in labelled.questions if item.answers)
    assert answered == expected.answered


def test_ids_are_unique_over_all_sets() -> None:
    sets = [read_questions(FIRST / name, lambda _: None) for name in EXPECTED]
    counts = Counter(item.id for questions in sets for item in questions)
    assert [name for name, count in counts.items() if count > 1] == []


def test_an_id_begins_with_the_letter_of_its_set_and_kind(labelled: QuestionSet) -> None:
    letters = EXPECTED[labelled.folder].letters
    strange = [item.id for item in labelled.questions if item.id[0] != letters[item.kind]]
    assert strange == []


def test_every_question_asks_something(labelled: QuestionSet) -> None:
    assert [item.id for item in labelled.questions if not item.query.text.strip()] == []


def test_every_question_is_judged_exactly_once(labelled: QuestionSet) -> None:
    # Loading keeps the last of two equal keys, so they are counted before that.
    document = yaml.compose(labelled.text)
    assert isinstance(document, yaml.MappingNode)
    keys = Counter(key.value for key, _ in document.value)
    assert keys == Counter(item.id for item in labelled.questions)


def test_a_judgement_is_either_a_few_answers_or_a_gap(labelled: QuestionSet) -> None:
    judged = labelled.judged.items()
    assert [name for name, item in judged if bool(item.answers) == bool(item.gap)] == []
    assert [name for name, item in judged if len(item.answers) > AT_MOST] == []
    twice = [name for name, item in judged if len(set(item.answers)) < len(item.answers)]
    assert twice == []


def test_every_answer_is_an_entry_that_may_answer_it(labelled: QuestionSet) -> None:
    answers = [(item, name) for item in labelled.questions for name in item.answers]
    assert [(item.id, name) for item, name in answers if name not in ENTRIES] == []
    wrong = [
        (item.id, name)
        for item, name in answers
        if name.partition("/")[0] not in MAY_ANSWER[item.kind]
    ]
    assert wrong == []


def test_a_module_without_an_answer_names_the_family_that_lacks(labelled: QuestionSet) -> None:
    gaps = {
        item.id: labelled.judged[item.id].gap
        for item in labelled.questions
        if item.kind == "module"
    }
    assert [name for name, gap in gaps.items() if gap and "family: " not in gap] == []


def test_no_answer_is_on_another_architecture_than_the_question(labelled: QuestionSet) -> None:
    wrong = [
        (item.id, name)
        for item in labelled.questions
        for name in item.answers
        if (family := item.query.filters.architecture)
        and ARCHITECTURES.get(name)
        and family not in ARCHITECTURES[name]
    ]
    assert wrong == []
