"""How do several programs share one long row? Statistics a chunk, then a kernel that ends it."""

from __future__ import annotations

from agentkernel.compiler.columns import column_lines
from agentkernel.compiler.describe import kernel_docstring
from agentkernel.compiler.emit import INT32_LIMIT, BodyLines, Emitter, needs_int64
from agentkernel.compiler.expressions import TRITON_TYPES
from agentkernel.compiler.ir import Node, compute_dtype
from agentkernel.compiler.kernel import (
    KernelCode,
    KernelRequest,
    function_text,
    launch_line,
    new_emitter,
    parameters,
)
from agentkernel.compiler.moments import lane_count, merge_moments
from agentkernel.compiler.rows import (
    _fields,
    _stores,
    exp_call,
    fold,
    guards_infinite_maximum,
    has_tile_stores,
    indent,
    is_infinite_text,
)
from agentkernel.compiler.sweeps import accumulate, finish_accumulator, fold_max, lane_type

TORCH_NAMES = {value: str(key) for key, value in TRITON_TYPES.items()}


def emit_split(request: KernelRequest) -> KernelCode:
    """Two kernels: every program folds one chunk of a row; then the chunks are folded."""
    partial, end = new_emitter(request), new_emitter(request)
    nodes = [node for node in request.region.nodes if node.kind == "reduce"]
    rows = "1"
    if request.region.rows:
        rows = request.symbols.wrapper(request.region.row_count)
    first, fields = _partial_body(partial, nodes)
    second = _finish_body(end, nodes, fields)
    names = (f"{request.name}_partials", request.name)
    pointers = [f"{name}_ptr" for name in fields]
    doc = kernel_docstring(request.region, request.schedule)
    last = ['"""Fold the chunks\' statistics of each row, then finish it."""']
    sources = [
        function_text(name, parameters(emitter, *pointers), text, lines, asserts=emitter.asserts)
        for name, emitter, text, lines in (
            (names[0], partial, doc, first),
            (names[1], end, last, second),
        )
    ]
    chunks = request.schedule.chunks
    wide = f"({rows}, {chunks})"
    grids = (wide, wide if has_tile_stores(end) else f"({rows},)")
    launch = tuple(
        launch_line(emitter, name, grid, *fields)
        for emitter, name, grid in zip((partial, end), names, grids, strict=True)
    )
    workspace = tuple(
        f"{name} = torch.empty(({rows}, {chunks}), device={request.anchor}, dtype={dtype})"
        for name, dtype in fields.items()
    )
    helpers = frozenset(partial.helpers | end.helpers)
    return KernelCode("\n\n\n".join(sources), names, launch, helpers, workspace)


def _chunk_lines(emitter: Emitter) -> list[str]:
    """The program's row and the length of a chunk (a whole number of tiles)."""
    count = emitter.sizes.text(emitter.region.col_count)
    return [
        "row = tl.program_id(0).to(tl.int64)",
        *emitter.split_index(emitter.region.rows, "row"),
        f"chunk_size: tl.constexpr = tl.cdiv({count}, CHUNKS * BLOCK_N) * BLOCK_N",
    ]


def _chunk(emitter: Emitter) -> str:
    """The program's chunk, in as many bits as the columns before it need."""
    count = emitter.region.col_count
    if count.is_number:
        wide = ".to(tl.int64)" if needs_int64(count) else ""
    else:
        wide = f".to(tl.int64 if {emitter.sizes.text(count)} > {INT32_LIMIT} else tl.int32)"
    return f"chunk = tl.program_id(1){wide}"


def _walk(emitter: Emitter, lines: list[str]) -> list[str]:
    """A loop over the tiles of the program's chunk."""
    return [
        "for start in range(0, chunk_size, BLOCK_N):",
        *indent([*column_lines(emitter, "chunk * chunk_size + start"), *lines]),
    ]


def _partial_body(emitter: Emitter, nodes: list[Node]) -> tuple[list[str], dict[str, str]]:
    """The first kernel's body, and its workspaces: name -> torch dtype."""
    lines = [*_chunk_lines(emitter), _chunk(emitter)]
    body = BodyLines([], lines)
    emitter.eviction = "evict_last" if has_tile_stores(emitter) else "evict_first"
    carried = [accumulate(emitter, node, body) for node in nodes]
    emitter.tile_values.clear()
    lines += [line for item in carried for line in item.init]
    lines += _walk(emitter, body.here)
    fields: dict[str, str] = {}
    for node, item in zip(nodes, carried, strict=True):
        for label, code, kind in _parts(emitter, node, item.names, lines):
            name = _unused(f"{label}_partials", fields)
            fields[name] = TORCH_NAMES[kind]
            lines.append(f"tl.store({name}_ptr + row * CHUNKS + chunk, {code})")
    return lines, fields


def _unused(name: str, known: dict[str, str]) -> str:
    count, result = 0, name
    while result in known:
        count += 1
        result = f"{name}_{count}"
    return result


