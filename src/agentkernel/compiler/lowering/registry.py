"""The table from ATen names to lowerings, and the walk that turns an ATen graph into IR."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Literal

import sympy
import torch
from torch import fx
from torch.utils._sympy.functions import (
    FloatTrueDiv,
    FloorDiv,
    FloorToInt,
    IntTrueDiv,
    Mod,
    PythonMod,
    ToFloat,
    TruncToInt,
)

from agentkernel.compiler.attention_match import AttentionCalls, attention_node, served_attention
from agentkernel.compiler.expressions import ROUNDINGS, TRITON_TYPES, symbols_of
from agentkernel.compiler.ir import (
    Expr,
    GraphBuilder,
    Node,
    Scalar,
    Shape,
    UnsupportedOp,
    compute_dtype,
    same,
)
from agentkernel.compiler.lowering.decompositions import decomposition, inputs_of
from agentkernel.tools.problem.capture import Captured

Operand = Node | Scalar
Lowered = Node | tuple[Node | None, ...]
LOWERINGS: dict[str, Callable[..., Lowered]] = {}
OF_PLACES = ("constant", "size", "iota")
"""Values that no kernel reads: they follow from places alone."""
MOST_NESTED = 3
"""Decompositions inside of each other."""


def lowers(*names: str) -> Callable[[Callable[..., Lowered]], Callable[..., Lowered]]:
    """Register a lowering for overloads of ATen, e.g. `relu.default`, or `prims.iota.default`."""

    def register(function: Callable[..., Lowered]) -> Callable[..., Lowered]:
        for name in names:
            LOWERINGS[name if name.startswith("prims.") else f"aten.{name}"] = function
        return function

    return register


ConvolutionForm = Literal["whole", "channels_last", "written_out", "products"]
"""How convolutions are lowered: as calls; as calls on channels-last memory; depthwise ones of few
taps as sums of shifted reads; those whose windows lie apart as products. The others are calls."""


@dataclass
class Lowering:
    """The state of one walk. `b` builds nodes; `call` is the fx node in work."""

    captured: Captured
    b: GraphBuilder = field(default_factory=GraphBuilder)
    values: dict[fx.Node, object] = field(default_factory=dict)
    call: fx.Node | None = None
    convolutions: ConvolutionForm = "whole"
    stepped: bool = False
    """Whether recurrent layers are kernels of ours."""
    depth: int = 0
    """Calls around the one in work, of which it is a part."""

    @property
    def dtype(self) -> torch.dtype:
        """The dtype that eager gives to the (first) result of the call in work."""
        return _first_value(self.call).dtype

    @property
    def shape(self) -> Shape:
        """The shape of the (first) result of the call in work."""
        return shape_of(_first_value(self.call))

    def hint(self, size: Expr) -> int:
        """A size of the call that was captured."""
        return symbols_of(self.captured).hint(size)

    def readers(self, value: Node) -> list[fx.Node]:
        """The calls that read `value`, without those that yield it as it is."""
        same_value = [node for node, item in self.values.items() if item is value]
        users = dict.fromkeys(user for node in same_value for user in node.users)
        return [user for user in users if self.values.get(user) is not value]

    def cast(self, node: Node, dtype: torch.dtype) -> Node:
        """`node` as `dtype`; between floats of one compute type it only names the stored type."""
        if node.dtype == dtype:
            return node
        if node.kind == "constant":
            (value,) = node.attrs
            made = torch.tensor(value, dtype=node.dtype).to(dtype).item()
            return self.b.constant(made, dtype)
        return self.b.pointwise("cast", node, dtype=dtype)

    def rounded(self, node: Node, dtype: torch.dtype) -> Node:
        """`node` as a cast that the module itself makes: one to a 16-bit float drops the digits and
        the range that this type lacks, also where the kernel computes on in fp32."""
        exact = node.dtype in (dtype, torch.bool, torch.int8, torch.uint8)
        if exact or dtype not in ROUNDINGS or node.kind == "constant":
            return self.cast(node, dtype)
        if compute_dtype(node.dtype) != torch.float32:
            node = self.cast(node, torch.float32)  # as c10::Half and c10::BFloat16
        return self.b.pointwise(ROUNDINGS[dtype], node, dtype=dtype)

    def compute(self, node: Node) -> Node:
        """`node` in the float type that arithmetic is done in."""
        dtype = compute_dtype(node.dtype)
        return self.cast(node, dtype if dtype.is_floating_point else torch.float32)

    def library(self) -> Lowered:
        """Leave the call in work to torch; one node a result. Raises UnsupportedOp for a part of
        another call, which is then left to torch itself."""
        args = self._operands()
        assert self.call is not None
        values = self.call.meta["val"]
        op = str(self.call.target)
        if isinstance(values, torch.Tensor):
            return self.b.library(op, args, values.dtype, shape_of(values), self.call)
        first = _first_value(self.call)
        node = self.b.library(op, args, first.dtype, shape_of(first), self.call)
        return tuple(
            self.b.part(node, index, value.dtype, shape_of(value))
            if isinstance(value, torch.Tensor)
            else None
            for index, value in enumerate(values)
        )

    def library_node(self, first: Node, shape: Shape, mark: str) -> Node:
        """The call in work with another first operand, and a result of another shape; `mark` says
        to whoever writes the call what they stand for."""
        args = (first, *self._operands()[1:])
        assert self.call is not None
        return self.b.library(str(self.call.target), args, self.dtype, shape, self.call, mark)

    def _operands(self) -> list[Node]:
        """What the call in work takes, as torch can read it."""
        assert self.call is not None
        if self.depth:
            raise UnsupportedOp(str(self.call.target), "no lowering")
        return [self._stored(item) for item in tensor_operands(self.call)]

    def _stored(self, operand: fx.Node) -> Node:
        """An operand that torch can read: what follows from places alone is computed for it."""
        value = self.values[operand]
        if not isinstance(value, Node):
            raise UnsupportedOp(str(operand.target), "an operand that is no tensor")
        if value.root.kind not in OF_PLACES:
            return value
        made = operand.meta["val"]
        whole = self.b.expand(self.b.reshape(value, _padded(value.shape, made)), shape_of(made))
        return self.written_out(whole, operand.name)

    def written_out(self, node: Node, name: str = "") -> Node:
        """`node` as a tensor in memory, also where it follows from places alone: a library call
        reads nothing else."""
        if node.root.kind not in OF_PLACES:
            return node
        return self.b.pointwise("copy", node, dtype=node.dtype, name=name)


def _padded(shape: Shape, like: torch.Tensor) -> Shape:
    """`shape` with as many dimensions as `like` has, ones in front."""
    return (*(sympy.Integer(1),) * (like.dim() - len(shape)), *shape)


def tensor_operands(call: fx.Node) -> list[fx.Node]:
    """The operands of a call that are tensors, each once, in the order of its arguments."""
    return [item for item in call.all_input_nodes if isinstance(item.meta.get("val"), torch.Tensor)]


@dataclass(frozen=True)
class LoweredGraph:
    """IR of a whole forward. `outputs` follow `captured.outputs`, without the None entries and the
    numbers that follow from the sizes; then come `captured.written`."""

    outputs: tuple[Node, ...]
    output_names: tuple[str, ...]
    inputs: dict[str, Node]
    calls: Mapping[Node, fx.Node] = field(default_factory=dict)
    """A value -> the node of the captured graph with the same elements in the same order, for
    values that have one."""


def lower(
    captured: Captured, attention: bool = True, *, convolutions: ConvolutionForm = "whole",
    stepped: bool = False,
) -> LoweredGraph:  # fmt: skip
    """Turn the captured graph into IR. Raises UnsupportedOp for what has no form here.

    With `attention`, attention is one node; without, it stays as it is written out. `stepped`,
    recurrent layers are steps through time; else calls.
    """
    state = Lowering(captured, convolutions=convolutions, stepped=stepped)
    calls = served_attention(captured.graph.graph) if attention else AttentionCalls({}, frozenset())
    inputs: dict[str, Node] = {}
    free = {item.symbol for item in captured.free_dims}
    for node in captured.graph.graph.nodes:
        state.call = node
        _check_values(node, free)
        if node.op == "placeholder":
            value = node.meta.get("val")
            if isinstance(value, torch.Tensor):
                _check_readable(captured, node)
                made = state.b.input(node.name, value.dtype, shape_of(value))
                inputs[node.name] = made
                state.values[node] = made
        elif node.op == "call_function" and not _only_asserts(node):
            state.b.label = _label(node)
            if node in calls.by_result:
                state.values[node] = attention_node(state.b, calls.by_result[node], state.values)
            elif node not in calls.inner and not isinstance(node.meta.get("val"), torch.SymFloat):
                state.values[node] = _lower_call(state, node)
        elif node.op == "get_attr" and isinstance(
            getattr(captured.graph, str(node.target), None), fx.GraphModule
        ):
            called = next(iter(node.users), node)
            raise UnsupportedOp(f"torch.{called.target}", "which of its parts runs depends on data")
        elif node.op == "get_attr":
            raise UnsupportedOp(str(node.target), "a tensor made inside forward")
    by_name = {node.name: value for node, value in state.values.items()}
    returned = [name for name in captured.computed if not _is_number(by_name[name])]
    names = (*returned, *captured.written)
    plain = {node.name: _lies_plain(node.meta.get("val")) for node in state.values}
    read = {node.name: len(node.users) > 1 for node in state.values}
    outputs = tuple(
        _output(state, by_name[name], name, plain=plain[name], read=read[name]) for name in names
    )
    return LoweredGraph(outputs, names, inputs, _calls(state))


def _calls(state: Lowering) -> dict[Node, fx.Node]:
    found: dict[Node, fx.Node] = {}
    for node, value in state.values.items():
        tensor = node.meta.get("val")
        if node.graph is not state.captured.graph.graph or not isinstance(value, Node):
            continue
        while value.kind == "view" and value.op == "reshape":
            value = value.args[0]
        if isinstance(tensor, torch.Tensor) and tensor.dtype == value.dtype:
            found.setdefault(value, node)
    return found


def _check_values(node: fx.Node, free: Container[str]) -> None:
    """Raise UnsupportedOp for a size that no input has."""
    for value in _values(node) if node.op in ("placeholder", "call_function") else ():
        symbols = {str(item) for size in shape_of(value) for item in size.free_symbols}
        if any(item.startswith("u") and item not in free for item in symbols):
            raise UnsupportedOp(str(node.target), "the size of its result depends on data")


def _only_asserts(node: fx.Node) -> bool:
    """True for what the exporter adds to check dtypes and sizes: no value, no reader."""
    return "val" not in node.meta and not node.users


def _check_readable(captured: Captured, node: fx.Node) -> None:
    path = captured.constants.get(node.name)
    written = path in captured.literals
    if path is not None and path.startswith("lifted_tensor") and node.users and not written:
        raise UnsupportedOp(node.name, "a tensor constant made inside forward")


def _is_number(value: object) -> bool:
    return isinstance(value, sympy.Expr | int | float)


def _lies_plain(value: object) -> bool:
    return isinstance(value, torch.Tensor) and value.is_contiguous()


def _output(state: Lowering, value: object, name: str, *, plain: bool, read: bool) -> Node:
    """What is stored for an output; `plain`, eager's lies contiguously in memory, as all that
    kernels read does: one that is `read` too and lies otherwise is stored for its readers besides,
    where these are other kernels."""
    if not isinstance(value, Node):
        raise UnsupportedOp(name, "an output that is no tensor")
    given = value.root.kind in ("input", *OF_PLACES)
    given = given or (value.root.kind == "field" and value.root.args[0].kind in ("reduce", "scan"))
    if (
        given
        or (value.kind == "view" and value.root.kind in ("library", "field", "scatter"))
        or (value.kind == "scatter" and not plain)
        or (value.kind == "pointwise" and read and not plain)
        or _sliced(value)
    ):
        return state.b.pointwise("copy", value, dtype=value.dtype, name=name)
    return value


def _sliced(value: Node) -> bool:
    """A part of a value: only what is stored whole can be cut."""
    while value.kind == "view":
        if value.op == "slice":
            return True
        value = value.args[0]
    return False


def _lower_call(state: Lowering, node: fx.Node) -> object:
    if node.target is operator.getitem:
        source = node.args[0]
        assert isinstance(source, fx.Node)
        parts = state.values[source]
        index = node.args[1]
        if not isinstance(parts, tuple) or not isinstance(index, int):
            raise UnsupportedOp("getitem", "an unknown source")
        return parts[index]
    value = node.meta.get("val")
    if isinstance(value, torch.SymInt | int | float | bool):
        return _plain(state, value)
    name = str(node.target)
    function = LOWERINGS.get(name)
    if _foreign(node):
        return state.library()
    if function is None:
        return _in_parts(state, node)
    args, kwargs = _mapped(state, node)
    try:
        result = function(state, *args, **kwargs)
    except UnsupportedOp:
        return _in_parts(state, node)
    if isinstance(result, Node) and isinstance(value, torch.Tensor):
        if result.kind == "constant" and value.dim():
            result = state.b.expand(state.b.reshape(result, _padded((), value)), shape_of(value))
        _check_shape(result, value, name)
        result = state.cast(result, value.dtype)
    return result


def _in_parts(state: Lowering, call: fx.Node) -> Lowered:
    """The call as the operators that PyTorch decomposes it to; as a whole left to torch where one
    of these has no lowering."""
    sizes = {item.symbol: item.size for item in state.captured.free_dims}
    graph = decomposition(call, LOWERINGS.keys(), sizes) if state.depth < MOST_NESTED else None
    if graph is None:
        return state.library()
    state.depth += 1
    try:
        result = _lower_parts(state, call, graph)
    except UnsupportedOp:
        result = None
    state.depth, state.call = state.depth - 1, call
    return state.library() if result is None else result


def _lower_parts(state: Lowering, call: fx.Node, graph: fx.Graph) -> Lowered:
    """Lower the decomposition of a call. Raises UnsupportedOp."""
    given = iter([_argument(state, item) for item in inputs_of(call)])
    for node in graph.nodes:
        state.call = node
        if node.op == "placeholder":
            state.values[node] = next(given)
        elif node.op == "output":
            (found,) = node.args
            listed = found if isinstance(found, tuple | list) else (found,)
            results = [None if item is None else state.values[item] for item in listed]
            made = [_part(state, *pair) for pair in zip(results, _results(call), strict=True)]
            return tuple(made) if isinstance(found, tuple | list) else _only(made)
        elif not isinstance(node.meta.get("val"), torch.SymFloat):
            state.values[node] = _lower_call(state, node)
    raise UnsupportedOp(str(call.target), "a decomposition without a result")


def _only(values: list[Node | None]) -> Node:
    (value,) = values
    assert value is not None
    return value


def _part(state: Lowering, result: object, value: object) -> Node | None:
    """A result of a decomposition as the type that eager gives, in eager's shape."""
    if result is None or not isinstance(value, torch.Tensor):
        return None
    shape = shape_of(value)
    if not isinstance(result, Node) or len(result.shape) != len(shape):
        raise UnsupportedOp("decomposition", "another result than eager's")
    if not all(map(same, result.shape, shape)):
        raise UnsupportedOp("decomposition", "another shape than eager's")
    return state.cast(result, value.dtype)


