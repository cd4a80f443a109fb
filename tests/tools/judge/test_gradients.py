"""Are a drop-in's gradients compared with the original's?"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from agentkernel.agents.coders.compiler.coder import family, partitions
from agentkernel.domain.verdict import Mismatch, Verdict
from agentkernel.tools.capture import capture
from agentkernel.tools.judge.gradients import Pass, _laid_out, gradients, record, rolled
from agentkernel.tools.problems import load_problem
from agentkernel.tools.targets import find_target

PROBLEM = """import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(24))
        self.shift = nn.Parameter(torch.randn(24))

    def forward(self, x):
        return torch.tanh(x * self.scale) + self.shift


def get_inputs():
    return [torch.randn(4, 24)]


def get_init_inputs():
    return []
"""
Judge = Callable[..., Verdict]


@pytest.fixture(scope="module")
def drop_in(tmp_path_factory: pytest.TempPathFactory) -> str:
    path: Path = tmp_path_factory.mktemp("problem") / "small.py"
    path.write_text(PROBLEM)
    loaded = load_problem(str(path))
    choices = partitions(loaded, capture(loaded), "mixed")
    return family(choices, "default", lambda _: None, find_target("h100").target)[0].source.text


def test_the_gradients_of_a_drop_in_are_the_originals(judged: Judge, drop_in: str) -> None:
    verdict = judged(PROBLEM, drop_in)
    assert verdict.accepted, verdict.failure
    assert verdict.gradients is True


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("return None, *(next(left)", "return None, *(2 * next(left)"),
        ("aten.tanh.default(", "aten.sin.default("),
    ],
)
def test_another_gradient_is_refused(judged: Judge, drop_in: str, old: str, new: str) -> None:
    assert old in drop_in
    verdict = judged(PROBLEM, drop_in.replace(old, new))
    assert verdict.gate == "correctness"
    assert isinstance(verdict.failure, Mismatch)
    assert "the gradient of " in verdict.failure.case


def test_a_drop_in_may_refuse_to_record(judged: Judge, drop_in: str) -> None:
    old = "return Differentiable.apply(self, *tensors)"
    assert old in drop_in
    verdict = judged(PROBLEM, drop_in.replace(old, 'raise RuntimeError("no gradients")'))
    assert verdict.accepted, verdict.failure
    assert verdict.gradients is False
    assert any("gradients are refused" in note for note in verdict.notes)


@pytest.mark.parametrize(
    ("form", "stride"),
    [("plain", (4, 1)), ("strided", (8, 2)), ("transposed", (1, 3)), ("expanded", (0, 0))],
)
def test_gradients_that_come_in_lie_in_memory_as_asked(form: str, stride: tuple[int, ...]) -> None:
    drawn = torch.randn(()) if form == "expanded" else torch.randn(3, 4)
    found = _laid_out(drawn, torch.Size((3, 4)), form)  # type: ignore[arg-type]
    assert found.stride() == stride
    assert torch.equal(found, drawn.expand(3, 4))


def test_a_second_derivative_is_of_the_first_ones() -> None:
    x = torch.tensor([1.0, 2.0])
    recorded = record(lambda x: x**3, {}, [x])
    found = gradients(recorded, [recorded.result], [torch.ones(2)], Pass(twice=True))
    assert torch.allclose(found["input 0"], 2 * (3 * x**2) * (6 * x))


def test_a_graph_can_be_differentiated_again() -> None:
    class Once(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            ctx.room = x.detach().clone()
            return x * x

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
            return ctx.room.mul_(2.0) * gradient

    x = torch.tensor([1.0, 2.0])
    found = []
    for way in (Pass(), Pass(again=True)):
        recorded = record(Once.apply, {}, [x])
        found.append(gradients(recorded, [recorded.result], [torch.ones(2)], way)["input 0"])
    assert torch.equal(found[0], 2 * x)
    assert torch.equal(found[1], 4 * x)


def test_what_is_not_wanted_requires_no_gradient_meanwhile() -> None:
    weight = torch.ones(2, requires_grad=True)
    alone = record(lambda x: x * weight, {"weight": weight}, [torch.ones(2)], "parameters")
    assert list(alone.leaves) == ["weight"]
    inputs = record(lambda x: x * weight, {"weight": weight}, [torch.ones(2)], "inputs")
    assert list(inputs.leaves) == ["input 0"]
    assert weight.requires_grad


def test_a_second_call_takes_the_same_values_elsewhere() -> None:
    (found,) = rolled([torch.tensor([[1.0, 2.0], [3.0, 4.0]])])
    assert torch.equal(found, torch.tensor([[4.0, 1.0], [2.0, 3.0]]))  # type: ignore[arg-type]
