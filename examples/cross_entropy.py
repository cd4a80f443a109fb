"""Cross-entropy of a language model's logits: 8192 tokens against a vocabulary of 32768."""

import torch
from torch import nn
from torch.nn import functional as F

TOKENS = 8192
VOCABULARY = 32768


class Model(nn.Module):
    """Mean over the tokens of logsumexp(logits) - logits[target]."""

    def forward(self, logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(logits, target)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(TOKENS, VOCABULARY), torch.randint(0, VOCABULARY, (TOKENS,))]


def get_init_inputs() -> list[object]:
    return []
