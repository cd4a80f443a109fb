"""Lowerings of ATen's element-wise calls to primitives, with eager's edge cases."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import torch
from torch import fx

from agentkernel.compiler.ir import ONE, Node, Scalar, UnsupportedOp, compute_dtype
from agentkernel.compiler.lowering.registry import Lowered, Lowering, Operand, lowers

UNARY = {
    "neg": "neg", "abs": "abs", "exp": "exp", "exp2": "exp2", "log": "log", "log2": "log2",
    "sqrt": "sqrt", "rsqrt": "rsqrt", "sin": "sin", "cos": "cos", "erf": "erf", "floor": "floor",
    "ceil": "ceil", "sigmoid": "sigmoid", "tanh": "tanh", "log1p": "log1p", "expm1": "expm1",
    "reciprocal": "reciprocal", "isnan": "isnan", "isinf": "isinf", "logical_not": "logical_not",
    "relu": "relu", "silu": "silu", "alias": "copy", "clone": "copy", "detach": "copy",
    "contiguous": "copy", "lift_fresh_copy": "copy", "sign": "sign",
}  # fmt: skip
BINARY = {
    "mul": "mul", "eq": "eq", "ne": "ne", "lt": "lt", "le": "le", "gt": "gt", "ge": "ge",
    "maximum": "maximum", "minimum": "minimum", "logical_and": "logical_and",
    "logical_or": "logical_or", "logical_xor": "logical_xor", "atan2": "atan2",
}  # fmt: skip
FLOAT_RESULT = frozenset(("exp", "exp2", "log", "log2", "sqrt", "rsqrt", "sin", "cos", "erf",
                          "sigmoid", "tanh", "log1p", "expm1", "reciprocal", "silu"))  # fmt: skip
SUPPORTED_BINARY = frozenset(BINARY.values()) - {"atan2"}


def _register_tables() -> None:
    for name, op in UNARY.items():
        lowers(f"{name}.default")(_unary(op))
    for name, op in BINARY.items():
        if op in SUPPORTED_BINARY:
            lowers(f"{name}.Tensor", f"{name}.Scalar", f"{name}.default")(_binary(op))
    lowers("max.other")(_binary("maximum"))
    lowers("min.other")(_binary("minimum"))


def _unary(op: str) -> Callable[..., Lowered]:
    def apply(state: Lowering, x: Node, **_: object) -> Lowered:
        if op == "copy":
            return x
        return state.b.pointwise(op, state.compute(x) if op in FLOAT_RESULT else x)

    return apply


def _binary(op: str) -> Callable[..., Lowered]:
    def apply(state: Lowering, x: Operand, y: Operand) -> Lowered:
        left, right = promoted(state, x, y)
        chained = _chained(state, left, op, right) if op == "mul" else None
        return chained or state.b.pointwise(op, left, right)

    return apply


CHAINED = 2.0**24
"""Factors of a chain lie within this and its inverse: what they make of a number on the way is
neither too large nor too small for its type, but at the very ends."""


def _chained(state: Lowering, left: Operand, op: str, right: Operand) -> Node | None:
    """A multiplication or division of (x * a) or (x / a) by a number as one by the number that both
    make: rounded once where eager rounds twice. None where others read x * a, or in 16 bits, whose
    rounding between the two is eager's."""
    source = state.call.args[0] if state.call is not None and state.call.args else None
    if not isinstance(source, fx.Node) or state.values.get(source) is not left:
        return None
    if not isinstance(left, Node) or len(source.users) != 1 or not left.dtype.is_floating_point:
        return None
    outer = _factor(right)
    if left.op not in ("mul", "div") or left.dtype != compute_dtype(left.dtype) or outer is None:
        return None
    x, number = left.args
    inner = _factor(number.attrs[0] if number.kind == "constant" else None)
    if inner is None:
        return None
    if op == left.op:
        return state.b.pointwise(op, x, inner * outer)
    return state.b.pointwise("mul", x, inner / outer if op == "div" else outer / inner)


