"""Is what the compiler coder writes right, by the judge's own rule, in every form?"""

import importlib.util
from pathlib import Path

import pytest

from agentkernel.agents.coders.compiler.anchors import Anchor
from agentkernel.agents.coders.compiler.build import Compiled
from agentkernel.agents.coders.compiler.coder import _compile
from agentkernel.agents.coders.compiler.region import Region
from agentkernel.agents.coders.compiler.schedule import Schedule
from agentkernel.agents.coders.compiler.schedules import power_of_two, splittable
from agentkernel.agents.coders.compiler.wrapper import AnySchedule
from agentkernel.tools.capture import capture
from agentkernel.tools.judge.judge import judge
from agentkernel.tools.judge.settings import JudgeSettings
from agentkernel.tools.problems import problem_from_module

SPEC = importlib.util.spec_from_file_location("families", Path(__file__).with_name("families.py"))
assert SPEC is not None
assert SPEC.loader is not None
MODULE = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(MODULE)
FAMILIES = MODULE.families()
QUICK = ("layer_norm", "cross_entropy", "group_norm", "linear_gelu")
TILE = {"BLOCK_M": 16, "BLOCK_N": 16, "BLOCK_K": 16, "GROUP_M": 4, "SPLIT_K": 1,
        "num_warps": 4, "num_stages": 2}  # fmt: skip


def small(compiled: Compiled, form: str) -> dict[object, AnySchedule]:
    """Tiles so small that every loop runs more than once."""
    chosen: dict[object, AnySchedule] = {}
    for step in compiled.partition.steps:
        if isinstance(step, Anchor):
            chosen[step] = TILE
        elif isinstance(step, Region):
            chosen[step] = _region(step, compiled, form)
    return chosen


def _region(step: Region, compiled: Compiled, form: str) -> Schedule:
    if not step.reduces:
        return Schedule("tile", 16, 4) if step.rows else Schedule("flat", 64)
    if form == "persistent":
        return Schedule("persistent", power_of_two(compiled.symbols.hint(step.col_count)), 2)
    if form == "split" and splittable(step):
        return Schedule("split", 16, chunks=4)
    return Schedule("looped", 16, 2)


def _accepted(name: str, form: str) -> None:
    module, inputs = FAMILIES[name]
    loaded = problem_from_module(module.eval(), inputs)
    captured = capture(loaded)
    compiled = _compile(loaded, captured, "mixed")[0]
    source = compiled.write(small(compiled, form))
    settings = JudgeSettings(policy="mixed", seeds=1, budget_s=2.0)
    verdict = judge(loaded, captured, source.text, settings)
    assert verdict.accepted, f"{verdict.failure}\n{source.text}"


@pytest.mark.parametrize("name", QUICK)
def test_the_families_pass_the_judge(name: str) -> None:
    _accepted(name, "persistent")


@pytest.mark.parametrize("form", ["looped", "split"])
def test_long_rows_pass_the_judge(form: str) -> None:
    _accepted("softmax", form)


@pytest.mark.slow
@pytest.mark.parametrize("form", ["persistent", "looped", "split"])
@pytest.mark.parametrize("name", sorted(FAMILIES))
def test_every_family_passes_in_every_form(name: str, form: str) -> None:
    _accepted(name, form)
