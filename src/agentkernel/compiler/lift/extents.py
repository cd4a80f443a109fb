"""Along which block dimensions does a kernel's value extend?"""

from __future__ import annotations

import ast

from agentkernel.compiler.lift.uses import NameUses, assigned, blocks

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
