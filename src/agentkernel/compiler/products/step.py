"""Matrix products served by the own GEMM: which of them, with which epilogue, and their text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

import torch

from agentkernel.compiler.axes import (
    Access,
    Atom,
    Hint,
    IncompatibleAxes,
    Store,
    contiguous_strides,
)
from agentkernel.compiler.drop_in.forward import Forward
from agentkernel.compiler.emit import BodyLines, Emitter, Names, Schedule
from agentkernel.compiler.expressions import Symbols, Text, tensor_text
from agentkernel.compiler.fusion import (
    Axis,
    LibraryStep,
    Partition,
    Region,
    Step,
    analyse,
    index_strides,
)
from agentkernel.compiler.ir import Expr, Node, UnsupportedOp, numel, roots_of
from agentkernel.compiler.kernel import KernelCode
from agentkernel.compiler.products.descriptors import NAMES as BOXES
from agentkernel.compiler.products.gemm import emit_gemm
from agentkernel.compiler.products.places import Groups, epilogue_groups, is_plain, read_of, terms
from agentkernel.compiler.products.planes import Splits
from agentkernel.compiler.products.rotation import Rotation, rotation_of
from agentkernel.compiler.products.schedules import FloatType, GemmFacts
from agentkernel.compiler.products.spec import TILE, GemmSpec
from agentkernel.compiler.products.triangles import (
    Triangle,
    operand_triangle,
    result_triangle,
    work_share,
)
from agentkernel.domain.verdict import Precision

FLOATS: dict[torch.dtype, FloatType] = {
    torch.float32: "float32",
    torch.float16: "float16",
    torch.bfloat16: "bfloat16",
}


@dataclass(frozen=True, eq=False)
class AnchorStep:
    """An operation on stored operands with the pointwise region that follows it, if any."""

    node: Node
    epilogue: Region | None

    @property
    def reads(self) -> tuple[Node, ...]:
        """What it reads, below all views."""
        inside = self.epilogue.reads if self.epilogue else ()
        return tuple(item for item in roots_of((*self.node.args, *inside)) if item is not self.node)

    @property
    def result(self) -> Node:
        """What it stores."""
        return self.store.node

    @property
    def store(self) -> Store:
        """How it stores that."""
        if self.epilogue:
            return self.epilogue.stores[0]
        return Store(self.node, contiguous_strides(self.node.shape))


@dataclass(frozen=True, eq=False)
class ProductStep(AnchorStep):
    """A product of two stored matrices with its epilogue."""

    rotation: Rotation | None = None
    """What its epilogue makes of the elements in pairs, where it does."""

    @property
    def batch_dims(self) -> Literal[0, 1, 2]:
        """Leading dimensions that both operands have."""
        count = len(self.node.args[1].shape) - 2
        if count > 2:
            raise UnsupportedOp("product", "more than two batch dimensions")
        return (0, 1, 2)[count]

    @property
    def sizes(self) -> tuple[Expr, Expr, Expr]:
        """M, N, K."""
        a, b = self.node.args
        lead = self.batch_dims
        return numel(a.shape[lead:-1]), b.shape[-1], a.shape[-1]

    @property
    def transposed(self) -> tuple[bool, bool]:
        """Whether A and B are read as they are stored, behind a transpose. Rows of A that run on
        over leading dimensions lie in no one transposed matrix: such an A is copied first."""
        a, b = self.node.args
        return self._single and is_transposed(a), is_transposed(b)

    @property
    def _single(self) -> bool:
        """Whether the rows of A are those of one matrix."""
        return all(size == 1 for size in self.node.args[0].shape[self.batch_dims : -2])

    @property
    def groups(self) -> Groups:
        """Atoms of the batch, of M and of N in the epilogue."""
        assert self.epilogue is not None
        found = epilogue_groups(self.node, self.epilogue)
        assert found is not None
        return found

    @property
    def triangles(self) -> tuple[Triangle, ...]:
        """What operands and result are cut to."""
        a, b = self.node.args
        found = [operand_triangle("a", a) if self._single else None, operand_triangle("b", b)]
        if self.epilogue is not None and self.rotation is None:
            _, rows, cols = self.groups
            found.append(result_triangle(self.node, self.epilogue, rows, cols))
        return tuple(item for item in found if item is not None)

    def share(self, symbols: Symbols) -> float:
        """What part of the multiplications is done, where triangles leave some out."""
        return work_share(self.triangles, *(symbols.hint(size) for size in self.sizes))


def with_product_steps(partition: Partition, hint: Hint) -> Partition:
    """Every product as our own GEMM, with the pointwise region behind it as its epilogue. What one
    region makes of several products is one region each, where all of them are epilogues."""
    partition = _by_products(partition, hint)

    def served(step: LibraryStep, region: Region | None) -> ProductStep | None:
        if step.node.op != "product":
            return None
        if region is None or epilogue_groups(step.node, region) is not None:
            return ProductStep(step.node, region)
        rotation = rotation_of(step.node, region, hint)
        return ProductStep(step.node, region if rotation else None, rotation)

    return with_anchors(partition, served)


def _by_products(partition: Partition, hint: Hint) -> Partition:
    steps: list[Step] = []
    for step in partition.steps:
        parts = _parts(step, partition, hint) if isinstance(step, Region) else []
        steps += parts or [step]
    return Partition(tuple(steps), partition.outputs)


def _parts(region: Region, partition: Partition, hint: Hint) -> list[Region]:
    """A region for each result, where each is an epilogue of a product of its own; else none."""
    if region.reduces or region.scatters or len(region.stores) < 2:
        return []
    found: list[Region] = []
    products: dict[Node, None] = {}
    for store in region.stores:
        needed = _needed(store.node, frozenset(region.nodes))
        try:
            part = analyse([node for node in region.nodes if node in needed], [store], hint)
        except IncompatibleAxes:
            return []
        read = [node for node in part.reads if node.op == "product"]
        if len(read) != 1 or partition.only_region(read[0]) is not region or read[0] in products:
            return []
        if epilogue_groups(read[0], part) is None and rotation_of(read[0], part, hint) is None:
            return []
        products[read[0]] = None
        found.append(part)
    return found


def _needed(value: Node, inside: frozenset[Node]) -> set[Node]:
    """The nodes of a region, `inside`, that a value of it is computed from, itself included."""
    found: set[Node] = set()
    waiting = [value]
    while waiting:
        node = waiting.pop()
        if node not in found and (node in inside or node.kind == "view"):
            found.add(node)
            waiting += node.args
    return found


def with_anchors(
    partition: Partition, served: Callable[[LibraryStep, Region | None], AnchorStep | None]
) -> Partition:
    """The partition with steps of our own for library calls. `served` makes one of a call and the
    region that alone reads its result, if any, which is its epilogue where it fits; None leaves the
    call to the library."""
    fused: dict[Region, AnchorStep] = {}
    single: dict[LibraryStep, AnchorStep] = {}
    for step in partition.steps:
        if isinstance(step, LibraryStep):
            region = partition.only_region(step.node)
            anchor = served(step, None if region in fused else region)
            if anchor is not None and anchor.epilogue is not None:
                fused[anchor.epilogue] = anchor
            elif anchor is not None:
                single[step] = anchor
    taken = {anchor.node for anchor in fused.values()}
    steps: list[Step] = []
    for step in partition.steps:
        if isinstance(step, Region):
            steps.append(fused.get(step, step))  # type: ignore[arg-type]
        elif not isinstance(step, LibraryStep):
            steps.append(step)
        elif step.node not in taken:
            steps.append(single.get(step, step))  # type: ignore[arg-type]
    return Partition(tuple(steps), partition.outputs)


@dataclass
class EpilogueEmitter(Emitter):
    """Writes an epilogue over `acc`, `rows` and `cols` of a GEMM's tile."""

    sums: Mapping[Node, str] = field(default_factory=dict)
    """What the main loop leaves: a product, or a part of one -> the kernel's name of it."""
    groups: Groups = field(default_factory=tuple)
    batch: str = "batch"
    """The batch's index, where it is one a column as that."""
    cols: str = "cols"
    """The indices of columns, or of pairs of them."""

    def __post_init__(self) -> None:
        batch, rows, cols = self.groups
        axes = (Axis((*batch, *rows)),), (Axis(cols),)
        self.region = replace(self.region, rows=axes[0], cols=axes[1])
        super().__post_init__()
        self.sizes.cols_name, self.sizes.rows_name = "N", "M"
        self.sizes.rows = numel([atom.size for atom in rows])
        self.sizes.cols = numel([atom.size for atom in cols]) * (1 if self.takes_all else 2)

    @property
    def takes_all(self) -> bool:
        """Whether it works on all columns, not on pairs of them."""
        return self.cols == "cols"

    @property
    def many_rows(self) -> bool:
        """A tile always has two dimensions."""
        return True

    def address(self, access: Access) -> str:
        """`tile` for what lies like the product, else strides over batch, rows and columns.

        A product of one row has no stride over rows, as a bias has none: `tile` is for what is
        masked as the result is.
        """
        strides = access.resolved()
        plain = self.takes_all and access.offset == 0 and is_plain(self.groups, strides)
        if plain and all(self.touches(access)):
            return "tile"
        offset = [] if access.offset == 0 else [self.sizes.text(access.offset)]
        return " + ".join([*offset, *self.terms(strides)])

    def terms(self, strides: Mapping[Atom, Expr], groups: Groups | None = None) -> Iterator[str]:
        """Batch, rows and columns by their strides."""
        names = (self.batch, "rows[:, None]", f"{self.cols}[None, :]")
        return terms(groups or self.groups, names, strides, self.sizes.text)

    def _iota(self, node: Node) -> Text:
        return Text(" + ".join(self.terms(index_strides(node, self.region.layout))) or "0", 3)

    def mask(self, rows: bool, cols: bool) -> str | None:
        """Masks as the GEMM names them."""
        if rows and cols:
            return "tile_mask" if self.takes_all else "pairs_mask"
        if rows:
            return "row_mask[:, None]"
        return f"{'col' if self.takes_all else 'pair'}_mask[None, :]" if cols else None

    def walks_tile(self, access: Access) -> tuple[bool, bool]:
        """As `touches`: the rows of a tile are those of M."""
        return self.touches(access)

    def touches(self, access: Access) -> tuple[bool, bool]:
        """Whether an access varies over M, and over N."""
        strides = access.resolved()
        rows, cols = (any(strides.get(atom, 0) != 0 for atom in group) for group in self.groups[1:])
        return rows, cols

    def stored_at(self, store: Store, access: Access) -> tuple[str, str | None]:
        """A product of one row, or column, has no stride there, but what is stored is a tile."""
        (rows, cols), place = self.touches(access), self.place(store.node, access)
        if not rows and self.sizes.rows == 1:
            rows, place = True, f"{place} + rows[:, None] * 0"
        if not cols and self.sizes.cols == 1:
            cols, place = True, f"{place} + cols[None, :] * 0"
        return place, self.mask(rows, cols)

    def _load(self, node: Node, access: Access, body: BodyLines) -> Text:
        return Text(self.sums[node]) if node in self.sums else super()._load(node, access, body)


