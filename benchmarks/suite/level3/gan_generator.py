"""A generator of 64 x 64 pictures from noise: transposed convolutions."""

import itertools

import torch
from torch import nn


class Model(nn.Module):
    """Five transposed convolutions, norm and ReLU between, tanh at the end."""

    def __init__(self, latent: int, width: int) -> None:
        super().__init__()
        sizes = (latent, 8 * width, 4 * width, 2 * width, width)
        self.convs = nn.ModuleList(
            nn.ConvTranspose2d(a, b, 4, stride=1 + (i > 0), padding=int(i > 0), bias=False)
            for i, (a, b) in enumerate(itertools.pairwise(sizes))
        )
        self.norms = nn.ModuleList(nn.BatchNorm2d(size) for size in sizes[1:])
        self.last = nn.ConvTranspose2d(width, 3, 4, stride=2, padding=1)
        for item in self.modules():
            if isinstance(item, nn.BatchNorm2d):
                nn.init.uniform_(item.weight, 0.5, 1.5)
                nn.init.normal_(item.bias, std=0.2)
                nn.init.normal_(item.running_mean, std=0.2)
                nn.init.uniform_(item.running_var, 0.5, 1.5)

    def forward(self, z: torch.Tensor) -> torch.Tensor:
        for conv, norm in zip(self.convs, self.norms, strict=True):
            z = torch.relu(norm(conv(z)))
        return torch.tanh(self.last(z))


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(64, 100, 1, 1)]


def get_init_inputs() -> list[object]:
    return [100, 64]
