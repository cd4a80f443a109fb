"""How is a call that stays with the library written in the wrapper?"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import fx

from agentkernel.compiler.ir import Node, UnsupportedOp
from agentkernel.compiler.sizes import Symbols

CALLS = {
    "aten.conv1d.default": "torch.nn.functional.conv1d",
    "aten.conv2d.default": "torch.nn.functional.conv2d",
    "aten.conv3d.default": "torch.nn.functional.conv3d",
    "aten.conv2d.padding": "torch.nn.functional.conv2d",
    "aten.conv_transpose1d.default": "torch.nn.functional.conv_transpose1d",
    "aten.conv_transpose2d.input": "torch.nn.functional.conv_transpose2d",
    "aten.conv_transpose3d.input": "torch.nn.functional.conv_transpose3d",
    "aten.linear.default": "torch.nn.functional.linear",
    "aten.matmul.default": "torch.matmul",
    "aten.mm.default": "torch.mm",
    "aten.bmm.default": "torch.bmm",
    "aten.addmm.default": "torch.addmm",
    "aten.baddbmm.default": "torch.baddbmm",
}
"""Library calls that policy `mixed` knows."""


def library_call(node: Node, buffers: Mapping[Node, str], symbols: Symbols) -> str:
    """The call as Python. Raises Uncovered for an operation that `mixed` does not allow."""
    if node.op == "product":
        a, b = (tensor_text(arg, buffers, symbols) for arg in node.args)
        return f"torch.matmul({a}, {b})"
    function = CALLS.get(node.op)
    if function is None:
        raise UnsupportedOp(node.op, "no template, and not among the allowed library calls")
    call = node.attrs[0]
    assert isinstance(call, fx.Node)
    tensors = dict(zip(call.all_input_nodes, node.args, strict=False))
    args = [_argument(item, tensors, buffers, symbols) for item in call.args]
    args += [
        f"{key}={_argument(item, tensors, buffers, symbols)}" for key, item in call.kwargs.items()
    ]
    return f"{function}({', '.join(args)})"


def _argument(
    value: object, tensors: Mapping[fx.Node, Node], buffers: Mapping[Node, str], symbols: Symbols
) -> str:
    if isinstance(value, fx.Node):
        if value in tensors and isinstance(value.meta.get("val"), torch.Tensor):
            return tensor_text(tensors[value], buffers, symbols)
        return _number(value.meta.get("val"), symbols)
    if isinstance(value, list | tuple):
        return f"[{', '.join(_argument(item, tensors, buffers, symbols) for item in value)}]"
    return _number(value, symbols)


def _number(value: object, symbols: Symbols) -> str:
    return symbols.wrapper(value.node.expr) if isinstance(value, torch.SymInt) else repr(value)


def tensor_text(node: Node, buffers: Mapping[Node, str], symbols: Symbols) -> str:
    """A stored value, or a view of one, as Python."""
    if node in buffers:
        return buffers[node]
    if node.kind != "view":
        raise UnsupportedOp(node.op, "a library call on a value that is not stored")
    below = tensor_text(node.args[0], buffers, symbols)
    sizes = ", ".join(symbols.wrapper(size) for size in node.shape)
    if node.op == "slice":
        axis, start, step = node.attrs
        assert isinstance(axis, int)
        first = symbols.wrapper(start)
        last = f"{first} + {symbols.wrapper(node.shape[axis])} * {step}"
        return f"{below}[{':, ' * axis}{first}:{last}:{step}]"
    if node.op == "permute":
        return f"{below}.permute({', '.join(str(item) for item in node.attrs)})"
    return f"{below}.{node.op}({sizes})"
