"""Attention of all kinds is lifted as the library's call or as one kernel: no scores in memory."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Sequence

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from agentkernel.compiler.attention import SDPA
from agentkernel.compiler.lift.drop_in import lifted_drafts
from agentkernel.compiler.lift.inductor_code import InductorCode, NotLifted, find_variant
from agentkernel.tools.problem.capture import Captured, capture
from agentkernel.tools.problem.loading import LoadedProblem, problem_from_module
from agentkernel.tools.problem.specialise import specialise
from tests.compiler.forms import assert_accepted
from tests.compiler.inductor_codes import shared_codes
from tests.compiler.lift.cases import Wrapped

LENGTH, WIDTH, HEADS = 9, 32, 4
"""No other size is 9: what is stored as [2, 4, 9, 9], or [8, 9, 9], are scores."""
Mix = Callable[..., torch.Tensor]
sdpa = F.scaled_dot_product_attention


class Attention(nn.Module):
    """Projections, `mix` of the heads and what is beside them, and a projection of the result."""

    def __init__(self, mix: Mix, *, groups: int = HEADS, normed: bool = True) -> None:
        super().__init__()
        self.mix, self.groups = mix, groups
        self.norm = nn.LayerNorm(WIDTH) if normed else nn.Identity()
        self.q = nn.Linear(WIDTH, WIDTH)
        self.k = nn.Linear(WIDTH, WIDTH * groups // HEADS)
        self.v = nn.Linear(WIDTH, WIDTH * groups // HEADS)
        self.out = nn.Linear(WIDTH, WIDTH)

    def heads(self, x: torch.Tensor) -> torch.Tensor:
        return x.view(*x.shape[:2], -1, WIDTH // HEADS).transpose(1, 2)

    def forward(self, x: torch.Tensor, *beside: torch.Tensor) -> torch.Tensor:
        y = self.norm(x)
        given = (self.heads(self.q(y)), self.heads(self.k(y)), self.heads(self.v(y)))
        mixed = self.mix(*given, *beside).transpose(1, 2).reshape(x.shape)
        return self.out(mixed)


class Window(nn.Module):
    """A window of a vision transformer: one product for q, k and v, a bias a pair of places."""

    def __init__(self, *, called: bool) -> None:
        super().__init__()
        self.called = called
        self.norm = nn.LayerNorm(WIDTH)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.table = nn.Parameter(torch.randn(25, HEADS))
        rows = torch.arange(LENGTH) // 3 * 5 + torch.arange(LENGTH) % 3
        self.register_buffer("places", rows[:, None] - rows[None, :] + 12)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        parts = self.qkv(self.norm(x)).view(*x.shape[:2], 3, HEADS, WIDTH // HEADS)
        q, k, v = parts.permute(2, 0, 3, 1, 4).unbind(0)
        bias = self.table[self.places.view(-1)].view(LENGTH, LENGTH, HEADS).permute(2, 0, 1)
        if self.called:
            mixed = sdpa(q, k, v, attn_mask=bias.unsqueeze(0))
        else:
            scores = q * q.shape[-1] ** -0.5 @ k.transpose(-2, -1) + bias.unsqueeze(0)
            mixed = scores.softmax(-1) @ v
        return x + mixed.transpose(1, 2).flatten(2)


def written(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return (q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])).softmax(-1) @ v


def masked(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, drop: torch.Tensor) -> torch.Tensor:
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    return scores.masked_fill(drop, float("-inf")).softmax(-1) @ v


def turned(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return (q @ k.transpose(1, 2).permute(0, 2, 3, 1) * 0.3).softmax(-1) @ v


def _modules() -> dict[str, tuple[nn.Module, Sequence[torch.Tensor]]]:
    torch.manual_seed(0)
    x, kept = torch.randn(2, LENGTH, WIDTH), torch.rand(LENGTH, LENGTH) > 0.3
    kept |= torch.eye(LENGTH, dtype=torch.bool)
    heads = [torch.randn(2, HEADS, LENGTH, 16) for _ in range(3)]
    causal = functools.partial(sdpa, is_causal=True)
    grouped = functools.partial(sdpa, is_causal=True, enable_gqa=True)
    with_mask = lambda q, k, v, mask: sdpa(q, k, v, attn_mask=mask)  # noqa: E731
    return {
        "called": (Attention(sdpa), [x]),
        "called_half": (Attention(sdpa).half(), [x.half()]),
        "causal": (Attention(causal), [x]),
        "grouped": (Attention(grouped, groups=2), [x]),
        "mask": (Attention(with_mask), [x, kept]),
        "padding": (Attention(with_mask), [x, kept[:2, None, None]]),
        "bias": (Attention(with_mask), [x, torch.randn(2, 1, LENGTH, LENGTH)]),
        "projections": (Attention(sdpa, normed=False), [x]),
        "written": (Attention(written), [x]),
        "written_alone": (Attention(written, normed=False), [x]),
        "written_mask": (Attention(masked), [x, ~kept]),
        "written_turned": (Attention(turned), [x]),
        "window": (Window(called=True), [x]),
        "window_written": (Window(called=False), [x]),
        "alone": (Wrapped(lambda m, *x: sdpa(*x)), heads),
        "viewed": (Wrapped(lambda m, q, k, v: sdpa(q.relu(), k, v).view(2, -1, 16)), heads),
        "viewed_half": (
            Wrapped(lambda m, q, k, v: sdpa(q.relu(), k, v).view(2, -1, 16)),
            [item.half() for item in heads],
        ),
        "flat": (
            Wrapped(lambda m, q, k, v: sdpa(q.relu(), k, v).view(-1).tanh()),
            [item[0] for item in heads],
        ),
        "wide_batch": (
            Wrapped(lambda m, q, k, v: sdpa(q.relu(), k, v).flatten(0, 1)),
            [torch.randn(3, 2, 2, LENGTH, 16) for _ in range(3)],
        ),
        "other_lengths": (
            Wrapped(lambda m, q, k, v: sdpa(q, k, v).transpose(1, 2).flatten(2).tanh()),
            [torch.randn(2, 2, 7, 16), torch.randn(2, 2, 11, 16), torch.randn(2, 2, 11, 24)],
        ),
    }


LIBRARY = {"called", "called_half", "causal", "grouped", "mask", "padding", "bias", "window",
           "viewed", "viewed_half", "other_lengths"}  # fmt: skip
"""What calls PyTorch's attention on four dimensions, and has other kernels beside it."""
NAMES = tuple(_modules())


