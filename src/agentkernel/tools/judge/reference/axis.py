"""The axis that a graph is sliced along: where values carry it, and what a rule is asked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, cast

import torch
from torch.fx import Node

Combine = Literal["sum", "mean", "counted mean", "max", "min", "prod", "norm", "logsumexp"]


@dataclass(frozen=True)
class Axis:
    """Where a tensor carries the axis: unit u is elements u * `factor` to (u + 1) * `factor` of
    dimension `dim`."""

    dim: int
    factor: int = 1


@dataclass(frozen=True)
class Partial:
    """How the values that the slices give for one node become the whole one. `order` is a norm's;
    `counted` names the target of a loss and the value in it that counts for nothing."""

    combine: Combine
    order: float = 2.0
    counted: tuple[str, int] | None = None


State = Axis | None | tuple["Axis | None", ...]
"""Of a node: where it carries the axis, None where it does not, one for each of several results."""


class NoProof(Exception):
    """An operator at which the slices may meet, or that has no rule."""


class Known:
    """What is known of the nodes: values at full size, where each carries the axis, how reductions
    over it are combined, and which whole operands are cut."""

    def __init__(self, values: Mapping[str, object], states: dict[str, State], extent: int) -> None:
        self.values = values
        self.states = states
        self.extent = extent
        self.partial: dict[str, Partial] = {}
        self.cuts: dict[tuple[str, str], Axis] = {}

    def axis(self, node: Node) -> Axis | None:
        """Where `node` carries the axis; of several results, where any does."""
        state = self.states.get(node.name)
        if isinstance(state, tuple):
            return next((item for item in state if item is not None), None)
        return state

    def plain(self, value: object) -> object:
        """A literal argument, with numbers in place of nodes."""
        if isinstance(value, list | tuple):
            return [self.plain(item) for item in value]
        return self.values.get(value.name) if isinstance(value, Node) else value


@dataclass
class Call:
    """One node: its arguments by name, and what is known of them."""

    proof: Known
    node: Node
    name: str
    given: dict[str, object]
    carriers: list[Node] = field(default_factory=list)

    def axis(self, argument: str) -> Axis | None:
        """Where that argument carries the axis."""
        value = self.given.get(argument)
        return self.proof.axis(value) if isinstance(value, Node) else None

    def shape(self, value: object) -> tuple[int, ...]:
        """Full sizes of a tensor argument or of a node."""
        if isinstance(value, str):
            value = self.given.get(value)
        found = self.proof.values[value.name] if isinstance(value, Node) else value
        return tuple(found.shape) if isinstance(found, torch.Tensor) else ()

    def own_shape(self) -> tuple[int, ...]:
        """Full sizes of the (first) result."""
        found = self.proof.values[self.node.name]
        first = found[0] if isinstance(found, tuple | list) else found
        return tuple(first.shape) if isinstance(first, torch.Tensor) else ()

    def number(self, argument: str, default: int = 0) -> int:
        """An integer argument, a node's value where it is one."""
        value = self.proof.plain(self.given.get(argument))
        return default if value is None else int(cast("int", value))

    def dims(self, argument: str, rank: int) -> list[int]:
        """Dimensions as non-negative numbers; none named means all."""
        value = self.proof.plain(self.given.get(argument))
        if value is None or value == []:
            return list(range(rank))
        names = value if isinstance(value, list | tuple) else [value]
        return [int(cast("int", item)) % max(rank, 1) for item in names]

    def cut(self, argument: object, axis: Axis) -> None:
        """A whole operand meets slices: only its own part of each is used."""
        node = self.given.get(argument) if isinstance(argument, str) else argument
        if not isinstance(node, Node):
            return
        shape = self.shape(node)
        if self.proof.axis(node) is not None or len(shape) <= axis.dim:
            raise self.refused()
        if shape[axis.dim] != self.proof.extent * axis.factor:
            raise self.refused()
        if self.proof.cuts.setdefault((self.node.name, node.name), axis) != axis:
            raise self.refused()

    def each(self, axis: Axis) -> State:
        """`axis` for the result, or for each of several."""
        results = self.proof.values[self.node.name]
        return (axis,) * len(results) if isinstance(results, tuple | list) else axis

    def tensors(self) -> list[Node]:
        """Tensor arguments in order, lists of them opened."""
        found: list[Node] = []
        for value in self.given.values():
            items = value if isinstance(value, list | tuple) else [value]
            tensors = [item for item in items if isinstance(item, Node)]
            found += [n for n in tensors if isinstance(self.proof.values[n.name], torch.Tensor)]
        return found

    def alone(self, *arguments: str) -> None:
        """None but `arguments` carry the axis."""
        allowed = [self.given.get(item) for item in arguments]
        if any(node not in allowed for node in self.carriers):
            raise self.refused()

    def partial(self, combine: Combine, **more: object) -> None:
        """The reduction goes over the axis."""
        self.proof.partial[self.node.name] = Partial(combine, **more)  # type: ignore[arg-type]

    def refused(self) -> NoProof:
        """This operator may bring slices together."""
        return NoProof(f"slices may meet in {self.name}")


Rule = Callable[[Call], State]


def named(rule: Rule, names: str) -> dict[str, Rule]:
    """`rule` for each operator of `names`."""
    return dict.fromkeys(names.split(), rule)
