"""Are generated modules real ones, many, small, and the same for the same seed?"""

from __future__ import annotations

import copy
import random
from pathlib import Path

import pytest
import torch

from agentkernel.knowledge.code_structure import structure_of_code
from agentkernel.tools.problem.loading import load_problem
from agentkernel.training.data.generator import MODULE_KINDS, GeneratedProblem, make_problem
from agentkernel.training.data.module_writer import AuthorStyle, ModuleDraft
from agentkernel.training.data.operators import OPERATORS, linear

FIRST = 5_000


@pytest.mark.parametrize("seed", range(FIRST, FIRST + 60))
def test_a_module_loads_and_has_a_finite_oracle(seed: int, tmp_path: Path) -> None:
    path = tmp_path / "problem.py"
    path.write_text(make_problem(seed).text)
    loaded = load_problem(str(path))
    model = loaded.build(seed=0, device="cpu").eval()
    torch.manual_seed(seed)
    assert loaded.namespace is not None
    inputs = loaded.namespace.get_inputs()
    with torch.no_grad():
        eager = model(*inputs)
        wide = [item.double() if item.is_floating_point() else item for item in inputs]
        exact = copy.deepcopy(model).double()(*wide)
    assert eager.shape == exact.shape
    assert torch.isfinite(eager.float()).all()
    assert torch.isfinite(exact.double()).all()


def test_the_same_seed_gives_the_same_module() -> None:
    assert [make_problem(seed) for seed in range(50)] == [make_problem(seed) for seed in range(50)]


def test_modules_are_short() -> None:
    problems = many()
    assert max(item.text.count("\n") for item in problems) <= 50
    assert sorted(item.text.count("\n") for item in problems)[900] <= 40
    assert max(len(item.text) for item in problems) <= 2_000


@pytest.mark.slow
def test_hardly_a_text_comes_twice_and_structures_are_many() -> None:
    problems = many()
    assert len({item.text for item in problems}) > 990
    found = [structure_of_code(item.text) for item in problems]
    structures = {item.ops for item in found if item is not None}
    assert len(structures) > 600


def test_every_dtype_and_most_kinds_of_operators_occur() -> None:
    problems = many()
    assert {item.dtype for item in problems} == {"float32", "float16", "bfloat16"}
    assert len({name for item in problems for name in item.operators}) >= 23
    assert {len(item.operators) for item in problems} == {1, 2, 3, 4, 5}


def test_every_step_belongs_to_one_kind_and_a_module_is_of_its_rarest() -> None:
    steps = [step for named in MODULE_KINDS.values() for step in named]
    assert sorted(steps) == sorted(item.name for item in OPERATORS)
    assert GeneratedProblem(text="", name="", operators=("unary", "pool", "loss")).kind == "pool"
    assert GeneratedProblem(text="", name="").kind == ""
    assert {item.kind for item in many()} == set(MODULE_KINDS)


def test_a_matrix_product_that_no_width_keeps_small_is_not_written() -> None:
    assert not linear(begun([4, 4096, 8]))
    assert linear(begun([4, 8]))


def begun(shape: list[int]) -> ModuleDraft:
    rng = random.Random(0)
    writing = ModuleDraft(rng, AuthorStyle.drawn(rng), shape, "float32")
    writing.first_shape, writing.first_dtype = list(shape), "float32"
    writing.begin()
    return writing


def many() -> list[GeneratedProblem]:
    return [make_problem(seed) for seed in range(1_000)]
