"""Inputs at the edge of what a module takes: zeros of both signs, indices past either end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import torch
    from torch.fx import Node

    from agentkernel.tools.capture import Captured

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
    "bitwise_and", "bitwise_not", "bitwise_or", "bitwise_xor", "clamp", "clamp_max", "clamp_min",
    "clone", "cumsum", "eq", "expand", "flip", "gcd", "ge", "gt", "le", "lt", "max", "maximum",
    "min", "minimum", "mul", "ne", "neg", "permute", "reshape", "select", "sign", "slice",
    "squeeze", "sub", "sum", "t", "_to_copy", "to", "transpose", "unsqueeze", "_unsafe_view",
    "view", "where",
}
BY_NUMBER = {
    "__lshift", "__rshift", "bitwise_left_shift", "bitwise_right_shift", "floor_divide", "fmod",
    "remainder",
}
# fmt: on
"""Operators that take any integer (of those by a number, any first one) and that allocate nothing
by its size: two's complement, as Triton has it too."""
LEAST_CONSTANT, LARGEST_CONSTANT = 1e-3, 1e4
MOST_CONSTANTS = 8


def constants_of(captured: Captured) -> tuple[float, ...]:
    """Numbers that the graph compares with, as far as values of that size make sense."""
    found = [
        float(argument)
        for node in captured.graph.graph.nodes
        if node.op == "call_function" and _name(node) in COMPARING
        for argument in (*node.args, *node.kwargs.values())
        if type(argument) in (int, float)
        and LEAST_CONSTANT <= abs(float(argument)) <= LARGEST_CONSTANT
    ]
    return tuple(dict.fromkeys(found))[:MOST_CONSTANTS]


def wide_inputs(captured: Captured) -> tuple[int, ...]:
    """Positions of the integer inputs that go into exact arithmetic alone: any value makes sense,
    and a kernel that computes in a narrower type than theirs gives itself away."""
    nodes = {node.name: node for node in captured.graph.graph.nodes}
    return tuple(
        position
        for position, name in enumerate(captured.user_inputs)
        if name in nodes and _kind(nodes[name]) == "integer" and _exact_from(nodes[name])
    )


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
            by_number = name in BY_NUMBER and len(user.args) > 1 and type(user.args[1]) is int
            if name not in EXACT and not (by_number and user.args[0] is item):
                return False
            counted = True
            if _kind(user) in ("integer", "other"):
                left.append(user)
    return counted


def _kind(node: Node) -> str:
    """ "integer", "float" or "other", of which truth values are."""
    dtype = getattr(node.meta.get("val"), "dtype", None)
    if dtype is None or str(dtype) == "torch.bool":
        return "other"
    return "float" if dtype.is_floating_point or dtype.is_complex else "integer"


def edged(
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


def signs_show(captured: Captured) -> bool:
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
