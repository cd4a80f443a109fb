"""Kernels of one text but for their names: a drop-in holds one of them, which all launch.

A model of many like layers has one kernel of each kind then: it is compiled once for each form of
launch, in a run, by the judge and at its user's.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from dataclasses import replace

from agentkernel.compiler.kernel import KernelCode


def without_names(code: KernelCode) -> str | None:
    """The text of the kernels of `code` with their own names, those of their parameters and those
    of their variables in order of appearance: equal where they compute the same of what a launch
    gives by position. Constants, which it gives by name, keep theirs. None where anything but
    functions stands there."""
    tree = ast.parse(code.source)
    if not all(isinstance(item, ast.FunctionDef) for item in tree.body):
        return None
    functions = {name: f"kernel{place}" for place, name in enumerate(code.kernels)}
    for item in tree.body:
        assert isinstance(item, ast.FunctionDef)
        _rename(item, functions)
    return ast.unparse(tree)


def renamed(code: KernelCode, names: Mapping[str, str]) -> KernelCode:
    """No text, and launches of the kernels that `names` gives for its own."""
    pattern = re.compile(rf"\b({'|'.join(map(re.escape, names))})\b")
    launch = tuple(pattern.sub(lambda found: names[found[0]], text) for text in code.launch)
    return replace(code, source="", kernels=(), launch=launch)


def _rename(function: ast.FunctionDef, functions: Mapping[str, str]) -> None:
    names = dict(functions)
    for argument in function.args.args:
        if argument.annotation is None:
            argument.arg = names.setdefault(argument.arg, f"value{len(names)}")
    for node in ast.walk(function):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.setdefault(node.id, f"value{len(names)}")
    function.name = names.get(function.name, function.name)
    for node in ast.walk(function):
        if isinstance(node, ast.Name):
            node.id = names.get(node.id, node.id)