def _results(call: fx.Node) -> Sequence[object]:
    value = call.meta["val"]
    return value if isinstance(value, tuple | list) else (value,)


def _foreign(node: fx.Node) -> bool:
    """True for a call on tensors of a type that no kernel has, such as complex numbers."""
    tensors = [value for item in (node, *node.all_input_nodes) for value in _values(item)]
    return any(value.dtype not in TRITON_TYPES for value in tensors)


def _values(node: fx.Node) -> list[torch.Tensor]:
    found = node.meta.get("val")
    listed = found if isinstance(found, tuple | list) else (found,)
    return [value for value in listed if isinstance(value, torch.Tensor)]


def _check_shape(result: Node, value: torch.Tensor, name: str) -> None:
    expected = shape_of(value)
    if len(expected) != len(result.shape):
        raise UnsupportedOp(name, f"lowered to rank {len(result.shape)}, eager has {len(expected)}")


def _mapped(state: Lowering, node: fx.Node) -> tuple[list[object], dict[str, object]]:
    args = [_argument(state, item) for item in node.args]
    kwargs = {key: _argument(state, item) for key, item in node.kwargs.items()}
    return args, kwargs


def _argument(state: Lowering, value: object) -> object:
    if isinstance(value, fx.Node):
        return (
            state.values[value] if value in state.values else _plain(state, value.meta.get("val"))
        )
    if isinstance(value, list | tuple):
        return [_argument(state, item) for item in value]
    return _plain(state, value)


