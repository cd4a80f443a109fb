"""What a constructor is given: its plain values, and the classes of the objects among them."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import math
from collections.abc import Collection, Iterator, Mapping
from enum import Enum
from typing import TypeGuard

from agentkernel.storage.source_text import parse_source
from agentkernel.tools.problem.loading import LoadedProblem

DEEPEST = 4
"""Objects in objects are looked into so far."""
MOST_ITEMS = 8
"""Lists of more items are not compared by a drop-in."""
SEVERAL = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def plain_arguments(loaded: LoadedProblem, read: Collection[str]) -> dict[str, object]:
    """Numbers, flags and texts that the constructor gets, defaults included, by the expression that
    reaches each: `width`, `cfg.width`, `cfg.act.name`. Of an object those whose names are `read`.
    """
    return {
        expression: value
        for name, given in _arguments(loaded).items()
        for expression, value in _plain(name, given, read)
    }


def classes_given(expression: str, value: object, depth: int = 0) -> Iterator[tuple[str, type]]:
    """(expression, class) of `value` and of the objects in it; not of plain values."""
    if _is_plain(value) or depth > DEEPEST:
        return
    yield expression, type(value)
    for place, item in _members(expression, value):
        yield from classes_given(place, item, depth + 1)


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
        if place > 0 and signature.parameters[name].kind not in SEVERAL
    }


def _plain(
    expression: str, value: object, read: Collection[str], depth: int = 0
) -> Iterator[tuple[str, object]]:
    if isinstance(value, Enum):
        yield f"{expression}.name", value.name
    elif _is_plain(value):
        yield expression, value
    elif depth <= DEEPEST and (depth or not isinstance(value, list | tuple | dict)):
        several = isinstance(value, list | tuple)
        for place, item in _members(expression, value) if _is_short(value) else ():
            if several or place.rpartition(".")[2] in read:
                yield from _plain(place, item, read, depth + 1)


def _members(expression: str, value: object) -> Iterator[tuple[str, object]]:
    """What lies in a configuration, with the expression that reaches it."""
    if isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield f"{expression}[{index}]", item
    elif isinstance(value, dict):
        for key, item in value.items():
            if isinstance(key, str):
                yield f"{expression}[{key!r}]", item
    elif not isinstance(value, Enum | type) and not callable(value):
        fields = dataclasses.fields(value) if dataclasses.is_dataclass(value) else ()
        named = {item.name: getattr(value, item.name, None) for item in fields}
        for key, item in {**named, **getattr(value, "__dict__", {})}.items():
            if key.isidentifier() and not key.startswith("_"):
                yield f"{expression}.{key}", item


def _is_stored(node: ast.AST) -> TypeGuard[ast.Name]:
    """Whether the node gives a name a value."""
    return isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)


def _is_short(value: object) -> bool:
    return not isinstance(value, list | tuple) or len(value) <= MOST_ITEMS


def _is_plain(value: object) -> bool:
    return value is None or type(value) in (bool, int, str) or _is_finite(value)


def _is_finite(value: object) -> bool:
    return type(value) is float and math.isfinite(value)


__all__ = ["classes_given", "plain_arguments", "with_classes"]