def _factor(value: object) -> float | None:
    """A number that may be part of a chain."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 1 / CHAINED <= abs(value) <= CHAINED else None


def promoted(state: Lowering, x: Operand, y: Operand) -> tuple[Operand, Operand]:
    """Operands brought to one compute type where both are tensors of different kinds, or one is a
    number that a tensor of integers or truth values meets."""
    if isinstance(x, Node) and not isinstance(y, Node):
        return _beside(state, x, y)
    if isinstance(y, Node) and not isinstance(x, Node):
        right, left = _beside(state, y, x)
        return left, right
    if not (isinstance(x, Node) and isinstance(y, Node)):
        return x, y
    common = compute_dtype(torch.promote_types(x.dtype, y.dtype))
    if x.shape == () and y.shape != ():
        common = compute_dtype(torch.result_type(_like(x), torch.empty(1, dtype=y.dtype)))
    elif y.shape == () and x.shape != ():
        common = compute_dtype(torch.result_type(torch.empty(1, dtype=x.dtype), _like(y)))
    return _as(state, x, common), _as(state, y, common)


def _beside(state: Lowering, node: Node, value: Operand) -> tuple[Node, Operand]:
    """A tensor and a number, which wraps where eager keeps the tensor's narrow integers."""
    known = value if isinstance(value, bool | int | float) else 1
    common = compute_dtype(torch.result_type(_like(node), known))
    if isinstance(value, int) and not (common.is_floating_point or common == torch.bool):
        value = _wrapped(value, common)
    return _as(state, node, common), value


def _wrapped(value: int, dtype: torch.dtype) -> int:
    """The integer of `dtype` that has the same lowest bits."""
    info = torch.iinfo(dtype)
    return (value - info.min) % (info.max - info.min + 1) + info.min


def _like(node: Node) -> torch.Tensor:
    return torch.empty((), dtype=node.dtype)


def _as(state: Lowering, node: Node, dtype: torch.dtype) -> Node:
    return node if compute_dtype(node.dtype) == dtype else state.cast(node, dtype)


def scaled(state: Lowering, value: Operand, alpha: Scalar) -> Operand:
    """`alpha * value`, without a multiplication by one."""
    if alpha == 1:
        return value
    if isinstance(value, Node) and isinstance(alpha, int) and not value.dtype.is_floating_point:
        return state.b.pointwise("mul", *_beside(state, value, alpha))
    return state.b.pointwise("mul", value, alpha)


@lowers("add.Tensor", "add.Scalar")
def _add(state: Lowering, x: Operand, y: Operand, *rest: Scalar, alpha: Scalar = 1) -> Lowered:
    left, right = promoted(state, x, y)
    return state.b.pointwise("add", left, scaled(state, right, rest[0] if rest else alpha))


@lowers("sub.Tensor", "sub.Scalar")
def _sub(state: Lowering, x: Operand, y: Operand, *rest: Scalar, alpha: Scalar = 1) -> Lowered:
    left, right = promoted(state, x, y)
    return state.b.pointwise("sub", left, scaled(state, right, rest[0] if rest else alpha))


@lowers("rsub.Scalar", "rsub.Tensor")
def _rsub(state: Lowering, x: Operand, y: Operand, *rest: Scalar, alpha: Scalar = 1) -> Lowered:
    left, right = promoted(state, x, y)
    return state.b.pointwise("sub", right, scaled(state, left, rest[0] if rest else alpha))


@lowers("div.Tensor", "div.Scalar", "true_divide.Tensor")
def _div(state: Lowering, x: Operand, y: Operand) -> Lowered:
    left, right = promoted(state, x, y)
    left = state.compute(left) if isinstance(left, Node) else left
    right = state.compute(right) if isinstance(right, Node) else right
    return _chained(state, left, "div", right) or state.b.pointwise("div", left, right)


@lowers("addcmul.default")
def _addcmul(state: Lowering, x: Node, y: Node, z: Node, value: Scalar = 1) -> Lowered:
    product = scaled(state, state.b.pointwise("mul", y, z), value)
    return state.b.pointwise("add", x, product)


@lowers("addcdiv.default")
def _addcdiv(state: Lowering, x: Node, y: Node, z: Node, value: Scalar = 1) -> Lowered:
    quotient = scaled(state, state.b.pointwise("div", y, z), value)
    return state.b.pointwise("add", x, quotient)


