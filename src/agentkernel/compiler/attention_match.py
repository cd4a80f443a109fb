"""Attention in a captured graph, called by name or written out, and its node in the IR."""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import sympy
import torch
from torch import fx
from torch.utils._sympy.functions import FloatPow, FloatTrueDiv, OpaqueUnaryFn_sqrt, ToFloat

from agentkernel.compiler.ir import GraphBuilder, Node, same

aten = torch.ops.aten
MaskKind = Literal["add", "bool", "drop"]
"""What a mask does: it is added; what is True is kept; what is True is dropped."""
PRODUCTS = (aten.matmul.default, aten.bmm.default)
EINSUM = aten.einsum.default
PLAIN, TURNED = ("ij", "jd", "id"), ("id", "jd", "ij")
"""Last labels of p @ v and of q @ k^T: of both factors and of the product."""
FILLS = (aten.masked_fill.Scalar, aten.masked_fill.Tensor)
CHOICES = (aten.where.self, aten.where.ScalarOther, aten.where.ScalarSelf)
SOFTMAXES = (aten.softmax.int, aten._softmax.default)
COPIES = (
    aten.alias.default,
    aten.clone.default,
    aten.contiguous.default,
    aten.detach.default,
    aten._to_copy.default,
    aten.to.dtype,
)
"""What a dropout that is off leaves, and casts: the kernel has all scores in fp32."""
VIEWS = (aten.view.default, aten.reshape.default, aten._unsafe_view.default)
TURNS = (aten.transpose.int, aten.permute.default, aten.mT.default, aten.t.default)
SPREADS = (aten.expand.default, aten.unsqueeze.default)
REPEAT = aten.repeat_interleave.self_int
SCALED = aten.scaled_dot_product_attention.default


@dataclass(frozen=True, eq=False)
class AttentionMatch:
    """Attention that `result` yields. `key` is K itself, not its transpose; `inner` are the nodes
    that nobody else reads and that a fused kernel makes needless (`result` not among them).

    `mask` is as it stands in the graph, not yet expanded. `scale` multiplies the scores; None
    stands for 1 / sqrt(head dimension), whose size may be symbolic; an expression is over sizes.
    """

    result: fx.Node
    query: fx.Node
    key: fx.Node
    value: fx.Node
    scale: float | sympy.Expr | None
    mask: fx.Node | None
    mask_kind: MaskKind
    causal: bool
    empty_rows: Literal["nan", "zero"]
    inner: tuple[fx.Node, ...]
    grouped: bool = False
    """True where several query heads share one head of keys and values."""
    fill: float = -math.inf
    """What stands in place of a score that the mask takes out."""
    bias: fx.Node | None = None
    """What is added to the scores before the mask takes some out; `mask` where none does."""
    heads_inside: tuple[bool, bool, bool, bool] = (False, False, False, False)
    """Whether q, k, v and the result lie as [B, T, H, D] in the graph, not as [B, H, T, D]."""
    key_turned: bool = False
    """Whether `key` is the transpose of K: the graph multiplies by it as it comes."""

    @property
    def rising(self) -> bool:
        """True where the scale is known to be positive."""
        return self.scale is None or (isinstance(self.scale, float) and self.scale > 0)


def find_attention(graph: fx.Graph) -> tuple[AttentionMatch, ...]:
    """All attention in a functional ATen graph whose nodes carry `meta["val"]`, in graph order.

    Found are `scaled_dot_product_attention` without dropout and softmax(q @ k^T [* or / number]
    [+ mask, and a number where a mask says so]) @ v over the last dimension, with three- or
    four-dimensional operands. Between the products may stand copies and casts to types that are
    no shorter than that of q, and before them multiples and widened copies of q and k. Keys and
    values may come with each head repeated. An einsum may have the heads of its operands inside.
    """
    found = (_named(node) or _composed(node) for node in graph.nodes)
    return tuple(match for match in found if match is not None)


def _named(node: fx.Node) -> AttentionMatch | None:
    if node.target is not SCALED:
        return None
    names = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal", "scale")
    given = dict(zip(names, node.args, strict=False)) | dict(node.kwargs)
    query, key, value, mask = (given.get(name) for name in names[:4])
    if not all(isinstance(item, fx.Node) for item in (query, key, value)):
        return None
    assert isinstance(query, fx.Node)
    assert isinstance(key, fx.Node)
    assert isinstance(value, fx.Node)
    if given.get("dropout_p", 0.0) != 0.0 or _rank(query) not in (3, 4):
        return None
    scale = given.get("scale")
    if scale is not None and not isinstance(scale, int | float):
        return None
    boolean = isinstance(mask, fx.Node) and mask.meta["val"].dtype == torch.bool
    return AttentionMatch(
        result=node,
        query=query,
        key=key,
        value=value,
        scale=None if scale is None else float(scale),
        mask=mask if isinstance(mask, fx.Node) else None,
        mask_kind="bool" if boolean else "add",
        causal=bool(given.get("is_causal", False)),
        empty_rows="zero",
        inner=(),
        grouped=bool(given.get("enable_gqa", False)),
    )


