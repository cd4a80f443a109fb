"""The table of published kernels: its sides on the CPU, and how it is written."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path

import pytest
import torch
from published import (
    DRY_SHRINK,
    ENTRIES,
    OURS,
    TUNED,
    Found,
    Problem,
    Results,
    Row,
    Side,
    compared,
    is_large,
    search,
    table,
)

from agentkernel.domain.profile import Ratio
from agentkernel.tools.problem.loading import LoadedProblem, load_problem
from agentkernel.tools.profiler.rounds import Pace

QUICK = Pace(seconds=0.2, min_rounds=4, max_rounds=6, block_ms=1.0, max_calls=5)
DROP_IN = """
import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, a, b):
        return torch.nn.functional.silu(a) * b
"""


@pytest.fixture(scope="module")
def gate(tmp_path_factory: pytest.TempPathFactory) -> LoadedProblem:
    """The smallest of the problems."""
    path = tmp_path_factory.mktemp("gate") / "problem.py"
    path.write_text(ENTRIES[-1].source(DRY_SHRINK))
    return load_problem(str(path))


def rows_of(problem: Problem, sides: dict[str, Side], left_s: float = 60.0) -> dict[str, Row]:
    made = compared(problem, sides, Row(problem="gate", side=""), time.monotonic() + left_s, QUICK)
    return {row.side: row for row in made}


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.title())
def test_every_problem_loads_at_its_sizes_and_dtype(entry, tmp_path: Path) -> None:
    (tmp_path / "problem.py").write_text(entry.source(DRY_SHRINK))
    loaded = load_problem(str(tmp_path / "problem.py"))
    inputs = loaded.make_inputs(seed=0)
    sizes = set(entry.at(DRY_SHRINK).values())
    assert inputs[0].dtype == getattr(torch, entry.dtype)
    assert {size for item in inputs for size in item.shape} <= sizes
    assert loaded.build(seed=0)(*inputs).isfinite().all()


def test_sides_are_checked_against_fp64_and_timed_against_ours(gate: LoadedProblem) -> None:
    problem = Problem(gate, "cpu")
    a, b = problem.inputs

    def late() -> torch.Tensor:
        time.sleep(0.005)
        return problem.module(a, b)

    sides = {
        "eager": Side(partial(partial, problem.module, a, b)),
        "late": Side(lambda: late),
        "swapped": Side(partial(partial, problem.module, b, a), "theirs"),
        "absent": Side(lambda: __import__("no_such_package")),
        TUNED: Side(partial(problem.compiled, "max-autotune-no-cudagraphs")),
        OURS: Side(partial(problem.drop_in, Found(DROP_IN, "met"))),
    }
    rows = rows_of(problem, sides, left_s=0.0)
    assert list(rows) == list(sides)
    assert rows["eager"].right
    assert rows["eager"].ratio is not None
    assert rows["late"].ratio is not None
    assert rows["late"].ratio.value > 2.0
    assert rows["swapped"].right is False
    assert rows["swapped"].median_us is not None
    assert rows["swapped"].note == "theirs"
    assert rows["absent"].failed == "ModuleNotFoundError: No module named 'no_such_package'"
    assert rows[TUNED].failed == "left out: no time"
    assert rows[OURS].right
    assert rows[OURS].ratio is None


def test_without_ours_the_others_have_times_and_no_ratio(gate: LoadedProblem) -> None:
    problem = Problem(gate, "cpu")
    sides = {
        "eager": Side(lambda: partial(problem.module, *problem.inputs)),
        OURS: Side(partial(problem.drop_in, Found("", "kept_original: no candidate"))),
    }
    rows = rows_of(problem, sides)
    assert rows["eager"].median_us is not None
    assert rows["eager"].ratio is None
    assert rows[OURS].failed == "RuntimeError: kept_original: no candidate"


def test_a_drop_in_that_is_there_is_not_searched_for(gate: LoadedProblem, tmp_path: Path) -> None:
    kept = tmp_path / "gate.py"
    kept.write_text(DROP_IN)
    assert search(gate, kept, tmp_path / "runs", 1.0) == Found(DROP_IN, "searched before")
    assert not (tmp_path / "runs").exists()


def test_the_table_says_who_is_wrong_and_who_has_no_time() -> None:
    ratio = Ratio(value=1.25, low=1.2, high=1.3)
    row = Row(problem="product", side="eager", median_us=12.34, peak_bytes=2_000_000, error=2e-7)
    results = Results(
        gpu="NVIDIA H200",
        versions={"torch": "2.11.0", "helion": "absent"},
        rows=(
            row.evolve(right=True, ratio=ratio),
            row.evolve(side="theirs", right=False, ratio=ratio, error=3e-4, note="TF32"),
            Row(problem="product", side="lost", failed="RuntimeError: a|b"),
            row.evolve(side=OURS, right=True),
        ),
        seconds=12.6,
    )
    assert table(results).splitlines() == [
        "NVIDIA H200; torch 2.11.0, helion absent; 13 s.",
        "",
        "| problem | side | us | time over ours [95%] | peak MB | error |  |",
        "| --- | --- | --- | --- | --- | --- | --- |",
        "| product | eager | 12.3 | 1.250x [1.200, 1.300] | 2.0 | 2.0e-07 |  |",
        "| product | theirs | 12.3 | 1.250x [1.200, 1.300] | 2.0 | 3.0e-04 "
        "| wrong: more than 8 times eager's error; TF32 |",
        "| product | lost | - | - | - | – | RuntimeError: a\\|b |",
        "| product | ours | 12.3 | - | 2.0 | 2.0e-07 |  |",
    ]
    assert Results.model_validate_json(results.model_dump_json()) == results


@pytest.mark.parametrize(
    ("m", "n", "k", "large"),
    [(128, 128, 64, True), (256, 128, 32, True), (64, 128, 64, False), (128, 64, 64, False)],
)
def test_flaggems_tunes_over_its_large_tiles(m: int, n: int, k: int, *, large: bool) -> None:
    assert is_large({"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k}) is large
