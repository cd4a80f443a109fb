"""From a captured graph to complete drop-ins: lower, partition, choose schedules, write.

Holds the order in which the kernels of one drop-in change their schedules, the heaviest first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from agentkernel.compiler.attention import with_attention
from agentkernel.compiler.axes import IncompatibleAxes, contiguous_strides
from agentkernel.compiler.convolutions.statistics import with_statistics, with_statistics_steps
from agentkernel.compiler.convolutions.step import with_convolution_steps
from agentkernel.compiler.drop_in.constructor import ConstructorText
from agentkernel.compiler.drop_in.wrapper import DropInSource, write
from agentkernel.compiler.expressions import Symbols, symbols_of
from agentkernel.compiler.fusion import Output, Partition, Step, partition
from agentkernel.compiler.ir import Node, Shape, UnsupportedOp
from agentkernel.compiler.lowering import LoweredGraph, lower
from agentkernel.compiler.lowering.registry import ConvolutionForm, to_expr
from agentkernel.compiler.products.joined import with_joined_steps
from agentkernel.compiler.products.pairs import with_pairs
from agentkernel.compiler.products.parted import with_parted_bias
from agentkernel.compiler.products.row_parts import with_row_parts, with_row_parts_steps
from agentkernel.compiler.products.step import with_product_steps
from agentkernel.compiler.providers import AnySchedule, provider_of
from agentkernel.compiler.providers.linear import with_linear_steps
from agentkernel.compiler.recurrence import with_recurrences
from agentkernel.compiler.row_algebra import with_row_algebra
from agentkernel.domain.verdict import Precision
from agentkernel.tools.problem.capture import Captured
from agentkernel.tools.problem.loading import LoadedProblem
from agentkernel.tools.problem.specialise import UnknownSize, specialise


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
    halved: bool = False
    """Whether no kernel spans both halves of the graph."""

    def write(self, schedules: Mapping[object, AnySchedule]) -> DropInSource:
        """The drop-in under `schedules`, one entry a step of the partition."""
        return write(
            self.loaded, self.captured, self.constructor, self.graph.inputs, self.partition,
            schedules, self.precision,
        )  # fmt: skip

    def own_products(self) -> Compiled:
        """The same with every matrix product as our own GEMM and its epilogue fused, two of one
        matrix that gate each other as one; of what is only summed along its rows no more is stored
        than parts of those sums."""
        found = self if self.halved else self._from_row_parts()
        parts = with_row_parts_steps(with_pairs(found.partition))
        return replace(found, partition=with_product_steps(parts, self.symbols.hint))

    def joined_products(self) -> Iterator[Compiled]:
        """The same with own products of one matrix in one launch, where there are such."""
        joined = with_joined_steps(self.partition)
        if len(joined.steps) < len(self.partition.steps):
            yield replace(self, partition=joined)

    def _from_row_parts(self) -> Compiled:
        return self._of(with_row_parts(self.graph.outputs, self.symbols.hint))

    def _of(self, outputs: tuple[Node, ...]) -> Compiled:
        """The same with other values for the graph's; itself where they cannot be partitioned."""
        if all(one is two for one, two in zip(outputs, self.graph.outputs, strict=True)):
            return self
        graph = replace(self.graph, outputs=outputs)
        stored = _outputs(self.captured, graph)
        try:
            parts = _with_own_steps(partition(stored, self.symbols.hint))
        except IncompatibleAxes:
            return self
        return replace(self, graph=graph, partition=parts)

    def replacing(self, others: Mapping[object, Sequence[Step]]) -> Compiled:
        """The same with other steps in the places of some; they make the same values."""
        steps: list[Step] = []
        for step in self.partition.steps:
            steps += others.get(step, (step,))
        return replace(self, partition=replace(self.partition, steps=tuple(steps)))

    def own_convolutions(self) -> Compiled:
        """The same with the convolutions that our kernels do as such, their epilogues fused."""
        found = with_convolution_steps(self.partition, self.symbols.hint)
        return replace(self, partition=with_statistics_steps(found))

    def convolution_statistics(self) -> Compiled:
        """The same with the statistics of norms gathered by the convolutions before them."""
        return self._of(with_statistics(self.graph.outputs, self.symbols.hint))

    def library_products(self) -> Compiled:
        """The same with every matrix product as a library call, bias and activation fused into it
        where the library has that form."""
        return replace(self, partition=with_linear_steps(self.partition))


def compile_graph(
    loaded: LoadedProblem,
    captured: Captured,
    constructor: ConstructorText,
    precision: Precision = "strict",
    *,
    attention: bool = True,
    halved: bool = False,
    convolutions: ConvolutionForm = "whole",
    stepped: bool = False,
) -> Compiled:
    """Lower and partition, `attention` as one kernel or as it is written out, `convolutions` in one
    of their forms, recurrent layers `stepped` through by our kernels or as calls; `halved`, no
    kernel spans both halves of the graph.

    Raises UnsupportedOp for what has neither template nor library form.
    """
    graph = lower(captured, attention, convolutions=convolutions, stepped=stepped)
    graph = replace(graph, outputs=with_parted_bias(with_row_algebra(graph.outputs)))
    symbols = symbols_of(captured)
    outputs = _outputs(captured, graph)
    try:
        parts = _with_own_steps(partition(outputs, symbols.hint, halved=halved))
    except IncompatibleAxes as error:
        raise UnsupportedOp("layout", str(error)) from error
    return Compiled(loaded, captured, constructor, graph, parts, symbols, precision, halved)


def _with_own_steps(parts: Partition) -> Partition:
    """With what no library is called for as steps of their own."""
    return with_recurrences(with_attention(parts))


def at_declared_sizes(captured: Captured) -> Captured | None:
    """The graph without free sizes; None where a size depends on data."""
    try:
        return specialise(captured)
    except UnknownSize:
        return None


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


def single_changes(
    counts: Mapping[object, int], symbols: Symbols, most: int
) -> Iterator[dict[object, int]]:
    """At most `most` assignments {step: position in its list}: steps left out keep their first.

    One kernel changes at a time, the heaviest first. Each gets variants by its share of the work,
    at least two; what a kernel with few schedules leaves goes to the next.
    """
    yield {}
    work = {step: provider_of(step).work_us(step, symbols) for step in counts if counts[step] > 1}
    total, left = sum(work.values()), most - 1
    waiting: list[dict[object, int]] = []
    for step in sorted(work, key=lambda item: -work[item]):
        share = max(2, round((most - 1) * work[step] / total))
        every = [{step: index} for index in range(1, counts[step])]
        yield from every[: min(share, left)]
        left -= min(share, left, len(every))
        waiting += every[share:]
    yield from waiting[:left]
