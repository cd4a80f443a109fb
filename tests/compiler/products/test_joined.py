"""Products of one matrix in one launch: which are joined, what it costs, and that it is right."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

from agentkernel.agents.tuning import with_stand_ins
from agentkernel.compiler.isolated_step import isolated
from agentkernel.compiler.partitions import partitions, structure
from agentkernel.compiler.pipeline import Compiled
from agentkernel.compiler.products.joined import JoinedStep, joined_schedules
from agentkernel.compiler.products.schedules import (
    GemmFacts,
    GemmSchedule,
    gemm_schedules,
    sampled_gemm_schedules,
)
from agentkernel.compiler.products.spec import GemmSpec, Share
from agentkernel.compiler.segments import segments_of
from agentkernel.tools.problem.capture import Captured, capture
from agentkernel.tools.problem.loading import LoadedProblem, problem_from_module
from agentkernel.tools.targets import load_targets
from tests.compiler.forms import TILE, assert_accepted, small
from tests.compiler.products.test_gemm import cost_of
from tests.compiler.sandboxed_drop_in import Sandboxed

GOLDEN = Path(__file__).parents[2] / "golden" / "kernels"
FLOATS = (torch.float32, torch.bfloat16, torch.float16)


class Projections(nn.Module):
    """Linear layers of one input, each with a tail of its own."""

    def __init__(
        self, widths: Sequence[int], tails: str, dtype: torch.dtype = torch.float32
    ) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Linear(24, width, bias=tail != "p", dtype=dtype)
            for width, tail in zip(widths, tails, strict=True)
        )
        self.tails = tails

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        found = [layer(x) for layer in self.layers]
        return tuple(TAILS[tail](y) for tail, y in zip(self.tails, found, strict=True))


TAILS = {
    "p": lambda y: y,
    "b": lambda y: y,
    "r": torch.relu,
    "s": lambda y: F.silu(y) * 3.0,
    "h": lambda y: y.view(y.shape[0], -1, 8).transpose(0, 1),
}


def choices(
    module: nn.Module, *inputs: torch.Tensor, policy: str = "mixed"
) -> tuple[LoadedProblem, Captured, list[Compiled]]:
    loaded = problem_from_module(module.eval(), inputs)
    captured = capture(loaded)
    return loaded, captured, partitions(loaded, captured, policy)  # type: ignore[arg-type]


def joined_of(compiled: Compiled) -> list[JoinedStep]:
    return [step for step in compiled.partition.steps if isinstance(step, JoinedStep)]


def test_joined_products_are_a_choice_beside_those_apart() -> None:
    for policy in ("triton", "mixed"):
        _, _, found = choices(Projections((56, 24, 24), "bpr"), torch.randn(17, 24), policy=policy)
        apart, *rest, joined = found
        assert joined_of(apart) == []
        assert all(joined_of(item) == [] for item in rest)
        assert len(apart.partition.steps) == 3
        (step,) = joined.partition.steps
        assert isinstance(step, JoinedStep)
        assert structure(joined) == "gemm"
        assert [item.pattern for item in segments_of(joined)] == ["gemm_joined"]
        (stand_ins,) = with_stand_ins(joined, libraries=False).stand_ins.values()
        assert stand_ins == [step.products]


def test_it_is_timed_alone() -> None:
    _, _, found = choices(Projections((56, 24), "br"), torch.randn(17, 24))
    (step,) = joined_of(found[-1])
    alone = isolated(found[-1], step)
    assert alone is not None
    assert alone.matrix_work is not None
    assert alone.matrix_work.cost.flops == 2 * 17 * 24 * 80
    assert len(alone.outputs) == 2
    text = alone.write(TILE).text
    assert text.count("_kernel[") == 1


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    "more", [{}, {"PERSIST": 3}, {"PERSIST": 5, "DESCRIPTORS": 2}, {"PLANES": 2}], ids=str
)
def test_the_judge_accepts_queries_keys_and_values(more: dict[str, int]) -> None:
    loaded, captured, found = choices(
        Projections((32, 16, 16), "hpb"), torch.randn(2, 9, 24), policy="triton"
    )
    (step,) = found[-1].partition.steps
    text = found[-1].write({step: TILE | more}).text
    assert "torch.cat" not in text
    assert text.count("linear_kernel[") == 1
    assert_accepted(loaded, captured, text)


def test_the_text_of_queries_keys_and_values_in_one_launch() -> None:
    _, _, found = choices(Projections((64, 24, 24), "bpb"), torch.randn(17, 24))
    (step,) = found[-1].partition.steps
    schedule = {"BLOCK_M": 128, "BLOCK_N": 64, "BLOCK_K": 32, "GROUP_M": 8, "SPLIT_K": 1}
    text = found[-1].write({step: schedule | {"num_warps": 4, "num_stages": 3}}).text
    path = GOLDEN / "joined_projections.py"
    if os.environ.get("AGENTKERNEL_RECORD"):
        path.write_text(text)
    assert text == path.read_text()


@pytest.mark.slow
def test_the_judge_accepts_planes_that_are_split_before() -> None:
    loaded, captured, found = choices(Projections((136, 24), "br"), torch.randn(150, 24))
    tile = TILE | {"PLANES": 1, "BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 128}
    (step,) = found[-1].partition.steps
    assert_accepted(loaded, captured, found[-1].write({step: tile}).text)


@settings(
    max_examples=8,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
)
@given(
    widths=st.lists(st.sampled_from((8, 16, 24, 40)), min_size=2, max_size=4),
    tails=st.text("pbrs", min_size=4, max_size=4),
    rows=st.integers(1, 40),
    dtype=st.sampled_from(FLOATS),
)
def test_joined_products_are_those_of_eager(
    box: Sandboxed, widths: list[int], tails: str, rows: int, dtype: torch.dtype
) -> None:
    """Any widths, tails and types, in one launch."""
    torch.manual_seed(0)
    module = Projections(widths, tails[: len(widths)], dtype)
    x = torch.randn(rows, 24).to(dtype)
    _, _, found = choices(module, x, policy="triton")
    (step,) = joined_of(found[-1])
    assert len(step.products) == len(widths)
    box.check(found[-1].write({step: TILE}).text, module, (x,))


class Gate(nn.Module):
    """One of the products waits for the other's result."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(24, 24, bias=False), nn.Linear(24, 24, bias=False)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        one = self.one(x)
        return one, self.two(x) + one


