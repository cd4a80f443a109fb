"""From a captured graph to complete drop-ins: lower, partition, choose schedules, write.

Holds the schedule space of a region, the likeliest first, and the order in which the kernels of
one drop-in change their schedules, the heaviest first. Measured reasons are in `SCHEDULES.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

import torch

from agentkernel.compiler.attention import AttentionStep, attention_facts, with_attention
from agentkernel.compiler.axes import IncompatibleAxes, contiguous_strides
from agentkernel.compiler.drop_in.constructor import ConstructorText
from agentkernel.compiler.drop_in.wrapper import AnySchedule, DropInSource, write
from agentkernel.compiler.emit import PERSISTENT_LIMIT, Schedule
from agentkernel.compiler.expressions import Symbols, symbols_of
from agentkernel.compiler.fusion import Output, Partition, Region, partition
from agentkernel.compiler.ir import Expr, Node, Shape, UnsupportedOp, numel
from agentkernel.compiler.lowering import LoweredGraph, lower
from agentkernel.compiler.lowering.registry import to_expr
from agentkernel.compiler.products.step import ProductStep, with_product_steps
from agentkernel.compiler.rows_reductions import reduction_depth
from agentkernel.domain.knowledge import number_in
from agentkernel.domain.verdict import Precision
from agentkernel.tools.problem.capture import Captured
from agentkernel.tools.problem.loading import LoadedProblem


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


TILE_ELEMENTS = 4096
"""Elements that a program holds where rows are short."""
SPLIT_BELOW_ROWS = 264
"""Fewer rows than this (two for each SM of an H200) leave the GPU half empty: split long rows."""
LOOP_FROM = 4096
"""From this length on, rows of 4-byte elements are faster walked in tiles than held."""
SPLIT_FROM = 16384
"""Shortest row worth splitting."""
Decision = Callable[[str], str | None]


def region_schedules(region: Region, symbols: Symbols, decision: Decision) -> list[Schedule]:
    """Schedules for one region, best guess first, without repeats; at least one."""
    make = _reductions if region.reduces else _pointwise
    return list(dict.fromkeys(make(region, symbols, decision)))


def _number(decision: Decision, key: str, default: int) -> int:
    """What is decided for `key`; `default` where that is nothing, or out of its range."""
    found = number_in(key, decision(key))
    return default if found is None else found


def _pointwise(region: Region, symbols: Symbols, decision: Decision) -> Iterator[Schedule]:
    hint = symbols.hint
    warps = _number(decision, "pointwise.num_warps", 4)
    block = _number(decision, "pointwise.block", 1024)
    if not region.rows:
        yield Schedule("flat", block, num_warps=warps)
        for size, count in ((512, 4), (1024, 4), (2048, 8), (4096, 8), (2048, 4), (1024, 8)):
            yield Schedule("flat", size, num_warps=count)
        return
    cols = power_of_two(hint(region.col_count))
    if _strided(region):
        for rows, width, count in ((32, 32, 4), (64, 64, 8), (32, 64, 4), (64, 32, 4)):
            yield Schedule("tile", min(width, cols), rows, num_warps=count)
        return
    shapes = ((block, warps), (1024, 4), (2048, 8), (2048, 4), (4096, 8), (512, 4))
    for index, (elements, count) in enumerate(dict.fromkeys(shapes)):
        width = min(cols, elements)
        yield Schedule("flat", elements, num_warps=count)
        if index:
            yield Schedule("tile", width, max(1, elements // width), num_warps=count)


def _strided(region: Region) -> bool:
    """True where some load or store walks rows, not columns, with stride 1."""
    for access in (*region.layout.loads.values(), *region.store_accesses):
        strides = access.resolved()
        across = any(axis.stride(strides) not in (0, 1) for axis in region.cols)
        if across and any(axis.stride(strides) == 1 for axis in region.rows):
            return True
    return False


def _reductions(region: Region, symbols: Symbols, decision: Decision) -> Iterator[Schedule]:
    """All forms that fit, two schedules of each in turn, the likeliest form first."""
    length, rows = symbols.hint(region.col_count), symbols.hint(region.row_count)
    forms = {
        "persistent": list(_persistent(region, length, decision)),
        "looped": list(_looped(region, length, decision)),
        "split": list(_split(region, rows, length, decision)),
    }
    waiting = [forms[form] for form in _order(region, rows, length, decision)]
    while any(waiting):
        for items in waiting:
            yield from items[:2]
            del items[:2]


def _order(region: Region, rows: int, length: int, decision: Decision) -> tuple[str, ...]:
    """Forms by what was measured (SCHEDULES.md): wide elements in long rows are walked in tiles."""
    limit = _number(decision, "row.persistent_limit", PERSISTENT_LIMIT)
    if rows < SPLIT_BELOW_ROWS and length >= SPLIT_FROM:
        return ("split", "looped", "persistent")
    if length > limit or (_widest(region) >= 4 and length >= LOOP_FROM):
        return ("looped", "persistent", "split")
    return ("persistent", "looped", "split")


def splittable(region: Region) -> bool:
    """True where every reduction reads the loads directly and none needs another's result."""
    members, known = frozenset(region.nodes), {}  # type: ignore[var-annotated]
    ops = [node for node in region.nodes if node.kind == "reduce"]
    return all(reduction_depth(node, members, known) == 1 for node in ops) and not any(
        node.op in ("argmax", "argmin") for node in ops
    )


