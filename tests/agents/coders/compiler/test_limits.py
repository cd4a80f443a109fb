"""Is a module traced in training mode once a graph, however often it is asked about?"""

from __future__ import annotations

import pytest
import torch
from torch import nn

from agentkernel.agents.coders.compiler import limits
from agentkernel.tools.capture import Captured, capture
from agentkernel.tools.problems import LoadedProblem, problem_from_module


@pytest.mark.parametrize(("module", "differs"), [(nn.Dropout(0.5), True), (nn.ReLU(), False)])
def test_training_mode_is_traced_once_a_graph(
    module: nn.Module, differs: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = problem_from_module(module.eval(), [torch.randn(4, 6)])
    captured, traced = capture(loaded), []

    def counted(problem: LoadedProblem, *, training: bool = False) -> Captured:
        traced.append(training)
        return capture(problem, training=training)

    monkeypatch.setattr(limits, "capture", counted)
    found = [limits.eval_only_once(loaded, captured) for _ in range(3)]
    assert found == [differs] * 3
    assert traced == [False, True]
