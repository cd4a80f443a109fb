"""Attributes of a module beside its tensors and children, and the changes to them."""

from __future__ import annotations

import types
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import torch
from torch import nn

PLAIN: Final = frozenset({bool, int, float, complex, str, bytes, type(None), torch.dtype})
INTERNAL: Final = frozenset(vars(nn.Module()))
"""Every module's own: its tensors, children, hooks and mode."""
OURS: Final = "_agentkernel_"
DEPTH: Final = 3
"""Levels of lists, dicts and objects in one another that are looked into."""
MISSING: Final = object()
CONTAINERS: Final = (tuple, list, deque, dict, set)
CLOSED: Final = (nn.Module, torch.Tensor, type, types.ModuleType, types.FunctionType)
"""Objects whose own attributes are not looked into."""


def attributes(module: nn.Module) -> Iterator[tuple[str, object]]:
    """What was set on `module` itself, tensors and children that it registered apart."""
    for name, value in vars(module).items():
        if name not in INTERNAL and not name.startswith(OURS):
            yield name, value


def class_attributes(module: nn.Module) -> Iterator[tuple[str, object]]:
    """Plain values, lists, dicts and sets that `module` reads from its class."""
    seen = set(vars(module))
    for kind in type(module).__mro__:
        if kind is nn.Module:
            return
        for name, value in vars(kind).items():
            if name in seen or name.startswith(("__", OURS)):
                continue
            seen.add(name)
            if type(value) in PLAIN or isinstance(value, tuple | list | dict | set):
                yield name, value


def same(now: object, then: object) -> bool:
    """The same object, or the same plain value; tensors in tuples by identity too."""
    if isinstance(then, torch.Tensor) or type(now) is not type(then):
        return now is then
    if type(then) in PLAIN:
        return now is then or bool(now == then)
    if isinstance(then, tuple):
        assert isinstance(now, tuple)
        return now is then or (len(now) == len(then) and all(map(same, now, then)))
    return now is then


def by_value(value: object) -> bool:
    """Whether `same` compares it by what it says, or it is a tensor."""
    if isinstance(value, tuple):
        return all(map(by_value, value))
    return type(value) in PLAIN or isinstance(value, torch.Tensor)


@dataclass(frozen=True, slots=True)
class _Held:
    """A value and what a list, a dict, a set or an object holds, by index, key or name; None where
    nobody looked into it."""

    value: object
    inside: tuple[tuple[object, _Held], ...] | None = None


AttributeSnapshot = Mapping[str, _Held]


def snapshot_attributes(module: nn.Module) -> AttributeSnapshot:
    """The attributes of `module` and of all below it, by dotted name."""
    known: dict[int, _Held] = {}
    return {
        f"{path}.{name}" if path else name: _held(value, DEPTH, known)
        for path, item in module.named_modules()
        for name, value in attributes(item)
    }


def changed_attribute(module: nn.Module, before: AttributeSnapshot) -> str | None:
    """The name of an attribute that is not what it was, or holds something else."""
    now = snapshot_attributes(module)
    for name, held in now.items():
        if name not in before or not _as_before(held, before[name]):
            return name
    return next((name for name in before if name not in now), None)


def _held(value: object, depth: int, known: dict[int, _Held]) -> _Held:
    if depth == 0 or type(value) in PLAIN:
        return _Held(value)
    if id(value) not in known:
        known[id(value)] = _Held(value)
        found = _contents(value)
        if found is not None:
            left = depth - 1 if isinstance(value, CONTAINERS) else 0
            inside = tuple((key, _held(item, left, known)) for key, item in found)
            known[id(value)] = _Held(value, inside)
    return known[id(value)]


def _contents(value: object) -> list[tuple[object, object]] | None:
    if isinstance(value, dict):
        return list(value.items())
    if isinstance(value, set):
        return [(item, None) for item in value]
    if isinstance(value, CONTAINERS):
        return list(enumerate(value))
    own = None if isinstance(value, CLOSED) else getattr(value, "__dict__", None)
    return list(own.items()) if type(own) is dict else None


def _as_before(now: _Held, then: _Held) -> bool:
    if not same(now.value, then.value):
        return False
    if isinstance(now.value, CONTAINERS):
        one, other = now.inside or (), then.inside or ()
    else:
        one, other = _told(now), _told(then)
    return len(one) == len(other) and all(
        same(a, b) and _as_before(x, y) for (a, x), (b, y) in zip(one, other, strict=True)
    )


def _told(held: _Held) -> tuple[tuple[object, _Held], ...]:
    """Of an object the numbers, texts and tensors: what else it holds may be its own cache."""
    return tuple(
        (name, item)
        for name, item in held.inside or ()
        if type(item.value) in PLAIN or isinstance(item.value, torch.Tensor)
    )


@contextmanager
def preserve_attributes(module: nn.Module) -> Iterator[None]:
    """What is set on `module` and all below it meanwhile is taken back, values of tensors apart."""
    known: dict[int, _Held] = {}
    before = [_held(vars(item), DEPTH, known) for item in module.modules()]
    try:
        yield
    finally:
        done: set[int] = set()
        for held in before:
            _put_back(held, done)


def _put_back(held: _Held, done: set[int]) -> None:
    if held.inside is None or id(held) in done:
        return
    done.add(id(held))
    for _, item in held.inside:
        _put_back(item, done)
    now = _contents(held.value) or []
    as_it_was = len(now) == len(held.inside) and all(
        key is old and item is then.value
        for (key, item), (old, then) in zip(now, held.inside, strict=True)
    )
    if not isinstance(held.value, tuple) and not as_it_was:
        keys = [key for key, _ in held.inside]
        _refill(held.value, keys, [item.value for _, item in held.inside])


def _refill(value: object, keys: list[object], items: list[object]) -> None:
    if isinstance(value, list | deque):
        value.clear()
        value.extend(items)
    elif isinstance(value, set):
        value.clear()
        value.update(keys)
    else:
        own: dict[object, object] = value if isinstance(value, dict) else value.__dict__  # type: ignore[assignment]
        own.clear()
        own.update(zip(keys, items, strict=True))
