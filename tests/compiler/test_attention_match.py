"""Attention is found in captured graphs, and only attention."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from agentkernel.compiler.attention_match import AttentionMatch, find_attention
from agentkernel.tools.problem.capture import capture
from agentkernel.tools.problem.loading import problem_from_module

Forward = Callable[..., torch.Tensor]


class Wrapped(nn.Module):
    def __init__(self, function: Forward) -> None:
        super().__init__()
        self.function = function

    def forward(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor
    ) -> torch.Tensor:
        return self.function(q, k, v, mask)


def matches(function: Forward, rank: int = 4, boolean: bool = False) -> tuple[AttentionMatch, ...]:
    shape = (2, 3, 32, 16)[4 - rank :]
    mask = torch.zeros(32, 32, dtype=torch.bool if boolean else torch.float32)
    inputs = (*(torch.randn(shape) for _ in range(3)), mask)
    return find_attention(capture(problem_from_module(Wrapped(function), inputs)).graph.graph)


def test_the_named_call() -> None:
    (match,) = matches(lambda q, k, v, mask: F.scaled_dot_product_attention(q, k, v, mask), 4, True)
    assert (match.query.name, match.key.name, match.value.name) == ("q", "k", "v")
    assert match.mask is not None
    assert (match.mask_kind, match.causal, match.empty_rows) == ("bool", False, "zero")
    assert match.scale is None


def test_the_named_call_with_a_causal_mask_and_a_scale() -> None:
    (match,) = matches(
        lambda q, k, v, _: F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=0.5)
    )
    assert (match.mask, match.causal, match.scale) == (None, True, 0.5)


@pytest.mark.quick(1)
@pytest.mark.parametrize("rank", [3, 4])
def test_attention_written_out(rank: int) -> None:
    (match,) = matches(
        lambda q, k, v, mask: (
            torch.softmax(q @ k.transpose(-2, -1) / math.sqrt(16) + mask, dim=-1) @ v
        ),
        rank,
    )
    assert (match.query.name, match.key.name, match.value.name) == ("q", "k", "v")
    assert match.mask.name == "mask"
    assert (match.scale, match.mask_kind, match.empty_rows) == (0.25, "add", "nan")
    assert len(match.inner) == 4


LOWEST = torch.finfo(torch.float32).min


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    ("hide", "kind", "fill"),
    [
        (lambda scores, mask: scores.masked_fill(mask, -1e9), "drop", -1e9),
        (lambda scores, mask: scores.masked_fill(mask, LOWEST), "drop", LOWEST),
        (lambda scores, mask: torch.where(mask, scores, -1e4), "bool", -1e4),
        (lambda scores, mask: torch.where(mask, -1e4, scores), "drop", -1e4),
        (lambda scores, mask: torch.where(mask, scores, torch.full((), -7.0)), "bool", -7.0),
        (lambda scores, mask: scores.masked_fill(mask, -math.inf), "drop", -math.inf),
    ],
)
def test_a_mask_may_put_any_number(hide: Forward, kind: str, fill: float) -> None:
    (match,) = matches(
        lambda q, k, v, mask: torch.softmax(hide(q @ k.mT * 0.25, mask), dim=-1) @ v, boolean=True
    )
    assert match.mask.name == "mask"
    assert (match.mask_kind, match.fill, match.scale) == (kind, fill, 0.25)


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    "added",
    [
        lambda scores, bias: scores + bias,
        lambda scores, bias: bias + scores,
        lambda scores, bias: bias + scores.clone(),
    ],
)
def test_a_bias_stands_beside_a_mask(added: Forward) -> None:
    def biased(
        q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor
    ) -> torch.Tensor:
        place = torch.arange(32.0, device=q.device)
        distance = place[None] - place[:, None]
        scores = added(q @ k.mT * 0.25, distance.abs()).masked_fill(distance > 0, -math.inf)
        return torch.softmax(scores, dim=-1) @ v

    (match,) = matches(biased)
    assert (match.bias.name, match.mask.name, match.mask_kind) == ("abs_1", "gt", "drop")
    assert match.scale == 0.25
    (plain,) = matches(
        lambda q, k, v, mask: torch.softmax(added(q @ k.mT * 0.25, mask), dim=-1) @ v
    )
    assert (plain.bias, plain.mask.name, plain.mask_kind) == (None, "mask", "add")


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    "hide",
    [
        lambda scores, mask: torch.where(mask, scores, scores.mean()),
        lambda scores, mask: torch.where(mask, scores, math.inf),
        lambda scores, mask: scores[:1].masked_fill(mask.expand(2, 3, 32, 32), -1e9),
    ],
)
def test_a_mask_that_puts_no_single_low_number_is_left_alone(hide: Forward) -> None:
    assert not matches(
        lambda q, k, v, mask: torch.softmax(hide(q @ k.mT * 0.25, mask), dim=-1) @ v, boolean=True
    )


def heads_of(q: torch.Tensor, k: torch.Tensor, to: str = "bhid,bhjd->bhij") -> torch.Tensor:
    return torch.softmax(torch.einsum(to, q, k) * 0.25, dim=-1)


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    "function",
    [
        lambda q, k, v, _: F.dropout(torch.softmax(q @ k.mT * 0.25, dim=-1), 0.1, False) @ v,
        lambda q, k, v, _: (
            F.softmax(q @ k.mT * 0.25, dim=-1, dtype=torch.float64).to(q.dtype).clone() @ v
        ),
        lambda q, k, v, _: torch.einsum("b h i j, b h j d -> b h i d", heads_of(q, k), v),
        lambda q, k, v, _: torch.einsum("xyab,xybc->xyac", heads_of(q, k), v),
    ],
)
def test_dropout_that_is_off_casts_and_einsum_hide_no_attention(function: Forward) -> None:
    (match,) = matches(function)
    assert (match.query.name, match.key.name, match.value.name) == ("q", "k", "v")
    assert (match.scale, match.mask) == (0.25, None)


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    ("scores", "mixed", "inside"),
    [
        ("bqhd,bkhd->bhqk", "bhqk,bkhd->bqhd", (True, True, True, True)),
        ("bqhd,bkhd->bhqk", "bhqk,bkhd->bhqd", (True, True, True, False)),
        ("bhqd,bkhd->bhqk", "bhqk,bhkd->bqhd", (False, True, False, True)),
    ],
)
def test_einsum_with_heads_inside_is_attention(
    scores: str, mixed: str, inside: tuple[bool, ...]
) -> None:
    def turned(x: torch.Tensor, wanted: bool) -> torch.Tensor:
        return x.transpose(1, 2).contiguous() if wanted else x

    (match,) = matches(
        lambda q, k, v, _: torch.einsum(
            mixed,
            heads_of(turned(q, inside[0]), turned(k, inside[1]), scores),
            turned(v, inside[2]),
        )
    )
    assert match.heads_inside == inside


def test_a_transpose_of_keys_that_comes_as_it_is_stands_for_them() -> None:
    (match,) = matches(lambda q, k, v, _: torch.softmax(q @ k.flip(0).mT.clone(), dim=-1) @ v)
    assert match.key_turned
    assert match.key.target is torch.ops.aten.clone.default
    (plain,) = matches(lambda q, k, v, _: torch.softmax(q @ k.mT, dim=-1) @ v)
    assert not plain.key_turned


@pytest.mark.quick(2)
@pytest.mark.parametrize(
    "function",
    [
        lambda q, k, v, _: torch.softmax((q @ k.mT).half(), dim=-1).float() @ v,
        lambda q, k, v, _: torch.einsum("bhij,bhjd->bhdi", heads_of(q, k), v).mT,
        lambda q, k, v, _: torch.einsum("hbij,bhjd->bhid", heads_of(q, k).transpose(0, 1), v),
        lambda q, k, v, _: torch.einsum("bhij,bhid->bhjd", heads_of(q, k), v),
        lambda q, k, v, _: heads_of(q, k, "bhid,bhjd->bhji") @ v,
        lambda q, k, v, _: torch.softmax(q @ k.mT, dim=-2) @ v,
        lambda q, k, v, _: torch.softmax(q, dim=-1) @ k.mT @ v,
        lambda q, k, v, _: (scores := torch.softmax(q @ k.mT, dim=-1)) @ v + scores.sum(),
        lambda q, k, v, _: torch.softmax(q @ k.mT * q.mean(), dim=-1) @ v,
    ],
)
def test_what_is_not_attention_is_left_alone(function: Forward) -> None:
    assert matches(function) == ()


@pytest.mark.parametrize(
    ("scores", "scale"),
    [
        (lambda q, k: (q * 0.5) @ k.mT / 2, 0.25),
        (lambda q, k: q @ (k / 4).mT, 0.25),
        (lambda q, k: (q @ k.mT).float() / 4, 0.25),
        (lambda q, k: (q.float() @ k.float().mT) * 0.25, 0.25),
        (lambda q, k: (q * 0.5) @ (k * 0.5).transpose(-2, -1), 0.25),
        (lambda q, k: (q @ k.mT * 0.5).float() * 0.5, 0.25),
    ],
)
def test_scales_and_casts_in_any_order(scores: Forward, scale: float) -> None:
    (match,) = matches(
        lambda q, k, v, _: (
            torch.softmax(scores(q.half(), k.half()), dim=-1, dtype=torch.float32).half() @ v.half()
        )
    )
    assert match.scale == scale
    assert {match.query.name, match.key.name} == {"_to_copy", "_to_copy_1"}


def test_a_factor_that_may_overflow_stays_before_the_product() -> None:
    (match,) = matches(lambda q, k, v, _: torch.softmax((q * 1e4) @ k.mT, dim=-1) @ v)
    assert (match.query.name, match.scale) == ("mul", 1.0)


def test_only_a_mask_that_leaves_nothing_is_scaled_behind() -> None:
    def behind(fill: float) -> int:
        return len(
            matches(
                lambda q, k, v, mask: (
                    torch.softmax((q @ k.mT).masked_fill(mask, fill) * 0.25, dim=-1) @ v
                ),
                boolean=True,
            )
        )

    assert (behind(-math.inf), behind(-1e4)) == (1, 0)


class Shared(nn.Module):
    def __init__(self, repeat: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.repeat = repeat

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        k, v = self.repeat(k), self.repeat(v)
        return torch.softmax(q @ k.mT * 0.25, dim=-1) @ v


@pytest.mark.parametrize(
    ("repeat", "grouped"),
    [
        (lambda x: x.repeat_interleave(2, 1), True),
        (lambda x: x[:, :, None].expand(-1, -1, 2, -1, -1).reshape(2, 6, 32, 16), True),
        (lambda x: x[:, None].expand(-1, 2, -1, -1, -1).reshape(2, 6, 32, 16), False),
        (lambda x: x.repeat(1, 2, 1, 1), False),
    ],
)
def test_repeated_heads_are_read_once(
    repeat: Callable[[torch.Tensor], torch.Tensor], grouped: bool
) -> None:
    inputs = (torch.randn(2, 6, 32, 16), torch.randn(2, 3, 32, 16), torch.randn(2, 3, 32, 16))
    captured = capture(problem_from_module(Shared(repeat), inputs))
    (match,) = find_attention(captured.graph.graph)
    assert match.grouped == grouped
    assert (match.key.name == "k") == grouped