def _plain(state: Lowering, value: object) -> object:
    if isinstance(value, torch.SymInt):
        found = rounded_up(value.node.expr)
        return int(found) if found.is_number else found
    if isinstance(value, torch.SymFloat):
        return _of_sizes(state.b, value.node.expr)
    if isinstance(value, torch.SymBool):
        raise UnsupportedOp("sym_bool", "a choice by sizes")
    return value


def _of_sizes(b: GraphBuilder, value: Expr) -> Node:
    """A float that is computed from sizes, in fp32: a ratio of sizes, and sums and products."""
    if value.is_number:
        return b.constant(float(value))
    if isinstance(value, ToFloat) or value.is_integer:
        return b.size(value.args[0] if isinstance(value, ToFloat) else value)
    if isinstance(value, IntTrueDiv | FloatTrueDiv):
        return b.pointwise("div", *(_of_sizes(b, item) for item in value.args), dtype=torch.float32)
    if isinstance(value, sympy.Add | sympy.Mul):
        op = "add" if isinstance(value, sympy.Add) else "mul"
        parts = [_of_sizes(b, item) for item in value.args]
        combine = lambda x, y: b.pointwise(op, x, y, dtype=torch.float32)  # noqa: E731
        return functools.reduce(combine, parts)
    raise UnsupportedOp("sym_float", f"{value.func.__name__} of sizes")


