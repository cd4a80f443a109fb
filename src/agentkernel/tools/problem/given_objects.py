"""Objects that a constructor is given: their fields and items, and copies with one changed."""

from __future__ import annotations

import copy
import dataclasses
import functools
import inspect
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from typing import cast

from agentkernel.tools.problem.structures import PLAIN

DEEPEST = 6
"""Objects in objects are looked into so far."""
RECORDS_OF_A_CLASS = frozenset({"transformers_version", "_name_or_path", "_commit_hash"})
"""Fields of transformers' configurations that say where one came from; `to_dict` has them, no
module reads them."""
MODULES_OWN = frozenset({"training"})


@dataclasses.dataclass(frozen=True)
class Member:
    """A value in an object: `text` follows the expression of the whole: `.width`, `[0]`, `['a']`.

    `key` is the name of a field, or what an item is found by."""

    text: str
    key: object
    value: object

    @property
    def is_field(self) -> bool:
        """Whether it is reached as an attribute."""
        return self.text.startswith(".")


def members(value: object) -> list[Member]:
    """The fields of a configuration (a dataclass, a named tuple, pydantic, an object with a
    `__dict__` or slots), the items of a list, tuple or dict, the parts of a partial, and of a torch
    module its plain attributes and children. None of plain values, enums, classes, functions and
    tensors."""
    if isinstance(value, Mapping) and type(value).__module__ == "builtins":
        return [
            Member(f"[{key!r}]", key, item) for key, item in value.items() if type(key) in PLAIN
        ]
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        names = cast("Sequence[str]", value._fields)
        return [Member(f".{name}", name, getattr(value, name)) for name in names]
    if isinstance(value, list | tuple):
        return [Member(f"[{index}]", index, item) for index, item in enumerate(value)]
    if isinstance(value, functools.partial):
        names = ("func", "args", "keywords")
        return [Member(f".{name}", name, getattr(value, name)) for name in names]
    if _is_module(value):
        return list(_parts(value))
    if type(value) in PLAIN or isinstance(value, Enum | type) or _is_torch(value):
        return []
    if inspect.isroutine(value):
        return []
    return [Member(f".{key}", key, item) for key, item in _fields(value).items()]


def with_member(value: object, member: Member, new: object) -> object:
    """A copy of `value` with `new` for one member, made as its class makes such copies."""
    if not member.is_field:
        if isinstance(value, tuple):
            items = list(value)
            items[cast(int, member.key)] = new
            return tuple(items)
        changed = copy.copy(value)
        changed[member.key] = new  # type: ignore[index]
        return changed
    name = cast(str, member.key)
    if isinstance(value, tuple):
        return value._replace(**{name: new})  # type: ignore[attr-defined]
    if any(item.name == name and item.init for item in _declared(value)):
        return dataclasses.replace(value, **{name: new})  # type: ignore[type-var]
    changed = copy.copy(value)
    object.__setattr__(changed, name, new)
    return changed


def _fields(value: object) -> dict[str, object]:
    """Those that the class declares, then what else lies in the object."""
    kinds = type(value).__mro__
    declared = [item.name for item in _declared(value)]
    declared += [name for kind in kinds for name in _slots(kind)]
    found = {name: getattr(value, name) for name in declared if hasattr(value, name)}
    found |= getattr(value, "__dict__", {})
    hugging = any(kind.__module__.startswith("transformers.") for kind in kinds)
    left_out = RECORDS_OF_A_CLASS if hugging else frozenset()
    return {
        name: item
        for name, item in found.items()
        if name.isidentifier() and not name.startswith("__") and name not in left_out
    }


def _declared(value: object) -> tuple[dataclasses.Field[object], ...]:
    """The fields of a dataclass; none of others."""
    record = dataclasses.is_dataclass(value) and not isinstance(value, type)
    return dataclasses.fields(value) if record else ()  # type: ignore[arg-type]


def _slots(kind: type) -> Iterator[str]:
    slots = vars(kind).get("__slots__", ())
    for name in (slots,) if isinstance(slots, str) else slots:
        if not name.startswith("__"):
            yield name


def _is_torch(value: object) -> bool:
    """Whether it is a tensor, a dtype or what else torch has of its own."""
    return type(value).__module__.partition(".")[0] in ("torch", "numpy")


def _is_module(value: object) -> bool:
    from torch import nn

    return isinstance(value, nn.Module)


def _parts(value: object) -> Iterator[Member]:
    from torch import nn

    assert isinstance(value, nn.Module)
    for name, item in vars(value).items():
        if type(item) in PLAIN and not name.startswith("_") and name not in MODULES_OWN:
            yield Member(f".{name}", name, item)
    for name, child in value._modules.items():
        if name.isidentifier():
            yield Member(f".{name}", name, child)
        elif isinstance(value, nn.Sequential | nn.ModuleList):
            yield Member(f"[{int(name)}]", int(name), child)


__all__ = ["DEEPEST", "Member", "members", "with_member"]
