"""How does a region under a schedule become a kernel's text and the lines that launch it?"""

from __future__ import annotations

from dataclasses import dataclass, replace

from agentkernel.compiler.columns import column_lines
from agentkernel.compiler.compiler_helpers import HELPERS
from agentkernel.compiler.describe import kernel_docstring
from agentkernel.compiler.emit import INT32_LIMIT, Emitter, Names
from agentkernel.compiler.ir import Expr, Node, numel
from agentkernel.compiler.pointwise import pointwise_body
from agentkernel.compiler.region import Region
from agentkernel.compiler.rows import indent, persistent_body
from agentkernel.compiler.schedule import Schedule, long_rows, persistent_limit
from agentkernel.compiler.sizes import Symbols
from agentkernel.compiler.sweeps import looped_body

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
        from agentkernel.compiler.split import emit_split

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
        replace(request, schedule=long_rows(request.schedule), name=f"{stem}_long_rows_kernel")
    )
    length = request.symbols.wrapper(request.region.col_count)
    lines = [
        f"if {length} <= {persistent_limit(request.schedule)}:",
        *indent(short.launch[0].splitlines()),
        "else:",
        *indent(long.launch[0].splitlines()),
    ]
    sources = f"{short.source}\n\n\n{long.source}"
    return KernelCode(sources, short.kernels, ("\n".join(lines),), short.helpers | long.helpers)


def new_emitter(request: KernelRequest) -> Emitter:
    """An emitter whose names do not collide with parameters."""
    emitter = Emitter(request.region, request.schedule, request.symbols, request.buffers)
    emitter.names = Names(
        {"row", "col", "offset", "start", "col_mask", "row_mask", "near", "near_mask", "part",
         "chunk", "chunk_size", "CHUNKS", "INDEX", "BLOCK_M", "BLOCK_N", "n_elements", "n_rows",
         "n_cols", *HELPERS}
    )  # fmt: skip
    axes = max(len(request.region.rows), len(request.region.cols))
    emitter.names.taken |= {
        f"{name}_{place}" for name in ("row", "col", "offset", "near") for place in range(axes)
    }
    return emitter


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
    return [
        f"offset = tl.program_id(0).to({wide}) * BLOCK_N + tl.arange(0, BLOCK_N)",
        f"col_mask = offset < {count}",
        *emitter.split_index(emitter.region.cols, "offset"),
    ]


def _index_text(emitter: Emitter) -> str:
    """The type of a flat index in the launch: by the largest buffer that it walks."""
    nodes = [item.buffer for item in emitter.region.layout.loads.values()]
    nodes += [store.node for store in emitter.region.stores]
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
    if emitter.many_rows:
        lines = [
            "row = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]",
            "row_mask = row < n_rows",
        ]
        emitter.sizes.text(emitter.region.row_count)
    else:
        lines = ["row = tl.program_id(0).to(tl.int64)"]
    return lines + emitter.split_index(emitter.region.rows, "row")


def size_parameters(emitter: Emitter) -> list[tuple[str, Expr]]:
    """Size parameters of a kernel with their values in the wrapper."""
    found: list[tuple[str, Expr]] = []
    if (emitter.many_rows and emitter.region.rows) or emitter.sizes.rows_read:
        found.append(("n_rows", emitter.region.row_count))
    found.append((emitter.sizes.cols_name, emitter.region.col_count))
    found += [(name, symbol) for name, symbol in emitter.sizes.extra.items()]
    return found


def is_constant(emitter: Emitter, name: str, value: Expr) -> bool:
    """True for sizes compiled into the kernel: fixed ones, the length of a reduced row, and what a
    flat index is divided by (so that the compiler sees which loads are contiguous)."""
    if name == "n_rows":
        return False
    if emitter.divides_index and name in emitter.sizes.extra:
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
        return f"triton.next_power_of_2({emitter.symbols.wrapper(count)})"
    return str(emitter.schedule.block_cols)


def warps_text(emitter: Emitter) -> str:
    """num_warps in the launch: rows that outgrow 32 elements a thread get the most."""
    schedule, count = emitter.schedule, emitter.region.col_count
    free = schedule.form == "persistent" and not count.is_number
    if not free or schedule.num_warps >= MOST_WARPS:
        return str(schedule.num_warps)
    held = max(schedule.block_cols, 1024 * schedule.num_warps // schedule.block_rows)
    if held >= persistent_limit(schedule):
        return str(schedule.num_warps)
    length = emitter.symbols.wrapper(count)
    return f"{schedule.num_warps} if {length} <= {held} else {MOST_WARPS}"


def grid(emitter: Emitter) -> str:
    """The launch grid as Python over sizes."""
    wrapper = emitter.symbols.wrapper
    region, schedule = emitter.region, emitter.schedule
    if schedule.form == "flat":
        return f"(triton.cdiv({wrapper(region.col_count)}, {schedule.block_cols}),)"
    rows = wrapper(region.row_count)
    if emitter.many_rows and region.rows:
        rows = f"triton.cdiv({rows}, {schedule.block_rows})"
    if schedule.form == "tile":
        return f"({rows}, triton.cdiv({wrapper(region.col_count)}, {schedule.block_cols}))"
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
