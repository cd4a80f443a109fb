"""Library calls: products by cuBLAS, convolutions by cuDNN, attention by SDPA, and any other ATen
operator of the graph."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import fx

from agentkernel.compiler.attention import SDPA, scale_text, sdpa_text
from agentkernel.compiler.attention_match import ATTENTION_OP, AttentionMatch
from agentkernel.compiler.convolutions.step import geometry_of, multiplied
from agentkernel.compiler.drop_in.forward import Forward
from agentkernel.compiler.expressions import Symbols, tensor_text
from agentkernel.compiler.fusion import LibraryStep, Output
from agentkernel.compiler.ir import Node, UnsupportedOp
from agentkernel.compiler.lowering.convolutions import (
    CHANNELS_LAST,
    channels_to_last,
    channels_to_second,
)
from agentkernel.compiler.lowering.registry import tensor_operands
from agentkernel.compiler.providers.protocol import (
    LAUNCH_US,
    AnySchedule,
    Setting,
    convolution_us,
    moved_us,
    product_us,
)

FUNCTIONS = {
    "aten.conv1d.default": "torch.nn.functional.conv1d",
    "aten.conv2d.default": "torch.nn.functional.conv2d",
    "aten.conv3d.default": "torch.nn.functional.conv3d",
    "aten.conv2d.padding": "torch.nn.functional.conv2d",
    "aten.conv3d.padding": "torch.nn.functional.conv3d",
    "aten.conv_transpose1d.default": "torch.nn.functional.conv_transpose1d",
    "aten.conv_transpose2d.input": "torch.nn.functional.conv_transpose2d",
    "aten.conv_transpose3d.input": "torch.nn.functional.conv_transpose3d",
    "aten.linear.default": "torch.nn.functional.linear",
    "aten.matmul.default": "torch.matmul",
    "aten.mm.default": "torch.mm",
    "aten.bmm.default": "torch.bmm",
    "aten.addmm.default": "torch.addmm",
    "aten.baddbmm.default": "torch.baddbmm",
    "aten.scaled_dot_product_attention.default": SDPA,
}
"""Products, convolutions and attention, which policy `mixed` allows whatever the module calls."""


class Library:
    """Provider of calls into PyTorch's libraries."""

    own = False

    def schedules(self, step: LibraryStep, setting: Setting) -> Sequence[AnySchedule]:
        """One, without constants."""
        return ({},)

    def write(
        self, step: LibraryStep, schedule: AnySchedule, forward: Forward, outputs: Sequence[Output]
    ) -> None:
        """Write the call. What kernels read of its results is made contiguous: a library chooses
        its own layout, channels-last among others."""
        node = step.node
        call = library_call(node, forward)
        if not step.parts:
            if node in step.read_by_kernels and CHANNELS_LAST not in node.attrs:
                call += ".contiguous()"
            forward.buffers[node] = forward.names.unique(node.name)
            forward.lines.append(f"{forward.buffers[node]} = {call}")
            return
        for part in step.parts:
            forward.buffers[part] = forward.names.unique(part.name)
        forward.lines.append(f"{_unpacked(step, forward.buffers)} = {call}")
        names = [forward.buffers[part] for part in step.parts if part in step.read_by_kernels]
        forward.lines += [f"{name} = {name}.contiguous()" for name in names]

    def work_us(self, step: LibraryStep, symbols: Symbols) -> float:
        """The multiplications of a product or a convolution, of which cuDNN turns picture and
        result to channels-last and back; of any other call what goes in and out."""
        node = step.node
        moved = moved_us((*node.args, *(step.parts or (node,))), symbols)
        if node.op == "product":
            return LAUNCH_US + max(moved, product_us(node, symbols))
        geometry = geometry_of(node)
        if geometry is None or geometry.is_depthwise:
            return LAUNCH_US + moved
        flops = multiplied(node, geometry, symbols)
        turned = 2 * moved_us((node.args[0], node), symbols)
        return LAUNCH_US + turned + max(moved, convolution_us(flops, node.dtype))

    def pattern(self, step: LibraryStep) -> str:
        """The operator."""
        return step.node.op


def _unpacked(step: LibraryStep, buffers: Mapping[Node, str]) -> str:
    """The targets of a call with several results; what nobody reads is `_`."""
    call = step.node.attrs[0]
    assert isinstance(call, fx.Node)
    read = {part.attrs[0]: buffers[part] for part in step.parts}
    return ", ".join(read.get(index, "_") for index in range(len(call.meta["val"])))


