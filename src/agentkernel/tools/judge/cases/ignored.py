"""Which integer inputs may hold a value that the loss leaves out (its ignore_index)?"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch.fx import Node

    from agentkernel.tools.problem.capture import Captured

LOSSES = ("aten::nll_loss", "aten::cross_entropy_loss")
MOST_STEPS = 16


def ignore_index_values(captured: Captured) -> dict[int, int]:
    """Position of the input -> the value that counts for nothing, for targets of a loss."""
    found: dict[int, int] = {}
    for node in captured.graph.graph.nodes:
        schema = getattr(node.target, "_schema", None)
        if schema is None or not schema.name.startswith(LOSSES):
            continue
        given = dict(zip((item.name for item in schema.arguments), node.args, strict=False))
        given |= {
            item.name: item.default_value for item in schema.arguments if item.name not in given
        }
        given |= node.kwargs
        target, ignored = given.get("target"), given.get("ignore_index")
        name = _source(target)
        if name in captured.user_inputs and isinstance(ignored, int):
            found[captured.user_inputs.index(name)] = ignored
    return found


def _source(node: Node | object) -> str:
    """The placeholder that `node` is a view or a cast of; "" for none."""
    for _ in range(MOST_STEPS):
        if getattr(node, "op", "") == "placeholder":
            return str(node.name)  # type: ignore[union-attr]
        inputs = getattr(node, "all_input_nodes", [])
        if len(inputs) != 1:
            return ""
        node = inputs[0]
    return ""
