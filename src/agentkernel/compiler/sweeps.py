"""How does a row that is walked tile by tile gather its statistics in one sweep?"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from agentkernel.compiler.columns import column_lines
from agentkernel.compiler.emit import BodyLines, Emitter
from agentkernel.compiler.expressions import TRITON_TYPES, Text
from agentkernel.compiler.ir import Node, compute_dtype
from agentkernel.compiler.moments import (
    CentredSums,
    centred,
    finish_centred,
    is_centred,
    lane_count,
    merge_moments,
    origin_lines,
    sample_lines,
    welford,
    zero_lines,
)
from agentkernel.compiler.rows import (
    _fields,
    _operand,
    _stores,
    exp_call,
    first_index,
    fold,
    guards_infinite_maximum,
    has_tile_stores,
    identity_of,
    indent,
    is_infinite_text,
    masked,
    passes,
)

LOWEST = '-float("inf")'


@dataclass(frozen=True)
class Accumulator:
    """Running values of one reduction, one a lane: `init` before the loop, `step` within."""

    names: tuple[str, ...]
    init: tuple[str, ...]


def accumulate(emitter: Emitter, node: Node, body: BodyLines) -> Accumulator:
    """Write the step of a reduction into the loop body and return what it carries."""
    source = node.args[0]
    value = emitter.full_tile(source, emitter.value(source, body))
    shape = "[BLOCK_M, BLOCK_N]" if emitter.many_rows else "[BLOCK_N]"
    if node.op == "moments":
        return _moments(emitter, node, value, body, shape)
    if node.op == "expsum":
        return _expsum(emitter, node, value, body, shape)
    if node.op in ("argmax", "argmin"):
        return _position(emitter, node, value, body, shape)
    name = emitter.names.unique(f"{node.name}_lanes")
    kind = TRITON_TYPES[lane_type(node)]
    identity = identity_of(node)
    step = masked(emitter, _operand(node, value), identity)
    joined = {
        "sum": f"{name} + {step}",
        "prod": f"{name} * {step}",
        "any": f"tl.maximum({name}, {step})",
        "all": f"tl.minimum({name}, {step})",
    }.get(node.op) or _extremum(emitter, node, name, step)
    body.here.append(f"{name} = {joined}")
    return Accumulator((name,), (f"{name} = tl.full({shape}, {identity}, {kind})",))


def _position(
    emitter: Emitter, node: Node, value: Text, body: BodyLines, shape: str
) -> Accumulator:
    """The extremum of every lane and the first column that has it."""
    unique = emitter.names.unique
    best, place, seen, better = unique("best"), unique("place"), unique("seen"), unique("better")
    identity, kind = identity_of(node), TRITON_TYPES[compute_dtype(node.args[0].dtype)]
    sign, helper = (">", "above") if node.op == "argmax" else ("<", "below")
    passes_best = f"{seen} {sign} {best}"
    if compute_dtype(node.args[0].dtype).is_floating_point:
        emitter.helpers.add(helper)
        passes_best = f"{helper}({seen}, {best})"
    body.here += [
        f"{seen} = {masked(emitter, _operand(node, value), identity)}",
        f"{better} = {passes_best}",
        f"{place} = tl.where({better}, col, {place})",
        f"{best} = tl.where({better}, {seen}, {best})",
    ]
    if node.args[0].dtype == torch.bool:
        kind = "tl.int32"
    return Accumulator(
        (best, place),
        (
            f"{best} = tl.full({shape}, {identity}, {kind})",
            f"{place} = tl.zeros({shape}, tl.int32)",
        ),
    )


def lane_type(node: Node) -> torch.dtype:
    """The type that a reduction's lanes accumulate in."""
    if node.op in ("any", "all"):
        return torch.int32
    return compute_dtype(node.args[0].dtype) if node.op in ("max", "min") else node.dtype


def _extremum(emitter: Emitter, node: Node, name: str, step: str) -> str:
    if compute_dtype(node.args[0].dtype).is_floating_point:
        helper = f"{node.op}imum"
        emitter.helpers.add(helper)
        return f"{helper}({name}, {step})"
    return f"tl.{node.op}imum({name}, {step})"


def _moments(emitter: Emitter, node: Node, value: Text, body: BodyLines, shape: str) -> Accumulator:
    if is_centred(emitter):
        lanes = centred(emitter, value, body)
        start = sample_lines(emitter, node, lanes, body.before)
        return Accumulator(lanes, (*start, *zero_lines(node, lanes)))
    names = welford(emitter, node, value, body)
    kind = TRITON_TYPES[node.dtype]
    zeros = [f"{name} = tl.zeros({shape}, {kind})" for name in names[:2]]
    return Accumulator(names, (*origin_lines(emitter, node, names[2], body.before), *zeros))


