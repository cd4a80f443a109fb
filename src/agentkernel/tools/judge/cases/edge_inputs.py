"""Inputs at the edge of a module: signed zeros, indices past either end, ignore_index."""

from __future__ import annotations

import ast
import operator
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Literal

from agentkernel.storage.source_text import parse_source
from agentkernel.tools.judge.cases.patterns import RowStructure
from agentkernel.tools.judge.policy.families import is_library

if TYPE_CHECKING:
    import torch
    from torch.fx import Node

    from agentkernel.tools.problem.capture import Captured


Edge = Literal["", "zeros of both signs", "indices below zero", "indices past the end"]
ADDRESSES = ("index", "gather", "scatter", "embedding", "take")
"""Those by which memory is addressed: a loss picks the class of a target as it likes."""
ZERO_SHARE = 0.125
FAR = 1 << 20
"""What an index past the end is raised by: more rows than any table of a small case has."""
LOOKUPS = (
    "index",
    "gather",
    "scatter",
    "embedding",
    "take",
    "nll_loss",
    "cross_entropy",
    "bincount",
)
"""What the names of ATen operators that take indices hold."""
BY_SIGN: dict[str, tuple[int, ...]] = {
    "div": (1,),
    "reciprocal": (0,),
    "rsqrt": (0,),
    "copysign": (1,),
    "atan2": (0, 1),
    "signbit": (0,),
}
"""Operators by which the sign of a zero shows, and the arguments of which."""
# fmt: off
SIGNED = {
    "abs", "alias", "asin", "asinh", "atan", "atan2", "atanh", "cat", "ceil", "clone",
    "contiguous", "copysign", "cos", "detach", "div", "erf", "exp", "expand", "expm1", "floor",
    "log1p", "mul", "neg", "permute", "reciprocal", "reshape", "round", "rsqrt", "select",
    "sigmoid", "sign", "silu", "sin", "sinh", "slice", "sqrt", "squeeze", "stack", "t", "tan",
    "tanh", "to", "_to_copy", "transpose", "trunc", "unsqueeze", "_unsafe_view", "view", "where",
}
# fmt: on
"""Operators of which IEEE 754 says what sign a zero gets; not so sums, products of matrices and
what picks one of two equal values."""

# fmt: off
COMPARING = {
    "clamp", "clamp_max", "clamp_min", "eq", "ge", "gt", "hardtanh", "le", "leaky_relu", "lt",
    "maximum", "minimum", "ne", "threshold", "where",
}
"""Operators that go another way on either side of a number among their arguments."""
EXACT = {
    "__and", "__or", "__xor", "abs", "add", "alias", "amax", "amin", "_assert_tensor_metadata",
    "bitwise_and", "bitwise_not", "bitwise_or", "bitwise_xor", "cat", "clamp", "clamp_max",
    "clamp_min", "clone", "constant_pad_nd", "cumsum", "diagonal", "eq", "expand", "flip", "gcd",
    "ge", "gt", "le", "lt", "masked_fill", "max", "maximum", "min", "minimum", "mul", "ne", "neg",
    "permute", "repeat", "reshape", "roll", "select", "sign", "slice", "split",
    "split_with_sizes", "squeeze", "stack", "sub", "sum", "t", "_to_copy", "to", "transpose",
    "tril", "triu", "unbind", "unfold", "unsqueeze", "_unsafe_view", "view", "where",
}
POINTING = {"argmax", "argmin", "argsort", "cummax", "cummin", "kthvalue", "max", "min", "sort",
            "topk"}
"""Operators that give places, of the integers that they order: these are small again."""
MOVING = {"gather", "index", "index_select", "masked_select", "take"}
"""Operators that take any integer as the first argument, from where elements are moved."""
FORMS = {
    "alias", "clone", "detach", "expand", "permute", "reshape", "select", "slice", "squeeze", "t",
    "_to_copy", "to", "transpose", "unsqueeze", "_unsafe_view", "view",
}
ELEMENTWISE = {"hardswish", "isclose", "isreal", "rsub"}
BY_NUMBER = {
    "__lshift", "__rshift", "bitwise_left_shift", "bitwise_right_shift", "floor_divide", "fmod",
    "remainder",
}
# fmt: on
"""Operators that take any integer (of those by a number, any first one) and that allocate nothing
by its size: two's complement, as Triton has it too."""
BY_SIZE = {"gcd"}
"""Of the exact ones, those whose kernels loop while a number is left: not asked below zero."""
TELLING = {"eq", "ge", "gt", "isclose", "le", "lt", "maximum", "minimum", "ne"}
"""Operators that compare two tensors."""
ROW_WISE = {"_softmax", "_log_softmax", "softmax", "log_softmax", "logsumexp"}
LEAST_CONSTANT, LARGEST_CONSTANT = 1e-3, 1e4
MOST_CONSTANTS = 8


