"""Values, definitions, inputs and library calls that a module's source is read with."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from agentkernel.domain.knowledge import ReductionClass
from agentkernel.knowledge.op_names import (
    canonical_op,
    einsum_ops,
    expansion,
    reduction_of,
)

MOST_ITEMS = 256
"""Values in one list: a list that is added to itself in a row would fill the memory."""


@dataclass(frozen=True)
class Tensor:
    """Anything that is computed on the device. `diagonal`: a matrix made of its diagonal."""

    diagonal: bool = False


@dataclass(frozen=True)
class HostValue:
    """A Python value: known where the source spells it out."""

    value: object = None
    known: bool = False


@dataclass
class ValueList:
    """A list, tuple or container of values, in order; `chained`: called one after the other."""

    items: list[Value]
    chained: bool = False

    def __post_init__(self) -> None:
        self.items = self.items[:MOST_ITEMS]

    def extend(self, items: Sequence[Value]) -> None:
        """Add items, up to the bound."""
        self.items += items[: max(0, MOST_ITEMS - len(self.items))]


@dataclass(frozen=True)
class Op:
    """A torch function or module: the canonical ops of one call."""

    ops: tuple[str, ...]
    dims: tuple[int, ...] | None = None
    is_module: bool = False


@dataclass(frozen=True)
class Function:
    """A function of the file, or a method bound to an instance."""

    node: ast.FunctionDef | ast.Lambda
    owner: Instance | None = None


@dataclass
class Instance:
    """A module class of the file with what its constructor stored."""

    name: str
    attributes: dict[str, Value] = field(default_factory=dict)


class Arguments(NamedTuple):
    """What a call is given, by place and by name."""

    placed: list[Value]
    named: dict[str, Value]

    @property
    def first(self) -> Value:
        """The first by place; an unknown one where there is none."""
        return self.placed[0] if self.placed else HOST

    @property
    def all(self) -> list[Value]:
        return [*self.placed, *self.named.values()]


Value = Tensor | HostValue | ValueList | Op | Function | Instance
TENSOR = Tensor()
DIAGONAL = Tensor(diagonal=True)
HOST = HostValue()


def literal(node: ast.expr) -> HostValue:
    """The value of a constant; unknown for anything else."""
    return HostValue(node.value, known=True) if isinstance(node, ast.Constant) else HOST


def any_tensor(values: Iterable[Value]) -> bool:
    """True where one of them is a tensor, or a list that holds one."""
    for value in values:
        if isinstance(value, Tensor):
            return True
        if isinstance(value, ValueList) and any(isinstance(item, Tensor) for item in value.items):
            return True
    return False


MOST_BASES = 24


class Program:
    """The classes, functions, imports and constants of one file."""

    def __init__(self, tree: ast.Module) -> None:
        self.classes: dict[str, ast.ClassDef] = {}
        self.functions: dict[str, ast.FunctionDef] = {}
        self.imports: dict[str, str] = {
            "torch": "torch",
            "nn": "torch.nn",
            "F": "torch.nn.functional",
        }
        self.constants: dict[str, ast.expr] = {}
        for node in tree.body:
            if isinstance(node, ast.ClassDef):
                self.classes[node.name] = node
            elif isinstance(node, ast.FunctionDef):
                self.functions[node.name] = node
            elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                self.constants[node.targets[0].id] = node.value
            elif isinstance(node, ast.Import | ast.ImportFrom):
                self._import(node)

    def _import(self, node: ast.Import | ast.ImportFrom) -> None:
        for item in node.names:
            if isinstance(node, ast.ImportFrom):
                self.imports[item.asname or item.name] = f"{node.module}.{item.name}"
            elif item.asname:
                self.imports[item.asname] = item.name
            else:
                self.imports[item.name.split(".")[0]] = item.name.split(".")[0]

    def entry(self, wanted: str | None) -> str | None:
        """The class to read."""
        able = [name for name in self.classes if self.find_method(name, "forward")]
        for name in (wanted, "ModelNew" if wanted == "ModelNew" else "Model"):
            if name in able:
                return name
        used = {
            node.id
            for name in able
            for node in ast.walk(self.classes[name])
            if isinstance(node, ast.Name) and node.id != name
        }
        return next(
            (name for name in reversed(able) if name not in used), able[-1] if able else None
        )

    def find_method(self, name: str, method: str, depth: int = 0) -> ast.FunctionDef | None:
        """The method of a class or of its bases in the file."""
        node = self.classes.get(name)
        if node is None or depth > MOST_BASES:
            return None
        for item in node.body:
            if isinstance(item, ast.FunctionDef) and item.name == method:
                return item
        for base in node.bases:
            if isinstance(base, ast.Name) and base.id != name:
                found = self.find_method(base.id, method, depth + 1)
                if found:
                    return found
        return None

    def constructor_arguments(self) -> Arguments:
        """The literals of `get_init_inputs`: `[a, b]`, or `[[a, b], {name: value}]`."""
        function = self.functions.get("get_init_inputs")
        last = function.body[-1] if function and function.body else None
        if not isinstance(last, ast.Return) or not isinstance(last.value, ast.List):
            return Arguments([], {})
        items = last.value.elts
        named: dict[str, Value] = {}
        if len(items) == 2 and isinstance(items[0], ast.List) and isinstance(items[1], ast.Dict):
            for key, value in zip(items[1].keys, items[1].values, strict=True):
                if isinstance(key, ast.Constant) and isinstance(key.value, str):
                    named[key.value] = literal(value)
            items = items[0].elts
        return Arguments([literal(item) for item in items], named)


FACTORIES = {
    "randint": "int64",
    "randperm": "int64",
    "arange": "int64",
    **dict.fromkeys(("rand", "randn", "zeros", "ones", "empty", "full", "normal"), "float32"),
    **dict.fromkeys(("tensor", "linspace", "eye", "rand_like", "randn_like"), "float32"),
}
"""torch functions that make an input -> the dtype that they give unless told."""
DTYPE_METHODS = {
    "half": "float16",
    "float": "float32",
    "double": "float64",
    "bfloat16": "bfloat16",
    "long": "int64",
    "int": "int32",
    "bool": "bool",
}
DTYPES = frozenset(
    (
        *("float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8"),
        *("uint8", "bool", "float8_e4m3fn", "float8_e5m2"),
    )
)


@dataclass(frozen=True)
class InputFacts:
    """What `get_inputs` says: the first tensor's rank, and the dtypes in order."""

    rank: int | None = None
    dtypes: tuple[str, ...] = ()


