"""Is the second set of labelled questions whole, and is each judged once by entries that exist?"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import yaml
from pydantic import TypeAdapter

from agentkernel.knowledge.documents import load_documents
from agentkernel.knowledge.evaluation import JUDGEMENTS, Judgement, read_questions
from agentkernel.knowledge.fixes import load_fixes

FIRST = Path(__file__).parents[2] / "benchmarks" / "retrieval"
FOLDER = FIRST / "unseen"
TEXT = (FOLDER / JUDGEMENTS).read_text(encoding="utf-8")
JUDGED = TypeAdapter(dict[str, Judgement]).validate_python(yaml.safe_load(TEXT))
QUESTIONS = read_questions(FOLDER, lambda _: None)
ENTRIES = {item.id for item in load_documents()} | {item.id for item in load_fixes()}
MAY_ANSWER = {
    "module": {"kernels"},
    "symptom": {"notes", "fixes"},
    "error": {"notes", "fixes"},
}
AT_MOST = 4
"""More answers than that and a question is too wide to measure anything."""


def test_the_counts_of_each_kind() -> None:
    assert Counter(item.kind for item in QUESTIONS) == {"module": 70, "symptom": 70, "error": 60}
    answered = Counter(item.kind for item in QUESTIONS if item.answers)
    assert answered == {"module": 44, "symptom": 54, "error": 42}


def test_ids_are_unique_over_both_sets() -> None:
    first = [item.id for item in read_questions(FIRST, lambda _: None)]
    counts = Counter([*first, *(item.id for item in QUESTIONS)])
    assert [name for name, count in counts.items() if count > 1] == []


def test_every_question_asks_something() -> None:
    assert [item.id for item in QUESTIONS if not item.query.text.strip()] == []


def test_every_question_is_judged_exactly_once() -> None:
    # Loading keeps the last of two equal keys, so they are counted before that.
    document = yaml.compose(TEXT)
    assert isinstance(document, yaml.MappingNode)
    keys = Counter(key.value for key, _ in document.value)
    assert keys == Counter(item.id for item in QUESTIONS)


def test_a_judgement_is_either_a_few_answers_or_a_gap() -> None:
    both_or_none = [name for name, item in JUDGED.items() if bool(item.answers) == bool(item.gap)]
    assert both_or_none == []
    assert [name for name, item in JUDGED.items() if len(item.answers) > AT_MOST] == []
    twice = [name for name, item in JUDGED.items() if len(set(item.answers)) < len(item.answers)]
    assert twice == []


def test_every_answer_is_an_entry_that_may_answer_it() -> None:
    unknown = [
        (item.id, name) for item in QUESTIONS for name in item.answers if name not in ENTRIES
    ]
    assert unknown == []
    wrong = [
        (item.id, name)
        for item in QUESTIONS
        for name in item.answers
        if name.partition("/")[0] not in MAY_ANSWER[item.kind]
    ]
    assert wrong == []


def test_a_module_without_an_answer_names_the_family_that_lacks() -> None:
    gaps = {item.id: JUDGED[item.id].gap for item in QUESTIONS if item.kind == "module"}
    assert [name for name, gap in gaps.items() if gap and "family: " not in gap] == []
