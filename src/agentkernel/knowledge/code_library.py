"""What do torch, Python's own functions and lists give, when a module's source calls them?"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping, Sequence

from agentkernel.domain.knowledge import ReductionClass
from agentkernel.knowledge.code_inputs import FACTORIES
from agentkernel.knowledge.code_values import (
    DIAGONAL,
    HOST,
    MOST_ITEMS,
    TENSOR,
    Arguments,
    HostValue,
    Op,
    Tensor,
    Value,
    ValueList,
    any_tensor,
)
from agentkernel.knowledge.op_names import (
    canonical_op,
    einsum_ops,
    expansion,
    reduction_of,
)

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
