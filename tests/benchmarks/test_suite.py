"""Is every problem of the suite captured, of a sensible size, and what the README says of it?"""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import catalogue
import pytest

from agentkernel.tools.problem.loading import load_problem
from tests.benchmarks.suite_drafts import problem
from tests.benchmarks.suite_kinds import SAMPLE, group_of

FILES = catalogue.problem_files()
SHORTEST_US, LONGEST_US = 12.0, 10_000.0
"""Of eager on an H100 by the roofline: launches and latencies come on top of it."""
MOST_BYTES = 20e9
NAMES = {"Model", "get_inputs", "get_init_inputs"}


@cache
def documented() -> str:
    return catalogue.README.read_text(encoding="utf-8")


def of_one_process(path: Path) -> object:
    """Single operators are captured in no time; of the others a few are not slow."""
    long = path.parent.name != "level1" and path.stem not in SAMPLE
    marks = [pytest.mark.xdist_group(group_of(path.stem)), *([pytest.mark.slow] if long else [])]
    return pytest.param(path, marks=marks)


@pytest.mark.quick(10)
@pytest.mark.parametrize(
    "path",
    [of_one_process(path) for path in FILES],
    ids=lambda path: f"{path.parent.name}/{path.stem}",
)
def test_a_problem_is_captured_and_documented(path: Path) -> None:
    entry = catalogue.entry_of(path, *problem(path.stem))
    assert entry.ops
    assert SHORTEST_US <= entry.eager_us <= LONGEST_US
    assert entry.total_bytes <= MOST_BYTES
    if f"(torch {catalogue.release()};" in documented():
        assert entry.row in documented().splitlines()


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_a_problem_stands_alone(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    defined = {node.name for node in tree.body if isinstance(node, ast.ClassDef | ast.FunctionDef)}
    assert defined >= NAMES
    assert ast.get_docstring(tree)
    roots = {
        name.split(".")[0]
        for node in ast.walk(tree)
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }
    assert roots <= {"torch", "math", "itertools"}


@pytest.mark.parametrize(
    "path",
    [path for path in FILES if "Norm" in path.read_text(encoding="utf-8")],
    ids=lambda path: f"{path.parent.name}/{path.stem}",
)
def test_norms_have_weights_that_matter(path: Path) -> None:
    model = load_problem(str(path)).build(seed=0)
    found = [
        (name, tensor)
        for item in model.modules()
        if "Norm" in type(item).__name__
        for name, tensor in item.state_dict(keep_vars=True).items()
        if tensor.is_floating_point() and tensor.numel() > 1
    ]
    assert [name for name, tensor in found if tensor.float().std() < 0.01] == []


def test_the_suite_is_broad() -> None:
    rows = [line for line in documented().splitlines() if line.startswith("| `")]
    assert len(rows) == len(FILES) == len({path.stem for path in FILES}) >= 120
    counts = [len([path for path in FILES if path.parent.name == f"level{n}"]) for n in (1, 2, 3)]
    assert all(count >= least for count, least in zip(counts, (45, 45, 30), strict=True))
    assert len({row.split("|")[-2] for row in rows}) >= 80, "distinct structures"
    for dtype in ("fp32", "fp16", "bf16"):
        assert sum(dtype in row.split("|")[-3] for row in rows) >= 10


def test_the_probe_is_its_draw() -> None:
    names = catalogue.suite_names()
    drawn = catalogue.draw_probe(names)
    assert catalogue.PROBE.read_text(encoding="utf-8").splitlines() == list(drawn)
    levels = [name.split("/")[0] for name in drawn]
    assert levels == ["level3"] * 8 + ["level2"] * 8 + ["level1"] * 8
    assert set(drawn) <= set(names)


def test_a_problem_that_joins_the_suite_moves_at_most_one_of_the_probe() -> None:
    names = catalogue.suite_names()
    drawn = set(catalogue.draw_probe(names))
    for number in range(50):
        more = set(catalogue.draw_probe((*names, f"level2/new_{number}")))
        assert len(drawn - more) <= 1
        assert {name.split("/")[0] for name in drawn - more} <= {"level2"}