def inputs_of(tree: ast.Module) -> InputFacts:
    """Rank and dtypes from the literals of `get_inputs`; floating dtypes first, none twice."""
    function = next(
        (
            item
            for item in tree.body
            if isinstance(item, ast.FunctionDef) and item.name == "get_inputs"
        ),
        None,
    )
    if function is None:
        return InputFacts()
    made: dict[str, ast.expr] = {}
    for node in [*tree.body, *ast.walk(function)]:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            made[node.targets[0].id] = node.value
    answers = [node.value for node in ast.walk(function) if isinstance(node, ast.Return)]
    items = _elements(answers[-1], made) if answers else []
    found = [fact for item in items if (fact := _input_fact(item, made))]
    names = dict.fromkeys(name for _, name in found)
    return InputFacts(
        rank=found[0][0] if found else None,
        dtypes=tuple(sorted(names, key=lambda name: "float" not in name)),
    )


def _elements(node: ast.expr | None, made: Mapping[str, ast.expr]) -> list[ast.expr]:
    if isinstance(node, ast.Name) and node.id in made:
        node = made[node.id]
    if isinstance(node, ast.List | ast.Tuple):
        return list(node.elts)
    return [] if node is None else [node]


def _input_fact(node: ast.expr, made: Mapping[str, ast.expr]) -> tuple[int | None, str] | None:
    """(rank, dtype) of one input expression; None where no factory call is found in it."""
    dtype = ""
    for _ in range(12):
        if isinstance(node, ast.Name) and node.id in made:
            node = made[node.id]
        elif isinstance(node, ast.BinOp):
            node = node.left if _has_call(node.left) else node.right
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            name = node.func.attr
            dtype = dtype or _dtype_argument(node) or DTYPE_METHODS.get(name, "")
            if name in FACTORIES:
                return _factory_rank(node, name, made), dtype or FACTORIES[name]
            node = node.func.value
            if isinstance(node, ast.Name) and node.id not in made:
                return None
        else:
            return None
    return None


def _has_call(node: ast.expr) -> bool:
    return any(isinstance(item, ast.Call | ast.Name) for item in ast.walk(node))


def _dtype_argument(call: ast.Call) -> str:
    named = [item.value for item in call.keywords if item.arg == "dtype"]
    for value in [*named, *call.args]:
        if isinstance(value, ast.Attribute) and value.attr in DTYPES | DTYPE_METHODS.keys():
            return DTYPE_METHODS.get(value.attr, value.attr)
    return ""