def _expsum(emitter: Emitter, node: Node, value: Text, body: BodyLines, shape: str) -> Accumulator:
    """One running maximum a row, and a sum in every lane that is rescaled once a tile."""
    source = node.args[0]
    unique = emitter.names.unique
    top, total = unique("row_max"), unique("lane_sum")
    new_top, shift = unique("new_max"), unique("shift")
    seen = masked(emitter, value.code, LOWEST)
    grown = exp_call(emitter, f"{value.within(2)} - {shift}", source)
    scale = exp_call(emitter, f"{top} - {shift}", source)
    left_in = f"{new_top} == {LOWEST}"
    if guards_infinite_maximum(node):
        left_in = is_infinite_text(new_top)
        scale = f"tl.where({left_in}, 1.0, {scale})"
    body.here += [
        f"{new_top} = tl.maximum({top}, {fold_max(emitter, seen)})",
        f"{shift} = tl.where({left_in}, 0.0, {new_top})",
        f"{total} = {total} * {scale} + {masked(emitter, grown, '0.0')}",
        f"{top} = {new_top}",
    ]
    kind = TRITON_TYPES[compute_dtype(source.dtype)]
    start = LOWEST
    if emitter.many_rows:
        start = f"tl.full([BLOCK_M, 1], {LOWEST}, {kind})"
    elif kind != "tl.float32":
        start = f"tl.full([], {LOWEST}, {kind})"
    return Accumulator((top, total), (f"{top} = {start}", f"{total} = tl.zeros({shape}, {kind})"))


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
    elif node.op == "expsum":
        top_field, total_field = _fields(emitter, node)
        code = fold(emitter, "sum", names[1], integer=False)
        total = emitter.assign("row_sum", code, body, tile=False)
        emitter.row_values.update({top_field: Text(names[0]), total_field: total})
    elif node.op in ("argmax", "argmin"):
        code = first_index(emitter, node.op, *names)
        emitter.row_values[node] = emitter.assign(node.name, code, body, tile=False)
    else:
        integer = not compute_dtype(node.args[0].dtype).is_floating_point
        code = fold(emitter, node.op, names[0], integer=integer)
        emitter.row_values[node] = emitter.assign(node.name, code, body, tile=False)


def fold_max(emitter: Emitter, code: str) -> str:
    """Maximum over the lanes of a tile."""
    keep = ", keep_dims=True" if emitter.many_rows else ""
    return f"tl.max({code}, axis={emitter.reduce_axis}{keep})"


def looped_body(emitter: Emitter) -> list[str]:
    """The kernel's body with each row walked tile by tile, once for every depth of reductions."""
    lines: list[str] = []
    sweeps = passes(emitter)
    count = emitter.sizes.text(emitter.region.col_count)
    more = has_tile_stores(emitter)
    for position, nodes in enumerate(sweeps):
        again = more or position + 1 < len(sweeps)
        emitter.eviction = "evict_last" if again else "evict_first"
        lines += sweep(emitter, nodes)
    body = BodyLines([], lines)
    emitter.eviction = "evict_first"
    emitter.tile_values.clear()
    stores = _stores(emitter, body, rows=False, tiles=True)
    if stores:
        lines.append(f"for start in range(0, {count}, BLOCK_N):")
        lines += indent([*column_lines(emitter, "start"), *body.here, *stores])
    emitter.tile_values.clear()
    body = BodyLines(lines, lines)
    lines += _stores(emitter, body, rows=True, tiles=False)
    return lines


def sweep(emitter: Emitter, nodes: list[Node]) -> list[str]:
    """One loop over the row that accumulates `nodes`, and the merge of their lanes."""
    lines: list[str] = []
    body = BodyLines([], lines)
    count = emitter.sizes.text(emitter.region.col_count)
    emitter.tile_values.clear()
    carried = [accumulate(emitter, node, body) for node in nodes]
    emitter.tile_values.clear()
    lines += [line for item in carried for line in item.init]
    lines.append(f"for start in range(0, {count}, BLOCK_N):")
    lines += indent([*column_lines(emitter, "start"), *body.here])
    after = BodyLines(lines, lines)
    for node, item in zip(nodes, carried, strict=True):
        finish_accumulator(emitter, node, item.names, count, after)
    return lines
