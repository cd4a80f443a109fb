"""Attention over a memory of another length takes other lengths than the declared ones."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from agentkernel.compiler.attention import find_steps
from agentkernel.compiler.partitions import partitions
from agentkernel.tools.problem.capture import capture
from agentkernel.tools.problem.loading import problem_from_module
from tests.compiler.forms import small
from tests.compiler.sandboxed_drop_in import Sandboxed
from tests.compiler.test_attention_drop_ins import TILE

Tensor = torch.Tensor
WIDTH, HEADS = 32, 2


def apart(x: Tensor) -> Tensor:
    return x.unflatten(-1, (HEADS, -1)).transpose(1, 2)


def written(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.softmax(q @ k.mT / (WIDTH // HEADS) ** 0.5, dim=-1) @ v


class Cross(nn.Module):
    """Queries of `x`, keys and values of `memory`, packed in one layer or in two."""

    def __init__(self, attend: Callable[..., Tensor], *, packed: bool, dtype: torch.dtype) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.attend, self.packed = attend, packed
        self.q = nn.Linear(WIDTH, WIDTH, bias=False)
        self.kv = nn.Linear(WIDTH, 2 * WIDTH, bias=False)
        self.k, self.v, self.out = (nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.to(dtype)

    def forward(self, x: Tensor, memory: Tensor) -> Tensor:
        kv = self.kv(memory).chunk(2, -1) if self.packed else (self.k(memory), self.v(memory))
        found = self.attend(apart(self.q(x)), *map(apart, kv))
        return x + self.out(found.transpose(1, 2).flatten(2))


class Multihead(nn.Module):
    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.attend = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True, dtype=dtype)

    def forward(self, x: Tensor, memory: Tensor) -> Tensor:
        return self.attend(x, memory, memory, need_weights=False)[0]


SDPA = F.scaled_dot_product_attention
FORMS: dict[str, Callable[[torch.dtype], nn.Module]] = {
    "multihead": Multihead,
    "written": lambda dtype: Cross(written, packed=False, dtype=dtype),
    "written_packed": lambda dtype: Cross(written, packed=True, dtype=dtype),
    "named": lambda dtype: Cross(SDPA, packed=False, dtype=dtype),
    "named_packed": lambda dtype: Cross(SDPA, packed=True, dtype=dtype),
}


@pytest.mark.quick(2)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("form", ["named_packed", *sorted(FORMS.keys() - {"named_packed"})])
def test_every_cut_takes_another_length(box: Sandboxed, form: str, dtype: torch.dtype) -> None:
    module = FORMS[form](dtype).eval()
    loaded = problem_from_module(module, sized(2, 9, 20, dtype))
    found = partitions(loaded, capture(loaded), "mixed")
    texts = dict.fromkeys(
        item.write(small(item, "looped") | tiles(item.partition.steps)).text for item in found
    )
    for text in texts:
        for sizes in ((2, 9, 21), (3, 5, 7)):
            box.check(text, module, sized(*sizes, dtype))


def sized(batch: int, queries: int, keys: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    torch.manual_seed(1)
    return tuple(torch.randn(batch, length, WIDTH, dtype=dtype) for length in (queries, keys))


def tiles(steps: tuple[object, ...]) -> dict[object, dict[str, int]]:
    """Small ones of attention."""
    return dict.fromkeys(find_steps(steps), TILE)
