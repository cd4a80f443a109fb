"""Fixed texts that a launch form adds to a plain source: how they are put in and found again."""

from __future__ import annotations

import ast
import functools
import sys
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from agentkernel.storage.source_text import check_one_reading, parse_source, symbol_tables


@dataclass(frozen=True)
class FixedBlock:
    """Definitions of a form and the modules of the standard library that they read."""

    text: str
    imported: tuple[str, ...]

    @property
    def names(self) -> frozenset[str]:
        """What it binds at the top."""
        return _names(self.text) | {*self.imported}

    @property
    def reads(self) -> frozenset[str]:
        """Names that it reads and does not bind: torch, and Python's own."""
        return _reads(self.text) - self.names

    def imports_into(self, lines: list[str], tree: ast.Module) -> None:
        """Put its imports into the `lines` of the source of `tree`."""
        for name in reversed(self.imported):
            place, apart = _import_place(tree, name)
            after = [""] if apart and name == self.imported[-1] else []
            lines[place:place] = [f"import {name}", *after]

    def definitions(self) -> list[str]:
        """Its lines, with the blank ones that follow it."""
        return [*self.text.rstrip("\n").split("\n"), "", ""]

    def of(self, tree: ast.Module) -> list[ast.stmt]:
        """The statements of `tree` that are its own."""
        imports = "".join(f"import {name}\n" for name in self.imported)
        known = {ast.dump(node) for node in parse_source(imports + self.text).body}
        return [node for node in tree.body if ast.dump(node) in known]


def taken_off(
    source: str,
    take_off: Callable[[str, ast.Module], str | None],
    put_on: Callable[[str], str | None],
) -> str | None:
    """What `take_off` makes of `source`, where `put_on` makes the same syntax tree of that again;
    None for any other text."""
    try:
        check_one_reading(source)
        tree = parse_source(source)
        plain = take_off(source, tree)
        made = None if plain is None else put_on(plain)
        if made is None or ast.dump(parse_source(made)) != ast.dump(tree):
            return None
    except SyntaxError:
        return None
    return plain


def blanked(source: str, nodes: Sequence[ast.stmt | ast.expr]) -> list[str]:
    """The lines of `source` with empty ones for those of `nodes`."""
    lines = source.split("\n")
    for node in nodes:
        assert node.end_lineno is not None
        lines[node.lineno - 1 : node.end_lineno] = [""] * (node.end_lineno - node.lineno + 1)
    return lines


@functools.cache
def _names(text: str) -> frozenset[str]:
    symbols = next(symbol_tables(text)).get_symbols()
    return frozenset(item.get_name() for item in symbols if item.is_assigned())


@functools.cache
def _reads(text: str) -> frozenset[str]:
    return frozenset(
        item.get_name()
        for place, table in enumerate(symbol_tables(text))
        for item in table.get_symbols()
        if item.is_referenced() and (place == 0 or item.is_global())
    )


def identifiers(tree: ast.AST) -> set[str]:
    """Every name that a text binds or reads, attributes and parts of imported names included."""
    found: set[str] = set()
    for node in ast.walk(tree):
        for value in vars(node).values():
            for item in value if isinstance(value, list) else [value]:
                # Texts that are no name do no harm here.
                if isinstance(item, str) and not isinstance(node, ast.Constant):
                    found |= set(item.split("."))
    return found


def leaves_alone(source: str, tree: ast.Module, names: Collection[str]) -> bool:
    """Whether of these names a text binds none at the top, or by `global`, but for torch, by
    `import torch`."""
    for place, table in enumerate(symbol_tables(source)):
        for symbol in table.get_symbols():
            made = symbol.is_assigned() or symbol.is_namespace()
            if symbol.get_name() in names and made and (place == 0 or symbol.is_declared_global()):
                return False
    torch = False
    for node in ast.walk(tree):
        for alias in node.names if isinstance(node, ast.Import | ast.ImportFrom) else ():
            bound = alias.asname or alias.name.split(".")[0]
            plain = isinstance(node, ast.Import) and alias.asname is None and bound == "torch"
            torch |= plain
            if bound in names and not plain:
                return False
    return torch


def _import_place(tree: ast.Module, name: str) -> tuple[int, bool]:
    """Before which line `import name` stands, as ruff sorts imports, and whether a blank line
    follows it."""
    imports = [x for x in tree.body if isinstance(x, ast.Import | ast.ImportFrom)]
    rest = [x for x in imports if getattr(x, "module", "") != "__future__"]
    standard = [x for x in rest if _root(x) in sys.stdlib_module_names]
    for node in standard:
        if isinstance(node, ast.ImportFrom) or node.names[0].name > name:
            return node.lineno - 1, False
    if standard:
        return standard[-1].end_lineno or 0, False
    return (rest[0].lineno - 1 if rest else 0), True


def _root(node: ast.Import | ast.ImportFrom) -> str:
    name = node.names[0].name if isinstance(node, ast.Import) else node.module or ""
    return name.split(".")[0]
