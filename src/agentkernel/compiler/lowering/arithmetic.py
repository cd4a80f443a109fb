"""Lowerings of rounding, division with a rounded quotient, powers and the functions that CUDA's
library has."""

from __future__ import annotations

from collections.abc import Callable

import torch

from agentkernel.compiler.ir import Node, UnsupportedOp
from agentkernel.compiler.lowering.pointwise import promoted
from agentkernel.compiler.lowering.registry import Lowered, Lowering, Operand, lowers

FUNCTIONS = ("acos", "acosh", "asin", "asinh", "atan", "atanh", "erfc", "erfinv", "lgamma", "log10",
             "sinh", "tan")  # fmt: skip
"""Of one float, by the same function of CUDA's library as eager on a GPU."""
OF_TWO = {"atan2": "atan2", "arctan2": "atan2", "hypot": "hypot", "copysign": "copysign",
          "nextafter": "nextafter"}  # fmt: skip


def _register_tables() -> None:
    for name in FUNCTIONS:
        lowers(f"{name}.default")(_function(name))
    for name, op in OF_TWO.items():
        lowers(f"{name}.default", f"{name}.Tensor")(_function_of_two(op))


def _function(op: str) -> Callable[..., Lowered]:
    def apply(state: Lowering, x: Node) -> Lowered:
        return state.b.pointwise(op, state.compute(x))

    return apply


def _function_of_two(op: str) -> Callable[..., Lowered]:
    def apply(state: Lowering, x: Node, y: Node) -> Lowered:
        left, right = _floats(state, x, y)
        return state.b.pointwise(op, left, right)

    return apply


def _floats(state: Lowering, x: Node, y: Operand) -> tuple[Node, Node]:
    """Both in the type that they are computed in; a number is one of that type."""
    left, right = promoted(state, x, y)
    assert isinstance(left, Node)
    left = state.compute(left)
    if not isinstance(right, Node):
        if not isinstance(right, bool | int | float):
            raise UnsupportedOp("size", "a size as the operand of a function")
        return left, state.b.constant(float(right), left.dtype)
    return left, state.compute(right)


@lowers("trunc.default", "fix.default")
def _trunc(state: Lowering, x: Node) -> Lowered:
    return state.b.pointwise("trunc", x) if x.dtype.is_floating_point else x


@lowers("frac.default")
def _frac(state: Lowering, x: Node) -> Lowered:
    return state.b.pointwise("sub", x, state.b.pointwise("trunc", x))


@lowers("round.default", "round.decimals")
def _round(state: Lowering, x: Node, *, decimals: int = 0) -> Lowered:
    """Ties to even; to decimals as ATen's kernel: scaled by a power of ten, rounded, scaled back,
    which for a negative number of decimals is a division first."""
    b = state.b
    if not x.dtype.is_floating_point:
        if decimals:
            raise UnsupportedOp("aten.round", "decimals of integers")
        return x
    wide = state.compute(x)
    if decimals == 0:
        return b.pointwise("round", wide)
    power = float(10 ** abs(decimals))
    there, back = ("mul", "div") if decimals > 0 else ("div", "mul")
    return b.pointwise(back, b.pointwise("round", b.pointwise(there, wide, power)), power)


@lowers("fmod.Tensor", "fmod.Scalar")
def _fmod(state: Lowering, x: Node, y: Operand) -> Lowered:
    if _whole(state):
        return state.b.pointwise("mod", *_integers(state, x, y))
    return state.b.pointwise("fmod", *_floats(state, x, y))


@lowers("remainder.Tensor", "remainder.Scalar")
def _remainder(state: Lowering, x: Node, y: Operand) -> Lowered:
    """With the sign of the divisor."""
    b = state.b
    whole = _whole(state)
    left, right = _integers(state, x, y) if whole else _floats(state, x, y)
    rest = b.pointwise("mod" if whole else "fmod", left, right)
    return b.pointwise("where", _apart(state, rest, right), b.pointwise("add", rest, right), rest)


@lowers("floor_divide.default", "floor_divide.Scalar")
def _floor_divide(state: Lowering, x: Node, y: Operand) -> Lowered:
    return _divide(state, x, y, rounding_mode="floor")


