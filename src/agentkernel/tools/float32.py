"""How far may PyTorch round fp32 operands of its own products, whichever way that was said?

PyTorch has two interfaces for it: `torch.set_float32_matmul_precision`, with the `allow_tf32`
flags, and `torch.backends.cuda.matmul.fp32_precision` with its like. Once they disagree, reading
the first raises RuntimeError or says what no longer holds; the second can always be read, and
follows what the first sets.
Transformers sets the second, as does whoever follows PyTorch's notes on CUDA.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import torch

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
