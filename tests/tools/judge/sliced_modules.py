"""Modules whose outputs fall into slices along some axis, each with example inputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import nn


class Call(nn.Module):
    """A function, with layers if it needs any."""

    def __init__(self, function: Callable[..., object], *layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.function = function

    def forward(self, *args: torch.Tensor) -> object:
        return self.function(*self.layers, *args)


def _attend(norm: nn.Module, linear: nn.Module, x: torch.Tensor) -> torch.Tensor:
    batch, length, width = x.shape
    heads = linear(norm(x)).view(batch, length, 4, width // 4).transpose(1, 2)
    seen = F.scaled_dot_product_attention(heads, heads, heads, is_causal=True)
    return seen.transpose(1, 2).reshape(batch, length, width) + x


def _block(conv: nn.Module, norm: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return F.max_pool2d(F.relu(norm(conv(x))), 2).flatten(1)


def _padded(x: torch.Tensor) -> torch.Tensor:
    return torch.cat([F.pad(x, (1, 2)), x[..., :3]], dim=-1)


def _scored(x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(x, target, ignore_index=1)


def _divergence(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return F.kl_div(F.log_softmax(x, -1), F.softmax(y, -1), reduction="batchmean")


MODULES: dict[str, tuple[nn.Module, Sequence[tuple[int, ...]]]] = {
    "pointwise": (Call(lambda x, y: F.gelu(x * 2 + y)), [(6, 10), (6, 10)]),
    "broadcast": (Call(lambda x, y: x * y + y.exp()), [(6, 4, 10), (4, 1)]),
    "linear": (Call(lambda m, x: F.silu(m(x)), nn.Linear(10, 7)), [(3, 6, 10)]),
    "product": (Call(torch.matmul), [(6, 10), (10, 8)]),
    "batched product": (Call(torch.matmul), [(3, 6, 10), (3, 10, 8)]),
    "added product": (Call(torch.addmm), [(8,), (6, 10), (10, 8)]),
    "einsum": (Call(lambda x, y: torch.einsum("bij,lj->bil", x, y)), [(3, 6, 10), (5, 10)]),
    "sum of a row": (Call(lambda x: x.sum(-1, keepdim=True)), [(6, 4, 10)]),
    "largest": (Call(lambda x: torch.max(x, dim=1)), [(6, 4, 10)]),
    "which is largest": (Call(lambda x: torch.argmax(x, dim=1)), [(6, 4, 10)]),
    "mean of all": (Call(lambda x, y: (1 - x * y).clamp(min=0).mean()), [(6, 10), (6, 10)]),
    "largest of all": (Call(lambda x: (x.max(), x.amin(0), x.sum((0, 1)))), [(6, 5)]),
    "norm of all": (Call(lambda x: x / torch.norm(x, p="fro")), [(6, 4, 5)]),
    "standardised": (Call(lambda x: (x - x.mean()) / ((x - x.mean()) ** 2).mean()), [(6, 5)]),
    "softmax": (Call(lambda x: F.log_softmax(x, dim=1)), [(6, 5, 4)]),
    "log of a sum": (Call(lambda x: x.logsumexp(dim=(0, 1))), [(6, 5, 4)]),
    "scan": (Call(lambda x: torch.cumsum(x.flip(1), dim=1)), [(6, 5, 4)]),
    "convolution": (Call(_block, nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)), [(6, 3, 9, 9)]),
    "transposed": (Call(lambda m, x: m(x), nn.ConvTranspose1d(3, 4, 3, 2)), [(6, 3, 9)]),
    "pooling": (Call(lambda x: F.avg_pool3d(x, 2)), [(4, 3, 4, 6, 4)]),
    "group norm": (Call(lambda m, x: m(x), nn.GroupNorm(2, 4)), [(6, 4, 3)]),
    "instance norm": (Call(lambda m, x: m(x), nn.InstanceNorm2d(4)), [(6, 4, 3, 3)]),
    "RMS norm": (Call(lambda m, x: m(x), nn.RMSNorm(8)), [(6, 4, 8)]),
    "attention": (Call(_attend, nn.LayerNorm(8), nn.Linear(8, 8)), [(4, 6, 8)]),
    "views": (Call(lambda x: x.view(6, 2, 5).permute(2, 0, 1).reshape(5, 12)), [(6, 10)]),
    "padding": (Call(_padded), [(6, 4, 5)]),
    "squared": (Call(F.mse_loss), [(6, 5), (6, 5)]),
    "divergence": (Call(_divergence), [(6, 5), (6, 5)]),
    "triplet": (Call(F.triplet_margin_loss), [(6, 5), (6, 5), (6, 5)]),
    "similarity": (Call(lambda x, y: F.cosine_similarity(x, y, dim=1)), [(6, 5), (6, 5)]),
}
"""Name -> module and the shapes of its inputs, drawn as normal values."""
TARGETS: dict[str, tuple[nn.Module, Sequence[tuple[int, ...]]]] = {
    "cross entropy": (Call(F.cross_entropy), [(12, 5), (12,)]),
    "ignored": (Call(_scored), [(12, 5), (12,)]),
    "lookup": (Call(lambda m, _, i: m(i), nn.Embedding(5, 4)), [(12, 5), (12, 3)]),
}
"""The same with a second input of class numbers below 5."""


def examples(name: str) -> tuple[nn.Module, list[torch.Tensor]]:
    """The module in eval mode, and inputs."""
    module, shapes = (MODULES | TARGETS)[name]
    generator = torch.Generator().manual_seed(7)
    inputs = [torch.randn(shape, generator=generator) for shape in shapes]
    if name in TARGETS:
        inputs[1] = torch.randint(0, 5, shapes[1], generator=generator)
    return module.eval(), inputs
