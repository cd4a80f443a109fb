"""Pointwise and row kernels: their schedules, the likeliest first, and their place in forward.

Measured reasons are in `SCHEDULES.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import sympy

from agentkernel.compiler.axes import Atom, Layout
from agentkernel.compiler.drop_in.forward import Forward
from agentkernel.compiler.emit import PERSISTENT_LIMIT, Form, Schedule
from agentkernel.compiler.expressions import Symbols
from agentkernel.compiler.fusion import Output, Region, index_strides
from agentkernel.compiler.ir import Expr, Node
from agentkernel.compiler.kernel import KernelRequest, emit_kernel
from agentkernel.compiler.providers.protocol import (
    LAUNCH_US,
    AnySchedule,
    Decision,
    Setting,
    moved_us,
)
from agentkernel.compiler.rows_reductions import reduction_depth
from agentkernel.compiler.rows_sweeps import CACHED_BYTES
from agentkernel.compiler.sampling import Point, drawn, powers
from agentkernel.domain.knowledge import number_in


class Rows:
    """Provider of fused pointwise and reduction kernels."""

    own = True

    def schedules(self, step: Region, setting: Setting) -> Sequence[AnySchedule]:
        """See `region_schedules`."""
        guesses = region_schedules(step, setting.symbols, setting.decision)
        more = sampled_schedules(step, setting.symbols, setting.sampled)
        return list(dict.fromkeys((*guesses, *more)))

    def write(
        self, step: Region, schedule: AnySchedule, forward: Forward, outputs: Sequence[Output]
    ) -> None:
        """Allocate what the region stores and launch its kernel."""
        assert isinstance(schedule, Schedule)
        returned = {output.node for output in outputs}
        for store in step.stores:
            wanted = store.node.name
            if store.node in returned:
                wanted = "output" if len(outputs) == 1 else f"{wanted}_output"
            forward.allocate(store, wanted)
        name = forward.names.unique(f"{_title(step)}_kernel")
        request = KernelRequest(
            step, schedule, name, forward.buffers, forward.symbols, forward.device
        )
        forward.place(emit_kernel(request))
        forward.schedule[name] = schedule.constants

    def work_us(self, step: Region, symbols: Symbols) -> float:
        """What it loads and stores, each buffer once, at the copy bandwidth; of rows that neither
        registers nor the cache hold, and that are made anew, twice what is read of them."""
        buffers = {*step.reads, *(store.node for store in step.stores)}
        return LAUNCH_US + moved_us(buffers, symbols) + moved_us(_again(step, symbols), symbols)

    def pattern(self, step: Region) -> str:
        """Scatter, norm, softmax, reduction or pointwise."""
        ops = {node.op for node in step.nodes if node.kind == "reduce"}
        if step.scatters:
            return "scatter"
        if "moments" in ops:
            return "norm"
        if ops & {"expsum", "expsums"}:
            return "softmax"
        return "reduction" if ops else "pointwise"


def _title(region: Region) -> str:
    """What a kernel is called: its operations' names, the telling ones first."""
    named = [store.node.name for store in region.stores]
    return "_".join(dict.fromkeys(name.lower() for name in named[:2])) or "kernel"


