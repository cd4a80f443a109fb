"""One of TorchInductor's kernels as plain Triton that stands alone.

Calls of its run-time library are replaced, branches of a template that fixed sizes decide are
resolved, and values are named after what they hold.
"""

from __future__ import annotations

import ast
import operator
import re
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from agentkernel.compiler.expressions import function_text
from agentkernel.compiler.kernel_helpers import BUILT_IN, FAST_MATH_LAST, LIFTED_HELPERS, RENAMED
from agentkernel.compiler.lift.activations import join_activations
from agentkernel.compiler.lift.inductor_code import InductorKernel
from agentkernel.compiler.lift.tidy import assigned, blocks, tidy, uses_of
from agentkernel.compiler.lift.wrapper_steps import Unliftable, number

Value = int | bool
ARITHMETIC: Mapping[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Mult: operator.mul,
    ast.Sub: operator.sub,
}
COMPARISONS: Mapping[type[ast.cmpop], Callable[[int, int], bool]] = {
    ast.Eq: operator.eq,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.NotEq: operator.ne,
}


def resolve_branches(function: ast.FunctionDef) -> None:
    """Replace each `if` whose condition is known by the branch that it takes, and name the
    precision of products."""
    known = _numbers(function)
    changed = True
    while changed:
        changed = any(_take(block, known) for block in blocks(function.body))
    for node in ast.walk(function):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "tl.dot":
            _name_precision(node, known)


def _numbers(function: ast.FunctionDef) -> dict[str, Value]:
    """Names that hold one number throughout."""
    uses = uses_of(function)
    found: dict[str, Value] = {}
    for statement in function.body:
        pair = assigned(statement)
        value = pair[1].value if pair and isinstance(pair[1], ast.Constant) else None
        if pair is not None and isinstance(value, int) and uses.once(pair[0]):
            found[pair[0]] = value
    return found


def _take(block: list[ast.stmt], known: Mapping[str, Value]) -> bool:
    for place, statement in enumerate(block):
        if isinstance(statement, ast.If):
            test = _evaluated(statement.test, known)
            if test is not None:
                block[place : place + 1] = statement.body if test else statement.orelse
                return True
    return False


def _evaluated(node: ast.expr, known: Mapping[str, Value]) -> Value | None:
    """The value of an expression of known numbers; None where something is not known."""
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return node.value
    if isinstance(node, ast.Name):
        return known.get(node.id)
    if isinstance(node, ast.BoolOp):
        parts = [_evaluated(item, known) for item in node.values]
        if None in parts:
            return None
        return all(parts) if isinstance(node.op, ast.And) else any(parts)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        inner = _evaluated(node.operand, known)
        return None if inner is None else not inner
    if isinstance(node, ast.BinOp) and type(node.op) in ARITHMETIC:
        left, right = _evaluated(node.left, known), _evaluated(node.right, known)
        return None if left is None or right is None else ARITHMETIC[type(node.op)](left, right)
    if isinstance(node, ast.Compare) and type(node.ops[0]) in COMPARISONS:
        left, right = _evaluated(node.left, known), _evaluated(node.comparators[0], known)
        return (
            None if left is None or right is None else COMPARISONS[type(node.ops[0])](left, right)
        )
    return None


def _name_precision(call: ast.Call, known: Mapping[str, Value]) -> None:
    """`allow_tf32=False` as `input_precision="ieee"`."""
    for keyword in call.keywords:
        if keyword.arg == "allow_tf32":
            allowed = _evaluated(keyword.value, known)
            if allowed is not None:
                keyword.arg = "input_precision"
                keyword.value = ast.Constant("tf32" if allowed else "ieee")


