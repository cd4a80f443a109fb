"""Gates: two to four products of one matrix that meet element by element, as one kernel.

SwiGLU has two, the cell of a GRU three, that of an LSTM four.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import sympy

from agentkernel.compiler.axes import Store
from agentkernel.compiler.expressions import Symbols
from agentkernel.compiler.fusion import LibraryStep, Partition, Region, Step
from agentkernel.compiler.ir import Expr, Node, numel, roots_of, same
from agentkernel.compiler.kernel import KernelCode
from agentkernel.compiler.products.places import element_by_element, groups_of
from agentkernel.compiler.products.schedules import GemmFacts, GemmSchedule
from agentkernel.compiler.products.spec import GATES
from agentkernel.compiler.products.step import (
    FLOATS,
    ProductStep,
    Scope,
    epilogue_text,
    gemm_facts,
    operand_text,
    product_code,
    product_spec,
    stored_operands,
)
from agentkernel.domain.verdict import Precision

MOST_PARTS = 1 + len(GATES)
"""Products, or columns of one, that meet in a kernel."""
LEAST_ROWS = 16
"""Of a tile of `mma`."""


class Part(NamedTuple):
    """What a region reads of a product: all of it, or neighbouring columns."""

    value: Node
    """The product, or a slice of it."""
    product: Node
    first: Expr | None
    """The first column; None for all."""


@dataclass(frozen=True, eq=False)
class PairStep:
    """epilogue(A @ B, A @ second, ...): of as many weights, or columns of one."""

    parts: tuple[Part, ...]
    epilogue: Region

    @property
    def products(self) -> tuple[ProductStep, ...]:
        """The products as they are stored where they do not meet in one kernel."""
        nodes = dict.fromkeys(part.product for part in self.parts)
        return tuple(ProductStep(node, None) for node in nodes)

    @property
    def node(self) -> Node:
        """The first of them."""
        return self.parts[0].product

    @property
    def reads(self) -> tuple[Node, ...]:
        """What it reads, below all views."""
        own = {part.product for part in self.parts}
        operands = [item for node in own for item in node.args]
        found = roots_of((*self.node.args, *operands, *self.epilogue.reads))
        return tuple(item for item in found if item not in own)

    @property
    def stores(self) -> tuple[Store, ...]:
        """What it stores: a cell's state beside its output, say."""
        return self.epilogue.stores

    @property
    def multiplied(self) -> Expr:
        """Multiplications."""
        return len(self.parts) * numel(self.parts[0].value.shape) * self.node.args[0].shape[-1]


def with_pairs(partition: Partition) -> Partition:
    """Products that meet in a region of theirs alone as gates; the others as they are."""
    made: dict[Step, PairStep] = {}
    for step in partition.steps:
        if isinstance(step, Region):
            pair = next(_pairs(step, partition), None)
            made |= {step: pair} if pair else {}
    taken = {part.product for pair in made.values() for part in pair.parts}
    steps = tuple(
        made.get(step, step)
        for step in partition.steps
        if not (isinstance(step, LibraryStep) and step.node in taken)
    )
    return Partition(steps, partition.outputs)  # type: ignore[arg-type]


def _pairs(region: Region, partition: Partition) -> Iterator[PairStep]:
    if region.reduces:
        return
    parts = list(_parts(region, partition))
    read = [access.buffer for access in region.layout.loads.values()]
    for place, first in enumerate(parts):
        alike = [x for x in parts[place:] if _alike(first, x) and _meet(first, x, region)]
        count = sum(read.count(node) for node in {part.product for part in alike})
        if 1 < len(alike) == count <= MOST_PARTS:
            yield PairStep(tuple(alike), region)


def _parts(region: Region, partition: Partition) -> Iterator[Part]:
    """What the region alone reads of products that nothing else stores."""
    for value, access in region.layout.loads.items():
        product = access.buffer
        if product.op != "product" or product in region.layout.tables:
            continue
        if product.dtype not in FLOATS or partition.only_region(product) is not region:
            continue
        if value is product:
            yield Part(value, product, None)
        elif value.op == "slice" and value.args[0] is product:
            axis, first, step = value.attrs
            if axis == len(product.shape) - 1 and step == 1:
                yield Part(value, product, sympy.sympify(first))


