"""Names of a zoo's models, looked up in their sources before a night begins.

Nothing is imported: what a source binds at its top level is read. A source whose names come about
otherwise (`from ... import *`, a module's `__getattr__`) is left to the night.
"""

from __future__ import annotations

import ast
import difflib
import sys
from collections.abc import Iterator
from pathlib import Path

from agentkernel.domain.errors import ProblemError
from agentkernel.domain.nightly import Zoo
from agentkernel.nightly.zoo.loader import Reference, parse_reference
from agentkernel.storage.source_text import describe_syntax_error, parse_source
from agentkernel.tools.problem.packages import module_file, search_path, source_bytes

DYNAMIC = frozenset({"__getattr__", "globals", "setattr", "vars", "exec"})
"""Who uses one of these at the top of a module may bind any name."""


def resolve_models(zoo: Zoo) -> None:
    """Raise ProblemError, one line with the model's name, for the first whose class, or function
    of inputs, is not there."""
    folder = Path(zoo.folder)
    for model in zoo.models:
        for text in filter(None, (model.model, model.make_inputs)):
            try:
                _resolve(parse_reference(text, folder), folder)
            except ProblemError as error:
                raise ProblemError(f"Model {model.name!r} of {zoo.name}: {error}") from error


def _resolve(reference: Reference, folder: Path) -> None:
    if reference.file is not None:
        file = reference.file
    elif reference.module in sys.modules:
        return
    else:
        with search_path(folder):
            file = module_file(reference.module).path
    try:
        tree = parse_source(source_bytes(file), str(file))
    except SyntaxError as error:
        raise ProblemError(
            f"{file.name} {describe_syntax_error(error)}. Expected valid Python. "
            "Next: fix the syntax."
        ) from error
    bound = set(_bound(tree.body))
    if reference.name in bound or bound & {"*", *DYNAMIC} or _is_dynamic(tree.body):
        return
    known = sorted(name for name in bound if not name.startswith("_"))
    near = difflib.get_close_matches(reference.name, known, n=1, cutoff=0.5)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    raise ProblemError(
        f"{reference.module or file.name} has no {reference.name!r}.{hint} Expected a class or "
        "function of that name. Next: check its spelling."
    )


def _bound(body: list[ast.stmt]) -> Iterator[str]:
    """What statements bind, those in branches and loops too; "*" for a whole module's names."""
    for node in body:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield node.name
            case ast.Import() | ast.ImportFrom():
                yield from (item.asname or item.name.partition(".")[0] for item in node.names)
            case _:
                yield from _targets(node)
                for inner in _bodies(node):
                    yield from _bound(inner)


def _targets(node: ast.stmt) -> Iterator[str]:
    """Names that a statement itself assigns, in an expression's `:=` too."""
    for part in _expressions(node):
        for item in ast.walk(part):
            if isinstance(item, ast.Name) and isinstance(item.ctx, ast.Store):
                yield item.id


def _expressions(node: ast.stmt) -> Iterator[ast.expr]:
    for item in ast.iter_child_nodes(node):
        if isinstance(item, ast.expr):
            yield item
        elif isinstance(item, ast.withitem):
            yield item.context_expr
            yield from [item.optional_vars] if item.optional_vars is not None else []


def _bodies(node: ast.stmt) -> Iterator[list[ast.stmt]]:
    for name in ("body", "orelse", "finalbody"):
        yield getattr(node, name, [])
    for item in (*getattr(node, "handlers", ()), *getattr(node, "cases", ())):
        yield item.body


def _is_dynamic(body: list[ast.stmt]) -> bool:
    """True where a statement at the top calls what may bind any name."""
    outer = (node for node in body if not isinstance(node, ast.FunctionDef | ast.ClassDef))
    names = (item.id for node in outer for item in ast.walk(node) if isinstance(item, ast.Name))
    return not DYNAMIC.isdisjoint(names)
