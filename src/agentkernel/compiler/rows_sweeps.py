"""Reductions over rows that are walked tile by tile, their statistics gathered in one sweep.

Mean and variance are found without cancellation: sums about a centre near the row's values where
a program has one row, Welford's update in every lane where it has several rows or a chunk of one.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

from agentkernel.compiler.emit import BodyLines, Emitter
from agentkernel.compiler.exp_sums import ExpSumsText
from agentkernel.compiler.expressions import TRITON_TYPES, Text
from agentkernel.compiler.ir import Node
from agentkernel.compiler.monoid import Accumulator, MonoidText, fields_of, masked, row_sum
from agentkernel.compiler.rows_reductions import (
    bind_result,
    column_lines,
    has_tile_stores,
    indent,
    passes,
    store_lines,
    terms,
    tile_stores,
    walk,
)
from agentkernel.compiler.scan import carried_scans

SAMPLE = 32
"""Columns that say where the centre of the sums is: one warp adds them up without a barrier."""
SMALL = 4
"""A mean of the sample is small where its square is below the variance over this: a row whose mean
is its spread (an exponential distribution) must rarely seem so, since it is swept twice then."""


CACHED_BYTES = 150_000
"""Of a row that is still in the L2 cache of an H100 or H200 when it is read again: 40 of its 50 to
60 MB, shared by two programs on each of 132 SMs."""


class CentredSums(NamedTuple):
    """Variables of the sums about a centre: one a row, then one a lane."""

    centre: str
    total: str
    squares: str
    apart: str


def is_centred(emitter: Emitter) -> bool:
    """True where a program sums about a centre; where it holds several rows, or a chunk of one,
    Welford's update does."""
    return emitter.schedule.form == "looped" and not emitter.many_rows


def welford(emitter: Emitter, node: Node, value: Text, body: BodyLines) -> tuple[str, str, str]:
    """Write Welford's update of every lane, about an origin of the row's own; the names of its
    mean, its sum of squares and the origin.

    Lanes and chunks are merged by the differences of their means, which are off by an ulp of what
    is averaged: where the mean is 10^4 times the spread, by a thousandth of the spread. Means of
    x - x[0] are as small as the spread is.
    """
    unique = emitter.names.unique
    mean, squares, step = unique("lane_mean"), unique("lane_squares"), unique("step")
    origin, apart = unique("origin"), unique("apart")
    tile = "start // BLOCK_N + 1"
    share = f"{step} * (1.0 / ({tile}))"
    if node.dtype == torch.float64:
        share = f"{step} / ({tile})"
    body.here += [
        f"{apart} = {value.within(2)} - {origin}",
        f"{step} = {masked(emitter, f'{apart} - {mean}', '0.0')}",
        f"{mean} += {share}",
        f"{squares} += {step} * ({apart} - {mean})",
    ]
    return mean, squares, origin


def origin_lines(emitter: Emitter, node: Node, origin: str, before: list[str]) -> list[str]:
    """Lines that bind the row's first element; 0 where that is no finite number, which would make
    the mean NaN where it is infinite."""
    lines: list[str] = []
    first = _near(emitter, node, 1, "first", BodyLines(lines, before))
    value = row_sum(emitter, first)
    lines.append(f"{origin} = {value}")
    return [*lines, f'{origin} = tl.where(tl.abs({origin}) < float("inf"), {origin}, 0.0)']


def _near(emitter: Emitter, node: Node, width: int, name: str, body: BodyLines) -> str:
    """The name of the first `width` columns of what `node` reduces."""
    source = node.args[0]
    with emitter.on_columns(name, width):
        body.here.extend(column_lines(emitter, "0", str(width)))
        value = emitter.value(source, body)
        if not emitter.region.spans(source)[1]:
            row = f"{'1, ' if emitter.many_rows else ''}{width}"
            value = Text(f"{value.within(2)} + tl.zeros([{row}], {TRITON_TYPES[node.dtype]})", 3)
        bound = emitter.names.unique(name)
        body.here.append(f"{bound} = {masked(emitter, value.code, '0.0')}")
    return bound


def centred(emitter: Emitter, value: Text, body: BodyLines) -> CentredSums:
    """Write the step of the sums of x - c and of its square, c the mean of the first columns, 0
    where that is small.

    The variance's error grows by 1 + (c - mean)^2 / variance: at most twice for such a sample, and
    `finish_centred` repeats the sweep where it would more than double. The mean is off by an ulp of
    c, which is why small means are not summed about a c of their own. There is no division and
    no reduction that waits for another, as in Welford's update and its merge: 1.5% of a LayerNorm
    over 8192 fp32 columns on an H200.
    """
    unique = emitter.names.unique
    lanes = CentredSums(
        unique("centre"), unique("lane_sum"), unique("lane_squares"), unique("apart")
    )
    body.here += _step(emitter, lanes, value)
    return lanes


