"""A model with kernels that can be told apart in the graphs that torch.compile makes of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import nn

from agentkernel.domain.region import Kernel
from agentkernel.swap.swap import apply
from tests.swap.applied_kernels import MLP, NORM, block, make_kernel, norm_kernel

# An operation that the originals do not have tells the kernels in a graph.
MARKED_NORM = NORM.replace("+ self.bias", "+ self.bias + 0 * torch.sin(self.bias)")
MARKED_MLP = MLP.replace("return inner @", "return 0 * torch.cos(inner).sum() + inner @")
BLOCKS = 4


class Stack(nn.Module):
    def __init__(self, blocks: int = BLOCKS) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(block(seed) for seed in range(blocks))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for item in self.blocks:
            x = item(x)
        return x


class Graphs:
    """A backend that runs what it is given and keeps it."""

    def __init__(self) -> None:
        self.made: list[torch.fx.GraphModule] = []

    def __call__(
        self, graph: torch.fx.GraphModule, _: Sequence[torch.Tensor]
    ) -> Callable[..., object]:
        self.made.append(graph)
        return graph.forward

    def marks(self, word: str) -> list[int]:
        """How often an operation of that name is in each graph."""
        return [sum(word in str(node.target) for node in graph.graph.nodes) for graph in self.made]


def stack() -> Stack:
    """Three kernels in every block."""
    model = Stack().eval().requires_grad_(False)
    norm, mlp = norm_kernel(MARKED_NORM), make_kernel(MARKED_MLP, block().mlp)
    kernels: dict[str, Kernel] = {}
    for i in range(BLOCKS):
        kernels |= {f"blocks.{i}.norm": norm, f"blocks.{i}.mlp": mlp, f"blocks.{i}.last": norm}
    apply(model, kernels)
    return model
