"""Mean and spread of a convolution's result, gathered in its tiles: a norm reads the result once.

The convolution stores its result, and of each channel and each PART places their mean and the sum
of their squared deviations from it. A kernel of the graph's rest merges these in a fixed order
(Chan, Golub and LeVeque 1979): by channel of a picture, by group of channels, or by channel of the
batch, as the norm has it. What normalises is then element by element.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import sympy
import torch
from torch.utils._sympy.functions import FloorDiv

from agentkernel.compiler.axes import Hint
from agentkernel.compiler.convolutions.places import LEAST_PLACES
from agentkernel.compiler.convolutions.schedules import ConvolutionFacts, by_sums
from agentkernel.compiler.convolutions.spec import Geometry
from agentkernel.compiler.convolutions.step import (
    ConvolutionStep,
    End,
    convolution_facts,
    emit_convolution_step,
    geometry_of,
)
from agentkernel.compiler.expressions import Symbols
from agentkernel.compiler.fusion import Partition, topological
from agentkernel.compiler.ir import ONE, Expr, GraphBuilder, Node, Shape, numel, roots_of, same
from agentkernel.compiler.kernel import KernelCode
from agentkernel.compiler.products.step import EpilogueText, Scope
from agentkernel.compiler.row_algebra import all_replaced

PART = 128
"""Places of which a channel leaves a mean and a sum of squares: a tile's."""
OP = "convolution_statistics"
FIELDS = ("means", "squares")
FEW_CHANNELS = 16
UNCHANGED = ("cast", "reshape")


@dataclass(frozen=True, eq=False)
class Gathered:
    """The convolution of which statistics are gathered."""

    convolution: Node
    geometry: Geometry

    def __repr__(self) -> str:
        return f"statistics {self.geometry}"


@dataclass(frozen=True, eq=False)
class StatisticsStep:
    """A convolution, and what it stores: its result, then means and sums of squares, each
    [batch, channels, parts] in fp32."""

    node: Node
    parts: tuple[Node, ...]

    @property
    def anchor(self) -> ConvolutionStep:
        """The convolution alone."""
        found = self.node.attrs[0]
        assert isinstance(found, Gathered)
        convolution = replace(found.convolution, args=self.node.args)
        return ConvolutionStep(convolution, None, found.geometry)

    @property
    def reads(self) -> tuple[Node, ...]:
        """What it reads, below all views."""
        return roots_of(self.node.args)


def with_statistics(outputs: Sequence[Node], hint: Hint) -> tuple[Node, ...]:
    """The same values, with the moments of what convolutions make from parts of their tiles."""
    return all_replaced(outputs, lambda now: _found(now, hint))


def _found(outputs: Sequence[Node], hint: Hint) -> Iterator[dict[Node, Node]]:
    order = topological(outputs)
    for node in order:
        geometry = geometry_of(node)
        if geometry is None or geometry.transposed or geometry.groups > 1 or by_sums(geometry):
            continue
        if node in outputs or hint(numel(node.shape[2:])) < LEAST_PLACES:
            continue
        readers = [item for item in order if any(_of(arg) is node for arg in item.args)]
        readers = [item for item in readers if item.op not in UNCHANGED]
        dims = {item: _dims(item, node) for item in readers if item.op == "moments"}
        if dims and all(dims.values()) and len(dims) < len(readers):
            yield _from_parts(node, geometry, dims, order)


def _of(value: Node) -> Node:
    """What a value is in the same order and type of numbers."""
    while value.op in UNCHANGED:
        value = value.args[0]
    return value


def _dims(moments: Node, node: Node) -> tuple[Shape, tuple[int, ...]] | None:
    """The shape of parts and the dimensions of it that `moments` takes together; None where it
    takes part of a picture."""
    axes, shape = moments.attrs[0], moments.args[0].shape
    assert isinstance(axes, tuple)
    batch, channels, *places = node.shape
    count = _parts_of(places)
    plain = len(shape) == len(node.shape) and all(map(same, shape, node.shape))
    every = tuple(range(2, len(shape)))
    if plain and axes in (every, (0, *every)):
        return (batch, channels, count), (2,) if axes == every else (0, 2)
    if len(shape) > 2 and axes == every and same(shape[0], batch):
        inside = channels / shape[1]
        if same(numel(shape[2:]), inside * numel(places)) and inside.is_integer:
            return (batch, shape[1], inside, count), (2, 3)
    return None


def _parts_of(places: Sequence[Expr]) -> Expr:
    return FloorDiv(numel(places) + PART - 1, sympy.Integer(PART))


