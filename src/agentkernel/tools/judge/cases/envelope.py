"""Does a shape lie within what the capture covers, or does the reference take it by accident?

A module that splits a size may run on another one through broadcasting, with outputs of another
form than the captured graph's; nobody promised anything there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from agentkernel.domain.problem import ShapeSet, TensorSpec

if TYPE_CHECKING:
    from agentkernel.tools.problem.capture import Captured


def capture_covers(captured: Captured, inputs: ShapeSet, leaves: Sequence[object]) -> bool:
    """True where the reference's output shapes are the captured ones at these sizes."""
    import torch

    sizes: dict[str, int] = {}
    for item in captured.free_dims:
        spec = inputs.inputs[item.input_index]
        if isinstance(spec, TensorSpec):
            sizes[item.symbol] = spec.shape[item.dim]
    nodes = {node.name: node for node in captured.graph.graph.nodes}
    for name, leaf in zip(captured.outputs, leaves, strict=False):
        value = nodes[name].meta.get("val") if name in nodes else None
        if not isinstance(value, torch.Tensor) or not isinstance(leaf, torch.Tensor):
            continue
        if [_at(size, sizes) for size in value.shape] != list(leaf.shape):
            return False
    return True


def _at(size: object, sizes: Mapping[str, int]) -> object:
    """A captured size at concrete values of its symbols."""
    node = getattr(size, "node", None)
    if node is None:
        return size
    expression = node.expr
    values = {symbol: sizes.get(str(symbol), symbol) for symbol in expression.free_symbols}
    result = expression.subs(values)
    return int(result) if result.is_number else None
