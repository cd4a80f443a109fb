"""Ops of a module's forward in call order, read from its syntax and never executed."""

from __future__ import annotations

import ast
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache

from agentkernel.domain.knowledge import Structure
from agentkernel.knowledge.code_values import (
    HOST,
    HOST_ATTRIBUTES,
    RETURNS_ITSELF,
    TENSOR,
    TRANSPOSED,
    Arguments,
    Function,
    HostValue,
    Instance,
    LimitReached,
    Op,
    OpRecord,
    Program,
    Tensor,
    Value,
    ValueList,
    any_tensor,
    called_dims,
    inputs_of,
    list_method,
    literal,
)
from agentkernel.knowledge.op_names import expansion, strongest
from agentkernel.storage.source_text import parse_source

MOST_STEPS = 40_000
"""Syntax nodes that one source may cost: a bound on time, met by no module of people's writing."""
MOST_TURNS = 8
"""Turns of a loop over a list that the source spells out; any other loop is taken once."""
Scope = dict[str, Value]


class Expressions(ABC):
    """Reads expressions; what a function of the file does is for the room above."""

    def __init__(self, program: Program, record: OpRecord) -> None:
        self.program = program
        self.record = record
        self._steps = 0

    @abstractmethod
    def build(self, name: str, given: Arguments) -> Instance:
        """An instance of a class of the file."""

    @abstractmethod
    def call(self, function: Function, given: Arguments) -> Value:
        """What a function of the file returns."""

    def value(self, node: ast.expr, scope: Scope) -> Value:
        """What an expression comes to; arguments come before what they are given to."""
        self._steps += 1
        if self._steps > MOST_STEPS:
            raise LimitReached
        match node:
            case ast.Constant():
                return HostValue(node.value, known=True)
            case ast.Name():
                return self._name(node.id, scope)
            case ast.Attribute():
                return self._attribute(node, scope)
            case ast.Call():
                return self._call(node, scope)
            case ast.BinOp():
                sides = [self.value(node.left, scope), self.value(node.right, scope)]
                return self.record.operator(type(node.op), sides)
            case ast.UnaryOp():
                return self._unary(node, scope)
            case ast.Compare():
                sides = [self.value(item, scope) for item in (node.left, *node.comparators)]
                return self.record.emit(["compare"]) if any_tensor(sides) else HOST
            case ast.BoolOp():
                values = [self.value(item, scope) for item in node.values]
                return next((item for item in values if not isinstance(item, HostValue)), HOST)
            case ast.Subscript():
                return self._subscript(node, scope)
        return self._compound(node, scope)

    def _compound(self, node: ast.expr, scope: Scope) -> Value:
        match node:
            case ast.List() | ast.Tuple() | ast.Set():
                return ValueList(self._spread(node.elts, scope))
            case ast.Dict():
                return ValueList([self.value(item, scope) for item in node.values])
            case ast.IfExp():
                otherwise = self.truth(node.test, scope) is False
                return self.value(node.orelse if otherwise else node.body, scope)
            case ast.ListComp() | ast.GeneratorExp() | ast.SetComp():
                return self._comprehension(node, scope)
            case ast.NamedExpr():
                scope[node.target.id] = self.value(node.value, scope)
                return scope[node.target.id]
            case ast.Lambda():
                return Function(node)
            case ast.Starred():
                return self.value(node.value, scope)
        return HOST

    # -- names, attributes, items --------------------------------------------------------------

    def _name(self, name: str, scope: Scope) -> Value:
        if name in scope:
            return scope[name]
        if name in self.program.functions:
            return Function(self.program.functions[name])
        if name in self.program.constants:
            return literal(self.program.constants[name])
        full = self.program.imports.get(name, "")
        return Op(expansion(full)) if full.startswith("torch.") and expansion(full) else HOST

    def _attribute(self, node: ast.Attribute, scope: Scope) -> Value:
        full = self._dotted(node, scope)
        if full is not None:
            return Op(expansion(full)) if full.startswith("torch.") else HOST
        owner = self.value(node.value, scope)
        if isinstance(owner, Instance):
            if node.attr in owner.attributes:
                return owner.attributes[node.attr]
            method = self.program.find_method(owner.name, node.attr)
            return Function(method, owner) if method else HOST
        if isinstance(owner, Tensor):
            if node.attr in TRANSPOSED:
                return self.record.emit(["transpose"])
            return HOST if node.attr in HOST_ATTRIBUTES else TENSOR
        parameter = isinstance(owner, Op) and node.attr in ("weight", "bias")
        return TENSOR if parameter else HOST

    def _dotted(self, node: ast.expr, scope: Mapping[str, Value]) -> str | None:
        """`F.relu` -> `torch.nn.functional.relu`; None for what hangs on a value."""
        names: list[str] = []
        while isinstance(node, ast.Attribute):
            names.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name) or node.id in scope:
            return None
        root = self.program.imports.get(node.id)
        return None if root is None else ".".join([root, *reversed(names)])

    def _subscript(self, node: ast.Subscript, scope: Scope) -> Value:
        owner = self.value(node.value, scope)
        sliced = isinstance(node.slice, ast.Slice)
        index = HOST if sliced else self.value(node.slice, scope)
        if isinstance(owner, ValueList) and owner.items:
            place = index.value if isinstance(index, HostValue) else None
            if isinstance(place, int) and -len(owner.items) <= place < len(owner.items):
                return owner.items[place]
            return owner if sliced else owner.items[0]
        if isinstance(owner, Tensor) and isinstance(index, Tensor):
            return self.record.emit(["gather"])
        return owner if isinstance(owner, Tensor) else HOST

    def _unary(self, node: ast.UnaryOp, scope: Scope) -> Value:
        value = self.value(node.operand, scope)
        if not isinstance(value, HostValue):
            return self.record.operator(type(node.op), [value])
        if isinstance(node.op, ast.USub) and isinstance(value.value, int | float):
            return HostValue(-value.value, known=value.known)
        return HOST

    # -- tests, loops, targets -----------------------------------------------------------------

    def truth(self, test: ast.expr, scope: Scope) -> bool | None:
        """What a test comes to, None where the source does not say."""
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            inner = self.truth(test.operand, scope)
            return None if inner is None else not inner
        if isinstance(test, ast.Attribute) and test.attr == "training":
            return False
        if isinstance(test, ast.Compare) and len(test.ops) == 1:
            left, right = (self._plain(item, scope) for item in (test.left, test.comparators[0]))
            return _compared(test.ops[0], left, right)
        value = self._plain(test, scope)
        if isinstance(value, HostValue):
            return bool(value.value) if value.known else None
        return None if value is None else True

    def _plain(self, node: ast.expr, scope: Scope) -> Value | None:
        """The value of what can be looked at without an op; None for all else."""
        plain = isinstance(node, ast.Name | ast.Attribute | ast.Constant)
        return self.value(node, scope) if plain else None

    def turns(self, value: Value) -> Iterator[Value]:
        """What a loop over `value` takes, one a turn."""
        if isinstance(value, ValueList) and value.items:
            yield from value.items[:MOST_TURNS]
        else:
            yield TENSOR if isinstance(value, Tensor) else HOST

    def _comprehension(
        self, node: ast.ListComp | ast.GeneratorExp | ast.SetComp, scope: Scope
    ) -> ValueList:
        inner = dict(scope)
        items: list[Value] = []
        first, *others = node.generators
        for item in self.turns(self.value(first.iter, inner)):
            self.assign(first.target, item, inner)
            for other in others:
                turn = next(self.turns(self.value(other.iter, inner)))
                self.assign(other.target, turn, inner)
            items.append(self.value(node.elt, inner))
        return ValueList(items)

    def assign(self, target: ast.expr, value: Value, scope: Scope) -> None:
        """Let `target` stand for `value` from here on."""
        match target:
            case ast.Name():
                scope[target.id] = value
            case ast.Attribute():
                owner = self.value(target.value, scope)
                if isinstance(owner, Instance):
                    owner.attributes[target.attr] = value
            case ast.Tuple() | ast.List():
                parts: list[Value] = value.items if isinstance(value, ValueList) else []
                if len(parts) != len(target.elts):
                    each: Value = value if isinstance(value, Tensor) else HOST
                    parts = [each] * len(target.elts)
                for item, part in zip(target.elts, parts, strict=True):
                    self.assign(item, part, scope)
            case ast.Starred():
                self.assign(target.value, value, scope)

    # -- calls ---------------------------------------------------------------------------------

    def _call(self, node: ast.Call, scope: Scope) -> Value:
        function = node.func
        if _is_super(function):
            return HOST
        if isinstance(function, ast.Attribute):
            if _is_super(function.value):
                return self._super(function.attr, self._arguments(node, scope), scope)
            full = self._dotted(function, scope)
            if full is not None:
                return self.record.named(full, self._arguments(node, scope))
            return self._method(node, function, scope)
        name = function.id if isinstance(function, ast.Name) else ""
        if name and name not in scope:
            if name in self.program.classes:
                return self._constructed(name, self._arguments(node, scope))
            if name not in self.program.functions:
                given = self._arguments(node, scope)
                full = self.program.imports.get(name)
                if full is None:
                    return self.record.builtin(name, given)
                return self.record.named(full, given)
        callee = self.value(function, scope)
        return self._invoked(callee, node, self._arguments(node, scope))

    def _arguments(self, node: ast.Call, scope: Scope) -> Arguments:
        placed = self._spread(node.args, scope)
        named = {item.arg or "": self.value(item.value, scope) for item in node.keywords}
        return Arguments(placed, named)

    def _spread(self, nodes: Iterable[ast.expr], scope: Scope) -> list[Value]:
        values: list[Value] = []
        for node in nodes:
            value = self.value(node, scope)
            if isinstance(node, ast.Starred) and isinstance(value, ValueList):
                values += value.items
            else:
                values.append(value)
        return values

    def _constructed(self, name: str, given: Arguments) -> Value:
        find = self.program.find_method
        if find(name, "forward") or find(name, "__init__"):
            return self.build(name, given)
        return self.record.unknown(given.placed)

    def _super(self, name: str, given: Arguments, scope: Scope) -> Value:
        owner = scope.get("self")
        if not isinstance(owner, Instance) or owner.name not in self.program.classes:
            return HOST
        own = self.program.find_method(owner.name, name)
        for base in self.program.classes[owner.name].bases:
            if isinstance(base, ast.Name):
                method = self.program.find_method(base.id, name)
                if method and method is not own:
                    return self.call(Function(method, owner), given)
        return HOST

    def _method(self, node: ast.Call, function: ast.Attribute, scope: Scope) -> Value:
        owner = self.value(function.value, scope)
        given = self._arguments(node, scope)
        if isinstance(owner, Instance):
            return self._instance_method(owner, node, function.attr, given)
        if isinstance(owner, Tensor):
            return self.record.method(owner, function.attr, given)
        if isinstance(owner, ValueList):
            moved = function.attr in RETURNS_ITSELF
            return owner if moved else list_method(owner, function.attr, given)
        if isinstance(owner, Op | Function) and function.attr in ("forward", "__call__", "apply"):
            return self._invoked(owner, node, given)
        if isinstance(owner, Op) and owner.is_module and function.attr in RETURNS_ITSELF:
            return owner
        return self.record.unknown(given.placed)

    def _instance_method(
        self, owner: Instance, node: ast.Call, name: str, given: Arguments
    ) -> Value:
        if name in ("register_buffer", "register_parameter", "add_module", "register_module"):
            key = given.first
            if isinstance(key, HostValue) and isinstance(key.value, str) and len(given.placed) > 1:
                module = name.endswith("_module")
                owner.attributes[key.value] = given.placed[1] if module else TENSOR
            return HOST
        if name in owner.attributes:
            return self._invoked(owner.attributes[name], node, given)
        method = self.program.find_method(owner.name, name)
        if method is not None:
            return self.call(Function(method, owner), given)
        if name in RETURNS_ITSELF:
            return owner
        if name in ("children", "modules"):
            parts = owner.attributes.values()
            return ValueList([item for item in parts if not isinstance(item, HostValue | Tensor)])
        return self.record.unknown(given.placed)

    def _invoked(self, callee: Value, node: ast.Call, given: Arguments) -> Value:
        """A call of a value: a module, a list of modules, a function."""
        match callee:
            case Instance():
                forward = self.program.find_method(callee.name, "forward")
                return self.call(Function(forward, callee), given) if forward else HOST
            case Function():
                return self.call(callee, given)
            case Op(is_module=True):
                return self.record.emit(callee.ops, callee.dims)
            case Op():
                if any_tensor(given.placed):
                    return self.record.emit(callee.ops, called_dims(given))
                return TENSOR if self.record.emits else Op(callee.ops, is_module=True)
            case ValueList():
                value: Value = TENSOR
                for item in callee.items if callee.chained else callee.items[:1]:
                    placed = [value, *given.placed[1:]] if given.placed else []
                    value = self._invoked(item, node, given._replace(placed=placed))
                return value
        return self.record.unknown(given.all)


