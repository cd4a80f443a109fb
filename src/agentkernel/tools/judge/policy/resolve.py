"""What do the names of a source stand for, as Python resolves them?

Builtins by Python's own symbol tables: a default, a decorator or a class body is read in the scope
around the function, where a parameter of the same name does not hide what it names. Modules by the
objects themselves: `torch.builtins` is Python's `builtins`, whatever it is called there.
"""

from __future__ import annotations

import ast
import builtins
import functools
import importlib
from collections.abc import Container, Iterator
from dataclasses import dataclass
from types import ModuleType

from agentkernel.storage.source_text import symbol_tables
from agentkernel.tools.judge.policy.vocabulary import (
    BUILTINS,
    IMPORTS,
    INTERPRETERS_NAMES,
    TORCH_SPACES,
    TRITON_SPACES,
)

KNOWN = (*IMPORTS, *TORCH_SPACES, *TRITON_SPACES)
ERRORS = {
    name
    for name, item in vars(builtins).items()
    if isinstance(item, type) and issubclass(item, Exception)
}
FREE = {*BUILTINS, *ERRORS}
ROOTS = {name.partition(".")[0] for name in IMPORTS} - {"__future__"}


@dataclass(frozen=True)
class Use:
    """A name that is read, and the first line that may read it."""

    name: str
    line: int


def is_banned(name: str) -> bool:
    """True for a builtin of Python's that a file may not read. Names with two underscores have a
    rule of their own, and some are there only once a process has run `exec` in that module."""
    return name not in FREE and not is_dunder(name) and hasattr(builtins, name)


def is_dunder(name: str) -> bool:
    """True for `__class__` and the like."""
    return name.startswith("__") and name.endswith("__")


def builtin_uses(source: str, tree: ast.Module) -> Iterator[Use]:
    """Reads of Python's builtins that are not among the free ones. What the file's own statements
    or a class body assign is no shelter: before that, the name still stands for the builtin."""
    lines: dict[str, list[int]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            lines.setdefault(node.id, []).append(node.lineno)
    for table in symbol_tables(source):
        for symbol in table.get_symbols():
            name = symbol.get_name()
            if not is_banned(name) or not symbol.is_referenced():
                continue
            if table.get_type() != "function" or symbol.is_global():
                later = [line for line in lines.get(name, ()) if line >= table.get_lineno()]
                yield Use(name, min(later, default=table.get_lineno()))


def annotated(tree: ast.Module) -> Iterator[ast.expr]:
    """What stands as an annotation: the judge does not evaluate it, and an import may."""
    for node in ast.walk(tree):
        if isinstance(node, ast.arg | ast.AnnAssign) and node.annotation is not None:
            yield node.annotation
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.returns is not None:
            yield node.returns


def unbound_uses(source: str, tree: ast.Module, asked: Container[int] = ()) -> Iterator[Use]:
    """Reads of names that neither the file nor Python binds, but for those in nodes of the ids
    `asked`: only what runs the file could have put them there. Names of the interpreter's are such
    wherever they stand."""
    lines: dict[str, list[int]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and id(node) not in asked:
            lines.setdefault(node.id, []).append(node.lineno)
    tables = list(symbol_tables(source))
    bound = {
        symbol.get_name()
        for symbol in tables[0].get_symbols()
        if symbol.is_assigned() or symbol.is_imported() or symbol.is_namespace()
    }
    for table in tables:
        for symbol in table.get_symbols():
            name = symbol.get_name()
            if name in INTERPRETERS_NAMES and name in lines:
                yield Use(name, lines[name][0])
            at_large = symbol.is_global() or table.get_type() == "module"
            known = name in bound or is_dunder(name) or hasattr(builtins, name)
            if at_large and symbol.is_referenced() and not known and name in lines:
                yield Use(name, lines[name][0])


@functools.cache
def _root(name: str) -> ModuleType | None:
    return importlib.import_module(name) if name in ROOTS else None


@functools.cache
def module_at(path: str) -> str | None:
    """The module that `torch.nn.functional` and the like is, by its own name; None for what is no
    module, and for what this version does not have."""
    item = _object_at(path)
    return item.__name__ if isinstance(item, ModuleType) else None


def is_code_at(path: str) -> bool:
    """Whether `torch.relu`, `torch.Tensor.add` and the like is a function, a class or a method."""
    item = _object_at(path)
    if item is None and path.count("."):
        owner = _object_at(path.rpartition(".")[0])
        item = getattr(owner, path.rpartition(".")[2], None) if isinstance(owner, type) else None
    return callable(item)


def _object_at(path: str) -> object:
    first, *rest = path.split(".")
    item: object = _root(first)
    for at, word in enumerate(rest):
        if not isinstance(item, ModuleType):
            return None
        below = vars(item).get(word)
        if below is None and ".".join((first, *rest[: at + 1])) in KNOWN:
            below = _imported(".".join((first, *rest[: at + 1])))
        item = below
    return item


def _imported(name: str) -> ModuleType | None:
    try:
        return importlib.import_module(name)
    except ImportError:
        return None
