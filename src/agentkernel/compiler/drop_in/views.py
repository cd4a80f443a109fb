"""Outputs that are views: of an input, of another output, or of one computed value.

Where eager returns several parts of a value, or all of it in another shape, a drop-in computes that
value once and returns the same views of it.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import torch
from torch.fx import Node

from agentkernel.tools.problem.capture import Captured, quiet
from agentkernel.tools.problem.example_call import declared_orders, example_call
from agentkernel.tools.problem.loading import LoadedProblem
from agentkernel.tools.problem.structures import leaves_of

aten = torch.ops.aten
MOST = 2**63 - 1
"""The end of a slice that has none."""
STORED = frozenset(
    ("linear", "mm", "bmm", "matmul", "addmm", "baddbmm", "conv1d", "conv2d", "conv3d",
     "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "convolution")
)  # fmt: skip
"""What is computed whole, however little of it is returned."""
PLACED = frozenset(("scaled_dot_product_attention",))
"""Whose results lie in memory as the kernel that PyTorch picks has it."""
PARTS = (aten.split.Tensor, aten.split_with_sizes.default, aten.unbind.int)


@dataclass(frozen=True)
class _Step:
    """A view: the node that it is of, the text that follows this, and whether it has all of its
    elements, each once."""

    base: Node
    text: str
    whole: bool = True


@dataclass(frozen=True)
class _View:
    """An output below all views: the node that none leads to, and the text from there."""

    base: Node
    text: str
    whole: bool


def with_output_views(loaded: LoadedProblem, captured: Captured) -> Captured:
    """`captured` with its `views`: outputs that are an input that forward does not change, or a
    view of one, of another output, or of a value of `view_bases`. They stay outputs of their own
    where nothing else is left to compute, and where the module copies them for inputs that are
    laid out otherwise."""
    found = _views(loaded, captured)
    copied = _copied(loaded, captured, found) if found else frozenset()
    views = {
        place: (view.base.name, view.text)
        for place, view in found.items()
        if view.base not in copied
    }
    nodes = {node.name: node for node in captured.graph.graph.nodes}
    direct = {name for place, name in enumerate(captured.outputs) if place not in views}
    bases = dict.fromkeys(base for base, _ in views.values())
    hidden = [base for base in bases if nodes[base].op != "placeholder" and base not in direct]
    if not views or (direct <= {None} and not hidden):
        return captured
    return replace(captured, views=views, view_bases=tuple(hidden))


def _views(loaded: LoadedProblem, captured: Captured) -> dict[int, _View]:
    """The outputs that are views, by their place."""
    nodes = {node.name: node for node in captured.graph.graph.nodes}
    inputs = set(captured.user_inputs) - set(captured.mutated_inputs)
    chased = {
        place: _chased(nodes[name])
        for place, name in enumerate(captured.outputs)
        if name is not None and nodes[name].op != "output"
    }
    groups: dict[Node, list[int]] = {}
    for place, view in chased.items():
        groups.setdefault(view.base, []).append(place)
    hides = not any(order is not None for order in declared_orders(loaded, 0))
    found: dict[int, _View] = {}
    for base, places in groups.items():
        first = _itself(base, places, chased)
        if base.name in inputs:
            found |= {place: chased[place] for place in places}
        elif first is not None:
            found |= {place: chased[place] for place in places if place != first}
        elif hides and _hidden(base, [chased[place] for place in places], captured):
            found |= {place: chased[place] for place in places}
    return dict(sorted(found.items()))


def _itself(base: Node, places: Sequence[int], chased: Mapping[int, _View]) -> int | None:
    """The first place where a value is returned as it is."""
    return next((place for place in places if not chased[place].text), None)


def _hidden(base: Node, views: Sequence[_View], captured: Captured) -> bool:
    """Whether to compute a value that is not returned itself, and return these views of it: several
    share its memory, or nothing is computed in vain and nothing is copied."""
    value = base.meta.get("val")
    words = str(base.target).split(".")
    name = words[1] if len(words) > 1 else ""
    if base.op != "call_function" or not isinstance(value, torch.Tensor):
        return False
    if base.name in captured.written or name in PLACED or words[0] != "aten":
        return False
    return len(views) > 1 or views[0].whole or name in STORED or ".expand(" in views[0].text


def _chased(node: Node) -> _View:
    text, whole = "", True
    while (step := _step(node)) is not None:
        node, text, whole = step.base, step.text + text, whole and step.whole
    return _View(node, text, whole)


def _step(node: Node) -> _Step | None:
    """The view that a node is; None for what is none, or not of sizes alone."""
    if node.op != "call_function" or not node.args or node.kwargs:
        return None
    if node.target is operator.getitem:
        return _part(cast("Node", node.args[0]), cast("int", node.args[1]))
    base, rest = node.args[0], list(node.args[1:])
    before = base.meta.get("val") if isinstance(base, Node) else None
    texts = _sizes(rest)
    if not isinstance(base, Node) or not isinstance(before, torch.Tensor) or texts is None:
        return None
    if node.target is aten.t.default:
        return _Step(base, ".t()")
    if node.target in (aten.alias.default, aten.detach.default):
        return _Step(base, "")
    if node.target in CALLS:
        return _Step(base, f".{CALLS[node.target]}({', '.join(texts)})")
    if node.target is aten.expand.default:
        return _Step(base, f".expand({', '.join(texts)})", whole=False)
    if node.target is aten.diagonal.default:
        return _Step(base, f".diagonal({', '.join(texts)})", whole=False)
    if node.target is aten.slice.Tensor:
        return _slice(base, before.ndim, rest)
    if node.target is aten.select.int:
        return _Step(base, _indexed(int(texts[0]) % before.ndim, texts[1]), whole=False)
    return None


CALLS: dict[object, str] = {
    aten.transpose.int: "transpose",
    aten.permute.default: "permute",
    aten.view.default: "view",
    aten._unsafe_view.default: "view",
    aten.unsqueeze.default: "unsqueeze",
    aten.squeeze.dim: "squeeze",
}
"""Views that have every element once, as methods that take the same sizes."""


def _sizes(arguments: Sequence[object]) -> list[str] | None:
    """Sizes and dimensions one after the other; one that the graph computes by its name in braces.
    None for anything else."""
    texts = []
    for leaf in leaves_of(list(arguments)):
        if isinstance(leaf, Node) and isinstance(leaf.meta.get("val"), torch.SymInt):
            texts.append(f"{{{leaf.name}}}")
        elif isinstance(leaf, int):
            texts.append(str(leaf))
        elif leaf is not None:
            return None
    return texts


def _slice(base: Node, rank: int, rest: Sequence[object]) -> _Step | None:
    asked: list[Any] = [*rest, *[0, 0, MOST, 1][len(rest) :]]
    dim, start, end, step = asked
    if (start or 0, end, step) in ((0, MOST, 1), (0, None, 1)):
        return _Step(base, "")
    first, last = ("" if x in (0, None, MOST) else "".join(_sizes([x]) or ()) for x in (start, end))
    words = [first, last, *(_sizes([step]) or () if step != 1 else ())]
    return _Step(base, _indexed(dim % rank, ":".join(words)), whole=False)


def _part(call: Node, index: int) -> _Step | None:
    """One of the parts that a call cuts a value into."""
    if call.target not in PARTS or not isinstance(call.args[0], Node):
        return None
    base, rest = call.args[0], list(call.args[1:])
    rank = base.meta["val"].ndim
    if call.target is aten.unbind.int:
        dim = cast("int", rest[0]) if rest else 0
        return _Step(base, _indexed(dim % rank, str(index)), whole=False)
    dim = cast("int", rest[1]) % rank if len(rest) > 1 else 0
    lengths = leaves_of([rest[0]])
    if not all(isinstance(item, int) for item in lengths):
        texts = _sizes([rest[0]])
        if texts is None:
            return None
        asked = texts[0] if call.target is aten.split.Tensor else f"[{', '.join(texts)}]"
        return _Step(base, f".split({asked}, {dim})[{index}]", whole=False)
    if call.target is aten.split.Tensor:
        lengths = [lengths[0]] * (index + 1)
    plain = cast("list[int]", lengths)
    first = sum(plain[:index])
    words = f"{first or ''}:{first + plain[index]}"
    return _Step(base, _indexed(dim, words), whole=False)


def _indexed(dim: int, words: str) -> str:
    return f"[{', '.join([*[':'] * dim, words])}]"


def _copied(
    loaded: LoadedProblem, captured: Captured, found: Mapping[int, _View]
) -> frozenset[Node]:
    """The bases of which some of these are no views where the inputs lie otherwise, as
    `x.contiguous()` is none: all where it does not run on inputs with gaps."""
    every = frozenset(view.base for view in found.values())
    apart = _apart(loaded, captured, found, _spread)
    return every if apart is None else apart | (_apart(loaded, captured, found, _turned) or set())


def _apart(
    loaded: LoadedProblem, captured: Captured, found: Mapping[int, _View],
    laid: Callable[[torch.Tensor], torch.Tensor],
) -> frozenset[Node] | None:  # fmt: skip
    """The bases of those that lie in memory of their own where inputs are `laid` so; None where
    the module does not run on such."""
    module, inputs = example_call(loaded)
    given = [laid(item) if isinstance(item, torch.Tensor) else item for item in inputs]
    try:
        with torch.no_grad(), quiet():
            leaves = leaves_of(module(*given))
    except Exception:  # noqa: BLE001 - whatever the module says to such inputs
        return None
    known = {name: _memory(leaf) for name, leaf in zip(captured.outputs, leaves, strict=True)}
    known |= dict(zip(captured.user_inputs, map(_memory, given), strict=True))
    memories = [(view.base, _memory(leaves[place])) for place, view in found.items()]
    return frozenset(
        base for base, memory in memories if known.setdefault(base.name, memory) != memory
    )


def _spread(tensor: torch.Tensor) -> torch.Tensor:
    """The same shape with a gap after each element."""
    return torch.stack([tensor, tensor], dim=-1)[..., 0]


def _turned(tensor: torch.Tensor) -> torch.Tensor:
    """The same with its dimensions in memory the other way round."""
    order = tuple(reversed(range(tensor.ndim)))
    return tensor.permute(order).contiguous().permute(order)


def _memory(value: object) -> object:
    return value.untyped_storage()._cdata if isinstance(value, torch.Tensor) else value
