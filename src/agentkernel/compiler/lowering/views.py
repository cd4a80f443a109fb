"""How do ATen's shape calls become index maps?"""

from __future__ import annotations

from collections.abc import Sequence

import sympy

from agentkernel.compiler.axes import regroups
from agentkernel.compiler.ir import ONE, Expr, Node, Shape, UnsupportedOp, numel
from agentkernel.compiler.lowering.cuts import slice_at
from agentkernel.compiler.lowering.places import reshaped
from agentkernel.compiler.lowering.registry import Lowered, Lowering, lowers, to_expr


@lowers("view.default", "reshape.default", "_unsafe_view.default", "flatten.using_ints",
        "unflatten.int", "squeeze.default", "squeeze.dim", "squeeze.dims", "unsqueeze.default",
        "view_as.default")  # fmt: skip
def _reshape(state: Lowering, x: Node, *_: object) -> Lowered:
    """A view of what is stored, and where sizes show how the dimensions fall into one another;
    else, as for `H // 4`, the value at the places that the elements had before."""
    if x.kind in ("input", "library") or regroups(x.shape, state.shape):
        return state.b.reshape(x, state.shape)
    found = reshaped(state.b, x, state.shape)
    return state.b.expand(leading(state, found, state.shape), state.shape)


@lowers("permute.default")
def _permute(state: Lowering, x: Node, order: Sequence[int]) -> Lowered:
    return state.b.permute(x, [index % len(x.shape) for index in order])


@lowers("transpose.int", "swapaxes.default")
def _transpose(state: Lowering, x: Node, first: int, second: int) -> Lowered:
    order = list(range(len(x.shape)))
    if order:
        order[first], order[second] = order[second], order[first]
    return state.b.permute(x, order)


@lowers("t.default", "numpy_T.default")
def _t(state: Lowering, x: Node) -> Lowered:
    return state.b.permute(x, list(reversed(range(len(x.shape)))))


@lowers("expand.default", "broadcast_to.default", "expand_as.default")
def _expand(state: Lowering, x: Node, *_: object, **__: object) -> Lowered:
    return state.b.expand(leading(state, x, state.shape), state.shape)


def leading(state: Lowering, x: Node, shape: Shape) -> Node:
    """Prepend dimensions of size 1 up to the rank of `shape`."""
    missing = len(shape) - len(x.shape)
    return state.b.reshape(x, (ONE,) * missing + x.shape) if missing else x


@lowers("repeat_interleave.self_int")
def _repeat_interleave(
    state: Lowering, x: Node, repeats: object, dim: int | None = None, **_: object
) -> Lowered:
    b, times = state.b, to_expr(repeats)
    if dim is None:
        x, dim = b.reshape(x, (numel(x.shape),)), 0
    dim %= len(x.shape)
    before, after = x.shape[: dim + 1], x.shape[dim + 1 :]
    one = b.reshape(x, (*before, ONE, *after))
    return b.reshape(b.expand(one, (*before, times, *after)), state.shape)


@lowers("broadcast_tensors.default")
def _broadcast_tensors(state: Lowering, tensors: Sequence[Node]) -> Lowered:
    from agentkernel.compiler.ir import broadcast

    shape = broadcast([item.shape for item in tensors])
    return tuple(state.b.expand(leading(state, item, shape), shape) for item in tensors)


@lowers("select.int")
def _select(state: Lowering, x: Node, dim: int, index: int) -> Lowered:
    dim %= len(x.shape)
    start = to_expr(index) if not isinstance(index, int) or index >= 0 else x.shape[dim] + index
    one = state.b.slice(x, dim, start, ONE)
    return state.b.reshape(one, tuple(s for at, s in enumerate(x.shape) if at != dim))


