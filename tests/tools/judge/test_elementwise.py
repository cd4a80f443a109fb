"""Single wrong elements are seen that averages pass, and ill-conditioned ones excused."""

import math

import pytest
import torch

from agentkernel.tools.judge.comparison.compare import OutputValues, allowance, compare_output
from agentkernel.tools.judge.comparison.errors import Leeway, errors
from agentkernel.tools.judge.reference.oracle import call_reference


def truth(*shape):
    torch.manual_seed(0)
    return torch.randn(*shape, dtype=torch.float64)


def judged(found, oracle, leeway=None, eager=None):
    eager = oracle.float() if eager is None else eager
    return compare_output(
        "case", 0, OutputValues(found, eager, oracle), "strict", leeway or Leeway()
    )


def averages_pass(found, oracle):
    eager = oracle.float()
    ours, allowed = (
        errors(found, oracle, eager),
        allowance(errors(eager, oracle, eager), eager.dtype, "strict"),
    )
    return ours.norm <= allowed.norm and ours.element <= allowed.element


def last_element(value):
    value[-1, -1] += 1e-4


def one_in_two_thousand(value):
    value.view(-1)[::2000] *= 1 + 1e-5


def one_small_row(value):
    value[3] = 0.0


def one_imprecise_row(value):
    value[3] *= 1 + 1e-2


@pytest.mark.parametrize(
    "spoil", [last_element, one_in_two_thousand, one_small_row, one_imprecise_row]
)
def test_what_the_averages_miss(spoil):
    oracle = truth(1024, 256)
    oracle[3] *= 1e-7
    found = oracle.float()
    assert judged(found, oracle).mismatch is None
    spoil(found)
    assert averages_pass(found, oracle)
    mismatch = judged(found, oracle).mismatch
    assert mismatch.largest_error > mismatch.largest_allowed
    assert mismatch.wrong_share < 1e-3


def test_a_small_channel_counts_where_channels_are_alike():
    oracle = truth(512, 64)
    oracle[:, 5] *= 1e-9
    found = oracle.float()
    found[:, 5] = 0.0
    assert judged(found, oracle, Leeway(columns=True)).mismatch is not None
    assert judged(oracle.float(), oracle, Leeway(columns=True)).mismatch is None
    assert judged(found, oracle).mismatch is None, "a sorted row has small columns by right"


def test_ill_conditioned_elements_are_excused_and_no_others():
    oracle = truth(256, 256)
    found = oracle.float()
    found[2, 2] += 2e-5

    def sensitive(draw):
        moved = oracle.clone()
        moved[2, 2] += 2e-6
        return moved

    def undefined(draw):
        return torch.full_like(oracle, math.nan)

    assert judged(found, oracle, Leeway(perturb=sensitive)).mismatch is None
    assert judged(found, oracle, Leeway(perturb=undefined)).mismatch is not None
    assert judged(found, oracle, Leeway(perturb=lambda draw: oracle)).mismatch is not None
    found[9, 9] += 2e-5
    assert judged(found, oracle, Leeway(perturb=sensitive)).mismatch.first_index == (9, 9)


class Differences(torch.nn.Module):
    def forward(self, x):
        return x - x.mean(-1, keepdim=True)


def test_a_mean_that_is_an_ulp_off_passes_for_constant_inputs():
    x = torch.full((8, 97), 0.75)
    answer = call_reference(Differences(), [x])
    found = x - (x.sum(-1, keepdim=True) * torch.tensor(1 / 97)) * (1 + 2**-23)
    leeway = Leeway(lambda seed: answer.perturbed.output(0, seed, 0.0), constant=True)
    assert float(found.abs().max()) > 0
    assert judged(found, answer.oracle[0], leeway, answer.leaves[0]).mismatch is None
    assert judged(found, answer.oracle[0], Leeway(), answer.leaves[0]).mismatch is not None
    far = judged(found + 1e-4, answer.oracle[0], leeway, answer.leaves[0])
    assert far.mismatch is not None


