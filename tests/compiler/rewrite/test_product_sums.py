"""Sums over rows and columns of products move to their operands, NaN and all."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from tests.compiler.rewrite.checks import PROPERTY, checked

RULE = "product sums"


class Summed(nn.Module):
    """A product of the input with a parameter, then a sum or mean over some dimensions."""

    def __init__(self, k: int, n: int, form: str, kind: str, dims: list[int], keep: bool) -> None:
        super().__init__()
        self.layer = nn.Linear(k, n, bias="bias" in form)
        self.form, self.kind, self.dims, self.keep = form, kind, dims, keep

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weight = self.layer.weight
        if self.form.startswith("linear"):
            y = self.layer(x)
        elif self.form == "matmul":
            y = torch.matmul(x, weight.t())
        elif self.form == "addmm bias":
            y = torch.addmm(self.layer.bias, x, weight.t())
        else:
            y = torch.matmul(weight, x)
        return getattr(torch, self.kind)(y, dim=self.dims, keepdim=self.keep)


@PROPERTY
@given(
    form=st.sampled_from(["linear", "linear bias", "matmul", "addmm bias", "left"]),
    kind=st.sampled_from(["sum", "mean"]),
    dims=st.sampled_from([[0], [1], [0, 1], [-1]]),
    keep=st.booleans(),
    k=st.integers(5, 24),
    n=st.integers(6, 24),
)
def test_the_same_with_nan_and_infinities(
    form: str, kind: str, dims: list[int], keep: bool, k: int, n: int
) -> None:
    x = torch.randn(k, 40) if form == "left" else torch.randn(40, k)
    checked(Summed(k, n, form, kind, dims, keep), [x])


@PROPERTY
@given(kind=st.sampled_from(["sum", "mean"]), rank=st.integers(3, 4), n=st.integers(8, 20))
@pytest.mark.slow
def test_more_leading_dimensions(kind: str, rank: int, n: int) -> None:
    x = torch.randn(*range(3, 1 + rank), 24, 16)
    result = checked(Summed(16, n, "linear bias", kind, [-1], False), [x])
    assert result.rules[0] == RULE
    result = checked(Summed(16, n, "linear bias", "mean", [1, rank - 1], True), [x])
    assert RULE in result.rules


@pytest.mark.parametrize("sign", [1, -1])
def test_weights_of_one_sign_keep_an_infinity(sign: int) -> None:
    """The second column must not turn every infinity into NaN."""
    module = Summed(8, 16, "linear", "sum", [1], False)
    result = checked(module, [torch.randn(64, 8)])
    assert RULE in result.rules
    from tests.compiler.rewrite.checks import run, same

    with torch.no_grad():
        module.layer.weight.abs_().mul_(sign)
        module.layer.weight[:, 0] = torch.linspace(-1, 1, 16)
        module.layer.weight[3, 1] = 0.0
    x = torch.randn(64, 8, dtype=torch.float64)
    x[0, 2], x[1, 0], x[2, 1], x[3, 3] = torch.inf, torch.inf, -torch.inf, torch.nan
    before = run(result.captured, module, [x])
    assert torch.isinf(before[0][0])
    assert torch.isnan(before[0][1])
    same(before, run(result.rewritten.captured, module, [x]))


class TwoInputs(nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.bmm(x, y).sum(-1)


def test_a_product_of_two_inputs_is_left_alone_unless_only_finite_values_count() -> None:
    inputs = [torch.randn(3, 16, 16), torch.randn(3, 16, 32)]
    assert checked(TwoInputs(), inputs).rules == []
    assert checked(TwoInputs(), inputs, infinities=False).rules == [RULE]


class OverBatch(nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.bmm(x, y).sum(0)


def test_a_sum_over_the_batch_of_a_batched_product_is_left_alone() -> None:
    inputs = [torch.randn(3, 16, 16), torch.randn(3, 16, 32)]
    assert checked(OverBatch(), inputs, infinities=False).rules == []


class Nonlinear(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(16, 32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.layer(x)).sum(1)


def test_nothing_moves_past_a_relu() -> None:
    assert checked(Nonlinear(), [torch.randn(64, 16)]).rules == []


def test_two_outputs_are_not_worth_folding() -> None:
    assert checked(Summed(16, 2, "linear", "sum", [1], False), [torch.randn(64, 16)]).rules == []


class Half(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 256, dtype=torch.bfloat16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x).mean(1)


def test_narrow_weights_are_folded_in_fp32_and_err_no_more_than_eager() -> None:
    from agentkernel.compiler.rewrite import rewrite
    from agentkernel.tools.problem.capture import capture
    from agentkernel.tools.problem.loading import problem_from_module
    from tests.compiler.rewrite.checks import run

    module, x = Half(), torch.randn(512, 64, dtype=torch.bfloat16)
    captured = capture(problem_from_module(module, (x,)))
    result = rewrite(captured)
    assert [step.rule for step in result.steps] == [RULE]
    eager = run(captured, module, [x], torch.bfloat16)[0]
    found = run(result.captured, module, [x], torch.bfloat16)[0]
    truth = x.double() @ module.layer.weight.double().mean(0) + module.layer.bias.double().mean()
    assert found.dtype == eager.dtype
    assert (found - truth).norm() <= 2 * (eager - truth).norm()


class Mixed(nn.Module):
    """A parameter from the left, as in token mixing: its rows are what an infinity meets."""

    def __init__(self, dims: list[int]) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(32, 20))
        self.dims = dims

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (self.weight @ x).mean(self.dims)


@pytest.mark.quick(2)
@pytest.mark.parametrize("dims", [[0], [1], [0, 1]])
def test_a_parameter_from_the_left(dims: list[int]) -> None:
    result = checked(Mixed(dims), [torch.randn(20, 64)], seeds=3)
    assert RULE in result.rules
    assert result.flop_ratio > 5
