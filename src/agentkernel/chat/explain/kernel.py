"""Statements of a kernel in words, and what each axis of its grid counts."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from agentkernel.chat.explain.roles import (
    Role,
    Scope,
    argument_words,
    names_in,
    resolved,
    root_of,
    without_conversions,
)
from agentkernel.chat.explain.source import Kernel, TritonFile, code, first_line, keyword
from agentkernel.chat.explain.values import place_words, value_words

Noted = tuple[ast.stmt, str]
"""A statement and its words."""
ATOMICS = {
    "tl.atomic_add": "adds",
    "tl.atomic_max": "takes the maximum with",
    "tl.atomic_min": "takes the minimum with",
    "tl.atomic_xchg": "exchanges",
    "tl.atomic_cas": "compares and swaps",
}


def kernel_notes(file: TritonFile, kernel: Kernel) -> list[Noted]:
    """Every statement of a kernel's body, in the order of the file."""
    scope = Scope.of(file, kernel)
    return list(_body(kernel.node.body, scope))


def _body(body: list[ast.stmt], scope: Scope) -> Iterator[Noted]:
    for statement in body:
        yield statement, _statement(statement, scope)
        _learn(statement, scope)
        for inner in _blocks(statement):
            yield from _body(inner, scope)


def _blocks(statement: ast.stmt) -> Iterator[list[ast.stmt]]:
    for name in ("body", "orelse", "finalbody"):
        block = getattr(statement, name, None)
        if isinstance(block, list):
            yield block


def _learn(statement: ast.stmt, scope: Scope) -> None:
    """What the names that a statement sets stand for from here on."""
    if isinstance(statement, ast.For):
        for name in names_in(statement.target):
            scope.roles[name] = Role("start")
        return
    if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
        if "constexpr" in code(statement.annotation):
            scope.roles[statement.target.id] = Role("constant")
        elif statement.value is not None:
            scope.roles[statement.target.id] = scope.role(statement.value)
        return
    if isinstance(statement, ast.AugAssign) and isinstance(statement.target, ast.Name):
        known = scope.roles.get(statement.target.id)
        if known is not None and known.kind == "argument":
            scope.roles[statement.target.id] = scope.role(statement.value)
        return
    if not isinstance(statement, ast.Assign):
        return
    for target in statement.targets:
        parts = target.elts if isinstance(target, ast.Tuple) else [target]
        value = statement.value
        whole = isinstance(value, ast.Tuple) and len(value.elts) == len(parts)
        for place, part in enumerate(parts):
            if isinstance(part, ast.Name):
                given = value.elts[place] if whole and isinstance(value, ast.Tuple) else value
                scope.roles[part.id] = scope.role(given)
                _remember(part.id, given, scope)


def _remember(name: str, value: ast.expr, scope: Scope) -> None:
    """Where a value was read from, until the name means something else."""
    inner = without_conversions(value)
    loaded = isinstance(inner, ast.Call) and scope.file.called(inner.func) == "tl.load"
    root = root_of(inner.args[0], scope) if isinstance(inner, ast.Call) and inner.args else ""
    if loaded and root:
        scope.sources[name] = root
    else:
        scope.sources.pop(name, None)


def _statement(statement: ast.stmt, scope: Scope) -> str:
    match statement:
        case ast.Assign():
            return _assign(statement, scope) + resolved(statement.value, scope)
        case ast.AnnAssign():
            return _annotated(statement, scope)
        case ast.AugAssign():
            return _augmented(statement, scope) + resolved(statement.value, scope)
        case ast.For():
            return _loop(statement, scope) + resolved(statement.iter, scope)
        case ast.While():
            return f"repeats while {code(statement.test)}" + resolved(statement.test, scope)
        case ast.If():
            return _choice(statement, scope) + resolved(statement.test, scope)
        case ast.Return():
            back = "" if statement.value is None else f" {code(statement.value)}"
            return f"gives back{back}" if back else "ends this program"
        case ast.Expr():
            return _expression(statement.value, scope)
        case ast.Assert():
            return f"checked when compiled or in debug mode: {code(statement.test)}"
        case ast.Pass():
            return "does nothing"
    return f"{type(statement).__name__.lower()}: {code(statement)}"


