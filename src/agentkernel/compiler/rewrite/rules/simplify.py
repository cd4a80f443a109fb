"""Rules that remove calls or merge them.

Rule "equal nodes": one call stands for another that makes the same call on the same values.
Derivation: f(x) = f(x). The first of two equal calls serves the readers of both.
Conditions: the same op and arguments of the same types; no random numbers.
NaN and infinities: as before, bit by bit.

Rule "single elements": a reduction over dimensions of size 1 becomes what is left of it.
Derivation: over one element x, sum = mean = max = min = prod = cumsum = x, and logsumexp(x) = x
+ log(exp(x - x)) = x. softmax(x) = exp(x - x) / exp(x - x) = 1, written (x - x) + 1;
log_softmax(x) = var(x) = std(x) = x - x, the last two without Bessel's correction. norm(x) =
|x|. The place of the extremum is 0.
Conditions: every reduced dimension has the static size 1; floats.
NaN and infinities: the identities keep them. x - x is NaN where x is NaN or infinite, as
eager's softmax, log_softmax and variance of such an element are; that is why they are not
written as constants. An output that is such a constant for finite inputs is reported as
degenerate.

Rule "dead clamps": a clamp that changes nothing goes, and two clamps make one.
Derivation: clamp(x, a, b) = x where a <= x <= b; |x| = x where x >= 0; x * 1 = x / 1 = x + 0 =
x. clamp(clamp(x, a, b), c, d) = clamp(x, A, B) with A = clamp(a, c, d) and B = clamp(b, c, d):
both sides are monotone, agree at both ends and have slope 1 where neither clamps.
Conditions: the producer's range follows from structure (`intervals`), never from values.
NaN and infinities: a clamp lets NaN through, and so does its absence; ranges hold for
infinities. x + 0 turns -0 into 0, which compares equal.

Rule "common factors": a factor that two added terms share is multiplied once.
Derivation: a x + a y = a (x + y), x / a + y / a = (x + y) / a; X W + Y W = (X + Y) W, which
saves a whole product; and X V + X W = X (V + W).
Conditions: the same node or number a; W made of parameters; subtraction likewise.
NaN and infinities: a must be finite: a number, made of parameters, or in a bounded range, as a
gate is behind its sigmoid. x = inf, y = -inf is NaN in both. X V + X W is for finite values
only: inf V + inf W is NaN where the signs differ, inf (V + W) is not.
Rounding: x + y is rounded once where both products were; where x and y cancel, it is exact.

Rule "small-side scales": a number is multiplied into a weight instead of what the weight makes.
Derivation: a (x W + b) = x (a W) + a b, and (a x) W = x (a W); convolutions likewise.
Conditions: a is a number (not 0), the weight is made of parameters, wider than 16 bits or a is
a power of two, and has at most a sixteenth of the bytes of what was scaled: a fused kernel
scales its result for nothing, so only a small weight is worth a launch.
NaN and infinities: a W is finite with W, of the same or the opposite signs; as before.
Rounding: W is rounded once more, the result once less.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch.fx import Node

from agentkernel.compiler.rewrite.draft import (
    NARROW,
    Change,
    Draft,
    Rule,
    argument,
    dtype,
    floating,
    is_number,
    is_random,
    op_of,
    rank,
    same_shape,
    single_user,
    static_sizes,
    tensor,
)
from agentkernel.compiler.rewrite.intervals import bounds, clamped, value_range
from agentkernel.compiler.rewrite.patterns import (
    TERM_OPS,
    Product,
    Term,
    applied,
    convolution_of,
    multiplied,
    name_of,
    product_of,
    terms_of,
)
from agentkernel.tools.roofline.op_cost import stored_bytes

aten = torch.ops.aten


def _factor_out(draft: Draft, node: Node) -> Change | None:
    if op_of(node) not in ("add.Tensor", "sub.Tensor") or node.kwargs or len(node.args) != 2:
        return None
    left, right = node.args
    if not isinstance(left, Node) or not isinstance(right, Node) or not same_shape(left, right):
        return None
    if dtype(left) != dtype(right):
        return None
    op = TERM_OPS["add" if op_of(node) == "add.Tensor" else "sub"]
    for one in terms_of(left):
        for two in terms_of(right):
            if _shared(draft, one, two):
                both = draft.call(op, one.x, two.x)
                new = draft.call(TERM_OPS[one.verb], both, one.other)
                line = (
                    f"{node.name}: x {one.verb} a and y {one.verb} a share a = {name_of(one.other)}"
                )
                return Change(line, {node: new})
    return _products(draft, node, left, right)


def _shared(draft: Draft, one: Term, two: Term) -> bool:
    if one.verb != two.verb or one.verb not in ("mul", "div") or not same_shape(one.x, two.x):
        return False
    if is_number(one.other) or is_number(two.other):
        return one.other == two.other
    if one.other is not two.other or one.verb == "div":
        return False
    bounded = all(map(math.isfinite, value_range(draft, one.other)))
    return draft.parametric(one.other) or bounded


def _products(draft: Draft, node: Node, left: Node, right: Node) -> Change | None:
    one, two = product_of(left), product_of(right)
    if one is None or two is None or one.turned != two.turned or one.batched != two.batched:
        return None
    op = TERM_OPS["add" if op_of(node) == "add.Tensor" else "sub"]
    if one.right is two.right and draft.parametric(one.right) and same_shape(one.left, two.left):
        new = multiplied(draft, one, draft.call(op, one.left, two.left), one.right)
        line = f"{node.name}: X W and Y W share W = {one.right.name}"
    elif one.left is two.left and not draft.infinities and same_shape(one.right, two.right):
        if not (draft.parametric(one.right) and draft.parametric(two.right)):
            return None
        new = multiplied(draft, one, one.left, draft.call(op, one.right, two.right))
        line = f"{node.name}: X V and X W share X = {one.left.name}"
    else:
        return None
    return Change(line, {node: _with_biases(draft, new, one, two, op)})


def _with_biases(draft: Draft, new: Node, one: Product, two: Product, op: object) -> Node:
    if one.bias is not None:
        new = draft.call(aten.add.Tensor, new, one.bias)
    if two.bias is not None:
        new = draft.call(op, new, two.bias)  # type: ignore[arg-type]
    return new


COMMON_FACTORS = Rule("common factors", _factor_out)


NEUTRAL = {"mul": 1, "div": 1, "add": 0, "sub": 0}


def _drop_clamp(draft: Draft, node: Node) -> Change | None:
    x = node.args[0] if node.args else None
    if not floating(node) or not floating(x):
        return None
    low, high = value_range(draft, x)
    if op_of(node) == "abs.default":
        return Change(f"{node.name}: |x| = x for x >= 0", {node: x}) if low >= 0 else None
    for term in terms_of(node):
        neutral = is_number(term.other) and term.other == NEUTRAL[term.verb]
        if neutral and not term.swapped:
            return Change(f"{node.name}: x {term.verb} {term.other} = x", {node: term.x})
    limits = bounds(node)
    if limits is None:
        return None
    if low >= limits[0] and high <= limits[1]:
        known = f"{x.name} lies in {_text((low, high))}"
        return Change(f"{node.name}: {known}, the clamp to {_text(limits)} is dead", {node: x})
    return _merged(draft, node, x, limits)


def _merged(draft: Draft, node: Node, x: Node, limits: tuple[float, float]) -> Change | None:
    inner = bounds(x)
    if inner is None:
        return None
    low, high = clamped(inner, limits)
    source = x.args[0]
    ends = [None if math.isinf(end) else end for end in (low, high)]
    new = draft.call(aten.clamp.default, source, *ends)
    line = f"{node.name}: clamp to {_text(inner)}, then to {_text(limits)}"
    line += f", is one to {_text((low, high))}"
    return Change(line, {node: new})


def _text(limits: tuple[float, float]) -> str:
    return f"[{limits[0]:g}, {limits[1]:g}]"


DEAD_CLAMPS = Rule("dead clamps", _drop_clamp)


def _merge_equal_nodes(draft: Draft, node: Node) -> Change | None:
    if not node.all_input_nodes or is_random(node):
        return None
    key = _key(node)
    for other in node.all_input_nodes[0].users:
        if other.target != node.target or not other < node:
            continue
        if _key(other) == key:
            return Change(f"{node.name} = {other.name}: the same call", {node: other})
    return None


def _key(node: Node) -> tuple[object, ...]:
    return _plain(node.args), _plain(tuple(sorted(node.kwargs.items())))


def _plain(value: object) -> tuple[object, ...]:
    """An argument as something to compare, in which 1, 1.0 and True differ."""
    if isinstance(value, tuple | list):
        return ("many", *(_plain(item) for item in value))
    return type(value).__name__, value if isinstance(value, Node) else repr(value)


EQUAL_NODES = Rule("equal nodes", _merge_equal_nodes)


SAME = frozenset(
    ("sum.dim_IntList", "sum.default", "mean.dim", "mean.default", "amax.default", "amin.default",
     "max.default", "min.default", "prod.dim_int", "prod.default", "logsumexp.default",
     "cumsum.default", "cumprod.default")
)  # fmt: skip
SHAPE_KEPT = frozenset(
    ("cumsum.default", "cumprod.default", "softmax.int", "_softmax.default", "log_softmax.int",
     "_log_softmax.default")
)  # fmt: skip
ONES = ("softmax.int", "_softmax.default")
ZEROS = ("log_softmax.int", "_log_softmax.default")
SPREADS = ("var.correction", "std.correction", "var.dim", "std.dim")
PLACES = ("argmax.default", "argmin.default")


def _replace_single_element(draft: Draft, node: Node) -> Change | None:
    name = op_of(node)
    x = node.args[0] if node.args else None
    if name == "getitem":
        return _with_place(draft, node)
    known = name in SAME or name in SHAPE_KEPT or name in SPREADS or name in PLACES
    if not (known or name == "linalg_vector_norm.default") or not floating(x):
        return None
    dims = _dims(node, rank(x))
    sizes = static_sizes(x, dims) if dims else None
    if sizes is None or set(sizes) != {1} or _other_dtype(node):
        return None
    kept = name in SHAPE_KEPT or _option(node, "keepdim") is True
    made = _value(draft, node, x)
    if made is None:
        return None
    value, line = made
    return Change(f"{node.name}: over one element {line}", {node: draft.squeeze(value, dims, kept)})


def _value(draft: Draft, node: Node, x: Node) -> tuple[Node, str] | None:
    """The reduction's value at the shape of x, and the identity."""
    name = op_of(node)
    word = name.split(".")[0]
    if name in SAME:
        return x, f"{word}(x) = x"
    if name in PLACES:
        return draft.call(aten.zeros_like.default, x, dtype=torch.int64), f"{word}(x) = 0"
    if name == "linalg_vector_norm.default":
        order = argument(node, "ord")
        if not is_number(order) or order <= 0:
            return None
        return draft.call(aten.abs.default, x), "norm(x) = |x|"
    if name in SPREADS and not _biased(node):
        return None
    zero = draft.call(aten.sub.Tensor, x, x)
    if name in ONES:
        return draft.call(aten.add.Tensor, zero, 1), "softmax(x) = 1 (NaN stays)"
    return zero, f"{word}(x) = x - x"


