"""Attention of few queries: keys are split over programs, and a second kernel joins the parts.

A generated token's queries fill no GPU, and all of its time is the reading of keys and values. So
the programs are as many as the GPU runs at once, whatever the batch. Each reads a range of keys,
once for all heads that share them: the rows of its tile are the queries of these heads
(https://crfm.stanford.edu/2023/10/12/flashdecoding.html).
"""

from __future__ import annotations

from agentkernel.compiler.attention import (
    AttentionFacts,
    AttentionSpec,
    emit_attention,
    empty_rows_kept,
    exact_exp,
    key_places,
    keys_tile,
    load_queries,
    log2_scale,
    over_scores,
    padded,
    padded_text,
    power_text,
    scale_folded,
    scale_lines,
    stride_names,
    stride_values,
    whole_operand,
)
from agentkernel.compiler.expressions import tiles_text
from agentkernel.compiler.products.schedules import ITEM_BYTES, GemmSchedule
from agentkernel.compiler.products.spec import KernelText, call_lines, function
from agentkernel.domain.target import Target

FEW_QUERIES = 16
"""Rows of a tensor core's product: more of them fill tiles of their own."""
MOST_ROWS = 32
"""Of a tile: with more, the sums and the scores of wide heads have no room in registers."""
MOST_PARTS = 64
"""Parts that one program joins; their sums are in its registers."""
A_PROCESSOR = (4, 8, 2)
"""Programs for each SM. Each has stages of 16 KiB on their way, of the 26 KiB an SM that the
bandwidth of an H200 needs to last its latency of some 800 ns."""
Tile = tuple[int, int, int]
"""BLOCK_S, num_warps, num_stages. A few rows are multiplied by fewer warps with fewer instructions
in all, so several programs share an SM; none of these spills on sm_90."""
HALF_NARROW: tuple[Tile, ...] = ((64, 2, 3), (64, 4, 3), (128, 4, 2), (32, 1, 4), (64, 1, 3))
HALF_WIDE: tuple[Tile, ...] = ((64, 4, 3), (64, 8, 3), (32, 4, 4), (32, 2, 4))
FP32_NARROW: tuple[Tile, ...] = ((32, 2, 3), (64, 4, 2), (16, 1, 3))
FP32_WIDE: tuple[Tile, ...] = ((32, 4, 2), (16, 4, 3), (32, 8, 2), (16, 2, 3))


def split_schedules(facts: AttentionFacts, target: Target) -> list[GemmSchedule]:
    """Schedules with the keys split, first guess first; none for many queries or causal ones."""
    if not facts.group or facts.queries > FEW_QUERIES or facts.causal:
        return []
    rows = min(padded(facts.group * facts.queries), MOST_ROWS)
    wide = facts.masked or rows > 16 or max(facts.head_dim, facts.value_dim) > 64
    if facts.dtype == "float32":
        tiles = FP32_WIDE if wide else FP32_NARROW
    else:
        tiles = HALF_WIDE if wide else HALF_NARROW
    width = padded(facts.head_dim) + padded(facts.value_dim)
    most = 1024 * target.shared_kb_per_block.value
    fitting = [
        {"BLOCK_T": rows, "BLOCK_S": keys, "num_warps": warps, "num_stages": stages}
        for keys, warps, stages in tiles
        if (keys * stages + rows) * width * ITEM_BYTES[facts.dtype] <= most
    ]
    sms = int(target.sm_count.value)
    first, *others = (each * sms for each in A_PROCESSOR)
    found = [schedule | {"PROGRAMS": first} for schedule in fitting]
    return found + [schedule | {"PROGRAMS": n} for n in others for schedule in fitting[:2]]


def emit_any(spec: AttentionSpec, schedule: GemmSchedule) -> KernelText:
    """The kernels under a schedule with the keys split, or with all of them in each program."""
    return emit_split(spec, schedule) if "PROGRAMS" in schedule else emit_attention(spec, schedule)


def emit_split(spec: AttentionSpec, schedule: GemmSchedule) -> KernelText:
    """The kernel of the parts and that which joins them, for attention that is not causal and has
    as many heads of keys as of values. How many parts there are follows from the sizes of a call
    and PROGRAMS, the programs wanted."""
    helpers = frozenset(("exp",) if exact_exp(spec) else ())
    names = (spec.name, f"{spec.name}_join")
    source = f"{_parts(spec)}\n\n\n{_join(spec)}"
    return KernelText(source, names, tuple(_launch(spec, schedule)), helpers)


