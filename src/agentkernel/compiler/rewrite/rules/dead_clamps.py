"""Which clamps change nothing, and which two make one?

Derivation: clamp(x, a, b) = x where a <= x <= b; |x| = x where x >= 0; x * 1 = x / 1 = x + 0 = x.
clamp(clamp(x, a, b), c, d) = clamp(x, A, B) with A = clamp(a, c, d) and B = clamp(b, c, d): both
sides are monotone, agree at both ends and have slope 1 where neither clamps.
Conditions: the producer's range follows from structure (`intervals`), never from values.
NaN and infinities: a clamp lets NaN through, and so does its absence; ranges hold for infinities.
x + 0 turns -0 into 0, which compares equal.
"""

from __future__ import annotations

import math

import torch
from torch.fx import Node

from agentkernel.compiler.rewrite.draft import Draft
from agentkernel.compiler.rewrite.intervals import bounds, clamped, value_range
from agentkernel.compiler.rewrite.reading import floating, is_number, op_of
from agentkernel.compiler.rewrite.record import Change, Rule
from agentkernel.compiler.rewrite.terms import terms_of

aten = torch.ops.aten
NEUTRAL = {"mul": 1, "div": 1, "add": 0, "sub": 0}


def _drop_clamp(draft: Draft, node: Node) -> Change | None:
    x = node.args[0] if node.args else None
    if not floating(node) or not floating(x):
        return None
    low, high = value_range(draft, x)
    if op_of(node) == "abs.default":
        return Change(f"{node.name}: |x| = x for x >= 0", {node: x}) if low >= 0 else None
    for term in terms_of(node):
        neutral = is_number(term.other) and term.other == NEUTRAL[term.verb]
        if neutral and not term.swapped:
            return Change(f"{node.name}: x {term.verb} {term.other} = x", {node: term.x})
    limits = bounds(node)
    if limits is None:
        return None
    if low >= limits[0] and high <= limits[1]:
        known = f"{x.name} lies in {_text((low, high))}"
        return Change(f"{node.name}: {known}, the clamp to {_text(limits)} is dead", {node: x})
    return _merged(draft, node, x, limits)


def _merged(draft: Draft, node: Node, x: Node, limits: tuple[float, float]) -> Change | None:
    inner = bounds(x)
    if inner is None:
        return None
    low, high = clamped(inner, limits)
    source = x.args[0]
    ends = [None if math.isinf(end) else end for end in (low, high)]
    new = draft.call(aten.clamp.default, source, *ends)
    line = f"{node.name}: clamp to {_text(inner)}, then to {_text(limits)}"
    line += f", is one to {_text((low, high))}"
    return Change(line, {node: new})


def _text(limits: tuple[float, float]) -> str:
    return f"[{limits[0]:g}, {limits[1]:g}]"


DEAD_CLAMPS = Rule("dead clamps", _drop_clamp)
