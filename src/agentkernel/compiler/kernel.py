"""A fused region under a schedule as the text of its kernels and the lines that launch them.

Forms: flat or tiled pointwise, rows in registers, rows walked in tiles, and long rows split among
programs (statistics a chunk, then a kernel that merges them).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from agentkernel.compiler.emit import (
    INT32_LIMIT,
    BodyLines,
    Emitter,
    Names,
    Schedule,
    long_rows,
    needs_int64,
    persistent_limit,
)
from agentkernel.compiler.exp_sums import ExpSumsText
from agentkernel.compiler.expressions import TRITON_TYPES, Symbols, power_of_two_text, tiles_text
from agentkernel.compiler.fusion import Region
from agentkernel.compiler.ir import Expr, Node, numel
from agentkernel.compiler.kernel_helpers import HELPERS
from agentkernel.compiler.monoid import MONOIDS, MonoidText, Part, row_sum
from agentkernel.compiler.rows_reductions import (
    column_lines,
    has_tile_stores,
    indent,
    kernel_docstring,
    persistent_body,
    row_invariant,
    store_lines,
    walk,
)
from agentkernel.compiler.rows_sweeps import (
    accumulate,
    finish_accumulator,
    lane_count,
    looped_body,
    merge_moments,
)
from agentkernel.compiler.scan import ScanText
from agentkernel.compiler.scatter import scatter_line


def pointwise_body(emitter: Emitter) -> list[str]:
    """Loads, arithmetic and stores at every place once; without a mask in tiles that are full,
    where a mask would hide from Triton that neighbours are loaded together."""
    if not _branches(emitter):
        return _places(emitter)
    emitter.is_full = True
    full = _places(emitter)
    emitter.is_full, emitter.tile_values, emitter.row_values = False, {}, {}
    count = emitter.sizes.text(emitter.region.col_count)
    return [
        f"if tl.program_id(0) < {count} // BLOCK_N:",
        *indent(full),
        "else:",
        *indent([f"col_mask = offset < {count}", *_places(emitter)]),
    ]


WIDEST_ACCESS = 16
"""Elements that an address and a mask must go by for the widest access of the narrowest type."""
BRANCH_FROM = 65536
"""Elements from which on the time of a kernel is more than that of its launch."""


def _branches(emitter: Emitter) -> bool:
    """True where full tiles have text of their own: of a long flat index whose end is no multiple
    of what a thread loads at once."""
    count = emitter.symbols.hint(emitter.region.col_count)
    uneven = count >= BRANCH_FROM and count % WIDEST_ACCESS != 0
    return emitter.schedule.form == "flat" and uneven


def _places(emitter: Emitter) -> list[str]:
    lines: list[str] = []
    body = BodyLines(lines, lines)
    if emitter.schedule.invariant_first:
        for node in row_invariant(emitter):
            emitter.value(node, body)
    pairs = zip(emitter.region.stores, emitter.region.store_accesses, strict=True)
    return lines + [
        scatter_line(emitter, store.node, body)
        if store.node.kind == "scatter"
        else emitter.store_lines(store, access, body)
        for store, access in pairs
    ]


MOST_WARPS = 16
"""For tiles of up to 32768 elements: 64 a thread."""


@dataclass(frozen=True)
class KernelCode:
    """Kernels as top-level code, their names, the wrapper's launch lines and the helpers called."""

    source: str
    kernels: tuple[str, ...]
    launch: tuple[str, ...]
    helpers: frozenset[str]
    allocations: tuple[str, ...] = ()


@dataclass(frozen=True)
class KernelRequest:
    """What one kernel needs: its region, schedule, name and the wrapper's names of its buffers."""

    region: Region
    schedule: Schedule
    name: str
    buffers: dict[Node, str]
    symbols: Symbols
    anchor: str
    """Wrapper variable whose device the workspace is made on."""