def constants_of(captured: Captured) -> tuple[float, ...]:
    """Numbers that the graph compares with first, then the fractions that it computes with, as far
    as values of that size make sense."""
    compared, others = [], []
    for node in captured.graph.graph.nodes:
        if node.op != "call_function":
            continue
        for argument in (*node.args, *node.kwargs.values()):
            if type(argument) in (int, float) and _makes_sense(float(argument)):
                if _name(node) in COMPARING:
                    compared.append(float(argument))
                elif type(argument) is float:
                    others.append(argument)
    return tuple(dict.fromkeys((*compared, *others)))[:MOST_CONSTANTS]


def literals_of(source: str) -> tuple[float, ...]:
    """The fractions that a candidate's text names, of both signs: it may go another way there."""
    found = [
        node.value
        for node in ast.walk(parse_source(source))
        if isinstance(node, ast.Constant) and type(node.value) is float
    ]
    some = [x for x in dict.fromkeys(found) if _makes_sense(x)][:MOST_CONSTANTS]
    return tuple(signed for x in some for signed in (x, -x))


def _makes_sense(number: float) -> bool:
    return LEAST_CONSTANT <= abs(number) <= LARGEST_CONSTANT


def row_structure(captured: Captured) -> RowStructure:
    """What the graph does with rows."""
    calls = [node for node in captured.graph.graph.nodes if node.op == "call_function"]
    row_wise = [node for node in calls if _name(node) in ROW_WISE]
    return RowStructure(
        pointwise=all(_is_pointwise(node) for node in calls),
        compared=any(_name(x) in TELLING and len(x.all_input_nodes) > 1 for x in calls),
        of_any_size=bool(row_wise) and not any(is_library(_name(node)) for node in calls),
        dim=_row_dim(row_wise[0]) if row_wise else -1,
    )


def _is_pointwise(node: Node) -> bool:
    import torch

    tags = getattr(node.target, "tags", ())
    return torch.Tag.pointwise in tags or _name(node) in FORMS | ELEMENTWISE


def _row_dim(node: Node) -> int:
    """The dimension that it works along, counted from the last."""
    dim = node.args[1] if len(node.args) > 1 else -1
    dim = dim[0] if isinstance(dim, list | tuple) and dim else dim
    rank = getattr(node.meta.get("val"), "ndim", 0)
    return -1 if not isinstance(dim, int) else dim if dim < 0 else dim - rank if rank else -1


def casts_to_integers(captured: Captured) -> bool:
    """Whether the graph makes integers of floats."""
    import torch

    def kind(node: Node) -> torch.dtype | None:
        return getattr(node.meta.get("val"), "dtype", None)

    for node in captured.graph.graph.nodes:
        if _name(node) in ("_to_copy", "to", "copy") and node.all_input_nodes:
            before, after = kind(node.all_input_nodes[0]), kind(node)
            floats = before is not None and before.is_floating_point
            whole = after is not None and not after.is_floating_point and after != torch.bool
            if floats and whole:
                return True
    return False


def wide_inputs(captured: Captured) -> dict[int, bool]:
    """Positions of the integer inputs that go into exact arithmetic alone: any value makes sense,
    and a kernel that computes in a narrower type than theirs gives itself away. True for those that
    make sense below zero too, whatever the problem's own are."""
    nodes = {node.name: node for node in captured.graph.graph.nodes}
    signed = not any(_name(node) in BY_SIZE for node in nodes.values())
    return {
        position: signed
        for position, name in enumerate(captured.user_inputs)
        if name in nodes and _kind(nodes[name]) == "integer" and _exact_from(nodes[name])
    }


def _exact_from(start: Node) -> bool:
    """Whether all that is made of an integer is exact arithmetic, until it is a float or goes out;
    at least one operator beyond its form."""
    seen: set[Node] = set()
    left = [start]
    counted = False
    while left:
        item = left.pop()
        for user in item.users:
            if user.op == "output" or user in seen:
                continue
            seen.add(user)
            name = _name(user)
            if user.target is operator.getitem:
                # The second of two results says where the first was found.
                if user.args[1] == 0 or _name(item) not in POINTING:
                    left.append(user)
                continue
            by_number = name in BY_NUMBER and len(user.args) > 1 and type(user.args[1]) is int
            first = by_number or name in MOVING or name in POINTING
            if name not in EXACT and not (first and _only_first(user, item)):
                return False
            counted = True
            place = name in POINTING and _kind(user) == "integer" and name.startswith("arg")
            if _kind(user) in ("integer", "other") and not place:
                left.append(user)
    return counted


def _only_first(user: Node, item: Node) -> bool:
    """Whether `item` is the first argument of `user`, and no other one."""
    return (
        bool(user.args)
        and user.args[0] is item
        and user.all_input_nodes.count(item) == 1
        and all(
            item not in (argument if isinstance(argument, list | tuple) else (argument,))
            for argument in user.args[1:]
        )
    )