def gemm_facts(anchor: ProductStep, symbols: Symbols, precision: Precision) -> GemmFacts:
    """What the choice of tiles rests on."""
    m, n, k = (symbols.hint(size) for size in anchor.sizes)
    a_transposed, b_transposed = anchor.transposed
    batch = numel(anchor.node.args[1].shape[:-2])
    return GemmFacts(
        m, n, k, symbols.hint(batch), FLOATS[anchor.node.dtype], precision,
        "m" if a_transposed else "k", "k" if b_transposed else "n",
        aligned=(m if a_transposed else k) % 8 == (k if b_transposed else n) % 8 == 0,
    )  # fmt: skip


def is_transposed(operand: Node) -> bool:
    """True for a view that swaps the last two dimensions of what is stored."""
    rank = len(operand.shape)
    swap = (*range(rank - 2), rank - 1, rank - 2)
    return operand.kind == "view" and operand.op == "permute" and operand.attrs == swap


class Scope(NamedTuple):
    """Where a kernel is written: the wrapper's names of what is stored, its sizes, the names that
    are taken, how exact products are, what was split into planes already, and columns of weights
    with the names that they have."""

    buffers: Mapping[Node, str]
    symbols: Symbols
    names: Names
    precision: Precision
    splits: Splits
    columns: dict[str, str]


