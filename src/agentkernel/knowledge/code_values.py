"""What can an expression of a module's source stand for, as far as its syntax tells?"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

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
