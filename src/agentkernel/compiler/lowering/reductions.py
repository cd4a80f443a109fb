"""Lowerings of sums, extrema, variances, softmaxes and norms to the IR's reductions.

Layer, RMS, group, instance and batch norm are statistics and an affine map.
"""

from __future__ import annotations

import functools
import math

import sympy
import torch

from agentkernel.compiler.ir import (
    ONE,
    Node,
    Scalar,
    Shape,
    UnsupportedOp,
    compute_dtype,
    numel,
)
from agentkernel.compiler.lowering.pointwise import promoted
from agentkernel.compiler.lowering.registry import Lowered, Lowering, dims_of, lowers

TILE_COLUMNS = 64
"""Columns that a program takes where it folds the rows of a matrix."""
MANY_PROGRAMS = 2112
"""Programs that keep an H200 busy: 16 for each SM."""
STAGE_FROM = 1 << 20
"""Elements from which on a second launch costs less than idle SMs."""


def over_rows(state: Lowering, op: str, x: Node) -> Node:
    """`op` (sum, max, min) over the first dimension of x[N, ...], which stays as size 1.

    A program folds all rows of a few columns; where a stored matrix has too few columns to fill
    the GPU, its rows are folded in slices first and the slices after that.
    """
    slices = _slices(x)
    if slices == 1:
        return state.b.reduce(op, x, (0,))
    each = x.shape[0] / slices
    parts = state.b.reshape(x, (sympy.Integer(slices), each, *x.shape[1:]))
    partial = state.b.reduce(op, parts, (1,), f"{op}_of_slice")
    whole = state.b.reduce(op, partial, (0,))
    return state.b.reshape(whole, (ONE, *x.shape[1:]))


