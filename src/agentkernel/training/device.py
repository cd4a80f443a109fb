"""Which device does a training run on, and in which numbers does it compute there?"""

from __future__ import annotations

from typing import Literal

import torch

Precision = Literal["bf16", "fp32"]


def device_name() -> str:
    """The GPU's name, or "CPU"."""
    return torch.cuda.get_device_name(0) if torch.cuda.is_available() else "CPU"


def in_bf16(wanted: bool) -> bool:
    """Whether products are taken in bf16: where that is `wanted`, and the GPU has it itself."""
    if not wanted or not torch.cuda.is_available():
        return False
    return bool(torch.cuda.is_bf16_supported(including_emulation=False))


def precision_of(wanted: bool) -> Precision:
    """The name of the numbers, as a record has it; `wanted` as in `in_bf16`."""
    return "bf16" if in_bf16(wanted) else "fp32"


__all__ = ["Precision", "device_name", "in_bf16", "precision_of"]
