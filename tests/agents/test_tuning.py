"""Every step gets its own best schedule, and a library where that is faster, by its own time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import torch
from torch import nn

from agentkernel.agents.tuning import Assembly, Tuner, assemblies, remembered, with_stand_ins
from agentkernel.compiler.fusion import LibraryStep
from agentkernel.compiler.partitions import partitions
from agentkernel.compiler.products.step import ProductStep
from agentkernel.compiler.providers import Setting
from agentkernel.domain.candidate import TrialResult
from agentkernel.domain.plan import Won
from agentkernel.domain.target import Target
from agentkernel.tools.problem.capture import capture
from agentkernel.tools.problem.loading import problem_from_module
from agentkernel.tools.search.space import Space
from agentkernel.tools.search.store import ScheduleStore, StepKey
from agentkernel.tools.targets import find_target

TARGET = find_target("h200").target
Times = Callable[[str, int], float | None]
"""Microseconds by the source and its place; None: it does not run."""


@dataclass
class Clock:
    """A searcher with made-up times."""

    times: Times
    spaces: list[Space] = field(default_factory=list)

    most_sampled = 0

    def rank(self, *_: object) -> tuple[TrialResult, ...]:
        raise AssertionError("whole drop-ins are not the tuner's")

    def tune(self, spaces: Sequence[Space], target: Target) -> tuple[tuple[TrialResult, ...], ...]:
        self.spaces += spaces
        return tuple(
            tuple(self._result(space, index) for index in range(len(space.sources)))
            for space in spaces
        )

    def _result(self, space: Space, index: int) -> TrialResult:
        found = self.times(space.sources[index], index)
        return space.result(index, None if found else "spills", found, None)


class Layers(nn.Module):
    """Twice the same layer, then another product and a softmax."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(256, 256) for _ in range(2))
        self.last = nn.Linear(256, 512)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = torch.softmax(nn.functional.gelu(layer(x)), -1)
        return torch.softmax(self.last(x), -1)


def tuned(clock: Clock, policy: str = "mixed", module: nn.Module | None = None) -> list[Assembly]:
    problem = problem_from_module(module or Layers(), (torch.randn(128, 256),))
    compiled = partitions(problem, capture(problem), policy)[0]  # type: ignore[arg-type]
    rivalry = with_stand_ins(compiled, libraries=policy != "triton")
    setting = Setting(compiled.symbols, TARGET, "strict", lambda _: None)
    return assemblies(rivalry, Tuner(clock).tune([rivalry], setting))


def last_fastest(source: str, index: int) -> float:
    return 50.0 if "torch.matmul" in source else 10.0 - 0.1 * index


def calls(item: Assembly) -> list[str]:
    steps = item.compiled.partition.steps
    return [str(step.node.shape[-1]) for step in steps if isinstance(step, LibraryStep)]


def test_every_step_takes_its_own_fastest_schedule() -> None:
    clock = Clock(last_fastest)
    best, *rest = tuned(clock)
    by_label = {space.segment: space.schedules for space in clock.spaces}
    kernels = dict(best.compiled.write(best.schedules).schedule)
    expected = [
        next(iter(schedules[-1].values())) for schedules in by_label.values() if schedules[-1]
    ]
    assert all(constants in expected for constants in kernels.values())
    texts = [item.compiled.write(item.schedules).text for item in rest]
    assert best.compiled.write(best.schedules).text not in texts[:1], "the first guess is a rival"


def test_what_does_not_run_is_not_taken() -> None:
    best = tuned(Clock(lambda source, index: 1.0 if index == 1 else None))[0]
    first = tuned(Clock(lambda source, index: 1.0 if index == 0 else None))[0]
    assert all(best.schedules[step] for step in best.schedules)
    assert list(best.schedules.values()) != list(first.schedules.values())


def test_equal_layers_are_timed_once() -> None:
    clock = Clock(last_fastest)
    tuned(clock)
    patterns = [space.segment.split()[0] for space in clock.spaces]
    assert patterns.count("gemm") == 2, "of three products two are equal"
    assert patterns.count("product") == 2


@pytest.mark.quick(1)
def test_a_library_serves_the_products_that_it_is_faster_at() -> None:
    def wide(item: Space) -> bool:
        return any(512 in spec.shape for spec in item.problem.problem.shape_sets[0].tensors)

    class Wide(Clock):
        def _result(self, space: Space, index: int) -> TrialResult:
            library = "torch.matmul" in space.sources[index]
            time_us = (1.0 if wide(space) else 50.0) if library else 10.0
            if not library and "gemm" not in space.segment:
                time_us = 2.0
            return space.result(index, None, time_us, None)

    found = tuned(Wide(last_fastest))
    assert calls(found[0]) == []
    assert [calls(item) for item in found].count(["512"]) == 1
    assert all(calls(item) == [] for item in tuned(Wide(last_fastest), "triton"))


