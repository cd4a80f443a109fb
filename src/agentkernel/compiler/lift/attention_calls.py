"""Attention in a lifted file: PyTorch's library call, or a kernel of our own.

The scores lie in memory in neither.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from agentkernel.compiler.attention import AttentionSpec, emit_attention, sdpa_text
from agentkernel.compiler.attention_match import MaskKind
from agentkernel.compiler.emit import Names
from agentkernel.compiler.kernel import KernelCode
from agentkernel.compiler.products.schedules import FloatType, GemmSchedule
from agentkernel.domain.base import Frozen

OPERATOR = "torch.ops.agentkernel.attention.default"
"""The operator of `attention.py` as TorchInductor's wrapper calls it."""
OPERANDS = ("query", "key", "value", "mask", "bias")
"""Its tensors, in order."""
SMALL_TILES: Mapping[str, GemmSchedule] = {
    "float32": {"BLOCK_T": 32, "BLOCK_S": 16, "num_warps": 4, "num_stages": 1},
    "float16": {"BLOCK_T": 64, "BLOCK_S": 32, "num_warps": 4, "num_stages": 2},
    "bfloat16": {"BLOCK_T": 64, "BLOCK_S": 32, "num_warps": 4, "num_stages": 2},
}
"""They fit the shared memory of every card at 256 elements a head. What is faster is a segment's to
search for: this kernel is there for what could not be lifted without it."""


class AttentionForm(Frozen):
    """What attention computes beside its tensors, as an AttentionSpec says it; `dtype` is torch's
    name. `scale` None stands for 1 / sqrt(head_dim)."""

    dtype: str
    head_dim: int
    value_dim: int
    scale: float | None = None
    causal: bool = False
    grouped: bool = False
    mask_kind: MaskKind = "add"
    empty_rows: Literal["nan", "zero"] = "nan"
    fill: float = float("-inf")
    library: bool = False
    """Whether the module calls PyTorch's operator on four dimensions, as the file would. A row of
    NaN or of -inf alone is NaN where a module writes attention out, and where PyTorch does for
    other dimensions; its kernels may give 0."""


def sdpa_call(form: AttentionForm, given: Mapping[str, str]) -> str | None:
    """The library's call on these operands; None where its kernels may give something else."""
    if not form.library:
        return None
    operands = [given[name] for name in OPERANDS[:3]]
    scale = repr(form.scale) if form.scale is not None else None
    return sdpa_text(operands, given.get("mask"), scale, causal=form.causal, grouped=form.grouped)


def own_attention(
    form: AttentionForm, given: Mapping[str, str], out: str, name: str, names: Names
) -> KernelCode:
    """The kernel and what launches it. `given` are expressions of [B, H, T, D] whose last dimension
    has stride 1, and of what is broadcast over the scores; `out` is the variable of the result."""
    lines: list[str] = []

    def variable(operand: str, text: str) -> str:
        if text.isidentifier():
            return text
        made = names.unique(operand)
        lines.append(f"{made} = {text}")
        return made

    q, k, v = (variable(item, given[item]) for item in OPERANDS[:3])
    scores = f"{q}.shape[0], {q}.shape[1], {q}.shape[2], {k}.shape[2]"
    over = {
        item: variable(f"scores_{item}", f"{given[item]}.expand({scores})")
        for item in OPERANDS[3:]
        if item in given
    }
    scale = form.head_dim**-0.5 if form.scale is None else form.scale
    dtype: FloatType = form.dtype  # type: ignore[assignment]
    spec = AttentionSpec(
        name=name, q=q, k=k, v=v, out=out, scale=repr(scale), dtype=dtype,
        head_dim=form.head_dim, value_dim=form.value_dim, causal=form.causal,
        mask=over.get("mask"), bias=over.get("bias"), mask_kind=form.mask_kind,
        empty_rows=form.empty_rows, fill=form.fill, rising=scale > 0,
    )  # fmt: skip
    text = emit_attention(spec, SMALL_TILES[dtype])
    return KernelCode(text.source, text.kernels, text.launch, text.helpers, tuple(lines))