def _assign(statement: ast.Assign, scope: Scope) -> str:
    target, value = statement.targets[0], statement.value
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        pairs = zip(target.elts, value.elts, strict=False)
        return "; ".join(_given(name, part, scope) for name, part in pairs)
    return _given(target, value, scope)


def _given(target: ast.expr, value: ast.expr, scope: Scope) -> str:
    name = code(target).strip("()").rstrip(",")
    words = value_words(value, scope, name)
    called = scope.file.called(value.func) if isinstance(value, ast.Call) else ""
    if called in ("tl.zeros", "tl.full") and name in scope.carried:
        return f"{name}: begins as {words}; a loop carries it on"
    if name in scope.carried and name in set(names_in(value)):
        return f"{name}, carried on: {words}"
    return f"{name}: {words}"


def _annotated(statement: ast.AnnAssign, scope: Scope) -> str:
    name = code(statement.target)
    if statement.value is None:
        return f"{name}: declared as {code(statement.annotation)}"
    if "constexpr" in code(statement.annotation):
        return f"{name}: the compile-time constant {code(statement.value)}"
    return f"{name}: {value_words(statement.value, scope, name)}" + resolved(statement.value, scope)


def _augmented(statement: ast.AugAssign, scope: Scope) -> str:
    name, by = code(statement.target), statement.value
    if scope.role(statement.target).kind in ("pointer", "pointers"):
        root = root_of(statement.target, scope)
        into = f" (addresses in {argument_words(root, scope)})" if root != name else ""
        return f"moves {name}{into} on by {code(by)} elements"
    words = value_words(by, scope) if isinstance(by, ast.Call | ast.BinOp) else code(by)
    match statement.op:
        case ast.Add():
            return f"adds to {name}: {words}"
        case ast.Mult():
            return f"multiplies {name} by: {words}"
        case ast.Sub():
            return f"takes from {name}: {words}"
        case ast.Div():
            return f"divides {name} by: {words}"
    return f"changes {name} in place: {code(statement)}"


def _loop(statement: ast.For, scope: Scope) -> str:
    name = code(statement.target)
    call = statement.iter
    if not isinstance(call, ast.Call):
        return f"loop: {name} goes over {code(call)}"
    called = scope.file.called(call.func)
    given = [code(item) for item in call.args]
    if called not in ("range", "tl.range", "tl.static_range") or not 1 <= len(given) <= 3:
        return f"loop: {name} goes over {code(call)}"
    first, last = ("0", given[0]) if len(given) == 1 else (given[0], given[1])
    step = f" in steps of {given[2]}" if len(given) == 3 else ""
    text = f"loop: {name} goes from {first} up to {last}{step}"
    if called == "tl.static_range":
        return f"{text}, unrolled when compiled"
    stages = keyword(call, "num_stages")
    return f"{text}, pipelined in {code(stages)} stages" if stages is not None else text


def _choice(statement: ast.If, scope: Scope) -> str:
    names = set(names_in(statement.test))
    fixed = names and all(
        name in scope.roles and scope.roles[name].kind == "constant" for name in names
    )
    when = ", decided when compiled" if fixed else ""
    return f"only if {code(statement.test)}{when}"


def _expression(value: ast.expr, scope: Scope) -> str:
    if isinstance(value, ast.Constant) and isinstance(value.value, str):
        return f"docstring: {' '.join(value.value.split())}"
    if not isinstance(value, ast.Call):
        return f"the expression {code(value)}, not kept"
    called = scope.file.called(value.func)
    if called == "tl.store":
        return _store(value, scope) + resolved(value, scope)
    if called in ATOMICS and len(value.args) > 1:
        place = place_words(value.args[0], scope)
        text = f"{ATOMICS[called]} {code(value.args[1])}, atomically, at {place}"
        return f"{text} (programs come in any order)" + resolved(value, scope)
    if called == ".store":
        return f"writes a tile through a descriptor: {code(value)}"
    if called == "tl.debug_barrier":
        return "waits until all threads of the program are here"
    if called in ("tl.static_assert", "tl.device_assert"):
        return f"checks {code(value.args[0]) if value.args else ''}"
    if called in ("tl.static_print", "tl.device_print", "print"):
        return f"prints: {code(value)}"
    return f"calls {code(value)}" + resolved(value, scope)


