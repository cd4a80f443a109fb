"""Products of which only sums along their rows are wanted: they are never stored.

A kernel multiplies as any other and leaves, of each row and each PART columns, what the reductions
gather there: of a sum its share, of sums of exponentials the maximum and the sum of what is left
of each after it. A kernel of the graph's rest adds these up in the order of the columns. So the
loss of a language model's head needs 8 bytes a row and 128 logits in place of the logits.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import sympy
import torch

from agentkernel.compiler.axes import Hint, IncompatibleAxes, Store, contiguous_strides
from agentkernel.compiler.emit import BodyLines
from agentkernel.compiler.expressions import SUM, Symbols, Text, pointwise_text
from agentkernel.compiler.fusion import LibraryStep, Partition, Region, analyse, topological
from agentkernel.compiler.ir import ONE, Expr, GraphBuilder, Node, numel, roots_of, same
from agentkernel.compiler.kernel import KernelCode
from agentkernel.compiler.products.places import groups_of, place_by_place
from agentkernel.compiler.products.schedules import GemmFacts, GemmSchedule
from agentkernel.compiler.products.spec import PART
from agentkernel.compiler.products.step import (
    FLOATS,
    EpilogueEmitter,
    EpilogueText,
    ProductStep,
    Scope,
    epilogue_emitter,
    finished,
    gemm_facts,
    product_code,
    product_spec,
)
from agentkernel.compiler.row_algebra import all_replaced
from agentkernel.domain.verdict import Precision

GUARDED = "guarded"
"""Mark of sums of exponentials from which no infinite maximum is taken out."""
OP, LOWEST = "row_parts", 'float("-inf")'
FIELDS = {"expsum": ("top", "total"), "sum": ("part",)}
"""What a part of a reduction's row consists of."""


@dataclass(frozen=True, eq=False)
class Gathered:
    """Reductions along the rows of a product, over what `region` makes of its elements."""

    product: Node
    reductions: tuple[Node, ...]
    region: Region

    def __repr__(self) -> str:
        return "gathered"


@dataclass(frozen=True, eq=False)
class RowPartsStep:
    """The product and the parts that it leaves, each [parts, *rows, 1] in fp32."""

    node: Node
    parts: tuple[Node, ...]

    @property
    def gathered(self) -> Gathered:
        """What it gathers."""
        found = self.node.attrs[0]
        assert isinstance(found, Gathered)
        return found

    @property
    def anchor(self) -> ProductStep:
        """The product alone."""
        return ProductStep(self.gathered.product, None)

    @property
    def reads(self) -> tuple[Node, ...]:
        """What it reads, below all views."""
        return roots_of(self.node.args)

    @property
    def multiplied(self) -> Expr:
        """Operations: two for each element of the product and of K."""
        product = self.gathered.product
        return 2 * numel(product.shape) * product.args[0].shape[-1]


def with_row_parts(outputs: Sequence[Node], hint: Hint) -> tuple[Node, ...]:
    """The same values, from parts of rows where only sums along them are wanted of a product."""
    return all_replaced(outputs, lambda now: _found(now, hint))


def _found(outputs: Sequence[Node], hint: Hint) -> Iterator[dict[Node, Node]]:
    order = topological(outputs)
    for product in order:
        if product.op != "product" or product.dtype not in FLOATS or len(product.args) != 2:
            continue
        columns = product.shape[-1]
        if len(product.args[1].shape) != 2 or not columns.is_number or columns < 2 * PART:
            continue
        gathered = _gathered(product, order, outputs, hint)
        if gathered is not None:
            yield _from_parts(gathered, order)


def _gathered(
    product: Node, order: Sequence[Node], outputs: Sequence[Node], hint: Hint
) -> Gathered | None:
    """The reductions that alone read `product`, and what is computed of it element by element."""
    tile, reductions = {product}, []
    for node in order:
        if node in tile or not any(arg in tile for arg in node.args):
            continue
        if node.kind == "reduce" and _along_rows(node, product):
            reductions.append(node)
        elif _of_elements(node, product):
            tile.add(node)
        else:
            return None
    if not reductions or tile & set(outputs):
        return None
    members = _members(reductions)
    stores = [
        Store(value, contiguous_strides(value.shape))
        for value in dict.fromkeys(item.args[0] for item in reductions)
    ]
    try:
        region = analyse(members, stores, hint)
    except IncompatibleAxes:
        return None
    found = Gathered(product, tuple(reductions), region)
    below = set(topological(region.reads)) & {*tile, *reductions} - {product}
    return found if not below and _row_by_row(found) else None


