"""Inputs of a round are new, the same for every side, and found out when they change."""

from __future__ import annotations

import pytest
import torch

from agentkernel.tools.profiler.timing.arena import (
    ALIGNMENT,
    Layout,
    flush_regions,
    flush_step,
    make_buffers,
    packed,
    row,
    spans,
    spec_of,
)
from agentkernel.tools.profiler.timing.inputs import (
    PERIOD,
    FreshInputs,
    FreshInputsInPlace,
    checksum,
    scale_in_period,
    sums_of,
)

DTYPES = [torch.float32, torch.bfloat16, torch.float16, torch.float64]


def inputs() -> list[torch.Tensor]:
    """A float tensor, a transposed half one, indices and a mask."""
    drawn = torch.Generator().manual_seed(1)
    return [
        torch.randn(5, 7, generator=drawn),
        torch.randn(6, 4, generator=drawn).to(torch.bfloat16).t(),
        torch.randint(0, 9, (11,), generator=drawn),
        torch.randint(0, 2, (3, 3), generator=drawn).bool(),
    ]


def layout(rows: int = 4) -> Layout:
    specs = tuple(spec_of(item) for item in inputs())
    return Layout(specs, (packed("float32", [5, 7]),), rows, flush_bytes=1000)


def test_rows_have_the_shapes_the_strides_and_their_own_memory() -> None:
    plan = layout()
    pool = make_buffers(plan, "cpu").pool
    FreshInputs(inputs(), plan, seed=0).write(pool, 1)
    seen: set[int] = set()
    for index in range(4):
        for made, given in zip(row(pool, plan.tensors, index), inputs(), strict=True):
            assert (made.shape, made.stride(), made.dtype) == (
                given.shape,
                given.stride(),
                given.dtype,
            )
            assert (made.data_ptr() - pool.data_ptr()) % ALIGNMENT == 0
            assert made.data_ptr() not in seen
            assert not made._is_view()
            seen.add(made.data_ptr())


def test_floats_differ_from_row_to_row_and_stay_in_their_range() -> None:
    plan, given = layout(), inputs()
    pool = make_buffers(plan, "cpu").pool
    fresh = FreshInputs(given, plan, seed=0)
    assert fresh.varies
    fresh.write(pool, 1)
    rows = [row(pool, plan.tensors, index) for index in range(4)]
    for place in (0, 1):
        assert not torch.equal(rows[0][place], rows[1][place])
        for made in rows:
            factor = made[place].double() / given[place].double()
            assert factor.min() > 0.3
            assert factor.max() <= 1.0 + 1e-2
    for made in rows:
        assert torch.equal(made[2], given[2])
        assert torch.equal(made[3], given[3])


def test_even_a_sum_of_many_positive_numbers_tells_rows_apart() -> None:
    many = torch.rand(100_000)
    plan = Layout((spec_of(many),), (packed("float32", [1]),), 8, flush_bytes=64)
    pool = make_buffers(plan, "cpu").pool
    FreshInputs([many], plan, seed=0).write(pool, 5)
    sums = sorted(float(row(pool, plan.tensors, index)[0].sum()) for index in range(8))
    assert sums[-1] / sums[0] > 1.05


def test_the_same_seed_writes_the_same_numbers_and_another_does_not() -> None:
    plan = layout()
    first, second = make_buffers(plan, "cpu").pool, make_buffers(plan, "cpu").pool
    fresh = FreshInputs(inputs(), plan, seed=0)
    fresh.write(first, 7)
    fresh.write(second, 7)
    assert torch.equal(first, second)
    fresh.write(second, 8)
    assert not torch.equal(first, second)


def test_without_variation_rows_are_copies() -> None:
    plan = layout()
    pool = make_buffers(plan, "cpu").pool
    fresh = FreshInputs(inputs(), plan, seed=0, vary=False)
    assert not fresh.varies
    fresh.write(pool, 1)
    for index in range(4):
        for made, given in zip(row(pool, plan.tensors, index), inputs(), strict=True):
            assert torch.equal(made, given)


def test_a_single_changed_element_is_found_and_put_right() -> None:
    plan = layout()
    pool = make_buffers(plan, "cpu").pool
    fresh = FreshInputs(inputs(), plan, seed=0)
    fresh.write(pool, 3)
    assert fresh.unchanged(pool, 3) == [True] * 4
    row(pool, plan.tensors, 2)[2][5] += 1
    assert fresh.unchanged(pool, 3) == [True, True, False, True]
    assert fresh.unchanged(pool, 3) == [True] * 4