@lowers("lerp.Scalar", "lerp.Tensor")
def _lerp(state: Lowering, x: Node, y: Node, weight: Operand) -> Lowered:
    """From the nearer end, as ATen's Lerp.h: `y` itself where the weight is 1."""
    b = state.b
    way = b.pointwise("sub", y, x)
    from_x = b.pointwise("add", x, b.pointwise("mul", way, weight))
    if not isinstance(weight, Node) and abs(weight) < 0.5:
        return from_x
    rest = b.pointwise("sub", 1, weight) if isinstance(weight, Node) else 1 - weight
    from_y = b.pointwise("sub", y, b.pointwise("mul", way, rest))
    if not isinstance(weight, Node):
        return from_y
    below = b.pointwise("lt", b.pointwise("abs", weight), 0.5)
    return b.pointwise("where", below, from_x, from_y)


@lowers("_to_copy.default", "to.dtype", "to.device", "to.dtype_layout", "float.default",
        "type_as.default", "prims.convert_element_type.default")  # fmt: skip
def _to(state: Lowering, x: Node, *_: object, **__: object) -> Lowered:
    return state.rounded(x, state.dtype)


@lowers("where.self", "where.ScalarOther", "where.ScalarSelf", "where.Scalar")
def _where(state: Lowering, condition: Node, x: Operand, y: Operand) -> Lowered:
    left, right = promoted(state, x, y)
    return state.b.pointwise("where", condition, left, right)


@lowers("masked_fill.Scalar", "masked_fill.Tensor")
def _masked_fill(state: Lowering, x: Node, mask: Node, value: Operand) -> Lowered:
    return state.b.pointwise("where", mask, value, x)


@lowers("clamp.default", "clamp.Tensor", "hardtanh.default", "clip.default")
def _clamp(
    state: Lowering, x: Node, *bounds: Operand | None, min: Operand | None = None,  # noqa: A002
    max: Operand | None = None, min_val: Operand | None = None, max_val: Operand | None = None,  # noqa: A002
) -> Lowered:  # fmt: skip
    low = bounds[0] if bounds else (min if min is not None else min_val)
    high = bounds[1] if len(bounds) > 1 else (max if max is not None else max_val)
    if "hardtanh" in str(getattr(state.call, "target", "")):
        low, high = (-1.0 if low is None else low), (1.0 if high is None else high)
    result = x
    if low is not None:
        result = state.b.pointwise("maximum", *promoted(state, result, low))
    if high is not None:
        result = state.b.pointwise("minimum", *promoted(state, result, high))
    return result


@lowers("clamp_min.default", "clamp_min.Tensor")
def _clamp_min(state: Lowering, x: Node, low: Operand) -> Lowered:
    return state.b.pointwise("maximum", *promoted(state, x, low))


@lowers("clamp_max.default", "clamp_max.Tensor")
def _clamp_max(state: Lowering, x: Node, high: Operand) -> Lowered:
    return state.b.pointwise("minimum", *promoted(state, x, high))


@lowers("relu6.default")
def _relu6(state: Lowering, x: Node) -> Lowered:
    return state.b.pointwise("minimum", state.b.pointwise("maximum", x, 0.0), 6.0)


@lowers("gelu.default")
def _gelu(state: Lowering, x: Node, approximate: str = "none") -> Lowered:
    op = "gelu_tanh" if approximate == "tanh" else "gelu"
    return state.b.pointwise(op, state.compute(x))


@lowers("leaky_relu.default")
def _leaky_relu(state: Lowering, x: Node, negative_slope: Scalar = 0.01) -> Lowered:
    b = state.b
    return b.pointwise("where", b.pointwise("gt", x, 0.0), x, b.pointwise("mul", x, negative_slope))


@lowers("rrelu.default")
def _rrelu(
    state: Lowering, x: Node, lower: Scalar = 0.125, upper: Scalar = 1 / 3,
    training: bool = False, _generator: object = None,
) -> Lowered:  # fmt: skip
    if training:
        raise UnsupportedOp("aten.rrelu", "it draws random numbers")
    return _leaky_relu(state, x, (lower + upper) / 2)


@lowers("prelu.default")
def _prelu(state: Lowering, x: Node, weight: Node) -> Lowered:
    b = state.b
    if len(x.shape) > 2 and weight.shape[0] != 1:
        weight = b.reshape(weight, (*weight.shape, *(ONE,) * (len(x.shape) - 2)))
    return b.pointwise("where", b.pointwise("gt", x, 0.0), x, b.pointwise("mul", x, weight))


