"""Rules that move constants and functions past reductions, softmaxes and norms.

Rule "softmax shift": a constant that a softmax cancels is not added.
Derivation: softmax(x + c)_i = exp(x_i) exp(c) / sum_j exp(x_j) exp(c) = softmax(x)_i for every
c that is the same along the dimension, and log_softmax likewise.
Conditions: c is a number, made of parameters alone, a bias that does not vary along the
dimension, or minus the maximum of x along it.
NaN and infinities: c is finite, so x + c is infinite or NaN where x is. Where max(x) is +inf or
NaN, x - max(x) has NaN and its softmax is NaN, as softmax(x) is; a row of -inf is NaN in both.
Rounding: x + c rounds x; without it the result is nearer to the truth.

Rule "norm shift": a constant that a norm cancels is not added.
Derivation: a norm takes the mean over a group of elements off them: (x + c) - mean(x + c) = x -
mean(x), and the variance does not see c either, for every c that is the same within the group.
Layer norm: the normalised dimensions. Instance norm: the space of one channel, so a
convolution's bias goes. Group norm: channels and space of one group, so a bias goes only where
each channel is its own group. Batch norm with batch statistics: batch and space of one channel;
its running mean m' = (1 - k) m + k mean(x + c) gets its share back: m' = [(1 - k) m + k
mean(x)] + k c. The same for x - mean(x) and var(x) written out.
Conditions: c is finite: a number, made of parameters, or a bias. Not for RMS norm, which has no
mean, and not for running statistics that are read.
NaN and infinities: with c finite an element is infinite or NaN with c where it is without; such
a group is NaN in both.
Rounding: x + c rounds x; without it the result is nearer to the truth.

Rule "monotone": a monotone pointwise function waits until a maximum has been taken.
Derivation: f that never falls keeps order, so max_i f(x_i) = f(max_i x_i) and min_i f(x_i) =
f(min_i x_i); one that never rises swaps the two: max_i f(x_i) = f(min_i x_i). Max pooling is a
maximum over windows. x + t with t the same along the dimension is such an f for each t.
Conditions: f is in the table below, or adds or multiplies a number (not 0) or adds something
made of parameters that does not change along the dimension; the place of the maximum is not
read (ties that f makes would move it).
NaN and infinities: max and min give NaN where an element is NaN, and every f of the table gives
NaN for NaN and only for NaN, so a NaN stays and none is born. That is why log and sqrt are not
in it.
Rounding: a computed f may fall by an ulp where the true one rises; the result is within an ulp.

Rule "scaled sums": a scaling or an addition waits until a sum or mean has been taken.
Derivation: sum_i (a x_i) = a sum_i x_i; sum_i (x_i + t) = sum_i x_i + n t, mean_i (x_i + t) =
mean_i x_i + t, for a and t that do not change along the reduced dimensions. Batch norm with
running statistics is such a map for each channel: mean(bn(x)) = bn(mean(x)) over space.
Conditions: a is a number (not 0) or made of parameters; for sums of x + t, n is static.
NaN and infinities: a finite a leaves them where they are; an infinite or NaN t ends up in the
result on both sides. A product that overflows before the sum and not after is not kept.
Rounding: one rounding for each sum in the place of one for each element.
"""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass

import torch
from torch.fx import Node

from agentkernel.compiler.rewrite.draft import (
    Change,
    Draft,
    Number,
    Rule,
    argument,
    floating,
    is_number,
    op_of,
    rank,
    shape,
    static,
    static_sizes,
)
from agentkernel.compiler.rewrite.intervals import bounds
from agentkernel.compiler.rewrite.patterns import (
    Kind,
    Pool,
    Reduction,
    Term,
    applied,
    constant_along,
    convolution_of,
    extremum_of,
    multiplied,
    name_of,
    pool_of,
    product_of,
    reduced,
    sum_of,
    terms_of,
)

aten = torch.ops.aten
RISING = frozenset(
    f"{name}.default"
    for name in (
        "relu", "relu6", "sigmoid", "tanh", "exp", "exp2", "expm1", "erf", "hardsigmoid", "selu",
        "softsign", "log_sigmoid", "atan", "asinh", "floor", "ceil", "sign",
    )
)  # fmt: skip
SIGNED = {
    "elu.default": ("alpha", "scale", "input_scale"),
    "leaky_relu.default": ("negative_slope",),
    "softplus.default": ("beta",),
    "celu.default": ("alpha",),
}
"""Functions that rise where these arguments are positive."""


