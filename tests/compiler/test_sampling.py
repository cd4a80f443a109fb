"""Schedules that are drawn beyond the guesses fit, differ, and compute the same."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from agentkernel.compiler.emit import PERSISTENT_LIMIT, Schedule
from agentkernel.compiler.partitions import partitions
from agentkernel.compiler.pipeline import Compiled
from agentkernel.compiler.products.schedules import (
    GemmFacts,
    sampled_gemm_schedules,
    shared_bytes,
)
from agentkernel.compiler.providers import AnySchedule, Setting, provider_of
from agentkernel.compiler.sampling import drawn, powers
from agentkernel.tools.problem.capture import capture
from agentkernel.tools.problem.loading import problem_from_module
from agentkernel.tools.targets import find_target
from tests.compiler.sandboxed_drop_in import Sandboxed

TARGET = find_target("h200").target


class Softmax(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x * 2.0, -1)


class Columns(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x - x.mean(0, keepdim=True)


class Turned(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.t().contiguous() + 1.0


class Flat(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x) * x


def compiled(module: nn.Module, shape: tuple[int, int]) -> Compiled:
    problem = problem_from_module(module, (torch.randn(*shape),))
    return partitions(problem, capture(problem), "mixed")[0]


def schedules(graph: Compiled, sampled: int) -> list[AnySchedule]:
    (step,) = graph.partition.steps
    setting = Setting(graph.symbols, TARGET, "strict", lambda _: None, sampled)
    return list(provider_of(step).schedules(step, setting))


@pytest.mark.quick(1)
@pytest.mark.parametrize("module", [Softmax(), Columns(), Turned(), Flat()])
@pytest.mark.parametrize("shape", [(4096, 8192), (70, 129), (8, 65536)])
def test_draws_come_after_the_guesses_and_repeat_none(
    module: nn.Module, shape: tuple[int, int]
) -> None:
    graph = compiled(module, shape)
    guesses, every = schedules(graph, 0), schedules(graph, 40)
    assert every[: len(guesses)] == guesses
    assert len(guesses) + 8 < len(every) <= len(guesses) + 40
    assert len(set(map(str, every))) == len(every)
    assert every == schedules(graph, 40)
    for item in every[len(guesses) :]:
        assert isinstance(item, Schedule)
        elements = item.block_cols * item.block_rows
        assert elements <= PERSISTENT_LIMIT
        assert 1 <= elements / (32 * item.num_warps) <= 128


def test_short_rows_are_held_by_the_hundred() -> None:
    found = schedules(compiled(Softmax(), (65536, 64)), 60)
    assert max(item.block_rows for item in found if isinstance(item, Schedule)) == 256


@pytest.mark.parametrize("module", [Softmax(), Columns(), Turned(), Flat()])
def test_drawn_schedules_compute_the_same(module: nn.Module, box: Sandboxed) -> None:
    graph, inputs = compiled(module, (37, 129)), (torch.randn(37, 129),)
    (step,) = graph.partition.steps
    for schedule in schedules(graph, 30)[-8:]:
        box.check(graph.write({step: schedule}).text, module, inputs)


@settings(deadline=None, max_examples=30)
@given(
    m=st.integers(1, 5000), n=st.integers(1, 5000), k=st.integers(16, 70000),
    dtype=st.sampled_from(["float32", "float16", "bfloat16"]),
)  # fmt: skip
def test_every_drawn_product_fits(m: int, n: int, k: int, dtype: str) -> None:
    facts = GemmFacts(m, n, k, dtype=dtype)  # type: ignore[arg-type]
    for item in sampled_gemm_schedules(facts, TARGET, 20):
        names = ("BLOCK_M", "BLOCK_N", "BLOCK_K", "num_warps", "num_stages")
        tile = tuple(item[name] for name in names)
        assert shared_bytes(tile, facts.dtype, TARGET) <= 1024 * TARGET.shared_kb_per_block.value  # type: ignore[arg-type]
        assert item["SPLIT_K"] * item["BLOCK_K"] * 2 <= k or item["SPLIT_K"] == 1
        assert tile[0] * tile[1] / (32 * item["num_warps"]) <= 128


def test_a_deep_skinny_product_is_split_until_it_fills_the_card() -> None:
    found = sampled_gemm_schedules(GemmFacts(64, 256, 131072), TARGET, 200)
    programs = [
        -(-64 // item["BLOCK_M"]) * -(-256 // item["BLOCK_N"]) * item["SPLIT_K"] for item in found
    ]
    assert max(programs) >= 264
    whole = sampled_gemm_schedules(GemmFacts(8192, 8192, 8192), TARGET, 200)
    assert {item["SPLIT_K"] for item in whole} == {1}


def test_all_points_of_a_small_space_are_drawn() -> None:
    axes = {"a": [1, 2, 3], "b": powers(4, 16)}
    assert drawn(axes, lambda point: point["a"] != 2, 6) == [
        {"a": a, "b": b} for a in (1, 3) for b in (4, 8, 16)
    ]
    some = drawn(axes, lambda _: True, 4)
    assert len({tuple(point.values()) for point in some}) == 4
    assert drawn(axes, lambda _: True, 3) == some[:3]