GENERATED = re.compile(r"^_?tmp\d+(?:_(?P<word>\w+?))?(?P<next>_next)?$")
OPERATORS: Mapping[type[ast.AST], str] = {
    ast.Add: "total", ast.Sub: "difference", ast.Mult: "product", ast.Div: "quotient",
    ast.FloorDiv: "quotient", ast.Mod: "rest", ast.BitAnd: "both", ast.BitOr: "some",
    ast.Invert: "opposite", ast.USub: "negative", ast.Not: "opposite",
}  # fmt: skip
CALLS = {
    "sum": "row_sum", "max_along": "row_max", "min_along": "row_min", "any_along": "row_any",
    "product_along": "row_product", "where": "chosen", "rsqrt": "scale", "sqrt_rn": "root",
    "exp": "power", "exp2": "power", "erf": "bell", "tanh": "squashed", "sigmoid": "gate",
    "maximum": "larger", "minimum": "smaller", "log": "logarithm", "log1p": "logarithm",
    "abs": "size", "floor": "whole", "ceil": "whole", "full": "constant", "zeros": "zeros",
    "broadcast_to": "wide", "cos": "cosine", "sin": "sine", "associative_scan": "running",
    "is_negative": "negative", "expm1": "growth",
}  # fmt: skip
PARTS = {
    "welford_along": ("all_mean", "all_squares", "all_count"),
    "softmax_along": ("all_max", "all_total"),
    "max_place_along": ("best", "place"),
    "min_place_along": ("best", "place"),
    "associative_scan": ("running", "running_place"),
}
"""Function -> what the parts of its result are called."""
WORDS = {"mean": "mean", "m2": "squares", "weight": "count", "max": "row_max", "sum": "row_total"}


def rename_values(function: ast.FunctionDef, taken: set[str]) -> None:
    """Give TorchInductor's `tmp7` names that say what they hold; `taken` names stay free."""
    used = taken | {"tl", "float", *LIFTED_HELPERS}
    used |= {n.id for n in ast.walk(function) if isinstance(n, ast.Name) and not _made(n.id)}
    used |= {argument.arg for argument in function.args.args}
    names: dict[str, str] = {}
    for block in blocks(function.body):
        for statement in block:
            for name, value in _bindings(statement):
                if _made(name) and name not in names:
                    names[name] = _fresh(_word(name, value, names), used)
    for node in ast.walk(function):
        if isinstance(node, ast.Name):
            node.id = names.get(node.id, node.id)


def _made(name: str) -> bool:
    return GENERATED.match(name) is not None


def _bindings(statement: ast.stmt) -> list[tuple[str, ast.expr]]:
    pair = assigned(statement)
    if pair is not None:
        return [pair]
    if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Tuple):
        items = statement.targets[0].elts
        parts = _parts(statement.value, len(items))
        return [
            (n.id, part) for n, part in zip(items, parts, strict=True) if isinstance(n, ast.Name)
        ]
    return []


def _parts(value: ast.expr, count: int) -> list[ast.expr]:
    """What each name of `a, b = f(x)` is named after: a word, or the call as a whole."""
    function = ast.unparse(value.func).rpartition(".")[2] if isinstance(value, ast.Call) else ""
    words = PARTS.get(function, ())
    if len(words) < count:
        return [value] * count
    return [ast.Constant(word) for word in words[:count]]


def _word(name: str, value: ast.expr, names: Mapping[str, str]) -> str:
    found = GENERATED.match(name)
    if found is not None and found["word"]:
        word = WORDS.get(found["word"].removesuffix("_next"), found["word"])
        return f"new_{word}" if name.endswith("_next") else word
    if name.startswith("_"):
        return "partial"
    if isinstance(value, ast.Constant) and isinstance(value.value, str):
        return value.value
    if isinstance(value, ast.Subscript) and isinstance(value.value, ast.Name):
        whole = names.get(value.value.id, "value")
        return whole.replace("all_", "row_") if whole.startswith("all_") else f"{whole}_column"
    return _word_of(value)


def _word_of(value: ast.expr) -> str:
    if isinstance(value, ast.Call):
        function = ast.unparse(value.func)
        if function == "tl.load":
            return _loaded(value)
        if function.endswith(".to") and isinstance(value.func, ast.Attribute):
            return _word_of(value.func.value)
        last = function.rpartition(".")[2]
        return CALLS.get(last, "value")
    if isinstance(value, ast.Subscript):
        return _word_of(value.value)
    if isinstance(value, ast.Compare):
        return "holds"
    if isinstance(value, ast.BinOp | ast.UnaryOp):
        return OPERATORS.get(type(value.op), "value")
    return "value"


def _loaded(call: ast.Call) -> str:
    """`x` for a load from `x_ptr + ...`."""
    names = [n.id for n in ast.walk(call.args[0]) if isinstance(n, ast.Name)]
    pointers = [name.removesuffix("_ptr") for name in names if name.endswith("_ptr")]
    return pointers[0] if pointers and pointers[0].isidentifier() else "value"


def _fresh(word: str, used: set[str]) -> str:
    name, number = word, 1
    while name in used:
        number += 1
        name = f"{word}_{number}"
    used.add(name)
    return name


