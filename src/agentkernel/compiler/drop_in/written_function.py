"""The file of a judged segment as functions inside of another file, under names of their own."""

from __future__ import annotations

import ast
from collections.abc import Mapping
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
EXTRA_IMPORTS = {"libdevice": LIBDEVICE_IMPORT, "math": "import math"}


@dataclass(frozen=True)
class WrittenFunction:
    """The text of its kernels and functions, `name` the function in the place of forward."""

    name: str
    text: str
    kernels: tuple[str, ...]
    imports: tuple[str, ...]


def function_of(source: str, names: Names, wanted: str = "segment") -> WrittenFunction:
    """`source`, whose `ModelNew` has nothing but a forward, as a function called `wanted` or like
    it, before whose name there stand those of all that the file defines. Raises UnsupportedOp for
    a file that is more than imports, constants, functions and that class."""
    try:
        tree = parse_source(source)
    except SyntaxError as error:
        raise _refused(str(error.msg)) from None
    name = names.unique(wanted)
    kernels = [kernel for kernel, _ in kernel_functions(tree)]
    renames: dict[str, str] = {}
    body: list[ast.stmt] = []
    for item in tree.body:
        if isinstance(item, ast.Import | ast.ImportFrom):
            renames |= _imported(item)
        elif isinstance(item, ast.ClassDef) and item.name == "ModelNew":
            body.append(_forward_of(item))
        elif isinstance(item, ast.FunctionDef | ast.Assign | ast.AnnAssign):
            bound = _bound(item)
            renames |= {own: names.unique(f"{name}_{own}") for own in bound if own not in renames}
            body.append(item)
        elif not (isinstance(item, ast.Expr) and isinstance(item.value, ast.Constant)):
            raise _refused(f"line {item.lineno} is no import, constant or function")
    renames["ModelNew"] = name
    made = [ast.unparse(_Renaming(renames).visit(item)) for item in body]
    used = {x.id for item in body for x in ast.walk(item) if isinstance(x, ast.Name)}
    imports = tuple(line for word, line in EXTRA_IMPORTS.items() if word in used)
    return WrittenFunction(name, "\n\n\n".join(made), tuple(renames[x] for x in kernels), imports)


def _refused(why: str) -> UnsupportedOp:
    return UnsupportedOp("segment", f"its file cannot be a part of another one: {why}")


def _bound(item: ast.FunctionDef | ast.Assign | ast.AnnAssign) -> list[str]:
    """The names that a statement of the file binds."""
    if isinstance(item, ast.FunctionDef):
        return [item.name]
    targets = item.targets if isinstance(item, ast.Assign) else [item.target]
    if not all(isinstance(target, ast.Name) for target in targets):
        raise _refused(f"line {item.lineno} assigns to what is no name")
    return [target.id for target in targets if isinstance(target, ast.Name)]


def _imported(item: ast.Import | ast.ImportFrom) -> dict[str, str]:
    """Bound name -> the same in a drop-in."""
    found = {}
    for alias in item.names:
        bound = alias.asname or alias.name
        path = alias.name if isinstance(item, ast.Import) else f"{item.module}.{alias.name}"
        if isinstance(item, ast.Import) and alias.asname is None:
            bound = path = alias.name.partition(".")[0]
        module = max((x for x in MODULES if f"{path}.".startswith(f"{x}.")), key=len, default="")
        if not module:
            raise _refused(f"it imports {path}")
        found[bound] = MODULES[module] + path.removeprefix(module)
    return found


def _forward_of(model: ast.ClassDef) -> ast.FunctionDef:
    """The forward as a function, without `self`."""
    methods = [x for x in model.body if not isinstance(x, ast.Expr | ast.Pass) and not _is_empty(x)]
    forward = methods[0] if len(methods) == 1 else None
    if not isinstance(forward, ast.FunctionDef) or forward.name != "forward":
        raise _refused("ModelNew has more than a forward")
    places = [*forward.args.posonlyargs, *forward.args.args]
    reads = [node for node in ast.walk(forward) if isinstance(node, ast.Name)]
    if forward.decorator_list or not places or any(x.id == places[0].arg for x in reads):
        raise _refused("its forward is decorated, or reads the module itself")
    del (forward.args.posonlyargs or forward.args.args)[0]
    forward.name = model.name
    return forward


def _is_empty(item: ast.stmt) -> bool:
    """A constructor that only calls that of nn.Module."""
    calls = ("super().__init__()", "super(ModelNew, self).__init__()", "pass")
    return (
        isinstance(item, ast.FunctionDef)
        and item.name == "__init__"
        and all(ast.unparse(x) in calls for x in item.body)
    )


class _Renaming(ast.NodeTransformer):
    """Renames what the file binds wherever a name means that, and not something local."""

    def __init__(self, renames: Mapping[str, str]) -> None:
        self._renames = dict(renames)
        self._depth = 0

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        if not self._depth:
            node.name = self._renames[node.name]
        node.decorator_list = [self.visit(item) for item in node.decorator_list]
        return self._inside(node)

    def visit_Lambda(self, node: ast.Lambda) -> ast.AST:
        return self._inside(node)

    def visit_Name(self, node: ast.Name) -> ast.AST:
        if node.id not in self._renames:
            return node
        made = ast.parse(self._renames[node.id], mode="eval").body
        if isinstance(made, ast.Name):
            made.ctx = node.ctx
        return made

    def _inside(self, node: ast.FunctionDef | ast.Lambda) -> ast.AST:
        """Defaults and annotations mean what stands around, the body what is bound in it first."""
        node.args = self.visit(node.args)
        outer, self._renames = (
            self._renames,
            {name: new for name, new in self._renames.items() if name not in _locals(node)},
        )
        self._depth += 1
        if isinstance(node, ast.Lambda):
            node.body = self.visit(node.body)
        else:
            node.body = [self.visit(item) for item in node.body]
        self._depth -= 1
        self._renames = outer
        return node


def _locals(function: ast.FunctionDef | ast.Lambda) -> set[str]:
    """Arguments and whatever is assigned anywhere inside."""
    inside = [node for node in ast.walk(function) if node is not function]
    found = {node.arg for node in inside if isinstance(node, ast.arg)}
    found |= {node.name for node in inside if isinstance(node, ast.FunctionDef)}
    return found | {
        node.id for node in inside if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }
