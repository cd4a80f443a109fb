"""Attention as one Triton kernel by online softmax, its schedules, and its launch in a drop-in.

Scores, the running maximum and the sums are never stored (arXiv 1805.02867, arXiv 2205.14135).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import sympy

from agentkernel.compiler.attention_match import (
    ATTENTION_OP,
    HEADS_INSIDE,
    AttentionMatch,
    MaskKind,
)
from agentkernel.compiler.axes import contiguous_strides
from agentkernel.compiler.emit import Names
from agentkernel.compiler.expressions import Symbols, power_of_two_text, tensor_text, tiles_text
from agentkernel.compiler.fusion import LibraryStep, Partition
from agentkernel.compiler.ir import Node, Shape, numel, roots_of, same
from agentkernel.compiler.kernel import KernelCode
from agentkernel.compiler.products.gemm import dot_precision
from agentkernel.compiler.products.schedules import (
    ITEM_BYTES,
    Decision,
    FloatType,
    GemmSchedule,
    gemm_hints,
    prefer,
)
from agentkernel.compiler.products.spec import KernelText, call_lines, function
from agentkernel.compiler.products.step import FLOATS
from agentkernel.domain.target import Target
from agentkernel.domain.verdict import Precision

LOG2_E = 1.4426950408889634
Tile = tuple[int, int, int, int]
"""BLOCK_T, BLOCK_S, num_warps, num_stages."""
HALF_NARROW: tuple[Tile, ...] = (
    (128, 64, 4, 3), (128, 128, 8, 2), (128, 64, 8, 3), (64, 64, 4, 3), (64, 128, 4, 3),
    (128, 64, 4, 4), (128, 128, 8, 3), (64, 32, 4, 3),
)  # fmt: skip
HALF_WIDE: tuple[Tile, ...] = (
    (128, 64, 8, 3), (128, 128, 8, 2), (64, 64, 4, 3), (64, 128, 4, 2), (128, 64, 4, 2),
    (64, 64, 8, 2), (64, 32, 4, 3),
)  # fmt: skip
"""For wide heads or a mask, which cost the registers that four warps lack."""
FP32_NARROW: tuple[Tile, ...] = (
    (64, 32, 4, 2), (128, 32, 8, 2), (64, 64, 8, 2), (64, 64, 4, 2), (32, 32, 4, 2),
    (32, 16, 4, 1),
)  # fmt: skip
FP32_WIDE: tuple[Tile, ...] = (
    (128, 32, 8, 2), (64, 32, 4, 2), (64, 32, 8, 2), (32, 32, 4, 2), (32, 16, 4, 1),
)  # fmt: skip


SDPA = "torch.nn.functional.scaled_dot_product_attention"


def sdpa_text(
    operands: Sequence[str], mask: str | None, scale: str | None, *, causal: bool, grouped: bool
) -> str:
    """The library's call on query, key and value, as Python."""
    arguments = [*operands]
    arguments += [f"attn_mask={mask}"] if mask is not None else []
    arguments += ["is_causal=True"] if causal else []
    arguments += [f"scale={scale}"] if scale is not None else []
    arguments += ["enable_gqa=True"] if grouped else []
    return f"{SDPA}({', '.join(arguments)})"


@dataclass(frozen=True)
class AttentionSpec:
    """softmax(scale * q @ k^T [+ mask]) @ v, by online softmax (arXiv 1805.02867, 2205.14135).

    `q`, `k`, `v`, `out` and `mask` are names of tensors in the wrapper: q [B, H, T, D],
    k [B, G, S, D], v [B, F, S, E], out [B, H, T, E]; H a multiple of G and F. Inner strides
    are 1, the others free. `mask` is expanded to [B, H, T, S] with any strides: "add" adds it to
    the scores, "bool" keeps what is True, "drop" drops it; `fill` stands for a score that a mask
    takes out, and is a score like any other where it is finite; `bias`, expanded alike, is added
    before. `causal` keeps key <= query, both counted from 0. `scale` is a wrapper expression. A row
    with nothing kept gives NaN, or 0 with `empty_rows="zero"`, as SDPA does.
    """

    name: str
    q: str
    k: str
    v: str
    out: str
    scale: str
    dtype: FloatType
    head_dim: int
    value_dim: int
    causal: bool = False
    mask: str | None = None
    mask_kind: MaskKind = "add"
    bias: str | None = None
    empty_rows: Literal["nan", "zero"] = "nan"
    head_size: str | None = None
    """The wrapper's expression of a head dimension that is free; None where `head_dim` is it."""
    value_size: str | None = None
    fill: float = -math.inf
    rising: bool = False
    """True where `scale` is known to be positive: the largest product is the largest score."""
    precision: Precision = "strict"
    vendor: Literal["nvidia", "amd"] = "nvidia"