INDUCTOR_NAMESPACES = ("triton_helpers", "libdevice", "tl_math", "inductor_runtime")
SINGLE = frozenset(
    f"{space}.{name}"
    for space in ("libdevice", "tl_math", "tl")
    for name in ("exp", "expm1", "log1p", "sigmoid", "sqrt", "tanh")
)
"""Functions whose stand-ins hold for fp32 alone."""


@dataclass
class InductorCallRewriter(ast.NodeTransformer):
    """Rewrites one kernel in place."""

    double: bool = False
    """Whether the kernel computes in fp64, for which elementary helpers are not made."""
    narrow: bool = False
    """Whether all its results are rounded to 16 bits, for which coarse helpers are made."""
    asserts: bool = False

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """A call, its arguments first."""
        self.generic_visit(node)
        if isinstance(node.func, ast.Name) and node.func.id in FAST_MATH_LAST:
            node.args.pop()
        if isinstance(node.func, ast.Name) and node.func.id == "bucket_of":
            node.args = _search_arguments(node)
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        """A dotted name."""
        path = ast.unparse(node)
        if self.double and path in SINGLE:
            return ast.copy_location(self._double(node), node)
        if path in RENAMED:
            coarse = f"coarse_{RENAMED[path]}"
            name = coarse if self.narrow and coarse in LIFTED_HELPERS else RENAMED[path]
            return ast.copy_location(ast.Name(name, ast.Load()), node)
        if path in BUILT_IN:
            return ast.copy_location(ast.parse(BUILT_IN[path], mode="eval").body, node)
        if path == f"triton.language.{node.attr}":
            return ast.copy_location(ast.parse(f"tl.{node.attr}", mode="eval").body, node)
        if not isinstance(node.value, ast.Name):
            self.generic_visit(node)
            return node
        space = node.value.id
        if space == "libdevice":
            return node
        if space == "tl_math":
            return ast.copy_location(ast.parse(f"tl.{node.attr}", mode="eval").body, node)
        if space in INDUCTOR_NAMESPACES:
            raise Unliftable(f"a kernel calls {path}")
        return node

    def _double(self, node: ast.Attribute) -> ast.AST:
        """The same function of Triton's own or of CUDA's library."""
        if node.attr in ("exp", "sigmoid", "sqrt"):
            return ast.parse(f"tl.{node.attr}", mode="eval").body
        return ast.parse(f"libdevice.{node.attr}", mode="eval").body

    def visit_IfExp(self, node: ast.IfExp) -> ast.AST:
        """`(libdevice.signbit(x) != 0) if x.dtype is tl.float32 else x < 0`."""
        signs = [n for n in ast.walk(node.body) if isinstance(n, ast.Call)]
        if len(signs) == 1 and ast.unparse(signs[0].func) == "libdevice.signbit":
            call = ast.Call(ast.Name("is_negative", ast.Load()), signs[0].args, [])
            return ast.copy_location(call, node)
        self.generic_visit(node)
        return node

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        """A statement: of the compiler's assertions those about indices stay."""
        text = ast.unparse(node)
        if text.startswith("tl.static_assert("):
            return None
        self.generic_visit(node)
        call = node.value
        if isinstance(call, ast.Call) and text.startswith("tl.device_assert("):
            call.args[1:] = [ast.Constant("index out of bounds")]
            self.asserts = True
        return node


def _search_arguments(call: ast.Call) -> list[ast.expr]:
    """Of `bucketize_binary_search`'s arguments those of `bucket_of`."""
    x, pointer, count, _, stride, first, kind, right, *sorter = call.args
    if any(ast.unparse(item) != "None" for item in sorter):
        raise Unliftable("a kernel searches boundaries through a sorter")
    steps = ast.Constant(number(count).bit_length())
    return [x, pointer, first, count, stride, steps, right, kind]


@dataclass(frozen=True)
class KernelForm:
    """A kernel's parameters: `pointers` in order, `numbers` that its body fixes, constants."""

    parameters: tuple[str, ...]
    fixed: tuple[tuple[str, int], ...]
    constants: tuple[str, ...]

    @property
    def pointers(self) -> tuple[str, ...]:
        """Parameters that each launch still has to give."""
        fixed = {name for name, _ in self.fixed}
        return tuple(p for p in self.parameters if p not in fixed and p not in self.constants)


@dataclass(frozen=True)
class LiftedKernel:
    """The finished source, with the helpers that it calls. `asserts`: it raises for an index out of
    bounds."""

    source: str
    helpers: frozenset[str]
    asserts: bool = False


