"""How do several programs share one long row? Statistics a chunk, then a kernel that ends it."""

from __future__ import annotations

from agentkernel.agents.coders.compiler.emit import Body, Emitter
from agentkernel.agents.coders.compiler.expressions import TRITON_TYPES
from agentkernel.agents.coders.compiler.ir import Node, compute_dtype
from agentkernel.agents.coders.compiler.kernel import (
    KernelCode,
    KernelRequest,
    function_text,
    new_emitter,
    size_parameters,
    summary,
    wrapped_call,
)
from agentkernel.agents.coders.compiler.rows import (
    _stores,
    exp_call,
    fold,
    has_tile_stores,
    indent,
)
from agentkernel.agents.coders.compiler.sweeps import (
    _lane_type,
    accumulate,
    column_lines,
    fold_max,
    merge,
)

TORCH_NAMES = {value: str(key) for key, value in TRITON_TYPES.items()}


def emit_split(request: KernelRequest) -> KernelCode:
    """Two kernels: every program folds one chunk of a row; then the chunks are folded."""
    partial, finish = new_emitter(request), new_emitter(request)
    nodes = [node for node in request.region.nodes if node.kind == "reduce"]
    rows = "1"
    if request.region.rows:
        rows = request.symbols.wrapper(request.region.row_count)
    first, fields = _partial_body(partial, nodes)
    second = _finish_body(finish, nodes, fields)
    names = (f"{request.name}_partials", request.name)
    pointers = [f"{name}_ptr" for name in fields]
    sources = [
        function_text(name, _signature(emitter, pointers), f"{what}: {summary(request)}", lines)
        for name, emitter, what, lines in (
            (names[0], partial, "Statistics of one chunk", first),
            (names[1], finish, "All chunks folded", second),
        )
    ]
    chunks = request.schedule.chunks
    grids = (
        f"({rows}, {chunks})",
        f"({rows}, {chunks})" if has_tile_stores(finish) else f"({rows},)",
    )
    launch = tuple(
        _launch(emitter, request, list(fields), name, grid)
        for emitter, name, grid in zip((partial, finish), names, grids, strict=True)
    )
    workspace = tuple(
        f"{name} = torch.empty(({rows}, {chunks}), device={request.anchor}, dtype={dtype})"
        for name, dtype in fields.items()
    )
    helpers = frozenset(partial.helpers | finish.helpers)
    return KernelCode("\n\n\n".join(sources), names, launch, helpers, workspace)


def _signature(emitter: Emitter, partials: list[str]) -> list[str]:
    sizes = [name for name, _ in size_parameters(emitter)]
    return [*emitter.pointers, *partials, *sizes, "CHUNKS: tl.constexpr", "BLOCK_N: tl.constexpr"]


def _launch(
    emitter: Emitter, request: KernelRequest, partials: list[str], name: str, grid: str
) -> str:
    schedule = request.schedule
    values = [*emitter.pointers.values(), *partials]
    values += [request.symbols.wrapper(expr) for _, expr in size_parameters(emitter)]
    values += [
        f"CHUNKS={schedule.chunks}",
        f"BLOCK_N={schedule.block_cols}",
        f"num_warps={schedule.num_warps}",
    ]
    return wrapped_call(f"{name}[{grid}]", values)


def _chunk_lines(emitter: Emitter) -> list[str]:
    """The program's row, and the first and last column of its chunk."""
    count = emitter.sizes.text(emitter.region.col_count)
    lines = [
        "row = tl.program_id(0).to(tl.int64)",
        *emitter.split_index(emitter.region.rows, "row"),
    ]
    return [
        *lines,
        f"chunk_size = tl.cdiv(tl.cdiv({count}, BLOCK_N), CHUNKS) * BLOCK_N",
    ]


def _bounds(emitter: Emitter) -> list[str]:
    count = emitter.sizes.text(emitter.region.col_count)
    return [
        "chunk = tl.program_id(1)",
        f"first = tl.minimum(chunk * chunk_size, {count})",
        f"last = tl.minimum(first + chunk_size, {count})",
    ]


