"""Passes that make a generated kernel read as if it was written by hand.

Each pass keeps every value what it was: names of one value become one name, constants are written
where they are used, expressions that are used once go to their use, what nobody reads goes. The
passes rest on how often a name is bound and read, and on the block dimensions along which a value
extends.
"""

from __future__ import annotations

import ast
import copy
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from agentkernel.compiler.kernel_math import MATH

INTEGERS = ("tl.int32", "tl.int64")
PAIRED = {"maximum": (0, 1), "minimum": (0, 1), "tl.where": (1, 2), "tl.maximum": (0, 1),
          "tl.minimum": (0, 1)}  # fmt: skip
"""Functions that bring two arguments to one type, and which ones."""


@dataclass(frozen=True)
class Number:
    """What `tl.full([1], value, dtype)` holds."""

    value: ast.expr
    dtype: str


def number_of(node: ast.expr) -> Number | None:
    """The number behind `tl.full([1, 1], value, dtype)`, be it cast to fp32, or None."""
    if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(".to"):
        inner = number_of(node.func.value) if isinstance(node.func, ast.Attribute) else None
        if inner is None or inner.dtype not in INTEGERS or not _is_int(inner.value):
            return None
        text = f"{int(ast.unparse(inner.value))}.0"
        wide = ast.unparse(node.args[0]) == "tl.float32"
        return Number(ast.parse(text, mode="eval").body, "tl.float32") if wide else None
    if not isinstance(node, ast.Call) or ast.unparse(node.func) != "tl.full":
        return None
    if len(node.args) != 3 or not isinstance(node.args[0], ast.List):
        return None
    if any(not isinstance(n, ast.Constant) or n.value != 1 for n in node.args[0].elts):
        return None
    return Number(node.args[1], ast.unparse(node.args[2]))


class InlineConstants(ast.NodeTransformer):
    """Replaces the names of constant tensors beside an operand that is no constant.

    A plain number takes the type of what it meets. For fp32 that is what the tensor would have
    done, all other arithmetic being fp32; a 64-bit integer could stay narrow, so it is written out
    in comparisons alone.
    """

    def __init__(self, known: dict[str, Number]) -> None:
        self._known = known

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        """`x + c`."""
        self.generic_visit(node)
        kinds = ("tl.float32",)
        node.left, node.right = self._pair(node.left, node.right, kinds)
        return node

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        """`x < c`."""
        self.generic_visit(node)
        kinds = ("tl.float32", "tl.int32", "tl.int64")
        node.left, node.comparators[0] = self._pair(node.left, node.comparators[0], kinds)
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """`tl.where(mask, x, c)`."""
        self.generic_visit(node)
        places = PAIRED.get(ast.unparse(node.func))
        if places is not None and len(node.args) > places[1]:
            one, two = places
            kinds = ("tl.float32", "tl.int32")
            pair = self._pair(node.args[one], node.args[two], kinds)
            node.args[one], node.args[two] = pair
            if one == 0 and isinstance(node.args[0], ast.Constant):
                node.args[:2] = reversed(node.args[:2])
        return node

    def _pair(
        self, left: ast.expr, right: ast.expr, kinds: tuple[str, ...]
    ) -> tuple[ast.expr, ast.expr]:
        a, b = self._number(left), self._number(right)
        if a is not None and b is None and a.dtype in kinds and not _literal(right):
            return a.value, right
        if b is not None and a is None and b.dtype in kinds and not _literal(left):
            return left, b.value
        return left, right

    def _number(self, node: ast.expr) -> Number | None:
        return self._known.get(node.id) if isinstance(node, ast.Name) else None


def _is_int(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, int)


def _literal(node: ast.expr) -> bool:
    """A plain number: two of them would make no tensor."""
    return not any(isinstance(n, ast.Name) and n.id != "float" for n in ast.walk(node))


LOOP_SUFFIX = "__loop"


