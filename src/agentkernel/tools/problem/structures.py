"""Nested plain data as tensors and a structure, and back."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import TYPE_CHECKING, Any

from agentkernel.domain.errors import ProblemError
from agentkernel.domain.problem import DataStructure, Kind
from agentkernel.storage.source_text import read_literal

if TYPE_CHECKING:
    import torch

PLAIN = (bool, int, float, str, type(None))
DEEPEST = 20
"""Nobody nests arguments deeper; what holds itself does."""
CLASS_TEXT = re.compile(r"<class'(?:[^']*\.)?([^.']+)'>")
KINDS: Mapping[type, Kind] = {tuple: "tuple", list: "list", dict: "dict"}


@dataclass(frozen=True)
class TensorPlace:
    """A tensor, and where it was: `masks['full'][0]`."""

    path: str
    tensor: torch.Tensor


@dataclass(frozen=True)
class FlatData:
    """Nested plain data as its structure, and its tensors from left to right."""

    structure: DataStructure
    places: tuple[TensorPlace, ...]

    @property
    def tensors(self) -> tuple[torch.Tensor, ...]:
        """Without their places."""
        return tuple(place.tensor for place in self.places)


@dataclass(frozen=True)
class UnsupportedData:
    """Data that holds something else than tensors, numbers, strings and None, and where."""

    path: str
    what: str


class _Found(Exception):
    """Ends a walk at what is not plain."""

    def __init__(self, found: UnsupportedData) -> None:
        super().__init__(found.path)
        self.found = found


def flatten_data(
    value: object, path: str = "", *, nodes: bool = False
) -> FlatData | UnsupportedData:
    """`value` as structure and tensors: tuples, lists and dicts of tensors and plain scalars, in
    one another. With `nodes` also dict-like, tuple-like and dataclasses that pytree can write down.

    Subclasses are not plain: nobody knows what else they hold.
    """
    places: list[TensorPlace] = []
    try:
        structure = _structure(value, path, places, nodes, 0)
    except _Found as end:
        return end.found
    return FlatData(structure, tuple(places))


def register_dataclasses(value: object, depth: int = 0) -> None:
    """Let torch's pytree take apart the dataclasses in `value`, what a forward has returned.

    A class counts whose constructor takes its fields and nothing else: others hold more than their
    fields, or cannot be made again from them.
    """
    from torch.utils._pytree import SUPPORTED_NODES, register_dataclass

    kind = type(value)
    if isinstance(value, tuple | list | dict) and depth <= DEEPEST:
        for item in value.values() if isinstance(value, dict) else value:
            register_dataclasses(item, depth + 1)
    elif is_dataclass(kind) and depth <= DEEPEST:
        names = [item.name for item in fields(kind)]
        if kind not in SUPPORTED_NODES and list(inspect.signature(kind).parameters) == names:
            register_dataclass(kind)
        for name in names:
            register_dataclasses(getattr(value, name), depth + 1)


def class_label(kind: type) -> str:
    """A class with the module that it is from, where that is not the problem's own."""
    own = kind.__module__.startswith("agentkernel_problem_")
    return kind.__qualname__ if own else f"{kind.__module__}.{kind.__qualname__}"


def tree_text(spec: object) -> str:
    """A spec of pytree on one line, a class by its own name: a drop-in has a copy of it."""
    text = str(spec).replace("\n", "").replace(" ", "")
    return CLASS_TEXT.sub(r"<class'\1'>", text)


def leaves_of(value: object) -> list[object]:
    """What lies in `value`, one by one, in dataclasses too."""
    from torch.utils._pytree import tree_leaves

    register_dataclasses(value)
    return list(tree_leaves(value))


def unflatten_data(
    structure: DataStructure,
    tensors: Sequence[object],
    values: Mapping[str, Any] | None = None,
) -> Any:
    """What `flatten_data` took apart, with these tensors in it.

    `values`: what `values_of` gives for `structure`, once for many calls.
    """
    known = values_of(structure) if values is None else values
    return _built(structure, iter(tensors), known)


def tensors_of(structure: DataStructure, value: object, found: list[Any]) -> bool:
    """Whether `value` has this structure; its tensors are appended to `found`. Nodes never fit."""
    kind = structure.kind
    if kind == "tensor":
        # What it must be is the guard's next question.
        found.append(value)
        return True
    if kind == "literal":
        return repr(value) == structure.literal
    if kind == "dict":
        if type(value) is not dict or tuple([repr(key) for key in value]) != structure.keys:
            return False
        held = list(value.values())
    elif (kind == "tuple" and type(value) is tuple) or (kind == "list" and type(value) is list):
        held = list(value)
    else:
        return False
    if len(held) != len(structure.items):
        return False
    for item, inner in zip(structure.items, held, strict=True):
        if not tensors_of(item, inner, found):
            return False
    return True


