"""Which attention takes our own kernel, and how is it launched from the drop-in?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import sympy

from agentkernel.compiler.attention import AttentionFacts, AttentionSpec, emit_attention
from agentkernel.compiler.attention_match import AttentionMatch
from agentkernel.compiler.attention_node import ATTENTION_OP
from agentkernel.compiler.emit import Names
from agentkernel.compiler.fusion import LibraryStep, Partition
from agentkernel.compiler.ir import Expr, Node, numel, same
from agentkernel.compiler.kernel import KernelCode
from agentkernel.compiler.library import tensor_text
from agentkernel.compiler.products.anchors import FLOATS
from agentkernel.compiler.sizes import Symbols
from agentkernel.domain.rules import Precision


@dataclass(frozen=True, eq=False)
class AttentionStep:
    """softmax(scale * q @ k^T [+ mask]) @ v as one kernel; `node` reads q, k, v and the mask."""

    node: Node

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
    steps = tuple(
        AttentionStep(step.node)
        if isinstance(step, LibraryStep) and step.node.op == ATTENTION_OP
        else step
        for step in partition.steps
    )
    return Partition(steps, partition.outputs)  # type: ignore[arg-type]


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
    )


def emit_attention_step(
    step: AttentionStep, schedule: dict[str, int], name: str, out: str,
    buffers: Mapping[Node, str], symbols: Symbols, precision: Precision, reserved: Names,
) -> KernelCode:  # fmt: skip
    """The kernel, and the wrapper's lines that name its operands and launch it."""
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
    mask = None
    if match.mask is not None:
        mask = reserved.unique("scores_mask")
        text = tensor_text(step.node.args[3], buffers, symbols)
        keys = f"{q}.shape[0], {q}.shape[1], {q}.shape[2], {k}.shape[2]"
        lines.append(f"{mask} = {text}.expand({keys})")
    head, value = step.node.args[0].shape[-1], step.node.args[2].shape[-1]
    spec = AttentionSpec(
        name=name, q=q, k=k, v=v, out=out,
        scale=_scale_text(match, q, symbols),
        dtype=FLOATS[step.node.dtype], head_dim=symbols.hint(head),
        value_dim=symbols.hint(value), head_size=_size(head, f"{q}.shape[3]"),
        value_size=_size(value, f"{v}.shape[3]"), causal=match.causal, mask=mask,
        mask_kind=match.mask_kind, empty_rows=match.empty_rows, precision=precision,
        rising=_rising(match),
    )  # fmt: skip
    text_ = emit_attention(spec, schedule)
    return KernelCode(text_.source, text_.kernels, text_.launch, text_.helpers, tuple(lines))


def _scale_text(match: AttentionMatch, q: str, symbols: Symbols) -> str:
    """The wrapper's expression of what multiplies the scores."""
    if match.scale is None:
        return f"{q}.shape[3] ** -0.5"
    if isinstance(match.scale, float):
        return repr(match.scale)
    names = {item: sympy.Symbol(symbols.name(item)) for item in match.scale.free_symbols}
    return str(match.scale.subs(names))


def _rising(match: AttentionMatch) -> bool:
    """True where the scale is known to be positive."""
    return match.scale is None or (isinstance(match.scale, float) and match.scale > 0)


def _size(size: Expr, reading: str) -> str | None:
    """The wrapper's expression of a size that is free, None for a fixed one."""
    return None if size.is_number else reading


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


__all__ = [
    "AttentionStep",
    "attention_facts",
    "emit_attention_step",
    "find_steps",
    "with_attention",
]
