"""Expressions of a kernel in words: loads, masks, indices, reductions and products."""

from __future__ import annotations

import ast

from agentkernel.chat.explain.roles import (
    Scope,
    argument_words,
    axis_of,
    origins,
    root_of,
    summands,
    unit,
    without_conversions,
)
from agentkernel.chat.explain.source import code, dotted, first_line, keyword

ELEMENTWISE = {
    "exp": "e to the power of {0}",
    "exp2": "2 to the power of {0}",
    "log": "natural logarithm of {0}",
    "log2": "logarithm to base 2 of {0}",
    "log1p": "log(1 + x) of {0}",
    "sqrt": "square root of {0}",
    "sqrt_rn": "square root (rounded as IEEE has it) of {0}",
    "rsqrt": "1 / square root of {0}",
    "abs": "magnitude of {0}",
    "erf": "error function of {0}",
    "sigmoid": "sigmoid of {0}",
    "tanh": "tanh of {0}",
    "sin": "sine of {0}",
    "cos": "cosine of {0}",
    "floor": "{0} rounded down",
    "ceil": "{0} rounded up",
    "maximum": "the larger of {0} and {1}",
    "minimum": "the smaller of {0} and {1}",
    "clamp": "{0}, held between {1} and {2}",
    "fma": "{0} * {1} + {2}, rounded once",
    "div_rn": "{0} / {1}, rounded as IEEE has it",
    "fdiv": "{0} / {1}",
    "trans": "{0} transposed",
    "permute": "{0} with its axes in another order",
    "broadcast_to": "{0} repeated to the shape {1}",
    "broadcast": "{0} and {1} repeated to one shape",
    "reshape": "{0} in the shape {1}",
    "view": "{0} in the shape {1}",
    "expand_dims": "{0} with one more axis",
    "cast": "{0} converted to {1}",
    "multiple_of": "{0}, with the promise to the compiler that it is a multiple of {1}",
    "max_contiguous": "{0}, with the promise to the compiler that {1} values in a row follow on",
    "cdiv": "how many blocks of {1} cover {0}",
    "join": "{0} and {1} side by side along a new last axis",
    "split": "{0} taken apart along its last axis",
    "cat": "{0} and {1} one after the other",
    "num_programs": "the number of programs along grid axis {0}",
    "zeros_like": "zeros in the shape of {0}",
    "rand": "uniform random numbers from the seed {0} at {1}",
    "randint": "random integers from the seed {0} at {1}",
}
"""Functions of triton.language -> words; {0} is the first argument."""
REDUCTIONS = {
    "sum": "sum",
    "max": "maximum",
    "min": "minimum",
    "argmax": "index of the maximum",
    "argmin": "index of the minimum",
    "xor_sum": "exclusive or",
    "cumsum": "running sum",
    "cumprod": "running product",
    "sort": "sorted values",
}
PRECISIONS = {
    "tf32x3": "tf32x3: three TF32 products, close to fp32",
    "tf32": "TF32: operands keep 10 bits of mantissa",
    "ieee": "IEEE fp32, without tensor cores",
    "bf16x3": "bf16x3: three bf16 products",
    "bf16x6": "bf16x6: six bf16 products, close to fp32",
}
OPERATORS: dict[type[ast.operator], str] = {
    ast.Div: "divided by",
    ast.Mult: "times",
    ast.Add: "plus",
    ast.Sub: "minus",
}


def value_words(node: ast.expr, scope: Scope, name: str = "") -> str:
    """What `node` is; `name` is what it is given to, which tells rows from columns."""
    if isinstance(node, ast.Call):
        return _call(node, scope, name)
    if isinstance(node, ast.Subscript) and scope.role(node).kind == "index":
        return index_words(node, scope, name)
    if isinstance(node, ast.Subscript) and _adds_axes(node) and _is_notable(node.value, scope):
        return f"{value_words(node.value, scope, name)}, with an axis of size 1 added"
    if isinstance(node, ast.Compare | ast.BoolOp) or scope.role(node).kind == "mask":
        return mask_words(node, scope)
    if isinstance(node, ast.BinOp):
        return _binary(node, scope, name)
    if isinstance(node, ast.IfExp):
        return f"{code(node.body)} if {code(node.test)}, else {code(node.orelse)}"
    if isinstance(node, ast.Tuple):
        return ", ".join(value_words(item, scope) for item in node.elts)
    if isinstance(node, ast.Constant):
        return f"the constant {code(node)}"
    if isinstance(node, ast.Name):
        return f"the same as {node.id}"
    return code(node)