def _is_super(node: ast.expr) -> bool:
    """True for `super()`."""
    return (
        isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "super"
    )


def _compared(operator: ast.cmpop, left: Value | None, right: Value | None) -> bool | None:
    """What `is`, `==` and their opposites come to, None where the values do not say."""
    if not isinstance(right, HostValue) or not right.known or left is None:
        return None
    known = isinstance(left, HostValue) and left.known
    if isinstance(operator, ast.Is | ast.IsNot):
        if isinstance(left, HostValue) and not known:
            return None
        same = isinstance(left, HostValue) and left.value is right.value
        return same is isinstance(operator, ast.Is)
    if isinstance(operator, ast.Eq | ast.NotEq) and isinstance(left, HostValue) and known:
        return (left.value == right.value) is isinstance(operator, ast.Eq)
    return None


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


MOST_CHARACTERS = 400_000


@lru_cache(maxsize=4)
def parsed(source: str) -> ast.Module | None:
    """The syntax tree, None where there is none; the last few are kept, and not to be changed."""
    if len(source) > MOST_CHARACTERS:
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return parse_source(source, walked=False)
        except SyntaxError:
            return None


def structure_of_code(source: str, entry_point: str | None = None) -> Structure | None:
    """What the module class `entry_point` of `source` computes, in canonical ops.

    Without an entry point (or with one that is not there): `Model`, else the last module class that
    no other one uses. None where the source does not parse or holds no module with a forward.
    """
    tree = parsed(source)
    if tree is None:
        return None
    program = Program(tree)
    name = program.entry(entry_point)
    if name is None:
        return None
    facts = inputs_of(tree)
    reader = Reader(program, facts.rank)
    with suppress(LimitReached, RecursionError):
        reader.read(name, program.constructor_arguments())
    record = reader.record
    return Structure(
        ops=tuple(record.ops),
        reduction=strongest(record.reductions) if record.ops else None,
        dtypes=facts.dtypes,
        rank=facts.rank,
    )


def module_class(source: str, entry_point: str | None = None) -> ast.ClassDef | None:
    """The class that `structure_of_code` reads; None where it finds none."""
    tree = parsed(source)
    if tree is None:
        return None
    program = Program(tree)
    name = program.entry(entry_point)
    return None if name is None else program.classes[name]
