"""When may one call stand for another? When both make the same call on the same values.

Derivation: f(x) = f(x). The first of two equal calls serves the readers of both.
Conditions: the same op and arguments of the same types; no random numbers.
NaN and infinities: as before, bit by bit.
"""

from __future__ import annotations

from torch.fx import Node

from agentkernel.compiler.rewrite.draft import Draft, is_random
from agentkernel.compiler.rewrite.record import Change, Rule


def _merge_equal_nodes(draft: Draft, node: Node) -> Change | None:
    if not node.all_input_nodes or is_random(node):
        return None
    key = _key(node)
    for other in node.all_input_nodes[0].users:
        if other.target != node.target or not other < node:
            continue
        if _key(other) == key:
            return Change(f"{node.name} = {other.name}: the same call", {node: other})
    return None


def _key(node: Node) -> tuple[object, ...]:
    return _plain(node.args), _plain(tuple(sorted(node.kwargs.items())))


def _plain(value: object) -> tuple[object, ...]:
    """An argument as something to compare, in which 1, 1.0 and True differ."""
    if isinstance(value, tuple | list):
        return ("many", *(_plain(item) for item in value))
    return type(value).__name__, value if isinstance(value, Node) else repr(value)


EQUAL_NODES = Rule("equal nodes", _merge_equal_nodes)