def _composed(node: fx.Node) -> AttentionMatch | None:
    """softmax(...) @ v, read backwards from the product with v."""
    weighted = _product(node, PLAIN)
    if weighted is None or weighted.heads_inside[0]:
        return None
    inner: list[fx.Node] = []
    softmax, value = _below_copies(weighted.left, inner), weighted.right
    if not _lone(softmax, SOFTMAXES):
        return None
    if softmax.args[1] not in (-1, _rank(softmax) - 1):
        return None
    inner.append(softmax)
    scores, last = _unscaled(softmax.args[0], inner)
    mask = None
    kind: MaskKind = "add"
    fill = -math.inf
    if (filled := _filled(scores)) is not None:
        inner.append(scores)
        scores, mask, kind, fill = filled.scores, filled.mask, filled.kind, filled.number
        scores = _below_copies(scores, inner)
    bias = None
    if (sum_ := _added(scores)) is not None:
        inner.append(scores)
        scores, bias = sum_
    if last != 1.0 and (mask is not None or bias is not None):
        # Scaled behind a mask: the same before it where the mask leaves nothing of a score.
        positive = isinstance(last, float) and last > 0
        if bias is not None or fill != -math.inf or not positive:
            return None
    if any(item is not None and not _spreads_over(item, softmax) for item in (mask, bias)):
        return None
    mask, bias = (bias, None) if mask is None else (mask, bias)
    if isinstance(scores, fx.Node) and _shape(scores) != _shape(softmax):
        return None
    scores, scale = _unscaled(scores, inner)
    scored = _product(scores, TURNED) if _lone(scores, (*PRODUCTS, EINSUM)) else None
    if scored is None or scored.heads_inside[2]:
        return None
    query, first = _operand(scored.left, value, inner)
    key, second = scored.right, 1.0
    # What K is made of can be read instead where nothing else reads the transpose.
    turn = scores.args[1] if scores.target in PRODUCTS and not scored.right_turned else None
    if turn is None or _lone(turn, (turn.target,)):
        key, second = _operand(key, value, inner)
    scale = scale * last * first * second
    if _rank(query) not in (3, 4):
        return None
    if not _rank(query) == _rank(key) == _rank(value):
        return None
    inner.append(scores)
    if any(_shorter(item, query) for item in inner):
        return None
    shared = (key, value)
    if not any((*scored.heads_inside, *weighted.heads_inside)) and _lone(turn, TURNS):
        shared = (_unrepeated(key, query, inner), _unrepeated(value, query, inner))
    if shared[0] is not scored.right and turn is not None:
        inner.append(turn)
    return AttentionMatch(
        node,
        query,
        *shared,
        scale,
        mask,
        kind,
        False,
        "nan",
        tuple(reversed(inner)),
        grouped=shared != (key, value),
        fill=fill,
        bias=bias,
        heads_inside=(*scored.heads_inside[:2], *weighted.heads_inside[1:]),
        key_turned=scored.right_turned,
    )


def _added(item: object) -> tuple[Any, Any] | None:
    """Scores and what is added to them, in either order."""
    if not isinstance(item, fx.Node) or not _lone(item, (aten.add.Tensor,)) or item.kwargs:
        return None
    first, second = item.args
    return (second, first) if _scored(second) and not _scored(first) else (first, second)


def _scored(item: object) -> bool:
    """Whether a value is a product, perhaps scaled."""
    node = _below_copies(item, [])
    if isinstance(node, fx.Node) and node.target in (aten.mul.Tensor, aten.div.Tensor):
        node = _below_copies(node.args[0], [])
    return isinstance(node, fx.Node) and node.target in (*PRODUCTS, EINSUM)


def _spreads_over(item: object, scores: fx.Node) -> bool:
    """Whether a value is a tensor that is broadcast over the scores."""
    return isinstance(item, fx.Node) and _rank(item) <= _rank(scores)