class TwoMish(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(256, 256)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.mish(nn.functional.mish(self.inner(x)))


@pytest.mark.parametrize("policy", ["mixed", "triton"])
def test_a_heavy_epilogue_is_a_kernel_of_its_own_where_that_is_faster(policy: str) -> None:
    def spilled(source: str, index: int) -> float:
        if "torch.ops" in source or "torch.matmul" in source:
            return 50.0
        return 30.0 if "mish" in source and "tl.dot" in source else 10.0

    found = tuned(Clock(spilled), policy, TwoMish())
    forms = [
        [step.epilogue for step in item.compiled.partition.steps if isinstance(step, ProductStep)]
        for item in found
    ]
    assert [None] in forms
    kernels = found[forms.index([None])].compiled.partition.steps
    assert len(kernels) == 2, "a product, two Mish"
    assert [None] not in [
        [step.epilogue for step in item.compiled.partition.steps if isinstance(step, ProductStep)]
        for item in tuned(Clock(lambda source, index: 10.0), policy, TwoMish())
    ]


class Gated(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gate, self.inner = nn.Linear(256, 256), nn.Linear(256, 256)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.silu(self.gate(x)) * self.inner(x)


@pytest.mark.parametrize("policy", ["mixed", "triton"])
def test_a_pair_is_two_products_where_that_is_faster(policy: str) -> None:
    def slow(source: str, index: int) -> float:
        return 50.0 if "second = tl.dot" in source or "torch.matmul" in source else 10.0

    kinds = [
        [type(step).__name__ for step in item.compiled.partition.steps]
        for item in tuned(Clock(slow), policy, Gated())
    ]
    assert ["ProductStep", "ProductStep"] in kinds
    assert ["PairStep"] in kinds
    fast = tuned(Clock(lambda source, index: 10.0), policy, Gated())
    assert len(fast[0].compiled.partition.steps) == 1


def test_a_library_call_without_a_rival_is_not_timed() -> None:
    clock = Clock(last_fastest)
    problem = problem_from_module(Layers(), (torch.randn(128, 256),))
    library = partitions(problem, capture(problem), "mixed")[1]
    setting = Setting(library.symbols, TARGET, "strict", lambda _: None)
    Tuner(clock).tune([with_stand_ins(library, libraries=True)], setting)
    assert {space.segment.split()[0] for space in clock.spaces} == {"softmax"}


def test_what_is_known_is_not_timed_again() -> None:
    clock = Clock(last_fastest)
    problem = problem_from_module(Layers(), (torch.randn(128, 256),))
    compiled = partitions(problem, capture(problem), "mixed")[0]
    rivalry = with_stand_ins(compiled, libraries=True)
    setting = Setting(compiled.symbols, TARGET, "strict", lambda _: None)
    tuner = Tuner(clock)
    first = tuner.tune([rivalry], setting)
    count = len(clock.spaces)
    again = tuner.tune([rivalry], setting)
    assert len(clock.spaces) == count > 0
    assert again.trials == first.trials


def test_a_schedule_that_won_is_found_again_though_nobody_guesses_it() -> None:
    class Norm(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.softmax(x, -1)

    problem = problem_from_module(Norm(), (torch.randn(4096, 256),))
    (compiled,) = partitions(problem, capture(problem), "mixed")
    setting = Setting(compiled.symbols, TARGET, "strict", lambda _: None)
    constants = {"BLOCK_N": 256, "num_warps": 2, "BLOCK_M": 32}
    won = Won(
        strategy="fused", coder="compiler", label="", schedule={"old_kernel": constants},
        family="hopper", shapes=((4096, 256),), measured=True, forms=("persistent",),
    )  # fmt: skip
    found = remembered(compiled, won, setting)
    assert found is not None
    (schedule,) = found.schedules.values()
    assert schedule.constants == constants  # type: ignore[union-attr]
    two = won.evolve(schedule={"first": constants, "second": constants})
    assert remembered(compiled, two, setting) is None


class Softmax(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x, -1)


def searched(clock: Clock, store: ScheduleStore, rows: int, sampled: int) -> Space:
    """The space of a softmax of `rows` by 256, searched with so many samples."""
    problem = problem_from_module(Softmax(), (torch.randn(rows, 256),))
    (compiled,) = partitions(problem, capture(problem), "mixed")
    setting = Setting(compiled.symbols, TARGET, "strict", lambda _: None)
    clock.most_sampled = sampled
    Tuner(clock, store).tune([with_stand_ins(compiled, libraries=True)], setting)
    return clock.spaces[-1]


def test_what_was_fast_in_an_earlier_search_is_measured_first(tmp_path: Path) -> None:
    said: list[str] = []
    with ScheduleStore(tmp_path / "schedules.sqlite", "gpu", said.append) as store:
        first = searched(Clock(last_fastest), store, 4096, 40)
        assert first.hints == ()
        like = searched(Clock(last_fastest), store, 8192, 0)
        again = searched(Clock(last_fastest), store, 4096, 0)
    fastest = [first.schedules[-1 - place] for place in range(4)]
    values = [list(item.values()) for item in fastest]
    assert [list(again.schedules[place].values()) for place in again.hints][:4] == values
    assert again.schedules[0] == first.schedules[0], "the best guess stays the first"
    assert [list(like.schedules[place].values()) for place in like.hints] == values[:2]
    assert said == []


def test_a_hint_that_makes_no_sense_any_more_is_no_schedule(tmp_path: Path) -> None:
    class Foreign(ScheduleStore):
        def best(self, step: StepKey) -> tuple[str, ...]:
            return ("{}", "no json", '{"form": "flat"}')

    with ScheduleStore(tmp_path / "schedules.sqlite", "gpu", pytest.fail) as store:
        alone = searched(Clock(last_fastest), store, 4096, 0)
    with Foreign(tmp_path / "other.sqlite", "gpu", pytest.fail) as store:
        found = searched(Clock(last_fastest), store, 4096, 0)
    assert (found.schedules, found.hints) == (alone.schedules, ())


def test_an_estimate_is_not_kept(tmp_path: Path) -> None:
    class Estimates(Clock):
        def _result(self, space: Space, index: int) -> TrialResult:
            return space.result(index, None, None, 5.0)

    with ScheduleStore(tmp_path / "schedules.sqlite", "gpu", pytest.fail) as store:
        searched(Estimates(last_fastest), store, 4096, 8)
        assert searched(Clock(last_fastest), store, 4096, 8).hints == ()
