"""The IR of the compiler: typed nodes of a few primitive operations, with symbolic shapes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeAlias

import sympy
import torch

Expr: TypeAlias = sympy.Expr
Shape = tuple[Expr, ...]
Scalar = int | float | bool
Kind = Literal[
    "input",
    "constant",
    "size",
    "iota",
    "pointwise",
    "reduce",
    "scan",
    "scatter",
    "field",
    "view",
    "library",
]
Attr = object

ONE: Expr = sympy.Integer(1)
REDUCTIONS = ("sum", "prod", "max", "min", "any", "all", "argmax", "argmin", "moments", "expsum",
              "expsums")  # fmt: skip
"""`moments` yields (mean, sum of squared deviations), `expsum` (max, sum of exp(x - max)), and
`expsums` what `ExpSums` says."""
SCANS = ("sum", "prod", "max", "min", "cummax", "cummin", "logsumexp")
"""`cummax` and `cummin` yield (extremum so far, the last place that has it)."""


class UnsupportedOp(Exception):
    """An ATen call that no lowering covers: `op` and why. Caught by the coder, never by users."""

    def __init__(self, op: str, reason: str) -> None:
        super().__init__(f"{op}: {reason}")
        self.op = op
        self.reason = reason


@dataclass(frozen=True, eq=False, repr=False)
class Node:
    """One value. Compared by identity; `GraphBuilder` returns the same node for the same call."""

    kind: Kind
    op: str
    args: tuple[Node, ...]
    dtype: torch.dtype
    shape: Shape
    attrs: tuple[Attr, ...]
    name: str
    origin: str = ""
    """Name of the ATen call that it stems from, e.g. `layer_norm`."""

    def __repr__(self) -> str:
        return f"{self.op}:{self.name}{list(self.shape)}"

    @property
    def root(self) -> Node:
        """The node below all views."""
        return self.args[0].root if self.kind == "view" else self

    @property
    def operands(self) -> tuple[Node, ...]:
        """The arguments that it takes place by place: all but the table of a gather, and what a
        scatter begins with."""
        if self.kind == "scatter":
            return self.args[:2]
        return self.args[:-1] if self.op == "gather" else self.args

    @property
    def computes(self) -> bool:
        """True for what a generated kernel evaluates and a partition must place."""
        return self.kind in ("pointwise", "reduce", "scan", "scatter")


def roots_of(nodes: Iterable[Node]) -> tuple[Node, ...]:
    """What lies below the views of `nodes`, each once."""
    return tuple(dict.fromkeys(node.root for node in nodes))


def compute_dtype(dtype: torch.dtype) -> torch.dtype:
    """The type that arithmetic is done in: fp32 for the narrow floats, else the type itself."""
    return torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype


def numel(shape: Sequence[Expr]) -> Expr:
    """Product of sizes."""
    return sympy.Mul(*shape) if shape else ONE


def same(left: Expr, right: Expr) -> bool:
    """True where both sizes are provably equal."""
    return bool(left == right or sympy.expand(left - right) == 0)


def broadcast(shapes: Sequence[Shape]) -> Shape:
    """The broadcast of shapes by PyTorch's rule; a size is 1 only where it is the literal 1."""
    rank = max((len(shape) for shape in shapes), default=0)
    result: list[Expr] = [ONE] * rank
    for shape in shapes:
        for index, size in enumerate(shape, rank - len(shape)):
            if size != 1 and (
                result[index] == 1 or sympy.count_ops(size) < sympy.count_ops(result[index])
            ):
                result[index] = size
    return tuple(result)


COMPARISONS = frozenset(("eq", "ne", "lt", "le", "gt", "ge", "isnan", "isinf", "logical_not",
                         "logical_and", "logical_or", "logical_xor"))  # fmt: skip


