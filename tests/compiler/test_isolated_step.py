"""The steps of a partition, each a drop-in of its own, compute together what the module does."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from agentkernel.compiler.ir import Node
from agentkernel.compiler.isolated_step import IsolatedStep, isolated
from agentkernel.compiler.partitions import partitions
from agentkernel.compiler.pipeline import Compiled
from agentkernel.compiler.providers import Setting, provider_of
from agentkernel.tools.problem.capture import capture
from agentkernel.tools.problem.loading import LoadedProblem, problem_from_module
from agentkernel.tools.targets import find_target
from tests.compiler.sandboxed_drop_in import Sandboxed

TARGET = find_target("h200").target


class Layers(nn.Module):
    """Twice the same layer, then a softmax over another axis."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(24, 24) for _ in range(2))
        self.norms = nn.ModuleList(nn.LayerNorm(24) for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer, norm in zip(self.layers, self.norms, strict=True):
            x = norm(x + nn.functional.gelu(layer(x)))
        return torch.softmax(x, dim=0)


class Attention(nn.Module):
    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        heads = nn.functional.scaled_dot_product_attention(q, k, v)
        return heads.relu() + 1.0


class Lookup(nn.Module):
    def __init__(self, rows: int) -> None:
        super().__init__()
        self.table = nn.Embedding(rows, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(self.table(x), -1)


def layers() -> LoadedProblem:
    return problem_from_module(Layers(), (torch.randn(5, 24),))


def attention() -> LoadedProblem:
    return problem_from_module(Attention(), tuple(torch.randn(1, 2, 9, 16) for _ in range(3)))


def lookup(rows: int) -> LoadedProblem:
    return problem_from_module(Lookup(rows), (torch.randint(0, rows, (6,)),))


def graphs_of(problem: LoadedProblem) -> list[Compiled]:
    return partitions(problem, capture(problem), "mixed")


def segments_of(compiled: Compiled) -> list[IsolatedStep]:
    found = [isolated(compiled, step) for step in compiled.partition.steps]
    assert None not in found
    return [item for item in found if item is not None]


class Shapes(nn.Module):
    """Returns tensors like those that a segment stores."""

    def __init__(self, segment: IsolatedStep) -> None:
        super().__init__()
        self.segment = segment

    def forward(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        hint = self.segment.compiled.symbols.hint
        return tuple(
            torch.empty([hint(size) for size in item.node.shape], dtype=item.node.dtype)
            for item in self.segment.outputs
        )


@pytest.mark.parametrize("make", [layers, attention, lambda: lookup(7)])
def test_one_after_the_other_they_are_the_module(make: object, box: Sandboxed) -> None:
    problem = make()  # type: ignore[operator]
    captured = capture(problem)
    (compiled, *_) = partitions(problem, captured, "mixed")
    module, inputs = problem.build(seed=0), problem.make_inputs(0, seed=0)
    weights = dict(module.named_parameters())
    known: dict[Node, torch.Tensor] = {}
    given = dict(zip(captured.user_inputs, inputs, strict=True))
    for name, node in compiled.graph.inputs.items():
        known[node] = given[name] if name in given else weights[captured.parameters[name]].detach()
    for segment in segments_of(compiled):
        setting = Setting(compiled.symbols, TARGET, "strict", lambda _: None)
        schedule = provider_of(segment.step).schedules(segment.step, setting)[-1]
        reads = [known[node] for node in segment.reads]
        made = box.call(segment.write(schedule).text, Shapes(segment), reads)
        known |= {item.node: value for item, value in zip(segment.outputs, made, strict=True)}
    wanted = module(*inputs)
    (output,) = compiled.partition.outputs
    torch.testing.assert_close(known[output.node], wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.quick(1)
def test_equal_layers_are_one_segment() -> None:
    first, second, *rest = [item.key for item in segments_of(graphs_of(layers())[0])]
    keys = [first, second, *rest]
    assert len(keys) == 5
    assert len(set(keys)) == 3
    again = [item.key for item in segments_of(graphs_of(layers())[0])]
    assert keys == again
    other = problem_from_module(Layers(), (torch.randn(6, 24),))
    assert not set(keys) & {item.key for item in segments_of(graphs_of(other)[0])}


def test_the_inputs_are_those_of_the_step() -> None:
    (segment, _) = segments_of(graphs_of(attention())[0])
    (inputs,) = segment.problem.problem.shape_sets
    assert [item.shape for item in inputs.tensors] == [(1, 2, 9, 16)] * 3


def test_no_made_up_index_reads_past_a_table() -> None:
    (bound,) = graphs_of(lookup(7))[0].partition.steps
    assert isolated(graphs_of(lookup(7))[0], bound) is not None
    compiled = graphs_of(lookup(1))[0]
    assert [isolated(compiled, step) for step in compiled.partition.steps] == [None]


class Mapped(nn.Module):
    """Its index is computed from a stored one, and made-up values of that may lead anywhere."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(7, 16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(self.table[x * 5 - 3], -1)


def test_a_computed_index_is_not_timed_alone() -> None:
    compiled = graphs_of(problem_from_module(Mapped(), (torch.ones(6, dtype=torch.int64),)))[0]
    assert None in [isolated(compiled, step) for step in compiled.partition.steps]


def test_what_times_are_kept_by_has_the_sizes_apart() -> None:
    def softmax(*shape: int) -> IsolatedStep:
        problem = problem_from_module(Attention(), tuple(torch.randn(shape) for _ in range(3)))
        return segments_of(graphs_of(problem)[0])[0]

    small, large = softmax(1, 2, 9, 16), softmax(4, 2, 100, 16)
    assert small.key != large.key
    assert small.measured_as.structure == large.measured_as.structure
    assert small.measured_as.sizes != large.measured_as.sizes
    assert len(small.measured_as.sizes) == len(large.measured_as.sizes)
    others = [item.measured_as.structure for item in segments_of(graphs_of(layers())[0])]
    assert len(set(others)) == 3
    assert small.measured_as.structure not in others
    free = {item.measured_as for item in segments_of(graphs_of(lookup(8))[0])}
    assert free == {item.measured_as for item in segments_of(graphs_of(lookup(8))[0])}


def test_what_kernels_of_ours_multiply_is_known() -> None:
    first, *others = segments_of(graphs_of(layers())[0])
    assert first.matrix_work is not None
    assert (first.matrix_work.cost.flops, first.matrix_work.cost.dtype) == (
        2 * 5 * 24 * 24,
        "float32",
    )
    assert any(item.matrix_work is None for item in others), "a norm multiplies nothing"
    heads = segments_of(graphs_of(attention())[0])[0]
    assert heads.matrix_work is not None
    assert heads.matrix_work.cost.flops == 2 * 2 * 9 * 9 * (16 + 16)
