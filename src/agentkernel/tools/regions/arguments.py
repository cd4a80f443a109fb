"""On which positional arguments does a submodule's call run, and what are they, values aside?"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch
    from torch import nn


@dataclass(frozen=True)
class Unbound:
    """A call that no positional arguments stand for, and why, in one line."""

    reason: str


def bind_call(
    module: nn.Module, args: Sequence[object], kwargs: Mapping[str, object]
) -> tuple[object, ...] | Unbound:
    """The call's arguments by position, up to the last one given, gaps filled with defaults.

    A keyword that `forward` has no name for counts as not given where it is None. Every argument
    must be a tensor, a number, a string or None, and one at least a tensor.
    """
    signature = inspect.signature(module.forward)
    try:
        bound = signature.bind(*args, **kwargs)
    except TypeError as error:
        return Unbound(f"its arguments do not bind to forward: {error}")
    given = set(bound.arguments)
    bound.apply_defaults()
    positional: list[object] = []
    last = 0
    for name, parameter in signature.parameters.items():
        value = bound.arguments[name]
        if parameter.kind == parameter.VAR_KEYWORD:
            named = [key for key, item in value.items() if item is not None]
            if named:
                return Unbound(f"argument {named[0]!r} is passed by keyword alone")
        elif parameter.kind == parameter.KEYWORD_ONLY:
            if name in given and value is not parameter.default:
                return Unbound(f"argument {name!r} is passed by keyword alone")
        elif parameter.kind == parameter.VAR_POSITIONAL:
            positional += value
            last = len(positional) if value else last
        else:
            positional.append(value)
            last = len(positional) if name in given else last
    return _checked(tuple(positional[:last]), tuple(signature.parameters))


def describe(values: Sequence[object]) -> tuple[str, ...]:
    """One text an argument: `float32[2,8]:8,1` (dtype, shape, strides), or a scalar's literal.

    The stride of a dimension of size 1 addresses nothing and is written as 1.
    """
    import torch

    return tuple(
        describe_tensor(value) if isinstance(value, torch.Tensor) else repr(value)
        for value in values
    )


def describe_tensor(value: torch.Tensor) -> str:
    """Dtype, shape and strides of a tensor with plain sizes: `float32[2,8]:8,1`."""
    return layout(value.dtype, tuple(value.shape), value.stride())


def layout(dtype: torch.dtype, shape: Sequence[int], strides: Sequence[int]) -> str:
    """`float32[2,8]:8,1` of these."""
    steps = [1 if size == 1 else step for size, step in zip(shape, strides, strict=True)]
    name = str(dtype).removeprefix("torch.")
    return f"{name}[{','.join(map(str, shape))}]:{','.join(map(str, steps))}"


def label(values: Sequence[object]) -> str:
    """The arguments for people: `float32[2, 8], None`."""
    import torch

    return ", ".join(
        f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
        if isinstance(value, torch.Tensor)
        else repr(value)
        for value in values
    )


def without_values(value: object) -> object:
    """A tensor's dtype, shape and strides on meta; anything else as it is."""
    import torch

    if not isinstance(value, torch.Tensor):
        return value
    return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="meta")


def _checked(values: tuple[object, ...], names: Sequence[str]) -> tuple[object, ...] | Unbound:
    import torch

    for index, value in enumerate(values):
        name = names[min(index, len(names) - 1)]
        if isinstance(value, torch.Tensor):
            if value.layout != torch.strided:
                return Unbound(f"argument {name!r} is a sparse tensor")
        elif value is not None and not isinstance(value, bool | int | float | str):
            return Unbound(
                f"argument {name!r} is a {type(value).__name__}, no tensor, number, string or None"
            )
    if not any(isinstance(value, torch.Tensor) for value in values):
        return Unbound("it takes no tensor")
    return values