def _kind(node: Node) -> str:
    """ "integer", "float" or "other", of which truth values are."""
    dtype = getattr(node.meta.get("val"), "dtype", None)
    if dtype is None or str(dtype) == "torch.bool":
        return "other"
    return "float" if dtype.is_floating_point or dtype.is_complex else "integer"


def with_edge(
    values: Sequence[object], edge: Edge, positions: Sequence[int], seed: int
) -> list[object]:
    """`values` at an edge: zeros in floating tensors, indices in the tensors at `positions`."""
    import torch

    found: list[object] = list(values)
    for position, value in enumerate(values):
        if not isinstance(value, torch.Tensor) or value.numel() == 0:
            continue
        if edge == "zeros of both signs" and value.dtype.is_floating_point:
            found[position] = _with_zeros(value, seed + position)
        elif edge == "indices below zero" and position in positions:
            found[position] = -(value + 1)
        elif edge == "indices past the end" and position in positions:
            found[position] = _one_far(value)
    return found


def zero_sign_matters(captured: Captured) -> bool:
    """True where the sign of a zero decides a value, as that of an infinity after a division, and
    nothing before it leaves that sign open."""
    import torch

    met = False
    for node in captured.graph.graph.nodes:
        for place in BY_SIGN.get(_name(node), ()):
            argument = node.args[place] if place < len(node.args) else None
            if not isinstance(argument, torch.fx.Node):
                continue
            if not all(item.op == "placeholder" or _name(item) in SIGNED for item in _up(argument)):
                return False
            met = True
    return met


def index_inputs(captured: Captured) -> tuple[int, ...]:
    """Positions of the integer inputs by which elements are looked up."""
    found: set[str] = set()
    for node in captured.graph.graph.nodes:
        if node.op == "call_function" and any(word in _name(node) for word in ADDRESSES):
            found |= {item.name for item in _up(node) if item.op == "placeholder"}
    return tuple(
        position
        for position, name in enumerate(captured.user_inputs)
        if name in found and _is_integer(captured, name)
    )


def _with_zeros(value: torch.Tensor, seed: int) -> torch.Tensor:
    import torch

    generator = torch.Generator(device=value.device).manual_seed(seed)
    chance = torch.rand(value.shape, generator=generator, device=value.device)
    zero = torch.where(chance < ZERO_SHARE / 2, -0.0, 0.0).to(value.dtype)
    return torch.where(chance < ZERO_SHARE, zero, value)


def _one_far(value: torch.Tensor) -> torch.Tensor:
    import torch

    far = value.clone()
    room = torch.iinfo(value.dtype).max - int(value.max())
    far.view(-1)[-1] += min(FAR, room)
    return far


def _is_integer(captured: Captured, name: str) -> bool:
    node = next(item for item in captured.graph.graph.nodes if item.name == name)
    dtype = getattr(node.meta.get("val"), "dtype", None)
    return dtype is not None and str(dtype) in ("torch.int32", "torch.int64")


def _name(node: Node) -> str:
    """The base name of an operator; "" for what calls none."""
    schema = getattr(node.target, "_schema", None)
    return "" if schema is None else str(schema.name).partition("::")[2].rstrip("_")


def _up(node: Node) -> Iterator[Node]:
    """`node` and all that it is made of."""
    seen: dict[Node, None] = {}
    left = [node]
    while left:
        item = left.pop()
        if item not in seen:
            seen[item] = None
            left += item.all_input_nodes
    return iter(seen)


LOSSES = ("aten::nll_loss", "aten::cross_entropy_loss")
MOST_STEPS = 16


def ignore_index_values(captured: Captured) -> dict[int, int]:
    """Position of the input -> the value that counts for nothing, for targets of a loss."""
    found: dict[int, int] = {}
    for node in captured.graph.graph.nodes:
        schema = getattr(node.target, "_schema", None)
        if schema is None or not schema.name.startswith(LOSSES):
            continue
        given = dict(zip((item.name for item in schema.arguments), node.args, strict=False))
        given |= {
            item.name: item.default_value for item in schema.arguments if item.name not in given
        }
        given |= node.kwargs
        target, ignored = given.get("target"), given.get("ignore_index")
        name = _source(target)
        if name in captured.user_inputs and isinstance(ignored, int):
            found[captured.user_inputs.index(name)] = ignored
    return found


def _source(node: Node | object) -> str:
    """The placeholder that `node` is a view or a cast of; "" for none."""
    for _ in range(MOST_STEPS):
        if getattr(node, "op", "") == "placeholder":
            return str(node.name)  # type: ignore[union-attr]
        inputs = getattr(node, "all_input_nodes", [])
        if len(inputs) != 1:
            return ""
        node = inputs[0]
    return ""
