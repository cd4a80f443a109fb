"""What is added to a product before it is taken in parts, added to each part instead.

What is cut has to be stored; parts of the product itself are what gates multiply.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from agentkernel.compiler.fusion import topological
from agentkernel.compiler.ir import Node, same
from agentkernel.compiler.products.pairs import MOST_PARTS

ELEMENTWISE = frozenset(("add", "cast", "copy"))
"""What a bias and its rounding consist of."""
STORED = frozenset(("input", "library", "field"))
"""Kinds of values that lie in memory in any case."""


def with_parted_bias(outputs: Sequence[Node]) -> tuple[Node, ...]:
    """The same values, with f(product)[..., i:j] as f(product[..., i:j]) where f adds a bias, or
    what is stored, and such parts, which nothing but arithmetic reads, meet element by element."""
    order = topological(outputs)
    readers: dict[Node, list[Node]] = {node: [] for node in order}
    for node in order:
        for arg in dict.fromkeys(node.args):
            readers[arg].append(node)
    new: dict[Node, Node] = {}
    for node in order:
        args = tuple(new[arg] for arg in node.args)
        kept = all(one is two for one, two in zip(args, node.args, strict=True))
        new[node] = node if kept else replace(node, args=args)
        if node.op == "slice" and _gates(node.args[0], readers, outputs):
            new[node] = _cut(new[node.args[0]], new[node])
    return tuple(new[node] for node in outputs)


def _gates(value: Node, readers: Mapping[Node, Sequence[Node]], outputs: Sequence[Node]) -> bool:
    """True for a product with what is added that is only read as parts, which meet."""
    parts = readers[value]
    if value.kind != "pointwise" or not _is_biased(value) or value in outputs:
        return False
    if not 1 < len(parts) <= MOST_PARTS:
        return False
    last = len(value.shape) - 1
    cut = all(part.op == "slice" and part.attrs[0] == last for part in parts)
    if not cut or any(part in outputs for part in parts):
        return False
    reached = [_reached(part, readers) for part in parts]
    return bool(frozenset.intersection(*reached))


def _is_biased(value: Node) -> bool:
    """True for elementwise work on products, what is stored, and what has a number a column."""
    if value.kind == "library":
        return value.op == "product"
    if value.op not in ELEMENTWISE:
        return False
    wide = [arg for arg in value.args if len(arg.shape) > 1]
    rows = [arg for arg in value.args if len(arg.shape) <= 1]
    given = all(arg.root.kind in ("input", "constant") or _of_input(arg) for arg in rows)
    alike = all(len(arg.shape) == len(value.shape) for arg in wide)
    biased = [_is_biased(arg) for arg in wide]
    stored = all(one or _is_stored(arg) for one, arg in zip(biased, wide, strict=True))
    return any(biased) and given and alike and stored


def _is_stored(value: Node) -> bool:
    """Whether a part of a value can be read without more ado: what is cut already is stored."""
    if value.root.kind in STORED:
        return True
    while value.kind == "view" and value.op != "slice":
        value = value.args[0]
    return value.op == "slice"


def _of_input(row: Node) -> bool:
    return row.op == "cast" and row.args[0].kind == "input"


def _reached(part: Node, readers: Mapping[Node, Sequence[Node]]) -> frozenset[Node]:
    """What arithmetic makes of a part; nothing where something else reads it itself."""
    if any(reader.kind != "pointwise" for reader in readers[part]):
        return frozenset()
    found: dict[Node, None] = {}
    waiting = list(readers[part])
    while waiting:
        node = waiting.pop()
        if node not in found and node.kind == "pointwise":
            found[node] = None
            waiting += readers[node]
    return frozenset(found)


def _cut(value: Node, part: Node) -> Node:
    """`value` worked out in the columns of `part`, a slice of it."""
    if not value.shape or value.shape[-1] == 1 or not same(value.shape[-1], part.args[0].shape[-1]):
        return value
    shape = (*value.shape[:-1], part.shape[-1])
    if value.kind != "pointwise":
        attrs = (len(shape) - 1, *part.attrs[1:])
        return replace(part, args=(value,), dtype=value.dtype, shape=shape, attrs=attrs)
    return replace(value, args=tuple(_cut(arg, part) for arg in value.args), shape=shape)