def mask_words(node: ast.expr, scope: Scope) -> str:
    """`true where row < rows and k < depth`, and what that keeps from happening."""
    parts = _conditions(node)
    text = " and ".join(code(part, 60) for part in parts)
    of_index = any(
        isinstance(part, ast.Compare)
        and scope.role(part.left).kind in ("index", "program", "start")
        and isinstance(part.ops[0], ast.Lt | ast.LtE)
        for part in parts
    )
    names = all(isinstance(part, ast.Name) for part in parts)
    why = " (inside the tensor's edges)" if of_index else ""
    return f"true where {text}{' hold' if names and len(parts) > 1 else ''}{why}"


def _conditions(node: ast.expr) -> list[ast.expr]:
    node = without_conversions(node)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitAnd):
        return [*_conditions(node.left), *_conditions(node.right)]
    if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.And):
        return [part for value in node.values for part in _conditions(value)]
    return [node]


def index_words(node: ast.expr, scope: Scope, name: str) -> str:
    """Indices: of the program's tile, of a loop's block, or made from others."""
    parts = summands(node)
    ranges = [part for part in parts if _is_range(part, scope)]
    if len(ranges) != 1:
        return _index_arithmetic(node, scope)
    extent = _extent(ranges[0])
    others = [scope.role(part).kind for part in parts if part is not ranges[0]]
    if "start" in others:
        begin = next(part for part in parts if scope.role(part).kind == "start")
        return f"the {extent} {unit(name)} indices of the block that begins at {code(begin)}"
    if "program" in others:
        return f"the {extent} {unit(name)} indices of this program's tile"
    if not others:
        return f"the {extent} {unit(name)} indices 0 to {_last(extent)}"
    return f"the {extent} {unit(name)} indices from {code(node)}"


def _index_arithmetic(node: ast.expr, scope: Scope) -> str:
    inner = without_conversions(node)
    if isinstance(inner, ast.BinOp) and isinstance(inner.op, ast.Mod | ast.FloorDiv):
        return f"a coordinate of each element: {code(inner)}"
    return f"the offsets {code(node)} of the elements"


def program_words(node: ast.expr) -> str:
    """Arithmetic on a program's number."""
    inner = without_conversions(node)
    if isinstance(inner, ast.BinOp) and isinstance(inner.op, ast.Mult):
        return f"where this program's tile begins: {code(inner)}"
    if isinstance(inner, ast.BinOp) and isinstance(inner.op, ast.FloorDiv | ast.Mod):
        return f"a coordinate of this program's tile: {code(inner)}"
    if isinstance(inner, ast.Name):
        return f"the same as {inner.id}"
    return f"a number of this program's own: {code(inner)}"


def _binary(node: ast.BinOp, scope: Scope, name: str) -> str:
    kind = scope.role(node).kind
    if kind == "pointers":
        root = root_of(node, scope)
        return f"the addresses of elements of {argument_words(root, scope)}: {code(node)}"
    if kind == "index":
        return index_words(node, scope, name)
    if kind == "program":
        return program_words(node)
    if kind == "start":
        return f"{code(node)}, which changes with the loop"
    left, right = _is_notable(node.left, scope), _is_notable(node.right, scope)
    operator = OPERATORS.get(type(node.op))
    if operator is not None and left != right:
        first = value_words(node.left, scope) if left else code(node.left)
        second = value_words(node.right, scope) if right else code(node.right)
        return f"{first}, {operator} {second}" if left else f"{first} {operator} the {second}"
    if isinstance(node.op, ast.Mult) and ast.dump(node.left) == ast.dump(node.right):
        return f"the square of {code(node.left)}"
    if kind == "argument":
        return f"the number {code(node)}"
    return f"computed as {code(node)}{origins(node, scope)}"


