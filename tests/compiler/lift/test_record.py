import pickle
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from agentkernel.compiler.lift.inductor_code import (
    GraphRecord,
    Unrecordable,
    rebuild_graph,
    record_graph,
)
from agentkernel.tools.problem.capture import capture
from agentkernel.tools.problem.loading import problem_from_module
from agentkernel.tools.problem.specialise import specialise


class Mixed(nn.Module):
    """Dtypes, devices and memory formats among the arguments; two results, one taken apart."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        steps = torch.arange(x.shape[1], device=x.device, dtype=torch.float32)
        best, place = x.max(-1)
        return (x + steps).to(torch.float16), best + place.float() + F.gelu(best)


class Noisy(nn.Module):
    """TorchInductor draws other numbers than eager."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.rand_like(x)


def _recorded(x: torch.Tensor) -> GraphRecord:
    return record_graph(specialise(capture(problem_from_module(Mixed(), [x]))))


def test_a_graph_that_travelled_computes_the_same() -> None:
    x = torch.randn(4, 6)
    travelled = pickle.loads(_recorded(x).dumps())
    found = rebuild_graph(travelled, torch.device("cpu"))(x)
    for mine, theirs in zip(found, Mixed()(x), strict=True):
        assert mine.dtype == theirs.dtype
        assert torch.equal(mine, theirs)


def test_what_travels_names_no_module_but_ours() -> None:
    """pickle writes a dtype as `torch.float32` of any module that has torch among its names."""
    data = _recorded(torch.randn(4, 6)).dumps()
    assert b"torch" not in data.replace(b"agentkernel.compiler.lift.inductor_code", b"")


def test_a_graph_in_a_graph_is_refused() -> None:
    fixed = specialise(capture(problem_from_module(Mixed(), [torch.randn(4, 6)])))
    graph = fixed.graph
    graph.inner = nn.Linear(2, 2)
    first = next(iter(graph.graph.nodes))
    with graph.graph.inserting_after(first):
        graph.graph.create_node("call_module", "inner", (first,))
    with pytest.raises(Unrecordable, match="call_module inner"):
        record_graph(replace(fixed, graph=graph))


def test_a_graph_that_draws_random_numbers_is_refused_by_the_operators_name() -> None:
    noisy = capture(problem_from_module(Noisy(), [torch.randn(4, 6)]))
    with pytest.raises(Unrecordable, match="rand_like draws random numbers"):
        record_graph(specialise(noisy))