@dataclass(frozen=True)
class NameUses:
    """How often each name is assigned, and read."""

    stores: Counter[str]
    loads: Counter[str]

    def once(self, name: str) -> bool:
        """Assigned exactly once: its value never changes."""
        return self.stores[name] == 1


def uses_of(function: ast.FunctionDef) -> NameUses:
    """The uses in the body; parameters count as assigned once."""
    stores: Counter[str] = Counter()
    loads: Counter[str] = Counter()
    for argument in function.args.args:
        stores[argument.arg] += 1
    for statement in function.body:
        for node in ast.walk(statement):
            if isinstance(node, ast.Name):
                (loads if isinstance(node.ctx, ast.Load) else stores)[node.id] += 1
    return NameUses(stores, loads)


def blocks(body: list[ast.stmt]) -> Iterator[list[ast.stmt]]:
    """Every block: the body itself, and those of the loops and branches in it."""
    yield body
    for statement in body:
        if isinstance(statement, ast.For | ast.If):
            yield from blocks(statement.body)
            yield from blocks(statement.orelse)


def assigned(statement: ast.stmt) -> tuple[str, ast.expr] | None:
    """(name, value) of `name = value` and of `name: tl.constexpr = value`."""
    if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
        return statement.targets[0].id, statement.value
    if (
        isinstance(statement, ast.AnnAssign)
        and isinstance(statement.target, ast.Name)
        and statement.value is not None
    ):
        return statement.target.id, statement.value
    return None


def names_in(node: ast.AST) -> set[str]:
    """All names that are read in `node`."""
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}


class Substitute(ast.NodeTransformer):
    """Puts expressions in the place of names."""

    def __init__(self, values: dict[str, ast.expr]) -> None:
        self.values = values

    def visit_Name(self, node: ast.Name) -> ast.AST:
        """A name that is read."""
        if isinstance(node.ctx, ast.Load) and node.id in self.values:
            return self.values[node.id]
        return node


def substitute(body: Sequence[ast.stmt], values: dict[str, ast.expr]) -> None:
    """Replace names in place, wherever they are read."""
    swap = Substitute(values)
    for statement in body:
        swap.visit(statement)


def rename_loop_bindings(function: ast.FunctionDef) -> None:
    """Give what several loops each bind anew a name of its own in the later ones, ending in LATER
    and the number of the loop, so that every name has one value."""
    loops = [item for item in function.body if isinstance(item, ast.For)]
    outside = {
        node.id
        for statement in function.body
        if not isinstance(statement, ast.For)
        for node in ast.walk(statement)
        if isinstance(node, ast.Name)
    }
    seen: set[str] = set()
    for number, loop in enumerate(loops):
        bound = {n.id for n in ast.walk(loop) if isinstance(n, ast.Name) and _stored(n)}
        again = {name for name in bound & seen if name not in outside}
        for node in ast.walk(loop):
            if isinstance(node, ast.Name) and node.id in again:
                node.id = f"{node.id}{LOOP_SUFFIX}{number}"
        seen |= bound


def restore_loop_bindings(function: ast.FunctionDef) -> None:
    """Undo `rename_loop_bindings`."""
    for node in ast.walk(function):
        if isinstance(node, ast.Name):
            node.id = node.id.partition(LOOP_SUFFIX)[0]


def _stored(node: ast.Name) -> bool:
    return isinstance(node.ctx, ast.Store)


FOLDS = ("sum", "max", "min", "reduce", "any_along", "max_along", "min_along", "product_along",
         "max_place_along", "min_place_along", "welford_along", "softmax_along",
         "associative_scan", "sort", "dot", "reshape", "trans", "expand_dims")  # fmt: skip
"""Functions whose result may have other dimensions than their arguments."""

ROW_FOLDS = ("sum", "any_along", "max_along", "min_along", "product_along")
"""Of these, the ones with one value a row."""

Extent = frozenset[str]