def _first_value(node: fx.Node | None) -> torch.Tensor:
    assert node is not None
    value = node.meta["val"]
    found = value[0] if isinstance(value, tuple | list) else value
    assert isinstance(found, torch.Tensor)
    return found


def _label(node: fx.Node) -> str:
    stem = node.name.rstrip("0123456789").rstrip("_")
    return stem or node.name


def to_expr(size: object) -> Expr:
    """A size of a meta tensor as a sympy expression."""
    if isinstance(size, torch.SymInt):
        return rounded_up(size.node.expr)
    if isinstance(size, sympy.Expr):
        return rounded_up(size)
    assert isinstance(size, int)
    return sympy.Integer(size)


@functools.cache
def rounded_up(size: Expr) -> Expr:
    """A size that is padded to a multiple of n, n * ((s + n - 1) // n) in place of
    s + (n - s % n) % n: so it is known to be divisible by n. One that a float scales, as
    `scale_factor=1.5` does, is one of whole numbers, since kernels have no other."""
    size = whole_sizes(size)
    if size.has(ToFloat):
        raise UnsupportedOp("sym_float", "a size that a float scales and rounds")
    found: dict[Expr, Expr] = {}
    for outer in size.atoms(Mod, PythonMod):
        inside, step = outer.args
        for inner in inside.atoms(Mod, PythonMod):
            padded, other = inner.args
            if other == step and sympy.expand(inside - step + inner) == 0:
                found[outer] = step * FloorDiv(padded + step - 1, step) - padded
    return sympy.expand(size.xreplace(found)) if found else size


