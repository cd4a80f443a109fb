"""Lowerings of losses: one value an element or a row, then the mean, the sum or neither."""

from __future__ import annotations

import torch

from agentkernel.compiler.ir import ONE, Expr, Node, Scalar, UnsupportedOp, broadcast, numel
from agentkernel.compiler.lowering.index_maps import int_or_expr
from agentkernel.compiler.lowering.pointwise import promoted
from agentkernel.compiler.lowering.reductions import log_softmax_of, log_softmax_over, mean_over
from agentkernel.compiler.lowering.registry import Lowered, Lowering, lowers

NONE, MEAN, SUM = 0, 1, 2
"""ATen's codes for `reduction=`."""


def reduce_loss(state: Lowering, loss: Node, reduction: int) -> Node:
    """Apply `reduction=` to a loss per element."""
    b = state.b
    dims = tuple(range(len(loss.shape)))
    if reduction == NONE or not dims:
        return loss
    if reduction == SUM:
        return b.reshape(b.reduce("sum", loss, dims, "total"), ())
    return b.reshape(mean_over(state, loss, dims, "mean_loss"), ())


def _pair(state: Lowering, x: Node, y: Node) -> tuple[Node, Node]:
    left, right = promoted(state, state.compute(x), state.compute(y))
    assert isinstance(left, Node)
    assert isinstance(right, Node)
    return left, right


def _difference(state: Lowering, x: Node, y: Node) -> Node:
    return state.b.pointwise("sub", *_pair(state, x, y), name="difference")


@lowers("mse_loss.default")
def _mse(state: Lowering, x: Node, y: Node, reduction: int = MEAN) -> Lowered:
    difference = _difference(state, x, y)
    return reduce_loss(state, state.b.pointwise("mul", difference, difference), reduction)


@lowers("l1_loss.default")
def _l1(state: Lowering, x: Node, y: Node, reduction: int = MEAN) -> Lowered:
    return reduce_loss(state, state.b.pointwise("abs", _difference(state, x, y)), reduction)


@lowers("smooth_l1_loss.default")
def _smooth_l1(
    state: Lowering, x: Node, y: Node, reduction: int = MEAN, beta: Scalar = 1.0
) -> Lowered:
    b = state.b
    size = b.pointwise("abs", _difference(state, x, y), name="distance")
    if beta == 0:
        return reduce_loss(state, size, reduction)
    half = b.pointwise("mul", b.pointwise("mul", size, size), 0.5 / beta)
    far = b.pointwise("sub", size, 0.5 * beta)
    near = b.pointwise("lt", size, float(beta))
    return reduce_loss(state, b.pointwise("where", near, half, far), reduction)


@lowers("huber_loss.default")
def _huber(
    state: Lowering, x: Node, y: Node, reduction: int = MEAN, delta: Scalar = 1.0
) -> Lowered:
    b = state.b
    size = b.pointwise("abs", _difference(state, x, y), name="distance")
    half = b.pointwise("mul", b.pointwise("mul", size, size), 0.5)
    far = b.pointwise("mul", b.pointwise("sub", size, 0.5 * delta), float(delta))
    near = b.pointwise("le", size, float(delta))
    return reduce_loss(state, b.pointwise("where", near, half, far), reduction)


@lowers("binary_cross_entropy.default")
def _bce(
    state: Lowering, x: Node, y: Node, weight: Node | None = None, reduction: int = MEAN
) -> Lowered:
    b = state.b
    p, t = _pair(state, x, y)
    log_p = b.pointwise("maximum", b.pointwise("log", p), -100.0)
    log_q = b.pointwise("maximum", b.pointwise("log1p", b.pointwise("neg", p)), -100.0)
    hit = b.pointwise("mul", b.pointwise("sub", t, 1.0), log_q)
    loss = b.pointwise("sub", hit, b.pointwise("mul", t, log_p))
    if weight is not None:
        loss = b.pointwise("mul", loss, state.compute(weight))
    return reduce_loss(state, loss, reduction)


