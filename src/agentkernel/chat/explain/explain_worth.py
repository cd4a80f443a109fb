"""Which statements of a kernel does an overview name?"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from agentkernel.chat.explain.explain_file import Kernel, TritonFile, dotted, keyword
from agentkernel.chat.explain.explain_roles import names_in


def notable_statements(kernel: Kernel, file: TritonFile) -> frozenset[ast.stmt]:
    """Memory, reductions, products, loops and conversions; what a loop carries on; what is made of
    the values before they are written."""
    named = {
        node
        for node in ast.walk(kernel.node)
        if isinstance(node, ast.stmt) and node is not kernel.node and is_notable(node, file)
    }
    return frozenset(named | running_values(kernel) | written_values(kernel, file))


def written_values(kernel: Kernel, file: TritonFile) -> frozenset[ast.stmt]:
    """The assignments of the names that are stored as they are."""
    stores = [
        keyword(node, "value", 1)
        for node in ast.walk(kernel.node)
        if isinstance(node, ast.Call) and file.called(node.func) == "tl.store"
    ]
    names = {value.id for value in stores if isinstance(value, ast.Name)}
    return frozenset(
        node
        for node in ast.walk(kernel.node)
        if isinstance(node, ast.Assign) and names & set(_targets(node))
    )


def running_values(kernel: Kernel) -> frozenset[ast.stmt]:
    """The statements of a loop that pass a value from one turn of it to the next, and those that
    lead to it: a running maximum, a sum that is rescaled."""
    found: set[ast.stmt] = set()
    for loop in ast.walk(kernel.node):
        if isinstance(loop, ast.For | ast.While):
            found |= _running(loop)
    return frozenset(found)


def _running(loop: ast.For | ast.While) -> set[ast.stmt]:
    """The assignments of a loop in which a value of its last turn is used, or handed on."""
    assigned = [
        (node, set(_targets(node)), set(names_in(node.value)))
        for node in ast.walk(loop)
        if isinstance(node, ast.Assign | ast.AugAssign)
    ]
    assigned.sort(key=lambda item: item[0].lineno)
    known: set[str] = set()
    handed: set[str] = set()
    for node, targets, used in assigned:
        own = targets if isinstance(node, ast.AugAssign) else set()
        handed |= (used | own) - known
        known |= targets
    carried = handed & known
    chosen: set[ast.stmt] = set()
    begun = set(carried)
    for node, targets, used in assigned:
        if used & begun or targets & carried:
            chosen.add(node)
            begun |= targets
    return chosen


def _targets(node: ast.Assign | ast.AugAssign) -> Iterator[str]:
    for target in [node.target] if isinstance(node, ast.AugAssign) else node.targets:
        yield from names_in(target)


def is_notable(statement: ast.stmt, file: TritonFile) -> bool:
    """True for what an overview names: memory, reductions, products, loops, conversions."""
    if isinstance(statement, ast.For | ast.While | ast.If):
        return True
    wanted = (
        "tl.load",
        "tl.store",
        "tl.dot",
        "tl.reduce",
        "tl.associative_scan",
        ".load",
        ".store",
    )
    reductions = ("tl.sum", "tl.max", "tl.min", "tl.argmax", "tl.argmin", "tl.cumsum")
    for node in ast.walk(statement):
        if isinstance(node, ast.Call):
            called = file.called(node.func)
            if called in wanted or called in reductions or called.startswith("tl.atomic"):
                return True
            if called == ".to" and dotted(node.func):
                return True
    return False
