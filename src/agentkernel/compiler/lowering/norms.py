"""How are layer, RMS, group, instance and batch norm written as statistics and an affine map?"""

from __future__ import annotations

import torch

from agentkernel.compiler.ir import ONE, Node, Scalar, Shape, numel
from agentkernel.compiler.lowering.pointwise import promoted
from agentkernel.compiler.lowering.reductions import mean_over, moments
from agentkernel.compiler.lowering.registry import Lowered, Lowering, lowers


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


@lowers("rms_norm.default", "_fused_rms_norm.default")
def _rms_norm(
    state: Lowering, x: Node, normalized: list[object], weight: Node | None = None,
    eps: Scalar | None = None,
) -> Lowered:  # fmt: skip
    b = state.b
    rank = len(x.shape)
    dims = tuple(range(rank - len(normalized), rank))
    epsilon = torch.finfo(x.dtype).eps if eps is None else eps
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