@lowers("elu.default")
def _elu(
    state: Lowering, x: Node, alpha: Scalar = 1, scale: Scalar = 1, input_scale: Scalar = 1
) -> Lowered:
    b = state.b
    x = state.compute(x)
    low = b.pointwise("expm1", scaled_node(state, x, input_scale))
    low = scaled_node(state, low, alpha * scale)
    return b.pointwise("where", b.pointwise("gt", x, 0.0), scaled_node(state, x, scale), low)


@lowers("selu.default")
def _selu(state: Lowering, x: Node) -> Lowered:
    return _elu(state, x, 1.6732632423543772848170429916717, 1.0507009873554804934193349852946)


@lowers("celu.default")
def _celu(state: Lowering, x: Node, alpha: Scalar = 1.0) -> Lowered:
    return _elu(state, x, alpha, 1, 1.0 / alpha)


def scaled_node(state: Lowering, value: Node, factor: Scalar) -> Node:
    """`value * factor` as a node."""
    result = scaled(state, value, factor)
    assert isinstance(result, Node)
    return result


SOFTPLUS_IS_X = 15.0
"""From here on log(1 + e**x) is x in fp32: the rest, e**-x, is below half an ulp."""


@lowers("softplus.default")
def _softplus(state: Lowering, x: Node, beta: Scalar = 1, threshold: Scalar = 20) -> Lowered:
    b = state.b
    x = state.compute(x)
    inner = scaled_node(state, x, beta)
    soft = b.pointwise("softplus", inner)
    if beta == 1 and threshold >= SOFTPLUS_IS_X and x.dtype != torch.float64:
        return soft
    soft = scaled_node(state, soft, 1.0 / beta)
    return b.pointwise("where", b.pointwise("gt", inner, float(threshold)), x, soft)


@lowers("mish.default")
def _mish(state: Lowering, x: Node) -> Lowered:
    return state.b.pointwise("mish", state.compute(x))


@lowers("bitwise_not.default")
def _bitwise_not(state: Lowering, x: Node) -> Lowered:
    if x.dtype != torch.bool:
        return state.b.pointwise("bitwise_xor", *promoted(state, x, -1))
    return state.b.pointwise("logical_not", x)


BITS = ("bitwise_and", "bitwise_or", "bitwise_xor", "__and__", "__or__", "__xor__")


@lowers(*(f"{name}.{kind}" for name in BITS for kind in ("Tensor", "Scalar")))
def _bitwise(state: Lowering, x: Operand, y: Operand) -> Lowered:
    left, right = promoted(state, x, y)
    name = str(getattr(state.call, "target", "")).split(".")[1].strip("_")
    kind = "logical" if state.dtype == torch.bool else "bitwise"
    return state.b.pointwise(f"{kind}_{name.removeprefix('bitwise_')}", left, right)


@lowers("cosh.default")
def _cosh(state: Lowering, x: Node) -> Lowered:
    """(g * g + 1 / (g * g)) / 2 of g = exp(|x| / 2), halved first: g * g overflows earlier."""
    b = state.b
    root = b.pointwise("exp", b.pointwise("mul", b.pointwise("abs", state.compute(x)), 0.5))
    grown = b.pointwise("mul", b.pointwise("mul", root, 0.5), root)
    shrunk = b.pointwise("div", b.pointwise("div", 0.5, root), root)
    return b.pointwise("add", grown, shrunk)


@lowers("logaddexp.default")
def _logaddexp(state: Lowering, x: Node, y: Node) -> Lowered:
    """max(x, y) + log1p(exp(-|x - y|)): no overflow; two equal infinities are their own sum."""
    b = state.b
    left, right = promoted(state, x, y)
    assert isinstance(left, Node)
    assert isinstance(right, Node)
    left, right = state.compute(left), state.compute(right)
    top = b.pointwise("maximum", left, right)
    apart = b.pointwise("abs", b.pointwise("sub", left, right))
    tail = b.pointwise("log1p_of_unit", b.pointwise("exp", b.pointwise("neg", apart)))
    alike = b.pointwise("logical_and", b.pointwise("isinf", left), b.pointwise("eq", left, right))
    return b.pointwise("where", alike, left, b.pointwise("add", top, tail))


@lowers("hardswish.default")
def _hardswish(state: Lowering, x: Node) -> Lowered:
    return state.b.pointwise("mul", x, _hard_ramp(state, state.compute(x)))


@lowers("hardsigmoid.default")
def _hardsigmoid(state: Lowering, x: Node) -> Lowered:
    return _hard_ramp(state, state.compute(x))