def _step(emitter: Emitter, lanes: CentredSums, value: Text) -> list[str]:
    apart = masked(emitter, f"{value.within(2)} - {lanes.centre}", "0.0")
    return [
        f"{lanes.apart} = {apart}",
        f"{lanes.total} += {lanes.apart}",
        f"{lanes.squares} += {lanes.apart} * {lanes.apart}",
    ]


def sample_lines(emitter: Emitter, node: Node, lanes: CentredSums, before: list[str]) -> list[str]:
    """Lines that bind the centre by the row's first columns."""
    lines: list[str] = []
    near = _near(emitter, node, SAMPLE, "near", BodyLines(lines, before))
    total = row_sum(emitter, near)
    squares = row_sum(emitter, f"{near} * {near}")
    lines.append(f"{lanes.centre} = {total} / {SAMPLE}")
    small = f"{SAMPLE * (1 + SMALL)} * {lanes.centre} * {lanes.centre} <= {squares}"
    return [*lines, f"{lanes.centre} = tl.where({small}, 0.0, {lanes.centre})"]


def zero_lines(node: Node, lanes: CentredSums) -> list[str]:
    """Lines that set the sums to zero."""
    kind = TRITON_TYPES[node.dtype]
    return [f"{name} = tl.zeros([BLOCK_N], {kind})" for name in (lanes.total, lanes.squares)]


def finish_centred(emitter: Emitter, node: Node, lanes: CentredSums, lines: list[str]) -> None:
    """Fold the sums, sweep again about the mean where the centre was far off, bind the fields.

    The test is negated because it must hold of NaN: squares about a far centre may overflow where
    those about the mean do not, and inf - inf is no reason to lose a finite row.
    """
    unique = emitter.names.unique
    shift, squares = unique("shift"), unique("squares")
    count = emitter.sizes.text(emitter.region.col_count)
    sums, square_sums = (row_sum(emitter, name) for name in (lanes.total, lanes.squares))
    folded = [
        f"{shift} = {sums} / {count}",
        f"{squares} = {square_sums} - {count} * {shift} * {shift}",
    ]
    emitter.tile_values.clear()
    again = BodyLines([], lines)
    value = emitter.full_tile(node.args[0], emitter.value(node.args[0], again))
    again.here += _step(emitter, lanes, value)
    emitter.tile_values.clear()
    lines += [
        *folded,
        f"if not ({shift} * {shift} * {count} <= {squares}):",
        *indent([
            "# The first columns say little about this row: once more, about its mean.",
            f"{lanes.centre} += {shift}",
            *zero_lines(node, lanes),
            f"for start in range(0, {count}, BLOCK_N):",
            *indent([*column_lines(emitter, "start"), *again.here]),
            *folded,
        ]),
    ]  # fmt: skip
    mean_field, squares_field = fields_of(emitter, node, 2)
    body = BodyLines(lines, lines)
    mean = emitter.assign("mean", f"{lanes.centre} + {shift}", body, tile=False)
    emitter.row_values.update({mean_field: mean, squares_field: Text(squares)})


def lane_count(emitter: Emitter, node: Node, length: str, body: BodyLines) -> str:
    """How many of the `length` columns each lane has seen."""
    if emitter.col_mask is None:
        return f"({length} // BLOCK_N)"
    lane = f"tl.arange(0, BLOCK_N){'[None, :]' if emitter.many_rows else ''}"
    name = emitter.names.unique("lane_count")
    code = f"(({length} - {lane} + BLOCK_N - 1) // BLOCK_N).to({TRITON_TYPES[node.dtype]})"
    body.before.append(f"{name} = {code}")
    return name


def merge_moments(
    emitter: Emitter, node: Node, names: tuple[str, str, str], origin: str, body: BodyLines
) -> None:
    """Counts, means about `origin` and sums of squares of parts -> those of the row (Chan, Golub
    and LeVeque 1979)."""
    count, mean, squares = names
    mean_field, squares_field = fields_of(emitter, node, 2)
    size = emitter.sizes.text(emitter.region.col_count)
    total = row_sum(emitter, f"{mean} * {count}")
    shift = emitter.assign("shift", f"{total} / {size}", body, tile=False)
    apart = emitter.names.unique("apart")
    body.before.append(f"{apart} = {mean} - {shift.code}")
    code = row_sum(emitter, f"{squares} + {count} * {apart} * {apart}")
    row_squares = emitter.assign("squares", code, body, tile=False)
    row_mean = emitter.assign("mean", f"{origin} + {shift.within(1)}", body, tile=False)
    emitter.row_values.update({mean_field: row_mean, squares_field: row_squares})