@lowers("div.Tensor_mode", "div.Scalar_mode")
def _divide(state: Lowering, x: Node, y: Operand, *, rounding_mode: str | None = None) -> Lowered:
    b = state.b
    if rounding_mode is not None and _whole(state):
        left, right = _integers(state, x, y)
        towards_zero = b.pointwise("floordiv", left, right)
        if rounding_mode == "trunc":
            return towards_zero
        below = _apart(state, b.pointwise("mod", left, right), right)
        return b.pointwise("where", below, b.pointwise("sub", towards_zero, 1), towards_zero)
    left, right = _floats(state, x, y)
    if rounding_mode == "floor":
        return _floored(state, left, right)
    quotient = b.pointwise("div", left, right)
    return b.pointwise("trunc", quotient) if rounding_mode == "trunc" else quotient


def _floored(state: Lowering, x: Node, y: Node) -> Node:
    """floor(x / y) as ATen's div_floor_floating: from the exact remainder, so that the rounding of
    the quotient does not lift it; x / y where y is 0, and a zero with the sign of x / y."""
    b = state.b
    rest = b.pointwise("fmod", x, y)
    quotient = b.pointwise("div", b.pointwise("sub", x, rest), y)
    below = _apart(state, rest, y)
    quotient = b.pointwise("where", below, b.pointwise("sub", quotient, 1.0), quotient)
    floor = b.pointwise("floor", quotient)
    over = b.pointwise("gt", b.pointwise("sub", quotient, floor), 0.5)
    floor = b.pointwise("where", over, b.pointwise("add", floor, 1.0), floor)
    plain = b.pointwise("div", x, y)
    zero = b.pointwise("copysign", b.pointwise("mul", plain, 0.0), plain)
    floor = b.pointwise("where", b.pointwise("eq", quotient, 0.0), zero, floor)
    return b.pointwise("where", b.pointwise("eq", y, 0.0), plain, floor)


def _apart(state: Lowering, rest: Node, divisor: Node) -> Node:
    """Where a remainder that is not 0 has another sign than the divisor."""
    b = state.b
    signs = b.pointwise("ne", b.pointwise("lt", rest, 0), b.pointwise("lt", divisor, 0))
    return b.pointwise("logical_and", b.pointwise("ne", rest, 0), signs)


def _whole(state: Lowering) -> bool:
    return not (state.dtype.is_floating_point or state.dtype == torch.bool)


def _integers(state: Lowering, x: Node, y: Operand) -> tuple[Node, Node]:
    left, right = promoted(state, x, y)
    assert isinstance(left, Node)
    if isinstance(right, Node):
        return left, right
    if not isinstance(right, int):
        raise UnsupportedOp("size", "a size as a divisor")
    return left, state.b.constant(right, left.dtype)


@lowers("fmax.default", "fmin.default")
def _extremum(state: Lowering, x: Node, y: Node) -> Lowered:
    """The other operand where one is NaN."""
    b = state.b
    op = "maximum" if "fmax" in str(getattr(state.call, "target", "")) else "minimum"
    left, right = promoted(state, x, y)
    assert isinstance(left, Node)
    assert isinstance(right, Node)
    either = b.pointwise(op, left, right)
    if not state.dtype.is_floating_point:
        return either
    either = b.pointwise("where", b.pointwise("isnan", left), right, either)
    return b.pointwise("where", b.pointwise("isnan", right), left, either)


@lowers("pow.Tensor_Tensor")
def _power(state: Lowering, x: Node, y: Node) -> Lowered:
    if not state.dtype.is_floating_point:
        raise UnsupportedOp("aten.pow", "powers of integers")
    return state.b.pointwise("pow", *_floats(state, x, y))


@lowers("signbit.default")
def _signbit(state: Lowering, x: Node) -> Lowered:
    b = state.b
    if not x.dtype.is_floating_point:
        return b.pointwise("lt", x, 0)
    one = b.pointwise("copysign", b.constant(1.0, state.compute(x).dtype), state.compute(x))
    return b.pointwise("lt", one, 0.0)


_register_tables()