def _factory_rank(call: ast.Call, name: str, made: Mapping[str, ast.expr]) -> int | None:
    if name in ("arange", "randperm", "linspace"):
        return 1
    sizes = [item for item in call.args if not isinstance(item, ast.Attribute)]
    sizes = [item.value for item in call.keywords if item.arg == "size"] or sizes
    for item in sizes:
        value = made.get(item.id) if isinstance(item, ast.Name) else item
        if isinstance(value, ast.List | ast.Tuple):
            return _depth(value) if name == "tensor" else len(value.elts)
    return None if name in ("full", "tensor", "randint", "normal") else len(sizes) or None


def _depth(node: ast.expr) -> int:
    inner = node.elts[0] if isinstance(node, ast.List | ast.Tuple) and node.elts else None
    return 0 if not isinstance(node, ast.List | ast.Tuple) else 1 + (_depth(inner) if inner else 0)


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
    ("shape", "dtype", "device", "ndim", "is_cuda", "requires_grad", "layout")
)
HOST_METHODS = frozenset(
    (
        *("size", "dim", "numel", "item", "tolist", "stride", "type", "is_contiguous"),
        "get_device",
    )
)
HOST_FUNCTIONS = frozenset(
    ("len", "int", "float", "bool", "str", "range", "isinstance", "getattr", "print")
)
SAME_ITEMS = frozenset(("list", "tuple", "reversed", "iter", "next", "sorted"))
TRANSPOSED = frozenset(("T", "mT", "H", "mH"))
RETURNS_ITSELF = frozenset(
    (
        *("to", "cuda", "cpu", "half", "float", "double", "bfloat16", "type", "eval", "train"),
        *("requires_grad_", "share_memory", "compile"),
    )
)
"""Methods of a module that give the module back."""
PARAMETERS = frozenset(("Parameter", "Buffer"))
LISTS = frozenset(("Sequential", "ModuleList", "ParameterList"))
DICTIONARIES = frozenset(("ModuleDict", "ParameterDict"))
RECURRENT = frozenset(("LSTM", "GRU", "RNN"))
DIAGONALS = frozenset(("diag", "diag_embed", "diagflat"))
PRODUCTS = frozenset(("mm", "matmul", "bmm"))
"""Contractions; with a diagonal matrix each scales rows or columns and sums nothing."""
PAIRED = {"max": "maximum", "min": "minimum"}
"""Reductions of one tensor -> what they are over two, elementwise."""


class LimitReached(Exception):
    """The bound on ops or steps is met: what was found so far stands."""


