"""Rotary embeddings in a product's epilogue: elements that meet in pairs within a tile.

Of each pair, the epilogue makes two results from two elements: the halves of a head (Llama's
rotate_half) or neighbours (GPT-J's form). A tile that holds whole heads is taken apart into the
first and the second elements of its pairs, in the registers where they are; their results are put
together again, and the heads are stored once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import sympy

from agentkernel.compiler.axes import (
    Atom,
    Hint,
    IncompatibleAxes,
    Store,
    contiguous_strides,
    store_access,
)
from agentkernel.compiler.fusion import Region, analyse
from agentkernel.compiler.ir import Expr, Node, numel
from agentkernel.compiler.products.halves import Half, Halving
from agentkernel.compiler.products.places import Groups, in_order, inside, stored_well
from agentkernel.compiler.products.schedules import (
    FloatType,
    GemmSchedule,
    epilogue_columns,
    shared_bytes,
    stored_bytes,
    tile_of,
)
from agentkernel.domain.target import Target

WIDEST = 128
"""Columns of a head: what every tile that multiplies well holds."""


@dataclass(frozen=True, eq=False)
class Rotation:
    """What becomes of the pairs of a product's row."""

    head: int
    """Columns that a tile has to hold together: pairs lie half of them apart."""
    region: Region
    """Makes what becomes of the first elements of pairs, and of the second ones."""
    reads: Mapping[Node, int]
    """What it reads of the product -> which elements of the pairs those are."""
    groups: Groups
    """Atoms of the batch, of M and of the pairs of a row."""
    whole: Groups
    """The same of the row's elements."""
    strides: dict[Atom, Expr]
    """How the result is stored, over the atoms of `whole`."""

    @property
    def results(self) -> tuple[Node, ...]:
        """What becomes of the first and of the second elements."""
        return self.region.stores[0].node.args

    def lines_apart(self) -> list[str]:
        """Lines that take a tile apart."""
        if self.head == 2:
            pairs = "tl.reshape(acc, (acc.shape[0], acc.shape[1] // 2, 2))"
            return ["# Neighbours are rotated together.", f"low, high = tl.split({pairs})"]
        half = self.head // 2
        return [
            "# The halves of each head are rotated together.",
            f"heads = tl.reshape(acc, (acc.shape[0], acc.shape[1] // {self.head}, 2, {half}))",
            "heads = tl.permute(heads, (0, 1, 3, 2))",
            "low, high = tl.split(tl.reshape(heads, (acc.shape[0], acc.shape[1] // 2, 2)))",
        ]

    def lines_together(self, low: str, high: str) -> list[str]:
        """Lines that put a tile together of what became of its pairs."""
        shape = "(acc.shape[0], acc.shape[1])"
        pairs = f"tl.join({low}, {high})"
        if self.head == 2:
            return [f"acc = tl.reshape({pairs}, {shape})"]
        heads = f"(acc.shape[0], acc.shape[1] // {self.head}, {self.head // 2}, 2)"
        return [
            f"heads = tl.reshape({pairs}, {heads})",
            f"acc = tl.reshape(tl.permute(heads, (0, 1, 3, 2)), {shape})",
        ]


def rotated_schedules(
    schedules: Sequence[GemmSchedule], rotations: Iterable[Rotation | None], dtype: FloatType,
    target: Target,
) -> list[GemmSchedule]:  # fmt: skip
    """Those whose epilogue holds whole heads, and all of K (sums of slices are added up elsewhere).
    Where none does, the same with tiles as wide as a head."""
    head = max((item.head for item in rotations if item is not None), default=1)
    if head == 1:
        return list(schedules)
    single = [item for item in schedules if item["SPLIT_K"] == 1]
    single = single or [item | {"SPLIT_K": 1} for item in schedules]
    whole = [item for item in single if epilogue_columns(item) % head == 0]
    whole = whole or [item | {"BLOCK_N": head} for item in single]
    limit = 1024 * target.shared_kb_per_block.value
    return [
        item
        for item in whole
        if shared_bytes(tile_of(item), dtype, target) + stored_bytes(item) + _table(item) <= limit
    ] or whole


def _table(schedule: GemmSchedule) -> int:
    """Bytes of shared memory through which a table of angles goes into an accumulator's layout."""
    return 4 * schedule["BLOCK_M"] * epilogue_columns(schedule) // 2