@dataclass(frozen=True)
class _Step:
    """A pointwise function of x: a unary call, or a term."""

    x: Node
    falling: bool
    word: str
    term: Term | None = None


def _move_past_extremum(draft: Draft, node: Node) -> Change | None:
    found = extremum_of(node)
    words: list[str] = []
    if found is not None:
        new = _past_extremum(draft, found, found.kind, found.x, words)
        new = draft.squeeze(new, found.dims, found.keep)
        line = f"{node.name}: the {found.word} comes before {_chain(words)}, which keep order"
        return Change(line, {node: new}) if words else None
    pool = pool_of(node)
    if pool is None or pool.kind != "max":
        return None
    new = _past_pool(draft, node, pool, pool.x, words)
    line = f"{node.name}: max pooling comes before {_chain(words)}, which keep order"
    return Change(line, {node: new}) if words else None


def _chain(words: list[str]) -> str:
    return ", ".join(reversed(words))


def _past_pool(draft: Draft, node: Node, pool: Pool, x: Node, words: list[str]) -> Node:
    """The max pooling of `x`, with every rising function after it."""
    step = _step(draft, x, pool.space)
    if step is None or step.falling:
        return draft.call(node.target, x, *node.args[1:], **node.kwargs)  # type: ignore[arg-type]
    words.append(step.word)
    return _again(draft, x, step, _past_pool(draft, node, pool, step.x, words))


def _past_extremum(draft: Draft, found: Reduction, kind: Kind, x: Node, words: list[str]) -> Node:
    """The extremum of `x` with every monotone function after it; dimensions kept."""
    step = _step(draft, x, found.dims)
    if step is None:
        return reduced(draft, kind, x, found.dims)
    words.append(step.word)
    other: Kind = "amin" if kind == "amax" else "amax"
    inner = _past_extremum(draft, found, other if step.falling else kind, step.x, words)
    return _again(draft, x, step, inner)


def _step(draft: Draft, node: Node, dims: tuple[int, ...]) -> _Step | None:
    name = op_of(node)
    x = node.args[0] if node.args else None
    if not floating(x) or not floating(node):
        return None
    if name == "neg.default":
        return _Step(x, True, "-x")
    limits = bounds(node)
    if name in RISING or (limits is not None and limits[0] <= limits[1]) or _rises(node):
        return _Step(x, False, f"{name.split('.')[0]}(x)")
    for term in terms_of(node):
        made = _term_step(draft, term, dims, rank(node))
        if made is not None:
            return made
    return None


def _rises(node: Node) -> bool:
    names = SIGNED.get(op_of(node))
    if names is None:
        return False
    values = [argument(node, name) for name in names]
    return all(is_number(value) and value > 0 for value in values)


def _term_step(draft: Draft, term: Term, dims: tuple[int, ...], full: int) -> _Step | None:
    if term.verb in ("add", "sub"):
        if not draft.parametric(term.other) or not constant_along(term.other, dims, full):
            return None
        return _Step(term.x, term.swapped, f"x {term.verb} c", term)
    if not is_number(term.other) or term.other == 0:
        return None
    return _Step(term.x, term.other < 0, f"x {term.verb} {term.other:g}", term)


def _again(draft: Draft, node: Node, step: _Step, x: Node) -> Node:
    """The function of `node` on the extremum."""
    if step.term is not None:
        return applied(draft, step.term, x, step.term.other)
    return draft.call(node.target, x, *node.args[1:], **node.kwargs)  # type: ignore[arg-type]


MONOTONE = Rule("monotone", _move_past_extremum)


@dataclass(frozen=True)
class Shift:
    """`rest` + `constant` (minus it where `negative`) is the value that was asked about."""

    rest: Node
    constant: Node | Number
    negative: bool
    word: str


def shift_of(draft: Draft, node: Node, dims: tuple[int, ...]) -> Shift | None:
    """The part of `node` that is added and does not change along `dims`.

    It must be finite: a number, something made of parameters, or the bias of a product or a
    convolution. The largest element of the rest along `dims` counts too where `node` is the rest
    minus it: it is infinite only where an element is.
    """
    for term in terms_of(node):
        if term.verb not in ("add", "sub") or term.swapped:
            continue
        if not constant_along(term.other, dims, rank(node)):
            continue
        if draft.parametric(term.other) or _own_extremum(term.x, term.other, dims):
            return Shift(term.x, term.other, term.verb == "sub", name_of(term.other))
    return _bias(draft, node, dims)


