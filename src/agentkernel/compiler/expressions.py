"""Sizes, primitive operations, library calls and statements as source text.

Symbolic sizes are written for the wrapper and for kernels, primitive operations as Triton with
their binding strength, and views of stored values as Python. Statements are printed in
lines of at most 99 characters.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import sympy
import torch
from torch.utils._sympy.printers import PythonPrinter

from agentkernel.compiler.ir import Expr, Node, UnsupportedOp, same
from agentkernel.compiler.kernel_math import MATH
from agentkernel.tools.problem.capture import Captured

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
LIBRARY = {"round": "nearbyint", **{name: name for name in (
    "acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "copysign", "erfc", "erfinv",
    "fmod", "hypot", "lgamma", "log10", "nextafter", "pow", "sinh", "tan", "trunc")}}  # fmt: skip
"""Operation -> the function of CUDA's library, which eager calls as well."""
ROUNDINGS = {torch.float16: "round_to_float16", torch.bfloat16: "round_to_bfloat16"}
"""The narrow floats, which are computed with in fp32, and the operation that rounds to each."""
ROUNDED = {op: f".to({TRITON_TYPES[dtype]}).to(tl.float32)" for dtype, op in ROUNDINGS.items()}
OPS_WITH_HELPERS = (*MATH, "maximum", "minimum")


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

    `coarse`: the result is rounded to 16 bits, so the helpers made for these will do.
    """
    if result == torch.bool:
        op = BOOLEAN_OPS.get(op, op)
    if op == "sqrt" and source == torch.float64:
        return Text(f"tl.sqrt({args[0].code})")
    found = _operator(op, args)
    if found is None and source == torch.float64:
        found = _double(op, args[0])
    if found is None and op in OPS_WITH_HELPERS:
        found = _helped(op, args, source, helpers, coarse=coarse)
    found = found or _special(op, args, source, result)
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
    if op in LIBRARY:
        return Text(f"libdevice.{LIBRARY[op]}({', '.join(arg.code for arg in args)})")
    return None


def _as_boolean(arg: Text) -> str:
    return f"({arg.code})" if arg.strength <= COMPARE else f"({arg.code} != 0)"


def _helped(
    op: str, args: list[Text], source: torch.dtype, helpers: set[str], *, coarse: bool
) -> Text:
    given = ", ".join(arg.code for arg in args)
    if op in ("maximum", "minimum") and not source.is_floating_point:
        return Text(f"tl.{op}({given})")
    name = f"coarse_{op}" if coarse and f"coarse_{op}" in MATH else op
    helpers.add(name)
    return Text(f"{name}({given})")


def _special(op: str, args: list[Text], source: torch.dtype, result: torch.dtype) -> Text | None:
    first = args[0]
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
    if op in ROUNDED:
        return Text(first.within(PRODUCT) + ROUNDED[op])
    return None


DOUBLE = {
    "exp": "tl.exp({x})",
    "expm1": "libdevice.expm1({x})",
    "log1p": "libdevice.log1p({x})",
    "log1p_of_unit": "libdevice.log1p({x})",
    "tanh": "libdevice.tanh({x})",
    "sigmoid": "(1.0 / (1.0 + tl.exp(-({x}))))",
    "silu": "({x} / (1.0 + tl.exp(-({x}))))",
    "softplus": "(tl.maximum({x}, 0.0) + libdevice.log1p(tl.exp(-tl.abs({x}))))",
    "log_sigmoid": "(tl.minimum({x}, 0.0) - libdevice.log1p(tl.exp(-tl.abs({x}))))",
    "gelu": "({x} * 0.5 * (1.0 + tl.erf({x} * 0.7071067811865476)))",
    "gelu_tanh": "({x} / (1.0 + tl.exp({x} * ({x} * {x} * -0.07135481627159986 "
    "- 1.5957691216057308))))",
}
DOUBLE["mish"] = "({x} * libdevice.tanh(" + DOUBLE["softplus"] + "))"
"""The helpers are made for fp32; in fp64 Triton's own exp is exact, and CUDA has the others."""


def _double(op: str, first: Text) -> Text | None:
    return Text(DOUBLE[op].format(x=first.within(PRODUCT))) if op in DOUBLE else None


def _cast(value: Text, source: torch.dtype, result: torch.dtype) -> Text:
    if source == result:
        return value
    if result == torch.bool:
        return Text(f"{value.within(COMPARE)} != 0", COMPARE)
    # A GPU has no conversion to 8 bits, and one to 16 saturates: eager keeps the lowest bits, of 64
    # for uint8 (c10/util/TypeCast.h).
    through = {torch.uint8: "tl.int64", torch.int8: "tl.int32", torch.int16: "tl.int32"}
    wide = f".to({through[result]})" if source.is_floating_point and result in through else ""
    return Text(f"({value.code}){wide}.to({TRITON_TYPES[result]})")


