"""A module is traced no more often than its limits take."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from agentkernel.compiler.drop_in import envelope
from agentkernel.tools.problem.capture import Captured, capture
from agentkernel.tools.problem.loading import LoadedProblem, problem_from_module


@pytest.mark.parametrize(("module", "differs"), [(nn.Dropout(0.5), True), (nn.ReLU(), False)])
def test_training_mode_is_traced_once_a_graph(
    module: nn.Module, differs: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = problem_from_module(module.eval(), [torch.randn(4, 6)])
    captured, traced = capture(loaded), []

    def counted(problem: LoadedProblem, *, training: bool = False) -> Captured:
        traced.append(training)
        return capture(problem, training=training)

    monkeypatch.setattr(envelope, "capture", counted)
    assert [envelope.eval_only_once(loaded, captured) for _ in range(3)] == [differs] * 3
    assert traced == ([False, True] if differs else [])


class OneRow(nn.Module):
    """One row is another graph; a layer of 6 columns admits no other number of them."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x.expand(3, 6) + 1.0 if x.shape[0] == 1 else x * 2.0)


@pytest.mark.quick(1)
@pytest.mark.parametrize(("layer", "count"), [(nn.Linear(6, 6), 1), (nn.ReLU(), 3)])
def test_a_size_of_1_is_traced_apart_only_where_several_may_be_1(
    layer: nn.Module, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = problem_from_module(OneRow(layer).eval(), [torch.randn(4, 6)])
    captured, traced = capture(loaded), []

    def counted(problem: LoadedProblem) -> Captured:
        traced.append(problem)
        return capture(problem)

    monkeypatch.setattr(envelope, "capture", counted)
    spans = envelope.limits_of(loaded, captured).spans
    assert [spans[item.symbol].least for item in captured.free_dims] == [2, 1][: len(spans)]
    assert len(traced) == count
