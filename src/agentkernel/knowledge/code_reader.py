"""Which ops does a module's forward call, in order, with the parts of its file read in place?"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence

from agentkernel.domain.knowledge import ReductionClass
from agentkernel.knowledge.code_inputs import FACTORIES
from agentkernel.knowledge.code_program import Program
from agentkernel.knowledge.code_values import (
    HOST,
    MOST_ITEMS,
    TENSOR,
    Function,
    Host,
    Instance,
    Many,
    Op,
    Tensor,
    Value,
    any_tensor,
    literal,
)
from agentkernel.knowledge.op_names import canonical_op, expansion, reduction_of

MOST_OPS = 256
MOST_STEPS = 40_000
"""Syntax nodes that one source may cost: a bound on time, met by no module of people's writing."""
MOST_DEPTH = 24
MOST_TURNS = 8
"""Turns of a loop over a list that the source spells out; any other loop is taken once."""
OPERATORS: Mapping[type[ast.AST], str] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.FloorDiv: "//",
    ast.Mod: "%",
    ast.Pow: "**",
    ast.MatMult: "@",
    ast.BitAnd: "&",
    ast.BitOr: "|",
    ast.BitXor: "^",
    ast.LShift: "<<",
    ast.RShift: ">>",
    ast.USub: "neg",
    ast.Invert: "~",
}
HOST_ATTRIBUTES = frozenset(
    (*("shape", "dtype", "device", "ndim", "is_cuda", "requires_grad", "layout"),)
)
HOST_METHODS = frozenset(
    (
        *("size", "dim", "numel", "item", "tolist", "stride", "type", "is_contiguous"),
        "get_device",
    )
)
LISTS = ("Sequential", "ModuleList", "ParameterList")
PAIRED = ("max", "min")
"""Reductions of one tensor, elementwise over two."""


class Full(Exception):
    """The bound on ops or steps is met: what was found so far stands."""


class Returned(Exception):
    """The function that is read came to a return."""

    def __init__(self, value: Value) -> None:
        super().__init__()
        self.value = value