def _biased(node: Node) -> bool:
    if op_of(node).endswith(".dim"):
        return argument(node, "unbiased") is False
    return argument(node, "correction") == 0


def _with_place(draft: Draft, node: Node) -> Change | None:
    """Either part of max or min along a dimension."""
    source = node.args[0]
    if op_of(source) not in ("max.dim", "min.dim"):
        return None
    assert isinstance(source, Node)
    x, dim = source.args[0], argument(source, "dim")
    if not floating(x) or not isinstance(dim, int) or static_sizes(x, (dim,)) != (1,):
        return None
    value = x
    if node.args[1] == 1:
        value = draft.call(aten.zeros_like.default, x, dtype=torch.int64)
    kept = argument(source, "keepdim") is True
    line = f"{node.name}: over one element {op_of(source).split('.')[0]}(x) = x, its place 0"
    return Change(line, {node: draft.squeeze(value, (dim % rank(x),), kept)})


def _dims(node: Node, full: int) -> tuple[int, ...]:
    found = _option(node, "dim")
    if found is None or found == []:
        return tuple(range(full))
    listed = found if isinstance(found, list | tuple) else [found]
    return tuple(dim % full for dim in listed if isinstance(dim, int))


def _other_dtype(node: Node) -> bool:
    return _option(node, "dtype") is not None or _option(node, "half_to_float") is True


