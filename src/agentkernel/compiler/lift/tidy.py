"""How does a generated kernel become one that reads as if it was written by hand?

Each pass keeps every value what it was: names of one value become one name, constants are written
where they are used, expressions that are used once go to their use, what nobody reads goes.
"""

from __future__ import annotations

import ast
import copy

from agentkernel.compiler.lift.constants import InlineConstants, Number, number_of
from agentkernel.compiler.lift.extents import Extents
from agentkernel.compiler.lift.uses import (
    LOOP_SUFFIX,
    NameUses,
    assigned,
    blocks,
    names_in,
    rename_loop_bindings,
    restore_loop_bindings,
    substitute,
    uses_of,
)

LONGEST = 68
"""Characters that an expression may have that is written into another."""
ROUNDS = 8
TILE_SHAPE = ".broadcast_to(xindex.shape)"
"""Templates say so of a tile of loads whose offsets they have named xindex."""
PURE = ("tl.where", "tl.abs", "tl.exp", "tl.log", "tl.rsqrt", "tl.sqrt_rn", "tl.erf", "tl.floor",
        "tl.ceil", "tl.sigmoid", "tl.cos", "tl.sin", "exp", "tanh", "maximum", "minimum",
        "log1p", "expm1", "is_nan", "is_inf", "is_negative", "tl.broadcast_to")  # fmt: skip
"""Functions of single elements: to call them later changes nothing."""
KEPT = ("xindex", "yindex", "zindex", "xmask", "ymask", "zmask", "r0_index", "r0_mask", "r1_index",
        "r1_mask", "xoffset", "yoffset", "r0_base")  # fmt: skip
"""Names that a reader of Triton expects: not folded away."""


def tidy(function: ast.FunctionDef) -> None:
    """Rewrite `function` in place."""
    rename_loop_bindings(function)
    for _ in range(ROUNDS):
        before = ast.dump(function)
        _drop_broadcasts(function)
        _join_copies(function)
        _write_constants(function)
        _join_equals(function)
        _drop_unused(function)
        _fold_single_uses(function)
        if ast.dump(function) == before:
            break
    restore_loop_bindings(function)


def _drop_broadcasts(function: ast.FunctionDef) -> None:
    """`tl.broadcast_to(x, [XBLOCK, R0_BLOCK])` of what has that extent is x."""
    extents = Extents(function, uses_of(function))

    class Drop(ast.NodeTransformer):
        def visit_Call(self, node: ast.Call) -> ast.AST:
            self.generic_visit(node)
            if ast.unparse(node.func) != "tl.broadcast_to" or len(node.args) != 2:
                return node
            wanted, given = extents.of(node), extents.of(node.args[0])
            return node.args[0] if wanted is not None and wanted == given else node

    Drop().visit(function)


def _join_copies(function: ast.FunctionDef) -> None:
    """After `a = b`, where neither changes, a is b."""
    uses = uses_of(function)
    values: dict[str, ast.expr] = {}
    for block in blocks(function.body):
        for statement in list(block):
            pair = assigned(statement)
            if pair is None or isinstance(statement, ast.AnnAssign):
                continue
            name, value = pair
            if isinstance(value, ast.Name) and uses.once(name) and uses.once(value.id):
                values[name] = values.get(value.id, value)
                block.remove(statement)
    substitute(function.body, values)


def _join_equals(function: ast.FunctionDef) -> None:
    """An expression that was computed before in the same block is not computed again; nor is a
    value cast twice to one type."""
    _Once().visit(function)
    uses = uses_of(function)
    for block in blocks(function.body):
        seen: dict[str, str] = {}
        for statement in list(block):
            pair = assigned(statement)
            if pair is None or isinstance(pair[1], ast.Constant):
                continue
            if isinstance(statement, ast.AnnAssign) or not _is_settled(*pair, uses):
                continue
            first = seen.setdefault(ast.unparse(pair[1]), pair[0])
            if first != pair[0]:
                block.remove(statement)
                substitute(function.body, {pair[0]: ast.Name(first, ast.Load())})


class _Once(ast.NodeTransformer):
    """`x.to(t).to(t)` is `x.to(t)`; a tile that is broadcast to the shape that it has is itself."""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        inner = node.func.value if isinstance(node.func, ast.Attribute) else None
        if isinstance(inner, ast.Call) and ast.unparse(node).endswith(TILE_SHAPE):
            whole = ast.unparse(inner.func) == "tl.broadcast_to"
            sizes = inner.args[1] if whole else None
            return inner if isinstance(sizes, ast.List) and len(sizes.elts) == 2 else node
        if not isinstance(inner, ast.Call) or not ast.unparse(inner.func).endswith(".to"):
            return node
        cast = ast.unparse(node.func).endswith(".to") and not node.keywords
        same = [ast.unparse(item) for item in (*inner.args, *inner.keywords)]
        return inner if cast and same == [ast.unparse(item) for item in node.args] else node


def _write_constants(function: ast.FunctionDef) -> None:
    uses = uses_of(function)
    known: dict[str, Number] = {}
    for block in blocks(function.body):
        for statement in block:
            pair = assigned(statement)
            number = number_of(pair[1]) if pair is not None else None
            if pair is not None and number is not None and uses.once(pair[0]):
                known[pair[0]] = number
    InlineConstants(known).visit(function)


def _drop_unused(function: ast.FunctionDef) -> None:
    """Assignments that nobody reads, until there are none."""
    while True:
        uses = uses_of(function)
        dropped = False
        for block in blocks(function.body):
            for statement in list(block):
                pair = assigned(statement)
                if pair is not None and not uses.loads[pair[0]]:
                    block.remove(statement)
                    dropped = True
        if not dropped:
            return


def _fold_single_uses(function: ast.FunctionDef) -> None:
    """An expression with one use moves there, if that is in the same block and stays short."""
    uses = uses_of(function)
    for block in blocks(function.body):
        for statement in list(block):
            pair = assigned(statement)
            if pair is None or isinstance(statement, ast.AnnAssign):
                continue
            name, value = pair
            if not _may_move(name, value, uses):
                continue
            target = _only_user(block[block.index(statement) + 1 :], name)
            if target is None or len(ast.unparse(target)) + len(ast.unparse(value)) > LONGEST:
                continue
            substitute([target], {name: copy.deepcopy(value)})
            block.remove(statement)


def _may_move(name: str, value: ast.expr, uses: NameUses) -> bool:
    return uses.loads[name] == 1 and _is_settled(name, value, uses)


def _is_settled(name: str, value: ast.expr, uses: NameUses) -> bool:
    """Whether `name` stands for one value that is the same wherever it is computed."""
    if name.partition(LOOP_SUFFIX)[0] in KEPT or not uses.once(name):
        return False
    if not all(uses.once(item) or item == "tl" or _is_pure_name(item) for item in names_in(value)):
        return False
    return all(_is_pure(node) for node in ast.walk(value) if isinstance(node, ast.Call))


def _is_pure_name(name: str) -> bool:
    return name in PURE or name == "float"


def _is_pure(node: ast.Call) -> bool:
    function = ast.unparse(node.func)
    is_cast = isinstance(node.func, ast.Attribute) and node.func.attr == "to"
    return function in PURE or is_cast or function == "float"


def _only_user(rest: list[ast.stmt], name: str) -> ast.stmt | None:
    """The statement of this block that reads `name`; None where a loop or a branch does."""
    for statement in rest:
        if name in names_in(statement):
            return None if isinstance(statement, ast.For | ast.If) else statement
    return None