def emit_kernel(request: KernelRequest) -> KernelCode:
    """The text of one region's kernel; two under `split`, or where free rows may outgrow a tile."""
    if request.schedule.form == "split":
        return emit_split(request)
    if request.schedule.form == "flat":
        request = replace(request, region=request.region.flattened)
    code = _single(request)
    count = request.region.col_count
    if request.schedule.form == "persistent" and not count.is_number:
        return _with_long_rows(request, code)
    return code


def _single(request: KernelRequest) -> KernelCode:
    emitter = new_emitter(request)
    form = request.schedule.form
    body = {"persistent": persistent_body, "looped": looped_body}.get(form, pointwise_body)(emitter)
    header = program_lines(emitter)
    doc = kernel_docstring(request.region, request.schedule)
    source = function_text(
        request.name, parameters(emitter), doc, [*header, *body], asserts=emitter.asserts
    )
    launch = launch_line(emitter, request.name, grid(emitter))
    return KernelCode(source, (request.name,), (launch,), frozenset(emitter.helpers))


def _with_long_rows(request: KernelRequest, short: KernelCode) -> KernelCode:
    """A branch at run time: rows in registers up to a limit, looped where they are longer."""
    stem = request.name.removesuffix("_kernel")
    long = _single(
        replace(
            request,
            schedule=long_rows(request.schedule, request.region),
            name=f"{stem}_long_rows_kernel",
        )
    )
    length = request.symbols.wrapper(request.region.col_count)
    lines = [
        f"if {length} <= {persistent_limit(request.schedule, request.region)}:",
        *indent(short.launch[0].splitlines()),
        "else:",
        *indent(long.launch[0].splitlines()),
    ]
    sources = f"{short.source}\n\n\n{long.source}"
    return KernelCode(sources, short.kernels, ("\n".join(lines),), short.helpers | long.helpers)


def new_emitter(request: KernelRequest) -> Emitter:
    """An emitter whose names do not collide with parameters."""
    emitter = Emitter(request.region, request.schedule, request.symbols, request.buffers)
    emitter.names = kernel_names(request.region)
    return emitter


def kernel_names(region: Region) -> Names:
    """The names that a kernel's own lines have."""
    names = Names(
        {"row", "col", "offset", "start", "past", "col_mask", "row_mask", "row_tiles", "near",
         "near_mask", "part", "chunk", "chunk_size", "CHUNKS", "INDEX", "BLOCK_M", "BLOCK_N",
         "n_elements", "n_rows", "n_cols", *HELPERS}
    )  # fmt: skip
    axes = max(len(region.rows), len(region.cols))
    names.taken |= {
        f"{name}_{place}" for name in ("row", "col", "offset", "near") for place in range(axes)
    }
    return names


def program_lines(emitter: Emitter) -> list[str]:
    """Which rows and columns the program has, before any load."""
    form = emitter.schedule.form
    if form == "flat":
        return _flat_lines(emitter)
    lines = row_lines(emitter)
    if form == "tile":
        return [*lines, *column_lines(emitter, "tl.program_id(1) * BLOCK_N")]
    return [*lines, *column_lines(emitter, "0")] if form == "persistent" else lines


def _flat_lines(emitter: Emitter) -> list[str]:
    # 32 bits wherever they hold an index that is divided: that is slow.
    wide = "INDEX" if emitter.divides_index else "tl.int64"
    count = emitter.sizes.text(emitter.region.col_count)
    mask = [] if _branches(emitter) else [f"col_mask = offset < {count}"]
    return [
        f"offset = tl.program_id(0).to({wide}) * BLOCK_N + tl.arange(0, BLOCK_N)",
        *mask,
        *emitter.split_index(emitter.region.cols, "offset"),
    ]


