"""The fp64 oracle stays in fp64, whatever a module casts or makes on its way."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from agentkernel.tools.judge.reference.oracle import call_reference


class Rotary(nn.Module):
    """Angles as language models compute them: positions as floats, in a product."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("frequencies", torch.rand(1, 4, 1, dtype=torch.bfloat16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        places = torch.arange(x.shape[1])[None, None, :]
        angles = torch.bmm(self.frequencies.float(), places.float())
        return x * angles.transpose(1, 2).cos().sum(-1, keepdim=True).to(x.dtype)


class Zeros(nn.Module):
    """A product with what `forward` makes itself."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        base = torch.eye(x.shape[-1]) + torch.full((x.shape[-1],), 0.3, dtype=torch.float32)
        return (x.float() @ base).to(x.dtype)


class Experts(nn.Module):
    """A grouped product, which is not known in fp64."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3, 16, 8, dtype=torch.bfloat16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        ends = torch.tensor([2, 2, 7], dtype=torch.int32)
        return torch._grouped_mm(x, self.weight, offs=ends)


@pytest.mark.parametrize(
    ("model", "shape"), [(Rotary(), (1, 6, 8)), (Zeros(), (4, 8)), (Experts(), (7, 16))]
)
def test_there_is_an_oracle_and_it_is_exact(model: nn.Module, shape: tuple[int, ...]) -> None:
    x = torch.randn(shape, dtype=torch.bfloat16)
    answer = call_reference(model.eval(), [x])
    assert not answer.no_oracle, answer.note
    assert answer.note is None
    (exact,), (eager,) = answer.oracle, answer.leaves
    assert isinstance(eager, torch.Tensor)
    assert exact.dtype == torch.float64
    distance = (eager.double() - exact).norm() / exact.norm()
    assert 0 < distance < 0.02
