"""How does a row that is walked tile by tile gather its statistics in one sweep?"""

from __future__ import annotations

from dataclasses import dataclass

from agentkernel.agents.coders.compiler.emit import Body, Emitter
from agentkernel.agents.coders.compiler.expressions import TRITON_TYPES, Text
from agentkernel.agents.coders.compiler.ir import Node, Uncovered, compute_dtype
from agentkernel.agents.coders.compiler.rows import (
    _fields,
    _operand,
    _stores,
    exp_call,
    fold,
    has_tile_stores,
    identity_of,
    indent,
    masked,
    passes,
)


@dataclass(frozen=True)
class Accumulator:
    """Running values of one reduction, one a lane: `init` before the loop, `step` within."""

    names: tuple[str, ...]
    init: tuple[str, ...]
    kinds: tuple[str, ...]
    """Identity of each name, for lanes that never ran."""


def accumulate(emitter: Emitter, node: Node, body: Body) -> Accumulator:
    """Write the step of a reduction into the loop body and return what it carries."""
    source = node.args[0]
    value = emitter.full_tile(source, emitter.value(source, body))
    shape = "[BLOCK_M, BLOCK_N]" if emitter.many_rows else "[BLOCK_N]"
    if node.op == "moments":
        return _moments(emitter, node, value, body, shape)
    if node.op == "expsum":
        return _expsum(emitter, source, value, body, shape)
    if node.op in ("argmax", "argmin"):
        raise Uncovered(node.op, "the position of an extremum in a row too long for one tile")
    name = emitter.names.unique(f"{node.name}_lanes")
    kind = TRITON_TYPES[_lane_type(node)]
    identity = identity_of(node)
    step = masked(emitter, _operand(node, value), identity)
    joined = {
        "sum": f"{name} + {step}",
        "prod": f"{name} * {step}",
        "any": f"tl.maximum({name}, {step})",
        "all": f"tl.minimum({name}, {step})",
    }.get(node.op) or _extremum(emitter, node, name, step)
    body.here.append(f"{name} = {joined}")
    return Accumulator((name,), (f"{name} = tl.full({shape}, {identity}, {kind})",), (identity,))


def _lane_type(node: Node) -> object:
    import torch

    if node.op in ("any", "all"):
        return torch.int32
    return compute_dtype(node.args[0].dtype) if node.op in ("max", "min") else node.dtype


def _extremum(emitter: Emitter, node: Node, name: str, step: str) -> str:
    if compute_dtype(node.args[0].dtype).is_floating_point:
        helper = f"{node.op}imum"
        emitter.helpers.add(helper)
        return f"{helper}({name}, {step})"
    return f"tl.{node.op}imum({name}, {step})"


def _moments(emitter: Emitter, node: Node, value: Text, body: Body, shape: str) -> Accumulator:
    """Welford's update in every lane: no cancellation, one sweep."""
    unique = emitter.names.unique
    count, mean, squares = unique("lane_count"), unique("lane_mean"), unique("lane_squares")
    step = unique("step")
    ones = "1.0" if emitter.col_mask is None else f"tl.where({emitter.col_mask}, 1.0, 0.0)"
    body.here += [
        f"{count} += {ones}",
        f"{step} = {masked(emitter, f'{value.within(2)} - {mean}', '0.0')}",
        f"{mean} += {step} / tl.maximum({count}, 1.0)",
        f"{squares} += {step} * ({masked(emitter, f'{value.within(2)} - {mean}', '0.0')})",
    ]
    kind = TRITON_TYPES[node.dtype]
    names = (count, mean, squares)
    init = tuple(f"{name} = tl.zeros({shape}, {kind})" for name in names)
    return Accumulator(names, init, ("0.0",) * 3)


def _expsum(emitter: Emitter, source: Node, value: Text, body: Body, shape: str) -> Accumulator:
    """Running maximum and sum in every lane, rescaled when the maximum grows (online softmax)."""
    unique = emitter.names.unique
    top, total, new_top = unique("lane_max"), unique("lane_sum"), unique("new_max")
    seen = masked(emitter, value.code, '-float("inf")')
    infinite = f'{new_top} == -float("inf")'
    old = exp_call(emitter, f"tl.where({infinite}, 0.0, {top} - {new_top})", source)
    new = exp_call(emitter, f"{value.within(2)} - {new_top}", source)
    body.here += [
        f"{new_top} = tl.maximum({top}, {seen}, propagate_nan=tl.PropagateNan.ALL)",
        f"{total} = {total} * {old} + {masked(emitter, f'tl.where({infinite}, 0.0, {new})', '0.0')}",  # noqa: E501
        f"{top} = {new_top}",
    ]
    kind = TRITON_TYPES[compute_dtype(source.dtype)]
    lowest = '-float("inf")'
    init = (
        f"{top} = tl.full({shape}, {lowest}, {kind})",
        f"{total} = tl.zeros({shape}, {kind})",
    )
    return Accumulator((top, total), init, (lowest, "0.0"))


