"""The file of a judged segment as functions inside of another file, under names of their own."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from agentkernel.compiler.emit import Names
from agentkernel.compiler.ir import UnsupportedOp
from agentkernel.compiler.kernel_helpers import LIBDEVICE_IMPORT
from agentkernel.storage.source_text import parse_source
from agentkernel.tools.judge.policy.kernel_source import kernel_functions

MODULES = {
    "torch": "torch",
    "triton": "triton",
    "triton.language": "tl",
    "triton.language.extra.libdevice": "libdevice",
    "triton.language.extra.cuda.libdevice": "libdevice",
    "math": "math",
}
"""What the file may import -> what a drop-in calls it."""
IMPORTS = {"libdevice": LIBDEVICE_IMPORT, "math": "import math"}
"""Lines that not every drop-in has."""
EMPTY = ("super().__init__()", "super(ModelNew, self).__init__()", "pass")
"""What a constructor may hold that makes nothing."""


@dataclass(frozen=True)
class WrittenFunction:
    """The text of its kernels and functions, `name` the function in the place of forward."""

    name: str
    text: str
    kernels: tuple[str, ...]
    imports: frozenset[str]


def function_of(source: str, names: Names) -> WrittenFunction:
    """`source`, whose `ModelNew` has nothing but a forward, as a function; all that the file
    defines begins with the function's name. Raises UnsupportedOp for a file that is more than
    imports, constants, functions and that class."""
    try:
        tree = parse_source(source)
    except SyntaxError as error:
        raise _refused(str(error.msg)) from None
    name, kernels = names.unique("segment"), [item for item, _ in kernel_functions(tree)]
    renames = {"ModelNew": name}
    body: list[ast.stmt] = []
    for item in tree.body:
        if isinstance(item, ast.Import | ast.ImportFrom):
            renames |= _imported(item)
        elif isinstance(item, ast.ClassDef) and item.name == "ModelNew":
            body.append(_forward_of(item))
        elif isinstance(item, ast.FunctionDef | ast.Assign | ast.AnnAssign):
            own = [item.name] if isinstance(item, ast.FunctionDef) else [*_bound(item)]
            renames |= {x: names.unique(f"{name}_{x}") for x in own if x not in renames}
            body.append(item)
        elif not (isinstance(item, ast.Expr) and isinstance(item.value, ast.Constant)):
            raise _refused(f"line {item.lineno} is no import, constant or function")
    used = {word for item in body for word in _rename(item, renames)}
    for item in body:
        if isinstance(item, ast.FunctionDef):
            item.name = renames[item.name]
    text = "\n\n\n".join(map(ast.unparse, body))
    imports = frozenset(line for word, line in IMPORTS.items() if word in used)
    return WrittenFunction(name, text, tuple(renames[item] for item in kernels), imports)


def _refused(why: str) -> UnsupportedOp:
    return UnsupportedOp("segment", f"its file cannot be a part of another one: {why}")


def _imported(item: ast.Import | ast.ImportFrom) -> Iterator[tuple[str, str]]:
    """Bound name, and the same in a drop-in."""
    for alias in item.names:
        path, bound = alias.name, alias.asname or alias.name
        if isinstance(item, ast.ImportFrom):
            path = f"{item.module}.{alias.name}"
        elif alias.asname is None:
            path = bound = alias.name.partition(".")[0]
        found = [module for module in MODULES if f"{path}.".startswith(f"{module}.")]
        if not found:
            raise _refused(f"it imports {path}")
        module = max(found, key=len)
        yield bound, MODULES[module] + path.removeprefix(module)


def _forward_of(model: ast.ClassDef) -> ast.FunctionDef:
    """Its forward as a function of the class's name, without `self`."""
    kept = [item for item in model.body if not isinstance(item, ast.Expr) and not _makes_none(item)]
    forward = kept[0] if len(kept) == 1 else None
    if not isinstance(forward, ast.FunctionDef) or forward.name != "forward":
        raise _refused("ModelNew has more than a forward")
    arguments = forward.args.posonlyargs or forward.args.args
    read = {node.id for node in ast.walk(forward) if isinstance(node, ast.Name)}
    if forward.decorator_list or not arguments or arguments.pop(0).arg in read:
        raise _refused("its forward is decorated, or reads the module itself")
    forward.name = model.name
    return forward


def _makes_none(item: ast.stmt) -> bool:
    """A constructor that only calls that of nn.Module."""
    own = isinstance(item, ast.FunctionDef) and item.name == "__init__"
    return own and all(ast.unparse(line) in EMPTY for line in item.body)  # type: ignore[attr-defined]


def _bound(scope: ast.AST) -> Iterator[str]:
    """The names that are bound in it: arguments, what is assigned, functions."""
    for node in ast.iter_child_nodes(scope):
        if isinstance(node, ast.FunctionDef):
            yield node.name
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif not isinstance(node, ast.Lambda):
            yield from _bound(node)


def _rename(node: ast.AST, renames: Mapping[str, str]) -> Iterator[str]:
    """Rename what is read of the file; what a function binds is its own. Yields what is read."""
    if isinstance(node, ast.Name) and node.id in renames:
        node.id = renames[node.id]  # a dotted one is printed as it stands
        yield node.id.partition(".")[0]
    body: list[ast.AST] = []
    if isinstance(node, ast.FunctionDef | ast.Lambda):
        body = [*node.body] if isinstance(node, ast.FunctionDef) else [node.body]
    own = set(_bound(node)) if body else set()
    inside = {name: new for name, new in renames.items() if name not in own}
    for child in ast.iter_child_nodes(node):
        yield from _rename(child, inside if child in body else renames)
