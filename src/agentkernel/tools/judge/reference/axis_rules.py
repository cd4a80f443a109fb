"""Rules for the axis of each ATen operator: where its result carries an axis of its operands."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import cast

import torch
from torch.fx import Node

from agentkernel.tools.judge.reference.axis import Axis, Call, Combine, NoProof, Rule, State, named
from agentkernel.tools.judge.reference.axis_movement import MOVEMENT_RULES
from agentkernel.tools.roofline.op_cost import op_name


def rule_of(node: Node) -> Rule:
    """The rule for the node's operator. Raises NoProof where there is none."""
    name = op_name(node.target).removeprefix("aten.")
    tags = getattr(node.target, "tags", ())
    if name in RULES:
        return RULES[name]
    if torch.Tag.nondeterministic_seeded in tags:
        raise NoProof(f"{name} draws random numbers")
    if torch.Tag.pointwise in tags:
        return _pointwise
    raise NoProof(f"{name} has no rule")


def _broadcast(call: Call, nodes: Sequence[Node], rank: int, drop: int = 0) -> Axis:
    """Operands meet element by element, but for their last `drop` dimensions."""
    axes: set[Axis] = set()
    for node in nodes:
        axis = call.proof.axis(node)
        if axis is not None:
            axes.add(Axis(axis.dim + rank - len(call.shape(node)), axis.factor))
            if axis.dim >= len(call.shape(node)) - drop:
                raise call.refused()
    if len(axes) != 1:
        raise call.refused()
    axis = axes.pop()
    for node in nodes:
        shape = call.shape(node)
        own = axis.dim - (rank - len(shape))
        if call.proof.axis(node) is None and own >= 0 and shape[own] != 1:
            call.cut(node, Axis(own, axis.factor))
    return axis


def _pointwise(call: Call) -> State:
    return _broadcast(call, call.tensors(), len(call.own_shape()))


def _identity(call: Call) -> State:
    call.alone("self", "input", "a")
    return call.proof.axis(call.carriers[0])


def _dropout(call: Call) -> State:
    if call.proof.plain(call.given.get("train")) is not False:
        raise NoProof("dropout draws random numbers")
    return _identity(call)


def _broadcast_tensors(call: Call) -> State:
    return call.each(_broadcast(call, call.tensors(), len(call.own_shape())))


def _loss(call: Call) -> State:
    """Losses of elements: a mean or a sum over all, or none."""
    nodes = call.tensors()
    rank = max(len(call.shape(node)) for node in nodes)
    axis = _broadcast(call, nodes, rank)
    kind = call.number("reduction", 1)
    if kind == 0:
        return axis
    call.partial("mean" if kind == 1 else "sum")
    return None


def _row_loss(call: Call) -> State:
    """Losses of rows of two dimensions: one number a row."""
    nodes = call.tensors()
    axes = {call.proof.axis(node) for node in nodes if len(call.shape(node)) > 0}
    if axes != {Axis(0)} or any(len(call.shape(node)) > 2 for node in nodes):
        raise call.refused()
    kind = call.number("reduction", 1)
    if kind == 0:
        return Axis(0)
    call.partial("mean" if kind == 1 else "sum")
    return None


def _cross_entropy(call: Call) -> State:
    call.alone("self", "target")
    target = call.given.get("target")
    if call.axis("self") != Axis(0) or len(call.shape("self")) < 2 or not isinstance(target, Node):
        raise call.refused()
    if call.axis("target") is None:
        call.cut(target, Axis(0))
    elif call.axis("target") != Axis(0):
        raise call.refused()
    kind = call.number("reduction", 1)
    if kind == 0:
        return Axis(0)
    classes = cast("torch.Tensor", call.proof.values[target.name]).dtype == torch.int64
    if kind == 2:
        call.partial("sum")
    elif not classes:
        call.partial("mean")
    elif call.given.get("weight") is not None:
        raise call.refused()
    else:
        call.partial("counted mean", counted=(target.name, call.number("ignore_index", -100)))
    return None


REDUCED: dict[str, Combine] = {
    "sum": "sum",
    "mean": "mean",
    "amax": "max",
    "amin": "min",
    "prod": "prod",
    "any": "max",
    "all": "min",
    "logsumexp": "logsumexp",
    "norm": "norm",
    "linalg_vector_norm": "norm",
    "count_nonzero": "sum",
}


