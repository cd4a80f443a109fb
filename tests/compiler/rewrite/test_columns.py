"""Packed linear layers as one for each range of columns that is read apart."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

from agentkernel.compiler.drop_in.constructor import emit_constructor
from agentkernel.compiler.drop_in.envelope import adopt_limits
from agentkernel.compiler.partitions import partitions
from agentkernel.compiler.pipeline import Compiled, compile_graph
from agentkernel.compiler.products.joined import JoinedStep
from agentkernel.compiler.providers import provider_of
from agentkernel.compiler.providers.protocol import Setting
from agentkernel.compiler.rewrite.columns import with_columns_apart
from agentkernel.domain.candidate import NoTemplate
from agentkernel.tools.problem.capture import capture
from agentkernel.tools.problem.loading import problem_from_module
from agentkernel.tools.targets import load_targets
from tests.compiler.forms import assert_accepted
from tests.compiler.products.test_rotation import Projections, cost_of, halves, neighbours, text_of
from tests.compiler.products.test_rotation import inputs as rotation_inputs
from tests.compiler.sandboxed_drop_in import Sandboxed
from tests.goldens import same_as_golden

GOLDEN = Path(__file__).parents[2] / "golden" / "kernels"
CUTS = ("chunk", "split", "unbind", "unbind first", "select", "slices")
Tensor = torch.Tensor


class Packed(nn.Module):
    """Queries, keys and values of one layer, the first two rotated, heads outside of tokens."""

    def __init__(
        self, cut: str, heads: int = 2, head: int = 16, keys: int = 2, inside: int = 24,
        bias: bool = True, dtype: torch.dtype = torch.float32, form: str = "halves",
    ) -> None:  # fmt: skip
        super().__init__()
        self.cut, self.heads, self.keys, self.head, self.form = cut, heads, keys, head, form
        self.qkv = nn.Linear(inside, (heads + 2 * keys) * head, bias=bias, dtype=dtype)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> list[Tensor]:
        rotated = halves if self.form == "halves" else neighbours
        q, k, v = self._parts(self.qkv(x), (*x.shape[:2], -1, self.head))
        return [rotated(q, cos, sin), rotated(k, cos, sin), v * 2]

    def _parts(self, y: Tensor, lies: tuple[int, ...]) -> list[Tensor]:
        heads, keys, apart = self.heads, self.keys, y.view(*y.shape[:2], -1, self.head)
        if self.cut == "chunk":
            return [item.view(lies).transpose(1, 2) for item in y.chunk(3, -1)]
        if self.cut == "split":
            sizes = [count * self.head for count in (heads, keys, keys)]
            return [item.view(lies).transpose(1, 2) for item in y.split(sizes, -1)]
        if self.cut == "slices":
            every = (slice(heads), slice(heads, heads + keys), slice(heads + keys, None))
            return [apart[:, :, some].transpose(1, 2) for some in every]
        packed = y.view(*y.shape[:2], 3, heads, self.head)
        if self.cut == "unbind":
            return [item.transpose(1, 2) for item in packed.unbind(2)]
        turned = packed.permute(2, 0, 3, 1, 4)
        return (
            list(turned.unbind(0)) if self.cut == "unbind first" else [turned[i] for i in (0, 1, 2)]
        )


def inputs(module: Packed, tokens: int, batch: int = 2) -> tuple[Tensor, ...]:
    dtype = module.qkv.weight.dtype
    angles = torch.rand(tokens, module.head) * 6
    x = torch.randn(batch, tokens, module.qkv.in_features)
    return tuple(item.to(dtype) for item in (x, torch.cos(angles), torch.sin(angles)))


def joined(module: nn.Module, *given_: Tensor) -> Compiled:
    """The module with the products that share an input in one launch, parts of a weight too."""
    loaded = problem_from_module(module.eval(), given_)
    captured, constructor = capture(loaded), emit_constructor(loaded)
    assert not isinstance(constructor, NoTemplate)
    graph = with_columns_apart(captured) or captured
    adopt_limits(loaded, captured, graph)
    (found,) = compile_graph(loaded, graph, constructor).own_products().joined_products()
    return found


@settings(
    max_examples=6, deadline=None, suppress_health_check=list(HealthCheck),
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
)  # fmt: skip
@given(
    cut=st.sampled_from(CUTS), heads=st.integers(1, 3), head=st.sampled_from((16, 32)),
    keys=st.integers(1, 2), tokens=st.integers(2, 21), bias=st.booleans(),
    dtype=st.sampled_from((torch.float32, torch.bfloat16, torch.float16)),
    more=st.sampled_from(({}, {"PERSIST": 3, "DESCRIPTORS": 2})),
    form=st.sampled_from(("halves", "neighbours")),
)  # fmt: skip
def test_packed_heads_are_rotated_where_they_are_multiplied(
    box: Sandboxed, cut: str, heads: int, head: int, keys: int, tokens: int, bias: bool,
    dtype: torch.dtype, more: dict[str, int], form: str,
) -> None:  # fmt: skip
    """Any cut, sizes and type: one product's launch, and as exact as eager."""
    torch.manual_seed(0)
    keys = keys if cut in ("split", "slices") else heads
    module = Packed(cut, heads, head, keys, bias=bias, dtype=dtype, form=form)
    given_tensors = inputs(module, tokens)
    compiled = joined(module, *given_tensors)
    (step,) = (item for item in compiled.partition.steps if isinstance(item, JoinedStep))
    # A bias before the halves meet is stored with the product, also of a layer of its own.
    if not bias:
        assert list(compiled.partition.steps) == [step]
        assert [item.rotation is not None for item in step.products].count(True) == 2
    box.check(text_of(compiled, {"BLOCK_N": head} | more), module, given_tensors)