def _parts(spec: AttentionSpec) -> str:
    over = over_scores(spec)
    signature = [
        "q_ptr", "k_ptr", "v_ptr", *(f"{name}_ptr" for name in over),
        "best_ptr", "total_ptr", "acc_ptr", "HEADS", "GROUP", "T", "S", "PARTS", "SPAN", "scale",
        *stride_names("q", 3), *stride_names("k", 3), *stride_names("v", 3),
        *(item for name in over for item in stride_names(name, 4)),
        *(f"{name}: tl.constexpr" for name in ("EVEN_S", "D", "E", "BLOCK_D", "BLOCK_E")),
        "BLOCK_T: tl.constexpr", "BLOCK_S: tl.constexpr",
    ]  # fmt: skip
    lines = [
        '"""The maximum, sum and weighted values of SPAN keys, for BLOCK_T rows a program."""',
        *scale_lines(),
        "program = tl.program_id(0)",
        "part = program % PARTS",
        "tiles = tl.cdiv(GROUP * T, BLOCK_T)",
        "pair = (program // PARTS // tiles).to(tl.int64)",
        "batch = pair // HEADS",
        "head = pair % HEADS",
        "# The queries of all heads that share these keys are rows of one tile. Those past the end",
        "# wrap around; what they yield is never stored.",
        "rows = program // PARTS % tiles * BLOCK_T + tl.arange(0, BLOCK_T)",
        "queries = (rows % (GROUP * T) % T).to(tl.int64)",
        "heads = head * GROUP + rows % (GROUP * T) // T",
        "keys = tl.arange(0, BLOCK_S)",
        "dims = tl.arange(0, BLOCK_D)",
        "value_dims = tl.arange(0, BLOCK_E)",
        "first = part * SPAN",
        "q_ptrs = q_ptr + batch * stride_q0 + heads[:, None] * stride_q1",
        "q_ptrs += queries[:, None] * stride_q2 + dims[None, :]",
        "k_ptr += batch * stride_k0 + head * stride_k1 + first.to(tl.int64) * stride_k2",
        "v_ptr += batch * stride_v0 + head * stride_v1 + first.to(tl.int64) * stride_v2",
        *key_places(),
        *(line for name in over for line in _scores_pointers(name)),
        load_queries(spec),
        "",
        'best = tl.full((BLOCK_T,), float("-inf"), dtype=tl.float32)',
        "total = tl.zeros((BLOCK_T,), dtype=tl.float32)",
        "acc = tl.zeros((BLOCK_T, BLOCK_E), dtype=tl.float32)",
        "for start in range(first, tl.minimum(S, first + SPAN), BLOCK_S):",
        *keys_tile(spec, "EVEN_S", False),
        "kept = rows < GROUP * T",
        "places = (pair * PARTS + part) * (GROUP * T) + rows",
        "tl.store(best_ptr + places, best, mask=kept)",
        "tl.store(total_ptr + places, total, mask=kept)",
        "sums = acc_ptr + places[:, None] * E + value_dims[None, :]",
        f"tl.store(sums, acc, mask=kept[:, None]{_inside(spec, ' & ', '[None, :]')})",
    ]
    return function(spec.name, signature, lines)


def _scores_pointers(name: str) -> list[str]:
    return [
        f"{name}_rows = {name}_ptr + batch * stride_{name}0 + heads[:, None] * stride_{name}1",
        f"{name}_rows += queries[:, None] * stride_{name}2",
    ]