def _reduce(call: Call) -> State:
    """A reduction over other dimensions, or over the axis where its slices can be combined."""
    if isinstance(call.given.get("other"), Node):
        return _pointwise(call)
    call.alone("self", "input")
    axis = call.proof.axis(call.carriers[0])
    assert axis is not None
    rank = len(call.shape(call.carriers[0]))
    dims = call.dims("dim", rank)
    several = isinstance(call.proof.values[call.node.name], tuple | list)
    if axis.dim in dims:
        combine = REDUCED.get(call.name)
        if call.name in ("max", "min") and not several:
            combine = "max" if call.name == "max" else "min"
        if combine is None or several:
            raise call.refused()
        order = call.proof.plain(call.given.get("ord", call.given.get("p", 2)))
        power = 2.0 if order is None else float(cast("float", order))
        if combine == "norm" and not power > 0:
            raise call.refused()
        call.partial(combine, order=power)
        return None
    kept = call.proof.plain(call.given.get("keepdim")) is True
    found = axis if kept else Axis(axis.dim - sum(d < axis.dim for d in dims), axis.factor)
    return call.each(found)


def _other_dims(call: Call) -> State:
    """Every dimension but those named stays what it is: softmax, scans, sorting, flips."""
    call.alone("self", "input")
    axis = call.proof.axis(call.carriers[0])
    assert axis is not None
    rank = len(call.shape(call.carriers[0]))
    name = "dims" if "dims" in call.given else "dim"
    if call.proof.plain(call.given.get(name)) in (None, []) and name == "dims":
        raise call.refused()
    if axis.dim in call.dims(name, rank):
        raise call.refused()
    return call.each(axis)


def _last_dims(count: int) -> Rule:
    """Every dimension but the last `count` stays what it is."""

    def rule(call: Call) -> State:
        call.alone("self", "input")
        axis = call.proof.axis(call.carriers[0])
        assert axis is not None
        if axis.dim >= len(call.shape(call.carriers[0])) - count:
            raise call.refused()
        return call.each(axis)

    return rule


def _first_dim(call: Call) -> State:
    """Convolutions: entries of the batch are computed by themselves."""
    call.alone("self", "input")
    axis = call.proof.axis(call.carriers[0])
    rank = len(call.shape("weight") or call.own_shape())
    if axis is None or axis.dim != 0 or len(call.shape(call.carriers[0])) != rank:
        raise call.refused()
    return axis


def _prelu(call: Call) -> State:
    call.alone("self")
    axis = call.axis("self")
    assert axis is not None
    if axis.dim == 1 and math.prod(call.shape("weight")) > 1:
        call.cut("weight", Axis(0, axis.factor))
    return axis


def _layer_norm(call: Call) -> State:
    call.alone("input", "self")
    axis = call.proof.axis(call.carriers[0])
    assert axis is not None
    inner = cast("Sequence[object]", call.given.get("normalized_shape") or [None])
    if axis.dim >= len(call.shape(call.carriers[0])) - len(inner):
        raise call.refused()
    return call.each(axis)


def _group_norm(call: Call) -> State:
    call.alone("input")
    axis = call.axis("input")
    if axis is None or axis.dim != 0:
        raise call.refused()
    if call.name == "native_group_norm":
        raise call.refused()
    return axis


def _channel_norm(call: Call) -> State:
    """Batch norm in eval mode, instance norm: statistics of a channel, given or of one sample."""
    call.alone("input")
    axis = call.axis("input")
    assert axis is not None
    instance = call.name == "instance_norm"
    if instance and (axis.dim > 1 or call.proof.plain(call.given.get("use_input_stats")) is False):
        raise call.refused()
    if call.name == "batch_norm" and call.proof.plain(call.given.get("training")) is not False:
        raise call.refused()
    if axis.dim == 1:
        for name in ("weight", "bias", "running_mean", "running_var"):
            if call.given.get(name) is not None:
                call.cut(name, Axis(0, axis.factor))
    several = isinstance(call.proof.values[call.node.name], tuple | list)
    return (axis, None, None) if several else axis


def _product(call: Call) -> State:
    """mm, bmm, matmul, mv, dot: rows, columns and batches stay, the inner dimension is summed."""
    call.alone("self", "mat2", "other", "vec", "tensor", "input", "batch1", "batch2")
    left, right = call.tensors()[:2]
    return _multiplied(call, left, right, len(call.own_shape()))