class Reader:
    """Walks a module's constructor and forward and writes down the ops that they call."""

    def __init__(self, program: Program, rank: int | None) -> None:
        self.program = program
        self.rank = rank
        self.ops: list[str] = []
        self.reductions: list[ReductionClass] = []
        self.emits = False
        self.steps = 0
        self.depth = 0

    # -- what is found -------------------------------------------------------------------------

    def emit(self, ops: Iterable[str], dims: Sequence[int] | None = None) -> Tensor:
        """Note the ops of one call."""
        if self.emits:
            for op in ops:
                if len(self.ops) >= MOST_OPS:
                    raise Full
                self.ops.append(op)
                self.reductions.append(reduction_of(op, dims, self.rank))
        return TENSOR

    # -- modules and functions -----------------------------------------------------------------

    def build(self, name: str, args: list[Value], named: dict[str, Value]) -> Instance:
        """An instance of a class of the file, its constructor read."""
        instance = Instance(name)
        emits, self.emits = self.emits, False
        try:
            self.method(instance, "__init__", args, named)
        finally:
            self.emits = emits
        return instance

    def method(
        self, instance: Instance, name: str, args: list[Value], named: dict[str, Value]
    ) -> Value:
        """What a method of `instance` returns."""
        node = self.program.find_method(instance.name, name)
        return HOST if node is None else self.call(Function(node, instance), args, named)

    def call(self, function: Function, args: list[Value], named: dict[str, Value]) -> Value:
        """What a function of the file returns; an unnamed argument of forward is a tensor."""
        if self.depth >= MOST_DEPTH:
            return TENSOR
        self.depth += 1
        try:
            scope = self._bind(function, args, named)
            if isinstance(function.node, ast.Lambda):
                return self.value(function.node.body, scope)
            self.body(function.node.body, scope)
        except Returned as answer:
            return answer.value
        finally:
            self.depth -= 1
        return HOST

    def _bind(
        self, function: Function, args: list[Value], named: dict[str, Value]
    ) -> dict[str, Value]:
        spec = function.node.args
        names = [item.arg for item in [*spec.posonlyargs, *spec.args]]
        scope: dict[str, Value] = {}
        static = isinstance(function.node, ast.FunctionDef) and any(
            isinstance(item, ast.Name) and item.id == "staticmethod"
            for item in function.node.decorator_list
        )
        if function.owner is not None and names and not static:
            scope[names.pop(0)] = function.owner
        defaults = dict(zip(reversed(names), reversed(spec.defaults), strict=False))
        defaults |= {
            item.arg: value
            for item, value in zip(spec.kwonlyargs, spec.kw_defaults, strict=True)
            if value is not None
        }
        missing: Value = TENSOR if self.emits else HOST
        for name in [*names, *(item.arg for item in spec.kwonlyargs)]:
            default = defaults.get(name)
            scope[name] = missing if default is None else self.value(default, {})
        scope |= dict(zip(names, args, strict=False))
        if spec.vararg:
            rest = list(args[len(names) :])
            scope[spec.vararg.arg] = Many(rest) if rest or not self.emits else TENSOR
        known = {*names, *(item.arg for item in spec.kwonlyargs)}
        return scope | {name: value for name, value in named.items() if name in known}

    # -- statements ----------------------------------------------------------------------------

    def body(self, statements: Iterable[ast.stmt], scope: dict[str, Value]) -> None:
        """Read statements in order."""
        for statement in statements:
            self._statement(statement, scope)

    def _statement(self, node: ast.stmt, scope: dict[str, Value]) -> None:
        if isinstance(node, ast.Return):
            raise Returned(HOST if node.value is None else self.value(node.value, scope))
        if isinstance(node, ast.Assign):
            value = self.value(node.value, scope)
            for target in node.targets:
                self._assign(target, value, scope)
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            self._assign(node.target, self.value(node.value, scope), scope)
        elif isinstance(node, ast.AugAssign):
            self._augment(node, scope)
        elif isinstance(node, ast.Expr):
            self.value(node.value, scope)
        elif isinstance(node, ast.If):
            self._branch(node, scope)
        elif isinstance(node, ast.For):
            for item in self._turns(self.value(node.iter, scope)):
                self._assign(node.target, item, scope)
                self.body(node.body, scope)
        elif isinstance(node, ast.While | ast.With | ast.Try):
            self.body(node.body, scope)
        elif isinstance(node, ast.FunctionDef):
            scope[node.name] = Function(node)

    def _branch(self, node: ast.If, scope: dict[str, Value]) -> None:
        truth = self._truth(node.test, scope)
        if truth is None:
            truth = not _refuses(node.body)
        self.body(node.body if truth else node.orelse, scope)

    def _truth(self, test: ast.expr, scope: dict[str, Value]) -> bool | None:
        """What a test comes to, None where the source does not say."""
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            inner = self._truth(test.operand, scope)
            return None if inner is None else not inner
        if isinstance(test, ast.Attribute) and test.attr == "training":
            return False
        if isinstance(test, ast.Compare) and len(test.ops) == 1:
            return self._compared(test, scope)
        if isinstance(test, ast.Name | ast.Attribute | ast.Constant):
            value = self.value(test, scope)
            if isinstance(value, Host):
                return bool(value.value) if value.known else None
            return True
        return None

    def _compared(self, test: ast.Compare, scope: dict[str, Value]) -> bool | None:
        left, right = (
            self.value(item, scope)
            if isinstance(item, ast.Name | ast.Attribute | ast.Constant)
            else None
            for item in (test.left, test.comparators[0])
        )
        operator = test.ops[0]
        if isinstance(operator, ast.Is | ast.IsNot) and isinstance(right, Host) and right.known:
            if isinstance(left, Host):
                same = left.value is right.value if left.known else None
            else:
                same = None if left is None else False
            return same if same is None or isinstance(operator, ast.Is) else not same
        if not isinstance(operator, ast.Eq | ast.NotEq):
            return None
        if not (isinstance(left, Host) and isinstance(right, Host) and left.known and right.known):
            return None
        return (left.value == right.value) is isinstance(operator, ast.Eq)

    def _turns(self, value: Value) -> Iterator[Value]:
        if isinstance(value, Many) and value.items:
            yield from value.items[:MOST_TURNS]
        else:
            yield TENSOR if isinstance(value, Tensor) else HOST

    def _augment(self, node: ast.AugAssign, scope: dict[str, Value]) -> None:
        old = self.value(node.target, scope)
        new = self.value(node.value, scope)
        if isinstance(old, Many) and isinstance(new, Many):
            old.extend(new.items)
            return
        self._assign(node.target, self._binary(type(node.op), [old, new]), scope)

    def _assign(self, target: ast.expr, value: Value, scope: dict[str, Value]) -> None:
        if isinstance(target, ast.Name):
            scope[target.id] = value
        elif isinstance(target, ast.Attribute):
            owner = self.value(target.value, scope)
            if isinstance(owner, Instance):
                owner.attributes[target.attr] = value
        elif isinstance(target, ast.Tuple | ast.List):
            parts = value.items if isinstance(value, Many) else []
            for index, item in enumerate(target.elts):
                whole: Value = value if isinstance(value, Tensor) else HOST
                part = parts[index] if len(parts) == len(target.elts) else whole
                self._assign(item, part, scope)
        elif isinstance(target, ast.Starred):
            self._assign(target.value, value, scope)

    # -- expressions ---------------------------------------------------------------------------

    def value(self, node: ast.expr, scope: dict[str, Value]) -> Value:
        """What an expression comes to; its ops are noted on the way, arguments first."""
        self.steps += 1
        if self.steps > MOST_STEPS:
            raise Full
        if isinstance(node, ast.Constant):
            return Host(node.value, known=True)
        if isinstance(node, ast.Name):
            return self._name(node.id, scope)
        if isinstance(node, ast.Attribute):
            return self._attribute(node, scope)
        if isinstance(node, ast.Call):
            return self._call(node, scope)
        if isinstance(node, ast.BinOp):
            sides = [self.value(node.left, scope), self.value(node.right, scope)]
            return self._binary(type(node.op), sides)
        if isinstance(node, ast.UnaryOp):
            return self._unary(node, scope)
        if isinstance(node, ast.Compare):
            sides = [self.value(item, scope) for item in (node.left, *node.comparators)]
            return self.emit(["compare"]) if any_tensor(sides) else HOST
        if isinstance(node, ast.BoolOp):
            values = [self.value(item, scope) for item in node.values]
            return next((item for item in values if not isinstance(item, Host)), HOST)
        return self._compound(node, scope)

    def _compound(self, node: ast.expr, scope: dict[str, Value]) -> Value:
        if isinstance(node, ast.List | ast.Tuple | ast.Set):
            return Many(self._spread(node.elts, scope))
        if isinstance(node, ast.Dict):
            return Many([self.value(item, scope) for item in node.values])
        if isinstance(node, ast.Subscript):
            return self._subscript(node, scope)
        if isinstance(node, ast.IfExp):
            truth = self._truth(node.test, scope)
            return self.value(node.orelse if truth is False else node.body, scope)
        if isinstance(node, ast.ListComp | ast.GeneratorExp | ast.SetComp):
            return self._comprehension(node, scope)
        if isinstance(node, ast.NamedExpr):
            scope[node.target.id] = self.value(node.value, scope)
            return scope[node.target.id]
        if isinstance(node, ast.Lambda):
            return Function(node)
        return self.value(node.value, scope) if isinstance(node, ast.Starred) else HOST

    def _comprehension(
        self, node: ast.ListComp | ast.GeneratorExp | ast.SetComp, scope: dict[str, Value]
    ) -> Many:
        inner = dict(scope)
        items: list[Value] = []
        first, *others = node.generators
        for item in self._turns(self.value(first.iter, inner)):
            self._assign(first.target, item, inner)
            for other in others:
                turn = next(self._turns(self.value(other.iter, inner)))
                self._assign(other.target, turn, inner)
            items.append(self.value(node.elt, inner))
        return Many(items)

    def _name(self, name: str, scope: dict[str, Value]) -> Value:
        if name in scope:
            return scope[name]
        if name in self.program.functions:
            return Function(self.program.functions[name])
        if name in self.program.constants:
            constant = self.program.constants[name]
            return literal(constant)
        full = self.program.imports.get(name, "")
        return Op(expansion(full)) if full.startswith("torch.") and expansion(full) else HOST

    def _attribute(self, node: ast.Attribute, scope: dict[str, Value]) -> Value:
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
            if node.attr in HOST_ATTRIBUTES:
                return HOST
            if node.attr in ("T", "mT", "H", "mH"):
                return self.emit(["transpose"])
            return TENSOR
        if isinstance(owner, Op) and node.attr in ("weight", "bias"):
            return TENSOR
        return HOST

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

    def _subscript(self, node: ast.Subscript, scope: dict[str, Value]) -> Value:
        owner = self.value(node.value, scope)
        index = self.value(node.slice, scope) if not isinstance(node.slice, ast.Slice) else HOST
        if isinstance(owner, Many) and owner.items:
            if isinstance(node.slice, ast.Slice):
                return owner
            if isinstance(index, Host) and isinstance(index.value, int):
                position = index.value
                if -len(owner.items) <= position < len(owner.items):
                    return owner.items[position]
            return owner.items[0]
        if isinstance(owner, Tensor) and isinstance(index, Tensor):
            return self.emit(["gather"])
        return owner if isinstance(owner, Tensor) else HOST

    def _unary(self, node: ast.UnaryOp, scope: dict[str, Value]) -> Value:
        value = self.value(node.operand, scope)
        if isinstance(value, Host):
            if isinstance(node.op, ast.USub) and isinstance(value.value, int | float):
                return Host(-value.value, known=value.known)
            return HOST
        return self._binary(type(node.op), [value])

    def _binary(self, operator: type[ast.AST], sides: list[Value]) -> Value:
        if not any_tensor(sides):
            if operator is ast.Add and all(isinstance(item, Many) for item in sides):
                return Many(
                    [part for item in sides if isinstance(item, Many) for part in item.items]
                )
            if operator is ast.Mult:
                return next((item for item in sides if isinstance(item, Many)), HOST)
            return HOST
        op = canonical_op(OPERATORS.get(operator, ""))
        return self.emit([op]) if op else TENSOR

    # -- calls ---------------------------------------------------------------------------------

    def _spread(self, nodes: Iterable[ast.expr], scope: dict[str, Value]) -> list[Value]:
        values: list[Value] = []
        for node in nodes:
            value = self.value(node, scope)
            if isinstance(node, ast.Starred) and isinstance(value, Many):
                values += value.items
            else:
                values.append(value)
        return values

    def _call(self, node: ast.Call, scope: dict[str, Value]) -> Value:
        function = node.func
        if isinstance(function, ast.Call) and _is_name(function.func, "super"):
            return HOST
        if isinstance(function, ast.Attribute):
            if isinstance(function.value, ast.Call) and _is_name(function.value.func, "super"):
                return self._super(node, function.attr, scope)
            full = self._dotted(function, scope)
            if full is not None:
                return self._named_call(node, full, scope)
            return self._method_call(node, function, scope)
        if isinstance(function, ast.Name) and function.id not in scope:
            if function.id in self.program.classes:
                args, named = self._arguments(node, scope)
                return self._constructed(function.id, args, named)
            full = self.program.imports.get(function.id)
            if full is not None and function.id not in self.program.functions:
                return self._named_call(node, full, scope)
            if function.id not in self.program.functions:
                return self._builtin(node, function.id, scope)
        callee = self.value(function, scope)
        args, named = self._arguments(node, scope)
        return self._invoked(callee, node, args, named)

    def _arguments(
        self, node: ast.Call, scope: dict[str, Value]
    ) -> tuple[list[Value], dict[str, Value]]:
        args = self._spread(node.args, scope)
        return args, {item.arg or "": self.value(item.value, scope) for item in node.keywords}

    def _constructed(self, name: str, args: list[Value], named: dict[str, Value]) -> Value:
        if self.program.find_method(name, "forward") and self.depth < MOST_DEPTH:
            return self.build(name, args, named)
        if self.program.find_method(name, "__init__"):
            return self.build(name, args, named)
        return TENSOR if self.emits and any_tensor(args) else HOST

    def _super(self, node: ast.Call, name: str, scope: dict[str, Value]) -> Value:
        owner = scope.get("self")
        args, named = self._arguments(node, scope)
        if not isinstance(owner, Instance) or owner.name not in self.program.classes:
            return HOST
        for base in self.program.classes[owner.name].bases:
            if isinstance(base, ast.Name):
                method = self.program.find_method(base.id, name)
                if method and method is not self.program.find_method(owner.name, name):
                    return self.call(Function(method, owner), args, named)
        return HOST

    def _named_call(self, node: ast.Call, full: str, scope: dict[str, Value]) -> Value:
        """A call of an imported name: a torch function, a torch module, or something unknown."""
        args, named = self._arguments(node, scope)
        tail = full.rsplit(".", 1)[-1]
        if tail in ("Parameter", "Buffer"):
            return TENSOR
        if tail in LISTS:
            return self._container(tail, args)
        if not full.startswith(("torch.", "einops.")) or full.startswith(
            ("torch.distributed", "torch.utils")
        ):
            return TENSOR if self.emits and any_tensor([*args, *named.values()]) else HOST
        dims = _dims(node)
        if tail[:1].isupper():
            if tail in ("ModuleDict", "ParameterDict"):
                return args[0] if args else Many([])
            if tail in ("LSTM", "GRU", "RNN") or full.startswith("torch.nn"):
                return Op(expansion(full), dims if _takes_dim(tail) else None, is_module=True)
            return HOST
        if full.startswith("torch.nn.init."):
            return TENSOR
        return self._operate(full, dims, args, named)

    def _operate(
        self, name: str, dims: tuple[int, ...] | None, args: list[Value], named: dict[str, Value]
    ) -> Value:
        tail = name.rsplit(".", 1)[-1]
        values = [*args, *named.values()]
        if tail in PAIRED and len(args) > 1 and isinstance(args[1], Tensor):
            return self.emit(["maximum" if tail == "max" else "minimum"])
        ops = expansion(name)
        if not any_tensor(values) and tail not in FACTORIES:
            return HOST if tail.startswith(("is_", "get_", "finfo", "iinfo")) else TENSOR
        if tail in FACTORIES and not tail.endswith("_like"):
            ops = ()
        return self.emit(ops, dims)

    def _method_call(
        self, node: ast.Call, function: ast.Attribute, scope: dict[str, Value]
    ) -> Value:
        owner = self.value(function.value, scope)
        args, named = self._arguments(node, scope)
        if isinstance(owner, Instance):
            return self._instance_call(owner, node, function.attr, args, named)
        if isinstance(owner, Tensor):
            if function.attr in HOST_METHODS:
                return HOST
            full = f"Tensor.{function.attr}"
            return self._operate(full, _dims(node, method=True), [owner, *args], named)
        if isinstance(owner, Many):
            return _list_call(owner, function.attr, args)
        if isinstance(owner, Op | Function) and function.attr in ("forward", "__call__", "apply"):
            return self._invoked(owner, node, args, named)
        return TENSOR if self.emits and any_tensor(args) else HOST

    def _instance_call(
        self,
        owner: Instance,
        node: ast.Call,
        name: str,
        args: list[Value],
        named: dict[str, Value],
    ) -> Value:
        if name in ("register_buffer", "register_parameter", "add_module", "register_module"):
            key = args[0] if args else HOST
            if isinstance(key, Host) and isinstance(key.value, str) and len(args) > 1:
                module = name in ("add_module", "register_module")
                owner.attributes[key.value] = args[1] if module else TENSOR
            return HOST
        if name in owner.attributes:
            return self._invoked(owner.attributes[name], node, args, named)
        method = self.program.find_method(owner.name, name)
        if method is None:
            values = [*owner.attributes.values()]
            if name in ("children", "modules"):
                return Many([item for item in values if not isinstance(item, Host | Tensor)])
            return TENSOR if self.emits and any_tensor(args) else HOST
        return self.call(Function(method, owner), args, named)

    def _container(self, name: str, args: list[Value]) -> Many:
        items = args
        if len(args) == 1 and isinstance(args[0], Many):
            items = [
                item.items[-1]
                if isinstance(item, Many) and not item.chained and item.items
                else item
                for item in args[0].items
            ]
        return Many(list(items), chained=name == "Sequential")

    def _invoked(
        self, callee: Value, node: ast.Call, args: list[Value], named: dict[str, Value]
    ) -> Value:
        """A call of a value: a module, a list of modules, a function."""
        if isinstance(callee, Instance):
            return self.method(callee, "forward", args, named)
        if isinstance(callee, Function):
            return self.call(callee, args, named)
        if isinstance(callee, Op):
            if callee.is_module:
                return self.emit(callee.ops, callee.dims)
            if any_tensor(args):
                return self.emit(callee.ops, _dims(node))
            return TENSOR if self.emits else Op(callee.ops, is_module=True)
        if isinstance(callee, Many):
            value: Value = TENSOR
            for item in callee.items if callee.chained else callee.items[:1]:
                value = self._invoked(item, node, [value, *args[1:]] if args else args, named)
            return value
        return TENSOR if self.emits and any_tensor([*args, *named.values()]) else HOST

    def _builtin(self, node: ast.Call, name: str, scope: dict[str, Value]) -> Value:
        args, _ = self._arguments(node, scope)
        first = args[0] if args else HOST
        if name in ("list", "tuple", "reversed", "iter", "next", "sorted"):
            return first
        if name == "enumerate" and isinstance(first, Many):
            return Many(
                [Many([Host(index, known=True), item]) for index, item in enumerate(first.items)]
            )
        if name == "zip" and args and all(isinstance(item, Many) for item in args):
            columns = [item.items for item in args if isinstance(item, Many)]
            return Many([Many(list(row)) for row in zip(*columns, strict=False)])
        if name in ("abs", "pow", "round") and isinstance(first, Tensor):
            return self.emit(expansion(name))
        if name in ("sum", "max", "min") and (
            isinstance(first, Tensor) or (isinstance(first, Many) and any_tensor(first.items))
        ):
            return self.emit(["add" if name == "sum" else f"{name}imum"])
        if name in (
            "len",
            "int",
            "float",
            "bool",
            "str",
            "range",
            "isinstance",
            "getattr",
            "print",
        ):
            return HOST
        return TENSOR if self.emits and any_tensor(args) else HOST


