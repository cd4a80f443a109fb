"""May the text of a module be run where nothing walls it in? Read, and never executed.

What is not plainly a module of torch operators is refused: files, processes, the network and the
interpreter itself are reached through names that such a module has no use for.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator

from agentkernel.storage.source_text import parse_source
from agentkernel.tools.judge.policy.resolve import is_banned
from agentkernel.tools.judge.policy.vocabulary import BANNED_ATTRIBUTES, HARMLESS_DUNDERS

IMPORTS = {"torch", "torch.nn", "torch.nn.functional", "math", "typing", "__future__"}
FROM = {"torch": {"nn", "Tensor"}, "torch.nn": {"functional", "Parameter"}}
"""What may be imported out of a package by name; of math, typing and __future__ anything."""
SPACES = {"torch.nn", "torch.nn.functional", "torch.linalg", "torch.special"}
"""Below torch, the packages that hold operators and layers alone."""
NEITHER = {
    *("compile", "load", "save", "hub", "jit", "ops", "classes", "library", "utils", "export"),
    *("package", "distributed", "multiprocessing", "from_file", "cuda", "os", "sys", "torch"),
    *("import_ir_module", "fx", "overrides", "storage", "serialization", "apply_", "map_"),
    *("register_hook", "share_memory_", "numpy", "modules", "backends", "set_default_device"),
}
"""Names that no module of operators has after a dot."""
TOP = (ast.Import, ast.ImportFrom, ast.ClassDef, ast.FunctionDef, ast.Assign, ast.AnnAssign)
LONGEST = 20_000


def module_refusal(text: str, licence: str, allowed: Collection[str]) -> str | None:
    """Why the module `text` is neither run nor taught with; None where nothing speaks against it.

    `allowed` are the licences by SPDX name, in any case.
    """
    if licence.lower() not in {item.lower() for item in allowed}:
        return f"licence {licence!r} is not among those that allow it"
    if len(text) > LONGEST:
        return f"{len(text)} characters are more than {LONGEST}"
    try:
        tree = parse_source(text)
    except SyntaxError as error:
        return f"no Python: {type(error).__name__}"
    return next(_objections(tree), None)


def _objections(tree: ast.Module) -> Iterator[str]:
    for place, statement in enumerate(tree.body):
        documented = place == 0 and _is_text(statement)
        if not isinstance(statement, TOP) and not documented:
            yield f"line {statement.lineno}: a statement that runs at import"
        if isinstance(statement, ast.Assign | ast.AnnAssign):
            yield from _call_objections(statement)
        if isinstance(statement, ast.ClassDef):
            yield from _class_objections(statement)
    modules = dict[str, str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield from _import_objections(node, modules)
    dotted = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    for node in ast.walk(tree):
        yield from _name_objections(node, modules, dotted)


def _call_objections(statement: ast.stmt) -> Iterator[str]:
    if any(isinstance(node, ast.Call) for node in ast.walk(statement)):
        yield f"line {statement.lineno}: a call at import"


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _class_objections(node: ast.ClassDef) -> Iterator[str]:
    if node.decorator_list or node.keywords:
        yield f"line {node.lineno}: a class with a decorator or a metaclass"
    for item in node.body:
        if not isinstance(item, ast.FunctionDef | ast.Pass) and not _is_text(item):
            yield f"line {item.lineno}: a statement that runs at import"


def _import_objections(node: ast.Import | ast.ImportFrom, modules: dict[str, str]) -> Iterator[str]:
    for alias in node.names:
        if isinstance(node, ast.Import):
            full = alias.name
            known = full in IMPORTS
            modules[alias.asname or full.split(".")[0]] = full if alias.asname else "torch"
        else:
            full = f"{node.module}.{alias.name}"
            names = FROM.get(node.module or "")
            known = node.module in IMPORTS and not node.level and alias.name != "*"
            known = known and (names is None or alias.name in names)
            known = known and (names is not None or node.module in ("math", "typing", "__future__"))
            if full in SPACES:
                modules[alias.asname or alias.name] = full
        if not known:
            yield f"line {node.lineno}: imports {full}"


def _name_objections(
    node: ast.AST, modules: dict[str, str], dotted: Collection[int]
) -> Iterator[str]:
    if isinstance(node, ast.Name):
        if is_banned(node.id) or _dunder(node.id):
            yield f"line {node.lineno}: the name {node.id}"
        elif node.id in modules and id(node) not in dotted:
            yield f"line {node.lineno}: the package {node.id} under another name"
    elif isinstance(node, ast.Attribute):
        hidden = node.attr.startswith("_") and node.attr not in HARMLESS_DUNDERS
        if hidden or node.attr in BANNED_ATTRIBUTES or node.attr in NEITHER:
            yield f"line {node.lineno}: the attribute {node.attr}"
    elif isinstance(node, ast.FunctionDef):
        if node.decorator_list or (_dunder(node.name) and node.name not in HARMLESS_DUNDERS):
            yield f"line {node.lineno}: the method {node.name}"
        defaults = [*node.args.defaults, *(item for item in node.args.kw_defaults if item)]
        if any(isinstance(x, ast.Call) for item in defaults for x in ast.walk(item)):
            yield f"line {node.lineno}: a call at import"
    elif isinstance(node, ast.AsyncFunctionDef | ast.Global | ast.Nonlocal | ast.Try | ast.While):
        yield f"line {node.lineno}: {type(node).__name__}"


def _dunder(name: str) -> bool:
    return name.startswith("__") and name not in HARMLESS_DUNDERS
