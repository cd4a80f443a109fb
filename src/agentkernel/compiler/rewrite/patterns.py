"""Operators recognised in a captured graph, each with the way to write it again.

Convolutions and poolings with their paddings and strides written out; matrix products, left [...,
M, K] times right [..., K, N] plus a bias over N; sums, means and extrema over dimensions; and
single additions or multiplications.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch.fx import Node

from agentkernel.compiler.rewrite.draft import (
    Draft,
    Number,
    argument,
    base_op,
    dtype,
    expression,
    floating,
    is_number,
    numbers,
    op_of,
    optional_tensor_argument,
    rank,
    shape,
    single_user,
    static_sizes,
    tensor_argument,
)

aten = torch.ops.aten
CONVOLUTION_NAME = re.compile(
    r"conv(?P<transposed>_transpose)?(?P<n>[123])d\.(default|padding|input)"
)
CONVOLUTION_OPS = {1: aten.conv1d.default, 2: aten.conv2d.default, 3: aten.conv3d.default}
TRANSPOSED_OPS = {1: aten.conv_transpose1d.default, 2: aten.conv_transpose2d.input,
              3: aten.conv_transpose3d.input}  # fmt: skip


@dataclass(frozen=True)
class Convolution:
    """A batched convolution over `n` spatial dimensions.

    `weight` is [O, C/groups, *kernel], of a `transposed` one [C, O/groups, *kernel]. `before` and
    `after` are the zeros put at either end.
    """

    n: int
    x: Node
    weight: Node
    bias: Node | None
    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int
    transposed: bool
    extra: tuple[int, ...]
    """The output padding of a transposed one."""

    @property
    def space(self) -> tuple[int, ...]:
        """The spatial dimensions."""
        return tuple(range(2, 2 + self.n))


def convolution_of(node: Node) -> Convolution | None:
    """The convolution that a node is; None where it is unbatched or its kernel is not static."""
    match = CONVOLUTION_NAME.fullmatch(op_of(node))
    if match is None:
        return None
    n, transposed = int(match["n"]), bool(match["transposed"])
    x, weight = tensor_argument(node, "input"), tensor_argument(node, "weight")
    kernel = static_sizes(weight, tuple(range(2, 2 + n))) if rank(weight) == n + 2 else None
    stride, dilation = (numbers(argument(node, item), n) for item in ("stride", "dilation"))
    groups = argument(node, "groups")
    if rank(x) != n + 2 or kernel is None or stride is None or dilation is None:
        return None
    ends = _padding(argument(node, "padding"), kernel, dilation)
    extra = numbers(argument(node, "output_padding"), n) if transposed else (0,) * n
    if ends is None or extra is None or not isinstance(groups, int):
        return None
    return Convolution(
        n, x, weight, optional_tensor_argument(node, "bias"), kernel, stride, *ends, dilation,
        groups, transposed, extra,
    )  # fmt: skip


def _padding(
    value: object, kernel: tuple[int, ...], dilation: tuple[int, ...]
) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Zeros before and after; `same` puts the odd one after."""
    if value == "valid":
        return (0,) * len(kernel), (0,) * len(kernel)
    if value == "same":
        total = [d * (k - 1) for k, d in zip(kernel, dilation, strict=True)]
        return tuple(t // 2 for t in total), tuple(t - t // 2 for t in total)
    found = None if isinstance(value, str) else numbers(value, len(kernel))
    return None if found is None else (found, found)


POOL_NAME = re.compile(r"(?P<kind>avg|max)_pool(?P<n>[123])d\.default")
POOL_OPS = {
    ("avg", 1): aten.avg_pool1d.default, ("avg", 2): aten.avg_pool2d.default,
    ("avg", 3): aten.avg_pool3d.default, ("max", 1): aten.max_pool1d.default,
    ("max", 2): aten.max_pool2d.default, ("max", 3): aten.max_pool3d.default,
}  # fmt: skip


@dataclass(frozen=True)
class Pool:
    """A pooling over the last `n` dimensions. `plain`: no padding, dilation, ceiling or divisor."""

    kind: str
    n: int
    x: Node
    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    plain: bool

    @property
    def space(self) -> tuple[int, ...]:
        """The pooled dimensions."""
        full = rank(self.x)
        return tuple(range(full - self.n, full))

    @property
    def tiles(self) -> bool:
        """True where windows touch and do not overlap."""
        return self.kernel == self.stride


def pool_of(node: object) -> Pool | None:
    """The pooling that a node is."""
    match = POOL_NAME.fullmatch(op_of(node))
    if match is None or not isinstance(node, Node):
        return None
    n = int(match["n"])
    kernel = numbers(argument(node, "kernel_size"), n)
    given = argument(node, "stride")
    stride = kernel if given is None or given == [] else numbers(given, n)
    if kernel is None or stride is None:
        return None
    plain = numbers(argument(node, "padding"), n) == (0,) * n
    plain &= argument(node, "ceil_mode") is False
    if match["kind"] == "max":
        plain &= numbers(argument(node, "dilation"), n) == (1,) * n
    elif n > 1:
        plain &= argument(node, "divisor_override") is None
    return Pool(match["kind"], n, tensor_argument(node, "self"), kernel, stride, plain)


def pooled(
    draft: Draft, kind: str, x: Node, kernel: tuple[int, ...], stride: tuple[int, ...]
) -> Node:
    """Add a plain pooling."""
    return draft.call(POOL_OPS[kind, len(kernel)], x, list(kernel), list(stride))


PRODUCT_OPS = ("mm.default", "bmm.default", "matmul.default")


@dataclass(frozen=True)
class Product:
    """`right` is [K, N], or [N, K] where it is `turned`; `batched`: with leading dimensions."""

    left: Node
    right: Node
    bias: Node | None
    turned: bool
    batched: bool

    @property
    def right_n(self) -> int:
        """The dimension of `right` that gives the result's columns."""
        return rank(self.right) - (2 if self.turned else 1)

    @property
    def right_k(self) -> int:
        """The dimension of `right` that is contracted."""
        return rank(self.right) - (1 if self.turned else 2)


def product_of(node: Node) -> Product | None:
    """The product that a node is; None where it is none, or of vectors, or broadcast."""
    name = op_of(node)
    if name == "linear.default":
        left, right, bias = (argument(node, item) for item in ("input", "weight", "bias"))
        made = Product(left, right, bias, True, False)  # type: ignore[arg-type]
        return made if rank(made.right) == 2 and rank(made.left) >= 2 else None
    if name == "addmm.default":
        if argument(node, "beta") != 1 or argument(node, "alpha") != 1:
            return None
        bias = optional_tensor_argument(node, "self")
        if bias is None or rank(bias) != 1:
            return None
        return Product(
            tensor_argument(node, "mat1"), tensor_argument(node, "mat2"), bias, False, False
        )
    if name not in PRODUCT_OPS:
        return None
    left, right = node.args[:2]
    if not floating(left) or not floating(right) or rank(left) < 2 or rank(right) < 2:
        return None
    batched = rank(right) > 2
    if batched and (rank(left) != rank(right) or not _same_batch(left, right)):
        return None
    return Product(left, right, None, False, batched)


def _same_batch(left: Node, right: Node) -> bool:
    pairs = zip(shape(left)[:-2], shape(right)[:-2], strict=True)
    return all(expression(a) == expression(b) for a, b in pairs)


def multiplied(draft: Draft, product: Product, left: Node, right: Node) -> Node:
    """The same kind of product of other operands, without the bias."""
    if product.turned:
        return draft.call(aten.linear.default, left, right)
    return draft.call(aten.matmul.default, left, right)


Kind = Literal["sum", "mean", "amax", "amin"]
TOTALS = {"sum.default": "sum", "mean.default": "mean"}
SUMS = {"sum.dim_IntList": "sum", "mean.dim": "mean"}
EXTREMA = {"amax.default": "amax", "amin.default": "amin"}
WHOLE_EXTREMA = {"max.default": "amax", "min.default": "amin"}
EXTREMA_WITH_PLACE = {"max.dim": "amax", "min.dim": "amin"}
ADAPTIVE = {f"adaptive_avg_pool{n}d.default": n for n in (1, 2, 3)}
ADAPTIVE_MAX = {f"adaptive_max_pool{n}d.default": n for n in (1, 2, 3)}


@dataclass(frozen=True)
class Reduction:
    """`kind` of `x` over `dims` (non-negative, sorted); `keep`: they stay as size 1."""

    kind: Kind
    x: Node
    dims: tuple[int, ...]
    keep: bool

    @property
    def word(self) -> str:
        """For people: `sum`, `mean`, `max`, `min`."""
        return self.kind.removeprefix("a")


def sum_of(node: Node) -> Reduction | None:
    """The sum or mean of floats that a node is; a global average pool counts as a mean."""
    name = op_of(node)
    kind = TOTALS.get(name) or SUMS.get(name)
    if kind is not None:
        if argument(node, "dtype") is not None:
            return None
        dims = argument(node, "dim") if name in SUMS else None
        keep = argument(node, "keepdim") if name in SUMS else False
        return _reduction(kind, node.args[0], dims, keep is True)
    if name in ADAPTIVE:
        spatial = ADAPTIVE[name]
        if numbers(argument(node, "output_size"), spatial) == (1,) * spatial:
            return _reduction("mean", node.args[0], list(range(-spatial, 0)), True)
    return None


def extremum_of(node: Node) -> Reduction | None:
    """The maximum or minimum that a node is: of `max.dim` the values, where no place is read."""
    name = op_of(node)
    if name in EXTREMA:
        return _reduction(
            EXTREMA[name], node.args[0], argument(node, "dim"), argument(node, "keepdim") is True
        )
    if name in WHOLE_EXTREMA:
        return _reduction(WHOLE_EXTREMA[name], node.args[0], None, False)
    source = node.args[0] if name == "getitem" else None
    if isinstance(source, Node) and op_of(source) in EXTREMA_WITH_PLACE:
        if node.args[1] != 0 or not single_user(source):
            return None
        kind = EXTREMA_WITH_PLACE[op_of(source)]
        dim, keep = argument(source, "dim"), argument(source, "keepdim")
        return _reduction(kind, source.args[0], [dim], keep is True)
    return None


def _reduction(kind: str, x: object, dims: object, keep: bool) -> Reduction | None:
    if not floating(x) or rank(x) == 0:
        return None
    listed: Sequence[object] = dims if isinstance(dims, list | tuple) and dims else range(rank(x))
    if isinstance(dims, int):
        listed = [dims]
    found = tuple(sorted(item % rank(x) for item in listed if isinstance(item, int)))
    return Reduction(kind, x, found, keep)  # type: ignore[arg-type]


def reduced(draft: Draft, kind: Kind, x: Node, dims: tuple[int, ...], keep: bool = True) -> Node:
    """Add the reduction of `x` over `dims`; none for no dimensions."""
    if not dims:
        return x
    op = {
        "sum": aten.sum.dim_IntList,
        "mean": aten.mean.dim,
        "amax": aten.amax.default,
        "amin": aten.amin.default,
    }[kind]
    return draft.call(op, x, list(dims), keep)


def input_of(node: Node) -> Node:
    """The first tensor argument."""
    schema = node.target._schema  # type: ignore[union-attr]
    return tensor_argument(node, schema.arguments[0].name)


Verb = Literal["add", "sub", "mul", "div"]
TERM_OPS = {"add": aten.add.Tensor, "sub": aten.sub.Tensor, "mul": aten.mul.Tensor,
       "div": aten.div.Tensor}  # fmt: skip


@dataclass(frozen=True)
class Term:
    """`x` verb `other`, where `x` has the shape and dtype of the result.

    `swapped`: it reads other verb x (only for `sub`: other - x).
    """

    verb: Verb
    x: Node
    other: Node | Number
    swapped: bool = False


def terms_of(node: Node) -> Iterator[Term]:
    """The ways to read a node as x verb other; either operand of a sum or product may be x."""
    if not floating(node) or len(node.args) < 2:
        return
    if base_op(node) == "rsub" and not node.kwargs and len(node.args) == 2:
        if _carries(node, node.args[0]) and _operand(node.args[1]):
            yield Term("sub", node.args[0], node.args[1], swapped=True)  # type: ignore[arg-type]
        return
    if base_op(node) not in TERM_OPS or node.kwargs or len(node.args) > 2:
        return
    if op_of(node).split(".")[-1] not in ("Tensor", "Scalar"):
        return
    verb: Verb = base_op(node)  # type: ignore[assignment]
    left, right = node.args
    if _carries(node, left) and _operand(right):
        yield Term(verb, left, right)  # type: ignore[arg-type]
    if verb != "div" and isinstance(right, Node) and _carries(node, right) and _operand(left):
        yield Term(verb, right, left, swapped=verb == "sub")  # type: ignore[arg-type]


def _operand(value: object) -> bool:
    return is_number(value) or floating(value)


def _carries(node: Node, operand: object) -> bool:
    if not floating(operand) or dtype(operand) != dtype(node) or rank(operand) != rank(node):
        return False
    sizes = zip(shape(operand), shape(node), strict=True)
    return all(expression(a) == expression(b) for a, b in sizes)


def constant_along(other: Node | Number, dims: tuple[int, ...], full: int) -> bool:
    """True where `other`, broadcast to rank `full`, does not change along `dims`."""
    if not isinstance(other, Node):
        return True
    sizes = shape(other)
    missing = full - len(sizes)
    return all(dim < missing or expression(sizes[dim - missing]) == 1 for dim in dims)


def applied(draft: Draft, term: Term, x: Node, other: Node | Number) -> Node:
    """The same operation on another x."""
    op = TERM_OPS[term.verb]
    if not term.swapped:
        return draft.call(op, x, other)
    if isinstance(other, Node):
        return draft.call(op, other, x)
    return draft.call(aten.rsub.Scalar, x, other)


def name_of(value: Node | Number) -> str:
    """An operand for people: of a view, what it looks at."""
    while isinstance(value, Node) and value.target == aten.view.default:
        value = value.args[0]  # type: ignore[assignment]
    return value.name if isinstance(value, Node) else f"{value:g}"
