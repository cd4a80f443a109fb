"""What a constructor is given: its plain values, and the classes of the objects among them."""

from __future__ import annotations

import ast
import inspect
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum
from pathlib import PurePath
from typing import NamedTuple, TypeGuard, cast

import torch

from agentkernel.storage.source_text import parse_source
from agentkernel.tools.problem.given_objects import DEEPEST, members
from agentkernel.tools.problem.loading import LoadedProblem

SEVERAL = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
NAMED = (torch.dtype, torch.device, torch.layout, torch.memory_format, torch.Size)


class Verified(NamedTuple):
    """What a constructor was given at one place, as a drop-in reads it and as it must be."""

    name: str
    """What people call it: `cfg.width`."""
    expression: str
    literal: str
    depth: int
    """So many objects lie around it. Those are compared first."""


def verified_arguments(
    loaded: LoadedProblem, written: Callable[[type], str] | None = None
) -> list[Verified]:
    """All that the constructor gets, defaults included, field by field and item by item.

    `written` says what a class is called in the drop-in: one that goes by another name there is
    not compared by its name. Tensors are compared by form: their values are no constants.
    """
    walk = _Walk(written or (lambda kind: kind.__name__), _asked_for(loaded.problem.source))
    return [
        item for name, given in _arguments(loaded).items() for item in walk.at(name, given, 0, ())
    ]


def _asked_for(source: str) -> list[str]:
    """The names that `getattr` and `hasattr` ask for in the source."""
    calls = (item for item in ast.walk(parse_source(source)) if isinstance(item, ast.Call))
    words = [
        item.args[1].value
        for item in calls
        if isinstance(item.func, ast.Name)
        and item.func.id in ("getattr", "hasattr")
        and len(item.args) > 1
        and isinstance(item.args[1], ast.Constant)
    ]
    return sorted({word for word in words if isinstance(word, str)})


def classes_given(expression: str, value: object, depth: int = 0) -> Iterator[tuple[str, type]]:
    """(expression, class) of `value` and of the objects in it; not of plain values."""
    if _is_plain(value) or depth > DEEPEST:
        return
    yield expression, type(value)
    if callable(value):
        return
    for item in members(value):
        yield from classes_given(expression + item.text, item.value, depth + 1)


def with_classes(source: str, given: Mapping[str, Mapping[str, str]]) -> str:
    """`source`, where each function named in `given` takes the classes it names from its arguments:
    {"Model.__init__": {"Act": "type(cfg.act)"}}. Those objects are none of a copied class."""
    lines = source.split("\n")
    found: list[tuple[int, list[str]]] = []
    for name, node in _functions(parse_source(source)):
        inside = [item for part in node.body for item in ast.walk(part)]
        names = {item.id for item in inside if isinstance(item, ast.Name)}
        names -= {item.id for item in inside if _is_stored(item)}
        names -= {item.arg for item in ast.walk(node.args) if isinstance(item, ast.arg)}
        first = node.body[1 if ast.get_docstring(node) is not None and node.body[1:] else 0]
        if first.lineno > node.lineno and not lines[first.lineno - 1][: first.col_offset].strip():
            indent = " " * first.col_offset
            wanted = {key: text for key, text in given.get(name, {}).items() if key in names}
            found.append(
                (first.lineno - 1, [f"{indent}{key} = {text}" for key, text in wanted.items()])
            )
    for place, made in sorted(found, reverse=True):
        lines[place:place] = made
    return "\n".join(lines)


def _functions(
    tree: ast.Module | ast.ClassDef, above: str = ""
) -> Iterator[tuple[str, ast.FunctionDef]]:
    for item in tree.body:
        if isinstance(item, ast.FunctionDef):
            yield above + item.name, item
        elif isinstance(item, ast.ClassDef):
            yield from _functions(item, f"{above}{item.name}.")


def _arguments(loaded: LoadedProblem) -> dict[str, object]:
    signature = inspect.signature(loaded.module_class.__init__)
    try:
        bound = signature.bind(None, *loaded.init_args, **loaded.init_kwargs)
    except TypeError:
        return {}
    bound.apply_defaults()
    return {
        name: value
        for place, (name, value) in enumerate(bound.arguments.items())
        if place > 0 and (value or signature.parameters[name].kind not in SEVERAL)
    }