def test_where_eager_and_the_oracle_disagree_on_infinity_nothing_is_compared():
    oracle = truth(8, 64)
    eager = oracle.float()
    eager[1, 1] = math.inf
    assert judged(oracle.float(), oracle, eager=eager).mismatch is None
    found = oracle.float()
    found[1, 1] = 17.0
    assert judged(found, oracle, eager=eager).mismatch is None
    found[1, 2] = math.inf
    assert judged(found, oracle, eager=eager).mismatch is not None


def test_an_overflow_of_the_outputs_own_type_must_be_kept():
    oracle = truth(8, 64)
    oracle[1, 1] = 1e5
    eager = oracle.half()
    assert judged(eager, oracle, eager=eager).mismatch is None
    found = eager.clone()
    found[1, 1] = 65504
    assert judged(found, oracle, eager=eager).mismatch is not None


def test_underflow_is_no_error():
    oracle = truth(8, 64)
    oracle[2] *= 1e-42
    found = oracle.float()
    found[2] = 0.0
    assert judged(found, oracle).mismatch is None


def test_large_outputs_are_looked_at_in_parts(monkeypatch):
    monkeypatch.setattr("agentkernel.tools.judge.comparison.errors.BLOCK_ELEMENTS", 1000)
    oracle = truth(64, 64)
    oracle[40] *= 1e-7
    found = oracle.float()
    assert judged(found, oracle).mismatch is None
    found[40] = 0.0
    assert judged(found, oracle).mismatch.first_index == (40, 0)
    assert judged(found, oracle, Leeway(perturb=lambda draw: oracle * 2)).mismatch is None


def tf32(value):
    """Rounded to TF32's 11 bits."""
    bits = value.float().view(torch.int32)
    return ((bits + 0x1000) & ~0x1FFF).view(torch.float32)


def test_what_eager_rounds_to_tf32_may_round_elsewhere():
    """A row that a clamp leaves almost empty has a scale far below that of the sums behind it: an
    element of it is off by TF32's rounding of those. An element that is wrong has no excuse."""
    torch.manual_seed(3)
    model = torch.nn.Sequential(torch.nn.Linear(256, 4096), torch.nn.ReLU())
    with torch.no_grad():
        model[0].bias.fill_(-1.6)
    given = torch.randn(64, 256)
    answer = call_reference(model, [given])
    weight, bias, oracle = model[0].weight, model[0].bias, answer.oracle[0]
    with torch.no_grad():
        eager = torch.relu(torch.nn.functional.linear(tf32(given), tf32(weight), bias))
        other = torch.relu(
            torch.nn.functional.linear(tf32(given * 3) / 3, tf32(weight * 3) / 3, bias)
        )

    def ruled(found, step):
        leeway = Leeway(perturb=lambda seed: answer.perturbed.output(0, seed, step))
        return judged(found, oracle, leeway, eager).mismatch

    eager = eager.clone()
    row = int((oracle > 0).sum(1).argmin())
    place = int(((oracle[row] > 0) * (other[row] - oracle[row]).abs()).argmax())
    eager[row, place] = oracle[row, place].float()  # by luck
    assert ruled(other, 0.0) is not None
    assert ruled(other, 2.0**-11) is None
    wrong = other.clone()
    wrong[row, place] = 0.9
    assert ruled(wrong, 2.0**-11) is not None


@pytest.mark.parametrize(("terms", "passes"), [(40, True), (100, False)])
def test_terms_that_were_flushed_add_up(terms, passes):
    """Weights of an exponential below the least normal number, each lost before it is summed."""
    oracle = truth(64, 64) * 1e-30
    oracle[5] *= 1e-4
    found = oracle.float()
    found[5, 7] = 0.0
    oracle[5, 7] = terms * torch.finfo(torch.float32).tiny
    assert (judged(found, oracle).mismatch is None) == passes
    found[0, 0] = oracle[0, 0] = 100.0  # as large as what the weights are multiplied by
    assert judged(found, oracle).mismatch is None
