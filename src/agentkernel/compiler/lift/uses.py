"""Which names does a kernel's body bind and read, and how often?"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

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
