"""What the names of a package's modules mean, and the name of each meaning in one joint text."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from agentkernel.compiler.drop_in.source_slice import bindings_of
from agentkernel.storage.source_text import parse_source
from agentkernel.tools.problem.packages import absolute_name

Import = ast.Import | ast.ImportFrom


class Defined(NamedTuple):
    """A name that statements of a module of the package bind."""

    module: str
    name: str


class Foreign(NamedTuple):
    """A name that is imported from elsewhere, or a module itself (name "")."""

    module: str
    name: str


class Whole(NamedTuple):
    """A module of the package."""

    module: str


Meaning = Defined | Foreign | Whole


@dataclass(frozen=True)
class Module:
    """A file of the package: its dotted name and that of the package it imports from."""

    name: str
    package: str
    text: str
    tree: ast.Module
    bindings: Mapping[str, list[ast.stmt]]


def read_module(name: str, is_package: bool, text: str) -> Module:
    """The module `name` of this source."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    tree = parse_source(text)
    package = name if is_package else name.rpartition(".")[0]
    return Module(name, package, text, tree, bindings_of(tree.body))


class PackageNames:
    """Meanings of names, and a name for each meaning that no other one has.

    A meaning keeps its own name, unless another has it already, Python's builtins have it, or it is
    among `hidden`: those that a local variable would hide where they are used under another name.
    """

    def __init__(
        self,
        modules: Mapping[str, Module],
        root: str,
        class_name: str,
        hidden: frozenset[Meaning] = frozenset(),
    ) -> None:
        self.modules, self.hidden = modules, hidden
        self._names: dict[Meaning, str] = {}
        self._taken = set(dir(builtins))
        self._known = {name for item in modules.values() for name in _identifiers(item.tree)}
        for meaning, name in self._first(root, class_name):
            self.name_of(meaning, name)

    def _first(self, root: str, class_name: str) -> Iterator[tuple[Defined | Foreign, str]]:
        """The class, imports that have no other name, then the rest of the problem's own file."""
        found = self.meaning(root, class_name)
        if isinstance(found, Defined):
            yield found, class_name
        for module in self.modules.values():
            for item in module.tree.body:
                for alias in item.names if isinstance(item, ast.Import) else ():
                    top = alias.name.split(".")[0]
                    if not alias.asname and top not in self.modules:
                        yield Foreign(top, ""), top
        for name in self.modules[root].bindings:
            found = self.meaning(root, name)
            if isinstance(found, Defined) and found == (root, name):
                yield found, name

    def meaning(self, module: str, name: str, seen: frozenset[str] = frozenset()) -> Meaning | None:
        """What `name` is at the top of `module`; None where nothing there binds it."""
        own = self.modules[module]
        items = own.bindings.get(name, [])
        inner = seen | {f"{module}:{name}"}
        known = {self.imported(module, item, name, inner) for item in items}
        if len(known) == 1 and (only := next(iter(known))) is not None:
            return only
        if items:
            return Defined(module, name)
        if f"{module}.{name}" in self.modules:
            return Whole(f"{module}.{name}")
        for base in self._star_imports(own):
            if f"{base}:{name}" not in seen and name in self._public(base):
                return self.meaning(base, name, inner)
        return None

    def imported(
        self, module: str, item: ast.stmt, name: str, seen: frozenset[str] = frozenset()
    ) -> Meaning | None:
        """What the import `item` of `module` binds to `name`; None where it does not."""
        for alias in item.names if isinstance(item, Import) else ():
            if name != (alias.asname or alias.name.split(".")[0]):
                continue
            if isinstance(item, ast.Import):
                place = alias.name if alias.asname else name
                return Whole(place) if place in self.modules else Foreign(place, "")
            assert isinstance(item, ast.ImportFrom)
            base = absolute_name(item, self.modules[module].package)
            found = None
            if base in self.modules and f"{base}:{alias.name}" not in seen:
                found = self.meaning(base, alias.name, seen)
            elif f"{base}.{alias.name}" in self.modules:
                found = Whole(f"{base}.{alias.name}")
            return found or Foreign(base, alias.name)
        return None

    def _star_imports(self, own: Module) -> Iterator[str]:
        for item in own.tree.body:
            if isinstance(item, ast.ImportFrom) and item.names[0].name == "*":
                base = absolute_name(item, own.package)
                if base in self.modules:
                    yield base

    def _public(self, module: str) -> frozenset[str]:
        """What a star import of `module` may bind."""
        own = self.modules[module]
        for item in own.bindings.get("__all__", ()):
            value = item.value if isinstance(item, ast.Assign) else None
            if isinstance(value, ast.List | ast.Tuple):
                words = [node.value for node in value.elts if isinstance(node, ast.Constant)]
                return frozenset(word for word in words if isinstance(word, str))
        names = {name for name in own.bindings if not name.startswith("_")}
        for base in self._star_imports(own):
            names |= self.modules[base].bindings.keys()
        return frozenset(names)

    def name_of(self, meaning: Defined | Foreign, wanted: str) -> str:
        """The meaning's name in the text: `wanted` at the first call, where that is free."""
        if meaning not in self._names:
            name = wanted
            if meaning in self.hidden or wanted in self._taken:
                name = f"{meaning.module.split('.')[-1]}_{wanted}"
                while name in self._taken or name in self._known:
                    name += "_"
            self._names[meaning] = name
            self._taken.add(name)
        return self._names[meaning]

    def definitions(self) -> dict[tuple[str, str], str]:
        """The text's names by (module, name there), those of re-exports included."""
        found: dict[tuple[str, str], str] = {}
        for module in self.modules.values():
            for name in module.bindings:
                meaning = self.meaning(module.name, name)
                if isinstance(meaning, Defined) and meaning in self._names:
                    found[module.name, name] = self._names[meaning]
        return found


def _identifiers(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.alias):
            yield (node.asname or node.name).split(".")[0]


__all__ = [
    "Defined",
    "Foreign",
    "Import",
    "Meaning",
    "Module",
    "PackageNames",
    "Whole",
    "read_module",
]