def merge(emitter: Emitter, node: Node, names: tuple[str, ...], body: Body) -> None:
    """Fold the lanes of a finished sweep and bind the reduction's value (or its fields')."""
    source = node.args[0]
    assign = emitter.assign
    if node.op == "moments":
        _merge_moments(emitter, node, names, body)
    elif node.op == "expsum":
        top_field, total_field = _fields(emitter, node)
        keep = ", keep_dims=True" if emitter.many_rows else ""
        top = assign("row_max", fold_max(emitter, names[0], keep), body, tile=False)
        scale = exp_call(emitter, f"{names[0]} - {top.code}", source)
        scale = f'tl.where({names[0]} == -float("inf"), 0.0, {scale})'
        code = fold(emitter, "sum", f"{names[1]} * {scale}", integer=False)
        nothing = f'tl.where({top.code} == -float("inf"), float("nan"), {code})'
        total = assign("row_sum", nothing, body, tile=False)
        emitter.row_values.update({top_field: top, total_field: total})
    else:
        integer = not compute_dtype(source.dtype).is_floating_point
        code = fold(emitter, node.op, names[0], integer=integer)
        emitter.row_values[node] = assign(node.name, code, body, tile=False)


def fold_max(emitter: Emitter, name: str, keep: str) -> str:
    """Maximum over lanes."""
    return f"tl.max({name}, axis={emitter.reduce_axis}{keep})"


def _merge_moments(emitter: Emitter, node: Node, names: tuple[str, ...], body: Body) -> None:
    count, mean, squares = names
    mean_field, squares_field = _fields(emitter, node)
    size = emitter.sizes.text(emitter.region.col_count)
    total = fold(emitter, "sum", f"{mean} * {count}", integer=False)
    row_mean = emitter.assign("mean", f"{total} / {size}", body, tile=False)
    apart = f"{mean} - {row_mean.code}"
    spread = f"{squares} + {count} * ({apart}) * ({apart})"
    code = fold(emitter, "sum", spread, integer=False)
    row_squares = emitter.assign("squares", code, body, tile=False)
    emitter.row_values.update({mean_field: row_mean, squares_field: row_squares})


def column_lines(emitter: Emitter, start: str, stop: str | None = None) -> list[str]:
    """Column indices of a tile, their mask, and the index of each axis."""
    tail = "[None, :]" if emitter.many_rows else ""
    count = emitter.sizes.text(emitter.region.col_count)
    first = "" if start == "0" else f"{start} + "
    lines = [f"col = {first}tl.arange(0, BLOCK_N){tail}"]
    if emitter.col_mask is not None:
        lines.append(f"col_mask = col < {stop or count}")
    return lines + emitter.split_index(emitter.region.cols, "col")


def looped(emitter: Emitter) -> list[str]:
    """The kernel's body with each row walked tile by tile, once for every depth of reductions."""
    lines: list[str] = []
    sweeps = passes(emitter)
    count = emitter.sizes.text(emitter.region.col_count)
    more = has_tile_stores(emitter)
    for position, nodes in enumerate(sweeps):
        again = more or position + 1 < len(sweeps)
        emitter.eviction = "evict_last" if again else "evict_first"
        lines += sweep(emitter, nodes, f"for start in range(0, {count}, BLOCK_N):", "start")
    body = Body([], lines)
    emitter.eviction = "evict_first"
    emitter.tile_values.clear()
    stores = _stores(emitter, body, rows=False, tiles=True)
    if stores:
        lines.append(f"for start in range(0, {count}, BLOCK_N):")
        lines += indent([*column_lines(emitter, "start"), *body.here, *stores])
    emitter.tile_values.clear()
    body = Body(lines, lines)
    lines += _stores(emitter, body, rows=True, tiles=False)
    return lines


def sweep(
    emitter: Emitter, nodes: list[Node], loop: str, start: str, stop: str | None = None
) -> list[str]:
    """One loop over the row that accumulates `nodes`, and the merge of their lanes."""
    lines: list[str] = []
    body = Body([], lines)
    emitter.tile_values.clear()
    carried = [accumulate(emitter, node, body) for node in nodes]
    emitter.tile_values.clear()
    lines += [line for item in carried for line in item.init]
    lines.append(loop)
    lines += indent([*column_lines(emitter, start, stop), *body.here])
    after = Body(lines, lines)
    for node, item in zip(nodes, carried, strict=True):
        merge(emitter, node, item.names, after)
    return lines
