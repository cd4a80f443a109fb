"""Reductions over rows held in registers, with the columns, masks and text that all forms share.

Also here: the column indices of a tile and which of them are in range, and the docstring in which
a kernel names its operations, their dimensions and how it walks them.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch

from agentkernel.compiler.emit import BodyLines, Emitter, Schedule
from agentkernel.compiler.exp_sums import ExpSumsText
from agentkernel.compiler.expressions import TRITON_TYPES, Text
from agentkernel.compiler.fusion import Region
from agentkernel.compiler.ir import Node
from agentkernel.compiler.monoid import MonoidText, fields_of, masked, row_sum
from agentkernel.compiler.scan import ScanText


def column_lines(emitter: Emitter, start: str, width: str = "BLOCK_N") -> list[str]:
    """Column indices of a tile, their mask, and the index of each axis."""
    tail = "[None, :]" if emitter.many_rows else ""
    first = "" if start == "0" else f"{start} + "
    name = emitter.columns
    lines = [f"{name} = {first}tl.arange(0, {width}){tail}"]
    if emitter.col_mask is not None:
        lines.append(f"{emitter.col_mask} = {_mask_text(emitter, width)}")
    return lines + emitter.split_index(emitter.region.cols, name)


def _mask_text(emitter: Emitter, width: str) -> str:
    """Columns in range. Where the length is a free constant, the test folds away if tiles fit."""
    count = emitter.region.col_count
    name = emitter.sizes.text(count)
    within = f"{emitter.columns} < {name}"
    if count.is_number or not emitter.region.reduces:
        return within
    if emitter.schedule.form == "persistent":
        # Not the rest of a division: a row without elements, of which sums are 0, has none either.
        return f"({within}) | ({name} == {width})"
    unit = f"(CHUNKS * {width})" if emitter.schedule.form == "split" else width
    return f"({within}) | ({name} % {unit} == 0)"


WIDTH = 95
NARROW = (torch.int8, torch.uint8, torch.int16)
OPERATION_NAMES = {
    "layer_norm": "LayerNorm", "native_layer_norm": "LayerNorm", "rms_norm": "RMSNorm",
    "group_norm": "GroupNorm", "instance_norm": "InstanceNorm", "batch_norm": "BatchNorm",
    "softmax": "softmax", "log_softmax": "log-softmax", "logsumexp": "log-sum-exp",
    "cross_entropy_loss": "cross-entropy", "nll_loss_nd": "negative log likelihood",
    "nll_loss": "negative log likelihood", "mse_loss": "mean squared error",
    "l1_loss": "mean absolute error", "smooth_l1_loss": "smooth L1 loss",
    "huber_loss": "Huber loss",
    "kl_div": "KL divergence", "binary_cross_entropy": "binary cross-entropy",
    "binary_cross_entropy_with_logits": "binary cross-entropy from logits",
    "cosine_similarity": "cosine similarity", "gelu": "GELU", "relu": "ReLU", "silu": "SiLU",
    "elu": "ELU", "selu": "SELU", "celu": "CELU", "mul": "multiply", "sub": "subtract",
    "div": "divide", "neg": "negate", "linalg_vector_norm": "vector norm", "amax": "maximum",
    "amin": "minimum", "var": "variance", "std": "standard deviation",
    "cumsum": "cumulative sum", "cumprod": "cumulative product", "cummax": "running maximum",
    "cummin": "running minimum", "logcumsumexp": "running log-sum-exp",
}  # fmt: skip
"""ATen's name -> the field's."""
UNNAMED_OPS = frozenset((
    "view", "reshape", "permute", "transpose", "expand", "unsqueeze", "squeeze", "to",
    "_to_copy", "t", "unsafe_view", "flatten", "clone", "contiguous", "alias", "slice",
    "select", "split", "chunk", "unbind",
))  # fmt: skip


def operation_name(origin: str) -> str:
    """What people call an ATen operation."""
    return OPERATION_NAMES.get(origin, origin.strip("_").replace("_", " "))


def kernel_docstring(region: Region, schedule: Schedule) -> list[str]:
    """The kernel's docstring as lines, quotes included."""
    text = f"{_capital(_what(region))}{_where(region)}.{_how(region, schedule)}"
    if len(text) + 6 <= WIDTH:
        return [f'"""{text}"""']
    head, _, rest = text.partition(". ")
    lines = [f'"""{head.removesuffix(".")}.']
    if rest:
        lines += ["", *textwrap.wrap(rest, WIDTH)]
    return [*lines, '"""']


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _what(region: Region) -> str:
    """The operations in order, the reducing ones first among equals: `LayerNorm, GELU, add`."""
    names = _distinct(operation_name(node.origin) for node in region.nodes if _telling(node))
    if len(names) > 6:
        names = [*names[:5], f"{len(names) - 5} more"]
    return ", ".join(names[:-1]) + (" and " if len(names) > 1 else "") + names[-1]


