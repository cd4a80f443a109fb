"""A forward that may differ in training mode is never taken for one that cannot."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from agentkernel.compiler.drop_in.envelope import eval_only
from agentkernel.tools.problem.capture import capture
from agentkernel.tools.problem.loading import problem_from_module
from agentkernel.tools.problem.trace_modes import watch_mode_reads

X = torch.randn(4, 6)


class Plain(nn.Module):
    """Layers that are the same in both modes, and a dropout that nobody calls."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(6, 6), nn.LayerNorm(6), nn.GELU())
        self.unused = nn.Dropout()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


def noisy(module: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return x + 1.0 if getattr(module, "train" + "ing") else x


class ByAFunction(nn.Module):
    """Its own text never says the word."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return noisy(self, x)


class Switched(nn.Module):
    """`train` sets something else, which forward reads."""

    scale = 1.0

    def train(self, mode: bool = True) -> Switched:
        self.scale = 2.0 if mode else 1.0
        return super().train(mode)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.scale


class Mirrored(nn.Module):
    """What sets `training` sets something else with it."""

    def __setattr__(self, name: str, value: object) -> None:
        super().__setattr__(name, value)
        if name == "training":
            super().__setattr__("scale", 2.0 if value else 1.0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.scale


class Elsewhere(nn.Module):
    """Its `training` is kept under another name."""

    @property
    def training(self) -> bool:
        return bool(self.__dict__.get("mode"))

    @training.setter
    def training(self, value: bool) -> None:
        self.__dict__["mode"] = value

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2.0 if self.__dict__.get("mode") else x


class Branching(nn.Module):
    """Dynamo traces the branches."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        more = lambda x: x * (2.0 if self.training else 3.0)  # noqa: E731
        return torch.cond(x.sum() > 0, more, lambda x: -x, (x,))


class OnTheGpu(nn.Module):
    """Which of two ways it takes is told by the device."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.is_cuda:
            return x + 1.0
        return F.dropout(x, 0.5, self.training) + 1.0


DIFFERENT = {
    "dropout": nn.Dropout(),
    "batch_norm": nn.Sequential(nn.Linear(6, 6), nn.BatchNorm1d(6)),
    "function": ByAFunction(),
    "train": nn.Sequential(Switched()),
    "setattr": Mirrored(),
    "property": Elsewhere(),
    "branches": Branching(),
    "device": OnTheGpu(),
    "a hook": nn.utils.spectral_norm(nn.Linear(6, 6)),
}


@pytest.mark.quick(3)
@pytest.mark.parametrize("module", DIFFERENT.values(), ids=DIFFERENT)
def test_a_difference_is_found(module: nn.Module) -> None:
    loaded = problem_from_module(module.eval(), [X])
    captured = capture(loaded)
    assert captured.asks_mode
    assert eval_only(loaded, captured)


@pytest.mark.quick(1)
@pytest.mark.parametrize("module", [Plain(), nn.LayerNorm(6)])
def test_a_forward_that_never_asks_is_the_same_in_both_modes(module: nn.Module) -> None:
    loaded = problem_from_module(module.eval(), [X])
    captured = capture(loaded)
    assert not captured.asks_mode
    assert capture(loaded, training=True).graph.code == captured.graph.code


def test_what_torchscript_reads_is_not_seen() -> None:
    scripted = torch.jit.script(nn.Sequential(nn.Dropout()))
    with watch_mode_reads(nn.Sequential(scripted)) as mode:
        scripted(X)
    assert mode.asked


def test_modules_are_as_they_were_after_it() -> None:
    module = nn.Dropout()
    with pytest.raises(KeyError), watch_mode_reads(module) as outer:  # noqa: PT012
        with watch_mode_reads(module) as inner:
            assert module.training
        assert inner.asked
        module.eval()
        assert not outer.asked
        raise KeyError
    assert "training" not in vars(nn.Module)
    assert vars(module)["training"] is False
    assert not hasattr(object.__new__(nn.Module), "training")