PRINTER = PythonPrinter()


@dataclass(frozen=True)
class Symbols:
    """Free symbols of a graph: how each is read from the inputs, and its usual value."""

    readings: dict[str, str]
    values: dict[str, int]

    def hint(self, expr: Expr) -> int:
        """The value of a size at the captured shapes."""
        if expr == sympy.oo:
            return 1 << 62
        known = {symbol: self.values[str(symbol)] for symbol in expr.free_symbols}
        return int(expr.subs(known))

    def name(self, symbol: sympy.Symbol) -> str:
        """The wrapper's variable for a symbol, e.g. `x_dim0`."""
        return self.readings[str(symbol)].replace(".shape[", "_dim").rstrip("]")

    def wrapper(self, expr: Expr) -> str:
        """`expr` as Python over the wrapper's size variables."""
        named = expr.subs({
            symbol: sympy.Symbol(self.name(symbol), positive=True, integer=True)
            for symbol in expr.free_symbols
        })  # fmt: skip
        return str(PRINTER.doprint(sympy.expand(named) if named.is_polynomial() else named))


PLAIN_SIZE = re.compile(r"[\w.]+(\[-?\d+\])?")
"""A size that a sign binds to: `x_dim0`, `x.shape[0]`."""


def tiles_text(size: str, block: int) -> str:
    """How many blocks cover `size`, both at least 1, as Python over the wrapper's sizes.

    Plain arithmetic, which Python folds where the size is a number: triton.cdiv takes 5 us of
    processor time a call (Triton 3.6, a constexpr function), as much as a launch.
    """
    atom = size if PLAIN_SIZE.fullmatch(size) else f"({size})"
    return atom if block == 1 else f"-(-{atom} // {block})"


def power_of_two_text(size: str) -> str:
    """The least power of two that is not below `size`, which is at least 1, as Python."""
    if size.isdigit():
        return str(1 << max(int(size) - 1, 0).bit_length())
    return f"1 << ({size} - 1).bit_length()"


def symbols_of(captured: Captured, input_names: Mapping[str, str] | None = None) -> Symbols:
    """Symbols of the free dimensions; `input_names`: placeholder -> the wrapper's variable, of the
    same name where they are left out."""
    names = input_names or {name: name for name in captured.user_inputs}
    readings: dict[str, str] = {}
    values: dict[str, int] = {}
    for free in captured.free_dims:
        placeholder = captured.user_inputs[free.input_index]
        readings.setdefault(free.symbol, f"{names[placeholder]}.shape[{free.dim}]")
        values[free.symbol] = free.size
    return Symbols(readings, values)


@dataclass
class KernelSizes:
    """Size parameters of one kernel: `n_rows` and `n_cols` first, then the symbols left."""

    symbols: Symbols
    rows: Expr
    cols: Expr
    cols_name: str = "n_cols"
    rows_name: str = "n_rows"
    extra: dict[str, Expr] = field(default_factory=dict)
    rows_read: bool = False
    """Whether the kernel reads the number of rows, be it as a stride."""

    def text(self, expr: Expr) -> str:
        """`expr` over the kernel's parameters."""
        if expr.is_number:
            if same(expr, self.cols) and expr != 1:
                return self.cols_name
            if expr != 0 and same(expr, self.cols - 1):
                return f"({self.cols_name} - 1)"
            return str(int(expr))
        if same(expr, self.cols):
            return self.cols_name
        if same(expr, self.rows):
            self.rows_read = True
            return self.rows_name
        ratio = sympy.cancel(expr / self.cols)
        if ratio.is_number and ratio.is_integer:
            return f"({ratio} * {self.cols_name})"
        for symbol in sorted(expr.free_symbols, key=str):
            self.extra.setdefault(self.symbols.name(symbol), symbol)
        code = self.symbols.wrapper(expr)
        return code if code.isidentifier() else f"({code})"


def tensor_text(node: Node, buffers: Mapping[Node, str], symbols: Symbols) -> str:
    """A stored value, or a view of one, as Python."""
    if node in buffers:
        return buffers[node]
    if node.kind != "view":
        raise UnsupportedOp(node.op, "a library call on a value that is not stored")
    below = tensor_text(node.args[0], buffers, symbols)
    sizes = ", ".join(symbols.wrapper(size) for size in node.shape)
    if node.op == "slice":
        axis, start, step = node.attrs
        assert isinstance(axis, int)
        first = symbols.wrapper(start)
        last = f"{first} + {symbols.wrapper(node.shape[axis])} * {step}"
        return f"{below}[{':, ' * axis}{first}:{last}:{step}]"
    if node.op == "permute":
        return f"{below}.permute({', '.join(str(item) for item in node.attrs)})"
    return f"{below}.{node.op}({sizes})"