@dataclass(frozen=True)
class AttentionFacts:
    """What decides the schedule: sizes as in AttentionSpec, `heads` = B * H."""

    heads: int
    queries: int
    keys: int
    head_dim: int
    value_dim: int
    dtype: FloatType
    masked: bool = False
    group: int = 1
    """Heads of queries for each head of keys and values; 0 where these have different counts."""
    causal: bool = False


def emit_attention(spec: AttentionSpec, schedule: GemmSchedule) -> KernelText:
    """The kernel under a schedule of BLOCK_T, BLOCK_S, num_warps and num_stages.

    Scores, the running maximum and sum, and the output stay in fp32 registers; fp32 operands are
    multiplied as `precision` asks (three TF32 products under "strict").
    """
    helpers = frozenset(("exp",) if exact_exp(spec) else ())
    return KernelText(_source(spec), (spec.name,), tuple(_launch(spec, schedule)), helpers)


def attention_schedules(
    facts: AttentionFacts, target: Target, decision: Decision = lambda _: None
) -> list[GemmSchedule]:
    """Schedules that fit the shared memory, those that fill the SMs first, hinted ones before."""
    fitting = [
        (tile, depth)
        for tile in _tiles(facts)
        if (depth := _depth(tile, facts, target.shared_kb_per_block.value)) is not None
    ]
    found = [
        {"BLOCK_T": tile[0], "BLOCK_S": tile[1], "num_warps": tile[2], "num_stages": depth}
        for tile, depth in fitting
    ]

    def small_if_idle(schedule: GemmSchedule) -> int:
        programs = facts.heads * -(-facts.queries // schedule["BLOCK_T"])
        return schedule["BLOCK_T"] if programs < target.sm_count.value else 0

    wanted = gemm_hints(facts.dtype, decision, "attention")
    return prefer(sorted(found, key=small_if_idle), wanted)


def _tiles(facts: AttentionFacts) -> tuple[Tile, ...]:
    wide = facts.masked or max(facts.head_dim, facts.value_dim) > 64
    if facts.dtype == "float32":
        return FP32_WIDE if wide else FP32_NARROW
    return HALF_WIDE if wide else HALF_NARROW


def _depth(tile: Tile, facts: AttentionFacts, shared_kb: float) -> int | None:
    """The stages that fit: queries lie in shared memory once, keys and values once a stage."""
    block_t, block_s, _, stages = tile
    head, value = padded(facts.head_dim), padded(facts.value_dim)
    for depth in range(stages, 0, -1):
        items = block_t * head + block_s * (head + value) * depth
        if items * ITEM_BYTES[facts.dtype] <= 1024 * shared_kb:
            return depth
    return None


def _source(spec: AttentionSpec) -> str:
    over = over_scores(spec)
    signature = [
        "q_ptr", "k_ptr", "v_ptr", *(f"{name}_ptr" for name in over), "out_ptr",
        "HEADS", "K_GROUP", "V_GROUP", "T", "S", "scale",
        *stride_names("q", 3), *stride_names("k", 3), *stride_names("v", 3),
        *(item for name in over for item in stride_names(name, 4)), *stride_names("out", 3),
        *(f"{name}: tl.constexpr" for name in ("EVEN_S", "D", "E", "BLOCK_D", "BLOCK_E")),
        "BLOCK_T: tl.constexpr", "BLOCK_S: tl.constexpr",
    ]  # fmt: skip
    term = "".join(f" + {name}" for name in reversed(over))
    lines = [
        f'"""softmax(scale * q @ k^T{term}) @ v, BLOCK_T queries a program."""',
        *_program(spec),
        *_pointers(spec),
        *_loop(spec),
        *_end(spec),
    ]
    return function(spec.name, signature, lines)


def over_scores(spec: AttentionSpec) -> dict[str, str]:
    """What is read for each score: the wrapper's names, by the kernel's."""
    return {name: tensor for name, tensor in (("mask", spec.mask), ("bias", spec.bias)) if tensor}


def _program(spec: AttentionSpec) -> list[str]:
    tile = "program % tiles"
    lines = [
        *scale_lines(),
        "program = tl.program_id(0)",
        "tiles = tl.cdiv(T, BLOCK_T)",
    ]
    if spec.causal:
        lines.append("# The last queries see the most keys: they start first.")
        tile = "tiles - 1 - program % tiles"
    return [
        *lines,
        f"tile = {tile}",
        "batch = (program // tiles // HEADS).to(tl.int64)",
        "head = (program // tiles % HEADS).to(tl.int64)",
        "rows = tile * BLOCK_T + tl.arange(0, BLOCK_T)",
        "keys = tl.arange(0, BLOCK_S)",
        "dims = tl.arange(0, BLOCK_D)",
        "value_dims = tl.arange(0, BLOCK_E)",
        "# Rows past the end wrap around; what they yield is never stored.",
        "inside_rows = (rows % T).to(tl.int64)",
    ]


def scale_lines() -> list[str]:
    """What makes the scale fp32."""
    return [
        "# In a compiled model a float comes as fp64, and all that it meets would become fp64.",
        "scale = tl.full((), scale, tl.float32)",
    ]


def _pointers(spec: AttentionSpec) -> list[str]:
    lines = [
        "q_ptr += batch * stride_q0 + head * stride_q1",
        "k_ptr += batch * stride_k0 + head // K_GROUP * stride_k1",
        "v_ptr += batch * stride_v0 + head // V_GROUP * stride_v1",
        "out_ptr += batch * stride_out0 + head * stride_out1",
        "q_ptrs = q_ptr + inside_rows[:, None] * stride_q2 + dims[None, :]",
        *key_places(),
    ]
    for name in over_scores(spec):
        lines += [
            f"{name}_ptr += batch * stride_{name}0 + head * stride_{name}1",
            f"{name}_rows = {name}_ptr + inside_rows[:, None] * stride_{name}2",
        ]
    return [*lines, load_queries(spec), ""]


def key_places() -> list[str]:
    """Where a tile's keys and values lie, from pointers that move on.

    A tile of pointers that all moved on took a register pair for each element where a second loop
    went on with them: 174 additions and 47 spilled registers in a loop of 630 instructions
    (128 x 64 scores of bf16, heads of 128, sm_90; 378 and none so).
    """
    return [
        "k_places = keys[None, :].to(tl.int64) * stride_k2 + dims[:, None]",
        "v_places = keys[:, None].to(tl.int64) * stride_v2 + value_dims[None, :]",
    ]


def load_queries(spec: AttentionSpec) -> str:
    """The line that loads the tile of queries."""
    mask = "" if whole_operand("k", spec) else ", mask=dims[None, :] < D, other=0.0"
    return f"q = tl.load(q_ptrs{mask}){operand_cast(spec)}"


def _loop(spec: AttentionSpec) -> list[str]:
    lines = [
        'best = tl.full((BLOCK_T,), float("-inf"), dtype=tl.float32)',
        "total = tl.zeros((BLOCK_T,), dtype=tl.float32)",
        "acc = tl.zeros((BLOCK_T, BLOCK_E), dtype=tl.float32)",
    ]
    if not spec.causal:
        return [*lines, "for start in range(0, S, BLOCK_S):", *keys_tile(spec, "EVEN_S", False)]
    return [
        *lines,
        "# Keys that all queries of the tile see, then those on the diagonal.",
        "seen_by_all = tl.minimum(S, tile * BLOCK_T) // BLOCK_S * BLOCK_S",
        "for start in range(0, seen_by_all, BLOCK_S):",
        *keys_tile(spec, None, False),
        "for start in range(seen_by_all, tl.minimum(S, (tile + 1) * BLOCK_T), BLOCK_S):",
        *keys_tile(spec, "EVEN_S", True),
    ]


def keys_tile(spec: AttentionSpec, even: str | None, diagonal: bool) -> list[str]:
    """One tile of keys; `even` names the constant that says that no tile sticks out."""
    option, odd, folded = _dot_option(spec), even is not None, scale_folded(spec)
    product = f"tl.dot(q, k{option})"
    added = _added(spec)
    lines = [
        *(["inside = start + keys < S"] if odd else []),
        *_over_scores(spec, odd),
        *_load_operand("k", "dims[:, None] < D", "inside[None, :]", spec, even),
        f"scores = {product}" if folded else f"scores = tl.fma({product}, scale, {added[0]})",
        *(f"scores += {item}" for item in added[1:]),
        *_masking(spec, odd, diagonal),
        "new_best = tl.maximum(best, tl.max(scores, axis=1))",
        "# A row with nothing kept so far has no maximum to subtract.",
        'shift = tl.where(new_best == float("-inf"), 0.0, new_best)',
        f"weights = {power_text(spec, 'scores - shift[:, None]')}",
        f"decay = {power_text(spec, 'best - shift')}",
        "total = total * decay + tl.sum(weights, axis=1)",
        *_load_operand("v", "value_dims[None, :] < E", "inside[:, None]", spec, even),
        f"acc = tl.dot({_weights(spec)}, v, acc * decay[:, None]{option})",
        "best = new_best",
        "k_ptr += BLOCK_S * stride_k2",
        "v_ptr += BLOCK_S * stride_v2",
    ]
    return [*(f"    {line}" for line in lines), ""]


def power_text(spec: AttentionSpec, difference: str) -> str:
    """The exponential of a difference of scores, in the units in which these are kept.

    The difference is taken before the scale is applied: a fused multiply-subtract of large scores
    would leave the rounding error of the maximum in the exponent.
    """
    exp = "exp" if exact_exp(spec) else "tl.exp2"
    if scale_folded(spec):
        return f"{exp}(({difference}) * scale)"
    if _plain_units(spec) and not exact_exp(spec):
        return f"{exp}(({difference}) * {LOG2_E!r})"
    return f"{exp}({difference})"


def _load_operand(
    name: str, dim_mask: str, key_mask: str, spec: AttentionSpec, even: str | None
) -> list[str]:
    """Load a tile of keys or values, masked only where it can stick out."""
    free, whole = _free(name, spec), whole_operand(name, spec)
    size, block = ("D", "BLOCK_D") if name == "k" else ("E", "BLOCK_E")
    conditions = [*([even] if even else []), *([f"{size} == {block}"] if free else [])]
    cast = operand_cast(spec)
    plain = "" if whole or free else f", mask={dim_mask}, other=0.0"
    masks = [*([key_mask] if even else []), *([] if whole else [f"({dim_mask})"])]
    load = f"{name} = tl.load({name}_ptr + {name}_places"
    if not conditions:
        return [f"{load}{plain}){cast}"]
    return [
        f"if {' and '.join(conditions)}:",
        f"    {load}{plain}){cast}",
        "else:",
        f"    {load}, mask={' & '.join(masks)}, other=0.0){cast}",
    ]


def _free(name: str, spec: AttentionSpec) -> bool:
    return (spec.value_size if name == "v" else spec.head_size) is not None


def whole_operand(name: str, spec: AttentionSpec) -> bool:
    """True where the dimension is fixed and a power of two: nothing is padded."""
    size = spec.value_dim if name == "v" else spec.head_dim
    return not _free(name, spec) and padded(size) == size


def _over_scores(spec: AttentionSpec, odd: bool) -> list[str]:
    """Loads of what is read for each score. Before the product: where they come after it, Triton
    keeps the sum of a row in their layout and does all of the softmax in both (822 instructions a
    tile for 617: 128 x 64 scores of fp16, heads of 64, sm_90)."""
    guard = ", mask=inside[None, :], other=0" if odd else ""
    return [f"{name} = tl.load({_at_keys(name)}{guard})" for name in over_scores(spec)]


def _added(spec: AttentionSpec) -> list[str]:
    """What is added to the scaled scores; 0.0 where that is nothing: a product that is no sum may
    be joined to the subtraction of the maximum."""
    adds = {"bias": spec.bias, "mask": spec.mask if spec.mask_kind == "add" else None}
    return [f"{name}.to(tl.float32)" for name, tensor in adds.items() if tensor] or ["0.0"]


def _masking(spec: AttentionSpec, odd: bool, diagonal: bool) -> list[str]:
    lines: list[str] = []
    if spec.mask is not None and spec.mask_kind != "add":
        kept = "mask != 0" if spec.mask_kind == "bool" else "mask == 0"
        fill = 'float("-inf")' if spec.fill == -math.inf else repr(spec.fill)
        lines.append(f"scores = tl.where({kept}, scores, {fill})")
    if diagonal:
        lines.append("seen = start + keys[None, :] <= rows[:, None]")
        lines.append('scores = tl.where(seen, scores, float("-inf"))')
    if not odd:
        return lines
    return [
        *lines,
        "if not EVEN_S:",
        '    scores = tl.where(inside[None, :], scores, float("-inf"))',
    ]


def _at_keys(name: str) -> str:
    """The places of a tile over the scores. They are made anew for every tile: pointers carried
    from one to the next would take two registers an element."""
    return f"{name}_rows + (start + keys[None, :]).to(tl.int64) * stride_{name}3"


def _end(spec: AttentionSpec) -> list[str]:
    dims = "" if whole_operand("v", spec) else " & (value_dims[None, :] < E)"
    return [
        *empty_rows_kept(spec),
        "acc = acc / total[:, None]",
        "out_ptrs = out_ptr + rows[:, None].to(tl.int64) * stride_out2 + value_dims[None, :]",
        f"kept = (rows[:, None] < T){dims}",
        "tl.store(out_ptrs, acc.to(out_ptr.dtype.element_ty), mask=kept)",
    ]


def empty_rows_kept(spec: AttentionSpec) -> list[str]:
    """What makes rows without a key zeros, where they are to be."""
    return ["total = tl.where(total == 0.0, 1.0, total)"] if spec.empty_rows == "zero" else []


def _launch(spec: AttentionSpec, schedule: GemmSchedule) -> list[str]:
    q, k, v, out, over = spec.q, spec.k, spec.v, spec.out, over_scores(spec).values()
    tiles = tiles_text(f"{q}.shape[2]", schedule["BLOCK_T"])
    grid = f"{tiles} * {q}.shape[0] * {q}.shape[1],"
    arguments = [
        q, k, v, *over, out,
        f"{q}.shape[1]", f"{q}.shape[1] // {k}.shape[1]",
        f"{q}.shape[1] // {v}.shape[1]", f"{q}.shape[2]", f"{k}.shape[2]",
        log2_scale(spec), *stride_values(q, 3), *stride_values(k, 3), *stride_values(v, 3),
        *(item for name in over for item in stride_values(name, 4)), *stride_values(out, 3),
    ]  # fmt: skip
    options = [
        f"EVEN_S={k}.shape[2] % {schedule['BLOCK_S']} == 0",
        f"D={spec.head_size or spec.head_dim}", f"E={spec.value_size or spec.value_dim}",
        f"BLOCK_D={padded_text(spec.head_size, spec.head_dim)}",
        f"BLOCK_E={padded_text(spec.value_size, spec.value_dim)}",
        *(f"{key}={schedule[key]}" for key in ("BLOCK_T", "BLOCK_S", "num_warps", "num_stages")),
    ]  # fmt: skip
    return call_lines(spec.name, grid, arguments, options)


def stride_names(tensor: str, count: int) -> list[str]:
    """A kernel's parameters of a tensor's outer strides."""
    return [f"stride_{tensor}{dim}" for dim in range(count)]


def stride_values(tensor: str, count: int) -> list[str]:
    """What a launch gives for them."""
    return [f"{tensor}.stride({dim})" for dim in range(count)]


def _dot_option(spec: AttentionSpec) -> str:
    if spec.dtype != "float32" or spec.precision == "bf16":
        return ""
    return f', input_precision="{dot_precision(spec.precision, spec.vendor)}"'


def operand_cast(spec: AttentionSpec) -> str:
    """What follows a load: fp32 operands are rounded where the precision allows it."""
    return ".to(tl.bfloat16)" if spec.dtype == "float32" and spec.precision == "bf16" else ""


def _weights(spec: AttentionSpec) -> str:
    return (
        "weights" if spec.dtype == "float32" and not operand_cast(spec) else "weights.to(v.dtype)"
    )


def exact_exp(spec: AttentionSpec) -> bool:
    """fp32 takes the exp that is right to one ulp; half types the hardware's power of two."""
    return spec.dtype == "float32"


def scale_folded(spec: AttentionSpec) -> bool:
    """True where the scale can wait until after the maximum: one multiplication an element less."""
    return spec.rising and not _valued(spec)


def _plain_units(spec: AttentionSpec) -> bool:
    """True where scores are kept as they are, and become powers of two once the maximum is taken
    off: the lowest number of a type times log2(e) would be -inf, and a row of it alone NaN."""
    return exact_exp(spec) or _valued(spec)


def _valued(spec: AttentionSpec) -> bool:
    """True where numbers of the mask are among the scores."""
    filled = spec.mask_kind == "add" or spec.fill != -math.inf
    return spec.bias is not None or (spec.mask is not None and filled)


def log2_scale(spec: AttentionSpec) -> str:
    """The scale, in units of log2(e) where scores are kept in them."""
    if _plain_units(spec):
        return spec.scale
    try:
        return repr(float(spec.scale) * LOG2_E)
    except ValueError:
        return f"{spec.scale} * {LOG2_E}"


def padded_text(free: str | None, size: int) -> str:
    """The padded size of a dimension, computed at run time where it is free."""
    return str(padded(size)) if free is None else f"max(16, {power_of_two_text(free)})"


def padded(size: int) -> int:
    """The next power of two, at least the 16 that a dot needs."""
    return max(16, 1 << (size - 1).bit_length())


@dataclass(frozen=True, eq=False)
class AttentionStep:
    """softmax(scale * q @ k^T [+ mask]) @ v as one kernel; `node` reads q, k, v, mask and bias."""

    node: Node
    heads_inside: bool = False
    """Whether the result lies as [B, T, H, D], since that is how everybody reads it."""

    @property
    def reads(self) -> tuple[Node, ...]:
        """What it reads, below all views."""
        return roots_of(self.node.args)

    @property
    def strides(self) -> Shape:
        """Elements from one position to the next along each dimension of the result."""
        if not self.heads_inside:
            return contiguous_strides(self.node.shape)
        batch, heads, rows, width = self.node.shape
        outer, row, head, inner = contiguous_strides((batch, rows, heads, width))
        return (outer, head, row, inner)

    @property
    def result(self) -> Node:
        """What it stores."""
        return self.node

    @property
    def match(self) -> AttentionMatch:
        """Where in the captured graph it stands."""
        found = self.node.attrs[0]
        assert isinstance(found, AttentionMatch)
        return found


def with_attention(partition: Partition) -> Partition:
    """Attention nodes as steps of their own."""
    return partition.with_calls(
        ATTENTION_OP, lambda step: AttentionStep(step.node, _heads_inside(step.node, partition))
    )


def _heads_inside(node: Node, partition: Partition) -> bool:
    """True where no generated kernel and no caller reads the result, and each library call or
    product reads it behind that permutation."""
    if len(node.shape) != 4 or any(output.node.root is node for output in partition.outputs):
        return False
    readers = [step for step in partition.steps if node in step.reads]
    if not all(isinstance(step, LibraryStep) for step in readers):
        return False
    operands = [arg for step in readers for arg in step.node.args if arg.root is node]  # type: ignore[union-attr]
    return all(_first_view(arg) == HEADS_INSIDE for arg in operands)


def _first_view(value: Node) -> tuple[object, ...]:
    """The permutation right above what is stored; () where there is none."""
    found: tuple[object, ...] = ()
    while value.kind == "view":
        found = value.attrs if value.op == "permute" else ()
        value = value.args[0]
    return found


def attention_facts(step: AttentionStep, symbols: Symbols) -> AttentionFacts:
    """What the choice of tiles rests on."""
    q, k, v = step.node.args[:3]
    return AttentionFacts(
        heads=symbols.hint(numel(q.shape[:-2])),
        queries=symbols.hint(q.shape[-2]),
        keys=symbols.hint(k.shape[-2]),
        head_dim=symbols.hint(q.shape[-1]),
        value_dim=symbols.hint(v.shape[-1]),
        dtype=FLOATS[q.dtype],
        masked=step.match.mask is not None,
        group=_group(step.node),
        causal=step.match.causal,
    )


def _group(node: Node) -> int:
    """Heads of queries for each head of keys, where values have as many of these."""
    q, k, v = (item.shape[-3] for item in node.args[:3])
    return int(q / k) if same(k, v) and (q / k).is_Integer else 0


def emit_attention_step(
    step: AttentionStep, emit: Callable[[AttentionSpec], KernelText], name: str, out: str,
    buffers: Mapping[Node, str], symbols: Symbols, precision: Precision, reserved: Names,
) -> KernelCode:  # fmt: skip
    """The kernels that `emit` writes, and the wrapper's lines that name their operands and launch
    them."""
    lines: list[str] = []
    flat = len(step.node.shape) == 3
    q, k, v = (
        _operand_text(node, wanted, flat, buffers, symbols, reserved, lines)
        for node, wanted in zip(step.node.args, ("query", "key", "value"), strict=False)
    )
    if flat:
        lines.append(f"{reserved.unique(f'{out}_heads')} = {out}.unsqueeze(0)")
        out = lines[-1].split(" = ")[0]
    match = step.match
    over: list[str] = []
    for item, wanted in zip(step.node.args[3:], ("scores_mask", "scores_bias"), strict=False):
        over.append(reserved.unique(wanted))
        text = tensor_text(item, buffers, symbols)
        keys = f"{q}.shape[0], {q}.shape[1], {q}.shape[2], {k}.shape[2]"
        lines.append(f"{over[-1]} = {text}.expand({keys})")
    head, value = step.node.args[0].shape[-1], step.node.args[2].shape[-1]
    spec = AttentionSpec(
        name=name, q=q, k=k, v=v, out=out,
        scale=scale_text(match, q, symbols),
        dtype=FLOATS[step.node.dtype], head_dim=symbols.hint(head),
        value_dim=symbols.hint(value), head_size=None if head.is_number else f"{q}.shape[3]",
        value_size=None if value.is_number else f"{v}.shape[3]", causal=match.causal,
        mask=over[0] if over else None, bias=over[1] if len(over) > 1 else None,
        mask_kind=match.mask_kind, empty_rows=match.empty_rows, precision=precision,
        fill=match.fill, rising=match.rising,
    )  # fmt: skip
    text_ = emit(spec)
    return KernelCode(text_.source, text_.kernels, text_.launch, text_.helpers, tuple(lines))


def scale_text(match: AttentionMatch, q: str, symbols: Symbols) -> str:
    """The wrapper's expression of what multiplies the scores."""
    if match.scale is None:
        return f"{q}.shape[3] ** -0.5"
    if isinstance(match.scale, float):
        return repr(match.scale)
    names = {item: sympy.Symbol(symbols.name(item)) for item in match.scale.free_symbols}
    return str(match.scale.subs(names))


def _operand_text(
    node: Node, wanted: str, flat: bool, buffers: Mapping[Node, str], symbols: Symbols,
    reserved: Names, lines: list[str],
) -> str:  # fmt: skip
    """A variable that holds [B, H, T, D] with inner stride 1."""
    text = tensor_text(node, buffers, symbols)
    if not _inner_lies_inside(node):
        text += ".contiguous()"
    if flat:
        text += ".unsqueeze(0)"
    if text.isidentifier():
        return text
    variable = reserved.unique(wanted)
    lines.append(f"{variable} = {text}")
    return variable


def _inner_lies_inside(node: Node) -> bool:
    """True where the last dimension of a chain of views has stride 1 in memory."""
    while node.kind == "view":
        last = len(node.shape) - 1
        below = node.args[0]
        if node.op == "permute" and node.attrs[-1] != last:
            return False
        if node.op == "slice" and node.attrs[0] == last and node.attrs[2] != 1:
            return False
        if node.op == "expand" and not same(node.shape[-1], below.shape[-1]):
            return False
        node = below
    return True


def find_steps(steps: Sequence[object]) -> list[AttentionStep]:
    """The attention among the steps of a partition."""
    return [step for step in steps if isinstance(step, AttentionStep)]
