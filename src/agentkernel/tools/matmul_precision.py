"""Rounding of fp32 operands in the matrix products of PyTorch.

PyTorch has two interfaces: `torch.set_float32_matmul_precision` with the `allow_tf32` flags, and
`torch.backends.cuda.matmul.fp32_precision` with its like. Once they disagree, reading the first
raises RuntimeError or returns a stale value; the second can always be read, and follows what the
first sets. Transformers sets the second, as does whoever follows the notes of PyTorch on CUDA.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import torch
from torch import nn

from agentkernel.domain.profile import MatmulPrecision


def matmul_precision() -> MatmulPrecision:
    """What holds for products in this process: where the two disagree, what the second says, of
    which TF32 is "high"."""
    rounds = products_round()
    with suppress(RuntimeError):
        said = torch.get_float32_matmul_precision()
        if (said != "highest") == rounds:
            return said  # type: ignore[return-value]
    return "high" if rounds else "highest"


def products_round() -> bool:
    """May a GPU's matrix products round to TF32?"""
    return bool(torch.backends.cuda.matmul.fp32_precision == "tf32")


def convolutions_round() -> bool:
    """May cuDNN's convolutions round to TF32?"""
    return bool(torch.backends.cudnn.conv.fp32_precision == "tf32")  # type: ignore[attr-defined]


@contextmanager
def rounding_as(precision: MatmulPrecision) -> Iterator[None]:
    """Run under `torch.set_float32_matmul_precision(precision)`, which is the process's, and put
    back what was there, by whichever interface it was set."""
    backends: Any = torch.backends
    switches = (backends.cuda.matmul, backends.mkldnn.matmul)
    named = [switch.fp32_precision for switch in switches]
    before = matmul_precision()
    torch.set_float32_matmul_precision(precision)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
        for switch, name in zip(switches, named, strict=True):
            if switch.fp32_precision != name:
                switch.fp32_precision = name


class RoundingModule(nn.Module):
    """A module whose calls run under `torch.set_float32_matmul_precision(precision)`.

    The switch is the process's: it is set for the length of a call and put back, also where the
    call raises. The module's own names and parameters are under `module`.
    """

    def __init__(self, module: nn.Module, precision: MatmulPrecision) -> None:
        super().__init__()
        self.module = module
        self.precision = precision

    def forward(self, *args: object, **kwargs: object) -> object:
        """`module`'s result for the same arguments."""
        with rounding_as(self.precision):
            return self.module(*args, **kwargs)