def _index_text(emitter: Emitter) -> str:
    """The type of a flat index in the launch: by the largest buffer that it walks."""
    nodes = [item.buffer for item in emitter.region.layout.loads.values()]
    # What a scatter adds may have more elements than what it reads and makes.
    nodes += [
        store.node.args[1] if store.node.kind == "scatter" else store.node
        for store in emitter.region.stores
    ]
    sizes = list(dict.fromkeys(numel(node.shape) for node in nodes))
    free = [emitter.symbols.wrapper(size) for size in sizes if not size.is_number]
    if any(size.is_number and int(size) > INT32_LIMIT for size in sizes):
        return "tl.int64"
    if not free:
        return "tl.int32"
    largest = free[0] if len(free) == 1 else f"max({', '.join(free)})"
    return f"tl.int64 if {largest} > {INT32_LIMIT} else tl.int32"


def row_lines(emitter: Emitter) -> list[str]:
    """The rows of a program, and the index of each of their axes."""
    if not emitter.region.rows:
        return []
    if emitter.tiles_rows:
        return _tiled_row_lines(emitter)
    if emitter.many_rows:
        lines = [
            "row = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]",
            "row_mask = row < n_rows",
        ]
        emitter.sizes.text(emitter.region.row_count)
    else:
        lines = ["row = tl.program_id(0).to(tl.int64)"]
    return lines + emitter.split_index(emitter.region.rows, "row")


def _tiled_row_lines(emitter: Emitter) -> list[str]:
    """Rows along the innermost axis; the places on the others are the program's."""
    rows = emitter.region.rows
    inner = emitter.sizes.text(rows[-1].size)
    last = len(rows) - 1
    outer = "row_0" if last == 1 else "row"
    return [
        f"row_tiles = tl.cdiv({inner}, BLOCK_M)",
        f"{outer} = (tl.program_id(0) // row_tiles).to(tl.int64)",
        *emitter.split_index(rows[:-1], "row"),
        f"row_{last} = tl.program_id(0) % row_tiles * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]",
        f"row_mask = row_{last} < {inner}",
    ]


def size_parameters(emitter: Emitter) -> list[tuple[str, Expr]]:
    """Size parameters of a kernel with their values in the wrapper."""
    found: list[tuple[str, Expr]] = []
    by_number = emitter.many_rows and emitter.region.rows and not emitter.tiles_rows
    if by_number or emitter.sizes.rows_read:
        found.append(("n_rows", emitter.region.row_count))
    found.append((emitter.sizes.cols_name, emitter.region.col_count))
    found += [(name, symbol) for name, symbol in emitter.sizes.extra.items()]
    return found


def is_constant(emitter: Emitter, name: str, value: Expr) -> bool:
    """True for sizes compiled into the kernel: fixed ones, the length of a reduced row, and what an
    index over several axes is divided by: a division by a known number takes a few instructions,
    by a free one of 64 bits about a hundred, and known strides show which loads are contiguous."""
    if name == "n_rows":
        return False
    if name in emitter.sizes.extra and max(len(emitter.region.rows), len(emitter.region.cols)) > 1:
        return True
    return bool(value.is_number) or (emitter.region.reduces and name == emitter.sizes.cols_name)


def parameters(emitter: Emitter, *workspace: str) -> list[str]:
    """The kernel's signature: pointers, sizes (`tl.constexpr` where compiled in), blocks."""
    sizes = size_parameters(emitter)
    runtime = [name for name, value in sizes if not is_constant(emitter, name, value)]
    blocks = [name for name, value in sizes if is_constant(emitter, name, value)]
    blocks += ["INDEX"] if emitter.divides_index else []
    blocks += ["CHUNKS"] if emitter.schedule.form == "split" else []
    blocks += ["BLOCK_M"] if emitter.many_rows else []
    constant = [f"{name}: tl.constexpr" for name in (*blocks, "BLOCK_N")]
    return [*emitter.pointers, *workspace, *runtime, *constant]


def function_text(
    name: str, signature: list[str], doc: list[str], lines: list[str], *, asserts: bool = False
) -> str:
    """A decorated Triton function; `doc` has its quotes. It `asserts` something where it is told to
    hold assertions."""
    head = f"def {name}({', '.join(signature)}):"
    if len(head) > 100:
        head = "\n".join([f"def {name}(", *packed(signature, 92), "):"])
    decorator = "@triton.jit(debug=True)" if asserts else "@triton.jit"
    return "\n".join([decorator, head, *indent([*doc, *lines])])