def _valid(emitter: Emitter, chunk: str) -> str:
    """How many columns of the row fall into a chunk."""
    if emitter.col_mask is None:
        return "chunk_size"
    count = emitter.sizes.text(emitter.region.col_count)
    return f"tl.minimum(tl.maximum({count} - {chunk} * chunk_size, 0), chunk_size)"


def _parts(
    emitter: Emitter, node: Node, names: tuple[str, ...], lines: list[str]
) -> list[tuple[str, str, str]]:
    """What a chunk leaves behind of a reduction: label, code and Triton type."""
    kind = TRITON_TYPES[compute_dtype(node.args[0].dtype)]
    if node.op == "moments":
        return _moment_parts(emitter, node, names, lines)
    if node.op == "expsum":
        return [
            ("max", names[0], kind),
            ("sum", fold(emitter, "sum", names[1], integer=False), kind),
        ]
    integer = not compute_dtype(node.args[0].dtype).is_floating_point
    code = fold(emitter, node.op, names[0], integer=integer)
    if node.op in ("any", "all"):
        code = f"({code}).to(tl.int32)"
    return [(node.name, code, TRITON_TYPES[lane_type(node)])]


def _moment_parts(
    emitter: Emitter, node: Node, names: tuple[str, ...], lines: list[str]
) -> list[tuple[str, str, str]]:
    unique = emitter.names.unique
    kind = TRITON_TYPES[node.dtype]
    valid, chunk_mean, apart = unique("valid"), unique("chunk_mean"), unique("apart")
    lines.append(f"{valid} = {_valid(emitter, 'chunk')}")
    count = lane_count(emitter, node, valid, BodyLines(lines, lines))
    mean, squares, origin = names
    total = fold(emitter, "sum", f"{mean} * {count}", integer=False)
    lines += [
        f"{chunk_mean} = {total} / tl.maximum({valid}, 1)",
        f"{apart} = {mean} - {chunk_mean}",
    ]
    code = fold(emitter, "sum", f"{squares} + {count} * {apart} * {apart}", integer=False)
    return [("mean", chunk_mean, kind), ("squares", code, kind), ("origin", origin, kind)]


def _finish_body(emitter: Emitter, nodes: list[Node], fields: dict[str, str]) -> list[str]:
    """The second kernel's body: the chunks' statistics are lanes to be merged like any others."""
    tiles = has_tile_stores(emitter)
    lines = [*_chunk_lines(emitter), "part = tl.arange(0, CHUNKS)"]
    body = BodyLines(lines, lines)
    names = iter(fields)
    for node in nodes:
        loaded: list[str] = []
        for _ in range({"moments": 3, "expsum": 2}.get(node.op, 1)):
            field = next(names)
            value = emitter.names.unique(field.replace("_partials", "_parts"))
            lines.append(f"{value} = tl.load({field}_ptr + row * CHUNKS + part)")
            loaded.append(value)
        _merge(emitter, node, tuple(loaded), body)
    if tiles:
        lines.append(_chunk(emitter))
        emitter.eviction = "evict_first"
        inner = BodyLines([], lines)
        stores = _stores(emitter, inner, rows=False, tiles=True)
        lines += _walk(emitter, [*inner.here, *stores])
        emitter.tile_values.clear()
    ends = _stores(emitter, BodyLines(lines, lines), rows=True, tiles=False)
    if tiles and ends:
        lines.append("if chunk == 0:")
        return lines + indent(ends)
    return lines + ends


def _merge(emitter: Emitter, node: Node, parts: tuple[str, ...], body: BodyLines) -> None:
    """Fold the chunks' statistics into the row's."""
    if node.op == "moments":
        size = emitter.names.unique("part_size")
        body.before.append(f"{size} = {_valid(emitter, 'part')}")
        mean, squares, origins = parts
        origin = emitter.names.unique("origin")  # each chunk's is the row's
        body.before.append(f"{origin} = tl.max({origins}, axis={emitter.reduce_axis})")
        merge_moments(emitter, node, (size, mean, squares), origin, body)
    elif node.op == "expsum":
        _merge_expsum(emitter, node, parts, body)
    else:
        finish_accumulator(emitter, node, parts, "CHUNKS", body)


def _merge_expsum(emitter: Emitter, node: Node, parts: tuple[str, ...], body: BodyLines) -> None:
    """Sums of exponentials about their own maxima -> one about the row's maximum."""
    top_field, total_field = _fields(emitter, node)
    top = emitter.assign("row_max", fold_max(emitter, parts[0]), body, tile=False)
    shift = top.code
    if guards_infinite_maximum(node):
        code = f"tl.where({is_infinite_text(shift)}, 0.0, {shift})"
        shift = emitter.assign("shift", code, body, tile=False).code
    scale = exp_call(emitter, f"{parts[0]} - {shift}", node.args[0])
    code = fold(emitter, "sum", f"{parts[1]} * {scale}", integer=False)
    total = emitter.assign("row_sum", code, body, tile=False)
    emitter.row_values.update({top_field: top, total_field: total})