def _option(node: Node, name: str) -> object:
    try:
        return argument(node, name)
    except KeyError:
        return None


SINGLE_ELEMENTS = Rule("single elements", _replace_single_element)


SMALL = 16


@dataclass(frozen=True)
class _Call:
    """A product or convolution: x, weight and bias."""

    node: Node
    x: Node
    weight: Node
    bias: Node | None


def _scale_weight(draft: Draft, node: Node) -> Change | None:
    for term in terms_of(node):
        call = _weighted(draft, term.x) if _scales(term) and single_user(term.x) else None
        if call is not None:
            return _moved(draft, node, call, term, whole=True)
    call = _weighted(draft, node)
    for term in terms_of(call.x) if call is not None else ():
        if call is not None and _scales(term) and single_user(call.x):
            return _moved(draft, node, call, term, whole=False)
    return None


def _scales(term: Term) -> bool:
    value = term.other
    return term.verb in ("mul", "div") and is_number(value) and value != 0


def _weighted(draft: Draft, node: Node) -> _Call | None:
    product, convolution = product_of(node), convolution_of(node)
    found = None
    if product is not None:
        found = _Call(node, product.left, product.right, product.bias)
    elif convolution is not None:
        found = _Call(node, convolution.x, convolution.weight, convolution.bias)
    return found if found is not None and draft.parametric(found.weight) else None


def _moved(draft: Draft, node: Node, call: _Call, term: Term, *, whole: bool) -> Change | None:
    """`call` with its weight scaled: in the place of its scaled result, or of its scaled input."""
    scaled, small = tensor(node if whole else term.x), tensor(call.weight)
    if scaled is None or small is None or not is_number(term.other):
        return None
    if SMALL * stored_bytes(small, draft.size_of) > stored_bytes(scaled, draft.size_of):
        return None
    if small.dtype in NARROW and abs(math.frexp(term.other)[0]) != 0.5:
        return None
    given = {call.weight: applied(draft, term, call.weight, term.other)}
    if whole and call.bias is not None:
        given[call.bias] = applied(draft, term, call.bias, term.other)
    if not whole:
        given[call.x] = term.x
    source = call.node
    args = [given.get(item, item) if isinstance(item, Node) else item for item in source.args]
    new = draft.call(source.target, *args, **source.kwargs)  # type: ignore[arg-type]
    line = f"{node.name}: {term.verb} by {term.other:g} moves into {call.weight.name}"
    return Change(line, {node: new})


SMALL_SIDE_SCALES = Rule("small-side scales", _scale_weight)