def _from_parts(
    node: Node, geometry: Geometry, dims: dict[Node, tuple[Shape, tuple[int, ...]] | None],
    order: Sequence[Node],
) -> dict[Node, Node]:  # fmt: skip
    """The convolution, and the results of the moments in `dims` -> what takes their places."""
    b = GraphBuilder(label=node.origin)
    attrs = (Gathered(node, geometry),)
    call = Node("library", OP, node.args, node.dtype, (), attrs, OP, node.origin)
    shape = (*node.shape[:2], _parts_of(node.shape[2:]))
    found = {node: Node("field", "field", (call,), node.dtype, node.shape, (0,), node.name)}
    means, squares = (
        Node("field", "field", (call,), torch.float32, shape, (index,), name)
        for index, name in enumerate(FIELDS, 1)
    )
    for moments, placed in dims.items():
        assert placed is not None
        lies, axes = placed
        count = numel(moments.args[0].shape) / numel(moments.shape)
        values = _merged(b, b.reshape(means, lies), b.reshape(squares, lies), axes, node, count)
        fields = [item for item in order if item.kind == "field" and item.args[0] is moments]
        found |= {
            item: b.reshape(values[int(item.attrs[0])], moments.shape)  # type: ignore[call-overload]
            for item in fields
        }
    return found


def _merged(
    b: GraphBuilder, means: Node, squares: Node, axes: tuple[int, ...], node: Node, count: Expr
) -> tuple[Node, Node]:
    """Mean and sum of squares of all parts along `axes`, which have `count` elements."""
    sizes = _sizes(b, numel(node.shape[2:]), means.shape)
    total = b.reduce("sum", b.pointwise("mul", means, sizes), axes, "total")
    mean = b.pointwise("div", total, b.size(count), name="mean")
    away = b.pointwise("sub", means, mean)
    spread = b.pointwise("mul", b.pointwise("mul", away, away), sizes)
    return mean, b.reduce("sum", b.pointwise("add", squares, spread), axes, "squares")


def _sizes(b: GraphBuilder, places: Expr, shape: Shape) -> Node:
    """How many places each part has: the last one of a picture those that are left."""
    whole = b.constant(float(PART))
    if (places % PART) == 0:
        return whole
    index = b.iota((*(ONE,) * (len(shape) - 1), shape[-1]), len(shape) - 1)
    first = b.pointwise("mul", b.pointwise("cast", index, dtype=torch.float32), whole)
    return b.pointwise("minimum", b.pointwise("sub", b.size(places), first), whole)


def with_statistics_steps(partition: Partition) -> Partition:
    """Each such convolution as a step of its own kind."""
    return partition.with_calls(OP, lambda step: StatisticsStep(step.node, step.parts))


def statistics_facts(step: StatisticsStep, symbols: Symbols) -> ConvolutionFacts:
    """The convolution's, in tiles that end with a picture."""
    return replace(convolution_facts(step.anchor, symbols), apart=True)


def statistics_schedules(schedules: Sequence[dict[str, int]]) -> list[dict[str, int]]:
    """Those whose tiles have one part's places; where none does, the same with such tiles of few
    channels."""
    whole = [item for item in schedules if item["BLOCK_N"] == PART]
    return whole or [item | {"BLOCK_N": PART, "BLOCK_M": FEW_CHANNELS} for item in schedules[-1:]]


def emit_statistics_step(
    step: StatisticsStep, schedule: dict[str, int], name: str, outs: Sequence[str], scope: Scope
) -> KernelCode:
    """The kernels and launch lines; `outs`: the wrapper's names of what is stored."""
    lines = [
        f"places = tl.minimum(N - tile_n % tiles_n * {PART}, {PART}).to(tl.float32)",
        "mean = tl.sum(tl.where(col_mask[None, :], acc, 0.0), axis=1) / places",
        "away = tl.where(col_mask[None, :], acc - mean[:, None], 0.0)",
        "picture = (tile_n // tiles_n).to(tl.int64)",
        "spot = (picture * M + rows) * tiles_n + tile_n % tiles_n",
        "tl.store(means_ptr + spot, mean, mask=row_mask)",
        "tl.store(squares_ptr + spot, tl.sum(away * away, axis=1), mask=row_mask)",
    ]
    if step.anchor.node.dtype != torch.float32:
        lines.insert(0, "acc = acc.to(out_ptr.dtype.element_ty).to(tl.float32)")
    pointers = tuple(zip((f"{field}_ptr" for field in FIELDS), outs[1:], strict=True))
    end = End(EpilogueText(tuple(lines), pointers))
    return emit_convolution_step(step.anchor, schedule, name, outs[0], scope, end)