def _along_rows(node: Node, product: Node) -> bool:
    value = node.args[0]
    last = (len(value.shape) - 1,)
    return (
        node.op in FIELDS
        and node.attrs in ((last,), (last, GUARDED))
        and value.dtype.is_floating_point
        and value.dtype != torch.float64
        and same(value.shape[-1], product.shape[-1])
    )


def _of_elements(node: Node, product: Node) -> bool:
    """Whether it has an element for each one of the product, in its place."""
    plain = (node.kind == "pointwise" and node.op not in ("gather", "within")) or (
        node.kind == "view" and node.op == "reshape"
    )
    return (
        plain
        and len(node.shape) > 1
        and same(node.shape[-1], product.shape[-1])
        and same(numel(node.shape), numel(product.shape))
    )


def _members(reductions: Iterable[Node]) -> list[Node]:
    """What a tile computes: all that stands between stored values and reductions."""
    return [
        node
        for node in topological(item.args[0] for item in reductions)
        if node.kind == "pointwise"
    ]


def _loaded(gathered: Gathered) -> list[Node]:
    """The product as the region reads it: itself, or under another shape."""
    loads = gathered.region.layout.loads
    return [node for node, access in loads.items() if access.buffer is gathered.product]


def _row_by_row(gathered: Gathered) -> bool:
    """Whether every value has its rows and columns where the product has them."""
    region = gathered.region
    loaded = _loaded(gathered)
    if not loaded or gathered.product in region.layout.tables:
        return False
    groups = [groups_of(node, 0, region) for node in loaded]
    place = region.store_accesses[0].resolved()
    reads = [region.layout.loads[node] for node in loaded]
    whole = all(item.offset == 0 and item.resolved() == place for item in reads)
    stored = all(item.resolved() == place for item in region.store_accesses)
    alike = all(item == groups[0] for item in groups)
    return whole and stored and alike and place_by_place(groups[0], region)


