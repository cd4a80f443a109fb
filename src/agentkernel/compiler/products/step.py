"""Matrix products served by the own GEMM: which of them, with which epilogue, and their text."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Literal, NamedTuple

import torch

from agentkernel.compiler.axes import Access, Atom, contiguous_strides, leaves
from agentkernel.compiler.drop_in.forward import Forward
from agentkernel.compiler.emit import BodyLines, Emitter, Names, Schedule
from agentkernel.compiler.expressions import Symbols, Text, tensor_text
from agentkernel.compiler.fusion import (
    Axis,
    LibraryStep,
    Partition,
    Region,
    Step,
    _together,
    index_atoms,
    index_strides,
)
from agentkernel.compiler.ir import Expr, Node, UnsupportedOp, numel, roots_of, same
from agentkernel.compiler.kernel import KernelCode
from agentkernel.compiler.products.descriptors import NAMES as BOXES
from agentkernel.compiler.products.gemm import emit_gemm
from agentkernel.compiler.products.planes import Splits
from agentkernel.compiler.products.schedules import FloatType, GemmFacts
from agentkernel.compiler.products.spec import GemmSpec
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
        return self.epilogue.stores[0].node if self.epilogue else self.node


@dataclass(frozen=True, eq=False)
class ProductStep(AnchorStep):
    """A product of two stored matrices with its epilogue."""

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
    def triangles(self) -> tuple[Triangle, ...]:
        """What operands and result are cut to."""
        a, b = self.node.args
        found = [operand_triangle("a", a) if self._single else None, operand_triangle("b", b)]
        if self.epilogue is not None:
            _, rows, cols = groups_of(self.node, self.batch_dims, self.epilogue)
            found.append(result_triangle(self.node, self.epilogue, rows, cols))
        return tuple(item for item in found if item is not None)

    def share(self, symbols: Symbols) -> float:
        """What part of the multiplications is done, where triangles leave some out."""
        return work_share(self.triangles, *(symbols.hint(size) for size in self.sizes))


def with_product_steps(partition: Partition) -> Partition:
    """Every product as our own GEMM, with the pointwise region behind it as its epilogue."""

    def served(step: LibraryStep, region: Region | None) -> ProductStep | None:
        if step.node.op != "product":
            return None
        fits = region is not None and _epilogue(step.node, region)
        return ProductStep(step.node, region if fits else None)

    return with_anchors(partition, served)


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


def _epilogue(product: Node, region: Region) -> bool:
    """True where the region maps each element of the product to one element of one result."""
    lead = len(product.args[1].shape) - 2
    return reads_once(product, region) and element_by_element(
        product, groups_of(product, lead, region), region
    )


def reads_once(value: Node, region: Region) -> bool:
    """True where a region reads `value` at one place for each of its own, and stores one result."""
    if region.reduces or len(region.stores) != 1 or value not in region.layout.loads:
        return False
    walks = sum(access.buffer is value for access in region.layout.loads.values())
    return walks == 1 and value not in region.layout.tables


def element_by_element(value: Node, groups: Sequence[Sequence[Atom]], region: Region) -> bool:
    """True where the only result has an element for each of `value`, and all that is read goes
    along with its batch, rows and columns, whose atoms are `groups`."""
    store = region.stores[0]
    plain = all(map(same, store.strides, contiguous_strides(store.node.shape)))
    same_shape = all(map(same, store.node.shape, value.shape))
    return plain and same_shape and place_by_place(groups, region)


def place_by_place(groups: Sequence[Sequence[Atom]], region: Region) -> bool:
    """True where all that a region reads and stores goes along with batch, rows and columns."""
    if any(node.op == "within" for node in region.layout.dims):
        return False
    accesses = [*region.layout.loads.values(), *region.store_accesses]
    walked = [*(access.resolved() for access in accesses), *index_atoms(region.layout)]
    return all(walks(strides, groups) for strides in walked)


def groups_of(value: Node, lead: int, region: Region) -> tuple[tuple[Atom, ...], ...]:
    """Atoms of the batch, of M and of N."""
    dims = region.layout.dims[value]
    batch = tuple(atom for dim in dims[:lead] for atom in leaves(dim))
    rows = tuple(atom for dim in dims[lead:-1] for atom in leaves(dim))
    return batch, rows, leaves(dims[-1])


def walks(strides: dict[Atom, Expr], groups: Sequence[Sequence[Atom]]) -> bool:
    """True where the atoms of each group are walked together, and no others."""
    if set(strides) - {atom for group in groups for atom in group}:
        return False
    return all(
        _together(outer, inner, strides) for group in groups for outer, inner in pairwise(group)
    )


@dataclass
class EpilogueEmitter(Emitter):
    """Writes an epilogue over `acc`, `rows` and `cols` of a GEMM's tile."""

    sums: Mapping[Node, str] = field(default_factory=dict)
    """What the main loop leaves: a product, or a part of one -> the kernel's name of it."""
    groups: tuple[tuple[Atom, ...], ...] = field(default_factory=tuple)
    batch: str = "batch"
    """The batch's index, where it is one a column as that."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.sizes.cols_name, self.sizes.rows_name = "N", "M"
        self.sizes.rows = numel([atom.size for atom in self.groups[1]])
        self.sizes.cols = numel([atom.size for atom in self.groups[2]])

    @property
    def many_rows(self) -> bool:
        """A tile always has two dimensions."""
        return True

    def address(self, access: Access) -> str:
        """`tile` for what lies like the result, else strides over batch, rows and columns.

        A result of one row has no stride over rows, as a bias has none: `tile` is for what is
        masked as the result is.
        """
        strides = access.resolved()
        store = self.region.store_accesses[0].resolved()
        if access.offset == 0 and strides == store and all(self.touches(access)):
            return "tile"
        terms = [] if access.offset == 0 else [self.sizes.text(access.offset)]
        return " + ".join([*terms, *self._terms(strides)])

    def _terms(self, strides: dict[Atom, Expr]) -> list[str]:
        """Batch, rows and columns by their strides."""
        terms: list[str] = []
        for group, name in zip(
            self.groups, (self.batch, "rows[:, None]", "cols[None, :]"), strict=True
        ):
            step = Axis(tuple(group)).stride(strides) if group else 0
            if step == 1:
                terms.append(name)
            elif step != 0:
                terms.append(f"{name} * {self.sizes.text(step)}")
        return terms

    def _iota(self, node: Node) -> Text:
        return Text(" + ".join(self._terms(index_strides(node, self.region.layout))) or "0", 3)

    def mask(self, rows: bool, cols: bool) -> str | None:
        """Masks as the GEMM names them."""
        if rows and cols:
            return "tile_mask"
        if rows:
            return "row_mask[:, None]"
        return "col_mask[None, :]" if cols else None

    def touches(self, access: Access) -> tuple[bool, bool]:
        """Whether an access varies over M, and over N."""
        strides = access.resolved()
        rows, cols = (any(strides.get(atom, 0) != 0 for atom in group) for group in self.groups[1:])
        return rows, cols

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
    are taken, how exact products are, and what was split into planes already."""

    buffers: Mapping[Node, str]
    symbols: Symbols
    names: Names
    precision: Precision
    splits: Splits


