"""What is left of a reduction over dimensions of size 1?

Derivation: over one element x, sum = mean = max = min = prod = cumsum = x, and logsumexp(x) = x +
log(exp(x - x)) = x. softmax(x) = exp(x - x) / exp(x - x) = 1, written (x - x) + 1; log_softmax(x)
= var(x) = std(x) = x - x, the last two without Bessel's correction. norm(x) = |x|. The place of
the extremum is 0.
Conditions: every reduced dimension has the static size 1; floats.
NaN and infinities: the identities keep them. x - x is NaN where x is NaN or infinite, as eager's
softmax, log_softmax and variance of such an element are; that is why they are not written as
constants. An output that is such a constant for finite inputs is reported as degenerate.
"""

from __future__ import annotations

import torch
from torch.fx import Node

from agentkernel.compiler.rewrite.draft import Draft
from agentkernel.compiler.rewrite.reading import (
    argument,
    floating,
    is_number,
    op_of,
    rank,
    static_sizes,
)
from agentkernel.compiler.rewrite.record import Change, Rule

aten = torch.ops.aten
SAME = frozenset(
    ("sum.dim_IntList", "sum.default", "mean.dim", "mean.default", "amax.default", "amin.default",
     "max.default", "min.default", "prod.dim_int", "prod.default", "logsumexp.default",
     "cumsum.default", "cumprod.default")
)  # fmt: skip
SHAPE_KEPT = frozenset(
    ("cumsum.default", "cumprod.default", "softmax.int", "_softmax.default", "log_softmax.int",
     "_log_softmax.default")
)  # fmt: skip
ONES = ("softmax.int", "_softmax.default")
ZEROS = ("log_softmax.int", "_log_softmax.default")
SPREADS = ("var.correction", "std.correction", "var.dim", "std.dim")
PLACES = ("argmax.default", "argmin.default")


def _replace_single_element(draft: Draft, node: Node) -> Change | None:
    name = op_of(node)
    x = node.args[0] if node.args else None
    if name == "getitem":
        return _with_place(draft, node)
    known = name in SAME or name in SHAPE_KEPT or name in SPREADS or name in PLACES
    if not (known or name == "linalg_vector_norm.default") or not floating(x):
        return None
    dims = _dims(node, rank(x))
    sizes = static_sizes(x, dims) if dims else None
    if sizes is None or set(sizes) != {1} or _other_dtype(node):
        return None
    kept = name in SHAPE_KEPT or _option(node, "keepdim") is True
    made = _value(draft, node, x)
    if made is None:
        return None
    value, line = made
    return Change(f"{node.name}: over one element {line}", {node: draft.squeeze(value, dims, kept)})


def _value(draft: Draft, node: Node, x: Node) -> tuple[Node, str] | None:
    """The reduction's value at the shape of x, and the identity."""
    name = op_of(node)
    word = name.split(".")[0]
    if name in SAME:
        return x, f"{word}(x) = x"
    if name in PLACES:
        return draft.call(aten.zeros_like.default, x, dtype=torch.int64), f"{word}(x) = 0"
    if name == "linalg_vector_norm.default":
        order = argument(node, "ord")
        if not is_number(order) or order <= 0:
            return None
        return draft.call(aten.abs.default, x), "norm(x) = |x|"
    if name in SPREADS and not _biased(node):
        return None
    zero = draft.call(aten.sub.Tensor, x, x)
    if name in ONES:
        return draft.call(aten.add.Tensor, zero, 1), "softmax(x) = 1 (NaN stays)"
    return zero, f"{word}(x) = x - x"


def _biased(node: Node) -> bool:
    if op_of(node).endswith(".dim"):
        return argument(node, "unbiased") is False
    return argument(node, "correction") == 0


def _with_place(draft: Draft, node: Node) -> Change | None:
    """Either part of max or min along a dimension."""
    source = node.args[0]
    if op_of(source) not in ("max.dim", "min.dim"):
        return None
    assert isinstance(source, Node)
    x, dim = source.args[0], argument(source, "dim")
    if not floating(x) or not isinstance(dim, int) or static_sizes(x, (dim,)) != (1,):
        return None
    value = x
    if node.args[1] == 1:
        value = draft.call(aten.zeros_like.default, x, dtype=torch.int64)
    kept = argument(source, "keepdim") is True
    line = f"{node.name}: over one element {op_of(source).split('.')[0]}(x) = x, its place 0"
    return Change(line, {node: draft.squeeze(value, (dim % rank(x),), kept)})


def _dims(node: Node, full: int) -> tuple[int, ...]:
    found = _option(node, "dim")
    if found is None or found == []:
        return tuple(range(full))
    listed = found if isinstance(found, list | tuple) else [found]
    return tuple(dim % full for dim in listed if isinstance(dim, int))


def _other_dtype(node: Node) -> bool:
    return _option(node, "dtype") is not None or _option(node, "half_to_float") is True


def _option(node: Node, name: str) -> object:
    try:
        return argument(node, name)
    except KeyError:
        return None


SINGLE_ELEMENTS = Rule("single elements", _replace_single_element)