@functools.cache
def cases() -> dict[str, tuple[LoadedProblem, Captured, InductorCode | NotLifted]]:
    loaded = {name: problem_from_module(m.eval(), x) for name, (m, x) in _modules().items()}
    graphs = {name: capture(item) for name, item in loaded.items()}
    jobs = [(graph, find_variant("default")) for graph in graphs.values()]
    codes = shared_codes("attention", jobs)
    return {
        name: (loaded[name], graphs[name], code) for name, code in zip(NAMES, codes, strict=True)
    }


pytestmark = [pytest.mark.xdist_group("lift_attention"), pytest.mark.slow]


@pytest.mark.parametrize("name", NAMES)
def test_it_is_lifted_whole_and_passes_the_judge(name: str) -> None:
    loaded, captured, code = cases()[name]
    drafts = lifted_drafts(loaded, captured, [code], "mixed")
    assert isinstance(drafts, list), drafts
    text = drafts[0].source.text
    forward = text.partition("class ModelNew")[2]
    assert forward.count(f"{SDPA}(") == (name in LIBRARY), text
    assert forward.count("attention_kernel[") == (name not in LIBRARY), text
    assert not re.search(r"torch\.(bmm|baddbmm|matmul)\(", forward), text
    scores = rf"torch\.empty\w*\(\s*\((2, {HEADS}|{2 * HEADS}), {LENGTH}, {LENGTH}\)"
    assert not re.search(scores, forward), text
    assert_accepted(loaded, specialise(captured), text, budget_s=1.0)
