"""An int8 weight with a scale an output feature, used in fp16."""

import torch
from torch import nn


class Model(nn.Module):
    """x (q * scale)^T for int8 q."""

    def __init__(self, features: int, outputs: int) -> None:
        super().__init__()
        self.register_buffer("q", torch.randint(-127, 128, (outputs, features), dtype=torch.int8))
        self.register_buffer("scale", torch.empty(outputs, 1).uniform_(0.001, 0.01).half())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ (self.q.to(x.dtype) * self.scale).t()


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(64, 4096, dtype=torch.float16)]


def get_init_inputs() -> list[object]:
    return [4096, 11008]
