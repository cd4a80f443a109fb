"""The symmetric loss of image and text embeddings."""

import torch
from torch import nn
from torch.nn import functional as F


class Model(nn.Module):
    """half the cross-entropy of the similarities along either side."""

    def __init__(self, temperature: float) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(1.0 / temperature))

    def forward(self, images: torch.Tensor, texts: torch.Tensor) -> torch.Tensor:
        logits = F.normalize(images, dim=-1) @ F.normalize(texts, dim=-1).t() * self.scale
        target = torch.arange(logits.shape[0], device=logits.device)
        return 0.5 * (F.cross_entropy(logits, target) + F.cross_entropy(logits.t(), target))


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(4096, 512), torch.randn(4096, 512)]


def get_init_inputs() -> list[object]:
    return [0.07]
