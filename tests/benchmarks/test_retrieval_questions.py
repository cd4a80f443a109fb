"""Are the labelled retrieval questions whole, distinct and readable without running any of them?"""

from __future__ import annotations

import ast
import itertools
from difflib import SequenceMatcher
from pathlib import Path
from typing import Annotated, TypeVar, get_args

import pytest
import torch
import torch.nn.functional as F
import yaml
from pydantic import Field, StringConstraints, TypeAdapter

from agentkernel.domain.base import Frozen
from agentkernel.domain.knowledge import ReductionClass

QUESTIONS = Path(__file__).parents[2] / "benchmarks" / "retrieval"
KINDS = ("modules", "symptoms", "errors")
AT_LEAST = 70
ALIKE = 0.9
"""difflib's ratio from which two questions count as one."""
NOT_IN_TORCH = {"slice"}
"""Operators of the ATen graph that torch's Python names only as indexing."""

Line = Annotated[str, StringConstraints(pattern=r"^\S.{9,199}$")]
Topic = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]*$")]
Family = Annotated[str, StringConstraints(pattern=r"^[a-z]+[0-9]?$")]


class ModuleQuestion(Frozen):
    id: Annotated[str, StringConstraints(pattern=r"^m\d{3}$")]
    module: str
    wanted: Line
    ops: tuple[str, ...] = Field(min_length=1)
    reduction: ReductionClass


class SymptomQuestion(Frozen):
    id: Annotated[str, StringConstraints(pattern=r"^s\d{3}$")]
    symptom: Annotated[str, StringConstraints(min_length=20)]
    wanted: Line
    topic: Topic
    architecture: Family | None = None


class ErrorQuestion(Frozen):
    id: Annotated[str, StringConstraints(pattern=r"^e\d{3}$")]
    error: str
    wanted: Line
    topic: Topic
    architecture: Family | None = None


Question = TypeVar("Question", ModuleQuestion, SymptomQuestion, ErrorQuestion)


def read(name: str, kind: type[Question]) -> list[Question]:
    document = yaml.safe_load((QUESTIONS / name).read_text())
    return TypeAdapter(list[kind]).validate_python(document)  # type: ignore[valid-type]


def alike(one: str, other: str) -> bool:
    """Whether two texts are nearly one; the two cheap upper bounds spare most comparisons."""
    matcher = SequenceMatcher(None, one, other, autojunk=False)
    bounds = (matcher.real_quick_ratio, matcher.quick_ratio, matcher.ratio)
    return all(bound() >= ALIKE for bound in bounds)


MODULES = read("modules.yaml", ModuleQuestion)
SYMPTOMS = read("symptoms.yaml", SymptomQuestion)
ERRORS = read("errors.yaml", ErrorQuestion)
TEXTS = (
    {question.id: question.module for question in MODULES},
    {question.id: question.symptom for question in SYMPTOMS},
    {question.id: question.error for question in ERRORS},
)


@pytest.mark.parametrize("texts", TEXTS, ids=KINDS)
def test_there_are_enough_of_each_kind(texts: dict[str, str]) -> None:
    assert len(texts) >= AT_LEAST


def test_ids_are_unique() -> None:
    ids = [
        *(question.id for question in MODULES),
        *(question.id for question in SYMPTOMS),
        *(question.id for question in ERRORS),
    ]
    assert sorted(ids) == sorted(set(ids))


@pytest.mark.parametrize("texts", TEXTS, ids=KINDS)
def test_no_two_questions_are_nearly_one(texts: dict[str, str]) -> None:
    pairs = itertools.combinations(texts.items(), 2)
    assert [(a, b) for (a, one), (b, other) in pairs if alike(one, other)] == []


def test_every_reduction_class_is_asked_for() -> None:
    assert {question.reduction for question in MODULES} == set(get_args(ReductionClass))


@pytest.mark.parametrize("question", MODULES, ids=lambda question: question.id)
def test_a_module_is_a_whole_problem(question: ModuleQuestion) -> None:
    body = ast.parse(question.module).body
    functions = {node.name for node in body if isinstance(node, ast.FunctionDef)}
    assert {"get_inputs", "get_init_inputs"} <= functions
    classes = [node for node in body if isinstance(node, ast.ClassDef)]
    methods = {node.name for node in ast.walk(classes[0]) if isinstance(node, ast.FunctionDef)}
    assert "forward" in methods
    assert 10 <= len(question.module.strip().splitlines()) <= 40


@pytest.mark.parametrize("question", MODULES, ids=lambda question: question.id)
def test_its_ops_are_names_of_torch(question: ModuleQuestion) -> None:
    homes = (torch, F, torch.Tensor)
    unknown = {op for op in question.ops if not any(hasattr(home, op) for home in homes)}
    assert unknown <= NOT_IN_TORCH


@pytest.mark.parametrize("question", ERRORS, ids=lambda question: question.id)
def test_an_error_is_a_few_lines(question: ErrorQuestion) -> None:
    assert 2 <= len(question.error.strip().splitlines()) <= 12


@pytest.mark.parametrize("question", [*SYMPTOMS, *ERRORS], ids=lambda question: question.id)
def test_a_question_does_not_hold_its_answer(question: SymptomQuestion | ErrorQuestion) -> None:
    text = question.symptom if isinstance(question, SymptomQuestion) else question.error
    assert question.wanted.casefold() not in " ".join(text.split()).casefold()
