"""The range in which a node's values lie, whatever the inputs and the weights are.

From structure alone: a sigmoid lies in [0, 1], a sum of squares is not negative. NaN is left out:
a range holds for every value that is no NaN. Bounds are given only where rounding keeps them, so
sums and means carry signs, not sizes.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from torch.fx import Node

from agentkernel.compiler.rewrite.draft import Draft, argument, base_op, floating, is_number, op_of

Range = tuple[float, float]
ANY: Range = (-math.inf, math.inf)
POSITIVE: Range = (0.0, math.inf)
NEGATIVE: Range = (-math.inf, 0.0)
FIXED: dict[str, Range] = {
    "sigmoid": (0.0, 1.0), "hardsigmoid": (0.0, 1.0), "softmax": (0.0, 1.0),
    "_softmax": (0.0, 1.0), "tanh": (-1.0, 1.0), "erf": (-1.0, 1.0), "sin": (-1.0, 1.0),
    "cos": (-1.0, 1.0), "softsign": (-1.0, 1.0), "square": POSITIVE, "sqrt": POSITIVE,
    "rsqrt": POSITIVE, "softplus": POSITIVE, "var": POSITIVE, "std": POSITIVE,
    "linalg_vector_norm": POSITIVE, "log_softmax": NEGATIVE, "_log_softmax": NEGATIVE,
    "log_sigmoid": NEGATIVE, "zeros": (0.0, 0.0), "zeros_like": (0.0, 0.0), "ones": (1.0, 1.0),
    "ones_like": (1.0, 1.0),
}  # fmt: skip
KEPT = frozenset(
    ("view", "reshape", "_unsafe_view", "permute", "transpose", "t", "unsqueeze", "squeeze",
     "expand", "slice", "select", "flatten", "unflatten", "clone", "alias", "detach", "contiguous",
     "amax", "amin", "max_pool1d", "max_pool2d", "max_pool3d", "adaptive_max_pool1d", "flip")
)  # fmt: skip
"""Ops whose results are elements of their first argument."""
AVERAGED = frozenset(
    ("sum", "mean", "avg_pool1d", "avg_pool2d", "avg_pool3d", "adaptive_avg_pool1d",
     "adaptive_avg_pool2d", "adaptive_avg_pool3d", "cumsum")
)  # fmt: skip
"""Ops whose results have the sign of what they add up."""


def value_range(draft: Draft, node: object) -> Range:
    """The range of a node's values, of a number, or everything."""
    if is_number(node):
        return float(node), float(node)
    if not isinstance(node, Node) or not floating(node):
        return ANY
    if node not in draft.ranges:
        draft.ranges[node] = _range(draft, node)
    return draft.ranges[node]


def _range(draft: Draft, node: Node) -> Range:
    name = base_op(node)
    if name in FIXED:
        return FIXED[name]
    first = value_range(draft, node.args[0]) if node.args else ANY
    if name in KEPT:
        return first
    if name in AVERAGED:
        return _sign(first)
    if name in ("max", "min") and op_of(node).endswith(".default"):
        return first
    if name == "getitem":
        return _item_range(draft, node)
    rule = CLAMPS.get(name) or ARITHMETIC.get(name)
    return rule(draft, node, first) if rule is not None else ANY


def _item_range(draft: Draft, node: Node) -> Range:
    """The values, not the places, of an extremum along a dimension."""
    source = node.args[0]
    if op_of(source) in ("max.dim", "min.dim") and node.args[1] == 0:
        assert isinstance(source, Node)
        return value_range(draft, source.args[0])
    return ANY


def bounds(node: Node) -> Range | None:
    """The limits that a clamp-like call enforces; None for anything else."""
    name = op_of(node)
    fixed = {"relu.default": POSITIVE, "relu6.default": (0.0, 6.0)}.get(name)
    if fixed is not None:
        return fixed
    names = {
        "clamp.default": ("min", "max"), "hardtanh.default": ("min_val", "max_val"),
        "clamp_min.default": ("min", None), "clamp_max.default": (None, "max"),
    }.get(name)  # fmt: skip
    if names is None:
        return None
    low, high = (argument(node, item) if item else None for item in names)
    if not all(item is None or is_number(item) for item in (low, high)):
        return None
    return (
        float(low) if is_number(low) else -math.inf,
        float(high) if is_number(high) else math.inf,
    )


