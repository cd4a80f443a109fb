"""Which ops does a module's forward call, in order, with the parts of its file read in place?"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence

from agentkernel.knowledge.code_expressions import Expressions, Scope
from agentkernel.knowledge.code_library import OpRecord
from agentkernel.knowledge.code_program import Program
from agentkernel.knowledge.code_values import (
    HOST,
    TENSOR,
    Arguments,
    Function,
    Instance,
    Value,
    ValueList,
)

MOST_OPS = 256
MOST_DEPTH = 24


class FunctionReturned(Exception):
    """The function that is read came to a return."""

    def __init__(self, value: Value) -> None:
        super().__init__()
        self.value = value


class Reader(Expressions):
    """Walks a module's constructor and forward; its `record` holds the ops that these call."""

    def __init__(self, program: Program, rank: int | None) -> None:
        super().__init__(program, OpRecord(rank, MOST_OPS))
        self._depth = 0

    def read(self, name: str, given: Arguments) -> None:
        """The forward of the class `name`, made with `given`. Raises Full."""
        instance = self.build(name, given)
        self.record.emits = True
        self._method_of(instance, "forward", Arguments([], {}))

    def build(self, name: str, given: Arguments) -> Instance:
        """An instance of a class of the file, its constructor read."""
        instance = Instance(name)
        emits, self.record.emits = self.record.emits, False
        try:
            self._method_of(instance, "__init__", given)
        finally:
            self.record.emits = emits
        return instance

    def _method_of(self, instance: Instance, name: str, given: Arguments) -> None:
        node = self.program.find_method(instance.name, name)
        if node is not None:
            self.call(Function(node, instance), given)

    def call(self, function: Function, given: Arguments) -> Value:
        """What a function of the file returns; an unnamed argument of forward is a tensor."""
        if self._depth >= MOST_DEPTH:
            return TENSOR
        self._depth += 1
        try:
            scope = self._bound(function, given)
            if isinstance(function.node, ast.Lambda):
                return self.value(function.node.body, scope)
            self._body(function.node.body, scope)
        except FunctionReturned as answer:
            return answer.value
        finally:
            self._depth -= 1
        return HOST

    def _bound(self, function: Function, given: Arguments) -> Scope:
        """The parameters with their values: given, by default, or a tensor."""
        spec = function.node.args
        names = [item.arg for item in [*spec.posonlyargs, *spec.args]]
        scope: Scope = {}
        if function.owner is not None and names and not _is_static(function.node):
            scope[names.pop(0)] = function.owner
        keywords = [item.arg for item in spec.kwonlyargs]
        defaults = dict(zip(reversed(names), reversed(spec.defaults), strict=False))
        pairs = zip(keywords, spec.kw_defaults, strict=True)
        defaults |= {name: value for name, value in pairs if value is not None}
        missing: Value = TENSOR if self.record.emits else HOST
        for name in [*names, *keywords]:
            default = defaults.get(name)
            scope[name] = missing if default is None else self.value(default, {})
        scope |= dict(zip(names, given.placed, strict=False))
        if spec.vararg:
            rest = given.placed[len(names) :]
            scope[spec.vararg.arg] = ValueList(rest) if rest or not self.record.emits else TENSOR
        known = {*names, *keywords}
        return scope | {name: value for name, value in given.named.items() if name in known}

    def _body(self, statements: Iterable[ast.stmt], scope: Scope) -> None:
        for statement in statements:
            self._statement(statement, scope)

    def _statement(self, node: ast.stmt, scope: Scope) -> None:
        match node:
            case ast.Return():
                raise FunctionReturned(
                    HOST if node.value is None else self.value(node.value, scope)
                )
            case ast.Assign():
                value = self.value(node.value, scope)
                for target in node.targets:
                    self.assign(target, value, scope)
            case ast.AnnAssign(target=target, value=ast.expr() as assigned):
                self.assign(target, self.value(assigned, scope), scope)
            case ast.AugAssign():
                self._augment(node, scope)
            case ast.Expr():
                self.value(node.value, scope)
            case ast.If():
                self._branch(node, scope)
            case ast.For():
                for item in self.turns(self.value(node.iter, scope)):
                    self.assign(node.target, item, scope)
                    self._body(node.body, scope)
            case ast.While() | ast.With() | ast.Try():
                self._body(node.body, scope)
            case ast.FunctionDef():
                scope[node.name] = Function(node)

    def _branch(self, node: ast.If, scope: Scope) -> None:
        truth = self.truth(node.test, scope)
        if truth is None:
            truth = not _refuses(node.body)
        self._body(node.body if truth else node.orelse, scope)

    def _augment(self, node: ast.AugAssign, scope: Scope) -> None:
        old = self.value(node.target, scope)
        new = self.value(node.value, scope)
        if isinstance(old, ValueList) and isinstance(new, ValueList):
            old.extend(new.items)
        else:
            self.assign(node.target, self.record.operator(type(node.op), [old, new]), scope)


def _is_static(node: ast.FunctionDef | ast.Lambda) -> bool:
    """True for a method that is given no instance."""
    return isinstance(node, ast.FunctionDef) and any(
        isinstance(item, ast.Name) and item.id == "staticmethod" for item in node.decorator_list
    )


def _refuses(body: Sequence[ast.stmt]) -> bool:
    """True for a branch that only raises."""
    return any(isinstance(item, ast.Raise) for item in body)
