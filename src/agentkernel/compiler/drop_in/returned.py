"""What a forward returns, as text: tuples, lists, dicts, named tuples and dataclasses."""

from __future__ import annotations

import collections
from collections.abc import Iterator
from dataclasses import is_dataclass
from typing import TYPE_CHECKING, cast

import torch

from agentkernel.compiler.ir import UnsupportedOp
from agentkernel.tools.problem.structures import class_label

if TYPE_CHECKING:
    from torch.utils._pytree import TreeSpec


def returned_classes(tree: TreeSpec) -> tuple[type, ...]:
    """The dataclasses and named tuples in `tree`, each once: a drop-in has to make them."""
    found = [] if tree.is_leaf() else [_class(tree)]
    for child in tree.children():
        found += returned_classes(child)
    return tuple(item for item in dict.fromkeys(found) if item is not None)


def returned_text(tree: TreeSpec, leaves: Iterator[str]) -> str:
    """The expression that makes `tree` of these leaves. Raises Uncovered for what no file can."""
    if tree.is_leaf():
        return next(leaves)
    kind, made = tree.type, _class(tree)
    inner = [returned_text(child, leaves) for child in tree.children()]
    if made is not None and is_dataclass(made):
        filled, empty = cast("tuple[list[str], list[str]]", tree.context)
        given = [f"{name}={item}" for name, item in zip(filled, inner, strict=True)]
        return f"{made.__name__}({', '.join([*given, *(f'{name}=None' for name in empty)])})"
    if made is not None:
        return f"{made.__name__}({', '.join(inner)})"
    if kind is dict:
        keys = cast("list[object]", tree.context)
        pairs = (f"{key!r}: {item}" for key, item in zip(keys, inner, strict=True))
        return f"{{{', '.join(pairs)}}}"
    if kind is list:
        return f"[{', '.join(inner)}]"
    if _is_torch(kind):
        return f"torch.return_types.{cast('type', kind).__name__}(({', '.join(inner)}))"
    if kind is torch.Size:
        return f"torch.Size([{', '.join(inner)}])"
    if kind is not tuple:
        name = class_label(cast("type", kind))
        raise UnsupportedOp(
            "output", f"it returns an object of {name}, which a drop-in cannot make"
        )
    return f"({', '.join(inner)}{',' if len(inner) == 1 else ''})"


def returned_paths(tree: TreeSpec, path: str = "") -> Iterator[str]:
    """What follows a returned value to reach each leaf: `[0].hidden["y"]`."""
    if tree.is_leaf():
        yield path
        return
    made = _class(tree)
    steps: list[str]
    if made is not None and is_dataclass(made):
        steps = [f".{name}" for name in cast("tuple[list[str], list[str]]", tree.context)[0]]
    elif tree.type is dict:
        steps = [f"[{key!r}]" for key in cast("list[object]", tree.context)]
    else:
        steps = [f"[{index}]" for index in range(len(tree.children()))]
    for step, child in zip(steps, tree.children(), strict=True):
        yield from returned_paths(child, path + step)


def _class(tree: TreeSpec) -> type | None:
    kind = tree.type
    if kind is collections.namedtuple:
        return cast("type", tree.context)
    if isinstance(kind, type) and is_dataclass(kind) and not issubclass(kind, dict):
        return kind
    return None


def _is_torch(kind: object) -> bool:
    """Named results, such as those of `max`: torch makes them of a tuple."""
    return getattr(kind, "__module__", "") == "torch.return_types"


__all__ = ["returned_classes", "returned_paths", "returned_text"]