def _is_name(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def _refuses(body: Sequence[ast.stmt]) -> bool:
    """True for a branch that only raises."""
    return any(isinstance(item, ast.Raise) for item in body)


def _list_call(owner: Many, name: str, args: list[Value]) -> Value:
    first = args[0] if args else HOST
    if name == "append":
        owner.extend([first])
    elif name == "insert" and len(args) > 1:
        owner.items.insert(0, args[1])
        del owner.items[MOST_ITEMS:]
    elif name == "extend" and isinstance(first, Many):
        owner.extend(first.items)
    elif name in ("values", "items", "children", "modules"):
        return owner
    elif name in ("pop", "get") and owner.items:
        return owner.items[-1]
    elif name == "add_module" and len(args) > 1:
        owner.extend([args[1]])
    return HOST


def _takes_dim(module: str) -> bool:
    return "oftm" in module or module in ("GLU", "CosineSimilarity")


def _dims(call: ast.Call, *, method: bool = False) -> tuple[int, ...] | None:
    """The dimensions that a call names: `dim=`, `axis=`, or the literal after the tensor."""
    for named in call.keywords:
        if named.arg in ("dim", "axis"):
            return _integers(named.value)
    first = 0 if method else 1
    module = isinstance(call.func, ast.Attribute) and call.func.attr[:1].isupper()
    positional = call.args[0 if module else first :]
    for item in positional[:2]:
        found = _integers(item)
        if found is not None:
            return found
    return None


def _integers(node: ast.expr) -> tuple[int, ...] | None:
    items = node.elts if isinstance(node, ast.Tuple | ast.List) else [node]
    found: list[int] = []
    for item in items:
        sign = 1
        if isinstance(item, ast.UnaryOp) and isinstance(item.op, ast.USub):
            item, sign = item.operand, -1
        if not isinstance(item, ast.Constant) or type(item.value) is not int:
            return None
        found.append(sign * item.value)
    return tuple(found)
