"""Is this call like the last one that the guard let through, seen without asking all of it again?

The guard of a region with ten parameters takes longer than the launch of a kernel. A dictionary
that has the version that it had holds what it held, and torch's compiler has a check of many
tensors in one call (type, dispatch keys, dtype, device, sizes, strides, whether they require a
gradient; autocast changes the keys). Where either is missing, or answers no, the guard is asked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.autograd import forward_ad
from torch.nn.modules import module as hooks

from agentkernel.swap.guard import HOOKS, WatchedModule
from agentkernel.swap.operands import Operand

Own = dict[str, Any]
_guards = getattr(torch._C._dynamo, "guards", None)
_make_check: Any = getattr(_guards, "TensorGuards", None)
_version: Any = getattr(_guards, "dict_version", None)
_dispatch_modes = torch._C._len_torch_dispatch_stack
_function_modes = torch._C._len_torch_function_stack
_functorch = torch._C._functorch.peek_interpreter_stack
_tracing = torch._C._get_tracing_state


@dataclass(frozen=True, slots=True)
class AcceptedCall:
    """What a call had that the guard let through.

    `held` are the dictionaries of children and operands, `empty` those that have to stay empty
    (children of leaves, hooks of inner modules); `own` and `inside` are versions. `check` takes
    the tensors among the inputs, at `places`, and then `operands`. `shared` are classes'.
    """

    modules: tuple[nn.Module, ...]
    own: list[int]
    held: tuple[Own, ...]
    inside: list[int]
    empty: tuple[Own, ...]
    scalars: tuple[tuple[int, object], ...]
    places: tuple[int, ...]
    operands: tuple[torch.Tensor, ...]
    check: Callable[..., bool]
    gpu: int | None
    only_without_grad: bool
    shared: tuple[tuple[nn.Module, str, object], ...] = ()

    def holds(self, given: Sequence[Any]) -> bool:
        """Whether the guard would let a call with the inputs `given` through as well."""
        if (
            _dispatch_modes()
            or _function_modes()
            or _functorch() is not None
            or forward_ad._current_level >= 0
            or _tracing() is not None
            or any(self.empty)
            or (self.only_without_grad and torch.is_grad_enabled())
            or (self.gpu is not None and torch._C._cuda_getDevice() != self.gpu)
        ):
            return False
        if len(self.modules) > 1 and (
            hooks._global_forward_hooks or hooks._global_forward_pre_hooks
        ):
            return False
        # `__dict__` is read anew: it may be another one.
        if [_version(module.__dict__) for module in self.modules] != self.own:
            return False
        if [_version(held) for held in self.held] != self.inside:
            return False
        for module, name, value in self.shared:
            if getattr(module, name, None) is not value:
                return False
        for place, value in self.scalars:
            if given[place] is not value:
                return False
        return self.check(*[given[place] for place in self.places], *self.operands)


def remember_call(
    watched: Sequence[WatchedModule],
    operands: Sequence[Operand],
    given: Sequence[object],
    device: torch.device,
    gradients: bool = False,
) -> AcceptedCall | None:
    """What the call with the inputs `given`, which the guard has just let through, had; None where
    this torch or this Python cannot tell quickly whether the next one has it too."""
    if _make_check is None or not TELLS:
        return None
    places = tuple(i for i, value in enumerate(given) if isinstance(value, torch.Tensor))
    values = tuple(value for value in given if isinstance(value, torch.Tensor))
    tensors = tuple(value for item in operands if (value := item.current()) is not None)
    if len(tensors) != len(operands):
        return None
    try:
        made = _make_check(*values, *tensors, dynamic_dims_sizes=None, dynamic_dims_strides=None)
    except (RuntimeError, TypeError, SystemError):
        return None
    held, empty = _dictionaries(watched, operands)
    modules = tuple(item.module for item in watched)
    return AcceptedCall(
        modules=modules,
        own=[_version(module.__dict__) for module in modules],
        held=held,
        inside=[_version(item) for item in held],
        empty=empty,
        scalars=tuple((i, value) for i, value in enumerate(given) if i not in places),
        places=places,
        operands=tensors,
        check=made.check,
        gpu=device.index if device.type == "cuda" else None,
        only_without_grad=not gradients
        and any(value.requires_grad for value in (*values, *tensors)),
        shared=tuple((item.module, *named) for item in watched for named in item.shared),
    )


def _dictionaries(
    watched: Sequence[WatchedModule], operands: Sequence[Operand]
) -> tuple[tuple[Own, ...], tuple[Own, ...]]:
    """Those whose version counts and those that have to be empty, each once."""
    held: dict[int, Own] = {}
    empty: list[Own] = []
    for item in watched:
        own = item.module.__dict__
        children = own["_modules"]
        if item.children:
            held[id(children)] = children
        else:
            empty.append(children)
        if item.inner:
            empty.extend(own[name] for name in HOOKS)
    for operand in operands:
        tensors = operand.module.__dict__[operand.holder]
        held[id(tensors)] = tensors
    return tuple(held.values()), tuple(empty)


class _Probe:
    """An object with attributes."""

    value = 0


def _versions_tell() -> bool:
    """Whether this Python changes a dictionary's version with every kind of change to it."""
    if _version is None:
        return False
    item = _Probe()
    own = vars(item)
    seen = {_version(own)}
    for number in range(20):
        # Often enough that the interpreter has its quick way of setting an attribute.
        item.value = number
        seen.add(_version(own))
    own["value"] = -1
    seen.add(_version(own))
    setattr(item, "more", 1)  # noqa: B010 - one of the ways
    seen.add(_version(own))
    del item.more  # type: ignore[attr-defined]
    seen.add(_version(own))
    return len(seen) == 24


TELLS = _versions_tell()
"""Whether dictionaries' versions can be relied on here."""
