"""A statement of one module rewritten for a text that holds several."""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from agentkernel.compiler.drop_in.package_names import (
    Defined,
    Foreign,
    Import,
    Meaning,
    PackageNames,
    Whole,
)
from agentkernel.tools.problem.packages import absolute_name

Function = ast.FunctionDef | ast.AsyncFunctionDef
Comprehension = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp


@dataclass(frozen=True)
class _Scope:
    """A function, class or comprehension: what it binds, and what its imports bring in."""

    bound: frozenset[str]
    declared: frozenset[str] = frozenset()
    imports: dict[str, Meaning] = field(default_factory=dict)
    is_class: bool = False


class Renamer(ast.NodeTransformer):
    """Gives names of `module` those of the joint text, where Python looks them up at its top.

    Imports inside the package go. `captured` are meanings whose name a local variable would hide,
    and `objects` modules that are used as values: both are filled on the way.
    """

    def __init__(self, module: str, names: PackageNames) -> None:
        self.module, self.names = module, names
        self.captured: set[Meaning] = set()
        self.objects: dict[str, str] = {}
        self._scopes: list[_Scope] = []
        self._mangled: list[str] = []

    def renamed(self, item: ast.stmt) -> list[ast.stmt]:
        """The statements for `item`: itself where nothing changes, none for an import that goes."""
        made = self.visit(copy.deepcopy(item))
        found: list[ast.stmt] = made if isinstance(made, list) else [made] if made else []
        if len(found) == 1 and ast.dump(found[0]) == ast.dump(item):
            return [item]
        return [ast.fix_missing_locations(statement) for statement in found]

    def visit_Name(self, node: ast.Name) -> ast.AST:
        meaning = self._meaning(node.id)
        return node if meaning is None else self._named(node, meaning, node.id)

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        found = self._member(node)
        stores = not isinstance(node.ctx, ast.Load) and self._in_function()
        if isinstance(found, Defined | Foreign) and not stores:
            return self._named(node, found, node.attr)
        if self._mangled and node.attr.startswith("__") and not node.attr.endswith("__"):
            node.attr = f"_{self._mangled[-1].lstrip('_')}{node.attr}"
        self.generic_visit(node)
        return node

    def _member(self, node: ast.expr) -> Meaning | None:
        """What `norms.RMSNorm` is, where `norms` is a module of the package."""
        if isinstance(node, ast.Name):
            return self._meaning(node.id)
        if not isinstance(node, ast.Attribute):
            return None
        owner = self._member(node.value)
        return self.names.meaning(owner.module, node.attr) if isinstance(owner, Whole) else None

    def _named(self, node: ast.Name | ast.Attribute, meaning: Meaning, wanted: str) -> ast.expr:
        if isinstance(meaning, Whole):
            meaning = Foreign(meaning.module, "")
            self.objects[meaning.module] = self.names.name_of(meaning, wanted)
        name = self.names.name_of(meaning, wanted)
        if isinstance(node, ast.Name) and node.id == name:
            return node
        if any(name in scope.bound for scope in self._scopes):
            self.captured.add(meaning)
        return ast.copy_location(ast.Name(id=name, ctx=node.ctx), node)

    def _meaning(self, name: str) -> Meaning | None:
        """What `name` means here; None for local variables and builtins."""
        for depth, scope in enumerate(reversed(self._scopes)):
            if scope.is_class and depth:
                continue
            if name in scope.declared:
                break
            if name in scope.imports:
                return scope.imports[name]
            if name in scope.bound:
                return None
        return self.names.meaning(self.module, name)

    def _top_name(self, name: str) -> str:
        """The text's name of what a statement here binds as `name`."""
        meaning = self._meaning(name)
        return self.names.name_of(meaning, name) if isinstance(meaning, Defined) else name

    def _in_function(self) -> bool:
        return any(not scope.is_class for scope in self._scopes)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        return self._function(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        return self._function(node)

    def _function(self, node: Function) -> ast.AST:
        node.decorator_list = self._all(node.decorator_list)
        self._arguments(node.args)
        node.returns = self.visit(node.returns) if node.returns else None
        private = node.name.startswith("__") and not node.name.endswith("__")
        if self._mangled and private and self._scopes and self._scopes[-1].is_class:
            node.name = f"_{self._mangled[-1].lstrip('_')}{node.name}"
        node.name = self._top_name(node.name)
        self._scopes.append(self._scope(node.body, node.args))
        node.body = self._all(node.body) or [ast.Pass()]
        self._scopes.pop()
        return node

    def visit_Lambda(self, node: ast.Lambda) -> ast.AST:
        self._arguments(node.args)
        self._scopes.append(self._scope([], node.args))
        node.body = self.visit(node.body)
        self._scopes.pop()
        return node

    def _arguments(self, node: ast.arguments) -> None:
        """Defaults and annotations, which are looked up outside the function."""
        self.generic_visit(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        for field_name in ("decorator_list", "bases", "keywords"):
            setattr(node, field_name, self._all(getattr(node, field_name)))
        old, node.name = node.name, self._top_name(node.name)
        if old != node.name:
            self._mangled.append(old)
        bound = frozenset(_bound(node.body))
        self._scopes.append(_Scope(bound, _declared(node.body), is_class=True))
        node.body = self._all(node.body) or [ast.Pass()]
        self._scopes.pop()
        if old != node.name:
            self._mangled.pop()
        return node

    def visit_ListComp(self, node: ast.ListComp) -> ast.AST:
        return self._comprehension(node)

    def visit_SetComp(self, node: ast.SetComp) -> ast.AST:
        return self._comprehension(node)

    def visit_DictComp(self, node: ast.DictComp) -> ast.AST:
        return self._comprehension(node)

    def visit_GeneratorExp(self, node: ast.GeneratorExp) -> ast.AST:
        return self._comprehension(node)

    def _comprehension(self, node: Comprehension) -> ast.AST:
        first = node.generators[0]
        outer = self.visit(first.iter)  # This one is evaluated outside.
        first.iter = ast.Constant(value=None)
        targets = [name for item in node.generators for name in _stored(item.target)]
        self._scopes.append(_Scope(frozenset(targets)))
        self.generic_visit(node)
        self._scopes.pop()
        first.iter = outer
        return node

    def visit_Global(self, node: ast.Global) -> ast.AST:
        node.names = [self._top_name(name) for name in node.names]
        return node

    def visit_If(self, node: ast.If) -> ast.AST:
        return self._compound(node)

    def visit_With(self, node: ast.With) -> ast.AST:
        return self._compound(node)

    def visit_Try(self, node: ast.Try) -> ast.AST:
        return self._compound(node)

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> ast.AST:
        return self._compound(node)

    def visit_For(self, node: ast.For) -> ast.AST:
        return self._compound(node)

    def visit_While(self, node: ast.While) -> ast.AST:
        return self._compound(node)

    def _compound(
        self, node: ast.If | ast.With | ast.Try | ast.ExceptHandler | ast.For | ast.While
    ) -> ast.AST:
        self.generic_visit(node)
        node.body = node.body or [ast.Pass()]
        return node

    def visit_Import(self, node: ast.Import) -> list[ast.stmt]:
        return [made for item in node.names for made in self._import(node, item)]

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.stmt | list[ast.stmt]:
        base = absolute_name(node, self.names.modules[self.module].package)
        if base == "__future__":
            return []
        if node.names[0].name == "*":
            return [] if base in self.names.modules else node
        made = [made for item in node.names for made in self._import(node, item)]
        same = isinstance(made, list) and len(made) == len(node.names) and not node.level
        unchanged = same and all(
            isinstance(new, ast.ImportFrom) and ast.dump(new.names[0]) == ast.dump(old)
            for new, old in zip(made, node.names, strict=True)
        )
        return node if unchanged else made

    def _import(self, node: Import, item: ast.alias) -> Iterator[ast.stmt]:
        """What stands for one name of an import."""
        local = (item.asname or item.name).split(".")[0]
        if self._scopes:
            if not self._scopes[-1].imports.get(local):
                yield self._kept(node, item, local)
            return
        meaning = self.names.meaning(self.module, local)
        target = self.names.imported(self.module, node, local)
        if meaning == Defined(self.module, local):  # One of several statements that bind it.
            name = self.names.name_of(meaning, local)
            if not isinstance(target, Foreign):
                assert target is not None
                value = self._named(ast.Name(id="", ctx=ast.Load()), target, item.name)
                if not (isinstance(value, ast.Name) and value.id == name):
                    yield ast.Assign(targets=[ast.Name(id=name, ctx=ast.Store())], value=value)
                return
            yield from self._from_elsewhere(node, item, local, name)
        elif isinstance(meaning, Foreign):
            name = self.names.name_of(meaning, local)
            yield from self._from_elsewhere(node, item, local, name)

    def _from_elsewhere(
        self, node: Import, item: ast.alias, local: str, name: str
    ) -> Iterator[ast.stmt]:
        if name == local:
            yield self._kept(node, item, local)
        elif isinstance(node, ast.Import) and not item.asname and "." in item.name:
            yield ast.Import(names=[item])
            yield ast.Import(names=[ast.alias(name=local, asname=name)])
        else:
            yield self._kept(node, ast.alias(name=item.name, asname=name), name)

    def _kept(self, node: Import, item: ast.alias, local: str) -> ast.stmt:
        """The import of one name, by the full name of its module."""
        if isinstance(node, ast.Import):
            return ast.Import(names=[item])
        base = absolute_name(node, self.names.modules[self.module].package)
        asname = None if local == item.name else local
        return ast.ImportFrom(
            module=base, names=[ast.alias(name=item.name, asname=asname)], level=0
        )

    def _scope(self, body: list[ast.stmt], given: ast.arguments) -> _Scope:
        arguments = [*given.posonlyargs, *given.args, *given.kwonlyargs]
        arguments += [item for item in (given.vararg, given.kwarg) if item]
        names = [*(item.arg for item in arguments), *_bound(body)]
        imports: dict[str, Meaning] = {}
        for item in _flat(body):
            for alias in item.names if isinstance(item, Import) else ():
                local = (alias.asname or alias.name).split(".")[0]
                assert isinstance(item, ast.stmt)
                meaning = self.names.imported(self.module, item, local)
                if names.count(local) == 1 and isinstance(meaning, Defined | Whole):
                    imports[local] = meaning
        bound = frozenset(name for name in names if name not in imports)
        return _Scope(bound, _declared(body), imports)

    def _all(self, nodes: Iterable[ast.AST]) -> list:  # type: ignore[type-arg]
        found = []
        for node in nodes:
            made = self.visit(node)
            found += made if isinstance(made, list) else [made] if made is not None else []
        return found


def _bound(body: Iterable[ast.stmt]) -> Iterator[str]:
    """Names that statements bind in their own scope, one for each place."""
    for node in _flat(body):
        if isinstance(node, Function | ast.ClassDef):
            yield node.name
        elif isinstance(node, Import):
            yield from ((item.asname or item.name).split(".")[0] for item in node.names)
        elif isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            yield node.id
        elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name:
            yield node.name
        elif isinstance(node, ast.MatchMapping) and node.rest:
            yield node.rest
        elif isinstance(node, Comprehension):
            walrus = [item for item in ast.walk(node) if isinstance(item, ast.NamedExpr)]
            yield from (item.target.id for item in walrus)


def _declared(body: Iterable[ast.stmt]) -> frozenset[str]:
    """Names that statements declare global."""
    found = [node.names for node in _flat(body) if isinstance(node, ast.Global)]
    return frozenset(name for names in found for name in names)


def _flat(body: Iterable[ast.stmt]) -> Iterator[ast.AST]:
    """The nodes of statements, functions, classes and comprehensions inside not opened."""
    pending: list[ast.AST] = list(body)
    while pending:
        node = pending.pop(0)
        yield node
        if not isinstance(node, Function | ast.ClassDef | ast.Lambda | Comprehension):
            pending += ast.iter_child_nodes(node)


def _stored(target: ast.expr) -> Iterator[str]:
    return (node.id for node in ast.walk(target) if isinstance(node, ast.Name))


__all__ = ["Renamer"]