def kernel_form(code: InductorKernel) -> KernelForm:
    """What a launch of `code` gives it."""
    function = _functions(code)[-1]
    parameters = tuple(argument.arg for argument in function.args.args)
    constants = tuple(
        argument.arg
        for argument in function.args.args
        if argument.annotation is not None and "constexpr" in ast.unparse(argument.annotation)
    )
    fixed = []
    for statement in function.body:
        pair = assigned(statement)
        if pair is not None and pair[0] in parameters and isinstance(pair[1], ast.Constant):
            fixed.append((pair[0], int(str(pair[1].value))))
    return KernelForm(parameters, tuple(fixed), constants)


def kernel_text(
    code: InductorKernel,
    name: str,
    pointers: Mapping[str, str],
    taken: set[str],
    docstring: Sequence[str],
) -> LiftedKernel:
    """`code` under `name`, its pointer parameters called as `pointers` says.

    Raises Unliftable where it needs something of TorchInductor's run time that has no form here.
    """
    form = kernel_form(code)
    functions = _functions(code)
    vocabulary = InductorCallRewriter(double="fp64" in code.source, narrow=_stores_16_bits(code))
    pieces: list[str] = []
    for index, function in enumerate(functions[:-1]):
        helper = f"{name.removesuffix('_kernel')}_combine" + (str(index + 1) if index else "")
        _rename(functions, function.name, helper)
        vocabulary.visit(function)
        _name_sides(function)
        tidy(function)
        rename_values(function, set())
        pieces.append(function_text(function, "How two values become one."))
    main = functions[-1]
    vocabulary.visit(main)
    main.name = name
    decorator = "triton.jit(debug=True)" if vocabulary.asserts else "triton.jit"
    main.decorator_list = [ast.parse(decorator, mode="eval").body]
    _drop_parameters(main, {key for key, _ in form.fixed})
    for old, new in pointers.items():
        _rename([main], old, new)
    resolve_branches(main)
    tidy(main)
    if not vocabulary.double:
        join_activations(main, coarse=vocabulary.narrow)
        tidy(main)
    rename_values(main, taken)
    ast.fix_missing_locations(main)
    text = "\n".join(textwrap.wrap(" ".join(docstring), 92, subsequent_indent="    "))
    pieces.append(function_text(main, text))
    called = {n.id for function in functions for n in ast.walk(function) if isinstance(n, ast.Name)}
    return LiftedKernel(
        "\n\n\n".join(pieces), frozenset(called & LIFTED_HELPERS.keys()), vocabulary.asserts
    )


STORED = re.compile(r"tl\.(?:store|atomic_\w+)\((\w+)")
NARROW = re.compile(r"'(\w+)': '\*(?:bf16|fp16)'")


def _stores_16_bits(code: InductorKernel) -> bool:
    """Whether every pointer that the kernel stores to is of fp16 or bf16, as its signature says."""
    stored = set(STORED.findall(code.source))
    return bool(stored) and stored <= set(NARROW.findall(code.source))


def _functions(code: InductorKernel) -> list[ast.FunctionDef]:
    """Functions of the kernel's module, the kernel last."""
    tree = ast.parse(code.source)
    found = [item for item in tree.body if isinstance(item, ast.FunctionDef)]
    if not found:
        raise Unliftable(f"{code.variable} has no function")
    return found


def _rename(functions: Sequence[ast.FunctionDef], old: str, new: str) -> None:
    for function in functions:
        if function.name == old:
            function.name = new
        for node in ast.walk(function):
            if isinstance(node, ast.Name) and node.id == old:
                node.id = new
            if isinstance(node, ast.arg) and node.arg == old:
                node.arg = new


def _name_sides(function: ast.FunctionDef) -> None:
    """`arg0_1`, the second part of the first value, becomes `left_2`."""
    for argument in list(function.args.args):
        side, _, part = argument.arg.removeprefix("arg").partition("_")
        word = "left" if side == "0" else "right"
        new = word if part == "0" else f"{word}_{int(part) + 1}"
        _rename([function], argument.arg, new)


def _drop_parameters(function: ast.FunctionDef, names: set[str]) -> None:
    kept = [argument for argument in function.args.args if argument.arg not in names]
    function.args.args = kept
    for argument in kept:
        argument.annotation = argument.annotation and ast.parse("tl.constexpr", mode="eval").body