HELD_BY_WARP = 512
"""Longest row that one warp folds with no others: instructions an element are half of those of four
warps (LayerNorm over 200 to 333 elements, cross-compiled for sm_90)."""
HELD_ALONE = 64
"""Longest row that one thread holds, where the rows of a warp are neighbours in memory."""
SPLIT_BELOW_ROWS = 264
"""Fewer rows than this (two for each SM of an H200) leave the GPU half empty: split long rows."""
LEAST_BLOCK = 128
"""Elements of the smallest pointwise program: four warps with an element a thread."""
NARROW_BELOW_ROWS = 64 * 264
"""Rows side by side in memory of which tiles of 64 leave the GPU half empty: tiles of 16 take 64
bytes of each line at a time."""
LOOP_FROM = 4096
"""From this length on, rows of 4-byte elements are faster walked in tiles than held."""
SPLIT_FROM = 16384
"""Shortest row worth splitting."""
STRIDED_TILES = ((32, 32, 4), (64, 64, 8), (16, 256, 8), (32, 64, 4), (64, 32, 4))
"""Rows, columns and warps where what is read and what is written walk different dimensions. The
long one is for results whose rows begin anywhere: what lies between two 32-byte sectors is written
twice (SCHEDULES.md; TorchInductor's fastest is such a tile)."""


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
    few = _few_elements(hint(region.row_count * region.col_count), block)
    if few and not (region.rows and _strided(region)):
        yield few
    if not region.rows:
        yield Schedule("flat", block, num_warps=warps)
        for size, count in ((512, 4), (1024, 4), (2048, 8), (4096, 8), (2048, 4), (1024, 8)):
            yield Schedule("flat", size, num_warps=count)
        return
    cols = power_of_two(hint(region.col_count))
    if _strided(region):
        for rows, width, count in STRIDED_TILES:
            yield Schedule("tile", min(width, cols), rows, num_warps=count)
        return
    shapes = ((block, warps), (1024, 4), (2048, 8), (2048, 4), (4096, 8), (512, 4))
    for index, (elements, count) in enumerate(dict.fromkeys(shapes)):
        width = min(cols, elements)
        yield Schedule("flat", elements, num_warps=count)
        if index:
            yield Schedule("tile", width, max(1, elements // width), num_warps=count)


def _few_elements(count: int, block: int) -> Schedule | None:
    """A block so small that `count` elements are work for each SM, an element a thread where they
    are fewest: a step of a loop over time computes long on few. None where `block` is small
    enough."""
    wanted = max(LEAST_BLOCK, power_of_two(count // SPLIT_BELOW_ROWS + 1) // 2)
    if wanted >= block:
        return None
    return Schedule("flat", wanted, num_warps=min(4, wanted // 32))


def _strided(region: Region) -> bool:
    """True where some load or store walks rows, not columns, with stride 1."""
    layout = region.layout
    walked = [access.resolved() for access in (*layout.loads.values(), *region.store_accesses)]
    gathers = [node for node in layout.dims if node.op == "gather"]
    walked += [steps for node in gathers if (steps := index_steps(node.args[0], layout))]
    for strides in walked:
        across = any(axis.stride(strides) not in (0, 1) for axis in region.cols)
        if across and any(axis.stride(strides) == 1 for axis in region.rows):
            return True
    return False


ANYWHERE = sympy.Symbol("anywhere")
"""How an index grows that is read from memory: not by one from place to place."""


def index_steps(index: Node, layout: Layout) -> dict[Atom, Expr] | None:
    """By how much a computed index grows along each atom; None where it is no sum of multiples."""
    if index.kind == "iota":
        return index_strides(index, layout)
    if index.kind in ("constant", "size"):
        return {}
    if index in layout.loads:
        return dict.fromkeys(layout.loads[index].resolved(), ANYWHERE)
    if index not in layout.members or index.op not in ("add", "sub", "mul", "cast", "within"):
        return None
    if index.op == "within":
        return index_steps(index.args[0], layout)
    found = [index_steps(arg, layout) for arg in index.args]
    if any(item is None for item in found):
        return None
    steps = [item for item in found if item is not None]
    if index.op == "mul":
        fixed = [arg.attrs[0] for arg in index.args if arg.kind in ("constant", "size")]
        if not fixed:
            return None
        factor = sympy.sympify(fixed[0])
        return {atom: step * factor for item in steps for atom, step in item.items()}
    total: dict[Atom, Expr] = {}
    for place, item in enumerate(steps):
        sign = -1 if index.op == "sub" and place else 1
        for atom, step in item.items():
            total[atom] = total.get(atom, sympy.Integer(0)) + sign * step
    return total


def _reductions(region: Region, symbols: Symbols, decision: Decision) -> Iterator[Schedule]:
    """All forms that fit, two schedules of each in turn, the likeliest form first."""
    length, rows = symbols.hint(region.col_count), symbols.hint(region.row_count)
    forms = {
        "persistent": list(_persistent(region, length, decision)),
        "looped": list(_looped(region, rows, length, decision)),
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
    """True where every reduction and scan reads the loads directly, none another's result."""
    members, known = frozenset(region.nodes), {}  # type: ignore[var-annotated]
    ops = [node for node in region.nodes if node.kind in ("reduce", "scan")]
    return all(reduction_depth(node, members, known) == 1 for node in ops)


def _persistent(region: Region, length: int, decision: Decision) -> Iterator[Schedule]:
    block = power_of_two(length)
    if block > 65536:
        return
    if _strided(region):
        # A thread that holds all columns of its rows folds them without its neighbours.
        for width in (128, 32, 64, 256, 16) if block <= HELD_ALONE else (32, 64, 16):
            warps = max(1, width // 32) if block <= HELD_ALONE else warps_for(width * block)
            if width * block <= PERSISTENT_LIMIT:
                yield Schedule("persistent", block, width, warps)
        return
    usual = warps_for(block * rows_for(block) * min(4, _widest(region)) // 4)
    start = _number(decision, "row.num_warps", usual)
    if block <= HELD_BY_WARP and decision("row.num_warps") is None:
        early = _invariant_first(region, decision)[0]
        yield Schedule("persistent", block, min(16, 1024 // block), 1, early)
        if block <= 32:
            yield Schedule("persistent", block, 128, 4, early)
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


def _looped(region: Region, rows: int, length: int, decision: Decision) -> Iterator[Schedule]:
    cap = power_of_two(length)
    if _strided(region):
        tiles = [(32, 64, 4), (16, 128, 4), (64, 64, 8), (128, 32, 8)]
        if rows <= NARROW_BELOW_ROWS:
            tiles = [(256, 16, 8), (128, 16, 4), (128, 32, 8), (64, 16, 2), *tiles[:3]]
        for block, width, count in tiles:
            yield Schedule("looped", min(block, cap), width, count)
        return
    if length <= 1024:
        return
    block = _number(decision, "row.loop_block", 4096)
    count = _number(decision, "row.loop_warps", 16)
    tried = [(block, count), (4096, 16), (4096, 8), (2048, 16), (2048, 8), (1024, 4), (8192, 16)]
    if len(region.reads) > 1:
        # Several rows at once take registers: smaller programs, more of them on an SM.
        tried.insert(1, (2048, 8))
    if length * _widest(region) > CACHED_BYTES:
        # One program an SM: half as many rows want to stay in the L2 cache.
        tried.insert(1, (16384, 32))
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
            else:
                # Shorter rows have a tile a program: one program for all would take them in turn.
                most = power_of_two(length // block + 1) // 2
                yield Schedule("split", block, 1, warps, chunks=max(2, most))


def sampled_schedules(region: Region, symbols: Symbols, most: int) -> list[Schedule]:
    """At most `most` schedules drawn from each form's space in equal shares."""
    if most <= 0:
        return []
    length, rows = symbols.hint(region.col_count), symbols.hint(region.row_count)
    make = _reduction_spaces if region.reduces else _pointwise_spaces
    spaces = list(make(region, rows, length))
    found = [
        Schedule(form, **point)  # type: ignore[arg-type]
        for form, axes, most_elements in spaces
        for point in drawn(axes, _thread_holds(most_elements), -(-most // len(spaces)))
    ]
    return found[:most]


Space = tuple[Form, dict[str, list[int]], int]
"""A form, the values of each constant, and how many elements a program may hold."""
WARPS = powers(1, 32)
LEAST_ELEMENTS = 64
"""Elements of the smallest tile worth a program."""


def _thread_holds(most_elements: int) -> Callable[[Point], bool]:
    """Whether a tile is neither too large for the registers nor too small for its threads."""

    def fits(point: Point) -> bool:
        elements = point["block_cols"] * point.get("block_rows", 1)
        threads = 32 * point["num_warps"]
        return LEAST_ELEMENTS <= elements <= most_elements and threads <= elements <= 128 * threads

    return fits


def _pointwise_spaces(region: Region, rows: int, length: int) -> Iterator[Space]:
    width = power_of_two(length)
    if not region.rows or not _strided(region):
        yield "flat", {"block_cols": powers(128, 8192), "num_warps": WARPS}, 8192
    if region.rows:
        cols = powers(16, 512) if _strided(region) else powers(min(64, width), min(width, 8192))
        high = powers(1, min(256, power_of_two(rows)))
        yield "tile", {"block_cols": cols, "block_rows": high, "num_warps": WARPS}, 8192


def _reduction_spaces(region: Region, rows: int, length: int) -> Iterator[Space]:
    width = power_of_two(length)
    early = [int(item) for item in _invariant_first(region, lambda _: None)]
    common = {"num_warps": WARPS, "invariant_first": early}
    if width <= PERSISTENT_LIMIT:
        high = powers(1, min(256, power_of_two(rows)))
        yield "persistent", {"block_cols": [width], "block_rows": high, **common}, PERSISTENT_LIMIT
    if _strided(region):
        axes = {"block_cols": powers(16, min(256, width)), "block_rows": powers(16, 128)}
        yield "looped", {**axes, "num_warps": WARPS}, 8192
    elif length > 1024:
        yield "looped", {"block_cols": powers(512, min(16384, width // 2)), **common}, 16384
    if splittable(region) and not _strided(region) and length >= SPLIT_FROM:
        chunks = [count for count in powers(2, 1024) if length // count >= 1024]
        axes = {"block_cols": powers(1024, 8192), "chunks": chunks}
        yield "split", {**axes, "num_warps": powers(4, 16)}, 8192


def _again(region: Region, symbols: Symbols) -> list[Node]:
    """What is read once for reductions, and once more for what is made of them."""
    length = symbols.hint(region.col_count)
    held = length <= PERSISTENT_LIMIT or length * _widest(region) <= CACHED_BYTES
    if not region.reduces or held or not any(region.spans(x.node)[1] for x in region.stores):
        return []
    loads = region.layout.loads.items()
    return list({access.buffer for node, access in loads if region.spans(node)[1]})


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
