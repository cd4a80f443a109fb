"""Holes in the inputs excuse an element only from those that it depends on."""

import math

import torch
from torch import nn

from agentkernel.tools.judge.reference.oracle import call_reference


class Attention(nn.Module):
    """With a mask of truth values."""

    def forward(self, q, k, v, keep):
        return nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=keep)


def given():
    torch.manual_seed(0)
    keep = torch.ones(1, 1, 6, 5, dtype=torch.bool)
    keep[..., 3] = False
    return [torch.randn(1, 1, 6, 4), torch.randn(1, 1, 5, 4), torch.randn(1, 1, 5, 4), keep]


def test_an_infinity_in_a_masked_key_beside_one_in_a_kept_key_is_excused():
    q, k, v, keep = given()
    k[0, 0, 1, 2], k[0, 0, 3, 2] = math.inf, -math.inf
    answer = call_reference(Attention(), [q, k, v, keep])
    eager, oracle = answer.leaves[0], answer.oracle[0]
    assert bool(eager.isnan().all())
    shut = q[0, 0, :, 2] < 0
    assert 0 < int(shut.sum()) < 6
    assert bool(oracle[0, 0, shut].isfinite().all())
    assert bool(oracle[0, 0, ~shut].isnan().all())
    k[0, 0, 3, 2] = 0.0
    truth = call_reference(Attention(), [q, k, v, keep]).oracle[0]
    assert torch.allclose(oracle[0, 0, shut], truth[0, 0, shut])


def test_a_masked_score_of_infinity_is_left_out():
    q, k, v, keep = given()
    q[0, 0, 2, 1] = math.inf
    k[0, 0, :, 1] = -torch.arange(1.0, 6.0)
    k[0, 0, 3, 1] = 1.0
    answer = call_reference(Attention(), [q, k, v, keep])
    assert bool(answer.leaves[0][0, 0, 2].isnan().all())
    assert bool((answer.oracle[0][0, 0, 2] == 0).all())


def test_a_hole_that_matters_stays():
    x = torch.randn(3, 4)
    x[1, 2] = math.nan
    answer = call_reference(nn.Softmax(-1), [x])
    assert bool(answer.oracle[0][1].isnan().all())
    assert bool(answer.oracle[0][0].isfinite().all())


def test_a_row_of_holes_alone_matters():
    """One value in place of all of them gives what any other does."""
    for hole in (-math.inf, math.nan):
        x = torch.randn(3, 40)
        x[1] = hole
        answer = call_reference(nn.Softmax(-1), [x])
        assert bool(answer.oracle[0][1].isnan().all())
        assert bool(answer.oracle[0][0].isfinite().all())