def _from_parts(gathered: Gathered, order: Sequence[Node]) -> dict[Node, Node]:
    """What the reductions gave -> the same from the parts."""
    product, region = gathered.product, gathered.region
    others = [node for node in region.reads if node is not product]
    args = tuple(dict.fromkeys((*product.args, *others)))
    b = GraphBuilder(label=product.origin)
    call = Node("library", OP, args, torch.float32, (), (gathered,), "row_parts", product.origin)
    count = sympy.Integer(-(-int(product.shape[-1]) // PART))
    found: dict[Node, Node] = {}
    index = 0
    for reduction in gathered.reductions:
        parts = []
        for name in FIELDS[reduction.op]:
            shape = (count, *reduction.shape[:-1], ONE)
            kind = torch.float32
            parts.append(Node("field", "field", (call,), kind, shape, (index,), name))
            index += 1
        values = _combined(b, reduction, parts)
        if reduction.op == "sum":
            found[reduction] = values[0]
        else:
            fields = [x for x in order if x.kind == "field" and x.args[0] is reduction]
            found |= {field: values[int(field.attrs[0])] for field in fields}  # type: ignore[call-overload]
    return found


def _combined(b: GraphBuilder, reduction: Node, parts: Sequence[Node]) -> list[Node]:
    """The whole row's numbers."""
    shape = reduction.shape
    if reduction.op == "sum":
        return [b.reshape(b.reduce("sum", parts[0], (0,), reduction.name), shape)]
    tops, totals = parts
    top = b.reduce("max", tops, (0,), "row_max")
    shifts = [tops, top]
    if GUARDED in reduction.attrs:
        shifts = [b.pointwise("where", b.pointwise("isinf", x), 0.0, x) for x in shifts]
    scaled = b.pointwise("mul", totals, b.pointwise("exp", b.pointwise("sub", *shifts)))
    if GUARDED in reduction.attrs:
        # A part without a number left has a maximum of -inf, which counts as 0 here.
        scaled = b.pointwise("where", b.pointwise("eq", totals, 0.0), 0.0, scaled)
    total = b.reduce("sum", scaled, (0,), "row_sum")
    return [b.reshape(item, shape) for item in (top, total)]


def with_row_parts_steps(partition: Partition) -> Partition:
    """Each such product as a step of its own kind."""
    steps = tuple(
        RowPartsStep(step.node, step.parts)
        if isinstance(step, LibraryStep) and step.node.op == OP
        else step
        for step in partition.steps
    )
    return Partition(steps, partition.outputs)  # type: ignore[arg-type]


def row_parts_facts(step: RowPartsStep, symbols: Symbols, precision: Precision) -> GemmFacts:
    """The product's."""
    return gemm_facts(step.anchor, symbols, precision)


def row_parts_schedules(schedules: Iterable[GemmSchedule]) -> list[GemmSchedule]:
    """Those whose epilogue holds PART whole columns: a tile so wide, or one of two halves; where
    all of such tiles split K, these without that."""
    wide = [
        schedule
        for schedule in schedules
        if schedule["BLOCK_N"] in ((PART, 2 * PART) if "PERSIST" in schedule else (PART,))
    ]
    whole = [schedule for schedule in wide if schedule["SPLIT_K"] == 1]
    return whole or [schedule | {"SPLIT_K": 1} for schedule in wide]


def emit_row_parts_step(
    step: RowPartsStep, schedule: dict[str, int], name: str, outs: Sequence[str], scope: Scope
) -> KernelCode:
    """The kernels and launch lines; `outs`: the wrapper's names of the parts."""
    lines: list[str] = []
    pointers = ("out_ptr", *(f"part_{index}_ptr" for index in range(1, len(outs))))
    text = _text(step.gathered, pointers, scope)
    spec = product_spec(step.anchor, (name, outs[0]), text, scope, lines)
    extras = (*text.extras, *zip(pointers[1:], outs[1:], strict=True))
    spec = replace(spec, extras=extras, store=False, by_parts=True)
    return product_code(spec, schedule, text, scope, lines)


def _text(gathered: Gathered, pointers: Sequence[str], scope: Scope) -> EpilogueText:
    """Lines from `acc` to the parts of its rows."""
    region, loaded = gathered.region, _loaded(gathered)
    groups = groups_of(loaded[0], 0, region)
    emitter = epilogue_emitter(region, dict.fromkeys(loaded, "acc"), groups, scope)
    emitter.own_pointers |= frozenset(pointers)
    lines: list[str] = []
    place, stored = (emitter.names.unique(name) for name in ("place", "stored"))
    coarse = gathered.product.dtype != torch.float32
    numbers = [
        item
        for reduction in gathered.reductions
        for item in _part(reduction, emitter, lines, coarse=coarse)
    ]
    lines += [
        f"{place} = tl.cast(part, tl.int64) * M + rows",
        f"{stored} = row_mask & (part * {PART} < N)",
    ]
    lines += [
        f"tl.store({pointer} + {place}, {number}, mask={stored})"
        for pointer, number in zip(pointers, numbers, strict=True)
    ]
    return finished(emitter, lines, scope)


def _part(
    reduction: Node, emitter: EpilogueEmitter, lines: list[str], *, coarse: bool
) -> list[str]:  # fmt: skip
    """Write what a reduction gathers in a tile; the names of it."""
    value = reduction.args[0]
    text = emitter.value(value, BodyLines(lines, lines))
    unique = emitter.names.unique
    if reduction.op == "sum":
        total = unique("row_sum")
        lines.append(f"{total} = tl.sum({_masked(text, '0.0', value)}, axis=1)")
        return [total]
    logits, top, shift, total = (
        unique(name) for name in ("values", "row_max", "shift", "row_sum")
    )  # fmt: skip
    guarded = GUARDED in reduction.attrs
    infinite = f'tl.abs({top}) == float("inf")' if guarded else f"{top} == {LOWEST}"
    # Logits of 16-bit operands are known to 2**-9: Triton's exp is exact enough for them.
    grown = pointwise_text(
        "exp", [Text(f"{logits} - {shift}[:, None]")], torch.float32, torch.float32,
        emitter.helpers, coarse=coarse,
    ).code  # fmt: skip
    lines += [
        f"{logits} = {_masked(text, LOWEST, value)}",
        f"{top} = tl.max({logits}, axis=1)",
        f"{shift} = tl.where({infinite}, 0.0, {top})",
        f"{total} = tl.sum({grown}, axis=1)",
    ]
    return [top, total]


def _masked(text: Text, identity: str, value: Node) -> str:
    """A value with `identity` past the last column."""
    if int(value.shape[-1]) % PART == 0:
        return text.within(SUM)
    return f"tl.where(col_mask[None, :], {text.code}, {identity})"
