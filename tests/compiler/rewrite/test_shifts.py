"""Softmax and the norms forget what they cancel, and nothing else."""

from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from tests.compiler.rewrite.checks import PROPERTY, checked

Tensor = torch.Tensor
F = nn.functional


class Shifted(nn.Module):
    """x + c, c a parameter or a number, then something that may forget c."""

    def __init__(
        self, then: Callable[[Tensor], Tensor], sizes: tuple[int, ...] | None, verb: str = "add"
    ) -> None:
        super().__init__()
        self.c = nn.Parameter(torch.ones(sizes)) if sizes is not None else 1.5
        self.then, self.verb = then, verb

    def forward(self, x: Tensor) -> Tensor:
        return self.then(x + self.c if self.verb == "add" else x - self.c)


@PROPERTY
@given(
    log=st.booleans(),
    dim=st.integers(0, 2),
    number=st.booleans(),
    verb=st.sampled_from(["add", "sub"]),
)
def test_softmax_forgets_what_is_the_same_along_its_dimension(
    log: bool, dim: int, number: bool, verb: str
) -> None:
    sizes = tuple(1 if index == dim else size for index, size in enumerate((5, 6, 7)))
    softmax = torch.log_softmax if log else torch.softmax
    module = Shifted(lambda x: softmax(x, dim), None if number else sizes, verb)
    assert checked(module, [torch.randn(5, 6, 7)]).rules == ["softmax shift"]


@pytest.mark.parametrize("sizes", [(7,), (6, 1), (5, 6, 7)])
def test_softmax_keeps_what_varies_along_its_dimension(sizes: tuple[int, ...]) -> None:
    dim = 2 if sizes != (6, 1) else 1
    module = Shifted(lambda x: torch.softmax(x, dim), sizes)
    assert checked(module, [torch.randn(5, 6, 7)]).rules == []


class Stable(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.softmax(x - x.amax(1, keepdim=True), 1)


class StableElsewhere(nn.Module):
    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return torch.softmax(x - y.amax(1, keepdim=True), 1)


def test_the_maximum_that_is_taken_off_by_hand_goes_but_no_other_input_does() -> None:
    assert checked(Stable(), [torch.randn(9, 8)], seeds=4).rules == ["softmax shift"]
    assert checked(StableElsewhere(), [torch.randn(9, 8), torch.randn(9, 8)]).rules == []


class Biased(nn.Module):
    """A layer with a bias, then a norm."""

    def __init__(self, layer: nn.Module, norm: nn.Module) -> None:
        super().__init__()
        self.layer, self.norm = layer, norm

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.layer(x))


def _conv() -> nn.Module:
    return nn.Conv2d(3, 8, 3)


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    "norm",
    [nn.InstanceNorm2d(8), nn.InstanceNorm2d(8, affine=True), nn.GroupNorm(8, 8),
     nn.BatchNorm2d(8, track_running_stats=False)],
)  # fmt: skip
def test_a_norm_over_space_cancels_the_bias_of_a_convolution(norm: nn.Module) -> None:
    result = checked(Biased(_conv(), norm), [torch.randn(4, 3, 12, 12)])
    assert result.rules[0] == "norm shift"
    (convolution,) = (n for n in result.rewritten.captured.graph.graph.nodes if "conv" in n.name)
    assert len(convolution.args) < 3 or convolution.args[2] is None


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    "norm",
    [nn.GroupNorm(2, 8), nn.BatchNorm2d(8), nn.LayerNorm([8, 10, 10]), nn.InstanceNorm2d(
        8, track_running_stats=True)],
)  # fmt: skip
def test_other_norms_keep_it(norm: nn.Module) -> None:
    result = checked(Biased(_conv(), norm), [torch.randn(4, 3, 12, 12)])
    assert "norm shift" not in result.rules


def test_rms_norm_and_layer_norm_over_features_keep_a_bias() -> None:
    for norm in (nn.RMSNorm(8), nn.LayerNorm(8)):
        result = checked(Biased(nn.Linear(6, 8), norm), [torch.randn(9, 6)])
        assert result.rules == []


@PROPERTY
@given(
    momentum=st.floats(0.01, 0.9),
    kind=st.sampled_from(["bias", "linear", "number", "negative", "vector"]),
)
def test_batch_statistics_cancel_a_bias_and_the_running_mean_gets_it_back(
    momentum: float, kind: str
) -> None:
    class Training(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(3, 8, 3, bias=kind == "bias")
            self.linear = nn.Linear(6, 8)
            self.c = nn.Parameter(torch.ones(8, 1, 1))
            flat = kind == "linear"
            self.norm = (nn.BatchNorm1d if flat else nn.BatchNorm2d)(8, momentum=momentum)

        def forward(self, x: Tensor) -> Tensor:
            if kind == "linear":
                return self.norm(self.linear(x[:, 0, :6, 0]))
            y = self.conv(x)
            if kind != "bias":
                y = {"number": y + 2.0, "negative": y - self.c, "vector": self.c + y}[kind]
            return self.norm(y)

    result = checked(Training(), [torch.randn(400, 3, 9, 9)], training=True)
    assert "norm shift" in result.rules
    assert "norm.running_mean" in result.captured.mutated_buffers


@pytest.mark.slow
@PROPERTY
@given(dim=st.integers(0, 1), kind=st.sampled_from(["var", "std", "centre", "layer"]))
def test_centring_written_out(dim: int, kind: str) -> None:
    sizes = (1, 8) if dim == 0 else (9, 1)
    then: dict[str, Callable[[Tensor], Tensor]] = {
        "var": lambda x: x.var(dim),
        "std": lambda x: x.std(dim, correction=0),
        "centre": lambda x: x - x.mean(dim, keepdim=True),
        "layer": lambda x: F.layer_norm(x, (8,)) if dim == 1 else x - x.mean(0, keepdim=True),
    }
    result = checked(Shifted(then[kind], sizes), [torch.randn(9, 8)])
    assert result.rules == ["norm shift"]
    varying = checked(Shifted(then[kind], (9, 1) if dim == 0 else (8,)), [torch.randn(9, 8)])
    assert "norm shift" not in varying.rules