class _Walk(NamedTuple):
    """Through what a constructor is given. `asked`: the names by which the source asks an object
    whether it has such a field."""

    written: Callable[[type], str]
    asked: Sequence[str]

    def at(
        self, place: str, value: object, depth: int, above: tuple[int, ...]
    ) -> Iterator[Verified]:
        """What is compared of one value; `above` are the objects that it lies in."""
        if isinstance(value, Enum):
            yield Verified(place, f"{place}.name", repr(value.name), depth)
        elif is_literal(value):
            yield Verified(place, place, _literal(value), depth)
        elif isinstance(value, float) or _is_named(value):
            yield Verified(place, f"str({place})", repr(str(value)), depth)
        elif isinstance(value, type) or (callable(value) and hasattr(value, "__name__")):
            name = getattr(value, "__name__", "")
            if not isinstance(value, type) or self.written(value) == name:
                yield Verified(place, f"{place}.__name__", repr(name), depth)
        elif depth <= DEEPEST and id(value) not in above:
            yield from self._form(place, value, depth)
            for item in members(value):
                yield from self.at(place + item.text, item.value, depth + 1, (*above, id(value)))

    def _form(self, place: str, value: object, depth: int) -> Iterator[Verified]:
        """The class of an object, the length or the keys of a container, the form of a tensor."""
        kind = type(value)
        if kind is dict:
            keys = list(cast("dict[object, object]", value))
            yield Verified(f"{place}'s keys", f"list({place})", repr(keys), depth)
            return
        if kind in (list, tuple):
            length = len(cast("Sequence[object]", value))
            yield Verified(f"len({place})", f"len({place})", repr(length), depth)
            return
        if self.written(kind) == kind.__name__:
            text = f"type({place}).__name__"
            yield Verified(text, text, repr(kind.__name__), depth)
        if hasattr(value, "shape") and hasattr(value, "dtype"):
            sizes, dtype = repr([*value.shape]), repr(str(value.dtype))
            yield Verified(f"{place}.shape", f"list({place}.shape)", sizes, depth + 1)
            yield Verified(f"{place}.dtype", f"str({place}.dtype)", dtype, depth + 1)
        for name in self.asked:
            if not hasattr(value, name):
                text = f"hasattr({place}, {name!r})"
                yield Verified(text, text, "False", depth + 1)


def is_literal(value: object, depth: int = 0) -> bool:
    """Whether Python reads its text back as an equal value."""
    if type(value) in (list, tuple) and depth <= DEEPEST:
        assert isinstance(value, list | tuple)
        return all(is_literal(item, depth + 1) for item in value)
    if type(value) is dict and depth <= DEEPEST:
        return all(is_literal(part, depth + 1) for item in value.items() for part in item)
    if type(value) in (set, frozenset):
        assert isinstance(value, set | frozenset)
        return bool(value) and all(_is_plain(item) for item in value)
    return _is_plain(value) or type(value) in (bytes, complex)


def _literal(value: object) -> str:
    if type(value) in (set, frozenset):
        assert isinstance(value, set | frozenset)
        return "{" + ", ".join(sorted(map(repr, value))) + "}"
    return repr(value)


def _is_named(value: object) -> bool:
    """Whether its text says all of it."""
    kind = type(value)
    number = kind.__module__ == "numpy" and getattr(value, "shape", None) == ()
    return number or isinstance(value, PurePath) or kind in NAMED


def _is_stored(node: ast.AST) -> TypeGuard[ast.Name]:
    """Whether the node gives a name a value."""
    return isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)


def _is_plain(value: object) -> bool:
    return value is None or type(value) in (bool, int, str) or _is_finite(value)


def _is_finite(value: object) -> bool:
    return type(value) is float and math.isfinite(value)


__all__ = ["Verified", "classes_given", "is_literal", "verified_arguments", "with_classes"]
