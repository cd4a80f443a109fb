"""The strict rule, and findings that say where the wrong elements lie."""

import math

import pytest
import torch

from agentkernel.tools.judge.cases.layouts import strided
from agentkernel.tools.judge.cases.module_state import randomise_state
from agentkernel.tools.judge.cases.selection import INTERPRETED_ODD_ROWS, plan_cases
from agentkernel.tools.judge.cases.shapes import count_rows, odd_shapes, scaled
from agentkernel.tools.judge.comparison.compare import OutputValues, compare_output, place_pattern
from agentkernel.tools.judge.comparison.errors import QUANTILE_SAMPLE, Tally, errors, quantile
from agentkernel.tools.judge.reference.oracle import call_reference
from agentkernel.tools.judge.settings import JudgeSettings
from tests.tools.judge.sources import problem_of


def judged(found, eager, oracle, precision="strict"):
    return compare_output("case", 0, OutputValues(found, eager, oracle), precision)


def test_twice_eagers_error_passes_and_three_times_does_not():
    torch.manual_seed(0)
    oracle = torch.randn(4096, dtype=torch.float64)
    noise = 1e-5 * torch.randn(4096, dtype=torch.float64)
    eager = (oracle + noise).float()
    assert judged((oracle - 1.9 * noise).float(), eager, oracle).mismatch is None
    assert judged((oracle - 3 * noise).float(), eager, oracle).mismatch is not None


def test_the_floor_is_four_ulp():
    oracle = torch.ones(1000, dtype=torch.float64)
    eager = oracle.float()
    ulp = torch.finfo(torch.float32).eps
    assert judged(eager + 3 * ulp, eager, oracle).mismatch is None
    assert judged(eager + 8 * ulp, eager, oracle).mismatch is not None
    assert judged(eager + 5e-4, eager, oracle, "tf32").mismatch is None


def test_zeros_pass_only_for_zeros():
    oracle = torch.full((64,), 1e-12, dtype=torch.float64)
    assert judged(torch.zeros(64), oracle.float(), oracle).mismatch is not None
    nothing = torch.zeros(64, dtype=torch.float64)
    assert judged(torch.zeros(64), nothing.float(), nothing).mismatch is None


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_specials_must_lie_where_eager_has_them(value):
    oracle = torch.arange(8, dtype=torch.float64)
    eager = oracle.float()
    odd = eager.clone()
    odd[3] = value
    assert judged(odd, eager, oracle).mismatch.pattern in ("nan", "one row", "scattered")
    assert errors(odd, oracle, odd).norm < 1e-6


def test_integers_must_be_equal():
    value = torch.arange(10)
    assert judged(value, value, None).mismatch is None
    assert judged(value + 1, value, None).mismatch.pattern == "all"


@pytest.mark.parametrize(
    ("index", "pattern"),
    [
        ((slice(None), slice(None)), "all"),
        ((slice(None), slice(28, None)), "tail"),
        ((3, slice(None)), "one row"),
        ((slice(None), slice(0, None, 8)), "every 8-th"),
    ],
)
def test_patterns(index, pattern):
    wrong = torch.zeros(16, 32, dtype=torch.bool)
    wrong[index] = True
    values = torch.zeros(16, 32, dtype=torch.float64)
    assert place_pattern(wrong, values, values) == pattern


class CastsInside(torch.nn.Module):
    def forward(self, x):
        return (x.float() * (1 / 3)).to(torch.float32).softmax(-1)


def test_casts_inside_do_not_narrow_the_oracle():
    x = torch.randn(4, 8)
    answer = call_reference(CastsInside(), [x])
    exact = (x.double() * (1 / 3)).softmax(-1)
    assert answer.note is None
    assert torch.equal(answer.oracle[0], exact)


def test_randomised_state_is_reproducible_and_variances_stay_positive():
    one, other = torch.nn.BatchNorm1d(8), torch.nn.BatchNorm1d(8)
    before = one.weight.detach().clone()
    randomise_state(one, 3)
    randomise_state(other, 3)
    assert torch.equal(one.weight, other.weight)
    assert not torch.equal(one.weight, before)
    assert bool((one.running_var > 0).all())
    assert not torch.equal(one.running_var, torch.ones(8))


def test_shapes_are_scaled_and_odd_only_where_free(prepared, sources):
    loaded, captured = prepared(sources.NORM_PROBLEM)
    inputs = loaded.problem.shape_sets[0]
    small = scaled(inputs, captured, 1000)
    assert small.elements <= 1000
    assert len(odd_shapes(inputs, captured, 10_000)) == 3, "a larger one takes more elements"
    *odd, larger = odd_shapes(inputs, captured, 10_000, 1 << 20)
    assert len(odd) == 3
    for item in odd:
        rows, features = item.inputs.tensors[0].shape
        assert features == 96
        assert rows % 2 == 1
    assert larger.inputs.tensors[0].shape == (inputs.tensors[0].shape[0] + 1, 96)


