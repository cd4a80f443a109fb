"""From a captured graph to complete drop-ins: lower, partition, schedule, write."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch

from agentkernel.compiler.attention_step import with_attention
from agentkernel.compiler.axes import IncompatibleAxes, contiguous_strides
from agentkernel.compiler.drop_in.constructor import ConstructorText
from agentkernel.compiler.drop_in.wrapper import AnySchedule, DropInSource, write
from agentkernel.compiler.fusion import Output, Partition, partition
from agentkernel.compiler.ir import Node, Shape, UnsupportedOp
from agentkernel.compiler.lowering import LoweredGraph, lower
from agentkernel.compiler.lowering.registry import to_expr
from agentkernel.compiler.products.anchors import with_product_steps
from agentkernel.compiler.sizes import Symbols, symbols_of
from agentkernel.domain.rules import Precision
from agentkernel.tools.problem.capture import Captured
from agentkernel.tools.problem.problems import LoadedProblem


@dataclass(frozen=True, eq=False)
class Compiled:
    """A captured graph, lowered and split into kernels; ready for any schedule."""

    loaded: LoadedProblem
    captured: Captured
    constructor: ConstructorText
    graph: LoweredGraph
    partition: Partition
    symbols: Symbols
    precision: Precision

    def write(self, schedules: Mapping[object, AnySchedule]) -> DropInSource:
        """The drop-in under `schedules`, one entry a step of the partition."""
        return write(
            self.loaded, self.captured, self.constructor, self.graph.inputs, self.partition,
            schedules, self.precision,
        )  # fmt: skip

    def own_products(self) -> Compiled:
        """The same with every matrix product as our own GEMM and its epilogue fused."""
        return replace(self, partition=with_product_steps(self.partition))


def compile_graph(
    loaded: LoadedProblem,
    captured: Captured,
    constructor: ConstructorText,
    precision: Precision = "strict",
    *,
    attention: bool = True,
    halved: bool = False,
) -> Compiled:
    """Lower and partition, `attention` as one kernel or as it is written out; `halved`, no kernel
    spans both halves of the graph.

    Raises Uncovered for what has neither template nor library form.
    """
    graph = lower(captured, attention)
    names = {name: name for name in captured.user_inputs}
    symbols = symbols_of(captured, names)
    outputs = _outputs(captured, graph)
    try:
        parts = with_attention(partition(outputs, symbols.hint, halved=halved))
    except IncompatibleAxes as error:
        raise UnsupportedOp("layout", str(error)) from error
    return Compiled(loaded, captured, constructor, graph, parts, symbols, precision)


def _outputs(captured: Captured, graph: LoweredGraph) -> list[Output]:
    values = {node.name: node.meta.get("val") for node in captured.graph.graph.nodes}
    return [
        Output(node, name, _strides(node, values[name]))
        for node, name in zip(graph.outputs, graph.output_names, strict=True)
    ]


def _strides(node: Node, value: object) -> Shape:
    """Eager's strides; a stride of 0 over a size above 1 cannot be written to."""
    assert isinstance(value, torch.Tensor)
    if value.is_contiguous():
        return contiguous_strides(node.shape)
    strides = tuple(to_expr(stride) for stride in value.stride())
    for stride, size in zip(strides, node.shape, strict=True):
        if stride == 0 and size != 1:
            raise UnsupportedOp("expand", "an output whose elements share memory")
    return strides