def _multiplied(call: Call, left: Node, right: Node, rank: int) -> State:
    one, other = call.proof.axis(left), call.proof.axis(right)
    a, b = call.shape(left), call.shape(right)
    inner_a, inner_b = len(a) - 1, max(0, len(b) - 2)
    if (one is not None and one.dim == inner_a) or (other is not None and other.dim == inner_b):
        axis = one or other
        assert axis is not None
        if one is None:
            call.cut(left, Axis(inner_a, axis.factor))
        if other is None:
            call.cut(right, Axis(inner_b, axis.factor))
        if (one and one.dim != inner_a) or (other and other.dim != inner_b):
            raise call.refused()
        call.partial("sum")
        return None
    if one is not None and one.dim == len(a) - 2:
        if other is not None:
            raise call.refused()
        return Axis(rank - (2 if len(b) > 1 else 1), one.factor)
    if other is not None and other.dim == len(b) - 1:
        if one is not None:
            raise call.refused()
        return Axis(rank - 1, other.factor)
    return _broadcast(call, [left, right], max(len(a), len(b)), drop=2)


def _added_product(call: Call) -> State:
    """addmm, baddbmm: a product, and what is added to it."""
    names = ("mat1", "mat2") if "mat1" in call.given else ("batch1", "batch2")
    left, right = (cast("Node", call.given[name]) for name in names)
    call.alone("self", *names)
    rank = len(call.own_shape())
    axis = _multiplied(call, left, right, rank)
    if not isinstance(axis, Axis):
        raise call.refused()
    added = cast("Node", call.given["self"])
    shape, own = call.shape(added), axis.dim - (rank - len(call.shape(added)))
    if call.proof.axis(added) not in (None, Axis(own, axis.factor)):
        raise call.refused()
    if call.proof.axis(added) is None and own >= 0 and shape[own] != 1:
        call.cut(added, Axis(own, axis.factor))
    return axis


def _linear(call: Call) -> State:
    call.alone("input")
    axis = call.axis("input")
    assert axis is not None
    if axis.dim < len(call.shape("input")) - 1:
        return axis
    if call.given.get("bias") is not None:
        raise call.refused()
    call.cut("weight", Axis(len(call.shape("weight")) - 1, axis.factor))
    call.partial("sum")
    return None


def _einsum(call: Call) -> State:
    equation = str(call.given["equation"]).replace(" ", "")
    operands = call.tensors()
    if "." in equation or "->" not in equation:
        raise call.refused()
    left, result = equation.split("->")
    terms = left.split(",")
    letters: set[tuple[str, int]] = set()
    for term, node in zip(terms, operands, strict=True):
        axis = call.proof.axis(node)
        if axis is not None:
            letters.add((term[axis.dim], axis.factor))
    if len(letters) != 1:
        raise call.refused()
    letter, factor = letters.pop()
    for term, node in zip(terms, operands, strict=True):
        if term.count(letter) > 1:
            raise call.refused()
        if letter in term and call.proof.axis(node) is None:
            call.cut(node, Axis(term.index(letter), factor))
    if letter in result:
        return Axis(result.index(letter), factor)
    call.partial("sum")
    return None


def _attention(call: Call) -> State:
    """Batches and heads stay; so do queries where no mask tells them apart by number."""
    call.alone("query", "key", "value", "attn_mask")
    axis, rank = call.axis("query"), len(call.shape("query"))
    mask = call.given.get("attn_mask")
    causal = call.proof.plain(call.given.get("is_causal")) is True
    if axis is not None and axis.dim == rank - 2:
        if causal or mask is not None or call.axis("key") or call.axis("value"):
            raise call.refused()
        return axis
    operands = [cast("Node", call.given[name]) for name in ("query", "key", "value")]
    if isinstance(mask, Node):
        operands.append(mask)
    if call.proof.plain(call.given.get("enable_gqa")) is True and axis != Axis(0):
        raise call.refused()
    return _broadcast(call, operands, rank, drop=2)


def _one_hot(call: Call) -> State:
    if call.number("num_classes", -1) < 0:
        raise call.refused()
    return call.axis("self")