def _join(spec: AttentionSpec) -> str:
    signature = [
        "best_ptr", "total_ptr", "acc_ptr", "out_ptr", "HEADS", "GROUP", "T", "PARTS",
        *(["scale"] if scale_folded(spec) else []), *stride_names("out", 3),
        "E: tl.constexpr", "BLOCK_E: tl.constexpr", "BLOCK_P: tl.constexpr",
    ]  # fmt: skip
    lines = [
        '"""out = the parts of a query, each by its share of the exponentials."""',
        *(scale_lines() if scale_folded(spec) else []),
        "row = tl.program_id(0) % (GROUP * T)",
        "pair = (tl.program_id(0) // (GROUP * T)).to(tl.int64)",
        "parts = tl.arange(0, BLOCK_P)",
        "value_dims = tl.arange(0, BLOCK_E)",
        "places = (pair * PARTS + parts) * (GROUP * T) + row",
        "kept = parts < PARTS",
        'best = tl.load(best_ptr + places, mask=kept, other=float("-inf"))',
        "total = tl.load(total_ptr + places, mask=kept, other=0.0)",
        "sums = acc_ptr + places[:, None] * E + value_dims[None, :]",
        f"inside = kept[:, None]{_inside(spec, ' & ', '[None, :]')}",
        "acc = tl.load(sums, mask=inside, other=0.0)",
        "shift = tl.max(best, axis=0)",
        'shift = tl.where(shift == float("-inf"), 0.0, shift)',
        f"share = {power_text(spec, 'best - shift')}",
        "total = tl.sum(total * share, axis=0)",
        *empty_rows_kept(spec),
        "acc = tl.sum(acc * share[:, None], axis=0) / total",
        "out_ptr += pair // HEADS * stride_out0 + (pair % HEADS * GROUP + row // T) * stride_out1",
        "out_ptrs = out_ptr + (row % T).to(tl.int64) * stride_out2 + value_dims",
        f"tl.store(out_ptrs, acc.to(out_ptr.dtype.element_ty){_inside(spec, ', mask=', '')})",
    ]
    return function(f"{spec.name}_join", signature, lines)


def _inside(spec: AttentionSpec, before: str, spread: str) -> str:
    """The condition on the dimensions of values, where these are padded."""
    return "" if whole_operand("v", spec) else f"{before}(value_dims{spread} < E)"


def _launch(spec: AttentionSpec, schedule: GemmSchedule) -> list[str]:
    q, k, v, out, over = spec.q, spec.k, spec.v, spec.out, over_scores(spec).values()
    name, block_t, block_s = spec.name, schedule["BLOCK_T"], schedule["BLOCK_S"]
    programs = schedule["PROGRAMS"]
    width, keys = spec.value_size or str(spec.value_dim), f"{k}.shape[2]"
    pairs, group, rows, tiles, parts, span = (
        f"{name}_{item}" for item in ("pairs", "group", "rows", "tiles", "parts", "span")
    )
    best, total, acc = (f"{name}_{item}" for item in ("best", "total", "acc"))
    made = f"device={out}.device, dtype=torch.float32)"
    lines = [
        f"{pairs} = {k}.shape[0] * {k}.shape[1]",
        f"{group} = {q}.shape[1] // {k}.shape[1]",
        f"{rows} = {group} * {q}.shape[2]",
        f"{tiles} = {pairs} * ({tiles_text(rows, block_t)})",
        f"{parts} = min({programs} // {tiles}, {tiles_text(keys, block_s)}, {MOST_PARTS})",
        f"{span} = -(-{keys} // (max(1, {parts}) * {block_s})) * {block_s}",
        f"{parts} = -(-{keys} // {span})",
        f"{best} = torch.empty(({pairs}, {parts}, {rows}), {made}",
        f"{total} = torch.empty(({pairs}, {parts}, {rows}), {made}",
        f"{acc} = torch.empty(({pairs}, {parts}, {rows}, {width}), {made}",
    ]
    sizes = [f"{k}.shape[1]", group, f"{q}.shape[2]"]
    scale = log2_scale(spec)
    arguments = [
        q, k, v, *over, best, total, acc, *sizes, keys, parts, span, scale,
        *stride_values(q, 3), *stride_values(k, 3), *stride_values(v, 3),
        *(item for tensor in over for item in stride_values(tensor, 4)),
    ]  # fmt: skip
    value = [f"E={width}", f"BLOCK_E={padded_text(spec.value_size, spec.value_dim)}"]
    options = [
        f"EVEN_S={keys} % {block_s} == 0", f"D={spec.head_size or spec.head_dim}",
        f"BLOCK_D={padded_text(spec.head_size, spec.head_dim)}", *value,
        *(f"{key}={schedule[key]}" for key in ("BLOCK_T", "BLOCK_S", "num_warps", "num_stages")),
    ]  # fmt: skip
    joined = [
        best, total, acc, out, *sizes, parts, *([scale] if scale_folded(spec) else []),
        *stride_values(out, 3),
    ]  # fmt: skip
    blocks = [*value, f"BLOCK_P=1 << ({parts} - 1).bit_length()", "num_warps=4"]
    return [
        *lines,
        *call_lines(name, f"{tiles} * {parts},", arguments, options),
        *call_lines(f"{name}_join", f"{pairs} * {rows},", joined, blocks),
    ]
