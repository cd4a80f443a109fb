"""How is one primitive operation written in Triton?"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch

from agentkernel.compiler.ir import UnsupportedOp

TRITON_TYPES = {
    torch.float64: "tl.float64", torch.float32: "tl.float32", torch.float16: "tl.float16",
    torch.bfloat16: "tl.bfloat16", torch.int64: "tl.int64", torch.int32: "tl.int32",
    torch.int16: "tl.int16", torch.int8: "tl.int8", torch.uint8: "tl.uint8", torch.bool: "tl.int1",
}  # fmt: skip
ATOM, PRODUCT, SUM, COMPARE, LOGIC = 5, 4, 3, 2, 1
"""How tightly an expression binds."""


class Text(NamedTuple):
    """An expression with its binding strength."""

    code: str
    strength: int = ATOM

    def within(self, strength: int) -> str:
        """The code, in parentheses where the context binds as tightly or more."""
        return self.code if self.strength > strength else f"({self.code})"


INFIX = {"add": ("+", SUM), "sub": ("-", SUM), "mul": ("*", PRODUCT), "div": ("/", PRODUCT),
         "floordiv": ("//", PRODUCT), "mod": ("%", PRODUCT)}  # fmt: skip
"""`floordiv` and `mod` are of places, which are not below zero: Triton rounds towards zero."""
ORDERINGS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
LOGICAL = {"logical_and": "&", "logical_or": "|", "logical_xor": "^"}
BITWISE = {"bitwise_and": "&", "bitwise_or": "|", "bitwise_xor": "^"}
BOOLEAN_OPS = {"add": "logical_or", "mul": "logical_and", "maximum": "logical_or",
             "minimum": "logical_and"}  # fmt: skip
"""Arithmetic of truth values: one bit has no carry, so `+` would be an exclusive or."""
BUILT_IN = {"abs": "tl.abs", "exp2": "tl.exp2", "log": "tl.log", "log2": "tl.log2",
            "sqrt": "tl.sqrt_rn", "rsqrt": "tl.rsqrt", "sin": "tl.sin", "cos": "tl.cos",
            "erf": "tl.erf", "floor": "tl.floor", "ceil": "tl.ceil"}  # fmt: skip
OPS_WITH_HELPERS = ("exp", "expm1", "log1p", "sigmoid", "tanh", "maximum", "minimum")


def literal(value: object) -> str:
    """A scalar constant as Triton source."""
    if isinstance(value, float):
        if math.isinf(value):
            return 'float("inf")' if value > 0 else '-float("inf")'
        return 'float("nan")' if math.isnan(value) else repr(value)
    return repr(value)


def pointwise_text(
    op: str,
    args: list[Text],
    source: torch.dtype,
    result: torch.dtype,
    helpers: set[str],
    *,
    coarse: bool = False,
) -> Text:
    """`op` applied to argument texts; `source` and `result` are compute types.

    `coarse`: the result is rounded to 16 bits, so the hardware's exp will do.
    """
    if result == torch.bool:
        op = BOOLEAN_OPS.get(op, op)
    if op == "sqrt" and source == torch.float64:
        return Text(f"tl.sqrt({args[0].code})")
    found = _operator(op, args) or (_coarse(op, args) if coarse else None)
    found = found or _special(op, args, source, result, helpers)
    if found is None:
        raise UnsupportedOp(op, "no Triton form")
    return found


def _operator(op: str, args: list[Text]) -> Text | None:
    if op in INFIX:
        sign, strength = INFIX[op]
        left = args[0].within(strength - 1)
        return Text(f"{left} {sign} {args[1].within(strength)}", strength)
    if op in ORDERINGS:
        return Text(f"{args[0].within(COMPARE)} {ORDERINGS[op]} {args[1].within(COMPARE)}", COMPARE)
    if op in LOGICAL:
        left, right = (_as_boolean(arg) for arg in args)
        return Text(f"{left} {LOGICAL[op]} {right}", LOGIC)
    if op in BITWISE:
        left, right = (arg.within(PRODUCT) for arg in args)
        return Text(f"{left} {BITWISE[op]} {right}", LOGIC)
    if op in BUILT_IN:
        return Text(f"{BUILT_IN[op]}({args[0].code})")
    return None


def _coarse(op: str, args: list[Text]) -> Text | None:
    first = args[0]
    if op in ("exp", "sigmoid"):
        return Text(f"tl.{op}({first.code})")
    if op == "silu":
        return Text(f"{first.within(PRODUCT)} * tl.sigmoid({first.code})", PRODUCT)
    return None


def _as_boolean(arg: Text) -> str:
    return f"({arg.code})" if arg.strength <= COMPARE else f"({arg.code} != 0)"


def _special(
    op: str, args: list[Text], source: torch.dtype, result: torch.dtype, helpers: set[str]
) -> Text | None:
    first = args[0]
    if source == torch.float64 and op not in ("maximum", "minimum"):
        found = _double(op, first)
        if found is not None:
            return found
    if op in ("maximum", "minimum") and not source.is_floating_point:
        return Text(f"tl.{op}({first.code}, {args[1].code})")
    if op in OPS_WITH_HELPERS:
        helpers.add(op)
        return Text(f"{op}({', '.join(arg.code for arg in args)})")
    if op == "silu":
        helpers.add("sigmoid")
        return Text(f"{first.within(PRODUCT)} * sigmoid({first.code})", PRODUCT)
    if op == "neg":
        return Text(f"-{first.within(PRODUCT)}", PRODUCT)
    if op == "where":
        return Text(f"tl.where({first.code}, {args[1].code}, {args[2].code})")
    if op == "relu":
        zero = "0.0" if source.is_floating_point else "0"
        return Text(f"tl.where({first.within(COMPARE)} < {zero}, {zero}, {first.code})")
    if op == "reciprocal":
        return Text(f"1.0 / {first.within(PRODUCT)}", PRODUCT)
    if op == "sign":
        signs = f"({first.code} > 0).to(tl.int32) - ({first.code} < 0).to(tl.int32)"
        return Text(f"({signs}).to({TRITON_TYPES[result]})")
    if op == "isnan":
        return Text(f"{first.within(COMPARE)} != {first.within(COMPARE)}", COMPARE)
    if op == "isinf":
        return Text(f'tl.abs({first.code}) == float("inf")', COMPARE)
    if op == "logical_not":
        return Text(f"{first.within(COMPARE)} == 0", COMPARE)
    if op in ("copy", "cast"):
        return _cast(first, source, result)
    return None


def _double(op: str, first: Text) -> Text | None:
    """In fp64, where Triton's own exp is exact enough and the helpers, made for fp32, are not."""
    if op == "exp":
        return Text(f"tl.exp({first.code})")
    if op in ("sigmoid", "silu"):
        above = first.within(PRODUCT) if op == "silu" else "1.0"
        return Text(f"{above} / (1.0 + tl.exp(-{first.within(PRODUCT)}))", PRODUCT)
    if op in ("expm1", "tanh"):
        raise UnsupportedOp(op, "in fp64")
    return None


def _cast(value: Text, source: torch.dtype, result: torch.dtype) -> Text:
    if source == result:
        return value
    if result == torch.bool:
        return Text(f"{value.within(COMPARE)} != 0", COMPARE)
    return Text(f"({value.code}).to({TRITON_TYPES[result]})")
