"""A language model's block: RMSNorm, rotary embedding, grouped-query attention, SwiGLU, bf16."""

import torch
from torch import nn
from torch.nn import functional as F


class Model(nn.Module):
    """x + attention(norm(x)); then + swiglu(norm(.))."""

    def __init__(self, features: int, heads: int, groups: int, hidden: int) -> None:
        super().__init__()
        self.heads, self.groups, self.size = heads, groups, features // heads
        self.norm1 = nn.RMSNorm(features, eps=1e-6)
        self.q = nn.Linear(features, features, bias=False)
        self.k = nn.Linear(features, groups * self.size, bias=False)
        self.v = nn.Linear(features, groups * self.size, bias=False)
        self.out = nn.Linear(features, features, bias=False)
        self.norm2 = nn.RMSNorm(features, eps=1e-6)
        self.gate = nn.Linear(features, hidden, bias=False)
        self.up = nn.Linear(features, hidden, bias=False)
        self.down = nn.Linear(hidden, features, bias=False)
        nn.init.uniform_(self.norm1.weight, 0.5, 1.5)
        nn.init.uniform_(self.norm2.weight, 0.5, 1.5)
        self.to(torch.bfloat16)

    def turn(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        """Rotary embedding in half-rotated form."""
        left, right = x.chunk(2, dim=-1)
        return x * cos + torch.cat((-right, left), dim=-1) * sin

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        batch, tokens, features = x.shape
        normed = self.norm1(x)
        q = self.q(normed).view(batch, tokens, self.heads, self.size).transpose(1, 2)
        k = self.k(normed).view(batch, tokens, self.groups, self.size).transpose(1, 2)
        v = self.v(normed).view(batch, tokens, self.groups, self.size).transpose(1, 2)
        share = self.heads // self.groups
        k = self.turn(k, cos, sin).repeat_interleave(share, dim=1)
        v = v.repeat_interleave(share, dim=1)
        q = self.turn(q, cos, sin)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, tokens, features))
        normed = self.norm2(x)
        return x + self.down(F.silu(self.gate(normed)) * self.up(normed))


def get_inputs() -> list[torch.Tensor]:
    x = torch.randn(2, 1024, 2048, dtype=torch.bfloat16)
    return [x, *(torch.randn(1024, 128, dtype=torch.bfloat16) for _ in range(2))]


def get_init_inputs() -> list[object]:
    return [2048, 16, 4, 5632]