class Chain(Gate):
    """The second reads what the first makes."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.two(torch.relu(self.one(x)))


class Turned(Gate):
    """One weight is read with K inside, the other is not."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.one(x), x @ self.two.weight


class Split(Gate):
    """Another input."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.one(x), self.two(x + 1)


@pytest.mark.parametrize(
    "module", [Gate(), Chain(), Turned(), Split()], ids=lambda x: type(x).__name__
)
def test_what_differs_in_more_than_the_weight_stays_apart(module: nn.Module) -> None:
    _, _, found = choices(module, torch.randn(17, 24))
    assert all(joined_of(item) == [] for item in found)


class Turns(nn.Module):
    """What two of three projections make is read before the third is made."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(24, 24, bias=at > 1) for at in range(3))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        q, k = self.q(x), self.k(x)
        return q.flip(-1) + q, k.softmax(-1), self.v(x)


def test_it_stands_behind_what_it_reads_and_before_what_reads_it(box: Sandboxed) -> None:
    module, x = Turns(), torch.randn(17, 24)
    _, _, found = choices(module, x, policy="triton")
    (step,) = joined_of(found[-1])
    assert len(step.products) == 3
    assert found[-1].partition.steps[0] is step
    box.check(found[-1].write(small(found[-1], "looped")).text, module, (x,))


class Waits(Gate):
    """The third waits for the first, with which the second may be joined."""

    def __init__(self) -> None:
        super().__init__()
        self.three = nn.Linear(24, 24, bias=False)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        one = self.one(x)
        return one, self.two(x), self.three(x) + one


def test_what_waits_for_one_of_them_stays_apart() -> None:
    _, _, found = choices(Waits(), torch.randn(17, 24), policy="triton")
    (joined,) = joined_of(found[-1])
    assert len(joined.products) == 2
    assert len(found[-1].partition.steps) == 2


@settings(max_examples=30, deadline=None)
@given(
    m=st.integers(1, 5000), n=st.integers(1, 5000), k=st.integers(1, 5000),
    dtype=st.sampled_from(["float32", "bfloat16"]), target=st.sampled_from(sorted(load_targets())),
)  # fmt: skip
def test_its_schedules_slice_no_k_and_describe_what_stays(
    m: int, n: int, k: int, dtype: str, target: str
) -> None:
    gpu = load_targets()[target]
    facts = GemmFacts(m, n, k, dtype=dtype)  # type: ignore[arg-type]
    found = joined_schedules([*gemm_schedules(facts, gpu), *sampled_gemm_schedules(facts, gpu, 8)])
    assert found
    assert all(item["SPLIT_K"] == 1 for item in found)
    assert all("PERSIST" in item for item in found if "DESCRIPTORS" in item)
    assert all(one != two for at, one in enumerate(found) for two in found[:at])


def joined_spec(dtype: str, widths: Sequence[str]) -> GemmSpec:
    shares = tuple(
        Share(f"w{at}", f"out{at}", n, (f"acc = acc * {at}.0",)) for at, n in enumerate(widths[1:])
    )
    return GemmSpec(
        name="joined", a="x", b="w", out="out", m="m", n=widths[0], k="4096", dtype=dtype,  # type: ignore[arg-type]
        shares=shares,
    )  # fmt: skip


@pytest.mark.parametrize("widths", [("4096", "1024", "1024"), ("4096", "4096")], ids=str)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_picked_pointers_are_read_16_bytes_at_once(dtype: str, widths: tuple[str, ...]) -> None:
    facts = GemmFacts(4096, sum(map(int, widths)), 4096, dtype=dtype)  # type: ignore[arg-type]
    found = joined_schedules(gemm_schedules(facts, load_targets()["h200"]))
    sizes = {f"N_{at}": int(n) for at, n in enumerate(widths)} | {"N": int(widths[0]), "K": 4096}
    for schedule in found[:3]:
        given: GemmSchedule = schedule | sizes | {"PROGRAMS": schedule.get("PERSIST", 0)}
        cost = cost_of(joined_spec(dtype, widths), given)
        assert "wgmma.mma_async" in cost.ptx
        assert cost.stack_bytes <= 64
        assert "cp.async.ca.shared.global" not in cost.ptx
        assert cost.shared_bytes <= 227 * 1024