def scope_of(forward: Forward) -> Scope:
    """That of a forward in the making."""
    return Scope(forward.buffers, forward.symbols, forward.names, forward.precision, forward.splits)


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
    groups = groups_of(anchor.node, anchor.batch_dims, anchor.epilogue)
    return epilogue_text(anchor.epilogue, {anchor.node: "acc"}, groups, scope)


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
        extras=text.extras,
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


def operand_text(stored: Node, wanted: str, scope: Scope, lines: list[str]) -> str:
    """The wrapper's expression of an operand; a view without a name is copied in `lines`."""
    text = tensor_text(stored, scope.buffers, scope.symbols)
    if text.isidentifier() or stored.kind != "view":
        return text
    variable = scope.names.unique(wanted)
    lines.append(f"{variable} = {text}.contiguous()")
    return variable


@dataclass(frozen=True)
class EpilogueText:
    """Lines from `acc` to what is stored, what they read, and the helpers that they call."""

    lines: tuple[str, ...] = ()
    extras: tuple[tuple[str, str], ...] = ()
    helpers: frozenset[str] = frozenset()


def epilogue_text(
    region: Region, sums: Mapping[Node, str], groups: tuple[tuple[Atom, ...], ...], scope: Scope,
    *, batch: str = "batch", reserved: frozenset[str] = frozenset(),
) -> EpilogueText:  # fmt: skip
    """The region's text in a tile whose products go by the names in `sums`; `batch` is its batch,
    and names in `reserved` are taken."""
    emitter = epilogue_emitter(region, sums, groups, scope)
    emitter.batch = batch
    emitter.names.taken |= reserved
    emitter.own_pointers |= {name for name in reserved if name.endswith("_ptr")}
    lines: list[str] = []
    value = emitter.value(region.stores[0].node, BodyLines(lines, lines))
    lines.append(f"acc = {value.code}")
    return finished(emitter, lines, scope)


def epilogue_emitter(
    region: Region, sums: Mapping[Node, str], groups: tuple[tuple[Atom, ...], ...], scope: Scope
) -> EpilogueEmitter:
    """What writes the region's values in a tile whose products go by the names in `sums`."""
    emitter = EpilogueEmitter(
        region, Schedule("tile", 1, 2), scope.symbols, dict(scope.buffers), sums=sums,
        groups=groups,
    )  # fmt: skip
    emitter.names = Names(
        {*sums.values(), "rows", "cols", "tile", "batch", "M", "N", "K", "row_mask", "col_mask",
         "tile_mask", "split", "plane", "tile_m", "tile_n", "half", "halves", "left", "right",
         "part", *BOXES}
    )  # fmt: skip
    pointers = ("a_ptr", "b_ptr", "out_ptr", "partial_ptr")
    emitter.own_pointers = frozenset((*pointers, *(f"{name}_ptr" for name in sums.values())))
    return emitter


def finished(emitter: EpilogueEmitter, lines: Sequence[str], scope: Scope) -> EpilogueText:
    """The text of `lines` that the emitter wrote, with what they read."""
    extras = [*emitter.pointers.items()]
    extras += [(name, scope.symbols.wrapper(size)) for name, size in emitter.sizes.extra.items()]
    return EpilogueText(tuple(lines), tuple(extras), frozenset(emitter.helpers))