def scope_of(forward: Forward) -> Scope:
    """That of a forward in the making."""
    return Scope(
        forward.buffers, forward.symbols, forward.names, forward.precision, forward.splits,
        forward.columns,
    )  # fmt: skip


def emit_product_step(
    anchor: ProductStep, schedule: dict[str, int], name: str, out: str, scope: Scope
) -> KernelCode:
    """The product's kernels and launch lines."""
    lines: list[str] = []
    text = product_epilogue(anchor, scope)
    spec = product_spec(anchor, (name, out), text, scope, lines)
    spec = replace(
        spec, triangles=anchor.triangles, out_is_float=anchor.result.dtype in FLOATS
    )  # fmt: skip
    return product_code(spec, schedule, text, scope, lines)


def product_epilogue(anchor: ProductStep, scope: Scope) -> EpilogueText:
    """The lines that follow a product in its tile."""
    if anchor.epilogue is None:
        return EpilogueText()
    if anchor.rotation is not None:
        return _rotated(anchor.rotation, scope)
    read = read_of(anchor.node, anchor.epilogue)
    assert read is not None
    return epilogue_text(anchor.epilogue, {read: "acc"}, anchor.groups, scope)


def _rotated(rotation: Rotation, scope: Scope) -> EpilogueText:
    """The lines of an epilogue that takes the elements in pairs."""
    sums = {node: ("low", "high")[which] for node, which in rotation.reads.items()}
    emitter = epilogue_emitter(rotation.region, sums, rotation.groups, scope, cols="pair_cols")
    emitter.names.taken |= {"heads"}
    lines = rotation.lines_apart()
    low, high = (emitter.value(node, BodyLines(lines, lines)).code for node in rotation.results)
    lines += rotation.lines_together(low, high)
    return finished(emitter, lines, scope, (rotation.whole, rotation.strides))


