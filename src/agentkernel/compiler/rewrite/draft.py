"""A captured graph being edited, each step reversible, and the record of the steps kept.

Also here: reading a node's operator, arguments and sizes, and the values that rules return.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeGuard

import sympy
import torch
from torch._dispatch.python import enable_python_dispatcher
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx import Graph, Node

from agentkernel.tools.roofline.op_cost import SizeOf

if TYPE_CHECKING:
    from agentkernel.tools.problem.capture import Captured


Number = int | float
END = 9223372036854775807
"""`slice` to the end, as exported graphs write it."""
NARROW = (torch.float16, torch.bfloat16)


def op_of(node: object) -> str:
    """`linear.default` for a call of ATen's linear, `getitem`, or "" for anything else."""
    if not isinstance(node, Node) or node.op != "call_function":
        return ""
    if node.target is operator.getitem:
        return "getitem"
    name = str(node.target)
    return name.removeprefix("aten.") if name.startswith("aten.") else ""


def base_op(node: object) -> str:
    """The op without its overload: `linear`."""
    return op_of(node).split(".")[0]


def argument(node: Node, name: str) -> object:
    """An argument of an ATen call by its name in the schema, or its default there."""
    schema = node.target._schema  # type: ignore[union-attr]
    for index, item in enumerate(schema.arguments):
        if item.name == name:
            if not item.kwarg_only and index < len(node.args):
                return node.args[index]
            return node.kwargs.get(name, item.default_value if item.has_default_value() else None)
    raise KeyError(f"{node.target} has no argument {name!r}. Known: {schema}. Check the rule.")


def tensor_argument(node: Node, name: str) -> Node:
    """A tensor argument that must be there."""
    found = argument(node, name)
    assert isinstance(found, Node)
    return found


def optional_tensor_argument(node: Node, name: str) -> Node | None:
    """A tensor argument that may be missing."""
    found = argument(node, name)
    return found if isinstance(found, Node) else None


def numbers(value: object, rank: int) -> tuple[int, ...] | None:
    """A list of `rank` static ints; one int, or a list of one, stands for all."""
    listed = list(value) if isinstance(value, list | tuple) else [value]
    items = [item for item in listed if isinstance(item, int) and not isinstance(item, bool)]
    if len(items) != len(listed):
        return None
    full = items * rank if len(items) == 1 else items
    return tuple(full) if len(full) == rank else None


def is_number(value: object) -> TypeGuard[Number]:
    """True for a Python number that is no bool."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def tensor(node: object) -> torch.Tensor | None:
    """The fake tensor that a node stands for; None for sizes, tuples and non-nodes."""
    value = node.meta.get("val") if isinstance(node, Node) else None
    return value if isinstance(value, torch.Tensor) else None


def shape(node: Node) -> tuple[int | torch.SymInt, ...]:
    """The sizes of a node's tensor."""
    value = tensor(node)
    assert value is not None
    return tuple(value.shape)


def rank(node: Node) -> int:
    """The number of dimensions of a node's tensor."""
    return len(shape(node))


def dtype(node: Node) -> torch.dtype:
    """The dtype of a node's tensor."""
    value = tensor(node)
    assert value is not None
    return value.dtype


def floating(node: object) -> TypeGuard[Node]:
    """True for a node that is a tensor of floats."""
    value = tensor(node)
    return value is not None and value.dtype.is_floating_point


def static(size: object) -> int | None:
    """A size as an int where it is the same in every call; never asks, so never guards."""
    if isinstance(size, torch.SymInt):
        found = size.node.expr
        return int(found) if found.is_number else None
    return size if isinstance(size, int) else None


def static_sizes(node: Node, dims: tuple[int, ...]) -> tuple[int, ...] | None:
    """The sizes of these dimensions where all of them are static."""
    found = [static(shape(node)[dim]) for dim in dims]
    return None if any(size is None for size in found) else tuple(int(size or 0) for size in found)


