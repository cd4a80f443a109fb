"""What of a drop-in is needed to compute, and what only says for which inputs it was verified?"""

from __future__ import annotations

import ast
import textwrap

from agentkernel.storage.source_text import parse_source

LONG_ROWS = "_long_rows_kernel"
"""How the kernel for rows that are too long for the usual one ends."""
EXPECTED = "VERIFIED"


def trimmed_kernel(kernel: str) -> str:
    """`kernel` without its envelope: the file's docstring, refusals of other inputs, what is
    returned for empty ones, the second kernel for long rows, and the gradients.

    What is left is another text, right for fewer inputs, and is to be judged by itself. The text as
    it is where it cannot be read.
    """
    try:
        tree = parse_source(kernel)
    except SyntaxError:
        return kernel
    lines = kernel.splitlines()
    edits: list[tuple[int, int, list[str]]] = []
    backward = [item for item in tree.body if _is_gradients(item)]
    formulas = {name.id for x in backward for name in ast.walk(x) if isinstance(name, ast.Name)}
    for place, node in enumerate(tree.body):
        named = isinstance(node, ast.FunctionDef) and (
            node.name.endswith(LONG_ROWS) or node.name in formulas
        )
        if named or node in backward or _is_docstring(node, place):
            edits.append((_first(node), _last(node), []))
        elif isinstance(node, ast.ClassDef):
            edits += _forward_edits(node, lines)
    for first, last, instead in sorted(edits, reverse=True):
        lines[first - 1 : last] = instead
    return _without_expected(_spaced("\n".join(lines)))


def _is_gradients(node: ast.stmt) -> bool:
    """The class with the backward pass."""
    return isinstance(node, ast.ClassDef) and any(
        ast.unparse(base) == "torch.autograd.Function" for base in node.bases
    )


def _without_expected(kernel: str) -> str:
    """`kernel` without the sentence that refusals end with, where none is left to say it."""
    tree = parse_source(kernel)
    names = [item.id for item in ast.walk(tree) if isinstance(item, ast.Name)]
    lines = kernel.splitlines()
    for node in tree.body:
        if names.count(EXPECTED) == 1 and _is_expected(node):
            del lines[node.lineno - 1 : _last(node)]
    return _spaced("\n".join(lines))


def _forward_edits(model: ast.ClassDef, lines: list[str]) -> list[tuple[int, int, list[str]]]:
    edits: list[tuple[int, int, list[str]]] = []
    forwards = [x for x in model.body if isinstance(x, ast.FunctionDef) and x.name == "forward"]
    for node in forwards[0].body if forwards else ():
        if not isinstance(node, ast.If):
            continue
        if "is_grad_enabled" in ast.unparse(node.test):
            edits.append((node.lineno, _last(node), []))
            continue
        if "training" in ast.unparse(node.test):  # there the module computes something else
            continue
        only = node.body[0] if len(node.body) == 1 else None
        if isinstance(only, ast.Raise | ast.Return) and not node.orelse:
            edits.append((node.lineno, _last(node), []))
        elif node.orelse and LONG_ROWS in ast.unparse(ast.Module(node.orelse, [])):
            kept = lines[node.body[0].lineno - 1 : _last(node.body[-1])]
            dedented = textwrap.dedent("\n".join(kept)).splitlines()
            indent = " " * node.col_offset
            edits.append((node.lineno, _last(node), [f"{indent}{line}" for line in dedented]))
    return edits


def _is_docstring(node: ast.stmt, place: int) -> bool:
    return place == 0 and isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _is_expected(node: ast.stmt) -> bool:
    if not isinstance(node, ast.Assign) or not isinstance(node.targets[0], ast.Name):
        return False
    return node.targets[0].id == EXPECTED


def _first(node: ast.stmt) -> int:
    decorators = getattr(node, "decorator_list", [])
    return int(min([node.lineno, *(item.lineno for item in decorators)]))


def _last(node: ast.stmt) -> int:
    return node.end_lineno or node.lineno


def _spaced(text: str) -> str:
    """At most two empty lines in a row, none at the ends."""
    while "\n\n\n\n" in text:
        text = text.replace("\n\n\n\n", "\n\n\n")
    return text.strip("\n") + "\n"