def product_spec(
    anchor: ProductStep, names: tuple[str, str], text: EpilogueText, scope: Scope, lines: list[str]
) -> GemmSpec:
    """What a product is asked to be; `names`: of the kernel and of its result. Operands that have
    to be copied are copied in `lines`."""
    a, b = (operand_text(item, wanted, scope, lines) for item, wanted in stored_operands(anchor))
    m, n, k = (scope.symbols.wrapper(size) for size in anchor.sizes)
    a_turned, b_turned = anchor.transposed
    return GemmSpec(
        name=names[0], a=a, b=b, out=names[1], m=m, n=n, k=k, dtype=FLOATS[anchor.node.dtype],
        a_layout="m" if a_turned else "k", b_layout="k" if b_turned else "n",
        batch_dims=anchor.batch_dims, precision=scope.precision, epilogue=text.lines,
        extras=text.extras, place=text.place, in_pairs=text.in_pairs,
    )  # fmt: skip


def product_code(
    spec: GemmSpec, schedule: dict[str, int], text: EpilogueText, scope: Scope, lines: list[str]
) -> KernelCode:
    """The kernels and launch lines of `spec`, behind `lines`."""
    made = emit_gemm(spec, schedule, scope.splits)
    used = text.helpers | made.helpers
    return KernelCode(made.source, made.kernels, made.launch, used, tuple(lines))


def stored_operands(anchor: ProductStep) -> list[tuple[Node, str]]:
    """A and B as they are stored, below a transpose that the kernel reads through, and what a copy
    of them would be called."""
    found = zip(anchor.node.args, ("left", "right"), anchor.transposed, strict=True)
    return [(item.args[0] if turned else item, wanted) for item, wanted, turned in found]


def is_range(operand: Node) -> bool:
    """True for rows or columns that follow each other of a matrix that is stored."""
    if operand.op != "slice" or operand.kind != "view" or len(operand.shape) != 2:
        return False
    return operand.args[0].kind == "input" and operand.attrs[2] == 1