@pytest.mark.parametrize("dtype", [*DTYPES, torch.int8, torch.bool, torch.int64, torch.complex64])
def test_a_checksum_sees_a_change_in_every_dtype(dtype: torch.dtype) -> None:
    values = torch.ones(3, 130).to(dtype)
    before = checksum(values)
    values[1, 129] = 0
    assert not torch.equal(checksum(values), before)


def test_a_checksum_sees_a_swap_and_takes_any_shape() -> None:
    values = torch.arange(200.0)
    swapped = values.clone()
    swapped[[3, 4]] = swapped[[4, 3]]
    assert not torch.equal(checksum(values), checksum(swapped))
    found = sums_of(
        {"scalar": torch.tensor(3.0), "none": torch.zeros(0), "t": torch.ones(4, 3).t()}
    )
    assert set(found) == {"scalar", "none", "t"}


def test_tables_and_rows_are_the_same_memory() -> None:
    plan = layout()
    pool = make_buffers(plan, "cpu").pool
    table = spans(pool, plan.tensors, 4)[0]
    table[2] = torch.arange(35.0)
    assert row(pool, plan.tensors, 2)[0].flatten().tolist() == list(range(35))
    regions = flush_regions(make_buffers(plan, "cpu").flush, plan)
    assert regions.shape == (4, flush_step(plan) // 4)


def resident(*given: torch.Tensor) -> tuple[Layout, torch.Tensor]:
    """A layout of one row, and a pool with `given` in it."""
    plan = Layout(tuple(map(spec_of, given)), (packed("float32", [5]),), 1, 1000, kept=0)
    pool = make_buffers(plan, "cpu").pool
    for view, item in zip(row(pool, plan.tensors, 0), given, strict=True):
        view.copy_(item)
    return plan, pool


@pytest.mark.parametrize("dtype", DTYPES)
def test_inputs_written_in_place_come_back_to_the_last_bit(dtype: torch.dtype) -> None:
    drawn = torch.Generator().manual_seed(3)
    wide = torch.randn(3 * PERIOD // 2, generator=drawn) * 10.0 ** torch.randint(
        -44, 30, (3 * PERIOD // 2,), generator=drawn
    )
    given = torch.cat([wide, torch.tensor([0.0, -0.0, torch.inf, -torch.inf, torch.nan])])
    plan, pool = resident(given.to(dtype), torch.arange(9))
    fresh = FreshInputsInPlace(plan, pool)
    floats, numbers = row(pool, plan.tensors, 0)
    before = floats.clone()
    seen = []
    for seed in (5, 6, 5):
        fresh.write(pool, seed)
        seen.append(floats.clone())
    assert not seen[0].equal(seen[1])
    torch.testing.assert_close(seen[0], seen[2], rtol=0, atol=0, equal_nan=True)
    assert bool((floats.abs() <= before.abs())[before.isfinite()].all())
    assert numbers.equal(torch.arange(9))
    assert fresh.unchanged(pool, 5) == [True, True]
    fresh.restore()
    torch.testing.assert_close(floats, before, rtol=0, atol=0, equal_nan=True)
    assert floats.view(torch.uint8).equal(before.view(torch.uint8))


def test_a_write_to_an_input_in_place_is_found() -> None:
    plan, pool = resident(torch.randn(1000), torch.randn(10))
    fresh = FreshInputsInPlace(plan, pool)
    fresh.write(pool, 1)
    row(pool, plan.tensors, 0)[0][77] *= 0.5
    assert fresh.unchanged(pool, 1) == [False, True]


def test_a_pool_of_another_process_begins_with_the_problems_values() -> None:
    plan, pool = resident(torch.randn(1000))
    fresh, other = FreshInputsInPlace(plan, pool), make_buffers(plan, "cpu").pool
    fresh.write(pool, 1)
    fresh.begin(other, 2)
    fresh.write(pool, 2)
    assert row(other, plan.tensors, 0)[0].equal(row(pool, plan.tensors, 0)[0])


def test_factors_come_again_after_their_period() -> None:
    flat = torch.ones(8)
    scale_in_period(flat, torch.tensor([1.0, 2.0, 4.0]))
    assert flat.tolist() == [1, 2, 4, 1, 2, 4, 1, 2]