def _call(node: ast.Call, scope: Scope, name: str) -> str:
    called = scope.file.called(node.func)
    short = called.rpartition(".")[2]
    if called in ("tl.load", ".load"):
        return _load(node, scope)
    if called == "tl.program_id":
        return _program(node, scope)
    if called == "tl.arange":
        return index_words(node, scope, name)
    if called in (".to", "tl.cast"):
        return _converted(node, scope, name)
    if called == "tl.dot":
        return dot_words(node)
    if called in ("tl.zeros", "tl.full"):
        return _filled(node, short)
    if called == "tl.where" and len(node.args) == 3:
        condition, first, second = node.args
        return f"{code(first)} where {code(condition)}, elsewhere {code(second)}"
    if short in REDUCTIONS and (called.startswith("tl.") or called == f".{short}"):
        return _reduction(node, short)
    if called in ("tl.reduce", "tl.associative_scan"):
        return _custom_reduction(node, short)
    return _other_call(node, scope, called, short)


def _other_call(node: ast.Call, scope: Scope, called: str, short: str) -> str:
    if called == "tl.make_block_ptr":
        return f"a block pointer into {argument_words(root_of(node, scope), scope)}"
    if called == "tl.make_tensor_descriptor":
        return f"a tensor descriptor (TMA) of {argument_words(root_of(node, scope), scope)}"
    if called == "tl.advance":
        return f"the block pointer {code(node.args[0])} moved on" if node.args else code(node)
    if called.startswith("tl.") and short in ELEMENTWISE:
        words = _template(short, [code(item, 60) for item in node.args])
        if words:
            return words
    helper = scope.file.kernels.get(called)
    if helper is not None:
        told = first_line(helper.node)
        return f"{code(node)}, by the helper {called}" + (f" ({told.rstrip('.')})" if told else "")
    if called in ("float", "int") and node.args:
        return f"the constant {code(node)}"
    return f"the result of {code(node)}"


def _template(short: str, arguments: list[str]) -> str:
    try:
        return ELEMENTWISE[short].format(*arguments)
    except IndexError:
        return ""


def _load(node: ast.Call, scope: Scope) -> str:
    address = node.args[0] if node.args else keyword(node, "pointer")
    if address is None or scope.file.called(node.func) == ".load":
        return f"the tile that {code(node)} reads"
    mask, other = keyword(node, "mask", 1), keyword(node, "other", 2)
    text = f"read from {place_words(address, scope)}"
    if mask is None or (isinstance(mask, ast.Constant) and mask.value is None):
        return f"{text}, without a mask"
    filled = f", {code(other)} elsewhere" if other is not None else ", undefined elsewhere"
    return f"{text} where {code(mask, 60)}{filled}"


def place_words(address: ast.expr, scope: Scope) -> str:
    """`x_ptr (x at the launch) at row * columns + column`."""
    root = root_of(address, scope)
    if not root:
        return f"the address {code(address)}"
    parts = summands(address)
    rest = [part for part in parts if not (isinstance(part, ast.Name) and part.id == root)]
    if len(rest) == len(parts):
        return f"{argument_words(root, scope)} through {code(address)}"
    if not rest:
        return argument_words(root, scope)
    where = code(address).removeprefix(f"{root} + ")
    if isinstance(address, ast.BinOp) and code(address.left) == root:
        where = code(address.right)
    return f"{argument_words(root, scope)} at {where}"


def _program(node: ast.Call, scope: Scope) -> str:
    axis = axis_of(node)
    grids = [item.grid for item in scope.kernel.launches]
    sizes = dict.fromkeys(grid[axis] for grid in grids if axis is not None and axis < len(grid))
    of = f" of {' or '.join(sizes)}" if sizes else ""
    return f"the number of this program along grid axis {'?' if axis is None else axis}{of}"


def _converted(node: ast.Call, scope: Scope, name: str) -> str:
    method = isinstance(node.func, ast.Attribute) and node.func.attr == "to"
    if method and isinstance(node.func, ast.Attribute):
        inner, dtype = node.func.value, keyword(node, "dtype", 0)
    else:
        inner, dtype = node.args[0], keyword(node, "dtype", 1)
    if isinstance(inner, ast.Name) and scope.role(inner).kind in ("value", "index", "program"):
        text = inner.id
    else:
        text = value_words(inner, scope, name)
    bits = keyword(node, "bitcast")
    verb = "its bits read as" if bits is not None and code(bits) == "True" else "converted to"
    return f"{text}, {verb} {dtype_words(dtype)}"