class _Filled(NamedTuple):
    """Scores with `number` where `mask` is True ("drop") or where it is not ("bool")."""

    scores: Any
    mask: fx.Node
    kind: MaskKind
    number: float


def _filled(item: object) -> _Filled | None:
    """What a masked fill, or a choice between scores and one number, is of."""
    if not isinstance(item, fx.Node) or not _lone(item, (*FILLS, *CHOICES)):
        return None
    first, second, third = item.args[:3]
    kind: MaskKind = "drop"
    if item.target in FILLS:
        scores, mask, value = first, second, third
    elif (number := _number(third)) is not None:
        scores, mask, value, kind = second, first, number, "bool"
    else:
        scores, mask, value = third, first, second
    number = _number(value)
    if number is None or math.isnan(number) or number == math.inf:
        return None
    if not isinstance(mask, fx.Node) or mask.meta["val"].dtype != torch.bool:
        return None
    return _Filled(scores, mask, kind, number)


def _number(value: object) -> float | None:
    """A number, or that of a tensor of one element that is filled with it."""
    while isinstance(value, fx.Node) and value.target in COPIES and _shape(value) == ():
        value = value.args[0]
    if isinstance(value, fx.Node):
        sole = value.target in (aten.full.default, aten.scalar_tensor.default)
        if not sole or _shape(value) != ():
            return None
        value = value.args[1 if value.target is aten.full.default else 0]
    return float(value) if isinstance(value, int | float) else None


class _Product(NamedTuple):
    """A product of matrices, and where its factors and its result have their heads inside."""

    left: fx.Node
    right: fx.Node
    heads_inside: tuple[bool, bool, bool] = (False, False, False)
    right_turned: bool = False


def _product(node: fx.Node, labels: tuple[str, str, str]) -> _Product | None:
    """A product with the last `labels`, batch dimensions first, or around the rows."""
    inside, turned = (False, False, False), False
    if node.target is EINSUM:
        equation, given = node.args[:2]
        pair = list(given) if isinstance(given, list | tuple) else []
        found = _inside(str(equation).replace(" ", ""), labels)
        if len(pair) != 2 or found is None:
            return None
        (left, right), inside = pair, found
    elif node.target in PRODUCTS:
        left, right = node.args[:2]
        if labels is TURNED:
            below = _untransposed(right)
            turned, right = below is None, right if below is None else below
    else:
        return None
    if not isinstance(left, fx.Node) or not isinstance(right, fx.Node):
        return None
    return _Product(left, right, inside, turned)


def _inside(equation: str, labels: tuple[str, str, str]) -> tuple[bool, bool, bool] | None:
    """Which terms have their rows before their heads; None for another product.

    All terms have these last labels, under any names, behind one batch for all.
    """
    terms = equation.replace("->", ",").split(",")
    batch = "xy"[: len(terms[0]) - 2]
    wanted = [f"{batch}{ends}" for ends in labels]
    choices = itertools.product((False, True), repeat=3) if len(batch) == 2 else [(False,) * 3]
    for first, second, third in choices:
        swaps = (first, second, third)
        found = [
            _rows_first(term) if swap else term for term, swap in zip(wanted, swaps, strict=False)
        ]
        if _renamed(terms) == _renamed(found):
            return swaps
    return None


def _rows_first(term: str) -> str:
    """[batch, rows, heads, ...] for [batch, heads, rows, ...]."""
    return f"{term[0]}{term[2]}{term[1]}{term[3:]}"


def _renamed(terms: Sequence[str]) -> list[list[int]]:
    """Terms with a number for each label, in the order in which they come first."""
    numbers = {label: number for number, label in enumerate(dict.fromkeys("".join(terms)))}
    return [[numbers[label] for label in term] for term in terms]


def _below_copies(item: Any, inner: list[fx.Node]) -> Any:
    """What copies that nobody else reads are of; they are added to `inner`."""
    while _lone(item, COPIES):
        inner.append(item)
        item = item.args[0]
    return item


def _unscaled(item: Any, inner: list[fx.Node]) -> tuple[Any, float | sympy.Expr]:
    """What multiples and copies that nobody else reads are of, and the factor of all of them; they
    are added to `inner`."""
    scale: float | sympy.Expr = 1.0
    item = _below_copies(item, inner)
    while _lone(item, (aten.mul.Tensor, aten.div.Tensor)):
        factor = _factor(item.args[1])
        if factor is None:
            break
        scale = scale / factor if item.target is aten.div.Tensor else scale * factor
        inner.append(item)
        item = _below_copies(item.args[0], inner)
    return item, scale