def block_text(emitter: Emitter) -> str:
    """BLOCK_N in the launch: a literal, or what covers a row whose length is free."""
    count = emitter.region.col_count
    if emitter.schedule.form == "persistent" and not count.is_number:
        return power_of_two_text(emitter.symbols.wrapper(count))
    return str(emitter.schedule.block_cols)


def warps_text(emitter: Emitter) -> str:
    """num_warps in the launch: rows that outgrow 32 elements a thread get the most."""
    schedule, count = emitter.schedule, emitter.region.col_count
    free = schedule.form == "persistent" and not count.is_number
    if not free or schedule.num_warps >= MOST_WARPS:
        return str(schedule.num_warps)
    held = max(schedule.block_cols, 1024 * schedule.num_warps // schedule.block_rows)
    if held >= persistent_limit(schedule, emitter.region):
        return str(schedule.num_warps)
    length = emitter.symbols.wrapper(count)
    return f"{schedule.num_warps} if {length} <= {held} else {MOST_WARPS}"


def grid(emitter: Emitter) -> str:
    """The launch grid as Python over sizes."""
    wrapper = emitter.symbols.wrapper
    region, schedule = emitter.region, emitter.schedule
    if schedule.form == "flat":
        return f"({tiles_text(wrapper(region.col_count), schedule.block_cols)},)"
    rows = wrapper(region.row_count)
    if emitter.tiles_rows:
        outer = wrapper(numel([axis.size for axis in region.rows[:-1]]))
        tiles = tiles_text(wrapper(region.rows[-1].size), schedule.block_rows)
        rows = f"({outer}) * {tiles}"
    elif emitter.many_rows and region.rows:
        rows = tiles_text(rows, schedule.block_rows)
    if schedule.form == "tile":
        return f"({rows}, {tiles_text(wrapper(region.col_count), schedule.block_cols)})"
    return f"({rows},)"


def launch_line(emitter: Emitter, name: str, grid_text: str, *workspace: str) -> str:
    """The call, with every constant in sight."""
    schedule, wrapper = emitter.schedule, emitter.symbols.wrapper
    sizes = size_parameters(emitter)
    values = [*emitter.pointers.values(), *workspace]
    values += [wrapper(value) for key, value in sizes if not is_constant(emitter, key, value)]
    values += [
        f"{key}={wrapper(value)}" for key, value in sizes if is_constant(emitter, key, value)
    ]
    if emitter.divides_index:
        values.append(f"INDEX={_index_text(emitter)}")
    if schedule.form == "split":
        values.append(f"CHUNKS={schedule.chunks}")
    if emitter.many_rows:
        values.append(f"BLOCK_M={schedule.block_rows}")
    values += [f"BLOCK_N={block_text(emitter)}", f"num_warps={warps_text(emitter)}"]
    # Of what debug=True checks only the assertions in the text are wanted.
    values += ["sanitize_overflow=False"] if emitter.asserts else []
    return wrapped_call(f"{name}[{grid_text}]", values)


def wrapped_call(head: str, values: list[str]) -> str:
    """A call on one line, or with its arguments indented below."""
    line = f"{head}({', '.join(values)})"
    if len(line) <= 88:
        return line
    return "\n".join([f"{head}(", *packed(values, 84), ")"])


def packed(items: list[str], width: int) -> list[str]:
    """Items with commas, as many a line as fit, indented by four spaces."""
    lines: list[str] = []
    for item in items:
        if lines and len(lines[-1]) + len(item) + 2 <= width:
            lines[-1] += f" {item},"
        else:
            lines.append(f"    {item},")
    return lines


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
    launch = [
        launch_line(emitter, name, grid, *fields)
        for emitter, name, grid in zip((partial, end), names, grids, strict=True)
    ]
    if not nodes and not request.region.col_count.is_number:
        # Scans alone: what no other chunk goes on from is not needed.
        length = request.symbols.wrapper(request.region.col_count)
        several = f"if {length} > {request.schedule.block_cols}:"
        launch[0] = "\n".join([several, *indent(launch[0].splitlines())])
    workspace = tuple(
        f"{name} = torch.empty(({rows}, {chunks}), device={request.anchor}, dtype={dtype})"
        for name, dtype in fields.items()
    )
    helpers = frozenset(partial.helpers | end.helpers)
    return KernelCode("\n\n\n".join(sources), names, tuple(launch), helpers, workspace)


def _chunk_lines(emitter: Emitter, *, backwards: bool = False) -> list[str]:
    """The program's row and the length of a chunk (a whole number of tiles).

    Plain arithmetic: under triton 3.6 what tl.cdiv makes of a constexpr is one inside another, from
    which no loop variable can be taken.
    """
    count = emitter.sizes.text(emitter.region.col_count)
    tile = "CHUNKS * BLOCK_N"
    row = "tl.num_programs(0) - 1 - tl.program_id(0)" if backwards else "tl.program_id(0)"
    return [
        f"row = ({row}).to(tl.int64)" if backwards else f"row = {row}.to(tl.int64)",
        *emitter.split_index(emitter.region.rows, "row"),
        f"chunk_size: tl.constexpr = ({count} + {tile} - 1) // ({tile}) * BLOCK_N",
    ]


def _chunk(emitter: Emitter, *, backwards: bool = False) -> str:
    """The program's chunk, in as many bits as the columns before it need."""
    place = "(CHUNKS - 1 - tl.program_id(1))" if backwards else "tl.program_id(1)"
    count = emitter.region.col_count
    if count.is_number:
        wide = ".to(tl.int64)" if needs_int64(count) else ""
    else:
        wide = f".to(tl.int64 if {emitter.sizes.text(count)} > {INT32_LIMIT} else tl.int32)"
    return f"chunk = {place}{wide}"


def _walk(emitter: Emitter, lines: list[str], *, backwards: bool = False) -> list[str]:
    """A loop over the tiles of the program's chunk."""
    return walk(emitter, "chunk_size", "chunk * chunk_size", lines, backwards=backwards)


def _partial_body(emitter: Emitter, nodes: list[Node]) -> tuple[list[str], dict[str, str]]:
    """The first kernel's body, and its workspaces: name -> torch dtype."""
    lines = [*_chunk_lines(emitter), _chunk(emitter)]
    body = BodyLines([], lines)
    emitter.eviction = "evict_last" if has_tile_stores(emitter) else "evict_first"
    carried = [accumulate(emitter, node, body) for node in nodes]
    before: list[Part] = []
    for node in emitter.region.scans:
        text = ScanText(emitter, node)
        carry, begin = text.carry()
        lines += begin
        text.advance(text.lifted(body), carry, body)
        before += text.stored(carry)
    emitter.tile_values.clear()
    lines += [line for item in carried for line in item.init]
    lines += _walk(emitter, body.here)
    parts: list[Part] = []
    for node, item in zip(nodes, carried, strict=True):
        parts += _parts(emitter, node, item.names, lines)
    fields: dict[str, str] = {}
    for label, code, kind in [*parts, *before]:
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


def _parts(emitter: Emitter, node: Node, names: tuple[str, ...], lines: list[str]) -> list[Part]:
    """What a chunk leaves behind of a reduction: label, code and Triton type."""
    if node.op == "moments":
        return _moment_parts(emitter, node, names, lines)
    if node.op in ("expsum", "expsums"):
        return ExpSumsText(emitter, node).parts(names)
    text = MonoidText(emitter, node)
    return list(zip(text.labels(node.name), text.folded(names), text.kinds, strict=True))


def _moment_parts(
    emitter: Emitter, node: Node, names: tuple[str, ...], lines: list[str]
) -> list[Part]:
    unique = emitter.names.unique
    kind = TRITON_TYPES[node.dtype]
    valid, chunk_mean, apart = unique("valid"), unique("chunk_mean"), unique("apart")
    lines.append(f"{valid} = {_valid(emitter, 'chunk')}")
    count = lane_count(emitter, node, valid, BodyLines(lines, lines))
    mean, squares, origin = names
    total = row_sum(emitter, f"{mean} * {count}")
    lines += [
        f"{chunk_mean} = {total} / tl.maximum({valid}, 1)",
        f"{apart} = {mean} - {chunk_mean}",
    ]
    code = row_sum(emitter, f"{squares} + {count} * {apart} * {apart}")
    return [("mean", chunk_mean, kind), ("squares", code, kind), ("origin", origin, kind)]


def _finish_body(emitter: Emitter, nodes: list[Node], fields: dict[str, str]) -> list[str]:
    """The second kernel's body: the chunks' statistics are lanes to be merged like any others.

    Where it reads the rows again, it begins with what the first one has read last, which is still
    in the L2 cache.
    """
    tiles = has_tile_stores(emitter)
    back = tiles and not emitter.region.scans
    lines = [*_chunk_lines(emitter, backwards=back), "part = tl.arange(0, CHUNKS)"]
    body = BodyLines(lines, lines)
    names = iter(fields)
    for node in nodes:
        loaded: list[str] = []
        for _ in range(_part_count(emitter, node)):
            field = next(names)
            value = emitter.names.unique(field.replace("_partials", "_parts"))
            lines.append(f"{value} = tl.load({field}_ptr + row * CHUNKS + part)")
            loaded.append(value)
        _merge(emitter, node, tuple(loaded), body)
    if tiles:
        lines.append(_chunk(emitter, backwards=back))
        emitter.eviction = "evict_first"
        inner = BodyLines([], lines)
        for node in emitter.region.scans:
            text = ScanText(emitter, node)
            text.write(inner, text.resume(_parts_before(text, names, lines), lines))
        stores = store_lines(emitter, inner, rows=False, tiles=True)
        lines += _walk(emitter, [*inner.here, *stores], backwards=back)
        emitter.tile_values.clear()
    ends = store_lines(emitter, BodyLines(lines, lines), rows=True, tiles=False)
    if tiles and ends:
        lines.append("if chunk == 0:")
        return lines + indent(ends)
    return lines + ends


def _parts_before(text: ScanText, names: Iterator[str], lines: list[str]) -> list[str]:
    """Load what the chunks that a scan walks before the program's have left behind."""
    order = ">" if text.backwards else "<"
    loaded: list[str] = []
    for neutral in text.neutrals:
        field = next(names)
        value = text.emitter.names.unique(field.replace("_partials", "_parts"))
        place = f"{field}_ptr + row * CHUNKS + part"
        lines.append(f"{value} = tl.load({place}, mask=part {order} chunk, other={neutral})")
        loaded.append(value)
    return loaded


def _part_count(emitter: Emitter, node: Node) -> int:
    """How many numbers a chunk leaves behind of a reduction."""
    if node.op in ("expsum", "expsums"):
        return ExpSumsText(emitter, node).part_count
    return 3 if node.op == "moments" else len(MONOIDS[node.op].lanes)


def _merge(emitter: Emitter, node: Node, parts: tuple[str, ...], body: BodyLines) -> None:
    """Fold the chunks' statistics into the row's."""
    if node.op == "moments":
        size = emitter.names.unique("part_size")
        body.before.append(f"{size} = {_valid(emitter, 'part')}")
        mean, squares, origins = parts
        origin = emitter.names.unique("origin")  # each chunk's is the row's
        body.before.append(f"{origin} = tl.max({origins}, axis={emitter.reduce_axis})")
        merge_moments(emitter, node, (size, mean, squares), origin, body)
    elif node.op in ("expsum", "expsums"):
        ExpSumsText(emitter, node).merge(parts, body)
    else:
        finish_accumulator(emitter, node, parts, "CHUNKS", body)