def test_the_judge_accepts_packed_heads() -> None:
    module = Packed("unbind", bias=False)
    compiled = joined(module, *inputs(module, 7))
    text = text_of(compiled, {})
    assert_accepted(compiled.loaded, compiled.captured, text)
    same_as_golden(GOLDEN / "packed_heads.py", text, "packed queries, keys and values")


def test_it_is_the_first_choice_where_the_whole_would_be_read_again() -> None:
    module = Packed("unbind", bias=False)
    loaded = problem_from_module(module.eval(), inputs(module, 7))
    first, whole, *_ = partitions(loaded, capture(loaded), "mixed")
    assert [provider_of(step).pattern(step) for step in first.partition.steps] == ["gemm_joined"]
    assert len(whole.partition.steps) > 1


class Other(nn.Module):
    """One layer, read in another way."""

    def __init__(self, read: str) -> None:
        super().__init__()
        self.layer, self.read = nn.Linear(24, 96), read

    def forward(self, x: Tensor) -> Tensor | tuple[Tensor, ...]:
        y = self.layer(x)
        if self.read == "gate":
            a, b = y.chunk(2, -1)
            return F.silu(a) * b
        if self.read == "whole too":
            return y.sum(-1), *(item.sin() for item in y.chunk(3, -1))
        if self.read == "overlapping":
            return y[..., :64].sin(), y[..., 32:].cos()
        if self.read == "heads inside":
            return tuple(item.sin() for item in y.view(*y.shape[:-1], 2, 3, 16).unbind(-2))
        if self.read == "every other":
            return y[..., ::2].sin(), y[..., 1::2].cos()
        if self.read == "rows":
            return tuple(item.sin() for item in y.chunk(2, 0))
        return tuple(item.sin() for item in y.split(8, -1))


@pytest.mark.parametrize(
    "read",
    ["gate", "whole too", "overlapping", "heads inside", "every other", "rows", "narrow"],
)
def test_what_is_read_otherwise_stays_whole(read: str) -> None:
    loaded = problem_from_module(Other(read).eval(), (torch.randn(4, 5, 24),))
    assert with_columns_apart(capture(loaded)) is None


def test_equal_heads_apart_have_an_epilogue_each() -> None:
    """Queries and keys of one shape, each of a layer of its own, which one kernel would rotate."""

    module = Projections("halves", "heads", heads=(2, 2))
    compiled = joined(module, *rotation_inputs(module, 7))
    (step,) = compiled.partition.steps
    assert isinstance(step, JoinedStep)
    assert [item.rotation is not None for item in step.products].count(True) == 2


@pytest.mark.slow
def test_nothing_is_spilled_at_the_sizes_of_a_model() -> None:
    module = Packed("unbind", 32, 128, 32, inside=4096, bias=False, dtype=torch.bfloat16)
    compiled = joined(module, *inputs(module, 4096, batch=1))
    (step,) = compiled.partition.steps
    setting = Setting(compiled.symbols, load_targets()["h200"], "strict", lambda _: None)
    for schedule in provider_of(step).schedules(step, setting)[:2]:
        cost = cost_of(compiled.write({step: schedule}).text)
        assert "wgmma.mma_async" in cost.ptx
        assert cost.stack_bytes == 0