def _distances(call: Call) -> State:
    """cdist: rows of either side, and batches."""
    call.alone("x1", "x2")
    left, right = (cast("Node", call.given[name]) for name in ("x1", "x2"))
    one, other = call.axis("x1"), call.axis("x2")
    rank = len(call.own_shape())
    if one is not None and other is None and one.dim == len(call.shape("x1")) - 2:
        return Axis(rank - 2, one.factor)
    if other is not None and one is None and other.dim == len(call.shape("x2")) - 2:
        return Axis(rank - 1, other.factor)
    return _broadcast(call, [left, right], rank, drop=2)


def _similarity(call: Call) -> State:
    """A number for each pair of vectors along `dim`."""
    nodes = call.tensors()
    rank = max(len(call.shape(node)) for node in nodes)
    axis = _broadcast(call, nodes, rank)
    dim = call.number("dim", 1) % rank if call.name == "cosine_similarity" else rank - 1
    if axis.dim == dim:
        raise call.refused()
    if call.proof.plain(call.given.get("keepdim")) is True:
        return axis
    return Axis(axis.dim - (dim < axis.dim), axis.factor)


RULES: dict[str, Rule] = {
    **named(
        _pointwise,
        "hardswish rsub masked_fill floor_divide where log_sigmoid true_divide multiply subtract "
        "divide greater less zeros_like ones_like full_like",
    ),
    **named(
        _identity,
        "_to_copy to contiguous alias detach lift_fresh_copy lift_fresh clone type_as "
        "resolve_conj resolve_neg",
    ),
    **named(_dropout, "dropout feature_dropout alpha_dropout"),
    "prelu": _prelu,
    "broadcast_tensors": _broadcast_tensors,
    **named(
        _loss,
        "mse_loss l1_loss smooth_l1_loss huber_loss binary_cross_entropy kl_div "
        "binary_cross_entropy_with_logits soft_margin_loss hinge_embedding_loss "
        "poisson_nll_loss margin_ranking_loss",
    ),
    **named(_row_loss, "triplet_margin_loss cosine_embedding_loss multi_margin_loss"),
    **named(_cross_entropy, "cross_entropy_loss nll_loss nll_loss_nd nll_loss2d"),
    **named(
        _reduce,
        "sum mean amax amin prod any all logsumexp norm linalg_vector_norm count_nonzero "
        "var std var_mean std_mean argmax argmin max min median mode kthvalue aminmax nansum",
    ),
    **named(
        _other_dims,
        "softmax _softmax log_softmax _log_softmax cumsum cumprod cummax cummin logcumsumexp "
        "sort argsort topk flip roll glu",
    ),
    **named(_last_dims(1), "max_pool1d max_pool1d_with_indices avg_pool1d adaptive_avg_pool1d"),
    **named(_last_dims(1), "adaptive_max_pool1d reflection_pad1d replication_pad1d"),
    **named(_last_dims(2), "max_pool2d max_pool2d_with_indices avg_pool2d adaptive_avg_pool2d"),
    **named(_last_dims(2), "_adaptive_avg_pool2d adaptive_max_pool2d reflection_pad2d"),
    **named(_last_dims(2), "replication_pad2d upsample_nearest2d upsample_bilinear2d tril triu"),
    **named(_last_dims(2), "upsample_bicubic2d im2col"),
    **named(_last_dims(3), "max_pool3d max_pool3d_with_indices avg_pool3d adaptive_avg_pool3d"),
    **named(_last_dims(3), "_adaptive_avg_pool3d adaptive_max_pool3d upsample_nearest3d"),
    **named(_last_dims(3), "replication_pad3d upsample_trilinear3d pixel_shuffle pixel_unshuffle"),
    **named(
        _first_dim,
        "conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d convolution "
        "_convolution channel_shuffle",
    ),
    **named(_layer_norm, "layer_norm native_layer_norm rms_norm"),
    **named(_group_norm, "group_norm"),
    **named(_channel_norm, "batch_norm _native_batch_norm_legit_no_training instance_norm"),
    **named(_product, "mm bmm matmul mv dot"),
    **named(_added_product, "addmm baddbmm"),
    "linear": _linear,
    "einsum": _einsum,
    "scaled_dot_product_attention": _attention,
    **MOVEMENT_RULES,
    "one_hot": _one_hot,
    **named(_distances, "cdist _cdist_forward"),
    **named(_similarity, "cosine_similarity pairwise_distance"),
}
"""Operator -> rule; what is tagged as pointwise needs none."""
