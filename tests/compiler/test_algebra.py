"""The coder starts from the rewritten graph where there is one, and is right."""

import pytest
import torch
from torch import nn

from agentkernel.agents.compiler_coder import ALGEBRA, rewritten_graph_of, simplified
from agentkernel.agents.strategies import hypotheses
from agentkernel.compiler.drop_in.envelope import limits_of
from agentkernel.compiler.ir import UnsupportedOp
from agentkernel.domain.candidate import Candidate, WrittenSegment
from agentkernel.tools.judge.judge import judge
from agentkernel.tools.judge.settings import JudgeSettings
from agentkernel.tools.problem.capture import capture
from agentkernel.tools.problem.loading import LoadedProblem, problem_from_module
from agentkernel.tools.profiler.session import estimate_candidate
from agentkernel.tools.targets import find_target
from tests.compiler.first_drafts import drafted
from tests.compiler.forms import assert_accepted

TARGET = find_target("h200").target


class SummedProduct(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(48, 40)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.linear(x).sum(1, keepdim=True) * 0.5)


class PerRow(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.exp(x / x.shape[0] + x.shape[1])


def summed() -> LoadedProblem:
    torch.manual_seed(0)  # one row is one number, of which eager may be right by chance
    return problem_from_module(SummedProduct().eval(), (torch.randn(37, 48),))


def test_the_rewritten_graph_comes_first_and_says_why() -> None:
    problem = summed()
    first, *others = hypotheses(problem, capture(problem))
    assert first.strategy == ALGEBRA
    assert "sum" in first.reason
    assert {item.strategy for item in others} == {"gemm", "library"}


def test_what_no_rule_shortens_has_no_such_hypothesis() -> None:
    problem = problem_from_module(nn.Softmax(-1), (torch.randn(64, 128),))
    captured = capture(problem)
    assert ALGEBRA not in {item.strategy for item in hypotheses(problem, captured)}
    with pytest.raises(UnsupportedOp, match="no exact rewrite"):
        simplified(problem, captured)


@pytest.mark.slow
def test_its_draft_multiplies_by_the_summed_weight_and_is_accepted() -> None:
    problem = summed()
    source = drafted(problem, ALGEBRA)
    assert source != drafted(problem, "gemm")
    assert_accepted(problem, capture(problem), source, seeds=2, budget_s=0.0)


def test_its_limits_are_those_of_the_graph_as_it_was_written() -> None:
    problem = summed()
    captured = capture(problem)
    found = simplified(problem, captured).captured
    assert limits_of(problem, found).spans == limits_of(problem, captured).spans
    assert limits_of(problem, found).eval_only == limits_of(problem, captured).eval_only


def test_its_time_is_estimated_by_its_own_operations() -> None:
    problem = problem_from_module(SummedProduct().eval(), (torch.randn(4096, 48),))
    captured = capture(problem)
    source = drafted(problem, ALGEBRA)
    candidate = Candidate(source=source, coder="compiler", round=1, strategy=ALGEBRA)
    written = rewritten_graph_of(problem, captured, candidate)
    assert written is not None
    own = estimate_candidate(problem, captured, source, TARGET, written=written)
    other = estimate_candidate(problem, captured, source, TARGET)
    assert own.candidate.flops < other.candidate.flops / 4
    assert own.candidate.time_us <= other.candidate.time_us
    assert own.eager == other.eager
    plain = candidate.evolve(strategy="gemm")
    assert rewritten_graph_of(problem, captured, plain) is None
    part = WrittenSegment(key="k", name="n", model="m", source="s", within=ALGEBRA)
    whole = candidate.evolve(coder="m", strategy="a turn", segments=(part,))
    assert rewritten_graph_of(problem, captured, whole) is written
    other = part.evolve(within="fused")
    assert rewritten_graph_of(problem, captured, whole.evolve(segments=(other,))) is None


def test_a_size_is_an_operand() -> None:
    problem = problem_from_module(PerRow(), (torch.randn(24, 36),))
    assert_accepted(problem, capture(problem), drafted(problem, "fused"), seeds=2, budget_s=0.0)


class Diagonal(nn.Module):
    def forward(self, d: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.diag(d) @ b


def test_a_product_with_a_diagonal_matrix_is_one_pointwise_kernel() -> None:
    large = problem_from_module(Diagonal(), (torch.randn(4096), torch.randn(4096, 4096)))
    source = drafted(large, ALGEBRA)
    assert source.count("@triton.jit") == 1
    assert "tl.dot" not in source
    small = problem_from_module(Diagonal(), (torch.randn(40), torch.randn(40, 56)))
    captured = capture(small)
    settings = JudgeSettings(seed=0, policy="mixed", seeds=1, budget_s=0.0)
    verdict = judge(small, captured, drafted(small, ALGEBRA), settings)
    assert verdict.accepted, verdict.failure
    assert verdict.gradients is True