def clamped(value: Range, limits: Range) -> Range:
    """The range of clamp(x, low, high): minimum(maximum(x, low), high)."""
    low, high = limits
    return min(max(value[0], low), high), min(max(value[1], low), high)


def _clamp_range(draft: Draft, node: Node, value: Range) -> Range:
    limits = bounds(node)
    return ANY if limits is None else clamped(value, limits)


def _sign(value: Range) -> Range:
    """What is left of a range when rounded terms are added up: its sign."""
    if value == (0.0, 0.0):
        return value
    return (0.0 if value[0] >= 0 else -math.inf, 0.0 if value[1] <= 0 else math.inf)


def _abs(_: Draft, node: Node, value: Range) -> Range:
    low, high = value
    return (max(low, -high, 0.0), max(abs(low), abs(high)))


def _neg(_: Draft, node: Node, value: Range) -> Range:
    return -value[1], -value[0]


def _exp(_: Draft, node: Node, value: Range) -> Range:
    return 0.0, 1.0 if value[1] <= 0 else math.inf


def _elu(_: Draft, node: Node, value: Range) -> Range:
    alpha, scale = argument(node, "alpha"), argument(node, "scale")
    if not is_number(alpha) or not is_number(scale) or alpha < 0 or scale < 0:
        return ANY
    return (0.0 if value[0] >= 0 else -math.inf), math.inf


def _add(draft: Draft, node: Node, value: Range) -> Range:
    if node.kwargs.get("alpha", 1) != 1:
        return ANY
    other = value_range(draft, node.args[1])
    if value[0] == value[1] and other[0] == other[1]:
        return value[0] + other[0], value[0] + other[0]
    one, two = _sign(value), _sign(other)
    return min(one[0], two[0]), max(one[1], two[1])


def _sub(draft: Draft, node: Node, value: Range) -> Range:
    if node.kwargs.get("alpha", 1) != 1:
        return ANY
    if node.args[0] is node.args[1]:
        return 0.0, 0.0
    one, two = _sign(value), _sign(_neg(draft, node, value_range(draft, node.args[1])))
    return min(one[0], two[0]), max(one[1], two[1])


def _mul(draft: Draft, node: Node, value: Range) -> Range:
    if node.args[0] is node.args[1]:
        return POSITIVE
    other = value_range(draft, node.args[1])
    if (0.0, 0.0) in (value, other):
        return 0.0, 0.0
    one, two = _sign(value), _sign(other)
    if ANY in (one, two):
        return ANY
    return POSITIVE if one == two else NEGATIVE


def _pow(_: Draft, node: Node, value: Range) -> Range:
    even = is_number(node.args[1]) and node.args[1] % 2 == 0
    return POSITIVE if even or value[0] >= 0 else ANY


def _maximum(draft: Draft, node: Node, value: Range) -> Range:
    other = value_range(draft, node.args[1])
    return max(value[0], other[0]), max(value[1], other[1])


def _minimum(draft: Draft, node: Node, value: Range) -> Range:
    other = value_range(draft, node.args[1])
    return min(value[0], other[0]), min(value[1], other[1])


RangeRule = Callable[[Draft, Node, Range], Range]
CLAMPS: dict[str, RangeRule] = dict.fromkeys(
    ("relu", "relu6", "clamp", "hardtanh", "clamp_min", "clamp_max"), _clamp_range
)
ARITHMETIC: dict[str, RangeRule] = {
    "abs": _abs, "neg": _neg, "exp": _exp, "exp2": _exp, "elu": _elu, "add": _add, "sub": _sub,
    "mul": _mul, "pow": _pow, "maximum": _maximum, "minimum": _minimum,
}  # fmt: skip