@lowers("binary_cross_entropy_with_logits.default")
def _bce_logits(
    state: Lowering, x: Node, y: Node, weight: Node | None = None,
    pos_weight: Node | None = None, reduction: int = MEAN,
) -> Lowered:  # fmt: skip
    b = state.b
    z, t = _pair(state, x, y)
    log_p = b.pointwise("log_sigmoid", z)
    miss = b.pointwise("sub", 1.0, t)
    if pos_weight is None:
        loss = b.pointwise("sub", b.pointwise("mul", miss, z), log_p)
    else:
        factor = b.pointwise("sub", state.compute(pos_weight), 1.0)
        scale = b.pointwise("add", b.pointwise("mul", factor, t), 1.0)
        loss = b.pointwise("sub", b.pointwise("mul", miss, z), b.pointwise("mul", log_p, scale))
    if weight is not None:
        loss = b.pointwise("mul", loss, state.compute(weight))
    return reduce_loss(state, loss, reduction)


@lowers("kl_div.default")
def _kl_div(
    state: Lowering, x: Node, y: Node, reduction: int = MEAN, *, log_target: bool = False
) -> Lowered:
    b = state.b
    log_q, target = _pair(state, x, y)
    if log_target:
        p = b.pointwise("exp", target)
        return reduce_loss(
            state, b.pointwise("mul", p, b.pointwise("sub", target, log_q)), reduction
        )
    entropy = b.pointwise("mul", target, b.pointwise("log", target))
    zero = b.pointwise("eq", target, 0.0)
    entropy = b.pointwise("where", zero, 0.0, entropy)
    return reduce_loss(
        state, b.pointwise("sub", entropy, b.pointwise("mul", target, log_q)), reduction
    )


def _picked(state: Lowering, log_p: Node, target: Node, dim: int) -> Node:
    """log_p at index `target` along `dim` (kept as size 1): a sum over the one matching place."""
    b = state.b
    # Under its own sizes: free ones of both need not show that they agree.
    wanted = b.reshape(target, (*target.shape[:dim], ONE, *target.shape[dim:]))
    match = b.pointwise("eq", b.iota(log_p.shape, dim), wanted)
    return b.reduce("sum", b.pointwise("where", match, log_p, 0.0), (dim,), "picked")


def _picked_log(state: Lowering, log_p: Node, target: Node, dim: int) -> Node:
    """The same of a log-softmax, or of anything else: what all classes share, its maximum and the
    logarithm of its sum, is taken from the one that is picked."""
    shared: list[Node] = []
    value = log_p
    while value.op in ("sub", "cast") and value.dtype.is_floating_point:
        if value.op == "sub":
            shared.append(value.args[1])
        value = value.args[0]
    shape = tuple(ONE if at == dim else size for at, size in enumerate(log_p.shape))
    if not shared or any(item.shape != shape for item in shared):
        return _picked(state, log_p, target, dim)
    picked = _picked(state, state.compute(value), target, dim)
    for item in reversed(shared):
        picked = state.b.pointwise("sub", picked, item)
    return picked


def _counted(state: Lowering, target: Node, valid: Node, classes: Expr) -> Node:
    """`valid`, where each target that is valid is asserted to be a class. It stands beside the loss
    of a sample, not in front of its search for the class, which fuses with what makes the scores.
    """
    b = state.b
    known = b.pointwise("where", valid, target, 0, name="sample_class")
    known = state.cast(known, torch.int64)
    is_class = b.pointwise("ge", b.pointwise("within", known, int_or_expr(classes)), 0)
    return b.pointwise("logical_and", valid, is_class)


def _nll(
    state: Lowering, picked: Node, target: Node, weight: Node | None, reduction: int, ignore: int,
    classes: Expr,
) -> Node:  # fmt: skip
    """Negative log likelihood: the mean weighs each sample by its class.

    `picked` is the log probability of each sample's class, one of `classes`, `weight` the weight of
    that class.
    """
    b = state.b
    valid = b.pointwise("ne", target, ignore, name="valid")
    samples = tuple(size for at, size in enumerate(picked.shape) if at != _class_dim(picked))
    loss = b.pointwise("neg", b.reshape(picked, samples))
    share = state.cast(valid, picked.dtype)
    if weight is not None:
        of_class = b.reshape(weight, samples)
        loss = b.pointwise("mul", loss, of_class)
        share = b.pointwise("where", valid, of_class, 0.0, name="class_weight")
    counted = _counted(state, target, valid, classes)
    loss = b.pointwise("where", counted, loss, 0.0, name="row_loss")
    return _weighted(state, loss, share, reduction)


