"""Dimensions are split, tied and addressed as the values in memory are."""

import pytest
import sympy
import torch
from hypothesis import given
from hypothesis import strategies as st

from agentkernel.compiler.axes import (
    Atom,
    IncompatibleAxes,
    Layout,
    contiguous_strides,
    leaves,
    quotient,
    regroup,
    unify,
)
from agentkernel.compiler.ir import GraphBuilder, Shape

N = sympy.Symbol("n", positive=True, integer=True)


def shape(*sizes: int) -> Shape:
    return tuple(sympy.Integer(size) for size in sizes)


def test_tying_splits_by_common_factors() -> None:
    whole, outer, inner = Atom(sympy.Integer(12)), Atom(sympy.Integer(3)), Atom(sympy.Integer(4))
    unify((whole,), (outer, inner))
    assert [atom.size for atom in whole.leaves()] == [3, 4]
    assert leaves((outer, inner)) == whole.leaves()


def test_sizes_without_a_common_factor_do_not_fit() -> None:
    with pytest.raises(IncompatibleAxes):
        unify((Atom(sympy.Integer(5)), Atom(sympy.Integer(2))), (Atom(sympy.Integer(10)),) * 1
            + (Atom(sympy.Integer(3)),))  # fmt: skip


def test_a_quotient_must_be_whole_for_every_size() -> None:
    assert quotient(6 * N, 3 * N) == 2
    assert quotient(N, sympy.Integer(2)) is None


def test_regrouping_keeps_the_order_of_elements() -> None:
    dims = ((Atom(sympy.Integer(2)),), (Atom(sympy.Integer(6)),))
    found = regroup(dims, shape(4, 3))
    assert [[atom.size for atom in leaves(dim)] for dim in found] == [[2, 2], [3]]


@given(
    sizes=st.tuples(st.integers(2, 5), st.integers(2, 5), st.integers(2, 5)),
    order=st.permutations([0, 1, 2]),
)
def test_loads_through_views_walk_memory_as_torch_does(
    sizes: tuple[int, int, int], order: list[int]
) -> None:
    builder = GraphBuilder()
    stored = builder.input("x", torch.float32, shape(*sizes))
    view = builder.permute(stored, order)
    view = builder.slice(view, 2, sympy.Integer(1), view.shape[2] - 1)
    layout = Layout(frozenset())
    dims = layout.visit(view)
    access = layout.loads[view]
    expected = torch.empty(sizes).permute(order)[..., 1:]
    strides = access.resolved()
    found = [strides[dim[0]] if dim else None for dim in map(leaves, dims)]
    for size, step, ours in zip(expected.shape, expected.stride(), found, strict=True):
        assert ours == step or size == 1
    assert access.offset == expected.storage_offset()


def test_contiguous_strides_are_row_major() -> None:
    assert contiguous_strides((N, sympy.Integer(4), sympy.Integer(3))) == (12, 3, 1)
