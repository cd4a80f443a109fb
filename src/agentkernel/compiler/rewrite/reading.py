"""What does a node of a captured graph say: its op, its arguments, its sizes?"""

from __future__ import annotations

import operator
from typing import TypeGuard

import sympy
import torch
from torch.fx import Node

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
