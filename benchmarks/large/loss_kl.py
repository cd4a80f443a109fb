"""Kullback-Leibler divergence of 8192 rows of 131072 probabilities."""

import torch
import torch.nn.functional as F
from torch import nn


class Model(nn.Module):
    """KL divergence, mean over the batch."""

    def forward(self, p: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
        return F.kl_div(torch.log(p), q, reduction="batchmean")


def get_inputs() -> list[torch.Tensor]:
    p = torch.rand(8192, 131072).softmax(dim=-1)
    q = torch.rand(8192, 131072).softmax(dim=-1)
    return [p, q]


def get_init_inputs() -> list[object]:
    return []
