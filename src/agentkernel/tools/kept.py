"""How is a baseline handed back that may round more than PyTorch's default?"""

from __future__ import annotations

from torch import nn

from agentkernel.domain.profile import MatmulPrecision
from agentkernel.tools.float32 import rounding_as


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