def _slices(x: Node) -> int:
    """How many slices of rows fill the GPU; 1 where one launch does, or sizes may change."""
    if x.kind != "input" or len(x.shape) < 2 or not all(size.is_number for size in x.shape):
        return 1
    rows, columns = int(x.shape[0]), int(numel(x.shape[1:]))
    tiles = -(-columns // TILE_COLUMNS)
    if rows * columns < STAGE_FROM or 8 * tiles > MANY_PROGRAMS:
        return 1
    slices = 1
    while 2 * slices * tiles <= MANY_PROGRAMS and rows % (2 * slices) == 0 and slices < rows // 64:
        slices *= 2
    return slices


def reduced(state: Lowering, op: str, x: Node, dims: tuple[int, ...]) -> Node:
    """`op` over `dims`, which stay as size 1."""
    return over_rows(state, op, x) if dims == (0,) else state.b.reduce(op, x, dims)


def count(state: Lowering, x: Node, dims: tuple[int, ...]) -> Node:
    """Number of elements that a reduction over `dims` folds, as a scalar."""
    return state.b.size(numel([x.shape[dim] for dim in dims]), x.dtype)


def mean_over(state: Lowering, x: Node, dims: tuple[int, ...], name: str = "mean") -> Node:
    """Mean over `dims`, which stay as size 1."""
    total = over_rows(state, "sum", x) if dims == (0,) else state.b.reduce("sum", x, dims, "total")
    return state.b.pointwise("div", total, count(state, x, dims), name=name)


def _finish(state: Lowering, reduced: Node) -> Lowered:
    """Give a kept-dims result the shape that eager has."""
    return state.b.reshape(reduced, state.shape)


@lowers("sum.default", "sum.dim_IntList")
def _sum(
    state: Lowering, x: Node, dim: object = None, keepdim: bool = False, *, dtype: object = None
) -> Lowered:
    if x.dtype == torch.bool:
        x = state.cast(x, torch.int64)
    if isinstance(dtype, torch.dtype):
        x = state.cast(x, dtype)
    return _finish(state, reduced(state, "sum", x, dims_of(dim, len(x.shape))))


@lowers("mean.default", "mean.dim")
def _mean(
    state: Lowering, x: Node, dim: object = None, keepdim: bool = False, *, dtype: object = None
) -> Lowered:
    x = state.compute(x)
    return _finish(state, mean_over(state, x, dims_of(dim, len(x.shape))))


@lowers("amax.default", "amin.default", "max.default", "min.default")
def _extremum(state: Lowering, x: Node, dim: object = None, keepdim: bool = False) -> Lowered:
    op = "max" if "max" in str(getattr(state.call, "target", "")) else "min"
    return _finish(state, reduced(state, _boolean_reduction(op, x), x, dims_of(dim, len(x.shape))))


def _boolean_reduction(op: str, x: Node) -> str:
    """The largest of truth values is whether any holds, the smallest whether all do."""
    return {"max": "any", "min": "all"}[op] if x.dtype == torch.bool else op


@lowers("max.dim", "min.dim")
def _extremum_index(state: Lowering, x: Node, dim: int, keepdim: bool = False) -> Lowered:
    op = "max" if "max" in str(getattr(state.call, "target", "")) else "min"
    dims = dims_of(dim, len(x.shape))
    value = state.b.reshape(state.b.reduce(_boolean_reduction(op, x), x, dims), state.shape)
    ordered = state.cast(x, torch.int32) if x.dtype == torch.bool else x
    index = state.b.reshape(state.b.reduce(f"arg{op}", ordered, dims), state.shape)
    return state.cast(value, x.dtype), index


@lowers("argmax.default", "argmin.default")
def _arg(state: Lowering, x: Node, dim: int | None = None, keepdim: bool = False) -> Lowered:
    op = "argmax" if "argmax" in str(getattr(state.call, "target", "")) else "argmin"
    if dim is None:
        x = state.b.reshape(x, (numel(x.shape),))
        dim = 0
    return _finish(state, state.b.reduce(op, x, dims_of(dim, len(x.shape))))


@lowers("any.default", "any.dim", "any.dims", "all.default", "all.dim", "all.dims")
def _logical(state: Lowering, x: Node, dim: object = None, keepdim: bool = False) -> Lowered:
    op = "any" if ".any" in str(getattr(state.call, "target", "")) else "all"
    truth = x if x.dtype == torch.bool else state.b.pointwise("ne", x, 0)
    return _finish(state, state.b.reduce(op, truth, dims_of(dim, len(x.shape))))


@lowers("prod.default", "prod.dim_int")
def _prod(
    state: Lowering, x: Node, dim: object = None, keepdim: bool = False, *, dtype: object = None
) -> Lowered:
    return _finish(state, state.b.reduce("prod", x, dims_of(dim, len(x.shape))))


def moments(state: Lowering, x: Node, dims: tuple[int, ...]) -> tuple[Node, Node]:
    """Mean and sum of squared deviations, numerically as two passes (or their exact merge)."""
    both = state.b.reduce("moments", x, dims, "moments")
    return state.b.field(both, 0, "mean"), state.b.field(both, 1, "squares")


@lowers("var.default", "var.dim", "var.correction", "std.default", "std.dim", "std.correction",
        "var_mean.correction", "var_mean.dim", "std_mean.correction")  # fmt: skip
def _variance(
    state: Lowering, x: Node, dim: object = None, unbiased: object = None, keepdim: bool = False,
    *, correction: Scalar | None = None,
) -> Lowered:  # fmt: skip
    name = str(getattr(state.call, "target", ""))
    if isinstance(dim, bool):
        dim, unbiased = None, dim
    if correction is None:
        correction = 0 if unbiased is False else 1
    if name.endswith("correction"):
        correction = 1 if correction is None else correction
    x = state.compute(x)
    dims = dims_of(dim, len(x.shape))
    _, squares = moments(state, x, dims)
    size = numel([x.shape[item] for item in dims]) - int(correction)
    variance = state.b.pointwise("div", squares, state.b.size(size, x.dtype), name="var")
    result = state.b.pointwise("sqrt", variance, name="std") if ".std" in name else variance
    spread = state.b.reshape(result, state.shape)
    if "_mean" in name:
        mean = state.b.reshape(mean_over(state, x, dims), state.shape)
        return state.cast(spread, state.dtype), state.cast(mean, state.dtype)
    return spread


@lowers(
    "linalg_vector_norm.default", "norm.ScalarOpt_dim", "norm.Scalar", "norm.ScalarOpt_dim_dtype"
)
def _norm(
    state: Lowering, x: Node, ord: Scalar | None = 2, dim: object = None, keepdim: bool = False,  # noqa: A002
    *, dtype: object = None,
) -> Lowered:  # fmt: skip
    return _finish(state, norm_over(state, state.compute(x), ord, dims_of(dim, len(x.shape))))


def norm_over(state: Lowering, x: Node, order: Scalar | None, dims: tuple[int, ...]) -> Node:
    """The vector norm of `order` 1, 2 or infinity."""
    b = state.b
    if order in (2, None):
        return b.pointwise("sqrt", b.reduce("sum", b.pointwise("mul", x, x), dims), name="norm")
    if order == 1:
        return b.reduce("sum", b.pointwise("abs", x), dims, "norm")
    if order == math.inf:
        return b.reduce("max", b.pointwise("abs", x), dims, "norm")
    raise UnsupportedOp("aten.linalg_vector_norm", f"order {order}")


@lowers("logsumexp.default")
def _logsumexp(state: Lowering, x: Node, dim: object, keepdim: bool = False) -> Lowered:
    x = state.compute(x)
    return _finish(state, log_sum_exp(state, x, dims_of(dim, len(x.shape))))


def log_sum_exp(state: Lowering, x: Node, dims: tuple[int, ...]) -> Node:
    """log(sum(exp(x))) with the maximum taken out unless it is infinite; NaN where any x is."""
    b = state.b
    both = b.reduce("expsum", x, dims, "expsum", guarded=True)
    top, total = b.field(both, 0, "row_max"), b.field(both, 1, "row_sum")
    return b.pointwise("add", b.pointwise("log", total), top, name="lse")


@lowers("softmax.int", "_softmax.default", "_safe_softmax.default")
def _softmax(state: Lowering, x: Node, dim: int, *_: object, **__: object) -> Lowered:
    if "_safe" in str(getattr(state.call, "target", "")):
        raise UnsupportedOp("aten._safe_softmax", "rows that are masked out entirely")
    return softmax_over(state, state.compute(x), dims_of(dim, len(x.shape)))


def softmax_over(state: Lowering, x: Node, dims: tuple[int, ...]) -> Node:
    """exp(x - max) / sum(exp(x - max))."""
    b = state.b
    both = b.reduce("expsum", x, dims, "expsum")
    top, total = b.field(both, 0, "row_max"), b.field(both, 1, "row_sum")
    weight = b.pointwise("exp", b.pointwise("sub", x, top, name="shifted"), name="numerator")
    scale = b.pointwise("reciprocal", total, name="scale")
    return b.pointwise("mul", weight, scale)


def log_softmax_over(state: Lowering, x: Node, dims: tuple[int, ...]) -> Node:
    """(x - max) - log(sum(exp(x - max)))."""
    return log_softmax_of(state, x, x, dims)


def log_softmax_of(state: Lowering, x: Node, some: Node, dims: tuple[int, ...]) -> Node:
    """The log-softmax over `x` of `some` elements of it."""
    b = state.b
    both = b.reduce("expsum", x, dims, "expsum")
    top, total = b.field(both, 0, "row_max"), b.field(both, 1, "row_sum")
    shifted = b.pointwise("sub", some, top, name="shifted")
    return b.pointwise("sub", shifted, b.pointwise("log", total, name="log_sum"))


@lowers("log_softmax.int", "_log_softmax.default")
def _log_softmax(state: Lowering, x: Node, dim: int, *_: object, **__: object) -> Lowered:
    x = state.compute(x)
    return log_softmax_over(state, x, dims_of(dim, len(x.shape)))


def standardised(state: Lowering, x: Node, dims: tuple[int, ...], eps: Scalar) -> Node:
    """(x - mean) / sqrt(var + eps) with the biased variance over `dims`."""
    b = state.b
    mean, squares = moments(state, x, dims)
    size = b.size(numel([x.shape[dim] for dim in dims]), x.dtype)
    variance = b.pointwise("div", squares, size, name="var")
    rstd = b.pointwise("rsqrt", b.pointwise("add", variance, eps), name="rstd")
    return b.pointwise("mul", b.pointwise("sub", x, mean, name="centred"), rstd)


def affine(state: Lowering, x: Node, weight: Node | None, bias: Node | None) -> Node:
    """x * weight + bias, either of which may be missing."""
    if weight is not None:
        x = _float(state, state.b.pointwise("mul", *promoted(state, x, weight)))
    if bias is not None:
        x = _float(state, state.b.pointwise("add", *promoted(state, x, bias)))
    return x


def _float(state: Lowering, node: Node) -> Node:
    return state.compute(node)


def per_channel(state: Lowering, vector: Node | None, rank: int) -> Node | None:
    """A vector over channels as [C, 1, 1, ...], ready to broadcast against [N, C, ...]."""
    if vector is None:
        return None
    return state.b.reshape(vector, (vector.shape[0], *(ONE,) * (rank - 2)))


@lowers("layer_norm.default")
def _layer_norm(
    state: Lowering, x: Node, normalized: list[object], weight: Node | None = None,
    bias: Node | None = None, eps: Scalar = 1e-5, _cudnn: bool = True,
) -> Lowered:  # fmt: skip
    rank = len(x.shape)
    dims = tuple(range(rank - len(normalized), rank))
    return affine(state, standardised(state, state.compute(x), dims, eps), weight, bias)


@lowers("native_layer_norm.default")
def _native_layer_norm(
    state: Lowering, x: Node, normalized: list[object], weight: Node | None, bias: Node | None,
    eps: Scalar,
) -> Lowered:  # fmt: skip
    result = _layer_norm(state, x, normalized, weight, bias, eps)
    assert isinstance(result, Node)
    return state.cast(result, x.dtype), None, None


@functools.cache
def _epsilon(dtype: torch.dtype) -> float:
    """What this torch adds where no eps is given: the machine epsilon of the dtype or, in later
    versions, of the type that it computes in. Told by the norm of a number below both."""
    x = torch.full((1, 1), 2.0**-8, dtype=dtype, device="cpu")
    norm = float(torch.nn.functional.rms_norm(x, (1,)))
    own, wide = torch.finfo(dtype).eps, torch.finfo(compute_dtype(dtype)).eps
    return min(own, wide, key=lambda eps: abs(2.0**-8 / math.sqrt(2.0**-16 + eps) - norm))


@lowers("rms_norm.default", "_fused_rms_norm.default")
def _rms_norm(
    state: Lowering, x: Node, normalized: list[object], weight: Node | None = None,
    eps: Scalar | None = None,
) -> Lowered:  # fmt: skip
    b = state.b
    rank = len(x.shape)
    dims = tuple(range(rank - len(normalized), rank))
    epsilon = _epsilon(x.dtype) if eps is None else eps
    wide = state.compute(x)
    mean_square = mean_over(state, b.pointwise("mul", wide, wide), dims, "mean_square")
    rstd = b.pointwise("rsqrt", b.pointwise("add", mean_square, epsilon), name="rstd")
    result = affine(state, b.pointwise("mul", wide, rstd), weight, None)
    if "_fused" in str(getattr(state.call, "target", "")):
        return state.cast(result, x.dtype), rstd
    return result


@lowers("group_norm.default")
def _group_norm(
    state: Lowering, x: Node, groups: int, weight: Node | None = None, bias: Node | None = None,
    eps: Scalar = 1e-5, _cudnn: bool = True,
) -> Lowered:  # fmt: skip
    b = state.b
    batch, channels, *space = x.shape
    wide = state.compute(x)
    split: Shape = (batch, ONE * groups, channels / groups, *space)
    grouped = b.reshape(wide, split)
    normal = standardised(state, grouped, tuple(range(2, len(split))), eps)
    rank = len(x.shape)
    back = b.reshape(normal, x.shape)
    return affine(state, back, per_channel(state, weight, rank), per_channel(state, bias, rank))


@lowers("instance_norm.default")
def _instance_norm(
    state: Lowering, x: Node, weight: Node | None, bias: Node | None, mean: Node | None,
    var: Node | None, use_input_stats: bool, momentum: Scalar, eps: Scalar, _cudnn: bool,
) -> Lowered:  # fmt: skip
    rank = len(x.shape)
    scale, shift = per_channel(state, weight, rank), per_channel(state, bias, rank)
    wide = state.compute(x)
    if not use_input_stats and mean is not None and var is not None:
        return _running(state, wide, scale, shift, mean, var, eps)
    return affine(state, standardised(state, wide, tuple(range(2, rank)), eps), scale, shift)


def _running(
    state: Lowering, x: Node, weight: Node | None, bias: Node | None, mean: Node, var: Node,
    eps: Scalar,
) -> Node:  # fmt: skip
    """Normalise with running statistics: (x - mean) * rsqrt(var + eps) * weight + bias."""
    b = state.b
    rank = len(x.shape)
    centre, spread = per_channel(state, mean, rank), per_channel(state, var, rank)
    assert centre is not None
    assert spread is not None
    rstd = b.pointwise("rsqrt", b.pointwise("add", state.compute(spread), eps), name="rstd")
    centred = b.pointwise("sub", x, state.compute(centre), name="centred")
    return affine(state, b.pointwise("mul", centred, rstd), weight, bias)


@lowers("_native_batch_norm_legit_no_training.default")
def _batch_norm_eval(
    state: Lowering, x: Node, weight: Node | None, bias: Node | None, mean: Node, var: Node,
    momentum: Scalar, eps: Scalar,
) -> Lowered:  # fmt: skip
    rank = len(x.shape)
    scale, shift = per_channel(state, weight, rank), per_channel(state, bias, rank)
    result = _running(state, state.compute(x), scale, shift, mean, var, eps)
    return state.cast(result, x.dtype), None, None


@lowers("batch_norm.default")
def _batch_norm(
    state: Lowering, x: Node, weight: Node | None, bias: Node | None, mean: Node | None,
    var: Node | None, training: bool, momentum: Scalar, eps: Scalar, _cudnn: bool = True,
) -> Lowered:  # fmt: skip
    if not training and mean is not None and var is not None:
        return _first(_batch_norm_eval(state, x, weight, bias, mean, var, momentum, eps))
    return _first(_batch_norm_train(state, x, weight, bias, training, momentum, eps))


def _first(result: Lowered) -> Node:
    node = result[0] if isinstance(result, tuple) else result
    assert node is not None
    return node


@lowers("_native_batch_norm_legit.no_stats")
def _batch_norm_train(
    state: Lowering, x: Node, weight: Node | None, bias: Node | None, training: bool,
    momentum: Scalar, eps: Scalar,
) -> Lowered:  # fmt: skip
    rank = len(x.shape)
    scale, shift = per_channel(state, weight, rank), per_channel(state, bias, rank)
    dims = tuple(index for index in range(rank) if index != 1)
    normal = standardised(state, state.compute(x), dims, eps)
    return state.cast(affine(state, normal, scale, shift), x.dtype), None, None