def _store(call: ast.Call, scope: Scope) -> str:
    address, value = keyword(call, "pointer", 0), keyword(call, "value", 1)
    if address is None or value is None:
        return f"writes: {code(call)}"
    mask = keyword(call, "mask", 2)
    plain = isinstance(value, ast.Name | ast.Constant)
    words = code(value) if plain else value_words(value, scope).removeprefix("computed as ")
    words = f"what is {words}" if words.startswith("read from") else words
    comma = "," if "," in words.rpartition(")")[2] else ""
    text = f"writes {words}{comma} to {place_words(address, scope)}"
    if mask is None or (isinstance(mask, ast.Constant) and mask.value is None):
        return f"{text}, without a mask"
    return f"{text} where {code(mask, 60)}"


def kernel_heading(file: TritonFile, kernel: Kernel) -> str:
    """What a kernel is, from where it is launched, over which grid."""
    told = first_line(kernel.node)
    about = f": {told}" if told else ""
    if kernel.helper:
        return f"{kernel.name}: a helper that kernels call{about}"
    if not kernel.launches:
        return f"{kernel.name}: a kernel that nothing in this file launches{about}"
    lines = ", ".join(str(item.line) for item in kernel.launches)
    grid = " or ".join(dict.fromkeys(" x ".join(item.grid) for item in kernel.launches))
    where = "line" if len(kernel.launches) == 1 else "lines"
    programs = "program" if grid == "1" else "programs"
    return f"{kernel.name}: a kernel, launched in {where} {lines} with {grid} {programs}{about}"


def axis_notes(file: TritonFile, kernel: Kernel) -> list[str]:
    """What each grid axis counts, from how the programs' numbers are used."""
    scope = Scope.of(file, kernel)
    found: dict[int, str] = {}
    for node in ast.walk(kernel.node):
        if isinstance(node, ast.Call) and file.called(node.func) == "tl.program_id":
            axis = scope.role(node).axis
            if axis is not None and axis not in found:
                found[axis] = _axis_use(node, kernel)
    return [f"grid axis {axis}: {found[axis]}" for axis in sorted(found)]


def _axis_use(call: ast.Call, kernel: Kernel) -> str:
    """`call` is a program_id: what becomes of it?"""
    holder = next(
        (
            node
            for node in ast.walk(kernel.node)
            if isinstance(node, ast.Assign) and any(item is call for item in ast.walk(node.value))
        ),
        None,
    )
    if holder is None:
        return f"used in {code(call)}"
    name = code(holder.targets[0])
    block = _block_of(holder.value, lambda node: node is call)
    if block:
        return f"one program a tile of {block} ({name})"
    uses = [node for node in ast.walk(kernel.node) if isinstance(node, ast.BinOp)]
    for use in uses:
        block = _block_of(use, lambda node: isinstance(node, ast.Name) and node.id == name)
        if block and block in kernel.constants:
            return f"one program a tile of {block} ({name})"
    split = any(
        isinstance(use.op, ast.FloorDiv | ast.Mod) and name in set(names_in(use.left))
        for use in uses
    )
    if split:
        return (
            f"one program for each value of {name}, which is taken apart into several coordinates"
        )
    return f"one program for each {name}"


def _block_of(node: ast.AST, wanted: object) -> str:
    """The other factor of a product with the wanted node in it, "" where there is none."""
    assert callable(wanted)
    for item in ast.walk(node):
        if isinstance(item, ast.BinOp) and isinstance(item.op, ast.Mult):
            for side, other in ((item.left, item.right), (item.right, item.left)):
                if any(wanted(part) for part in ast.walk(side)) and isinstance(other, ast.Name):
                    return other.id
    return ""


def launch_constants(kernel: Kernel) -> str:
    """`BLOCK = 512, num_warps = 4`: tile sizes and constants, per launch."""
    every: dict[str, None] = {}
    for launch in kernel.launches:
        fixed = [
            f"{name} = {value}"
            for name, value in (*launch.arguments.items(), *launch.options.items())
            if name in kernel.constants or name in launch.options
        ]
        every[", ".join(fixed)] = None
    tuned = [f"{name} = {' or '.join(values)} (tuned)" for name, values in kernel.tuned.items()]
    return "; or ".join([*(item for item in every if item), *tuned])
