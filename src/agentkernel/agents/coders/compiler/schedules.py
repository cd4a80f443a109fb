"""Which schedules of a region are worth trying, the sensible ones first?"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from agentkernel.agents.coders.compiler.ir import Expr
from agentkernel.agents.coders.compiler.region import Region
from agentkernel.agents.coders.compiler.schedule import Schedule
from agentkernel.agents.coders.compiler.sizes import Symbols

PERSISTENT_LIMIT = 32768
"""Longest row (elements) that is held in registers by default."""
TILE_ELEMENTS = 4096
"""Elements that a program holds where rows are short."""
SPLIT_BELOW_ROWS = 264
"""Fewer rows than this (two for each SM of an H200) leave the GPU half empty: split long rows."""
SPLIT_FROM = 16384
"""Shortest row worth splitting."""
Decision = Callable[[str], str | None]


def schedules(
    region: Region, symbols: Symbols, strategy: str, decision: Decision
) -> list[Schedule]:
    """Schedules for one region, best guess first, without repeats; at least one."""
    if not region.reduces:
        found = list(_pointwise(region, symbols, decision))
    else:
        found = list(_reductions(region, symbols, strategy, decision))
    return list(dict.fromkeys(found))


def _number(decision: Decision, key: str, default: int) -> int:
    text = decision(key)
    return int(text) if text is not None and text.lstrip("-").isdigit() else default


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
    for elements, count in ((block, warps), (1024, 4), (2048, 4), (2048, 8), (4096, 8), (512, 4)):
        width = min(cols, elements)
        yield Schedule("tile", width, max(1, elements // width), num_warps=count)


def _strided(region: Region) -> bool:
    """True where some load or store walks rows, not columns, with stride 1."""
    for access in (*region.layout.loads.values(), *region.store_accesses):
        strides = access.resolved()
        across = any(axis.stride(strides) not in (0, 1) for axis in region.cols)
        if across and any(axis.stride(strides) == 1 for axis in region.rows):
            return True
    return False


def _reductions(
    region: Region, symbols: Symbols, strategy: str, decision: Decision
) -> Iterator[Schedule]:
    length = symbols.hint(region.col_count)
    rows = symbols.hint(region.row_count)
    limit = _number(decision, "row.persistent_limit", PERSISTENT_LIMIT)
    wide = any(node.op in ("argmax", "argmin") for node in region.nodes)
    order = ["persistent", "looped", "split"]
    if length > limit:
        order = ["looped", "split", "persistent"]
    if rows < SPLIT_BELOW_ROWS and length >= SPLIT_FROM and splittable(region):
        order = ["split", "looped", "persistent"]
    if strategy in order:
        order = [strategy, *(item for item in order if item != strategy)]
    if wide:
        order = ["persistent"]
    makers = {"persistent": _persistent, "looped": _looped, "split": _split}
    for form in order:
        yield from makers[form](region, rows, length, decision, symbols)


def splittable(region: Region) -> bool:
    """True where every reduction reads the loads directly and none needs another's result."""
    from agentkernel.agents.coders.compiler.rows import depth

    members, known = frozenset(region.nodes), {}  # type: ignore[var-annotated]
    ops = [node for node in region.nodes if node.kind == "reduce"]
    return all(depth(node, members, known) == 1 for node in ops) and not any(
        node.op in ("argmax", "argmin") for node in ops
    )


def _persistent(
    region: Region, rows: int, length: int, decision: Decision, symbols: Symbols
) -> Iterator[Schedule]:
    block = power_of_two(length)
    if block > 65536:
        return
    if _strided(region):
        for width in (32, 64, 16):
            if width * block <= 65536:
                yield Schedule("persistent", block, width, warps_for(width * block))
        return
    default = _number(decision, "row.num_warps", warps_for(block * rows_for(block)))
    first = decision("row.invariant_first") == "1" if decision("row.invariant_first") else (
        _widest(region) >= 4
    )  # fmt: skip
    yield Schedule("persistent", block, rows_for(block), default, invariant_first=first)
    for count in {default, warps_for(block), 4, 8, 16}:
        for early in (first, not first):
            if 32 <= block * rows_for(block) // count <= 32 * 128:
                yield Schedule("persistent", block, rows_for(block), count, invariant_first=early)
    if block <= 2048:
        for many in (1, 2, 4, 8):
            yield Schedule(
                "persistent", block, many, warps_for(block * many), invariant_first=first
            )


def _looped(
    region: Region, rows: int, length: int, decision: Decision, symbols: Symbols
) -> Iterator[Schedule]:
    cap = power_of_two(length)
    if _strided(region):
        for block, width, count in ((32, 64, 4), (16, 128, 4), (64, 64, 8), (128, 32, 8)):
            yield Schedule("looped", min(block, cap), width, count)
        return
    block = _number(decision, "row.loop_block", 4096)
    count = _number(decision, "row.num_warps", 8)
    yield Schedule("looped", min(block, cap), 1, count)
    for size, warps in ((4096, 8), (2048, 8), (2048, 16), (4096, 16), (8192, 16), (2048, 4)):
        if size <= cap:
            yield Schedule("looped", size, 1, warps)


def _split(
    region: Region, rows: int, length: int, decision: Decision, symbols: Symbols
) -> Iterator[Schedule]:
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