WIDTH = 96
OPENING, CLOSING = "([{", ")]}"


def function_text(function: ast.FunctionDef, docstring: str) -> str:
    """A whole function with its decorators."""
    head = [f"@{ast.unparse(item)}" for item in function.decorator_list]
    signature = f"def {function.name}({ast.unparse(function.args)}):"
    body = list(block_lines(function.body, "    "))
    return "\n".join([*head, *wrap_line(signature, ""), *_docstring(docstring), *body])


def _docstring(text: str) -> list[str]:
    return [f'    """{text}"""'] if text else []


def block_lines(body: Sequence[ast.stmt], indent: str) -> Iterator[str]:
    """Lines of a block, loops and branches included."""
    for statement in body:
        if isinstance(statement, ast.For):
            head = f"for {ast.unparse(statement.target)} in {ast.unparse(statement.iter)}:"
            yield from wrap_line(head, indent)
            yield from block_lines(statement.body, indent + "    ")
        elif isinstance(statement, ast.If):
            yield from _branches(statement, "if", indent)
        else:
            yield from wrap_line(ast.unparse(statement), indent)


def _branches(statement: ast.If, word: str, indent: str) -> Iterator[str]:
    yield from wrap_line(f"{word} {ast.unparse(statement.test)}:", indent)
    yield from block_lines(statement.body, indent + "    ")
    rest = [item for item in statement.orelse if not isinstance(item, ast.Pass)]
    if len(rest) == 1 and isinstance(rest[0], ast.If):
        yield from _branches(rest[0], "elif", indent)
    elif rest:
        yield f"{indent}else:"
        yield from block_lines(rest, indent + "    ")


def wrap_line(text: str, indent: str) -> list[str]:
    """`text` as one line where it fits; else broken after commas within its longest bracket, or,
    where there is none to break, at sums within parentheses of its own."""
    text = text if '"' in text else text.replace("'", '"')
    if len(indent) + len(text) <= WIDTH or "\n" in text:
        return [indent + line for line in text.splitlines()]
    start, end = _longest_bracket(text)
    pieces = _pieces(text[start + 1 : end], ", ") if end else []
    if pieces and (len(pieces) > 1 or len(pieces[0]) > WIDTH // 2):
        inner = _filled(pieces, indent + "    ")
        return [indent + text[: start + 1], *inner, indent + text[end:]]
    name, sign, value = text.partition(" = ")
    for operator in (" + ", " * ") if sign else ():
        parts = _pieces(value, operator)
        if len(parts) > 1:
            word = operator.lstrip()
            lines = [f"{indent}    {word if i else ''}{part}" for i, part in enumerate(parts)]
            return [f"{indent}{name} = (", *lines, f"{indent})"]
    return [indent + text]


def forward_lines(text: str) -> list[str]:
    """`wrap_line` for a line of a method's body, which is indented later."""
    indent = " " * 8
    return [line.removeprefix(indent) for line in wrap_line(text, indent)]


def _longest_bracket(text: str) -> tuple[int, int]:
    """The two ends of the longest bracket at depth 0; (0, 0) where there is none."""
    depth, start = 0, 0
    best = (0, 0)
    for place, sign in enumerate(text):
        if sign in OPENING:
            start = start if depth else place
            depth += 1
        elif sign in CLOSING:
            depth -= 1
            if depth == 0 and place - start > best[1] - best[0]:
                best = (start, place)
    return best


def _pieces(text: str, separator: str) -> list[str]:
    """`text` cut at the separators outside of brackets and quotes."""
    depth, quoted, last, found = 0, "", 0, []
    for place, sign in enumerate(text):
        if quoted:
            quoted = "" if sign == quoted else quoted
        elif sign in "'\"":
            quoted = sign
        elif sign in OPENING:
            depth += 1
        elif sign in CLOSING:
            depth -= 1
        elif depth == 0 and text.startswith(separator, place):
            found.append(text[last:place].strip())
            last = place + len(separator)
    return [*found, text[last:].strip()]


def _filled(pieces: Sequence[str], indent: str) -> list[str]:
    """As many pieces a line as fit, each with its comma; a single one without."""
    if len(pieces) == 1:
        return wrap_line(pieces[0], indent)
    lines: list[str] = []
    for piece in pieces:
        if len(indent) + len(piece) >= WIDTH:
            broken = wrap_line(piece, indent)
            lines += [*broken[:-1], f"{broken[-1]},"]
        elif lines and len(lines[-1]) + len(piece) + 2 <= WIDTH:
            lines[-1] += f" {piece},"
        else:
            lines.append(f"{indent}{piece},")
    return lines