def accumulate(emitter: Emitter, node: Node, body: BodyLines) -> Accumulator:
    """Write the step of a reduction into the loop body and return what it carries."""
    if node.op in ("expsum", "expsums"):
        return ExpSumsText(emitter, node).step(body)
    source = node.args[0]
    value = emitter.full_tile(source, emitter.value(source, body))
    shape = "[BLOCK_M, BLOCK_N]" if emitter.many_rows else "[BLOCK_N]"
    if node.op == "moments":
        return _moments(emitter, node, value, body, shape)
    text = MonoidText(emitter, node)
    names = [emitter.names.unique(name) for name in text.labels(f"{node.name}_lanes")]
    joined = text.joined(names, terms(text, value.code))
    body.here.append(f"{', '.join(names)} = {joined}")
    lanes = zip(names, text.neutrals, text.kinds, strict=True)
    init = [f"{name} = tl.full({shape}, {neutral}, {kind})" for name, neutral, kind in lanes]
    return Accumulator(tuple(names), tuple(init))


def _moments(emitter: Emitter, node: Node, value: Text, body: BodyLines, shape: str) -> Accumulator:
    if is_centred(emitter):
        lanes = centred(emitter, value, body)
        start = sample_lines(emitter, node, lanes, body.before)
        return Accumulator(lanes, (*start, *zero_lines(node, lanes)))
    names = welford(emitter, node, value, body)
    kind = TRITON_TYPES[node.dtype]
    zeros = [f"{name} = tl.zeros({shape}, {kind})" for name in names[:2]]
    return Accumulator(names, (*origin_lines(emitter, node, names[2], body.before), *zeros))


def finish_accumulator(
    emitter: Emitter, node: Node, names: tuple[str, ...], length: str, body: BodyLines
) -> None:
    """Fold the lanes of a finished sweep over `length` columns and bind the value (or fields)."""
    if node.op == "moments" and is_centred(emitter):
        finish_centred(emitter, node, CentredSums(*names), body.before)
    elif node.op == "moments":
        mean, squares, origin = names
        count = lane_count(emitter, node, length, body)
        merge_moments(emitter, node, (count, mean, squares), origin, body)
    elif node.op in ("expsum", "expsums"):
        ExpSumsText(emitter, node).finish(names, body)
    else:
        text = MonoidText(emitter, node)
        bind_result(text, text.folded(names), body)


def looped_body(emitter: Emitter) -> list[str]:
    """The kernel's body with each row walked tile by tile, once for every depth of reductions."""
    lines: list[str] = []
    sweeps = passes(emitter.region.nodes)
    count = emitter.sizes.text(emitter.region.col_count)
    more = has_tile_stores(emitter)
    for position, nodes in enumerate(sweeps):
        again = more or position + 1 < len(sweeps)
        emitter.eviction = "evict_last" if again else "evict_first"
        lines += sweep(emitter, nodes)
    body = BodyLines([], lines)
    emitter.eviction = "evict_first"
    emitter.tile_values.clear()
    begin = carried_scans(emitter, tile_stores(emitter), body)
    stores = store_lines(emitter, body, rows=False, tiles=True)
    if stores:
        back = outgrows_cache(emitter) and not emitter.region.scans
        lines += [*begin, *walk(emitter, count, "", [*body.here, *stores], backwards=back)]
    emitter.tile_values.clear()
    body = BodyLines(lines, lines)
    lines += store_lines(emitter, body, rows=True, tiles=False)
    return lines


def outgrows_cache(emitter: Emitter) -> bool:
    """Whether rows are too long for the last sweep to find all of them in the L2 cache: it goes
    backwards then, and finds what the one before has read last."""
    region = emitter.region
    loads = [access for access in region.layout.loads.values() if all(emitter.touches(access))]
    held = sum(access.buffer.dtype.itemsize for access in loads)
    return held * emitter.symbols.hint(region.col_count) > CACHED_BYTES


def sweep(emitter: Emitter, nodes: list[Node]) -> list[str]:
    """One loop over the row that accumulates `nodes`, and the merge of their lanes."""
    lines: list[str] = []
    body = BodyLines([], lines)
    count = emitter.sizes.text(emitter.region.col_count)
    emitter.tile_values.clear()
    begin = carried_scans(emitter, nodes, body)
    carried = [accumulate(emitter, node, body) for node in nodes]
    emitter.tile_values.clear()
    lines += [*begin, *(line for item in carried for line in item.init)]
    lines += walk(emitter, count, "", body.here)
    after = BodyLines(lines, lines)
    for node, item in zip(nodes, carried, strict=True):
        finish_accumulator(emitter, node, item.names, count, after)
    return lines