def _hard_ramp(state: Lowering, x: Node) -> Node:
    """clamp(x + 3, 0, 6) / 6."""
    b = state.b
    low = b.pointwise("maximum", b.pointwise("add", x, 3.0), 0.0)
    return b.pointwise("div", b.pointwise("minimum", low, 6.0), 6.0)


@lowers("softsign.default")
def _softsign(state: Lowering, x: Node) -> Lowered:
    b = state.b
    x = state.compute(x)
    return b.pointwise("div", x, b.pointwise("add", b.pointwise("abs", x), 1.0))


@lowers("log_sigmoid.default")
def _log_sigmoid(state: Lowering, x: Node) -> Lowered:
    return state.b.pointwise("log_sigmoid", state.compute(x))


@lowers("threshold.default")
def _threshold(state: Lowering, x: Node, threshold: Scalar, value: Scalar) -> Lowered:
    b = state.b
    return b.pointwise("where", b.pointwise("le", x, threshold), value, x)


@lowers("square.default")
def _square(state: Lowering, x: Node) -> Lowered:
    return state.b.pointwise("mul", x, x)


@lowers("pow.Tensor_Scalar")
def _pow(state: Lowering, x: Node, exponent: Scalar) -> Lowered:
    b = state.b
    if exponent == 0.5:
        return b.pointwise("sqrt", state.compute(x))
    if exponent == -0.5:
        return b.pointwise("rsqrt", state.compute(x))
    if exponent in BY_ROOTS:
        return _of_infinity(state, x, _by_roots(state, state.compute(x), exponent), exponent)
    if exponent != int(exponent):
        return _of_infinity(state, x, _power(state, x, float(exponent)), exponent)
    if exponent == 0:
        one = b.constant(1.0 if x.dtype.is_floating_point else 1, compute_dtype(x.dtype))
        return b.expand(b.reshape(one, (ONE,) * len(x.shape)), x.shape)
    if abs(exponent) > 8 and x.dtype.is_floating_point:
        return b.pointwise("pow", state.compute(x), float(exponent))
    if not 1 <= abs(exponent) <= 8:
        raise UnsupportedOp("aten.pow", f"exponent {exponent}")
    base = state.compute(x) if exponent < 0 else x
    product = base
    for _ in range(int(abs(exponent)) - 1):
        product = b.pointwise("mul", product, base)
    return product if exponent > 0 else b.pointwise("reciprocal", product)


BY_ROOTS = (0.25, 0.75, 1.25, 1.5, 2.5)
"""Exponents whose powers are products of x, its root and the root of that, each rounded once: the
function of CUDA's library branches, and logarithms in fp64 take half of an H200's rate."""


def _by_roots(state: Lowering, x: Node, exponent: Scalar) -> Node:
    b = state.b
    root = b.pointwise("sqrt", x, name="root")
    parts = [x] * int(exponent)
    parts += [root] if exponent % 1 >= 0.5 else []
    parts += [b.pointwise("sqrt", root, name="root")] if exponent % 0.5 else []
    return functools.reduce(lambda left, right: b.pointwise("mul", left, right), parts)


def _of_infinity(state: Lowering, x: Node, power: Node, exponent: Scalar) -> Node:
    """`power`, but of -inf: it has no logarithm and no root, and a power as inf has one."""
    b = state.b
    below = b.pointwise("eq", x, -math.inf)
    return b.pointwise("where", below, math.inf if exponent > 0 else 0.0, power)


def _power(state: Lowering, x: Node, exponent: float) -> Node:
    """x ** exponent for x >= 0 (else NaN), in fp64: exp amplifies the error of the logarithm."""
    b = state.b
    wide = state.cast(x, torch.float64)
    log = b.pointwise("log", wide, name="log_base")
    return b.pointwise("exp", b.pointwise("mul", log, exponent), name="power")


@lowers("pow.Scalar")
def _exponential(state: Lowering, base: Scalar, x: Node) -> Lowered:
    b = state.b
    if base == 2:
        return b.pointwise("exp2", state.compute(x))
    if base <= 0:
        raise UnsupportedOp("aten.pow", f"base {base}")
    wide = state.cast(x, torch.float64)
    return b.pointwise("exp", b.pointwise("mul", wide, math.log(base)), name="power")


_register_tables()