def _distinct(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(names)) or ["copy"]


def _telling(node: Node) -> bool:
    return bool(node.origin) and node.origin not in UNNAMED_OPS and node.op != "copy"


def _where(region: Region) -> str:
    """` over the last dimension`, where all reductions agree; of scans, the dimension they run
    along."""
    along = {(node.attrs[0], len(node.shape)) for node in region.scans}
    if along:
        dim, rank = min(along)
        place = "the last dimension" if dim == rank - 1 else f"dimension {dim}"
        return f" along {place}{' from its end' if region.backwards else ''}"
    found = {
        (node.attrs[0], len(node.args[0].shape)) for node in region.nodes if node.kind == "reduce"
    }
    if len(found) != 1:
        return ""
    axes, rank = next(iter(found))
    assert isinstance(axes, tuple)
    if len(axes) == rank:
        return " over all elements" if rank != 1 else ""
    if axes == (rank - 1,):
        return " over the last dimension"
    if axes == tuple(range(rank - len(axes), rank)):
        return f" over the last {len(axes)} dimensions"
    return f" over dimension{'s' if len(axes) > 1 else ''} {', '.join(map(str, axes))}"


def _how(region: Region, schedule: Schedule) -> str:
    statistics = _statistics(region, schedule)
    rows = "BLOCK_M rows" if schedule.block_rows > 1 else "one row"
    match schedule.form:
        case "flat":
            return ""
        case "tile":
            return ""
        case "persistent":
            return f" A program holds {rows} in registers{statistics}."
        case "looped":
            return f" A program walks {rows} in tiles of BLOCK_N{statistics}."
    return f" CHUNKS programs share a row{statistics}."


def _statistics(region: Region, schedule: Schedule) -> str:
    """How the statistics are gathered, where that takes more than one sum, and scans go on."""
    ops = {node.op for node in region.nodes}
    whole = schedule.form == "persistent"
    parts: list[str] = []
    if "moments" in ops:
        parts.append(
            "the mean, then the variance about it" if whole else "mean and variance in one read"
        )
    if ops & {"expsum", "expsums"}:
        parts.append(
            "the maximum, then the sum of exponentials"
            if whole
            else "a running maximum and a sum that is rescaled when it grows"
        )
    if region.scans and not whole:
        parts.append("each goes on from the tile before")
    return f": {', '.join(parts)}" if parts else ""


def reduction_depth(node: Node, members: frozenset[Node], known: dict[Node, int]) -> int:
    """How many reductions and scans of this kernel lie between the loads and `node`, itself
    included."""
    if node not in known:
        below = max((reduction_depth(arg, members, known) for arg in node.args), default=0)
        inside = node in members or node.root in members
        known[node] = below + (1 if inside and node.kind in ("reduce", "scan") else 0)
        if node.kind in ("view", "field"):
            known[node] = below
        elif not inside:
            known[node] = 0
    return known[node]


def terms(text: MonoidText, code: str) -> list[str]:
    """What the columns of a tile, `code`, contribute to each lane of a reduction."""
    value = masked(text.emitter, text.operand(code), text.neutrals[0])
    return [value, text.emitter.columns][: len(text.monoid.lanes)]