MOST_PARTS = 1 << 10
"""Largest denominator of a scale; a float such as 0.3 has a larger one, and rounds."""


def whole_sizes(expression: sympy.Basic) -> sympy.Basic:
    """An expression of sizes, or a relation, where products of sizes and floats that are rounded
    down are quotients of whole numbers: `3 * s // 2`; as it is where the float has no such form."""

    def whole(outer: Expr) -> Expr:
        factor, inner = outer.args[0].as_coeff_Mul()
        ratio = Fraction(float(factor))
        if not isinstance(inner, ToFloat) or ratio < 0 or ratio.denominator > MOST_PARTS:
            return outer
        up, down = sympy.Integer(ratio.numerator), sympy.Integer(ratio.denominator)
        return up * inner.args[0] if down == 1 else FloorDiv(up * inner.args[0], down)

    return expression.replace(lambda item: isinstance(item, TruncToInt | FloorToInt), whole)


def shape_of(value: torch.Tensor) -> Shape:
    """Sizes of a meta tensor."""
    return tuple(to_expr(size) for size in value.shape)


def dims_of(dims: object, rank: int) -> tuple[int, ...]:
    """ATen's dim argument (None, int or list; empty means all) as non-negative positions."""
    if dims is None or (isinstance(dims, list) and not dims):
        return tuple(range(rank))
    listed: Sequence[object] = dims if isinstance(dims, list) else [dims]
    return tuple(sorted(int(dim) % max(rank, 1) for dim in listed))  # type: ignore[call-overload]
