"""Five chains by algebra alone: what is left, how much work that saves, and how exact is it?

Errors are fp32 against the original graph in fp64, ours against at most twice eager's, as the judge
has it, on random weights.
"""

import functools

import pytest
import torch
from torch import nn

from tests.compiler.rewrite.checks import Checked, checked, drawn, run

F = nn.functional
Tensor = torch.Tensor


class LinearSumChain(nn.Module):
    """sum_j (x W^T + b)_j = x (sum_j W_j) + sum(b); the rest is over one element."""

    def __init__(self, inner: int = 64, outer: int = 256) -> None:
        super().__init__()
        self.layer = nn.Linear(inner, outer)

    def forward(self, x: Tensor) -> Tensor:
        y = self.layer(x).sum(1, keepdim=True)
        y = torch.max(y, 1, keepdim=True)[0]
        y = y.mean(1, keepdim=True)
        return torch.logsumexp(torch.logsumexp(y, 1, keepdim=True), 1, keepdim=True)


class ConvGlobalMean(nn.Module):
    """mean_p conv(x, W)_p = sum_(c,t) W_ct S_ct / P + b: window sums, then one small product."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(8, 32, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return torch.sigmoid(F.adaptive_avg_pool2d(self.conv(x) * 0.5, 1).flatten(1))


class PoolsAfterConv(nn.Module):
    """avg_2(avg_2(y)) = avg_4(y), and the mean of its tiles is the mean of y."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.ConvTranspose2d(8, 16, 4, stride=4)

    def forward(self, x: Tensor) -> Tensor:
        y = F.avg_pool2d(F.avg_pool2d(self.conv(x), 2), 2)
        return y.mean((2, 3))


class MaximumOfOne(nn.Module):
    """mean_i (x_i W + b) = (mean_i x_i) W + b; the maximum over that one row is it."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 64)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(self.layer(x).mean(1, keepdim=True))
        return torch.relu(y.amax(1, keepdim=True)).clamp(min=0.0).squeeze(1)


class NormCancelsBias(nn.Module):
    """The bias and the scalar before a norm over space go; the ReLU waits for the maximum."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(4, 16, 1)
        self.norm = nn.InstanceNorm2d(16)

    def forward(self, x: Tensor) -> Tensor:
        return F.max_pool2d(torch.relu(self.norm(self.conv(x) + 3.0)), 2)


CASES: dict[str, tuple[nn.Module, tuple[int, ...], list[str], float]] = {
    "linear, sum, chain": (
        LinearSumChain(), (128, 64), ["single elements"] * 4 + ["product sums"], 25.0,
    ),
    "convolution, global mean": (
        ConvGlobalMean(), (4, 8, 32, 32), ["scaled sums", "convolution sums"], 100.0,
    ),
    "transposed convolution, two poolings, mean": (
        PoolsAfterConv(), (4, 8, 16, 16),
        ["pool composition", "pool composition", "convolution sums"], 40.0,
    ),
    "linear, mean over rows, maximum over one": (
        MaximumOfOne(), (16, 32, 64),
        ["single elements", "dead clamps", "dead clamps", "product sums"], 25.0,
    ),
    "convolution, norm, maximum": (
        NormCancelsBias(), (4, 4, 32, 32), ["norm shift", "monotone", "norm shift"], 1.1,
    ),
}  # fmt: skip


@functools.cache
def _case(name: str) -> Checked:
    module, sizes, _, _ = CASES[name]
    return checked(module, [torch.randn(sizes)])


@pytest.mark.quick(2)
@pytest.mark.parametrize("name", CASES)
def test_what_is_left_and_what_is_saved(name: str) -> None:
    result = _case(name)
    _, _, rules, least = CASES[name]
    print(f"{name}: {result.flop_ratio:.1f}x fewer operations")
    assert result.rules == rules
    assert result.flop_ratio >= least
    assert result.rewritten.after.bytes_moved < result.rewritten.before.bytes_moved
    assert all(step.derivation for step in result.rewritten.steps)


@pytest.mark.quick(2)
@pytest.mark.parametrize("name", CASES)
def test_errors_in_fp32_stay_within_twice_those_of_eager(name: str) -> None:
    result = _case(name)
    inputs = drawn([torch.empty(CASES[name][1])], seed=7)
    narrow = [value.float() for value in inputs]
    wide = [value.double() for value in narrow]
    (truth,) = run(result.captured, result.module, wide)
    (eager,) = run(result.captured, result.module, narrow, torch.float32)
    (found,) = run(result.rewritten.captured, result.module, narrow, torch.float32)
    assert isinstance(truth, Tensor)
    assert isinstance(eager, Tensor)
    assert isinstance(found, Tensor)
    floor = 4 * torch.finfo(torch.float32).eps * float(truth.norm())
    allowed = max(2 * float((eager - truth).norm()), floor)
    assert float((found - truth).norm()) <= allowed
