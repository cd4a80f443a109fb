"""Traces that notice whether a forward asks for its mode, training or eval."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import nn
from torch.fx import graph_module

MODE = "training"
_PATCHED = threading.RLock()


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
