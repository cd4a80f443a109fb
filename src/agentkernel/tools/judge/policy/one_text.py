"""One text for a kernel: what its file defines, what `inspect` finds of it, what Triton's compiler
and what its interpreter take of that.

`inspect` cuts a function's lines out of the file. Triton's compiler (`triton.runtime.jit`) takes
them from the first that looks like a definition, its interpreter from the last.
"""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from agentkernel.storage.source_text import parse_source
from agentkernel.tools.judge.policy.kernel_text import (
    functions,
    is_jit,
    kernel_functions,
    last_word,
)

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
