"""What no kernel can hold is refused in words that say why."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from agentkernel.agents.compiler_coder import family
from agentkernel.agents.strategies import hypotheses
from agentkernel.compiler.ir import UnsupportedOp
from agentkernel.compiler.lift.inductor_code import VARIANTS
from agentkernel.compiler.lift.inductor_process import generate
from agentkernel.compiler.partitions import partitions
from agentkernel.tools.problem.capture import Captured, capture
from agentkernel.tools.problem.loading import LoadedProblem, problem_from_module
from agentkernel.tools.roofline.model import analyse
from agentkernel.tools.targets import find_target
from tests.compiler.families import OfOne

TARGET = find_target("h100").target


def traced(function: Callable[[torch.Tensor], torch.Tensor]) -> tuple[LoadedProblem, Captured]:
    problem = problem_from_module(OfOne(function), (torch.randn(6, 8),))
    return problem, capture(problem)


def branch(x: torch.Tensor) -> torch.Tensor:
    return torch.cond(x.sum() > 0, lambda t: t * 2, lambda t: t - 1, (x,))


CASES = {
    "eight bits": (
        lambda x: x.to(torch.float8_e4m3fn).float(),
        "nothing to fuse around library calls",
    ),
    "as many as fit": (lambda x: x[x > 0].exp(), "its result depends on data"),
    "a branch": (branch, "depends on data"),
}


@pytest.mark.quick(1)
@pytest.mark.parametrize("name", [*CASES])
def test_templates_say_why(name: str) -> None:
    function, why = CASES[name]
    problem, captured = traced(function)
    with pytest.raises(UnsupportedOp, match=why):
        partitions(problem, captured, "mixed")
    analyse(captured, TARGET)
    hypotheses(problem, captured, lifting=True, measurable=False)


class Attention(nn.Module):
    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return nn.functional.scaled_dot_product_attention(q, k, v)


def test_heads_too_large_for_any_tile_are_refused_by_name() -> None:
    x = torch.empty(1, 2, 64, 1024, device="meta")
    problem = problem_from_module(Attention(), (x, x, x))
    choices = partitions(problem, capture(problem), "mixed")
    with pytest.raises(UnsupportedOp, match="no tile of its sizes fits the shared memory of h100"):
        family(choices, "attention", lambda _: None, TARGET)


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    ("name", "why"),
    [("as many as fit", "a size depends on data"), ("a branch", "which branch depends on data")],
)
def test_what_torchinductor_is_not_asked_about_has_a_reason(name: str, why: str) -> None:
    answer = generate(traced(CASES[name][0])[1], VARIANTS[0], TARGET)
    assert why in getattr(answer, "reason", "")