def library_call(node: Node, forward: Forward) -> str:
    """The call as Python. Raises UnsupportedOp for one that draws random numbers or writes to its
    operands."""
    buffers, symbols = forward.buffers, forward.symbols
    if node.op == "product":
        a, b = (tensor_text(arg, buffers, symbols) for arg in node.args)
        return f"torch.matmul({a}, {b})"
    if node.op == ATTENTION_OP:
        return _attention_call(node, buffers, symbols)
    reason = refusal(node)
    if reason is not None:
        raise UnsupportedOp(node.op, reason)
    call = node.attrs[0]
    assert isinstance(call, fx.Node)
    tensors = {
        operand: tensor_text(arg, buffers, symbols)
        for operand, arg in zip(tensor_operands(call), node.args, strict=True)
    }
    last = CHANNELS_LAST in node.attrs
    if last:
        places = ", ".join(map(str, channels_to_second(len(node.shape))))
        tensors[tensor_operands(call)[0]] += f".permute({places})"
    writer = ArgumentTexts(tensors, symbols, forward.device)
    args = [writer.text(item) for item in call.args]
    args += [f"{key}={writer.text(item)}" for key, item in call.kwargs.items()]
    function = FUNCTIONS.get(node.op, f"torch.ops.{node.op}")
    made = f"{function}({', '.join(args)})"
    if last:
        places = ", ".join(map(str, channels_to_last(len(node.shape))))
        made = f"{made}.permute({places}).contiguous()"
    return made


def refusal(node: Node) -> str | None:
    """Why no drop-in may make a library call; None where it may."""
    if node.op in ("product", ATTENTION_OP):
        return None
    call = node.attrs[0]
    assert isinstance(call, fx.Node)
    tags = getattr(call.target, "tags", ())
    if torch.Tag.nondeterministic_seeded in tags and not _without_dropout(call):
        return "it draws random numbers"
    schema = getattr(call.target, "_schema", None)
    if schema is None or schema.is_mutable or not node.op.startswith("aten."):
        return "no template, and no functional ATen operator"
    return None


def _without_dropout(call: fx.Node) -> bool:
    """True for attention without dropout, and for a recurrent layer in eval mode or without it."""
    schema = call.target._schema  # type: ignore[union-attr]
    names = [item.name for item in schema.arguments]
    given = dict(zip(names, call.args, strict=False)) | dict(call.kwargs)
    if "dropout_p" in names:
        return bool(given.get("dropout_p", 0.0) == 0.0)
    if "dropout" not in names or "train" not in names:
        return False
    return given.get("dropout") == 0 or given.get("train") is False


def _attention_call(node: Node, buffers: Mapping[Node, str], symbols: Symbols) -> str:
    """SDPA on the operands of an attention node. Raises UnsupportedOp for a mask of which SDPA
    makes something else than the graph does."""
    match = node.attrs[0]
    assert isinstance(match, AttentionMatch)
    q, k, v, *mask = (tensor_text(arg, buffers, symbols) for arg in node.args)
    if mask:
        nan = match.mask_kind == "bool" and match.empty_rows == "nan"
        if match.mask_kind == "drop" or nan or match.bias is not None:
            raise UnsupportedOp(ATTENTION_OP, "SDPA has no mask of this kind")
    scale = scale_text(match, q, symbols) if match.scale is not None else None
    return sdpa_text(
        (q, k, v), mask[0] if mask else None, scale, causal=match.causal, grouped=match.grouped
    )


@dataclass(frozen=True)
class ArgumentTexts:
    """The arguments of a call as Python: `tensors` by their names, what is made on `device`."""

    tensors: Mapping[fx.Node, str]
    symbols: Symbols
    device: str

    def text(self, value: object) -> str:
        """An argument: a tensor, a list of arguments, a number, or a setting such as a dtype."""
        if isinstance(value, fx.Node):
            if value in self.tensors:
                return self.tensors[value]
            return self.text(value.meta.get("val"))
        if isinstance(value, list | tuple):
            return f"[{', '.join(self.text(item) for item in value)}]"
        if isinstance(value, torch.SymInt):
            return self.symbols.wrapper(value.node.expr)
        if isinstance(value, torch.SymFloat | torch.SymBool):
            raise UnsupportedOp("sym_float", "a float computed from sizes")
        if isinstance(value, torch.device):
            return self.device
        if isinstance(value, float) and not math.isfinite(value):
            return f'float("{value}")'
        return repr(value)
