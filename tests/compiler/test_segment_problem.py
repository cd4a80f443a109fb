"""A segment as a problem computes what the graph has between its ends, in any larger module."""

from __future__ import annotations

from contextlib import suppress

import pytest
import torch
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from torch import fx, nn

from agentkernel.compiler.attention import AttentionStep
from agentkernel.compiler.drop_in.written_function import function_of
from agentkernel.compiler.emit import Names
from agentkernel.compiler.ir import UnsupportedOp
from agentkernel.compiler.partitions import partitions
from agentkernel.compiler.pipeline import Compiled
from agentkernel.compiler.providers import Setting, provider_of
from agentkernel.compiler.providers.written import WrittenStep
from agentkernel.compiler.segment_problem import CutSegment, calls_of, cut_segments
from agentkernel.tools.problem.capture import capture
from agentkernel.tools.problem.loading import problem_from_module, restore_problem
from agentkernel.tools.targets import find_target
from tests.compiler.random_graphs import RandomGraph, random_graphs
from tests.compiler.sandboxed_drop_in import Sandboxed

COMMON = settings(
    deadline=None, database=None, phases=[Phase.generate], derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)  # fmt: skip


class Recording(fx.Interpreter):
    """Runs the captured graph and keeps every value."""

    def run_node(self, n: fx.Node) -> object:
        made = super().run_node(n)
        self.values = {**getattr(self, "values", {}), n: made}
        return made


def cut(module: nn.Module, *inputs: torch.Tensor) -> list[tuple[Compiled, CutSegment]]:
    """The segments of every partition."""
    problem = problem_from_module(module, inputs)
    every = partitions(problem, capture(problem), "mixed")
    return [(compiled, item) for compiled in every for item in cut_segments(compiled)]


def check(module: nn.Module, *inputs: torch.Tensor) -> int:
    """Compare each segment with the values of the whole graph; how many there were."""
    found = cut(module, *inputs)
    for compiled, item in found:
        captured = compiled.captured
        state = {**dict(module.named_parameters()), **dict(module.named_buffers())}
        weights = [
            state[captured.parameters[node.name]]
            for node in captured.graph.graph.find_nodes(op="placeholder")
            if node.name in captured.parameters
        ]
        whole = Recording(captured.graph)
        with torch.no_grad():
            whole.run(*weights, *inputs)
            calls = calls_of(compiled)
            given = [whole.values[calls[node]] for node in item.reads]
            made = restore_problem(item.problem).build(seed=0)(*given)
        made = made if isinstance(made, tuple) else (made,)
        for value, node in zip(made, item.stores, strict=True):
            assert value.is_contiguous()
            turned = value.transpose(1, 2) if node in item.turned else value
            torch.testing.assert_close(turned, whole.values[calls[node]], rtol=0, atol=0)
    return len(found)