class Extents:
    """Name -> the blocks (`XBLOCK`, `R0_BLOCK`) that it extends along; nothing for unknown ones."""

    def __init__(self, function: ast.FunctionDef, uses: NameUses) -> None:
        self._known: dict[str, Extent | None] = {
            argument.arg: frozenset() for argument in function.args.args
        }
        for block in blocks(function.body):
            for statement in block:
                pair = assigned(statement)
                if pair is not None:
                    name, value = pair
                    self._known[name] = self.of(value) if uses.once(name) else None
                if isinstance(statement, ast.For) and isinstance(statement.target, ast.Name):
                    self._known[statement.target.id] = frozenset()

    def of(self, node: ast.expr) -> Extent | None:
        """The extent of an expression; None where it cannot be told."""
        if isinstance(node, ast.Constant):
            return frozenset()
        if isinstance(node, ast.Name):
            return self._known.get(node.id)
        if isinstance(node, ast.Call):
            return self._call(node)
        if isinstance(node, ast.Subscript):
            return self.of(node.value) if _adds_axis(node) else None
        if isinstance(node, ast.BinOp | ast.UnaryOp | ast.Compare):
            return self._union([n for n in ast.iter_child_nodes(node) if isinstance(n, ast.expr)])
        return None

    def _call(self, node: ast.Call) -> Extent | None:
        function = ast.unparse(node.func)
        if _is_arange(node):
            return frozenset({ast.unparse(node.args[1])})
        if function == "tl.program_id":
            return frozenset()
        if function in ("tl.broadcast_to", "tl.full", "tl.zeros"):
            sizes = node.args[1] if function == "tl.broadcast_to" else node.args[0]
            return _blocks_of(sizes)
        name = function.rpartition(".")[2]
        if name in FOLDS:
            return self._folded(node) if name in ROW_FOLDS else None
        parts = list(node.args)
        if isinstance(node.func, ast.Attribute) and not function.startswith("tl."):
            # A method, such as x.to(tl.float32): only the value itself extends.
            return self.of(node.func.value) if node.func.attr == "to" else None
        return self._union([part for part in parts if not _is_type(part)])

    def _folded(self, node: ast.Call) -> Extent | None:
        """What is left of the first argument's extent when its rows are folded, as `[:, None]` then
        keeps it."""
        given = self.of(node.args[0])
        whole = given is not None and len(node.args) == 2 and ast.unparse(node.args[1]) == "1"
        return frozenset(b for b in given or () if not b.startswith("R")) if whole else None

    def _union(self, parts: list[ast.expr]) -> Extent | None:
        found: set[str] = set()
        for part in parts:
            extent = self.of(part)
            if extent is None:
                return None
            found |= extent
        return frozenset(found)


def _is_arange(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and ast.unparse(node.func) == "tl.arange"


def _adds_axis(node: ast.Subscript) -> bool:
    """`x[:, None]` or `x[None, :]` of something with one dimension."""
    return ast.unparse(node.slice) in (":, None", "None, :", "(:, None)", "(None, :)", ":")


def _is_type(node: ast.expr) -> bool:
    return isinstance(node, ast.Attribute) and ast.unparse(node).startswith("tl.")


def _blocks_of(sizes: ast.expr) -> Extent | None:
    if not isinstance(sizes, ast.List | ast.Tuple):
        return None
    names = [item.id for item in sizes.elts if isinstance(item, ast.Name)]
    return frozenset(names)


LONGEST = 68
"""Characters that an expression may have that is written into another."""
ROUNDS = 8
TILE_SHAPE = ".broadcast_to(xindex.shape)"
"""Templates say so of a tile of loads whose offsets they have named xindex."""
PURE = ("tl.where", "tl.abs", "tl.exp", "tl.log", "tl.rsqrt", "tl.sqrt_rn", "tl.erf", "tl.floor",
        "tl.ceil", "tl.sigmoid", "tl.cos", "tl.sin", *MATH, "maximum", "minimum",
        "is_nan", "is_inf", "is_negative", "tl.broadcast_to")  # fmt: skip
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
