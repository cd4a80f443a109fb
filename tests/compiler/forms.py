"""Drop-ins with tiles so small that every loop of a small problem runs more than once."""

from collections.abc import Sequence

from torch import nn

from agentkernel.compiler.convolutions.schedules import by_sums
from agentkernel.compiler.convolutions.statistics import PART, StatisticsStep
from agentkernel.compiler.convolutions.step import ConvolutionStep
from agentkernel.compiler.drop_in.wrapper import AnySchedule
from agentkernel.compiler.emit import Schedule
from agentkernel.compiler.fusion import Region
from agentkernel.compiler.partitions import partitions
from agentkernel.compiler.pipeline import Compiled
from agentkernel.compiler.products.joined import JoinedStep
from agentkernel.compiler.products.pairs import PairStep
from agentkernel.compiler.products.step import ProductStep
from agentkernel.compiler.providers.rows import power_of_two, splittable
from agentkernel.compiler.recurrence import RecurrenceStep
from agentkernel.tools.judge.judge import judge
from agentkernel.tools.judge.settings import JudgeSettings
from agentkernel.tools.problem.capture import Captured, capture
from agentkernel.tools.problem.loading import LoadedProblem, problem_from_module

FORMS = ("persistent", "looped", "single", "split")
"""`single` is looped with one row a program, and flat where nothing is reduced."""
MOST_TILES = 32
"""A lane adds no more numbers one by one than under the schedules that are measured: equal numbers
are rounded the same way each time, and 168 of them were 11 ulp off."""
FLAT, ROWS = 256, 8
"""Of a flat program, and of one that holds rows. The judge's own sizes start several; each costs
the interpreter milliseconds, and many more than a few show nothing more."""
TILE = {"BLOCK_M": 16, "BLOCK_N": 16, "BLOCK_K": 16, "GROUP_M": 4, "SPLIT_K": 1,
        "num_warps": 4, "num_stages": 2}  # fmt: skip

WINDOWS = {"READ": 2, "BLOCK_M": 16, "BLOCK_N": 32, "BLOCK_K": 16, "num_warps": 4,
           "num_stages": 2}  # fmt: skip
STEP = {"BLOCK_B": 16, "BLOCK_H": 16, "BLOCK_K": 16, "num_warps": 4, "num_stages": 2}
SUMS = {"ROWS": 2, "BLOCK_C": 2, "BLOCK_X": 32, "num_warps": 2}


def compiled_graph(module: nn.Module, inputs: Sequence[object]) -> Compiled:
    """The first way to divide the module into kernels."""
    loaded = problem_from_module(module.eval(), inputs)
    return partitions(loaded, capture(loaded), "mixed")[0]


def written(module: nn.Module, inputs: Sequence[object], form: str) -> str:
    """The text of its drop-in."""
    compiled = compiled_graph(module, inputs)
    return compiled.write(small(compiled, form)).text


def assert_accepted(
    loaded: LoadedProblem, captured: Captured, text: str, seeds: int = 1, budget_s: float = 2.0
) -> None:
    """The judge accepts `text`."""
    settings = JudgeSettings(seed=0, policy="mixed", seeds=seeds, budget_s=budget_s)
    verdict = judge(loaded, captured, text, settings)
    assert verdict.accepted, f"{verdict.failure}\n{text}"


def accepted_text(loaded: LoadedProblem, form: str = "looped", budget_s: float = 2.0) -> str:
    """The text of its drop-in, once the judge has accepted it."""
    captured = capture(loaded)
    compiled = partitions(loaded, captured, "mixed")[0]
    text = compiled.write(small(compiled, form)).text
    assert_accepted(loaded, captured, text, budget_s=budget_s)
    return text


def small(compiled: Compiled, form: str) -> dict[object, AnySchedule]:
    """Tiles so small that every loop runs more than once."""
    chosen: dict[object, AnySchedule] = {}
    for step in compiled.partition.steps:
        if isinstance(step, ProductStep | PairStep | JoinedStep):
            chosen[step] = TILE
        elif isinstance(step, RecurrenceStep):
            chosen[step] = STEP
        elif isinstance(step, ConvolutionStep):
            chosen[step] = SUMS if by_sums(step.geometry) else _windows(step)
        elif isinstance(step, StatisticsStep):
            chosen[step] = WINDOWS | {"APART": 1, "BLOCK_N": PART}
        elif isinstance(step, Region):
            chosen[step] = _region(step, compiled, form)
    return chosen


def _windows(step: ConvolutionStep) -> dict[str, int]:
    """A tile has all channels that are reduced in it, and ends with a picture whose places are."""
    if step.reduced == "places":
        return WINDOWS | {"APART": 1}
    least = power_of_two(step.geometry.outside) if step.reduced == "channels" else 0
    return WINDOWS | {"BLOCK_M": max(WINDOWS["BLOCK_M"], least)}


def _region(step: Region, compiled: Compiled, form: str) -> Schedule:
    if not step.reduces and form == "single":
        return Schedule("flat", FLAT)
    if not step.reduces:
        return Schedule("tile", 16, ROWS) if step.rows else Schedule("flat", FLAT)
    if form == "persistent":
        return Schedule("persistent", power_of_two(compiled.symbols.hint(step.col_count)), ROWS)
    tile = max(16, power_of_two(compiled.symbols.hint(step.col_count) // MOST_TILES))
    if form == "split" and splittable(step):
        return Schedule("split", tile, chunks=4)
    return Schedule("looped", tile, 1 if form == "single" else ROWS)