def _persistent(region: Region, length: int, decision: Decision) -> Iterator[Schedule]:
    block = power_of_two(length)
    if block > 65536:
        return
    if _strided(region):
        for width in (32, 64, 16):
            if width * block <= 65536:
                yield Schedule("persistent", block, width, warps_for(width * block))
        return
    usual = warps_for(block * rows_for(block) * min(4, _widest(region)) // 4)
    start = _number(decision, "row.num_warps", usual)
    for warps in dict.fromkeys((start, usual, 8, 16, 4)):
        if 32 <= block * rows_for(block) // warps <= 32 * 128:
            for early in _invariant_first(region, decision):
                yield Schedule("persistent", block, rows_for(block), warps, early)
    if block <= 2048:
        for many in (1, 2, 4, 8):
            warps = warps_for(block * many)
            yield Schedule("persistent", block, many, warps, _invariant_first(region, decision)[0])


def _invariant_first(region: Region, decision: Decision) -> tuple[bool, ...]:
    """Whether weights are loaded before the row: the usual choice, then the other one."""
    shared = any(
        not any(axis.stride(item) for axis in region.rows)
        and any(axis.stride(item) for axis in region.cols)
        for item in (access.resolved() for access in region.layout.loads.values())
    )
    if not shared:
        return (False,)
    first = _number(decision, "row.invariant_first", int(_widest(region) >= 4)) == 1
    return (first, not first)


def _looped(region: Region, length: int, decision: Decision) -> Iterator[Schedule]:
    cap = power_of_two(length)
    if _strided(region):
        for block, width, count in ((32, 64, 4), (16, 128, 4), (64, 64, 8), (128, 32, 8)):
            yield Schedule("looped", min(block, cap), width, count)
        return
    if length <= 1024:
        return
    block = _number(decision, "row.loop_block", 4096)
    count = _number(decision, "row.loop_warps", 16)
    tried = ((block, count), (4096, 16), (4096, 8), (2048, 16), (2048, 8), (1024, 4), (8192, 16))
    for size, warps in tried:
        if size < cap:
            yield Schedule("looped", size, 1, warps)


def _split(region: Region, rows: int, length: int, decision: Decision) -> Iterator[Schedule]:
    if not splittable(region) or _strided(region) or length < SPLIT_FROM:
        return
    wanted = _number(decision, "row.split_programs", 1056)
    for programs in (wanted, wanted // 2, 2 * wanted):
        chunks = min(1024, power_of_two(max(2, programs // max(rows, 1))))
        for block, warps in ((2048, 4), (4096, 8)):
            if length // chunks >= block // 2:
                yield Schedule("split", block, 1, warps, chunks=chunks)


def _widest(region: Region) -> int:
    """Bytes of the widest element that the region loads."""
    return max((item.buffer.dtype.itemsize for item in region.layout.loads.values()), default=4)


def rows_for(block: int) -> int:
    """Rows a program where rows are short: about a thousand elements together."""
    return max(1, min(16, 1024 // block))


def warps_for(elements: int) -> int:
    """Warps for a tile: 4 to 16, at least 512 elements each."""
    return min(16, max(4 if elements >= 1024 else 2, power_of_two(elements // 512)))


def power_of_two(value: int) -> int:
    """The smallest power of two that is not below `value`."""
    return 1 << max(0, value - 1).bit_length()


def is_free(expr: Expr) -> bool:
    """True where a size may change from call to call."""
    return not expr.is_number


BYTES_PER_US = 4e6
"""About the copy bandwidth of an H100 or H200."""
FLOP_PER_US = 1e8
"""About what an fp32-accurate product reaches there (SCHEDULES.md)."""


def single_changes(
    counts: Mapping[object, int], symbols: Symbols, most: int
) -> Iterator[dict[object, int]]:
    """At most `most` assignments {step: position in its list}: steps left out keep their first.

    One kernel changes at a time, the heaviest first. Each gets variants by its share of the work,
    at least two; what a kernel with few schedules leaves goes to the next.
    """
    yield {}
    work = {step: work_us(step, symbols) for step in counts}
    total, left = sum(work.values()), most - 1
    waiting: list[dict[object, int]] = []
    for step in sorted(work, key=lambda item: -work[item]):
        share = max(2, round((most - 1) * work[step] / total))
        every = [{step: index} for index in range(1, counts[step])]
        yield from every[: min(share, left)]
        left -= min(share, left, len(every))
        waiting += every[share:]
    yield from waiting[:left]


def work_us(step: object, symbols: Symbols) -> float:
    """Time of a kernel, roughly: what it moves or multiplies, and a launch."""
    if isinstance(step, ProductStep):
        m, n, k = (symbols.hint(size) for size in step.sizes)
        batch = symbols.hint(numel(step.node.args[1].shape[:-2]))
        return 1.0 + 2 * batch * m * n * k / FLOP_PER_US
    if isinstance(step, AttentionStep):
        facts = attention_facts(step, symbols)
        return 1.0 + 4 * facts.heads * facts.queries * facts.keys * facts.head_dim / FLOP_PER_US
    assert isinstance(step, Region)
    buffers = {*step.reads, *(store.node for store in step.stores)}
    moved = sum(symbols.hint(numel(item.shape)) * item.dtype.itemsize for item in buffers)
    return 1.0 + moved / BYTES_PER_US