GATED = problem_of(
    "torch.relu(x.chunk(2, -1)[0]) * r * x.new_ones(64)",
    "torch.randn(4, 6, 128), torch.randn(4, 6, 64)",
    "x, r",
)
"""Its last sizes are the weight's, which the graph says by inequations of the others, too."""


def test_what_can_change_by_itself_does_where_the_rest_is_fixed(prepared):
    loaded, captured = prepared(GATED)
    inputs = loaded.problem.shape_sets[0]
    found = [item.inputs.tensors for item in odd_shapes(inputs, captured, 32_768, seed=3)]
    assert len(found) >= 4
    assert {(x.shape[-1], r.shape[-1]) for x, r in found} == {(128, 64)}
    assert all(x.shape[:-1] == r.shape[:-1] for x, r in found)
    assert len({x.shape for x, _ in found}) == len(found)


def test_one_shape_has_more_elements_than_the_declared_one(prepared):
    """A launch grid for the declared number of elements shows there alone."""
    loaded, captured = prepared(HALVES)
    inputs = loaded.problem.shape_sets[0]
    *_, past, fuller = odd_shapes(inputs, captured, 10_000, 1 << 20)
    declared = inputs.tensors[0].shape
    sizes = fuller.inputs.tensors[0].shape
    assert sizes != declared
    assert all(a >= b for a, b in zip(sizes, declared, strict=True))
    assert past.elements < fuller.elements
    assert captured.admits({dim.symbol: sizes[dim.dim] for dim in captured.free_dims})


MANY_ROWS = problem_of("torch.softmax(scores, dim=-1)", "torch.randn(2, 2, 16, 16)", "scores")


def test_odd_shapes_have_at_most_so_many_rows(prepared):
    """Few elements may still be thousands of programs: 33 x 3 x 65 rows of five."""
    loaded, captured = prepared(MANY_ROWS)
    inputs = loaded.problem.shape_sets[0]
    free = odd_shapes(inputs, captured, 32_768)
    assert max(count_rows(item.inputs) for item in free) > 2_500
    bounded = odd_shapes(inputs, captured, 32_768, rows=2_500)
    assert len(bounded) == len(free)
    assert all(count_rows(item.inputs) <= 2_500 for item in bounded)
    assert {item.inputs.tensors[0].shape[-1] for item in bounded} >= {17, 5, 129}
    settings = JudgeSettings(seed=0, device="cpu")
    planned = {case.shape.label: case.shape for case in plan_cases(loaded, captured, settings)}
    assert all(count_rows(shape.inputs) <= INTERPRETED_ODD_ROWS for shape in planned.values())


GATES = problem_of(
    "i, f, g, o = gates.chunk(4, dim=-1)\nf * c + i * g * o",
    "torch.randn(1024, 512), torch.randn(1024, 128)",
    takes="gates, c",
)


def test_sizes_that_are_tied_keep_their_ratio(prepared):
    """Halved one by one they would never be four to one again."""
    loaded, captured = prepared(GATES)
    inputs = loaded.problem.shape_sets[0]
    small = scaled(inputs, captured, 10_000)
    odd = odd_shapes(inputs, captured, 10_000, 1 << 20)
    assert small.elements <= 10_000
    assert len(odd) == 5
    for item in (small, *odd):
        gates, c = item.inputs.tensors
        assert gates.shape == (c.shape[0], 4 * c.shape[1])
    assert any(item.inputs.tensors[1].shape[1] % 2 for item in odd)


POSITIONS = problem_of(
    "nn.functional.avg_pool2d(x, 16).flatten(2) + torch.arange(196.0, device=x.device)",
    "torch.randn(128, 3, 224, 224)",
    takes="x",
)


def test_a_table_of_positions_keeps_the_picture_and_shrinks_the_batch(prepared):
    """Of a picture halved until it is small no patch count fits the table, and no case ran."""
    loaded, captured = prepared(POSITIONS)
    inputs = loaded.problem.shape_sets[0]
    small = scaled(inputs, captured, 100_000)
    sizes = small.inputs.tensors[0].shape
    assert sizes == (2, 2, 224, 224)
    assert captured.admits({dim.symbol: sizes[dim.dim] for dim in captured.free_dims})


