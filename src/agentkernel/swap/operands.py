"""Which tensor of the module does the kernel read as which operand, and is it still that one?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from agentkernel.domain.errors import KernelRefused
from agentkernel.domain.region import Kernel

if TYPE_CHECKING:
    from torch import nn

Tensors = dict[str, "torch.Tensor | None"]


@dataclass(frozen=True, slots=True)
class Form:
    """What a kernel was compiled and judged for. Strides in elements."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    stride: tuple[int, ...]

    def refusal(self, value: torch.Tensor) -> str | None:
        """In which respect `value` differs: "dtype", "shape", "layout" or "stride"."""
        if value.dtype is not self.dtype:
            return "dtype"
        if value.shape != self.shape:
            return "shape"
        if value.layout is not torch.strided:
            return "layout"
        if value.stride() != self.stride and not same_places(self, value.stride()):
            return "stride"
        return None

    @property
    def label(self) -> str:
        """For people: `float32[4, 8]`, with strides where they are not the usual ones."""
        text = f"{str(self.dtype).removeprefix('torch.')}{list(self.shape)}"
        usual = same_places(self, contiguous_strides(self.shape))
        return text if usual else f"{text} with strides {list(self.stride)}"


@dataclass(frozen=True, slots=True)
class Operand:
    """One tensor of the module, under `name` in `holder` (`_parameters` or `_buffers` of
    `module`), and the kernel's own places that must hold the same object."""

    module: nn.Module
    holder: str
    name: str
    places: tuple[tuple[Tensors, str], ...]
    form: Form

    def current(self) -> torch.Tensor | None:
        """The module's tensor now; None where it has none under that name any more."""
        held: Tensors = self.module.__dict__[self.holder]
        return held.get(self.name)

    def tie(self, value: torch.Tensor) -> None:
        """Let the kernel read `value`: the object itself, never a copy."""
        for tensors, name in self.places:
            tensors[name] = value


def contiguous_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Row-major strides, in elements."""
    found, step = [], 1
    for size in reversed(shape):
        found.append(step)
        step *= max(size, 1)
    return tuple(reversed(found))


def same_places(form: Form, stride: Sequence[int]) -> bool:
    """Equal strides but for dimensions of one element, where none is taken."""
    pairs = zip(form.shape, form.stride, stride, strict=True)
    return all(size <= 1 or mine == theirs for size, mine, theirs in pairs)


def tie_operands(
    module: nn.Module, new: nn.Module, kernel: Kernel, names: Sequence[str]
) -> tuple[Operand, ...]:
    """Let `new` share the tensors of `module`, of which `names` are the region's parameters.

    What has no counterpart was no operand and is taken out of `new`, so that a read of it raises.
    Raises KernelRefused where a tensor is missing or is not what the kernel was verified for.
    """
    if len(names) != len(kernel.parameters):
        raise KernelRefused(
            f"Kernel {kernel.sha256[:10]!r} has {len(kernel.parameters)} parameters and this use "
            f"names {len(names)}. Expected as many. Next: cut the model again."
        )
    own = dict(zip(kernel.parameters, names, strict=True))
    strides = dict(zip(kernel.parameters, kernel.parameter_strides, strict=False))
    found = []
    for group in _groups(new):
        known = [name for name in group.names if name in own]
        source = own[known[0]] if known else _same_name(module, group.names)
        if source is None:
            for tensors, name in group.places:
                del tensors[name]
            continue
        shape = tuple(group.value.shape)
        # What is in no state_dict was compared with the verified one, its strides included.
        stride = strides.get(known[0]) if known else _stride(module, source)
        form = Form(group.value.dtype, shape, stride or contiguous_strides(shape))
        operand = _operand(module, source, group, form, kernel)
        found.append(operand)
    return tuple(found)


@dataclass(frozen=True)
class _Group:
    """One tensor of the kernel's module under all its names."""

    value: torch.Tensor
    names: tuple[str, ...]
    places: tuple[tuple[Tensors, str], ...]


def _groups(new: nn.Module) -> Iterator[_Group]:
    found: dict[int, list[tuple[str, Tensors, str]]] = {}
    values: dict[int, torch.Tensor] = {}
    for path, module in new.named_modules(remove_duplicate=False):
        for tensors in (module._parameters, module._buffers):
            for name, value in tensors.items():
                if value is None:
                    continue
                full = f"{path}.{name}" if path else name
                found.setdefault(id(value), []).append((full, tensors, name))
                values[id(value)] = value
    for key, places in found.items():
        yield _Group(
            values[key],
            tuple(full for full, _, _ in places),
            tuple({(id(t), name): (t, name) for _, t, name in places}.values()),
        )


def _same_name(module: nn.Module, names: Sequence[str]) -> str | None:
    return next((name for name in names if _holder(module, name) is not None), None)


@dataclass(frozen=True)
class _Held:
    module: nn.Module
    holder: str
    name: str


def _holder(module: nn.Module, full: str) -> _Held | None:
    path, _, name = full.rpartition(".")
    for part in path.split(".") if path else ():
        child = module._modules.get(part)
        if child is None:
            return None
        module = child
    for holder in ("_parameters", "_buffers"):
        if module.__dict__[holder].get(name) is not None:
            return _Held(module, holder, name)
    return None


def _stride(module: nn.Module, full: str) -> tuple[int, ...] | None:
    held = _holder(module, full)
    value = None if held is None else held.module.__dict__[held.holder][held.name]
    return None if value is None else tuple(value.stride())


def _operand(module: nn.Module, source: str, group: _Group, form: Form, kernel: Kernel) -> Operand:
    held = _holder(module, source)
    label = f"Kernel {kernel.sha256[:10]!r} reads {source!r}"
    if held is None:
        raise KernelRefused(
            f"{label}, which {type(module).__name__} does not have. Expected a parameter or "
            "buffer of that name. Next: cut the model again."
        )
    operand = Operand(held.module, held.holder, held.name, group.places, form)
    value = operand.current()
    if value is None or form.refusal(value) is not None:
        there = (
            "nothing"
            if value is None
            else Form(value.dtype, tuple(value.shape), tuple(value.stride())).label
        )
        raise KernelRefused(
            f"{label}, which is {there}. Expected {form.label}, as it was verified. "
            "Next: cut the model again."
        )
    operand.tie(value)
    return operand