def _weighted(state: Lowering, loss: Node, share: Node, reduction: int) -> Node:
    """The losses, their sum, or their sum over that of their shares."""
    b = state.b
    dims = tuple(range(len(loss.shape)))
    if reduction == NONE:
        return loss
    if not dims:
        return loss if reduction == SUM else b.pointwise("div", loss, share)
    total = b.reduce("sum", loss, dims, "total")
    if reduction == MEAN:
        total = b.pointwise("div", total, b.reduce("sum", share, dims, "shares"), name="mean_loss")
    return b.reshape(total, ())


def _class_dim(x: Node) -> int:
    return 1 if len(x.shape) > 1 else 0


def _over_classes(state: Lowering, weight: Node, x: Node) -> Node:
    """A vector over classes, spread over `x`."""
    dim = _class_dim(x)
    one = x.shape[0] * 0 + 1
    shape = tuple(weight.shape[0] if at == dim else one for at in range(len(x.shape)))
    return state.b.expand(state.b.reshape(state.compute(weight), shape), x.shape)


@lowers("nll_loss.default", "nll_loss_nd.default", "nll_loss2d.default")
def _nll_loss(
    state: Lowering, x: Node, target: Node, weight: Node | None = None, reduction: int = MEAN,
    ignore_index: int = -100,
) -> Lowered:  # fmt: skip
    wide, dim = state.compute(x), _class_dim(x)
    if weight is not None:
        weight = _picked(state, _over_classes(state, weight, x), target, dim)
    picked = _picked_log(state, wide, target, dim)
    return _nll(state, picked, target, weight, reduction, ignore_index, x.shape[dim])


@lowers("cross_entropy_loss.default")
def _cross_entropy(
    state: Lowering, x: Node, target: Node, weight: Node | None = None, reduction: int = MEAN,
    ignore_index: int = -100, label_smoothing: Scalar = 0.0,
) -> Lowered:  # fmt: skip
    b = state.b
    wide, dim = state.compute(x), _class_dim(x)
    spread = None if weight is None else _over_classes(state, weight, x)
    if target.dtype.is_floating_point:
        return _soft_targets(state, wide, target, spread, reduction, float(label_smoothing))
    picked = log_softmax_of(state, wide, _picked(state, wide, target, dim), (dim,))
    of_class = None if spread is None else _picked(state, spread, target, dim)
    hard = _nll(state, picked, target, of_class, reduction, ignore_index, x.shape[dim])
    if not label_smoothing:
        return hard
    log_p = log_softmax_over(state, wide, (dim,))
    if spread is not None:
        log_p = b.pointwise("mul", log_p, spread)
    every = b.reshape(b.reduce("sum", log_p, (dim,), "all_classes"), target.shape)
    valid = b.pointwise("ne", target, ignore_index, name="valid")
    loss = b.pointwise("where", valid, b.pointwise("neg", every), 0.0, name="smooth_loss")
    share = state.cast(valid, wide.dtype)
    if of_class is not None:
        share = b.pointwise("where", valid, b.reshape(of_class, target.shape), 0.0)
    smooth = _weighted(state, loss, share, reduction)
    rest = b.pointwise("mul", smooth, float(label_smoothing))
    rest = b.pointwise("div", rest, b.size(x.shape[dim]))
    return b.pointwise("add", b.pointwise("mul", hard, 1.0 - float(label_smoothing)), rest)


