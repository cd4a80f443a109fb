"""Kernels of one text but for their names: a drop-in holds one of them, which all launch.

A model of many like layers has one kernel of each kind then: it is compiled once for each form of
launch, in a run, by the judge and at its user's.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache

from agentkernel.compiler.kernel import KernelCode
from agentkernel.storage.source_text import parse_source


def same_but_for_names(one: KernelCode, other: KernelCode) -> bool:
    """Whether kernels compute the same of what a launch gives by position: names of their own, of
    parameters and of variables aside. Constants, which a launch gives by name, keep theirs."""
    alike = len(one.kernels) == len(other.kernels)
    alike = alike and one.source.count("=") == other.source.count("=")
    if not alike:
        return False
    text = _without_names(one.source, one.kernels)
    return text is not None and text == _without_names(other.source, other.kernels)


@lru_cache(maxsize=256)
def _without_names(source: str, kernels: tuple[str, ...]) -> str | None:
    """The text with names in order of appearance; None where anything but functions stands
    there."""
    tree = parse_source(source)
    if not all(isinstance(item, ast.FunctionDef) for item in tree.body):
        return None
    # No name in a text is like these.
    functions = {name: f"<kernel {place}>" for place, name in enumerate(kernels)}
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
            argument.arg = names.setdefault(argument.arg, f"<{len(names)}>")
    for node in ast.walk(function):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.setdefault(node.id, f"<{len(names)}>")
    function.name = names.get(function.name, function.name)
    for node in ast.walk(function):
        if isinstance(node, ast.Name):
            node.id = names.get(node.id, node.id)