def rotation_of(product: Node, region: Region, hint: Hint) -> Rotation | None:
    """How a region that alone reads a product makes one result of it in pairs; None where it does
    something else."""
    columns = product.shape[-1]
    single = not region.reduces and not region.scatters and len(region.stores) == 1
    if not single or len(product.args[1].shape) != 2 or not columns.is_number:
        return None
    for head, halves in _forms(region.stores[0].node, int(columns)):
        try:
            found = _rotation(product, region, head, halves, hint)
        except IncompatibleAxes:
            continue
        if found is not None:
            return found
    return None


def _forms(value: Node, columns: int) -> Iterator[tuple[int, tuple[Half, Half]]]:
    """Ways in which a value may consist of pairs: what a tile has to hold, and its halves."""
    last = value.shape[-1] if value.shape else sympy.Integer(1)
    if not last.is_number or last % 2:
        return
    size, half = int(last), int(last) // 2
    if size == 2:
        yield 2, (Half(-1, 0, 1, 1), Half(-1, 1, 1, 1))
        return
    if size <= WIDEST and size & (size - 1) == 0 and columns % size == 0:
        yield size, (Half(-1, 0, 1, half), Half(-1, half, 1, half))
    yield 2, (Half(-1, 0, 2, half), Half(-1, 1, 2, half))


def _rotation(
    product: Node, region: Region, head: int, halves: tuple[Half, Half], hint: Hint
) -> Rotation | None:
    store, stored = region.stores[0], frozenset(region.reads)
    halving = Halving(stored)
    results = [halving.at(store.node, half) for half in halves]
    if results[0] is results[1] or any(result.root in stored for result in results):
        return None
    # As operands of one value, both are worked out at the same places.
    pair = halving.b.pointwise("pair", *results, dtype=store.node.dtype)
    members = _members(pair, stored)
    made = analyse(members, [Store(pair, contiguous_strides(pair.shape))], hint)
    reads: dict[Node, int] = {}
    found: Groups | None = None
    for node, access in made.layout.loads.items():
        if access.buffer is not product:
            continue
        which = next((at for at in (0, 1) if access.offset == at * max(1, head // 2)), None)
        strides = {atom: _of_pairs(step, head) for atom, step in access.resolved().items()}
        sizes = (sympy.Integer(1), numel(product.shape[:-1]), product.shape[-1] / 2)
        groups = in_order(strides, sizes)
        if which is None or groups is None or found not in (None, groups):
            return None
        reads[node], found = which, groups
    tables = product in made.layout.tables
    if found is None or tables or len(set(reads.values())) < 2 or not inside(found, made):
        return None
    return _placed(Rotation(head, made, reads, found, (), {}), store)


def _of_pairs(step: Expr, head: int) -> Expr:
    """The distance of two pairs in pairs, whose first elements lie `step` columns apart."""
    near = head > 2 and step.is_number and step < head // 2
    return step if near else step / 2


def _members(result: Node, stored: frozenset[Node]) -> list[Node]:
    """What has to be computed for `result`, producers first."""
    order: dict[Node, None] = {}

    def visit(node: Node) -> None:
        if node in order or node in stored:
            return
        for arg in node.args:
            visit(arg)
        order[node] = None

    visit(result)
    return [node for node in order if node.kind == "pointwise"]


def _placed(rotation: Rotation, store: Store) -> Rotation | None:
    """With the places of the result, which is stored as `store` says: the atoms of the pairs in a
    row as those of its elements."""
    region, (batch, rows, cols) = rotation.region, rotation.groups
    if not cols:
        return None
    first = region.stores[0].node
    access = store_access(first, region.layout.dims[first], store.strides)
    steps, inner = access.resolved(), cols[-1]
    last = Atom(2 * inner.size)
    pair = rotation.head == 2 or inner.size == rotation.head // 2
    if not pair or store.strides[-1] != 1:
        return None
    if store.node.shape[-1] == 2 and steps[inner] != 2:
        return None
    whole = (batch, rows, (*cols[:-1], last))
    strides = {atom: step for atom, step in steps.items() if atom is not inner} | {
        last: sympy.Integer(1)
    }
    fits = stored_well(whole, strides)
    return replace(rotation, whole=whole, strides=strides) if fits else None