class Block(nn.Module):
    """Products whose bias is added elsewhere, a mean without its dimension, and a library call."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(16, 32), nn.Linear(32, 16)
        self.norm = nn.LayerNorm(16)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = self.norm(x + self.second(nn.functional.gelu(self.first(x))))
        return torch.sort(y)[0], y.mean(-1)


def test_segments_of_a_block_compute_what_it_does() -> None:
    assert check(Block(), torch.randn(2, 5, 16)) >= 4


@settings(COMMON, max_examples=12)
@given(case=random_graphs())
def test_segments_of_random_graphs_compute_what_these_do(
    case: tuple[RandomGraph, tuple[torch.Tensor, torch.Tensor]],
) -> None:
    class Twice(nn.Module):
        """The graph before and after a call of the library, so that there are segments."""

        def __init__(self) -> None:
            super().__init__()
            self.random = case[0]

        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            made = torch.sort(self.random(x, y) + x * 0.5)[0]
            return self.random(made, y) + made

    module, inputs = Twice(), case[1]
    if case[0](*inputs).shape == inputs[0].shape:
        with suppress(UnsupportedOp):  # an output whose elements share memory has no drop-in
            check(module, *inputs)


def test_a_product_without_its_bias_is_one_with_what_adds_it() -> None:
    found = cut(Block(), torch.randn(2, 5, 16))
    assert all("linear" in item.problem.source for _, item in found if len(item.steps) > 1)
    assert any(len(item.steps) > 1 for _, item in found)


def test_what_reads_indices_is_no_problem_of_its_own() -> None:
    class Rows(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            values, places = torch.sort(x)
            return torch.softmax(values.gather(1, places), -1)

    assert all("gather" not in item.problem.source for _, item in cut(Rows(), torch.randn(4, 8)))


class Attention(nn.Module):
    """Attention whose result everybody reads, and our kernel stores, as [B, T, H, D]."""

    def __init__(self) -> None:
        super().__init__()
        self.into, self.out = nn.Linear(32, 96), nn.Linear(32, 32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.into(x).view(2, 16, 3, 2, 16).permute(2, 0, 3, 1, 4).unbind(0)
        made = nn.functional.scaled_dot_product_attention(q, k, v)
        return self.out(made.transpose(1, 2).reshape(2, 16, 32))


def test_attention_lies_as_its_readers_want_it() -> None:
    inputs, module = torch.randn(2, 16, 32), Attention()
    assert check(module, inputs)
    item = next(item for _, item in cut(module, inputs) if item.turned)
    assert [type(step) for step in item.steps] == [AttentionStep]
    assert ".transpose(1, 2).contiguous()" in item.problem.source


@pytest.mark.parametrize(
    ("module", "inputs"),
    [(Block(), torch.randn(2, 5, 16)), (Attention(), torch.randn(2, 16, 32))],
    ids=["block", "attention"],
)
def test_the_drop_in_with_other_words_for_its_segments_is_right(
    box: Sandboxed, module: nn.Module, inputs: torch.Tensor
) -> None:
    found = cut(module, inputs)
    for compiled in dict.fromkeys(compiled for compiled, _ in found):
        others: dict[object, tuple[object, ...]] = {}
        for item in (item for of, item in found if of is compiled):
            own = item.problem.source.replace("class Model", "class ModelNew")
            step = WrittenStep(own, "itself", item.reads, item.stores, item.turned)
            others |= {**dict.fromkeys(item.steps, ()), item.steps[0]: (step,)}
        whole = compiled.replacing(others)  # type: ignore[arg-type]
        setting = Setting(whole.symbols, find_target("h100").target, "strict", lambda _: None)
        chosen = {x: provider_of(x).schedules(x, setting)[0] for x in whole.partition.steps}
        text = whole.write(chosen).text
        assert "torch.ops.aten." in text
        box.check(text, module, (inputs,))


@given(names=st.lists(st.sampled_from(["a", "b", "x", "segment", "tl"]), min_size=6, max_size=6))
def test_a_moved_file_computes_what_it_did(names: list[str]) -> None:
    first, second, *more = names
    if first == second:
        return
    source = FILE.format(first, second, *more)
    own: dict[str, object] = {}
    exec(source.replace("nn.Module", "object"), own)
    try:
        wanted = own["ModelNew"]().forward(5)  # type: ignore[operator]
    except (NameError, TypeError):
        return
    made = function_of(source, Names({"segment", "segment_1_a"}))
    moved: dict[str, object] = {}
    exec(made.text, moved)
    assert moved[made.name](5) == wanted  # type: ignore[operator]
    assert not {"segment", "segment_1_a", "a", "b", "x", "tl"} & moved.keys()


FILE = """
{0} = 3


def {1}({2}, {3}_=({0} + 1)):
    {4} = {2} + {0} + {3}_
    return (lambda {5}: {5} + {0})({4})


class ModelNew(nn.Module):
    def forward(self, {5}):
        return {1}({5}) * {0}
"""