def _own_extremum(x: Node, other: Node | Number, dims: tuple[int, ...]) -> bool:
    found = extremum_of(other) if isinstance(other, Node) else None
    return found is not None and found.kind == "amax" and found.x is x and found.dims == dims


def _bias(draft: Draft, node: Node, dims: tuple[int, ...]) -> Shift | None:
    product = product_of(node)
    if product is not None and product.bias is not None and rank(node) - 1 not in dims:
        if not draft.parametric(product.bias):
            return None
        rest = multiplied(draft, product, product.left, product.right)
        return Shift(rest, product.bias, False, product.bias.name)
    convolution = convolution_of(node)
    if convolution is None or convolution.bias is None or 1 in dims:
        return None
    if not draft.parametric(convolution.bias):
        return None
    names = [item.name for item in node.target._schema.arguments]  # type: ignore[union-attr]
    kept = [None if name == "bias" else argument(node, name) for name in names]
    rest = draft.call(node.target, *kept)  # type: ignore[arg-type]
    return Shift(rest, convolution.bias, False, convolution.bias.name)


FUNCTIONAL = "_native_batch_norm_legit_functional.default"
STATELESS = "_native_batch_norm_legit.no_stats"
NEW_MEAN = 3
"""Place of the new running mean among the results of FUNCTIONAL; 1 is the batch's mean."""


def _drop_norm_shift(draft: Draft, node: Node) -> Change | None:
    if not node.args or not floating(node.args[0]):
        return None
    if op_of(node) == "sub.Tensor":
        return _centred(draft, node)
    dims = _cancelled(node)
    shift = shift_of(draft, node.args[0], dims) if dims else None
    if shift is None:
        return None
    if op_of(node) in (FUNCTIONAL, STATELESS):
        return _batch(draft, node, shift)
    new = draft.call(node.target, shift.rest, *node.args[1:], **node.kwargs)  # type: ignore[arg-type]
    return Change(_line(node, shift), {node: new})


def _cancelled(node: Node) -> tuple[int, ...]:
    """The dimensions of the group whose mean is taken off; none for what is no such norm."""
    name, full = op_of(node), rank(node.args[0])  # type: ignore[arg-type]
    if name == "layer_norm.default":
        sizes = argument(node, "normalized_shape")
        return tuple(range(full - len(sizes), full)) if isinstance(sizes, list | tuple) else ()
    if name == "group_norm.default":
        channels = static(shape(node.args[0])[1])  # type: ignore[arg-type]
        return tuple(range(2 if argument(node, "num_groups") == channels else 1, full))
    if name == "instance_norm.default":
        own = argument(node, "use_input_stats") is True and argument(node, "running_mean") is None
        return tuple(range(2, full)) if own else ()
    if name in (FUNCTIONAL, STATELESS):
        return (0, *range(2, full)) if argument(node, "training") is True else ()
    if name in ("var.correction", "std.correction", "var.dim", "std.dim"):
        dims = argument(node, "dim")
        listed = dims if isinstance(dims, list | tuple) and dims else range(full)
        return tuple(sorted(dim % full for dim in listed if isinstance(dim, int)))
    return ()


def _batch(draft: Draft, node: Node, shift: Shift) -> Change | None:
    """Batch norm: every result is read through getitem, and the new running mean gets c back."""
    momentum = argument(node, "momentum")
    places = [user.args[1] for user in node.users if op_of(user) == "getitem"]
    if 1 in places or len(places) != len(node.users) or not is_number(momentum):
        return None
    new = draft.call(node.target, shift.rest, *node.args[1:], **node.kwargs)  # type: ignore[arg-type]
    replaced: dict[Node, Node] = {}
    for user in node.users:
        part = draft.call(operator.getitem, new, user.args[1])
        if user.args[1] == NEW_MEAN:
            part = _given_back(draft, part, shift, momentum)
        replaced[user] = part
    line = _line(node, shift)
    if NEW_MEAN in places:
        line += f"; the running mean gets {momentum:g} c back"
    return Change(line, replaced)


def _given_back(draft: Draft, mean: Node, shift: Shift, momentum: float) -> Node:
    share = -momentum if shift.negative else momentum
    if not isinstance(shift.constant, Node):
        return draft.call(aten.add.Tensor, mean, share * shift.constant)
    vector = draft.call(aten.reshape.default, shift.constant, [-1])
    return draft.call(aten.add.Tensor, mean, draft.call(aten.mul.Tensor, vector, share))


