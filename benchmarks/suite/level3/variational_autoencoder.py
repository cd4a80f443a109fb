"""A variational autoencoder of flat pictures with given noise, and its loss."""

import torch
from torch import nn
from torch.nn import functional as F


class Model(nn.Module):
    """binary cross-entropy plus divergence, a sample."""

    def __init__(self, features: int, hidden: int, latent: int) -> None:
        super().__init__()
        self.enter = nn.Linear(features, hidden)
        self.mean = nn.Linear(hidden, latent)
        self.log_var = nn.Linear(hidden, latent)
        self.leave = nn.Linear(latent, hidden)
        self.picture = nn.Linear(hidden, features)

    def forward(self, x: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
        target = torch.sigmoid(x)
        hidden = torch.relu(self.enter(target))
        mean, log_var = self.mean(hidden), self.log_var(hidden)
        sample = mean + torch.exp(0.5 * log_var) * noise
        logits = self.picture(torch.relu(self.leave(sample)))
        raw = F.binary_cross_entropy_with_logits(logits, target, reduction="none").sum(dim=-1)
        return raw - 0.5 * (1 + log_var - mean.square() - log_var.exp()).sum(dim=-1)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(8192, 784), torch.randn(8192, 20)]


def get_init_inputs() -> list[object]:
    return [784, 400, 20]