def _alike(left: Part, right: Part) -> bool:
    """True for parts of one shape of products that differ in nothing but the weight."""
    one, two = left.product, right.product
    steps = [ProductStep(node, None) for node in (one, two)]
    lie_alike = steps[0].transposed == steps[1].transposed
    plain = all(item.root is item for step in steps for item, _ in stored_operands(step)[1:])
    return (
        one.args[0] is two.args[0]
        and one.dtype == two.dtype
        and lie_alike
        and plain
        and all(map(same, one.args[1].shape, two.args[1].shape))
        and all(map(same, left.value.shape, right.value.shape))
    )


def _meet(left: Part, right: Part, region: Region) -> bool:
    """True where the region takes both at the same places."""
    lead = ProductStep(left.product, None).batch_dims
    groups = [groups_of(part.value, lead, region) for part in (left, right)]
    return groups[0] == groups[1] and element_by_element(left.value, groups[0], region)


def pair_facts(pair: PairStep, symbols: Symbols, precision: Precision) -> GemmFacts:
    """The product with the columns of all weights, whose tiles take as many accumulators and as
    much shared memory."""
    facts = gemm_facts(pair.products[0], symbols, precision)
    count = len(pair.parts)
    return replace(facts, n=count * symbols.hint(pair.parts[0].value.shape[-1]), sums=count)


def pair_schedules(schedules: Iterable[GemmSchedule], parts: int = 2) -> list[GemmSchedule]:
    """The schedules of that product as those of `parts` gates: half of a tile's columns for each
    weight, a quarter where they are more than two. K is not split: what meets in the epilogue are
    whole sums."""
    share = 2 if parts == 2 else 4
    return [
        schedule | {"BLOCK_N": schedule["BLOCK_N"] // share}
        for schedule in schedules
        if schedule["SPLIT_K"] == 1 and schedule["BLOCK_N"] >= 16 * share
    ]


def filling(
    schedules: Sequence[GemmSchedule], facts: GemmFacts, parts: int, sm_count: int
) -> list[GemmSchedule]:
    """Schedules of gates, before them tiles of so few rows that they fill the card where others
    leave SMs idle: K cannot be split for that."""
    found: list[GemmSchedule] = []
    for schedule in schedules:
        rows = schedule["BLOCK_M"]
        across = -(-facts.n // parts // schedule["BLOCK_N"]) * facts.batch
        while rows > LEAST_ROWS and -(-facts.m // rows) * across < sm_count:
            rows //= 2
        if rows < schedule["BLOCK_M"] and "PLANES" not in schedule and "PERSIST" not in schedule:
            narrow = schedule | {"BLOCK_M": rows, "num_warps": 4}
            found += [narrow, narrow | {"num_warps": 2}]
    return list({tuple(item.items()): item for item in (*found, *schedules)}.values())


def emit_pair_step(
    pair: PairStep, schedule: dict[str, int], name: str, out: str, scope: Scope
) -> KernelCode:
    """The kernel of the gates and its launch lines."""
    lines: list[str] = []
    step, values = pair.products[0], [part.value for part in pair.parts]
    groups = groups_of(values[0], step.batch_dims, pair.epilogue)
    sums = dict(zip(values, ("acc", *GATES), strict=False))
    text = epilogue_text(pair.epilogue, sums, groups, scope)
    spec = product_spec(step, (name, out), text, scope, lines)
    first, *gates = _weights(pair, spec.b, scope, lines)
    spec = replace(
        spec, b=first, gates=tuple(gates), n=scope.symbols.wrapper(values[0].shape[-1]),
        out_is_float=pair.stores[0].node.dtype in FLOATS,
    )  # fmt: skip
    return product_code(spec, schedule, text, scope, lines)


def _weights(pair: PairStep, first: str, scope: Scope, lines: list[str]) -> list[str]:
    """The wrapper's expressions of the weights, of which the first product's is `first`; columns
    of a weight get a name of their own in `lines`, once."""
    found: list[str] = []
    for part in pair.parts:
        step = ProductStep(part.product, None)
        weight, wanted = stored_operands(step)[1]
        same_weight = part.product is pair.parts[0].product
        text = first if same_weight else operand_text(weight, wanted, scope, lines)
        if part.first is not None:
            start, end = part.first, part.first + part.value.shape[-1]
            bounds = f"{scope.symbols.wrapper(start)}:{scope.symbols.wrapper(end)}"
            axis = len(weight.shape) - (2 if step.transposed[1] else 1)
            view = f"{text}[{':, ' * axis}{bounds}]"
            if view not in scope.columns:
                scope.columns[view] = scope.names.unique("columns")
                lines.append(f"{scope.columns[view]} = {view}")
            text = scope.columns[view]
        found.append(text)
    return found