@lowers("slice.Tensor")
def _slice(
    state: Lowering,
    x: Node,
    dim: int = 0,
    start: object = None,
    end: object = None,
    step: int = 1,
) -> Lowered:
    dim %= len(x.shape)
    first = to_expr(start or 0)
    if first.is_negative:
        first = x.shape[dim] + first
    length = state.shape[dim]
    if length == x.shape[dim] and step == 1:
        return x
    if length == 1 and first.is_number:
        return slice_at(state.b, x, dim, int(first))
    return state.b.slice(x, dim, first, length, step)


@lowers("chunk.default", "split.Tensor", "split_with_sizes.default", "split.sizes")
def _split(state: Lowering, x: Node, _sizes: object, dim: int = 0) -> Lowered:
    assert state.call is not None
    dim %= len(x.shape)
    parts: list[Node] = []
    start: Expr = sympy.Integer(0)
    for value in state.call.meta["val"]:
        length = to_expr(value.shape[dim])
        parts.append(state.b.slice(x, dim, start, length))
        start = start + length
    return tuple(parts)


@lowers("unbind.int")
def _unbind(state: Lowering, x: Node, dim: int = 0) -> Lowered:
    dim %= len(x.shape)
    if not x.shape[dim].is_number:
        raise UnsupportedOp("aten.unbind", "a symbolic number of parts")
    rest = tuple(s for at, s in enumerate(x.shape) if at != dim)
    return tuple(
        state.b.reshape(state.b.slice(x, dim, sympy.Integer(index), ONE), rest)
        for index in range(int(x.shape[dim]))
    )


@lowers("full.default", "zeros.default", "ones.default", "scalar_tensor.default",
        "full_like.default", "zeros_like.default", "ones_like.default", "new_zeros.default",
        "new_ones.default", "new_full.default", "empty_like.default", "new_empty.default",
        "empty.memory_format")  # fmt: skip
def _full(state: Lowering, *args: object, **_: object) -> Lowered:
    """One value everywhere; 0 for a tensor whose elements eager leaves open."""
    name = str(getattr(state.call, "target", ""))
    value: object = 1 if "ones" in name else 0
    if "full" in name:
        value = args[2 if "new" in name else 1]
    if "scalar_tensor" in name:
        value = args[0]
    if not isinstance(value, bool | int | float):
        raise UnsupportedOp(name, "a fill value that is no number")
    number = float(value) if state.dtype.is_floating_point else value
    constant = state.b.constant(number, state.dtype)
    shape = state.shape
    return state.b.expand(leading(state, constant, shape), shape) if shape else constant


@lowers("arange.default", "arange.start", "arange.start_step")
def _arange(state: Lowering, *bounds: int, **_: object) -> Lowered:
    b = state.b
    index: Node = b.iota(state.shape, 0)
    start, step = (bounds[0] if len(bounds) > 1 else 0), (bounds[2] if len(bounds) > 2 else 1)
    if step != 1:
        index = b.pointwise("mul", index, step)
    return b.pointwise("add", index, start) if start != 0 else index


@lowers("eye.default", "eye.m")
def _eye(state: Lowering, *_: object, **__: object) -> Lowered:
    b = state.b
    shape = state.shape
    return state.cast(b.pointwise("eq", b.iota(shape, 0), b.iota(shape, 1)), state.dtype)


@lowers("tril.default", "triu.default")
def _triangle(state: Lowering, x: Node, diagonal: int = 0) -> Lowered:
    b = state.b
    rank = len(x.shape)
    row, col = b.iota(x.shape, rank - 2), b.iota(x.shape, rank - 1)
    edge = b.pointwise("add", row, diagonal) if diagonal else row
    lower = "tril" in str(getattr(state.call, "target", ""))
    keep = b.pointwise("le" if lower else "ge", col, edge)
    zero: float | int | bool = 0.0 if x.dtype.is_floating_point else 0
    return b.pointwise("where", keep, x, zero)


def flat(state: Lowering, x: Node) -> Node:
    """All elements in one dimension."""
    return state.b.reshape(x, (numel(x.shape),))
