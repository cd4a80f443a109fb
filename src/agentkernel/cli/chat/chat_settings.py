"""Which settings are there, and which values do they take?"""

from __future__ import annotations

import types
from collections.abc import Iterator
from functools import cache
from typing import Literal, Union, get_args, get_origin

from pydantic import BaseModel

from agentkernel.domain.settings import Settings


@cache
def setting_choices() -> dict[str, tuple[str, ...]]:
    """Dotted key -> the values that it takes, where they can be listed, else ()."""
    return dict(_fields(Settings, ""))


def setting_keys() -> tuple[str, ...]:
    """Every dotted key."""
    return tuple(setting_choices())


def _fields(model: type[BaseModel], prefix: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    for name, info in model.model_fields.items():
        kind = info.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            yield from _fields(kind, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", tuple(_choices(kind))


def _choices(kind: object) -> Iterator[str]:
    """The values of a Literal or a bool, and `null` for what may be left out."""
    if kind is bool:
        yield from ("true", "false")
    elif kind is type(None):
        yield "null"
    elif get_origin(kind) is Literal:
        yield from (str(value) for value in get_args(kind))
    elif get_origin(kind) in (Union, types.UnionType):
        for part in get_args(kind):
            yield from _choices(part)
