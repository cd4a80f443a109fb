"""Definitions of a source: one text for each kernel, no overridden methods of nn.Module.

`inspect` cuts a function's lines out of the file. Triton's compiler (`triton.runtime.jit`) takes
them from the first line that looks like a definition, its interpreter from the last: a kernel
whose readings differ is refused.

What moves, freezes, copies, hooks and trains a module calls the methods of `torch.nn.Module`. A
source may override only those that the original overrides.
"""

from __future__ import annotations

import ast
import functools
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from agentkernel.storage.source_text import parse_source
from agentkernel.tools.judge.policy.kernel_source import (
    argument_names,
    functions,
    is_jit,
    kernel_functions,
    last_word,
)
from agentkernel.tools.judge.policy.names import is_dunder

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
DEFINITION = re.compile(r"^def\s+\w+\s*\(", re.MULTILINE)
ACCESSORS = {"getter", "setter", "deleter", "overload"}


class Finding(NamedTuple):
    """What is wrong, and where."""

    node: ast.AST
    rule: str
    text: str


def defined_twice(tree: ast.Module) -> Iterator[Finding]:
    """Functions and classes of one name in one scope, branches of conditions included: which of
    them a name means depends on what was run. A property's accessors are no second definition."""
    scopes: list[ast.AST] = [tree]
    while scopes:
        seen: set[str] = set()
        inside = [scopes.pop()]
        while inside:
            for node in ast.iter_child_nodes(inside.pop(0)):
                if not isinstance(node, (*FUNCTIONS, ast.ClassDef)):
                    inside.append(node)
                    continue
                scopes.append(node)
                if node.name in seen and not _is_accessor(node):
                    yield Finding(node, "defined-twice", f"{node.name} is defined twice")
                seen.add(node.name)


def _is_accessor(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> bool:
    return any(last_word(item) in ACCESSORS for item in node.decorator_list)


def kernel_texts(tree: ast.Module, lines: Sequence[str]) -> Iterator[Finding]:
    """Kernels whose lines, as the compiler or the interpreter takes them, are another function than
    the file defines; kernels and models that are given another value; uses of `jit` that hide what
    it wraps.
    """
    kernels = kernel_functions(tree)
    names = {item.name for _, item in kernels}
    for function in functions(tree):
        if function.name not in names:
            continue
        wanted = _dumped(function)
        if any(_dumped(found) != wanted for found in _readings(function, lines)):
            text = f"the text of kernel {function.name} reads otherwise for Triton than for Python"
            yield Finding(function, "kernel-text", text)
    yield from _rebound(tree, {name for name, _ in kernels} | {"ModelNew"})
    yield from _hidden(tree)


def _readings(function: ast.FunctionDef, lines: Sequence[str]) -> Iterator[ast.AST]:
    """The function as the compiler and as the interpreter read it; an empty module for what they do
    not read as one function."""
    first = min([function.lineno, *(item.lineno for item in function.decorator_list)])
    block = inspect.getblock([f"{line}\n" for line in lines[first - 1 :]])
    text = textwrap.dedent("".join(block))
    start = DEFINITION.search(text)
    last = max((n for n, line in enumerate(block) if line.strip().startswith("def ")), default=0)
    texts = (text[start.start() :] if start else "", textwrap.dedent("".join(block[last:])))
    for taken in texts:
        try:
            body = parse_source(taken).body
        except SyntaxError:
            body = []
        yield body[0] if len(body) == 1 else ast.Module(body=[], type_ignores=[])


def _dumped(node: ast.AST) -> str:
    """The tree without its decorators, which neither of them takes, and without its docstring,
    which is no code and is indented less where the function is."""
    if not isinstance(node, ast.FunctionDef):
        return ""
    body = node.body[1:] if ast.get_docstring(node, clean=False) is not None else node.body
    fields = dict(ast.iter_fields(node)) | {"decorator_list": [], "body": body}
    return ast.dump(ast.FunctionDef(**fields))


def _rebound(tree: ast.Module, kernels: set[str]) -> Iterator[Finding]:
    """What else a kernel's name is given among the module's own statements: only what wraps it,
    under the same name or by one assignment under a new one, is the same kernel."""
    kinds = (*FUNCTIONS, ast.ClassDef)
    defined = {item.name for item in ast.walk(tree) if isinstance(item, kinds)}
    given: set[str] = set()
    inside: list[ast.AST] = [tree]
    while inside:
        node = inside.pop(0)
        for child in ast.iter_child_nodes(node):
            if isinstance(child, (*FUNCTIONS, ast.ClassDef, ast.Lambda)):
                continue
            if isinstance(node, ast.comprehension) and child is node.target:
                continue  # a name of its own scope
            inside.append(child)
            name = _bound(child)
            if name in kernels:
                yield Finding(child, "kernel-text", f"{name} is given another value")
            if not isinstance(child, ast.Name) or isinstance(child.ctx, ast.Load):
                continue
            if child.id not in kernels:
                continue
            value = node.value if isinstance(node, ast.Assign) else None
            read = {item.id for item in ast.walk(value or ast.Pass()) if isinstance(item, ast.Name)}
            first = child.id not in defined | given and value is not None
            if not first and child.id not in read:
                yield Finding(child, "kernel-text", f"{child.id} is given another value")
            given.add(child.id)


def _bound(node: ast.AST) -> str | None:
    """The name that an import, a handler or a pattern binds."""
    if isinstance(node, ast.alias):
        return node.asname or node.name
    kinds = ast.ExceptHandler | ast.MatchAs | ast.MatchStar
    return node.name if isinstance(node, kinds) else None


def _hidden(tree: ast.Module) -> Iterator[Finding]:
    """`jit` stands in a decorator, or is called with a function's name."""
    plain: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and is_jit(node):
            for item in node.decorator_list:
                plain.add(id(item.func if isinstance(item, ast.Call) else item))
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Name):
            plain.add(id(node.func))
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            hidden = any(item.name == "jit" and item.asname for item in node.names)
        elif isinstance(node, ast.Attribute | ast.Name):
            word = node.attr if isinstance(node, ast.Attribute) else node.id
            hidden = word in ("jit", "JITFunction") and id(node) not in plain
        else:
            continue
        if hidden:
            yield Finding(node, "kernel-text", "jit: as a decorator, or called with a function")


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
