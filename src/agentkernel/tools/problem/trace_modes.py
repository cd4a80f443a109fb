"""Traces that answer for the device of tensors and notice reads of the training mode.

Captures run on tensors without storage, whose own device would take neither branch of `if
x.device.type == "cuda"`; a forward that reads it gets the device of the target.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx import graph_module
from torch.overrides import TorchFunctionMode

TORCH = str(Path(torch.__file__).parent)
_PATCHED = threading.RLock()


@dataclass
class DeviceReads:
    """Whether a forward asked for a tensor's device, and what it is told."""

    device: torch.device
    asked: bool = False
    inside: int = 0
    below: int = 0
    """Calls of operators under way, whose rules for fake tensors are no part of forward."""

    def hears(self, frame: FrameType) -> bool:
        """Whether the code in `frame` is to hear it: forward's own, torch's apart."""
        if not self.inside or self.below or frame.f_code.co_filename.startswith(TORCH):
            return False
        self.asked = True
        return True


@contextmanager
def report_target_device(module: nn.Module, name: str) -> Iterator[DeviceReads]:
    """Within, calls of `module` on fake tensors hear the device `name` where they ask; what they
    make on it is made where their tensors are."""
    told = DeviceReads(torch.device(name, 0) if name == "cuda" else torch.device(name))
    modes: list[_TargetDeviceCalls] = []

    def enter(module: nn.Module, args: object) -> None:
        modes.append(_TargetDeviceCalls(told, _device_of(module, args)))
        modes[-1].__enter__()  # type: ignore[no-untyped-call]
        told.inside += 1

    def leave(module: nn.Module, args: object, output: object) -> None:
        if modes:
            told.inside -= 1
            modes.pop().__exit__(None, None, None)  # type: ignore[no-untyped-call]

    with _PATCHED:
        original = vars(FakeTensor)["device"]

        def device(self: FakeTensor) -> torch.device:
            found: torch.device = original.fget(self)
            return told.device if told.hears(sys._getframe(1)) else found

        hooks = (
            module.register_forward_pre_hook(enter),
            module.register_forward_hook(leave, always_call=True),
        )
        setattr(FakeTensor, "device", property(device))  # noqa: B010 - a property of torch's
        try:
            yield told
        finally:
            setattr(FakeTensor, "device", original)  # noqa: B010
            for hook in hooks:
                hook.remove()
            while modes:  # of calls that a trace gave up half done
                told.inside -= 1
                modes.pop().__exit__(None, None, None)  # type: ignore[no-untyped-call]


def _device_of(module: nn.Module, args: object) -> torch.device:
    """Where the call's tensors are."""
    given = args if isinstance(args, tuple) else ()
    tensors = [item for item in given if isinstance(item, torch.Tensor)]
    tensors += [*module.parameters(), *module.buffers()]
    return tensors[0].device if tensors else torch.device("meta")


class _TargetDeviceCalls(TorchFunctionMode):
    """Calls that name the device that was told are made on the one where the tensors are."""

    def __init__(self, told: DeviceReads, real: torch.device) -> None:
        super().__init__()
        self._told = told
        self._real = real
        kinds = {name: vars(torch._C.TensorBase)[f"is_{name}"] for name in ("cuda", "cpu")}
        self._kinds = {asks.__get__: name for name, asks in kinds.items()}

    def __torch_function__(  # type: ignore[no-untyped-def] # torch's own signature
        self, func, types: Sequence[type], args=(), kwargs: Mapping[str, object] | None = None
    ):
        """Run `func` with the device replaced, or tell which kind it is."""
        kind = self._kinds.get(func)
        if kind is not None and self._told.hears(sys._getframe(1)):
            return self._told.device.type == kind
        named = {key: self._here(value) for key, value in (kwargs or {}).items()}
        self._told.below += 1
        try:
            return func(*map(self._here, args), **named)
        finally:
            self._told.below -= 1

    def _here(self, value: object) -> object:
        if isinstance(value, torch.device) and value.type == self._told.device.type:
            return self._real
        known = isinstance(value, str) and value.partition(":")[0] == self._told.device.type
        return self._real if known else value


MODE = "training"


@dataclass
class Mode:
    """Whether a forward may compute something else in the other mode."""

    asked: bool


@contextmanager
def watch_mode_reads(module: nn.Module) -> Iterator[Mode]:
    """Within, every read of `training`, of `module` or any other, is noticed; one through
    `__dict__` is not. Asked from the start where changing the mode changes more than that attribute
    or TorchScript reads it."""
    mode = Mode(not all(map(_has_plain_mode, module.modules())))

    def read(self: nn.Module) -> bool:
        own = self.__dict__
        if not torch.compiler.is_dynamo_compiling():
            # Whatever fx makes a GraphModule of, it copies the mode of.
            mode.asked |= sys._getframe(1).f_code.co_filename != graph_module.__file__
        if MODE not in own:
            raise AttributeError(MODE)
        found: bool = own[MODE]
        return found

    def write(self: nn.Module, value: bool) -> None:
        self.__dict__[MODE] = value

    with _PATCHED:
        before = vars(nn.Module).get(MODE)
        setattr(nn.Module, MODE, property(read, write))
        try:
            yield mode
        finally:
            if before is None:
                delattr(nn.Module, MODE)
            else:  # within another trace
                setattr(nn.Module, MODE, before)


def _has_plain_mode(module: nn.Module) -> bool:
    """Whether `module.train()` sets `training` and nothing else, and Python alone reads it."""
    kind = type(module)
    return (
        kind.train is nn.Module.train
        and kind.__setattr__ is nn.Module.__setattr__
        and not {"train", "__setattr__"} & vars(module).keys()
        and not any(MODE in vars(base) for base in kind.__mro__ if base is not nn.Module)
        and not isinstance(module, torch.jit.ScriptModule)
    )