def operand_text(stored: Node, wanted: str, scope: Scope, lines: list[str]) -> str:
    """The wrapper's expression of an operand; a view without a name is copied in `lines`, but rows
    or columns of a matrix, and one matrix that stands for a batch of them."""
    text = tensor_text(stored, scope.buffers, scope.symbols)
    if text.isidentifier() or stored.kind != "view":
        return text
    variable = scope.names.unique(wanted)
    if stored.op == "expand" and stored.args[0].shape == stored.shape[-2:]:
        below = tensor_text(stored.args[0], scope.buffers, scope.symbols)
        sizes = ", ".join(scope.symbols.wrapper(size) for size in stored.shape)
        lines.append(f"{variable} = {below}.contiguous().expand({sizes})")
    elif is_range(stored):
        lines.append(f"{variable} = {text}")
    else:
        lines.append(f"{variable} = {text}.contiguous()")
    return variable


@dataclass(frozen=True)
class EpilogueText:
    """Lines from `acc` to what is stored, what they read, and the helpers that they call."""

    lines: tuple[str, ...] = ()
    extras: tuple[tuple[str, str], ...] = ()
    helpers: frozenset[str] = frozenset()
    place: str = TILE
    """Where the elements lie in the result."""
    in_pairs: bool = False
    """Whether they are taken in pairs."""


def epilogue_text(
    region: Region, sums: Mapping[Node, str], groups: Groups, scope: Scope,
    *, batch: str = "batch", reserved: frozenset[str] = frozenset(),
) -> EpilogueText:  # fmt: skip
    """The region's text in a tile whose products go by the names in `sums`; `batch` is its batch,
    and names in `reserved` are taken. What it stores first is left in `acc`, the rest stored."""
    emitter = epilogue_emitter(region, sums, groups, scope)
    emitter.batch = batch
    emitter.names.taken |= reserved
    emitter.own_pointers |= {name for name in reserved if name.endswith("_ptr")}
    lines: list[str] = []
    body = BodyLines(lines, lines)
    value = emitter.value(region.stores[0].node, body)
    further = list(zip(region.stores, region.store_accesses, strict=True))[1:]
    lines += [emitter.store_lines(store, access, body) for store, access in further]
    lines.append(f"acc = {value.code}")
    return finished(emitter, lines, scope, (groups, region.store_accesses[0].resolved()))


def epilogue_emitter(
    region: Region, sums: Mapping[Node, str], groups: Groups, scope: Scope, cols: str = "cols"
) -> EpilogueEmitter:
    """What writes the region's values in a tile whose products go by the names in `sums`."""
    emitter = EpilogueEmitter(
        region, Schedule("tile", 1, 2), scope.symbols, dict(scope.buffers), sums=sums,
        groups=groups, cols=cols,
    )  # fmt: skip
    emitter.names = Names(
        {*sums.values(), "rows", "cols", "tile", "batch", "M", "N", "K", "row_mask", "col_mask",
         "tile_mask", "split", "plane", "tile_m", "tile_n", "half", "halves", "left", "right",
         "part", "begin", "pair_cols", "pair_mask", "pairs_mask", *BOXES}
    )  # fmt: skip
    made = (name for name in BOXES if name.endswith("_ptr"))
    pointers = ("a_ptr", "b_ptr", "out_ptr", "partial_ptr", *made)
    emitter.own_pointers = frozenset((*pointers, *(f"{name}_ptr" for name in sums.values())))
    return emitter


def finished(
    emitter: EpilogueEmitter, lines: Sequence[str], scope: Scope,
    stored: tuple[Groups, Mapping[Atom, Expr]] | None = None,
) -> EpilogueText:  # fmt: skip
    """The text of `lines` that the emitter wrote, with what they read; `stored`: how the result
    lies, over the atoms of batch, rows and columns."""
    in_pairs = not emitter.takes_all  # before the place, which is one of single columns
    place = TILE if stored is None or is_plain(*stored) else _place(emitter, *stored)
    extras = [*emitter.pointers.items()]
    extras += [(name, scope.symbols.wrapper(size)) for name, size in emitter.sizes.extra.items()]
    return EpilogueText(
        tuple(lines), tuple(extras), frozenset(emitter.helpers), place, in_pairs=in_pairs
    )


def _place(emitter: EpilogueEmitter, groups: Groups, strides: Mapping[Atom, Expr]) -> str:
    """Where the elements of a tile lie in a result that lies otherwise than the product."""
    emitter.cols = "cols"
    return " + ".join(emitter.terms(strides, groups))