def test_an_element_far_above_the_rest_is_measured_against_itself():
    oracle = torch.ones(500, dtype=torch.float64)
    oracle[7] = 1000.0 + 1e-5
    eager = oracle.float()
    close = eager.clone()
    close[7] = torch.nextafter(close[7], torch.tensor(2000.0))
    assert errors(close, oracle, eager).element <= 4 * torch.finfo(torch.float32).eps
    far = eager.clone()
    far[7] *= 1.0 + 1e-5
    assert errors(far, oracle, eager).element > 4 * torch.finfo(torch.float32).eps


def test_sizes_that_the_graph_refuses_are_raised_off_the_tile(prepared, sources):
    loaded, captured = prepared(HALVES)
    odd = odd_shapes(loaded.problem.shape_sets[0], captured, 10_000)
    assert odd
    for item in odd:
        rows, features = item.inputs.tensors[0].shape
        assert captured.admits(
            {dim.symbol: (rows, features)[dim.dim] for dim in captured.free_dims}
        )
        assert features % 2 == 0
        assert features % 16


DEEP = problem_of("x[:, 20:] - x[:, :1] if x.shape[1] > 20 else x", "torch.randn(2, 64, 64)")


def test_a_size_that_the_graph_refuses_is_raised_alone_where_all_would_be_too_many(prepared):
    loaded, captured = prepared(DEEP)
    odd = odd_shapes(loaded.problem.shape_sets[0], captured, 40_000)
    assert len(odd) >= 3
    for item in odd:
        assert item.elements <= 40_000
        sizes = item.inputs.tensors[0].shape
        assert captured.admits({dim.symbol: sizes[dim.dim] for dim in captured.free_dims})


def test_strided_values_are_the_same_values_elsewhere():
    values = [torch.randn(3, 4), torch.randn(5), torch.randint(9, (2, 3)), 2.0]
    for before, after in zip(values, strided(values), strict=True):
        if isinstance(before, torch.Tensor):
            assert torch.equal(before, after)
            assert not after.is_contiguous()
        else:
            assert before == after


HALVES = problem_of(
    "gate, up = x.chunk(2, dim=-1)\ntorch.sigmoid(gate) * up", "torch.randn(64, 128)"
)


def test_an_index_that_eagers_rounding_misled_may_be_the_exact_one():
    eager, exact = torch.tensor([1, 5, 2]), torch.tensor([1, 4, 2])

    def compared(*found):
        value = torch.tensor(found)
        values = OutputValues(value, eager, None, exact)
        return compare_output("case", 0, values, "strict").mismatch

    assert compared(1, 5, 2) is None
    assert compared(1, 4, 2) is None
    assert compared(1, 3, 2) is not None
    assert compared(1, 4, 3) is not None


def test_one_element_of_fp32_in_a_small_output_may_be_eight_ulp_off_and_of_bf16_four():
    oracle = torch.full((40,), 1.5, dtype=torch.float64)
    for dtype, ulps, passes in (
        (torch.float32, 7, True),
        (torch.float32, 16, False),
        (torch.bfloat16, 2, True),
        (torch.bfloat16, 7, False),
    ):
        eager = oracle.to(dtype)
        found = eager.clone()
        found[3] += ulps * torch.finfo(dtype).eps * 1.5
        assert (judged(found, eager, oracle).mismatch is None) == passes, (dtype, ulps)


@pytest.mark.parametrize("count", [1, 2, 999, 1000, 1001, 54321])
def test_one_in_a_thousand_lies_above_the_quantile(count):
    values = torch.randperm(count).double()
    assert quantile(values) == math.ceil(0.999 * count) - 1


def test_the_quantile_of_a_large_tensor_is_that_of_a_sample():
    off = torch.arange(3 * QUANTILE_SAMPLE + 1, dtype=torch.float64)
    oracle = torch.full_like(off, 1e8)
    tally = Tally(off.numel(), values=1)
    for piece in (off[:1000], off[1000:QUANTILE_SAMPLE], off[QUANTILE_SAMPLE:]):
        truth = oracle[: piece.numel()]
        tally.add(truth + piece, truth, truth)
    assert 1e8 * tally.errors(0).element / off.numel() == pytest.approx(0.999, abs=1e-6)


def test_the_element_that_is_named_is_what_made_the_error_infinite():
    oracle = torch.linspace(1, 2, 64, dtype=torch.float64)
    found = (oracle * 1.001).float()
    found[40] = math.nan
    mismatch = judged(found, oracle.float(), oracle).mismatch
    assert (mismatch.first_index, mismatch.pattern) == ((40,), "nan")
    assert math.isinf(mismatch.norm_error)
    assert math.isnan(mismatch.found)
