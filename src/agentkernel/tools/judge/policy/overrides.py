"""The methods of `torch.nn.Module` that a file puts something of its own in the place of.

What moves, freezes, copies, hooks and trains a module calls them: they are the original's, so that
only what the original overrides may be overridden.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Callable, Iterator

from agentkernel.tools.judge.policy.kernel_text import argument_names, last_word
from agentkernel.tools.judge.policy.one_text import FUNCTIONS, Finding
from agentkernel.tools.judge.policy.resolve import is_dunder

FREE = {
    "__contains__",
    "__getitem__",
    "__init__",
    "__iter__",
    "__len__",
    "__repr__",
    "extra_repr",
    "forward",
}
"""What a module says of itself and how it is called."""
AT_ONCE = {"apply", "filter", "map", "max", "min", "sorted"}
"""What calls a function that it is given, and does not keep it."""


def names_given(tree: ast.AST) -> frozenset[str]:
    """The names of all methods, and of all attributes that are assigned."""
    return frozenset(
        node.name if isinstance(node, FUNCTIONS) else node.attr
        for node in ast.walk(tree)
        if isinstance(node, FUNCTIONS)
        or (isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store))
    )


def overridden(
    tree: ast.Module, allowed: frozenset[str], path: Callable[[ast.AST], str]
) -> Iterator[Finding]:
    """Members of module classes, and attributes anywhere, in the place of a module's methods;
    metaclasses; functions that a constructor makes and that hold on to the module, which a copy of
    it would then call. `allowed` are the original's own, `path` gives `torch.nn.Module`."""
    banned = _methods() - allowed
    kinds = _module_classes(tree, path)
    others = _on_others(tree, kinds)
    for kind in kinds:
        for node, name in _members(kind):
            if name in banned or (is_dunder(name) and name not in FREE | allowed):
                yield Finding(node, "overridden", f"{kind.name}.{name}: the original has its own")
        for item in kind.body:
            if isinstance(item, FUNCTIONS) and item.name == "__init__":
                yield from _held(item)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load):
            if node.attr in banned and id(node) not in others:
                text = f"{node.attr}: the original has its own; name it otherwise"
                yield Finding(node, "overridden", text)
        elif isinstance(node, ast.ClassDef) and any(x.arg == "metaclass" for x in node.keywords):
            yield Finding(node, "overridden", f"{node.name} has a metaclass")


@functools.cache
def _methods() -> frozenset[str]:
    from torch import nn

    return frozenset(name for name, item in vars(nn.Module).items() if callable(item)) - FREE


def _module_classes(tree: ast.Module, path: Callable[[ast.AST], str]) -> list[ast.ClassDef]:
    """Classes that derive from one of torch's other than autograd's functions, or from what is no
    name, and whatever those derive from."""
    kinds = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    own = {kind.name: kind for kind in kinds}
    found: dict[int, ast.ClassDef] = {}
    while True:
        names = {kind.name for kind in found.values()} | {"ModelNew"}
        bases = {word.id for k in found.values() for word in k.bases if isinstance(word, ast.Name)}
        more = {
            id(kind): kind
            for kind in kinds
            if kind.name in names | (bases & set(own))
            or any(_leads_to_torch(path(base)) or path(base) in names for base in _bases(kind))
        }
        if more.keys() <= found.keys():
            return list(found.values())
        found |= more


def _bases(kind: ast.ClassDef) -> list[ast.expr]:
    """Of `Generic[T]` what is subscripted."""
    return [base.value if isinstance(base, ast.Subscript) else base for base in kind.bases]


def _on_others(tree: ast.Module, kinds: list[ast.ClassDef]) -> set[int]:
    """Attributes of the first argument of methods of classes that are no modules."""
    of_modules = {id(kind) for kind in kinds}
    found: set[int] = set()
    for kind in ast.walk(tree):
        if not isinstance(kind, ast.ClassDef) or id(kind) in of_modules:
            continue
        for method in kind.body:
            if not isinstance(method, FUNCTIONS) or not method.args.args:
                continue
            first = method.args.args[0].arg
            found |= {
                id(node)
                for node in ast.walk(method)
                if isinstance(node, ast.Attribute)
                and isinstance(node.value, ast.Name)
                and node.value.id == first
            }
    return found


def _leads_to_torch(path: str) -> bool:
    return not path or (path.startswith("torch.") and path != "torch.autograd.Function")


def _members(kind: ast.ClassDef) -> Iterator[tuple[ast.AST, str]]:
    inside: list[ast.AST] = list(kind.body)
    while inside:
        node = inside.pop(0)
        if isinstance(node, (*FUNCTIONS, ast.ClassDef)):
            yield node, node.name
            continue
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node, node.id
        elif isinstance(node, ast.alias):
            yield node, node.asname or node.name
        inside += ast.iter_child_nodes(node)


def _held(constructor: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[Finding]:
    """Functions in the constructor that read the module, or what was taken from it, and are not
    only called there."""
    first = next((item.arg for item in constructor.args.args), "")
    taken = {first}
    for node in ast.walk(constructor):
        if isinstance(node, ast.Assign | ast.NamedExpr) and _takes(node.value, first):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            taken |= {item.id for item in targets if isinstance(item, ast.Name)}
    at_once = {
        id(item)
        for node in ast.walk(constructor)
        if isinstance(node, ast.Call) and last_word(node.func) in AT_ONCE
        for item in (*node.args, *(word.value for word in node.keywords))
        if isinstance(item, ast.Lambda)
    }
    for node in ast.walk(constructor):
        inner = isinstance(node, (*FUNCTIONS, ast.Lambda)) and node is not constructor
        if inner and id(node) not in at_once and _reads(node, taken - argument_names(node)):
            text = "a function of the constructor holds on to the module: a copy would call it"
            yield Finding(node, "overridden", text)


def _takes(value: ast.expr, first: str) -> bool:
    """Whether `value` may be the module or one of its parts: named whole, or an attribute, alone
    or among others, and not what an operator or an index makes of one."""
    if isinstance(value, ast.Tuple | ast.List | ast.Set):
        return any(_takes(item, first) for item in value.elts)
    if isinstance(value, ast.Dict):
        return any(_takes(item, first) for item in value.values)
    end: ast.expr = value
    while isinstance(end, ast.Attribute):
        end = end.value
    if isinstance(end, ast.Name):
        return end.id == first
    bases = {id(item.value) for item in ast.walk(value) if isinstance(item, ast.Attribute)}
    return any(
        isinstance(item, ast.Name) and item.id == first and id(item) not in bases
        for item in ast.walk(value)
    )


def _reads(node: ast.AST, names: set[str]) -> bool:
    return any(isinstance(item, ast.Name) and item.id in names for item in ast.walk(node))