def expression(size: object) -> sympy.Expr:
    """A size as a sympy expression."""
    return size.node.expr if isinstance(size, torch.SymInt) else sympy.sympify(size)


def same_shape(left: Node, right: Node) -> bool:
    """True where both tensors have provably the same sizes."""
    one, two = shape(left), shape(right)
    return len(one) == len(two) and all(
        expression(a) == expression(b) for a, b in zip(one, two, strict=True)
    )


def single_user(node: Node) -> bool:
    """True where only one node reads this one."""
    return len(node.users) == 1


aten = torch.ops.aten
Size = int | Node
"""A size in the making: known, or the node that computes it."""


@dataclass
class Draft:
    """The working copy. Rules add nodes with `call`; nothing is erased before a step is kept.

    `fixed` names the placeholders of parameters, buffers and constants; `infinities` asks for
    rewrites that keep NaN and infinities where eager has them.
    """

    graph: Graph
    fixed: frozenset[str]
    size_of: SizeOf
    infinities: bool = True
    added: list[Node] = field(default_factory=list)
    ranges: dict[Node, tuple[float, float]] = field(default_factory=dict)
    """What is known of the values of a node; filled by `intervals`."""
    _parametric: dict[Node, bool] = field(default_factory=dict)

    def call(self, op: Callable[..., object], *args: object, **kwargs: object) -> Node:
        """Add a call where the graph's insertion point is, with the fake value of its result.

        As in tracing, operators in C++ that know no free size give way to those in Python. They
        would take each size for the number that it stands for, in the whole captured graph and for
        good: tracing is over, and no guard tells (pytorch/pytorch#182940).
        """
        node = self.graph.call_function(op, args, kwargs)  # type: ignore[arg-type]
        self.added.append(node)
        given = [_fake(item) for item in args]
        named = {key: _fake(item) for key, item in kwargs.items()}
        with self._mode(), enable_python_dispatcher(), torch.no_grad():
            node.meta["val"] = op(*given, **named)
        return node

    def _mode(self) -> FakeTensorMode:
        for node in self.graph.nodes:
            value = node.meta.get("val")
            if isinstance(value, FakeTensor):
                return value.fake_mode
        raise ValueError("The graph has no fake tensor. Expected one that capture() made.")

    def size(self, node: Node, dim: int) -> Size:
        """A size of a tensor: a number where it is static, else a node."""
        known = static(shape(node)[dim])
        return self.call(aten.sym_size.int, node, dim) if known is None else known

    def arithmetic(self, op: Callable[[int, int], int], left: Size, right: Size) -> Size:
        """`op` on sizes, computed now where both are known."""
        if isinstance(left, int) and isinstance(right, int):
            return op(left, right)
        return self.call(op, left, right)

    def product(self, sizes: list[Size]) -> Size:
        """The product of sizes."""
        result: Size = 1
        for item in sizes:
            result = item if result == 1 else self.arithmetic(operator.mul, result, item)
        return result

    def wide(self, node: Node) -> Node:
        """`node` in fp32 where it is narrower: folded weights keep their digits."""
        return self.cast(node, torch.float32) if dtype(node) in NARROW else node

    def cast(self, node: Node, wanted: torch.dtype) -> Node:
        """`node` as `wanted`."""
        if dtype(node) == wanted:
            return node
        return self.call(aten._to_copy.default, node, dtype=wanted)

    def squeeze(self, node: Node, dims: tuple[int, ...], keep: bool) -> Node:
        """Drop reduced dimensions of size 1, unless they are kept."""
        return node if keep or not dims else self.call(aten.squeeze.dims, node, list(dims))

    def parametric(self, node: object) -> bool:
        """True where a value follows from parameters, buffers and numbers alone.

        Such values are taken to be finite; user inputs may be anything.
        """
        if not isinstance(node, Node):
            return True
        if node not in self._parametric:
            if node.op == "placeholder":
                answer = node.name in self.fixed
            else:
                answer = node.op == "call_function" and not is_random(node)
                answer = answer and all(map(self.parametric, node.all_input_nodes))
            self._parametric[node] = answer
        return self._parametric[node]

    @contextmanager
    def before(self, node: Node) -> Iterator[None]:
        """Calls inside are inserted before `node`."""
        self.added.clear()
        with self.graph.inserting_before(node):
            yield

    def discard(self) -> None:
        """Erase what was added since the last `before`; nothing else may read it."""
        for node in reversed(self.added):
            self.graph.erase_node(node)
            self._parametric.pop(node, None)
            self.ranges.pop(node, None)
        self.added.clear()


def _fake(value: object) -> object:
    """An argument with each node as its fake value."""
    if isinstance(value, list | tuple):
        return [_fake(item) for item in value]
    return value.meta["val"] if isinstance(value, Node) else value


@dataclass
class Swap:
    """New nodes in the place of old ones, with the way back."""

    saved: list[tuple[Node, tuple[object, ...], dict[str, object]]]

    def undo(self) -> None:
        """Give every reader its old arguments."""
        for user, args, kwargs in reversed(self.saved):
            user.args, user.kwargs = args, kwargs  # type: ignore[assignment]


def swap(replaced: Mapping[Node, Node], added: list[Node]) -> Swap:
    """Let the readers of each old node, but not the `added` ones, read the new one."""
    result = Swap([])
    for old, new in replaced.items():
        for user in list(old.users):
            if user not in added:
                result.saved.append((user, user.args, dict(user.kwargs)))
                user.replace_input_with(old, new)
    return result


def is_random(node: Node) -> bool:
    """True for a call that draws random numbers: never equal to another, never dropped."""
    tags = getattr(node.target, "tags", ())
    return torch.Tag.nondeterministic_seeded in tags


def erase_dead(graph: Graph) -> tuple[str, ...]:
    """Erase calls that nothing reads and that only compute; returns their names."""
    gone: list[str] = []
    for node in reversed(list(graph.nodes)):
        if node.op == "call_function" and not node.users and _only_computes(node):
            gone.append(node.name)
            graph.erase_node(node)
    return tuple(reversed(gone))


def _only_computes(node: Node) -> bool:
    schema = getattr(node.target, "_schema", None)
    mutable = schema is not None and schema.is_mutable
    return "val" in node.meta and not mutable and not is_random(node)


FLOPS_PER_BYTE = 12
"""Operations that take as long as moving a byte: 51 TFLOP/s (fp32 cuBLAS) over a copy of 4.3 TB/s,
both measured on an H200."""


@dataclass(frozen=True)
class Cost:
    """What a graph does if each op is one launch: operations, and bytes read and written."""

    flops: int
    bytes_moved: int

    @property
    def units(self) -> float:
        """One figure to compare by: bytes, with operations at their worth in bytes."""
        return self.bytes_moved + self.flops / FLOPS_PER_BYTE


@dataclass(frozen=True)
class Step:
    """One application of a rule: `removed` nodes gave way to `added` ones."""

    rule: str
    derivation: str
    removed: tuple[str, ...]
    added: tuple[str, ...]
    before: Cost
    after: Cost


@dataclass(frozen=True)
class Rewritten:
    """A graph with the same inputs and outputs, and the steps that led to it, in order.

    `degenerate` lists positions in `captured.outputs` whose value is the same for every finite
    input. `complete` is False where the bound on the steps ended the search.
    """

    captured: Captured
    steps: tuple[Step, ...]
    degenerate: tuple[int, ...]
    before: Cost
    after: Cost
    complete: bool = True


@dataclass(frozen=True)
class Change:
    """What a rule proposes: each old node's value from now on, and the line that says why."""

    derivation: str
    replaced: dict[Node, Node]


@dataclass(frozen=True)
class Rule:
    """`apply` looks at one node, adds nodes before it and says what they replace, or None.

    `finite_only`: right for finite values alone; infinities may turn up where eager has NaN.
    """

    name: str
    apply: Callable[[Draft, Node], Change | None]
    finite_only: bool = False