def _soft_targets(
    state: Lowering, x: Node, target: Node, weight: Node | None, reduction: int, smoothing: float
) -> Node:
    """Cross-entropy against class probabilities; the mean is over samples."""
    b = state.b
    dim = _class_dim(x)
    share = state.compute(target)
    if smoothing:
        uniform = b.pointwise("div", b.constant(smoothing), b.size(x.shape[dim]))
        share = b.pointwise("add", b.pointwise("mul", share, 1.0 - smoothing), uniform)
    if weight is not None:
        share = b.pointwise("mul", share, weight)
    log_p = log_softmax_over(state, x, (dim,))
    row = b.reduce("sum", b.pointwise("mul", log_p, share), (dim,), "row")
    loss = b.pointwise("neg", row)
    if reduction == NONE:
        return b.reshape(loss, state.shape)
    total = b.reshape(b.reduce("sum", loss, range(len(loss.shape)), "total"), ())
    count = numel([size for at, size in enumerate(x.shape) if at != dim])
    return total if reduction == SUM else b.pointwise("div", total, b.size(count))


@lowers("cosine_similarity.default")
def _cosine(state: Lowering, x: Node, y: Node, dim: int = 1, eps: Scalar = 1e-8) -> Lowered:
    b = state.b
    left, right = _pair(state, x, y)
    axis = dim % len(broadcast([left.shape, right.shape]))
    parts = [
        b.reduce("sum", b.pointwise("mul", one, two), (axis,), name)
        for one, two, name in ((left, right, "dot"), (left, left, "xx"), (right, right, "yy"))
    ]
    norms = [
        b.pointwise("maximum", b.pointwise("sqrt", part), float(eps), name=name)
        for part, name in zip(parts[1:], ("x_norm", "y_norm"), strict=True)
    ]
    cosine = b.pointwise("div", b.pointwise("div", parts[0], norms[0]), norms[1])
    return b.reshape(cosine, state.shape)


@lowers("hinge_embedding_loss.default")
def _hinge_embedding(
    state: Lowering, x: Node, y: Node, margin: Scalar = 1.0, reduction: int = MEAN
) -> Lowered:
    b = state.b
    wide, label = state.compute(x), state.compute(y)
    far = b.pointwise("maximum", b.pointwise("sub", float(margin), wide), 0.0)
    positive = b.pointwise("where", b.pointwise("ne", label, -1.0), wide, 0.0)
    negative = b.pointwise("where", b.pointwise("ne", label, 1.0), far, 0.0)
    return reduce_loss(state, b.pointwise("add", positive, negative), reduction)


@lowers("soft_margin_loss.default")
def _soft_margin(state: Lowering, x: Node, y: Node, reduction: int = MEAN) -> Lowered:
    b = state.b
    wide, label = _pair(state, x, y)
    margin = b.pointwise("neg", b.pointwise("mul", wide, label))
    return reduce_loss(state, b.pointwise("softplus", margin), reduction)


@lowers("margin_ranking_loss.default")
def _margin_ranking(
    state: Lowering, x: Node, y: Node, target: Node, margin: Scalar = 0.0, reduction: int = MEAN
) -> Lowered:
    b = state.b
    gap = b.pointwise("mul", b.pointwise("neg", state.compute(target)), _difference(state, x, y))
    loss = b.pointwise("maximum", b.pointwise("add", gap, float(margin)), 0.0)
    return reduce_loss(state, loss, reduction)


@lowers("triplet_margin_loss.default")
def _triplet(
    state: Lowering, anchor: Node, positive: Node, negative: Node, margin: Scalar = 1.0,
    p: Scalar = 2, eps: Scalar = 1e-6, swap: bool = False, reduction: int = MEAN,
) -> Lowered:  # fmt: skip
    if p != 2 or swap:
        raise UnsupportedOp("aten.triplet_margin_loss", "p other than 2, or swap")
    b = state.b
    near, far = (_distance(state, anchor, other, eps) for other in (positive, negative))
    gap = b.pointwise("sub", b.pointwise("add", near, float(margin)), far)
    return reduce_loss(
        state, b.reshape(b.pointwise("maximum", gap, 0.0), near.shape[:-1]), reduction
    )


def _distance(state: Lowering, x: Node, y: Node, eps: Scalar) -> Node:
    b = state.b
    gap = b.pointwise("add", _difference(state, x, y), eps)
    square = b.pointwise("mul", gap, gap)
    return b.pointwise("sqrt", b.reduce("sum", square, (len(square.shape) - 1,)), name="distance")
