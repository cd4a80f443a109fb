"""A user's file and the modules of its own package that it imports, as one source text.

The modules stand in the order in which Python executes them, so that cycles and re-exports mean
what they did. A name that two modules give to different things gets that of its module in front.
What is no source of the package (a C extension, a module used as a value) stays an import of the
package by its full name: a slice that needs it does not stand alone, and says so.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from agentkernel.compiler.drop_in.package_names import (
    Import,
    Meaning,
    Module,
    PackageNames,
    read_module,
)
from agentkernel.compiler.drop_in.renaming import Renamer
from agentkernel.compiler.drop_in.source_slice import is_future, is_main_guard
from agentkernel.domain.problem import Package, Problem
from agentkernel.tools.problem.packages import absolute_name, package_root, source_bytes


@dataclass(frozen=True)
class OwnCode:
    """The text; the names in it by (module, name there); the modules by the path of each file.

    `root` is the module of the problem's own file, "" where that is in no package.
    """

    source: str
    root: str = ""
    names: Mapping[tuple[str, str], str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)

    def name_of(self, module: str, qualified: str) -> str:
        """A qualified name of `module` as the text has it: "norms_Norm.__init__"."""
        head, dot, rest = qualified.partition(".")
        return self.names.get((module, head), head) + dot + rest


def own_code(problem: Problem) -> OwnCode:
    """The problem's source with the modules of its own package; the source alone where it imports
    none, or where the package is an installed one.

    Raises ProblemError where the package is gone.
    """
    package = problem.package
    if package is None or not package.files:
        return OwnCode(problem.source)
    path = Path(problem.path)
    inside = path.name == "__init__.py"
    above = [package.name] if package.name else []
    root = ".".join(above if inside and above else [*above, path.stem])
    modules, files = _read(package)
    modules[root] = read_module(root, inside, problem.source)
    for name in list(modules):
        for outer in _packages(name)[:-1]:  # A folder without __init__.py is one too.
            modules.setdefault(outer, read_module(outer, True, ""))
    files[str(path.absolute())] = root
    return replace(joint_text(modules, root, problem.class_name), files=files)


def joint_text(modules: Mapping[str, Module], root: str, class_name: str) -> OwnCode:
    """`root` and what it imports of `modules`; the class keeps its name where `root` defines it."""
    hidden: frozenset[Meaning] = frozenset()
    while True:
        names = PackageNames(modules, root, class_name, hidden)
        text = _JointText(names)
        source = text.of(root)
        if text.captured <= hidden:
            return OwnCode(source, root, names.definitions())
        hidden |= text.captured


def _read(package: Package) -> tuple[dict[str, Module], dict[str, str]]:
    """The modules that the problem was read with, by name, and their names by file."""
    modules: dict[str, Module] = {}
    files: dict[str, str] = {}
    folder = package_root(package)
    for file in package.files:
        data = source_bytes(folder / file.path)
        if hashlib.sha256(data).hexdigest() != file.sha256:
            continue  # Its imports stay imports then, which no drop-in may have.
        *parts, last = Path(file.path).with_suffix("").parts
        name = ".".join(parts if last == "__init__" else [*parts, last])
        modules[name] = read_module(name, last == "__init__", data.decode("utf-8-sig"))
        files[str((folder / file.path).absolute())] = name
    return modules, files


class _JointText:
    """Writes modules one behind the other, each once.

    What only functions import comes as early as it can, since a function may be called while its
    module is executed, and never into the middle of a module that it imports itself.
    """

    def __init__(self, names: PackageNames) -> None:
        self.names, self.modules = names, names.modules
        self.captured: set[Meaning] = set()
        self._objects: dict[str, str] = {}
        self._started: set[str] = set()
        self._open: list[str] = []
        self._later: list[str] = []
        self._pieces: list[str] = []

    def of(self, root: str) -> str:
        """The module `root` with all that it imports."""
        self._module(root)
        objects = [f"import {module} as {name}" for module, name in self._objects.items()]
        items = [item for name in self._started for item in self.modules[name].tree.body]
        future = ["from __future__ import annotations"] if any(map(is_future, items)) else []
        return "\n".join([*future, *objects, *self._pieces, ""])

    def _module(self, name: str) -> None:
        for part in _packages(name):
            if part in self.modules and part not in self._started:
                self._started.add(part)
                self._open.append(part)
                self._statements(self.modules[part])
                self._open.pop()
                self._write_later()

    def _write_later(self) -> None:
        for name in [item for item in self._later if not self._reached(item) & {*self._open}]:
            self._later.remove(name)
            self._module(name)

    def _reached(self, name: str) -> set[str]:
        """The modules that importing `name` imports, itself included."""
        found, waiting = set(), [name]
        while waiting:
            place = waiting.pop()
            if place not in found:
                found.add(place)
                own = self.modules[place]
                pairs = [pair for item in own.tree.body for pair in self._imported(own, item)]
                waiting += [target for target, late in pairs if not late]
        return found

    def _statements(self, module: Module) -> None:
        lines, end = module.text.split("\n"), 0
        for item in module.tree.body:
            marks = getattr(item, "decorator_list", [])
            first = min([item.lineno, *(mark.lineno for mark in marks)])
            last = item.end_lineno or item.lineno
            above = lines[end : first - 1]
            shared = first <= end or any(
                other is not item and other.lineno == last for other in module.tree.body
            )
            end = last
            if is_main_guard(item) or _is_text(item):
                continue
            for target, late in list(self._imported(module, item)):
                if late:
                    self._later.append(target)
                else:
                    self._module(target)
            self._write_later()
            renamer = Renamer(module.name, self.names)
            made = renamer.renamed(item)
            self.captured |= renamer.captured
            self._objects |= renamer.objects
            if made == [item] and not shared:
                self._pieces += [*above, *lines[first - 1 : last]]
            elif made:
                self._pieces += [*above, *map(ast.unparse, made)]

    def _imported(self, module: Module, item: ast.stmt) -> Iterator[tuple[str, bool]]:
        """The modules that a statement imports, and whether it does so in a function alone."""
        pending: list[tuple[ast.AST, bool]] = [(item, False)]
        while pending:
            node, late = pending.pop(0)
            if isinstance(node, Import):
                for name in _named(node, module.package):
                    if name in self.modules:
                        yield name, late
            late |= isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            late |= isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
            pending += [(child, late) for child in ast.iter_child_nodes(node)]


def _named(node: Import, package: str) -> Iterator[str]:
    """Full names that an import may have modules at."""
    if isinstance(node, ast.Import):
        yield from (item.name for item in node.names)
        return
    base = absolute_name(node, package)
    yield base
    yield from (f"{base}.{item.name}" for item in node.names)


def _packages(name: str) -> list[str]:
    """ "a.b.c" -> "a", "a.b", "a.b.c"."""
    parts = name.split(".")
    return [".".join(parts[: count + 1]) for count in range(len(parts))]


def _is_text(item: ast.stmt) -> bool:
    return isinstance(item, ast.Expr) and isinstance(item.value, ast.Constant)


__all__ = ["OwnCode", "joint_text", "own_code"]