def _centred(draft: Draft, node: Node) -> Change | None:
    """x - mean(x) written out."""
    x, mean = node.args[:2]
    found = sum_of(mean) if isinstance(mean, Node) else None
    if found is None or found.kind != "mean" or found.x is not x or not found.keep:
        return None
    shift = shift_of(draft, found.x, found.dims) if not node.kwargs else None
    if shift is None:
        return None
    centre = reduced(draft, "mean", shift.rest, found.dims)
    new = draft.call(aten.sub.Tensor, shift.rest, centre)
    return Change(
        f"{node.name}: (x + c) - mean(x + c) = x - mean(x), c = {shift.word}", {node: new}
    )


def _line(node: Node, shift: Shift) -> str:
    word = op_of(node).split(".")[0].removeprefix("_native_").removesuffix("_legit_functional")
    return f"{node.name}: {word.removesuffix('_legit')}(x + c) = the same of x, c = {shift.word}"


NORM_SHIFT = Rule("norm shift", _drop_norm_shift)


RUNNING = "_native_batch_norm_legit_no_training.default"


def _move_past_sum(draft: Draft, node: Node) -> Change | None:
    found = sum_of(node)
    if found is None:
        return None
    words: list[str] = []
    new = draft.squeeze(_waiting(draft, found, found.x, words), found.dims, found.keep)
    line = f"{node.name}: {', '.join(reversed(words))} wait for the {found.word}"
    return Change(line, {node: new}) if words else None


def _waiting(draft: Draft, found: Reduction, x: Node, words: list[str]) -> Node:
    """The sum or mean of `x` (dimensions kept), with every map that may wait after it."""
    if op_of(x) == "neg.default":
        words.append("-x")
        inner = _waiting(draft, found, x.args[0], words)  # type: ignore[arg-type]
        return draft.call(aten.neg.default, inner)
    for term in terms_of(x):
        other = _waiting_operand(draft, found, term)
        if other is not None:
            words.append(f"x {term.verb} {name_of(term.other)}")
            return applied(draft, term, _waiting(draft, found, term.x, words), other)
    norm = running_norm(draft, x)
    if norm is not None and found.kind == "mean" and 1 not in found.dims:
        words.append("batch norm with running statistics")
        inner = _waiting(draft, found, norm.args[0], words)  # type: ignore[arg-type]
        new = draft.call(norm.target, inner, *norm.args[1:])  # type: ignore[arg-type]
        return draft.call(operator.getitem, new, 0)
    return reduced(draft, found.kind, x, found.dims)


def _waiting_operand(draft: Draft, found: Reduction, term: Term) -> Node | Number | None:
    """What is added to, or multiplied with, the sum in the place of each element."""
    other = term.other
    if not constant_along(other, found.dims, rank(found.x)):
        return None
    if term.verb in ("mul", "div"):
        allowed = draft.parametric(other) and other != 0
        return None if (term.verb == "div" and isinstance(other, Node)) or not allowed else other
    if found.kind == "mean":
        return other
    sizes = static_sizes(found.x, found.dims)
    if sizes is None:
        return None
    count = math.prod(sizes)
    return draft.call(aten.mul.Tensor, other, count) if isinstance(other, Node) else other * count


def running_norm(draft: Draft, node: Node) -> Node | None:
    """The batch norm with running statistics whose result `node` is."""
    source = node.args[0] if op_of(node) == "getitem" and node.args[1] == 0 else None
    if not isinstance(source, Node) or op_of(source) != RUNNING:
        return None
    return source if all(map(draft.parametric, source.args[1:])) else None


SCALED_SUMS = Rule("scaled sums", _move_past_sum)


SOFTMAXES = ("softmax.int", "_softmax.default", "log_softmax.int", "_log_softmax.default")


def _drop_softmax_shift(draft: Draft, node: Node) -> Change | None:
    if op_of(node) not in SOFTMAXES or not floating(node.args[0]):
        return None
    x, dim = node.args[0], argument(node, "dim")
    if not isinstance(dim, int):
        return None
    shift = shift_of(draft, x, (dim % rank(x),))
    if shift is None:
        return None
    new = draft.call(node.target, shift.rest, *node.args[1:], **node.kwargs)  # type: ignore[arg-type]
    word = op_of(node).split(".")[0].removeprefix("_")
    return Change(f"{node.name}: {word}(x + c) = {word}(x), c = {shift.word}", {node: new})


SOFTMAX_SHIFT = Rule("softmax shift", _drop_softmax_shift)
