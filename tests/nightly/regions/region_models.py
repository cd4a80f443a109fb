"""Which small models do the tests of regions cut?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from types import MappingProxyType

import torch
from torch import nn

from agentkernel.domain.nightly import ZooModel

WIDTH = 16


@dataclass(frozen=True)
class FakeCall:
    args: tuple[object, ...] = ()
    kwargs: MappingProxyType[str, object] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True)
class FakeLoaded:
    """A model that is made by `make` and called on `inputs(generator)`."""

    make: Callable[[], nn.Module]
    inputs: Callable[[torch.Generator], tuple[object, ...]]
    spec: ZooModel = field(default_factory=lambda: ZooModel(name="model", model="a:B"))

    def build(self, device: str = "cpu") -> nn.Module:
        torch.manual_seed(0)
        return self.make().eval().requires_grad_(False).to(device)

    def make_call(self, device: str = "cpu", seed: int = 0) -> FakeCall:
        generator = torch.Generator().manual_seed(seed)
        return FakeCall(self.inputs(generator))


def loaded(make: Callable[[], nn.Module], *shape: int, name: str = "model") -> FakeLoaded:
    """A model on one float32 input of `shape`."""
    sizes = shape or (2, 4, WIDTH)
    return FakeLoaded(
        make,
        lambda generator: (torch.randn(sizes, generator=generator),),
        ZooModel(name=name, model="a:B"),
    )


class Mlp(nn.Module):
    def __init__(self, width: int = WIDTH, eps: float = 1e-5) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width, eps=eps)
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)

    def forward(self, x: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
        return x + scale * self.down(torch.relu(self.up(self.norm(x))))


class Layer(nn.Module):
    """Calls its parts by position, by keyword, and one of them with what no region takes."""

    def __init__(self, index: int = 0) -> None:
        super().__init__()
        self.index = index
        self.mlp = Mlp()
        self.gate = Gate()
        self.drop = nn.Dropout(0.1)

    def forward(self, x: torch.Tensor, cache: object, index: int = 0) -> torch.Tensor:
        return self.drop(self.gate(x=self.mlp(x, 1.0), extra=None, mask=None))


class Gate(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, x: torch.Tensor, mask: object = None, **extra: object) -> torch.Tensor:
        return torch.sigmoid(self.norm(x)) * x


class Cache:
    """No plain data: nobody knows what a forward does to it."""


class Tower(nn.Module):
    """Equal layers, and a norm at the end that is the one inside of them."""

    def __init__(self, depth: int = 3) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Layer(index) for index in range(depth))
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x, Cache())
        return self.norm(x)