class WeightedSum(NamedTuple):
    """The sum along a row of `weight * (c * (x - max(x)) + ... + value)`.

    All are positions among the arguments of an `expsums`: `centred` holds each x with its c. The
    weight is exp(x - max(x)) of `base`, or the argument `factor`, or 1 where both are None.
    """

    centred: tuple[tuple[int, float], ...]
    value: int | None
    base: int | None
    factor: int | None


class ExpSums(NamedTuple):
    """What an `expsums` gathers: of its first `bases` arguments (max, sum of exp(x - max)) each,
    then the weighted sums."""

    bases: int
    sums: tuple[WeightedSum, ...]


@dataclass
class GraphBuilder:
    """Makes nodes, one for each distinct call: common subexpressions are shared at once."""

    known: dict[tuple[object, ...], Node] = field(default_factory=dict)
    label: str = "value"
    """Name that nodes get by default: the fx node in work."""

    def _make(
        self,
        kind: Kind,
        op: str,
        args: tuple[Node, ...],
        dtype: torch.dtype,
        shape: Shape,
        attrs: tuple[Attr, ...] = (),
        name: str | None = None,
    ) -> Node:
        called = name if kind in ("input", "library") else None
        key = (kind, op, tuple(id(arg) for arg in args), dtype, shape, repr(attrs), called)
        if key not in self.known:
            self.known[key] = Node(
                kind, op, args, dtype, shape, attrs, name or self.label, self.label
            )
        return self.known[key]

    def input(self, name: str, dtype: torch.dtype, shape: Shape) -> Node:
        """A placeholder: a user input or a parameter."""
        return self._make("input", "input", (), dtype, shape, (), name)

    def constant(self, value: Scalar, dtype: torch.dtype = torch.float32) -> Node:
        """A literal scalar. Its type is weak: it takes the type of what it meets."""
        return self._make("constant", "constant", (), dtype, (), (value,))

    def size(self, value: Expr, dtype: torch.dtype = torch.float32) -> Node:
        """A number that follows from the shapes, as a scalar; kernels name it, e.g. `n_cols`."""
        return self._make("size", "size", (), dtype, (), (value,))

    def iota(self, shape: Shape, dim: int) -> Node:
        """The index along `dim` at every place of `shape` (int64)."""
        return self._make("iota", "iota", (), torch.int64, shape, (dim,), "index")

    def pointwise(
        self,
        op: str,
        *operands: Node | Scalar | Expr,
        dtype: torch.dtype | None = None,
        name: str = "",
    ) -> Node:
        """`op` at every place of the broadcast of the operands; of sizes, an expression is one."""
        nodes = tuple(map(self._operand, operands))
        if dtype is None:
            dtype = torch.bool if op in COMPARISONS else _common_dtype(op, nodes)
        shape = broadcast([node.shape for node in nodes])
        return self._make("pointwise", op, nodes, dtype, shape, (), name or None)

    def _operand(self, item: Node | Scalar | Expr) -> Node:
        if isinstance(item, Node):
            return item
        return self.size(item) if isinstance(item, sympy.Expr) else self.constant(item)

    def reduce(
        self, op: str, value: Node, dims: Sequence[int], name: str = "", *, guarded: bool = False
    ) -> Node:
        """Reduce over `dims`; they stay as size 1. Multi-valued kinds are read by `field`.

        A `guarded` expsum takes no infinite maximum out: its sum is inf, 0 or NaN by itself.
        """
        rank = len(value.shape)
        axes = tuple(sorted({dim % rank for dim in dims})) if rank else ()
        if any(value.shape[axis] == 0 for axis in axes):
            raise UnsupportedOp(op, "a reduction over no elements")  # a tile has one or more
        shape = tuple(ONE if index in axes else s for index, s in enumerate(value.shape))
        dtype = compute_dtype(value.dtype)
        if op in ("argmax", "argmin"):
            dtype = torch.int64
        elif op in ("any", "all"):
            dtype = torch.bool
        elif op in ("sum", "prod") and not dtype.is_floating_point:
            dtype = torch.int64
        attrs: tuple[Attr, ...] = (axes, "guarded") if guarded else (axes,)
        return self._make("reduce", op, (value,), dtype, shape, attrs, name or None)

    def exp_sums(self, args: Sequence[Node], axes: tuple[int, ...], sums: ExpSums) -> Node:
        """Several sums of exponentials, and sums weighted by them, over `axes` of `args`, which
        broadcast; they stay as size 1. Read by `field`."""
        shape = broadcast([arg.shape for arg in args])
        kept = tuple(ONE if at in axes else size for at, size in enumerate(shape))
        dtype = compute_dtype(args[0].dtype)
        return self._make("reduce", "expsums", tuple(args), dtype, kept, (axes, sums))

    def scan(self, op: str, value: Node, dim: int, *, reverse: bool = False) -> Node:
        """What `op` makes of the elements up to and with each one along `dim`; with `reverse`, of
        those from it on. Two-valued kinds are read by `part`."""
        if value.shape[dim] == 0:
            raise UnsupportedOp(op, "a scan over no elements")
        attrs = (dim % len(value.shape), reverse)
        return self._make("scan", op, (value,), compute_dtype(value.dtype), value.shape, attrs)

    def scan_like(self, scan: Node, value: Node, *, reverse: bool = False) -> Node:
        """Another scan by what made `scan`, under its name."""
        label, self.label = self.label, scan.origin
        dim = scan.attrs[0]
        assert isinstance(dim, int)
        try:
            return self.scan(scan.op, value, dim, reverse=reverse)
        finally:
            self.label = label

    def field(self, reduced: Node, index: int, name: str) -> Node:
        """Part `index` of a reduction with several results."""
        return self._make(
            "field", "field", (reduced,), reduced.dtype, reduced.shape, (index,), name
        )

    def part(self, call: Node, index: int, dtype: torch.dtype, shape: Shape) -> Node:
        """Result `index` of a library call or a scan that has several."""
        return self._make("field", "field", (call,), dtype, shape, (index,), None)

    def reshape(self, value: Node, shape: Shape) -> Node:
        """The same elements in row-major order under another shape."""
        if len(shape) == len(value.shape) and all(map(same, shape, value.shape)):
            return value
        if (kept := _kept_dimensions(value.shape, shape)) is not None and of_places(value):
            return self._indexed(value, shape, kept)
        return self._make("view", "reshape", (value,), value.dtype, shape, (), value.name)

    def _indexed(self, value: Node, shape: Shape, kept: dict[int, int]) -> Node:
        """An index computation under a shape with other dimensions of size 1, worked out anew:
        two views of one may then meet as a row and a column."""
        if value.kind in ("constant", "size"):
            return value
        if value.kind == "iota":
            dim = value.attrs[0]
            assert isinstance(dim, int)
            return self.iota(shape, kept[dim]) if dim in kept else self.constant(0, torch.int64)
        rank = len(value.shape)
        args = []
        for arg in value.args:
            missing = rank - len(arg.shape)
            own = {
                at: to for at, to in kept.items() if at >= missing and arg.shape[at - missing] != 1
            }
            target = tuple(
                arg.shape[next((at for at, to in own.items() if to == place), 0) - missing]
                if place in own.values()
                else ONE
                for place in range(len(shape))
            )
            args.append(self._indexed(arg, target, {at - missing: to for at, to in own.items()}))
        return self.pointwise(value.op, *args, dtype=value.dtype, name=value.name)

    def permute(self, value: Node, order: Sequence[int]) -> Node:
        """Dimensions in another order."""
        if value.kind == "view" and value.op == "permute":
            inner = [int(place) for place in value.attrs]  # type: ignore[call-overload]
            return self.permute(value.args[0], [inner[place] for place in order])
        if list(order) == list(range(len(order))):
            return value
        shape = tuple(value.shape[index] for index in order)
        return self._make("view", "permute", (value,), value.dtype, shape, tuple(order), value.name)

    def expand(self, value: Node, shape: Shape) -> Node:
        """Broadcast to `shape` explicitly."""
        if len(shape) == len(value.shape) and all(map(same, shape, value.shape)):
            return value
        return self._make("view", "expand", (value,), value.dtype, shape, (), value.name)

    def slice(self, value: Node, dim: int, start: Expr, length: Expr, step: int = 1) -> Node:
        """Every `step`-th element along `dim` from `start`, `length` of them. Of a cast to a wider
        type it is the cast of a slice: what is cut has to be stored, and is so in fewer bytes."""
        inner = value.args[0] if value.op == "cast" else value
        if inner.dtype.itemsize < value.dtype.itemsize and inner.shape == value.shape:
            cut = self.slice(inner, dim, start, length, step)
            return self.pointwise("cast", cut, dtype=value.dtype)
        shape = tuple(length if index == dim else s for index, s in enumerate(value.shape))
        attrs = (dim, start, step)
        return self._make("view", "slice", (value,), value.dtype, shape, attrs, value.name)

    def gather(self, table: Node, index: Node, guard: Node | None = None) -> Node:
        """The element of `table`, as it lies in memory, at each place of `index`; 0 where `guard`
        does not hold, without a read."""
        if guard is None:
            return self._make("pointwise", "gather", (index, table), table.dtype, index.shape)
        shape = broadcast([index.shape, guard.shape])
        if shape != index.shape:
            # An address has to have every dimension of its mask.
            index = self.pointwise("where", guard, index, 0, dtype=torch.int64)
        return self._make("pointwise", "gather", (index, guard, table), table.dtype, shape)

    def scatter(self, index: Node, value: Node, shape: Shape, base: Node | None) -> Node:
        """`base`, or zeros of `shape`, with each element of `value` added at its place of `index`
        in memory, in any order."""
        args = (index, value) if base is None else (index, value, base)
        return self._make("scatter", "scatter", args, value.dtype, shape)

    def library(
        self, op: str, args: Sequence[Node], dtype: torch.dtype, shape: Shape, call: object,
        *marks: str,
    ) -> Node:  # fmt: skip
        """A call that torch serves; `call` is the fx node."""
        return self._make("library", op, tuple(args), dtype, shape, (call, *marks), self.label)


