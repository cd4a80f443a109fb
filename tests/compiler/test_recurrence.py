"""Recurrent layers as kernels that step through time."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from agentkernel.compiler.partitions import partitions
from agentkernel.compiler.providers import provider_of
from agentkernel.compiler.recurrence import RecurrenceStep
from agentkernel.tools.problem.capture import capture
from agentkernel.tools.problem.loading import problem_from_module
from tests.compiler.forms import accepted_text

BATCH, STEPS, FEATURES = 3, 4, 5


class Whole(nn.Module):
    """All results of a recurrent layer."""

    def __init__(self, layer: nn.RNNBase) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: torch.Tensor) -> object:
        return self.layer(x)


class Head(nn.Module):
    """What a linear layer makes of the last output, with given states."""

    def __init__(self, units: int, layers: int) -> None:
        super().__init__()
        self.lstm = nn.LSTM(FEATURES, units, layers, batch_first=True)
        self.head = nn.Linear(units, 4)

    def forward(self, x: torch.Tensor, h: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
        return self.head(self.lstm(x, (h, c))[0][:, -1])


LAYERS: dict[str, Callable[[], nn.RNNBase]] = {
    "lstm": lambda: nn.LSTM(FEATURES, 18),
    "lstm_of_three_layers": lambda: nn.LSTM(FEATURES, 32, 3, batch_first=True),
    "lstm_in_both_directions": lambda: nn.LSTM(FEATURES, 17, 2, bidirectional=True),
    "gru": lambda: nn.GRU(FEATURES, 32, batch_first=True),
    "gru_of_two_layers_without_biases": lambda: nn.GRU(FEATURES, 20, 2, bias=False),
    "gru_in_both_directions": lambda: nn.GRU(FEATURES, 16, bidirectional=True, batch_first=True),
    "rnn": lambda: nn.RNN(FEATURES, 33, 2),
    "rnn_with_relu": lambda: nn.RNN(FEATURES, 16, nonlinearity="relu", bidirectional=True),
}


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_is_stepped_through_by_one_kernel(name: str) -> None:
    torch.manual_seed(0)
    layer = LAYERS[name]()
    shape = (BATCH, STEPS) if layer.batch_first else (STEPS, BATCH)
    loaded = problem_from_module(Whole(layer).eval(), [torch.randn(*shape, FEATURES)])
    text = accepted_text(loaded)
    assert "torch.ops.aten" not in text
    assert "for turn in range" in text
