"""The segments of a graph, as lines and as a picture."""

from __future__ import annotations

from xml.etree import ElementTree

import torch
from torch import nn

from agentkernel.compiler.segments import segment_lines, segment_picture, segments_of
from tests.compiler.forms import compiled_graph


class Chain(nn.Module):
    """A convolution, a norm that the residual branch skips, and a product."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.linear = nn.Conv1d(8, 8, 3, padding=1), nn.Linear(16, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.conv(x)
        return self.linear(nn.functional.layer_norm(y, (16,))) + y.tanh()


def test_each_segment_says_who_serves_it_and_what_it_stores() -> None:
    cut = segments_of(compiled_graph(Chain(), (torch.randn(2, 8, 16),)))
    assert [(item.own, item.pattern) for item in cut] == [
        (False, "aten.conv1d.default"),
        (True, "norm"),
        (True, "gemm_epilogue"),
    ]
    assert cut[2].operators == ("linear", "tanh", "add")
    assert {"conv1d", "layer_norm"} <= set(cut[2].reads)
    assert segment_lines(cut)[1].split() == [
        "2", "kernel", "norm", "layer_norm", "->", "layer_norm", "float32[2x8x16]",
    ]  # fmt: skip


def test_the_picture_has_a_box_a_segment_and_an_edge_a_value() -> None:
    cut = segments_of(compiled_graph(Chain(), (torch.randn(2, 8, 16),)))
    root = ElementTree.fromstring(segment_picture("a < b", cut))
    shapes = [item.get("class") for item in root.iter() if item.tag.endswith("rect")]
    assert shapes.count("own") == 3  # two kernels and the legend
    assert shapes.count("library") == 2
    edges = [item for item in root.iter() if item.get("class") == "edge"]
    assert len(edges) == 3  # conv to norm, norm to product, conv past the norm to the product
