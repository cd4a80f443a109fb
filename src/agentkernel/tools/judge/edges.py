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
