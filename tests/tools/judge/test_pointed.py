"""Indices that point at equal values come in any order, but for one that was asked for."""

import pytest
import torch
from torch import nn

from agentkernel.tools.judge.reference.population import points_at_equal_value


class Ordered(nn.Module):
    def __init__(self, stable, turned=False):
        super().__init__()
        self.stable, self.turned = stable, turned

    def forward(self, x):
        x = x.t() if self.turned else x
        return torch.argsort(x, dim=-1, stable=self.stable)


@pytest.mark.parametrize("turned", [False, True])
def test_equal_values_may_come_in_any_order_where_none_was_asked_for(turned):
    x = torch.randint(0, 4, (12, 12), generator=torch.Generator().manual_seed(0))
    source = x.t() if turned else x
    eager = torch.argsort(source, dim=-1, stable=True)
    backwards = 11 - torch.argsort(source.flip(-1), dim=-1, stable=True)
    assert not torch.equal(eager, backwards)
    for found, stable, right in (
        (backwards, False, True),
        (backwards, True, False),
        (eager, True, True),
        (eager.roll(1, -1), False, False),
    ):
        model = Ordered(stable, turned)
        assert points_at_equal_value(model, [x], False, 0, found, eager) is right


class Largest(nn.Module):
    def forward(self, x):
        return torch.argmax(x, dim=-1)


def test_integers_are_told_apart_past_53_bits():
    x = torch.tensor([[(1 << 60), (1 << 60) + 1, 5]])
    eager = torch.argmax(x, dim=-1)
    assert not points_at_equal_value(Largest(), [x], False, 0, torch.tensor([0]), eager)