def _operand(
    item: fx.Node, value: fx.Node, inner: list[fx.Node]
) -> tuple[fx.Node, float | sympy.Expr]:
    """What a factor of the scores is a multiple of, or a widened copy, and the factor; the kernel
    multiplies 16 bits exactly as well. As it is where the multiple might overflow, or where
    the values are wider."""
    wanted = value.meta["val"].dtype
    seen: list[fx.Node] = []
    below, scale = item, 1.0
    best, taken = (item, 1.0), 0
    while _lone(below, (*COPIES, aten.mul.Tensor, aten.div.Tensor)):
        if below.target not in COPIES:
            factor = _factor(below.args[1])
            if not isinstance(factor, float):
                break
            scale = scale / factor if below.target is aten.div.Tensor else scale * factor
        seen.append(below)
        below = below.args[0]  # type: ignore[assignment]
        copied = seen[-1].target in COPIES and seen[-1].meta["val"].dtype == below.meta["val"].dtype
        exact = below.meta["val"].dtype == wanted and not any(_shorter(x, below) for x in seen)
        if exact and not copied and abs(scale) <= 1.0:
            best, taken = (below, scale), len(seen)
    inner += seen[:taken]
    return best


def _unrepeated(item: fx.Node, query: fx.Node, inner: list[fx.Node]) -> fx.Node:
    """[B, G, S, D] of which `item` repeats each head, as models with fewer heads of keys than of
    queries do; itself where it repeats none. What repeats is added to `inner`."""
    found: list[fx.Node] = []
    below = item
    while _lone(below, (*COPIES, *VIEWS, *SPREADS)) or _lone_whole(below):
        found.append(below)
        below = below.args[0]  # type: ignore[assignment]
    made = [x for x in found if x.target not in COPIES and not _lone_whole(x)]
    if _lone(below, (REPEAT,)) and not made and below.args[2:] in ((1,), (-3,)):
        found.append(below)
        source = below.args[0]
    elif len(made) == 3 and made[0].target in VIEWS and _unsqueezed(made[1:]):
        source = below
    else:
        return item
    assert isinstance(source, fx.Node)
    if any(x.meta["val"].dtype != source.meta["val"].dtype for x in found):
        return item
    if not _repeats(_shape(item), _shape(source)) or not same(_shape(item)[1], _shape(query)[1]):
        return item
    inner += found
    return source


def _lone_whole(item: object) -> bool:
    """A slice from end to end that only one node reads."""
    if not _lone(item, (aten.slice.Tensor,)):
        return False
    assert isinstance(item, fx.Node)
    assert isinstance(item.args[0], fx.Node)
    return _shape(item) == _shape(item.args[0])


def _unsqueezed(spread: Sequence[fx.Node]) -> bool:
    """Whether a dimension behind the heads is made, and filled with one element again and again."""
    expand, unsqueeze = spread
    made = (expand.target, unsqueeze.target) == SPREADS and unsqueeze.args[1] in (2, -3)
    return made and _shape(expand)[:2] == _shape(unsqueeze)[:2]


def _repeats(shape: tuple[sympy.Expr, ...], source: tuple[sympy.Expr, ...]) -> bool:
    """Whether a shape is another with a multiple of its heads."""
    if len(shape) != 4 or len(source) != 4:
        return False
    return bool((shape[1] / source[1]).is_Integer) and all(
        same(shape[at], source[at]) for at in (0, 2, 3)
    )


def _shorter(item: fx.Node, query: fx.Node) -> bool:
    """True for a type with fewer bits than that of q, or none of its range."""
    given, wanted = item.meta["val"].dtype, query.meta["val"].dtype
    return bool(given != wanted and given.itemsize <= wanted.itemsize)


def _factor(value: object) -> float | sympy.Expr | None:
    """A number other than 0, or one computed from sizes; None for anything else."""
    found = value.meta.get("val") if isinstance(value, fx.Node) else value
    if isinstance(found, torch.SymInt | torch.SymFloat):
        return _plain(found.node.expr)
    return float(found) if isinstance(found, int | float) and found != 0 else None


def _plain(expression: sympy.Expr) -> sympy.Expr:
    """An expression of sizes without the exporter's own functions for floats."""
    done: sympy.Expr = expression.replace(ToFloat, lambda size: size)
    done = done.replace(FloatPow, sympy.Pow).replace(FloatTrueDiv, operator.truediv)
    return done.replace(OpaqueUnaryFn_sqrt, lambda size: sympy.Pow(size, 0.5))