def dtype_words(node: ast.expr | None) -> str:
    """`float32`; `the element type of out_ptr`."""
    if node is None:
        return "another type"
    name = dotted(node)
    if name.endswith(".dtype.element_ty"):
        return f"the element type of {name.removesuffix('.dtype.element_ty')}"
    if name.endswith(".dtype"):
        return f"the type of {name.removesuffix('.dtype')}"
    return name.rpartition(".")[2] or code(node)


def dot_words(node: ast.Call) -> str:
    """A product with what it is added to and its precision."""
    if len(node.args) < 2:
        return code(node)
    added, precision = keyword(node, "acc", 2), keyword(node, "input_precision")
    text = f"matrix product of {code(node.args[0])} and {code(node.args[1])}"
    if added is not None:
        text += f", added to {code(added)}"
    if isinstance(precision, ast.Constant):
        named = PRECISIONS.get(str(precision.value), str(precision.value))
        return f"{text}; precision {named}"
    if precision is not None:
        return f"{text}; precision {code(precision)}"
    return f"{text}; precision of the operands' type (fp32 operands: TF32, Triton's default)"


def _filled(node: ast.Call, short: str) -> str:
    shape = keyword(node, "shape", 0)
    sizes = "" if shape is None else code(shape)
    dtype = dtype_words(keyword(node, "dtype", 2 if short == "full" else 1))
    value = keyword(node, "value", 1) if short == "full" else None
    filling = "zeros" if short == "zeros" else f"values {code(value)}" if value else "one value"
    return f"a block {sizes} of {filling} in {dtype}"


def _reduction(node: ast.Call, short: str) -> str:
    method = isinstance(node.func, ast.Attribute) and not dotted(node.func).startswith("tl.")
    given = list(node.args)
    if method and isinstance(node.func, ast.Attribute) and not _is_module(node.func.value):
        given = [node.func.value, *given]
    if not given:
        return code(node)
    axis = keyword(node, "axis") or (given[1] if len(given) > 1 else None)
    over = "" if axis is None else f" over axis {code(axis)}"
    along = f" along axis {code(axis)}" if axis is not None and short.startswith("cum") else over
    return f"{REDUCTIONS[short]} of {code(given[0])}{along} of the tile"


def _is_module(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id in ("tl", "triton", "language")


def _custom_reduction(node: ast.Call, short: str) -> str:
    if len(node.args) < 3:
        return code(node)
    values, axis, combine = (code(item) for item in node.args[:3])
    what = "reduction" if short == "reduce" else "scan (every partial result)"
    return f"{what} of {values} over axis {axis} of the tile by {combine}"


def _is_range(node: ast.expr, scope: Scope) -> bool:
    return isinstance(node, ast.Call) and scope.file.called(node.func) == "tl.arange"


def _extent(node: ast.expr) -> str:
    if not isinstance(node, ast.Call) or not node.args:
        return "?"
    first = node.args[0]
    if len(node.args) > 1 and isinstance(first, ast.Constant) and first.value == 0:
        return code(node.args[1])
    return f"({', '.join(code(item) for item in node.args)})"


def _last(extent: str) -> str:
    return str(int(extent) - 1) if extent.isdigit() else f"{extent} - 1"


def _adds_axes(node: ast.Subscript) -> bool:
    text = code(node.slice)
    return "None" in text or text == ":"


def _is_notable(node: ast.expr, scope: Scope) -> bool:
    """True for a call that says more in words than in code."""
    if isinstance(node, ast.Subscript):
        return _is_notable(node.value, scope)
    if not isinstance(node, ast.Call):
        return False
    called = scope.file.called(node.func)
    if called == ".to" and isinstance(node.func, ast.Attribute):
        return _is_notable(node.func.value, scope)
    short = called.rpartition(".")[2]
    return called in ("tl.load", "tl.dot", "tl.reduce", "tl.zeros") or (
        called.startswith("tl.") and short in REDUCTIONS
    )
