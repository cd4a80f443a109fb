"""Does capture see what the module computes, and name what it cannot take?"""

from dataclasses import replace

import pytest
import sympy
import torch
from torch import nn
from torch.utils._sympy.functions import Mod

from agentkernel.errors import ProblemError
from agentkernel.tools.capture import FreeDim, capture
from agentkernel.tools.problems import problem_from_module


class Norm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.ln = nn.LayerNorm(8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu_(self.ln(x))


class Branch(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x if x.sum() > 0 else -x


class Square(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ x


class Structured(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = torch.arange(8.0)

    def forward(self, x: torch.Tensor, k: int) -> dict[str, object]:
        return {"a": x * self.scale, "b": None, "c": [x + k]}


class Head(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8 * 9, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(nn.functional.max_pool2d(x, 2).flatten(1))


class Statistics(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.bn = nn.BatchNorm1d(8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        bn = self.bn
        return nn.functional.batch_norm(x, bn.running_mean, bn.running_var, training=True)


def _targets(graph: torch.fx.GraphModule) -> list[str]:
    return [str(node.target) for node in graph.graph.nodes if node.op == "call_function"]


def test_a_norm_stays_whole_functional_and_its_batch_stays_free() -> None:
    captured = capture(problem_from_module(Norm(), (torch.randn(4, 8),)))
    assert _targets(captured.graph) == ["aten.layer_norm.default", "aten.relu.default"]
    assert captured.parameters == {"p_ln_weight": "ln.weight", "p_ln_bias": "ln.bias"}
    (free,) = captured.free_dims
    assert free == FreeDim(free.symbol, 0, 0, 4)
    assert captured.static_reason is None


def test_values_carry_no_memory() -> None:
    problem = problem_from_module(Norm(), (torch.empty(1 << 40, 8, device="meta"),))
    (free,) = capture(problem).free_dims
    assert free.size == 1 << 40


def test_plain_tensors_scalars_and_nested_outputs() -> None:
    captured = capture(problem_from_module(Structured(), (torch.randn(4, 8), 3)))
    assert captured.user_inputs == ("x", "k")
    assert list(captured.constants.values()) == ["scale"]
    assert [name is None for name in captured.outputs] == [False, True, False]


def test_training_statistics_are_listed_as_mutations() -> None:
    captured = capture(problem_from_module(Statistics(), (torch.randn(4, 8),)))
    assert captured.mutated_buffers == ("bn.running_mean", "bn.running_var")


@pytest.mark.parametrize(
    ("module", "message"),
    [(Branch(), "branches on tensor values"), (Square(), "on inputs x float32[4, 8]")],
)
def test_one_clear_line_for_what_cannot_be_captured(
    module: nn.Module, message: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ProblemError) as raised:
        capture(problem_from_module(module, (torch.randn(4, 8),)))
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)
    assert capfd.readouterr().err == ""


def test_sizes_with_which_a_guard_divides_by_zero_are_not_admitted() -> None:
    captured = capture(problem_from_module(Head(), (torch.randn(4, 8, 6, 6),)))
    height, width = (dim for dim in captured.free_dims if dim.dim > 1)
    declared = {dim.symbol: dim.size for dim in captured.free_dims}
    assert captured.admits(declared)
    assert captured.admits(declared | {height.symbol: 7, width.symbol: 7})
    assert not captured.admits(declared | {height.symbol: 1}), "a pool over nothing"


def test_sizes_with_which_a_guard_takes_the_rest_of_a_negative_number_are_not_admitted() -> None:
    captured = capture(problem_from_module(Norm(), (torch.randn(4, 8),)))
    rows = captured.free_dims[0]
    size = sympy.Symbol(rows.symbol, positive=True, integer=True)
    guarded = replace(captured, guards=(sympy.Eq(Mod(size - 2, 2), 0),))
    assert guarded.admits({rows.symbol: 4})
    assert not guarded.admits({rows.symbol: 5})
    assert not guarded.admits({rows.symbol: 1})