def _kept_dimensions(old: Shape, new: Shape) -> dict[int, int] | None:
    """Where each dimension above 1 goes in a reshape that only adds or drops ones; else None."""
    places = [at for at, size in enumerate(old) if size != 1]
    targets = [at for at, size in enumerate(new) if size != 1]
    if [old[at] for at in places] != [new[at] for at in targets]:
        return None
    return dict(zip(places, targets, strict=True))


MOST_INDEX_OPERATIONS = 16
"""Operations on indices that each view of them repeats."""


def of_places(value: Node, most: float = MOST_INDEX_OPERATIONS) -> bool:
    """True for an index, or at most `most` operations on indices and constants alone."""
    waiting, count = [value], 0
    while waiting:
        node = waiting.pop()
        if node.kind == "pointwise" and node.op != "gather":
            count += 1
            waiting += node.args
        elif node.kind not in ("iota", "constant", "size"):
            return False
    return value.kind != "constant" and count <= most


def _common_dtype(op: str, nodes: tuple[Node, ...]) -> torch.dtype:
    """Type promotion among compute types; constants are weak."""
    strong = [node for node in nodes if node.kind not in ("constant", "size")]
    chosen = strong[1:] if op == "where" and len(strong) > 1 else strong
    types = [compute_dtype(node.dtype) for node in chosen or nodes]
    result = types[0]
    for other in types[1:]:
        result = torch.promote_types(result, other)
    weak_float = any(
        node.kind in ("constant", "size")
        and any(isinstance(value, float) and not math.isnan(value) for value in node.attrs)
        for node in nodes
    )
    if weak_float and not result.is_floating_point:
        result = torch.float32
    return result
