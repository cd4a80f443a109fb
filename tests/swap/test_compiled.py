"""Kernels run inside of what torch.compile makes of the model, in one graph, and only once."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from torch import nn

from agentkernel.swap.swap import apply
from tests.swap.applied_kernels import block, example, make_kernel, mlp_kernel
from tests.swap.compiled_kernels import BLOCKS, MARKED_NORM, Graphs, stack


@pytest.fixture(autouse=True)
def fresh() -> None:
    torch.compiler.reset()


def test_every_kernel_is_in_one_graph_that_is_made_once() -> None:
    model, x, graphs = stack(), example(), Graphs()
    want = model(x)
    compiled = torch.compile(model, fullgraph=True, backend=graphs)
    for _ in range(3):
        assert torch.allclose(compiled(x), want, atol=1e-4)
    assert (graphs.marks("sin"), graphs.marks("cos")) == ([2 * BLOCKS], [BLOCKS])
    # Eager calls are counted and may be refused: nothing that a graph depends on.
    model(x)
    model.get_submodule("blocks.0.norm")(torch.cat([x, x]))
    compiled(x)
    assert len(graphs.made) == 1


@pytest.mark.slow
def test_what_the_guard_refuses_is_the_original_in_the_graph() -> None:
    model, x, graphs = stack(), example(), Graphs()
    compiled = torch.compile(model, fullgraph=True, backend=graphs)
    compiled(x)
    model.get_submodule("blocks.1.mlp").train()
    assert torch.allclose(compiled(x), model(x), atol=1e-4)
    assert graphs.marks("cos") == [BLOCKS, BLOCKS - 1]
    model.eval()
    compiled(x)
    assert len(graphs.made) == 2, "and back to the first"
    wide = torch.cat([x, x])
    assert torch.allclose(compiled(wide), model(wide), atol=1e-4)
    assert (graphs.marks("sin")[2:], graphs.marks("cos")[2:]) == ([0], [0])
    model.double()
    assert compiled(x.double()).dtype == torch.float64
    assert (graphs.marks("sin")[3:], graphs.marks("cos")[3:]) == ([0], [0])


class Broken(nn.Module):
    """Each of its modules is a graph of its own."""

    def __init__(self, modules: Sequence[nn.Module]) -> None:
        super().__init__()
        self.parts = nn.ModuleList(modules)

    def forward(self, values: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        found = []
        for part, value in zip(self.parts, values, strict=True):
            torch._dynamo.graph_break()
            found.append(part(value))
        return found


def test_between_graph_breaks_each_kernel_has_its_own_graphs() -> None:
    sizes = range(8, 18)
    model = Broken([nn.LayerNorm(size) for size in sizes]).eval().requires_grad_(False)
    values = [torch.randn(4, size) for size in sizes]
    want, graphs = model(values), Graphs()
    kernels = {
        f"parts.{i}": make_kernel(
            MARKED_NORM.replace("empty(8)", f"empty({size})"), model.parts[i], values[i]
        )
        for i, size in enumerate(sizes)
    }
    apply(model, kernels)
    compiled = torch.compile(model, backend=graphs, dynamic=False)
    for _ in range(2):
        for one, other in zip(compiled(values), want, strict=True):
            assert torch.allclose(one, other, atol=1e-5)
    assert graphs.marks("sin") == [1] * len(sizes), "dynamo keeps eight for one code object"


def test_between_graph_breaks_uses_of_a_kernel_share_its_graph() -> None:
    model = Broken([block(seed).mlp for seed in range(12)]).eval()
    values = [example(seed) for seed in range(12)]
    want, graphs = model(values), Graphs()
    apply(model, {f"parts.{i}": mlp_kernel() for i in range(12)})
    compiled = torch.compile(model, backend=graphs)
    for one, other in zip(compiled(values), want, strict=True):
        assert torch.allclose(one, other, atol=1e-5)
    assert len(graphs.made) == 1
