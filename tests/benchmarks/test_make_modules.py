"""Are the modules that pairs are made of many, different, and problems that load?"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from families import FAMILIES
from make_modules import make_modules, modules

from agentkernel.tools.problem.loading import load_problem

LEAST = 520


def test_there_are_enough_and_no_two_compute_the_same() -> None:
    assert len(FAMILIES) >= 30
    specs = [spec for family in FAMILIES.values() for spec in family()]
    assert len(specs) >= LEAST
    computed = {(spec.forward, tuple(spec.inputs.items()), spec.init) for spec in specs}
    bodies = {(spec.forward, spec.init) for spec in specs}
    assert len(computed) == len(specs)
    assert len(bodies) >= LEAST
    assert len({spec.title for spec in specs}) == len(specs)


def test_the_same_files_come_out_every_time(tmp_path: Path) -> None:
    first = dict(modules())
    assert first == dict(modules())
    assert make_modules(tmp_path) == len(first)
    assert {path.name: path.read_text() for path in tmp_path.glob("*.py")} == first
    for text in first.values():
        ast.parse(text)


@pytest.mark.parametrize("family", FAMILIES)
def test_one_of_each_family_runs(family: str, tmp_path: Path) -> None:
    name, text = [item for item in modules() if item[0].startswith(f"{family}_0")][-1]
    path = tmp_path / name
    path.write_text(text)
    loaded = load_problem(str(path))
    loaded.build(seed=0)(*loaded.make_inputs(seed=0))
