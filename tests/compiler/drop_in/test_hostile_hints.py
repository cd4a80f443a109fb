"""A family of schedules survives whatever an entry advises."""

import pytest
import torch
from torch import nn

from agentkernel.agents.compiler_coder import family
from agentkernel.compiler.attention import AttentionFacts, attention_schedules
from agentkernel.compiler.partitions import partitions
from agentkernel.compiler.products.schedules import GemmFacts, gemm_hints, gemm_schedules
from agentkernel.tools.problem.capture import capture
from agentkernel.tools.problem.loading import LoadedProblem, problem_from_module
from agentkernel.tools.targets import find_target

TARGET = find_target("h200").target
HOSTILE = ("0", "-7", "--5", "²", "9" * 5000, "99999999", "x".join(["²"] * 3))


def _problem(module: nn.Module, *shape: int) -> LoadedProblem:
    return problem_from_module(module, (torch.randn(*shape),))


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    ("module", "shape"),
    [(nn.Softmax(dim=-1), (64, 4096)), (nn.Softmax(dim=-1), (4, 32768)), (nn.GELU(), (64, 128))],
)
def test_rows_and_elements_are_scheduled_as_if_nothing_was_said(
    module: nn.Module, shape: tuple[int, ...]
) -> None:
    problem = _problem(module, *shape)
    graphs = partitions(problem, capture(problem), "mixed")
    plain = [item.source.text for item in family(graphs, "fused", lambda _: None, TARGET)]
    for value in HOSTILE:
        said = family(graphs, "fused", lambda _, value=value: value, TARGET)  # type: ignore[misc]
        assert [item.source.text for item in said] == plain


@pytest.mark.parametrize("value", HOSTILE)
def test_products_and_attention_are_scheduled_as_if_nothing_was_said(value: str) -> None:
    product = GemmFacts(4096, 4096, 4096)
    heads = AttentionFacts(16, 1024, 1024, 64, 64, "float16")
    assert gemm_hints("float32", lambda _: value) == {}
    assert gemm_hints("float16", lambda _: value, "attention") == {}
    assert gemm_schedules(product, TARGET, lambda _: value) == gemm_schedules(product, TARGET)
    assert attention_schedules(heads, TARGET, lambda _: value) == attention_schedules(heads, TARGET)
