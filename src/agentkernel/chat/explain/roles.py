"""Roles of the names in a kernel (index, mask, pointer, value) and its notable statements."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from agentkernel.chat.explain.source import Kernel, TritonFile, dotted, keyword

RoleKind = Literal[
    "pointer", "argument", "constant", "program", "index", "start", "mask", "pointers", "value"
]
"""`start`: a loop's variable; `pointers`: addresses made from a pointer argument."""
UNITS = {
    "row": "row", "rows": "row", "offs_m": "row", "offs_am": "row", "rm": "row",
    "col": "column", "cols": "column", "column": "column", "columns": "column",
    "offs_n": "column", "offs_bn": "column", "rn": "column",
    "k": "inner-dimension", "ks": "inner-dimension", "offs_k": "inner-dimension",
    "key": "key", "keys": "key", "token": "token", "tokens": "token",
    "channel": "channel", "channels": "channel", "lane": "lane", "lanes": "lane",
}  # fmt: skip
ORDERED = ("pointers", "value", "mask", "index", "start", "program")
"""What a mixture of names is: the first of these that is in it."""


@dataclass(frozen=True)
class Role:
    """`root` is the pointer argument that addresses lead back to; `axis` a program's grid axis."""

    kind: RoleKind
    root: str = ""
    axis: int | None = None


@dataclass
class Scope:
    """The names of one kernel as the reader goes down its lines."""

    file: TritonFile
    kernel: Kernel
    roles: dict[str, Role] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)
    """Loaded value -> the pointer argument that it was read from."""
    carried: frozenset[str] = frozenset()
    """Names that a loop changes: what they are set to before it is where they begin."""

    @classmethod
    def of(cls, file: TritonFile, kernel: Kernel) -> Scope:
        """The parameters alone."""
        roles: dict[str, Role] = {}
        accessed = _addressed(file, kernel)
        for name in kernel.parameters:
            if name in kernel.constants:
                roles[name] = Role("constant")
            elif name in accessed or name.endswith("_ptr") or name.startswith("ptr_"):
                roles[name] = Role("pointer", root=name)
            else:
                roles[name] = Role("value" if kernel.helper else "argument")
        return cls(file, kernel, roles, carried=frozenset(_carried(kernel)))

    def role(self, node: ast.expr) -> Role:
        """The role of an expression, from the names in it."""
        if isinstance(node, ast.Name):
            return self.roles.get(node.id, Role("value"))
        if isinstance(node, ast.Call):
            return self._call_role(node)
        if isinstance(node, ast.Compare):
            return Role("mask")
        found = [self.role(part) for part in _inner(node)]
        roots = [role.root for role in found if role.kind in ("pointer", "pointers")]
        if roots:
            return Role("pointers", root=roots[0])
        for kind in ORDERED:
            for role in found:
                if role.kind == kind:
                    return Role(kind, axis=role.axis)
        return found[0] if found else Role("argument")

    def _call_role(self, node: ast.Call) -> Role:
        name = self.file.called(node.func)
        match name:
            case "tl.program_id":
                return Role("program", axis=axis_of(node))
            case "tl.arange":
                return Role("index")
            case "tl.make_block_ptr" | "tl.make_tensor_descriptor" | "tl.advance":
                return Role("pointers", root=root_of(node, self))
            case "tl.load" | "tl.zeros" | "tl.full" | "tl.dot" | ".load" | "tl.sum" | "tl.reduce":
                return Role("value")
            case ".to" if isinstance(node.func, ast.Attribute):
                return self.role(node.func.value)
            case "tl.cdiv":
                return Role("argument")
        found = [self.role(item) for item in node.args]
        for kind in ORDERED:
            for role in found:
                if role.kind == kind:
                    return role
        return Role(
            "argument" if all(r.kind in ("argument", "constant") for r in found) else "value"
        )


def _inner(node: ast.expr) -> Iterator[ast.expr]:
    for part in ast.iter_child_nodes(node):
        if isinstance(part, ast.expr) and not isinstance(part, ast.Constant):
            yield part


def axis_of(node: ast.Call) -> int | None:
    """The grid axis of a `tl.program_id` or `tl.num_programs`, None where it is no plain number."""
    given = [*node.args, *(item.value for item in node.keywords if item.arg == "axis")]
    if given and isinstance(given[0], ast.Constant) and isinstance(given[0].value, int):
        return given[0].value
    return None if given else 0


def root_of(node: ast.AST, scope: Scope) -> str:
    """The pointer argument that an address leads back to, "" where that is not seen."""
    for name in names_in(node):
        role = scope.roles.get(name)
        if role is not None and role.root:
            return role.root
    return ""


def names_in(node: ast.AST) -> Iterator[str]:
    """Names in the order of the text."""
    found = [item for item in ast.walk(node) if isinstance(item, ast.Name)]
    yield from (item.id for item in sorted(found, key=lambda item: (item.lineno, item.col_offset)))


def summands(node: ast.expr) -> list[ast.expr]:
    """The summands of a sum, conversions and added axes taken off."""
    node = without_conversions(node)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return [*summands(node.left), *summands(node.right)]
    return [node]


def without_conversions(node: ast.expr) -> ast.expr:
    """Without `[:, None]` and `.to(...)`."""
    while True:
        if isinstance(node, ast.Subscript):
            node = node.value
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "to"
        ):
            node = node.func.value
        else:
            return node


def unit(name: str) -> str:
    """What indices of this name count: "row", "column", "element" where the name does not say."""
    return UNITS.get(name.lower().rstrip("0123456789_"), UNITS.get(name.lower(), "element"))


def origins(node: ast.expr, scope: Scope, most: int = 4) -> str:
    """`, with x from x_ptr, weight from weight_ptr`: where a formula's values were read."""
    names = dict.fromkeys(name for name in names_in(node) if name in scope.sources)
    told = [f"{name} from {scope.sources[name]}" for name in names]
    return f", with {', '.join(told[:most])}" if told else ""


def argument_words(name: str, scope: Scope) -> str:
    """`x_ptr (self.weight at the launch)`; the bare name where no launch says more."""
    passed = scope.kernel.launched_with(name)
    return f"{name} ({passed} at the launch)" if passed and passed != name else name


def resolved(node: ast.AST, scope: Scope, most: int = 3) -> str:
    """`; BLOCK is 512, columns is x.shape[-1] at the launch`: what a statement's names hold."""
    parts: list[str] = []
    for name in dict.fromkeys(names_in(node)):
        role = scope.roles.get(name)
        if role is None or role.kind not in ("argument", "constant"):
            continue
        passed = scope.kernel.launched_with(name) or ""
        if passed and passed != name:
            parts.append(f"{name} is {passed}")
    return f"; {', '.join(parts[:most])} at the launch" if parts else ""


def _addressed(file: TritonFile, kernel: Kernel) -> set[str]:
    """Parameters that loads and stores use as the first summand of an address."""
    found: set[str] = set()
    for node in ast.walk(kernel.node):
        if isinstance(node, ast.Call) and node.args:
            name = file.called(node.func)
            if name in ("tl.load", "tl.store") or name.startswith("tl.atomic"):
                first = next(names_in(node.args[0]), "")
                found |= {first} & set(kernel.parameters)
    return found


def _carried(kernel: Kernel) -> Iterator[str]:
    for loop in ast.walk(kernel.node):
        if isinstance(loop, ast.For | ast.While):
            for node in ast.walk(loop):
                if isinstance(node, ast.AugAssign):
                    yield from names_in(node.target)
                elif isinstance(node, ast.Assign):
                    yield from (name for target in node.targets for name in names_in(target))


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