def values_of(structure: DataStructure) -> dict[str, Any]:
    """The values of its literals and keys, and pytree's specs of its classes, by their texts.

    Raises ProblemError for a class that nothing has made known in this process.
    """
    from torch.utils._pytree import treespec_loads

    found: dict[str, Any] = {key: value_of(key) for key in structure.keys}
    if structure.kind == "literal":
        found[structure.literal] = value_of(structure.literal)
    if structure.kind == "node":
        try:
            found[structure.literal] = treespec_loads(structure.literal)
        except Exception as error:
            raise ProblemError(
                f"torch's pytree does not know the class of {structure.literal[:120]!r}. Expected "
                "one that its library has registered. Next: import that library first."
            ) from error
    for item in structure.items:
        found.update(values_of(item))
    return found


def value_of(literal: str) -> object:
    """The scalar of this text."""
    if literal == "None":
        return None
    try:
        return read_literal(literal)
    except ValueError:  # inf and nan have no literal
        return float(literal)


def _structure(
    value: object, path: str, places: list[TensorPlace], nodes: bool, depth: int
) -> DataStructure:
    import torch

    if isinstance(value, torch.Tensor):
        places.append(TensorPlace(path, value))
        return DataStructure("tensor")
    if type(value) in PLAIN:
        return DataStructure("literal", repr(value))
    if depth > DEEPEST:
        raise _Found(UnsupportedData(path, f"a {type(value).__name__} nested over {DEEPEST} deep"))
    if type(value) is dict:
        odd = next((key for key in value if type(key) not in PLAIN), None)
        if odd is not None:
            raise _Found(UnsupportedData(path, f"a dict with a key of class {type(odd).__name__}"))
        keys = tuple(repr(key) for key in value)
        items = [
            _structure(item, f"{path}[{key}]", places, nodes, depth + 1)
            for key, item in zip(keys, value.values(), strict=True)
        ]
        return DataStructure("dict", keys=keys, items=tuple(items))
    if type(value) is tuple or type(value) is list:
        return DataStructure(KINDS[type(value)], items=_items(value, path, places, nodes, depth))
    if nodes and (isinstance(value, dict | tuple) or is_dataclass(value)):
        return _node(value, path, places, depth)
    raise _Found(UnsupportedData(path, f"a {type(value).__name__}"))


def _items(
    values: Sequence[object], path: str, places: list[TensorPlace], nodes: bool, depth: int
) -> tuple[DataStructure, ...]:
    return tuple(
        _structure(item, f"{path}[{index}]", places, nodes, depth + 1)
        for index, item in enumerate(values)
    )


def _node(value: object, path: str, places: list[TensorPlace], depth: int) -> DataStructure:
    from torch.utils._pytree import tree_flatten, treespec_dumps

    children, spec = tree_flatten(value, is_leaf=lambda item: item is not value)
    if spec.is_leaf():
        raise _Found(UnsupportedData(path, f"a {type(value).__name__}"))
    try:
        text = treespec_dumps(spec)
    except Exception as error:
        raise _Found(UnsupportedData(path, f"a {type(value).__name__}")) from error
    return DataStructure("node", text, items=_items(children, path, places, True, depth))


def _built(
    structure: DataStructure, tensors: Iterator[object], values: Mapping[str, Any]
) -> object:
    if structure.kind == "tensor":
        return next(tensors)
    if structure.kind == "literal":
        return values[structure.literal]
    items = [_built(item, tensors, values) for item in structure.items]
    if structure.kind == "dict":
        return dict(zip([values[key] for key in structure.keys], items, strict=True))
    if structure.kind == "node":
        from torch.utils._pytree import tree_unflatten

        return tree_unflatten(items, values[structure.literal])
    return items if structure.kind == "list" else tuple(items)


__all__ = [
    "FlatData",
    "TensorPlace",
    "UnsupportedData",
    "class_label",
    "flatten_data",
    "leaves_of",
    "register_dataclasses",
    "tensors_of",
    "tree_text",
    "unflatten_data",
    "value_of",
    "values_of",
]
