"""Is every labelled question judged once, by entries that exist and that may answer it?"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
import yaml
from pydantic import TypeAdapter

from agentkernel.knowledge import documents
from agentkernel.knowledge.evaluation import JUDGEMENTS, Judgement, LabelledQuestion, read_questions

FOLDER = Path(__file__).parents[2] / "benchmarks" / "retrieval"
TEXT = (FOLDER / JUDGEMENTS).read_text(encoding="utf-8")
JUDGED = TypeAdapter(dict[str, Judgement]).validate_python(yaml.safe_load(TEXT))
QUESTIONS = read_questions(FOLDER, lambda _: None)
SUFFIXES = {"notes": ".md", "fixes": ".md", "kernels": ".py"}
MAY_ANSWER = {
    "module": {"kernels"},
    "symptom": {"notes", "fixes"},
    "error": {"notes", "fixes"},
}
AT_LEAST = {"module": 40, "symptom": 60, "error": 60}
AT_MOST = 4
"""More answers than that and a question is too wide to measure anything."""


def file_of(entry: str) -> Path:
    folder, _, stem = entry.partition("/")
    return documents.PACKAGE / folder / f"{stem}{SUFFIXES[folder]}"


def test_every_question_is_judged_exactly_once() -> None:
    # Loading keeps the last of two equal keys, so they are counted before that.
    document = yaml.compose(TEXT)
    assert isinstance(document, yaml.MappingNode)
    keys = Counter(key.value for key, _ in document.value)
    assert keys == Counter(question.id for question in QUESTIONS)


@pytest.mark.parametrize("judgement", JUDGED.values(), ids=list(JUDGED))
def test_a_judgement_is_either_answers_or_a_gap(judgement: Judgement) -> None:
    assert bool(judgement.answers) != bool(judgement.gap)
    assert len(judgement.answers) <= AT_MOST
    assert len(set(judgement.answers)) == len(judgement.answers)


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: question.id)
def test_its_answers_are_entries_that_may_answer_it(question: LabelledQuestion) -> None:
    assert {entry.partition("/")[0] for entry in question.answers} <= MAY_ANSWER[question.kind]
    assert [entry for entry in question.answers if not file_of(entry).is_file()] == []


def test_no_answer_is_on_another_architecture_than_the_question() -> None:
    held = {item.id: item.architectures for item in documents.load_documents()}
    wrong = [
        (question.id, entry)
        for question in QUESTIONS
        for entry in question.answers
        if (family := question.query.filters.architecture)
        and held.get(entry)
        and family not in held[entry]
    ]
    assert wrong == []


def test_a_module_without_an_answer_names_the_family_that_lacks() -> None:
    gaps = {question.id for question in QUESTIONS if question.kind == "module"} & {
        name for name, judgement in JUDGED.items() if judgement.gap
    }
    assert [name for name in sorted(gaps) if "family: " not in JUDGED[name].gap] == []


@pytest.mark.parametrize("kind", AT_LEAST)
def test_enough_questions_have_an_answer(kind: str) -> None:
    answered = [item for item in QUESTIONS if item.kind == kind and item.answers]
    assert len(answered) >= AT_LEAST[kind]