def _lone(item: object, targets: tuple[object, ...]) -> bool:
    """A call of one of `targets` that only one node reads, checks of its dtype aside."""
    if not isinstance(item, fx.Node) or item.target not in targets:
        return False
    return sum(user.target is not aten._assert_tensor_metadata.default for user in item.users) == 1


def _untransposed(item: object) -> fx.Node | None:
    """K of a node that is K with its last two dimensions swapped."""
    if not isinstance(item, fx.Node):
        return None
    rank, source = _rank(item), item.args[0] if item.args else None
    swapped = False
    if item.target is aten.transpose.int:
        dims = {int(dim) % rank for dim in item.args[1:3]}  # type: ignore[arg-type]
        swapped = dims == {rank - 1, rank - 2}
    elif item.target is aten.permute.default:
        order = [int(dim) % rank for dim in item.args[1]]  # type: ignore[arg-type, union-attr]
        swapped = order == [*range(rank - 2), rank - 1, rank - 2]
    elif item.target in (aten.mT.default, aten.t.default):
        swapped = True
    return source if swapped and isinstance(source, fx.Node) else None


def _rank(node: fx.Node) -> int:
    return len(node.meta["val"].shape)


def _shape(node: fx.Node) -> tuple[sympy.Expr, ...]:
    return tuple(map(_size, node.meta["val"].shape))


def _size(size: object) -> sympy.Expr:
    """A size as an expression: one that tracing has settled is a SymInt still, over a number."""
    found: sympy.Expr = size.node.expr if isinstance(size, torch.SymInt) else sympy.sympify(size)
    return found


ATTENTION_OP = "attention"
HEADS_INSIDE = (0, 2, 1, 3)
"""The permutation between [B, H, T, D] and [B, T, H, D]."""
FLOATS = (torch.float32, torch.float16, torch.bfloat16)


@dataclass(frozen=True)
class AttentionCalls:
    """Attention of a graph that our kernel serves: by result, and what it makes needless."""

    by_result: Mapping[fx.Node, AttentionMatch]
    inner: frozenset[fx.Node]


def served_attention(graph: fx.Graph) -> AttentionCalls:
    """The attention that the kernel covers: floats of one type, no broadcast heads."""
    found = {match.result: match for match in find_attention(graph) if _served(match)}
    inner = frozenset(node for match in found.values() for node in match.inner)
    return AttentionCalls(found, inner)


def _served(match: AttentionMatch) -> bool:
    operands = (match.query, match.key, match.value)
    q, k, v = (
        item.meta["val"].transpose(1, 2) if inside else item.meta["val"]
        for item, inside in zip(operands, match.heads_inside, strict=False)
    )
    k = k.mT if match.key_turned else k
    if q.dtype not in FLOATS or not q.dtype == k.dtype == v.dtype:
        return False
    if (
        match.result.meta["val"].dtype != q.dtype
        or len({len(q.shape), len(k.shape), len(v.shape)}) > 1
    ):
        return False
    # Grouped heads of keys and of values each divide those of the queries.
    lead = slice(0, -3) if match.grouped else slice(0, -2)
    pairs = [*zip(q.shape[lead], k.shape[lead], strict=True)]
    pairs += [*zip(q.shape[lead], v.shape[lead], strict=True)]
    pairs += [(k.shape[-2], v.shape[-2]), (q.shape[-1], k.shape[-1])]
    return all(_equal(left, right) for left, right in pairs)


def _equal(left: object, right: object) -> bool:
    return same(_size(left), _size(right))


def attention_node(
    b: GraphBuilder, match: AttentionMatch, values: Mapping[fx.Node, object]
) -> Node:
    """The IR's node for a match, over the values of its operands."""
    operands = [match.query, match.key, match.value]
    operands += [item for item in (match.mask, match.bias) if item is not None]
    args = [item for item in (values[item] for item in operands) if isinstance(item, Node)]
    for place, inside in enumerate(match.heads_inside[:3]):
        args[place] = b.permute(args[place], HEADS_INSIDE) if inside else args[place]
    if match.key_turned:
        rank = len(args[1].shape)
        args[1] = b.permute(args[1], (*range(rank - 2), rank - 1, rank - 2))
    q, v = args[0], args[2]
    found = b._make(
        "library",
        ATTENTION_OP,
        tuple(args),
        q.dtype,
        (*q.shape[:-1], v.shape[-1]),
        (match,),
        ATTENTION_OP,
    )
    return b.permute(found, HEADS_INSIDE) if match.heads_inside[3] else found