def _partial_body(emitter: Emitter, nodes: list[Node]) -> tuple[list[str], dict[str, str]]:
    """The first kernel's body, and its workspaces: name -> torch dtype."""
    lines = [*_chunk_lines(emitter), *_bounds(emitter)]
    body = Body([], lines)
    emitter.eviction = "evict_last" if has_tile_stores(emitter) else "evict_first"
    carried = [accumulate(emitter, node, body) for node in nodes]
    emitter.tile_values.clear()
    lines += [line for item in carried for line in item.init]
    lines.append("for start in range(first, last, BLOCK_N):")
    lines += indent([*column_lines(emitter, "start", "last"), *body.here])
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


def _parts(
    emitter: Emitter, node: Node, names: tuple[str, ...], lines: list[str]
) -> list[tuple[str, str, str]]:
    """What a chunk leaves behind of a reduction: label, code and Triton type."""
    unique = emitter.names.unique
    source = node.args[0]
    kind = TRITON_TYPES[compute_dtype(source.dtype)]
    if node.op == "moments":
        count, mean, squares = names
        chunk_mean = unique("chunk_mean")
        total = fold(emitter, "sum", f"{mean} * {count}", integer=False)
        lines.append(f"{chunk_mean} = {total} / tl.maximum(last - first, 1)")
        apart = f"{mean} - {chunk_mean}"
        spread = f"{squares} + {count} * ({apart}) * ({apart})"
        return [
            ("mean", chunk_mean, kind),
            ("squares", fold(emitter, "sum", spread, integer=False), kind),
        ]
    if node.op == "expsum":
        top, total = names
        chunk_max = unique("chunk_max")
        lines.append(f"{chunk_max} = {fold_max(emitter, top, '')}")
        scale = exp_call(emitter, f"{top} - {chunk_max}", source)
        scale = f'tl.where({top} == -float("inf"), 0.0, {scale})'
        code = fold(emitter, "sum", f"{total} * {scale}", integer=False)
        return [("max", chunk_max, kind), ("sum", code, kind)]
    integer = not compute_dtype(source.dtype).is_floating_point
    lane = TRITON_TYPES[_lane_type(node)]  # type: ignore[index]
    code = fold(emitter, node.op, names[0], integer=integer)
    if node.op in ("any", "all"):
        code = f"({code}).to(tl.int32)"
    return [(node.name, code, lane)]


def _finish_body(emitter: Emitter, nodes: list[Node], fields: dict[str, str]) -> list[str]:
    """The second kernel's body: the chunks' statistics are lanes to be merged like any others."""
    tiles = has_tile_stores(emitter)
    count = emitter.sizes.text(emitter.region.col_count)
    lines = _chunk_lines(emitter)
    lines.append("part = tl.arange(0, CHUNKS)")
    body = Body(lines, lines)
    names = iter(fields)
    for node in nodes:
        loaded: list[str] = []
        if node.op == "moments":
            size = emitter.names.unique("part_count")
            left = f"tl.minimum(tl.maximum({count} - part * chunk_size, 0), chunk_size)"
            lines.append(f"{size} = {left}.to({TRITON_TYPES[node.dtype]})")
            loaded.append(size)
        for _ in range(2 if node.op in ("moments", "expsum") else 1):
            field = next(names)
            value = emitter.names.unique(field.replace("_partials", "_parts"))
            lines.append(f"{value} = tl.load({field}_ptr + row * CHUNKS + part)")
            loaded.append(value)
        merge(emitter, node, tuple(loaded), body)
    if tiles:
        lines += _bounds(emitter)
        emitter.eviction = "evict_first"
        inner = Body([], lines)
        stores = _stores(emitter, inner, rows=False, tiles=True)
        lines.append("for start in range(first, last, BLOCK_N):")
        lines += indent([*column_lines(emitter, "start", "last"), *inner.here, *stores])
        emitter.tile_values.clear()
    ends = _stores(emitter, Body(lines, lines), rows=True, tiles=False)
    if tiles and ends:
        lines.append("if chunk == 0:")
        return lines + indent(ends)
    return lines + ends
