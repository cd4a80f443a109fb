"""The segments of a graph, as lines and as a picture."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

import pytest
import torch
from torch import nn

from agentkernel.compiler import partitions as cuts
from agentkernel.compiler.ir import UnsupportedOp
from agentkernel.compiler.partitions import coverage, partitions
from agentkernel.compiler.pipeline import Compiled, compile_graph
from agentkernel.compiler.segments import segment_lines, segment_picture, segments_of
from agentkernel.tools.problem.capture import capture
from agentkernel.tools.problem.loading import problem_from_module
from tests.compiler.forms import compiled_graph, small
from tests.compiler.sandboxed_drop_in import Sandboxed


class Chain(nn.Module):
    """A convolution that stays with the library, since it cuts off more than its taps reach; a norm
    that the residual branch skips, and a product."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.ConvTranspose1d(8, 8, 3, padding=3)
        self.linear = nn.Linear(16, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.conv(x)
        return self.linear(nn.functional.layer_norm(y, (16,))) + y.tanh()


def test_each_segment_says_who_serves_it_and_what_it_stores() -> None:
    cut = segments_of(compiled_graph(Chain(), (torch.randn(2, 8, 20),)))
    assert [(item.own, item.pattern) for item in cut] == [
        (False, "aten.conv_transpose1d.default"),
        (True, "norm"),
        (True, "gemm_epilogue"),
    ]
    assert cut[2].operators == ("linear", "tanh", "add")
    assert {"conv_transpose1d", "layer_norm"} <= set(cut[2].reads)
    assert segment_lines(cut)[1].split() == [
        "2", "kernel", "norm", "layer_norm", "->", "layer_norm", "float32[2x8x16]",
    ]  # fmt: skip


def test_the_picture_has_a_box_a_segment_and_an_edge_a_value() -> None:
    cut = segments_of(compiled_graph(Chain(), (torch.randn(2, 8, 20),)))
    root = ElementTree.fromstring(segment_picture("a < b", cut))
    shapes = [item.get("class") for item in root.iter() if item.tag.endswith("rect")]
    assert shapes.count("own") == 3  # two kernels and the legend
    assert shapes.count("library") == 2
    edges = [item for item in root.iter() if item.get("class") == "edge"]
    assert len(edges) == 3  # conv to norm, norm to product, conv past the norm to the product


class Starved(nn.Module):
    """A layer of zeros that forward makes, as a recurrence begins."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(12, 12)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        state = torch.zeros_like(x)
        for _ in range(2):
            state = torch.tanh(self.layer(state) + x)
        return state


def test_a_product_of_what_forward_makes_is_written(box: Sandboxed) -> None:
    module, x = Starved(), torch.randn(5, 12)
    compiled = compiled_graph(module, [x])
    for served in (compiled.own_products(), compiled.library_products()):
        text = served.write(small(served, "single")).text
        box.check(text, module, [x])


def test_a_graph_is_cut_once(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = problem_from_module(Starved().eval(), [torch.randn(5, 12)])
    captured, cut = capture(loaded), []

    def counted(*args: Any, **options: Any) -> Compiled:
        cut.append(options)
        return compile_graph(*args, **options)

    monkeypatch.setattr(cuts, "compile_graph", counted)
    assert coverage(loaded, captured).patterns
    found = partitions(loaded, captured, "mixed")
    assert partitions(loaded, captured, "mixed") == found
    assert len(cut) == 1
    assert partitions(loaded, captured, "triton") != found
    assert len(cut) == 2


def test_a_graph_without_a_partition_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    conv = nn.Conv1d(8, 8, 3, dtype=torch.float64)
    loaded = problem_from_module(conv, [torch.randn(2, 8, 16, dtype=torch.float64)])
    captured = capture(loaded)
    with pytest.raises(UnsupportedOp) as first:
        partitions(loaded, captured, "mixed")
    monkeypatch.delattr(cuts, "compile_graph")
    with pytest.raises(UnsupportedOp) as second:
        partitions(loaded, captured, "mixed")
    assert str(second.value) == str(first.value)