class OpRecord:
    """The ops that are called while `emits` is set, in order, `most` of them."""

    def __init__(self, rank: int | None, most: int) -> None:
        self.ops: list[str] = []
        self.reductions: list[ReductionClass] = []
        self.emits = False
        self._rank = rank
        self._most = most

    def emit(self, ops: Iterable[str], dims: Sequence[int] | None = None) -> Tensor:
        """Note the ops of one call. Raises Full."""
        if self.emits:
            for op in ops:
                if len(self.ops) >= self._most:
                    raise LimitReached
                self.ops.append(op)
                self.reductions.append(reduction_of(op, dims, self._rank))
        return TENSOR

    def unknown(self, given: Iterable[Value]) -> Value:
        """What an unknown function gives: a tensor for a tensor."""
        return TENSOR if self.emits and any_tensor(given) else HOST

    def operator(self, kind: type[ast.AST], sides: list[Value]) -> Value:
        """`sides` joined by an operator of Python's syntax."""
        if kind is ast.MatMult and DIAGONAL in sides:
            return self.emit(["mul"])
        if any_tensor(sides):
            op = canonical_op(OPERATORS.get(kind, ""))
            return self.emit([op]) if op else TENSOR
        lists = [side for side in sides if isinstance(side, ValueList)]
        if kind is ast.Add and len(lists) == len(sides):
            return ValueList([item for side in lists for item in side.items])
        return lists[0] if kind is ast.Mult and lists else HOST

    def named(self, name: str, given: Arguments) -> Value:
        """A call of an imported name: a torch function, a torch module, or something unknown."""
        tail = name.rsplit(".", 1)[-1]
        if tail in PARAMETERS:
            return TENSOR
        if tail in LISTS:
            return _container(tail, given.placed)
        other = ("torch.distributed", "torch.utils")
        if not name.startswith(("torch.", "einops.")) or name.startswith(other):
            return self.unknown(given.all)
        if tail[:1].isupper():
            return _torch_module(name, tail, given)
        if name.startswith("torch.nn.init."):
            return TENSOR
        return self._function(name, given)

    def method(self, owner: Tensor, name: str, given: Arguments) -> Value:
        """A call of a tensor's method."""
        if name in HOST_METHODS:
            return HOST
        given = given._replace(placed=[owner, *given.placed])
        return self._function(f"Tensor.{name}", given)

    def _function(self, name: str, given: Arguments) -> Value:
        tail = name.rsplit(".", 1)[-1]
        dims = called_dims(given)
        equation = given.first
        if tail == "einsum" and isinstance(equation, HostValue) and isinstance(equation.value, str):
            return self.emit(einsum_ops(equation.value), (-1,))
        if tail in DIAGONALS and any_tensor(given.all):
            self.emit(expansion(name), dims)
            return DIAGONAL
        if tail in PRODUCTS and DIAGONAL in given.placed:
            return self.emit(["mul"])
        if tail in PAIRED and len(given.placed) > 1 and isinstance(given.placed[1], Tensor):
            return self.emit([PAIRED[tail]])
        if tail in FACTORIES:
            return self.emit(expansion(name) if tail.endswith("_like") else (), dims)
        if not any_tensor(given.all):
            return HOST if tail.startswith(("is_", "get_", "finfo", "iinfo")) else TENSOR
        return self.emit(expansion(name), dims)

    def builtin(self, name: str, given: Arguments) -> Value:
        """A call of a name that neither the file nor an import defines."""
        first = given.first
        if name in SAME_ITEMS:
            return first
        if name == "enumerate" and isinstance(first, ValueList):
            numbered = enumerate(first.items)
            return ValueList(
                [ValueList([HostValue(index, known=True), item]) for index, item in numbered]
            )
        if name == "zip" and given.placed and all(isinstance(it, ValueList) for it in given.placed):
            columns = [item.items for item in given.placed if isinstance(item, ValueList)]
            return ValueList([ValueList(list(row)) for row in zip(*columns, strict=False)])
        if name in ("abs", "pow", "round") and isinstance(first, Tensor):
            return self.emit(expansion(name))
        items = first.items if isinstance(first, ValueList) else [first]
        if name in ("sum", *PAIRED) and any_tensor(items):
            return self.emit([PAIRED.get(name, "add")])
        return HOST if name in HOST_FUNCTIONS else self.unknown(given.placed)


def list_method(owner: ValueList, name: str, given: Arguments) -> Value:
    """A call of a method of a list or of a container of modules."""
    first = given.first
    if name == "append":
        owner.extend([first])
    elif name == "insert" and len(given.placed) > 1:
        owner.items.insert(0, given.placed[1])
        del owner.items[MOST_ITEMS:]
    elif name == "extend" and isinstance(first, ValueList):
        owner.extend(first.items)
    elif name in ("values", "items", "children", "modules"):
        return owner
    elif name in ("pop", "get") and owner.items:
        return owner.items[-1]
    elif name == "add_module" and len(given.placed) > 1:
        owner.extend([given.placed[1]])
    return HOST


def called_dims(given: Arguments, start: int = 1) -> tuple[int, ...] | None:
    """The dimensions that a call names: `dim=`, `axis=`, or the first whole numbers by place from
    `start` on (a function's first argument is its tensor)."""
    for name in ("dim", "axis"):
        if name in given.named:
            return _integers(given.named[name])
    places = (_integers(item) for item in given.placed[start : start + 2])
    return next((found for found in places if found is not None), None)


def _container(name: str, given: Sequence[Value]) -> ValueList:
    """A list of modules; of a list of pairs (a name and a module) the modules."""
    items = list(given)
    if len(items) == 1 and isinstance(items[0], ValueList):
        items = [
            item.items[-1]
            if isinstance(item, ValueList) and not item.chained and item.items
            else item
            for item in items[0].items
        ]
    return ValueList(items, chained=name == "Sequential")


def _torch_module(name: str, tail: str, given: Arguments) -> Value:
    if tail in DICTIONARIES:
        return given.placed[0] if given.placed else ValueList([])
    if tail not in RECURRENT and not name.startswith("torch.nn"):
        return HOST
    takes_dim = "oftm" in tail or tail in ("GLU", "CosineSimilarity")
    dims = called_dims(given, 0) if takes_dim else None
    return Op(expansion(name), (-3,) if tail == "Softmax2d" else dims, is_module=True)


def _integers(value: Value) -> tuple[int, ...] | None:
    items = value.items if isinstance(value, ValueList) else [value]
    found = [item.value for item in items if isinstance(item, HostValue) and item.known]
    whole = tuple(item for item in found if type(item) is int)
    return whole if whole and len(whole) == len(items) else None
