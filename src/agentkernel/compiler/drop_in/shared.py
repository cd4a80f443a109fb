"""Outputs that lie in the memory of an input or of another output, as views of those."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, cast

import torch
from torch.fx import Node

from agentkernel.tools.problem.capture import Captured, example_call, quiet
from agentkernel.tools.problem.problems import LoadedProblem
from agentkernel.tools.problem.structures import leaves_of

MOST = 2**63 - 1
"""The end of a slice that has none."""


def with_output_views(loaded: LoadedProblem, captured: Captured) -> Captured:
    """`captured` with its `views`: outputs that are an input that forward does not change, or a
    view of one, or of another output. They stay outputs of their own where nothing else is left to
    compute, and where the module copies them for inputs that are laid out otherwise."""
    found = dict(_views(captured))
    direct = [name for name in captured.outputs if name is not None]
    if not found or len(found) == len(direct):
        return captured
    return replace(captured, views=found) if _are_views(loaded, captured, found) else captured


def _views(captured: Captured) -> Iterator[tuple[int, tuple[str, str]]]:
    nodes = {node.name: node for node in captured.graph.graph.nodes}
    inputs = set(captured.user_inputs) - set(captured.mutated_inputs)
    seen: set[str] = set()
    for place, name in enumerate(captured.outputs):
        if name is None or nodes[name].op == "output":
            continue
        base, text = nodes[name], ""
        while base.name not in inputs and base.name not in seen:
            step = _step(base)
            if step is None:
                break
            base, text = cast("Node", base.args[0]), step + text
        if base.name in inputs or base.name in seen:
            yield place, (base.name, text)
        else:
            seen.add(name)


def _step(node: Node) -> str | None:
    """What follows a tensor to make this view of it; None for what is no view, or not of numbers
    alone."""
    aten = torch.ops.aten
    if node.op != "call_function" or not isinstance(node.args[0], Node) or node.kwargs:
        return None
    before = node.args[0].meta.get("val")
    rest = node.args[1:]
    plain = all(isinstance(leaf, int) for leaf in leaves_of(list(rest)))
    if not isinstance(before, torch.Tensor) or not plain:
        return None
    if node.target is aten.t.default:
        return ".t()"
    if node.target in (aten.transpose.int, aten.permute.default):
        name = str(node.target).split(".")[1]
        flat = ", ".join(str(leaf) for leaf in leaves_of(list(rest)))
        return f".{name}({flat})"
    if node.target is aten.slice.Tensor:
        asked: list[Any] = [*rest, *[0, 0, MOST, 1][len(rest) :]]
        dim, start, end, step = asked
        if (start or 0, end, step) == (0, MOST, 1):
            return ""
        edges = [str(start or ""), "" if end == MOST else str(end)]
        words = [*edges, *([str(step)] if step != 1 else [])]
        return _indexed(cast("int", dim) % before.ndim, ":".join(words))
    if node.target is aten.select.int:
        return _indexed(cast("int", rest[0]) % before.ndim, str(rest[1]))
    return None


def _indexed(dim: int, words: str) -> str:
    return f"[{', '.join([*[':'] * dim, words])}]"


def _are_views(
    loaded: LoadedProblem, captured: Captured, found: Mapping[int, tuple[str, str]]
) -> bool:
    """Whether they are for inputs that do not lie in one piece too: `x.contiguous()` is not."""
    module, inputs = example_call(loaded)
    spread = [_spread(item) if isinstance(item, torch.Tensor) else item for item in inputs]
    try:
        with torch.no_grad(), quiet():
            leaves = leaves_of(module(*spread))
    except Exception:  # noqa: BLE001 - what runs on no other layout is left as it is
        return False
    places = {name: leaf for name, leaf in zip(captured.outputs, leaves, strict=True) if name}
    places |= dict(zip(captured.user_inputs, spread, strict=True))
    return all(_memory(leaves[at]) == _memory(places[base]) for at, (base, _) in found.items())


def _spread(tensor: torch.Tensor) -> torch.Tensor:
    """The same shape with a gap after each element."""
    return torch.stack([tensor, tensor], dim=-1)[..., 0]


def _memory(value: object) -> object:
    return value.untyped_storage()._cdata if isinstance(value, torch.Tensor) else value


__all__ = ["with_output_views"]