@dataclass(frozen=True)
class RowReduction:
    """Emits the reductions of a kernel whose rows lie in registers entirely."""

    emitter: Emitter

    def emit(self, node: Node, body: BodyLines) -> None:
        """Write the reduction `node` and bind its value (or its fields')."""
        emitter = self.emitter
        if node.op in ("expsum", "expsums"):
            ExpSumsText(emitter, node).hold(body)
            return
        source = node.args[0]
        value = emitter.full_tile(source, emitter.value(source, body))
        if node.op == "moments":
            self._moments(node, source, value, body)
        else:
            text = MonoidText(emitter, node)
            bind_result(text, text.folded(terms(text, value.code)), body)

    def _moments(self, node: Node, source: Node, value: Text, body: BodyLines) -> None:
        emitter = self.emitter
        mean_field, squares_field = fields_of(emitter, node, 2)
        count = emitter.sizes.text(emitter.region.col_count)
        total = row_sum(emitter, masked(emitter, value.code, "0.0"))
        mean = emitter.assign("mean", f"{total} / {count}", body, tile=False)
        centred = emitter.assign("centred", f"{value.within(2)} - {mean.code}", body, tile=True)
        square = f"{centred.code} * {centred.code}"
        total = row_sum(emitter, masked(emitter, square, "0.0"))
        squares = emitter.assign("squares", total, body, tile=False)
        emitter.differences[(source, mean_field)] = centred
        emitter.row_values.update({mean_field: mean, squares_field: squares})


def bind_result(text: MonoidText, folded: list[str], body: BodyLines) -> None:
    """Name the value of a reduction by its finished lanes."""
    emitter, node = text.emitter, text.node
    (code,) = text.results(folded)
    if node.dtype in NARROW:
        # Triton's extrema of few bits have 32, in which no sum would wrap around.
        code = f"({code}).to({TRITON_TYPES[node.dtype]})"
    emitter.row_values[node] = emitter.assign(node.name, code, body, tile=False)


def persistent_body(emitter: Emitter) -> list[str]:
    """The kernel's body with every row of a program in registers: load once, store once."""
    lines: list[str] = []
    body = BodyLines(lines, lines)
    if emitter.schedule.invariant_first:
        for node in row_invariant(emitter):
            emitter.value(node, body)
    reductions = RowReduction(emitter)
    for node in emitter.region.nodes:
        if node.kind == "reduce":
            reductions.emit(node, body)
        elif node.kind == "scan":
            ScanText(emitter, node).write(body, None)
    lines += store_lines(emitter, body, rows=True, tiles=True)
    return lines


def row_invariant(emitter: Emitter) -> Iterable[Node]:
    """Loads that every row shares: weights and biases over columns."""
    for node, access in emitter.region.layout.loads.items():
        rows, cols = emitter.touches(access)
        if cols and not rows:
            yield node


def store_lines(emitter: Emitter, body: BodyLines, *, rows: bool, tiles: bool) -> list[str]:
    """Store lines of row values, tile values, or both."""
    lines: list[str] = []
    pairs = zip(emitter.region.stores, emitter.region.store_accesses, strict=True)
    for store, access in pairs:
        varies = emitter.touches(access)[1] or emitter.region.spans(store.node)[1]
        if (varies and tiles) or (not varies and rows):
            line = emitter.store_lines(store, access, body)
            lines.append(line)
    return lines


def passes(nodes: Sequence[Node]) -> list[list[Node]]:
    """A kernel's reductions by depth: those of one list read one sweep over the row."""
    members = frozenset(nodes)
    known: dict[Node, int] = {}
    levels: dict[int, list[Node]] = {}
    for node in nodes:
        if node.kind == "reduce":
            levels.setdefault(reduction_depth(node, members, known), []).append(node)
    return [levels[level] for level in sorted(levels)]


def has_tile_stores(emitter: Emitter) -> bool:
    """True where some stored value varies over columns."""
    return bool(tile_stores(emitter))


def tile_stores(emitter: Emitter) -> list[Node]:
    """The stored values that vary over columns."""
    pairs = zip(emitter.region.stores, emitter.region.store_accesses, strict=True)
    return [store.node for store, access in pairs if emitter.touches(access)[1]]


def walk(
    emitter: Emitter, length: str, first: str, lines: Sequence[str], *, backwards: bool = False
) -> list[str]:
    """A loop over the tiles of `length` columns from the column `first` on, in the order of the
    scans, or `backwards`."""
    start = f"{first} + start" if first else "start"
    inner = [*column_lines(emitter, start), *lines]
    if not (backwards or emitter.region.backwards):
        return [f"for start in range(0, {length}, BLOCK_N):", *indent(inner)]
    # Not by negative steps: Triton would no longer see that `start` is a multiple of BLOCK_N.
    last = f"start = ({length} - 1) // BLOCK_N * BLOCK_N - past"
    return [f"for past in range(0, {length}, BLOCK_N):", *indent([last, *inner])]


def indent(lines: Sequence[str]) -> list[str]:
    """Four spaces deeper."""
    return [f"    {line}" if line else "" for line in lines]
