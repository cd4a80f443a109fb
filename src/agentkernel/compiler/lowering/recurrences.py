"""Lowerings of recurrent layers to products of all their inputs and kernels that step through time.

The products with the inputs of the first layer are one product for all steps. What follows it is
one node of the IR for a stack of layers, or, where layers run in both directions, one a layer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import sympy

from agentkernel.compiler.ir import Node, Shape, UnsupportedOp
from agentkernel.compiler.lowering.data_movement import joined
from agentkernel.compiler.lowering.products import linear, multiplied
from agentkernel.compiler.lowering.registry import Lowered, Lowering, lowers
from agentkernel.compiler.recurrence import GATES, RECURRENCE, Cell, Recurrence

MOST_HIDDEN = 16384
"""Beyond it a weight has more elements than 32 bits count."""


class _Call(NamedTuple):
    """A call of a recurrent layer, without its mode and dropout. `begin`: its first states and, of
    an LSTM, cells."""

    cell: Cell
    x: Node
    begin: Sequence[Node]
    weights: Sequence[Node]
    biased: bool
    layers: int
    bidirectional: bool
    batch_first: bool

    @property
    def sets(self) -> list[Sequence[Node]]:
        """The weights of each layer and direction."""
        each = 4 if self.biased else 2
        return [self.weights[at : at + each] for at in range(0, len(self.weights), each)]


@lowers("lstm.input")
def _lstm(
    state: Lowering, x: Node, begin: Sequence[Node], weights: Sequence[Node], biased: bool,
    layers: int, dropout: float, train: bool, bidirectional: bool, batch_first: bool,
) -> Lowered:  # fmt: skip
    call = _Call("lstm", x, begin, weights, biased, layers, bidirectional, batch_first)
    return _lowered(state, call, dropout if train else 0.0)


@lowers("gru.input", "rnn_tanh.input", "rnn_relu.input")
def _plain(
    state: Lowering, x: Node, begin: Node, weights: Sequence[Node], biased: bool,
    layers: int, dropout: float, train: bool, bidirectional: bool, batch_first: bool,
) -> Lowered:  # fmt: skip
    assert state.call is not None
    name = str(state.call.target)
    cell: Cell = "gru" if "gru" in name else "tanh" if "tanh" in name else "relu"
    call = _Call(cell, x, [begin], weights, biased, layers, bidirectional, batch_first)
    return _lowered(state, call, dropout if train else 0.0)


def _lowered(state: Lowering, call: _Call, dropped: float) -> Lowered:
    """The results. Raises UnsupportedOp where the layer is not to be stepped through by kernels of
    ours."""
    name, hidden = str(state.call.target) if state.call else "", call.weights[1].shape[1]
    if not state.stepped:
        raise UnsupportedOp(name, "left to the library")
    if dropped:
        raise UnsupportedOp(name, "it draws random numbers")
    if len(call.weights) != (4 if call.biased else 2) * call.layers * (1 + call.bidirectional):
        raise UnsupportedOp(name, "projections of its states")
    if len(call.x.shape) != 3 or not all(multiplied(call.x, weight) for weight in call.weights):
        raise UnsupportedOp(name, "of these types or dimensions")
    if not hidden.is_number or int(hidden) > MOST_HIDDEN:
        raise UnsupportedOp(name, "a width of its states that is free, or large")
    if call.batch_first and _returned_and_read(state):
        # Eager's outputs lie step after step, which only their copy does for those who read them.
        turned = state.b.permute(call.x, (1, 0, 2))
        output, *last = _stacked(state, call._replace(x=turned, batch_first=False))
        return (state.b.permute(output, (1, 0, 2)), *last)
    return _stacked(state, call)


def _stacked(state: Lowering, call: _Call) -> tuple[Node, ...]:
    """The outputs, the last states and, of an LSTM, the last cells."""
    if not call.bidirectional:
        form = Recurrence(call.cell, call.layers, 1, call.biased, call.batch_first)
        return _run(state, form, call.x, call.begin, call.sets)
    form, x = Recurrence(call.cell, 1, 2, call.biased, call.batch_first), call.x
    ends: list[tuple[Node, ...]] = []
    for layer in range(0, 2 * call.layers, 2):
        states = [_cut(state, item, layer) for item in call.begin]
        x, *last = _run(state, form, x, states, call.sets[layer : layer + 2])
        ends.append(tuple(last))
    return (x, *(_all(state, item) for item in zip(*ends, strict=True)))


def _returned_and_read(state: Lowering) -> bool:
    """Whether forward returns the outputs as they are and somebody else reads them."""
    assert state.call is not None
    outputs = [item for item in state.call.users if item.args[1:] == (0,)]
    users = {user.op for item in outputs for user in item.users}
    return "output" in users and len(users) > 1


def _cut(state: Lowering, states: Node, first: int) -> Node:
    """The states of both directions of a layer."""
    shape = (sympy.Integer(2), *states.shape[1:])
    if states.root.kind == "constant":
        ones = (sympy.Integer(1),) * len(shape)
        return state.b.expand(state.b.reshape(states.root, ones), shape)
    return state.b.slice(states, 0, sympy.Integer(first), sympy.Integer(2))


def _all(state: Lowering, pieces: Sequence[Node]) -> Node:
    """The last states of all layers."""
    if len(pieces) == 1:
        return pieces[0]
    count = sympy.Integer(2 * len(pieces))
    return joined(state, pieces, 0, (count, *pieces[0].shape[1:]))


def _run(
    state: Lowering, form: Recurrence, x: Node, begin: Sequence[Node],
    weights: Sequence[Sequence[Node]],
) -> tuple[Node, ...]:  # fmt: skip
    """One node for the layers of `form`, with a field for each result."""
    first = weights[: form.directions]
    gates = [linear(state, x, item[0], item[2] if form.biased else None) for item in first]
    later = [
        weight
        for slot, item in enumerate(weights)
        for weight in (item if slot >= form.directions else item[1::2])
    ]
    hidden = weights[0][1].shape[1]
    rows = x.shape[0] if form.batch_first else x.shape[1]
    args = [
        *gates,
        *(state.written_out(item, name) for item, name in zip(begin, ("h_0", "c_0"), strict=False)),
        *later,
    ]
    outside: Shape = (*x.shape[:2], form.directions * hidden)
    node = state.b.library(RECURRENCE, args, x.dtype, outside, form)
    last: Shape = (sympy.Integer(form.slots), rows, hidden)
    shapes = (outside, last, last) if form.cell == "lstm" else (outside, last)
    assert gates[0].shape[-1] == GATES[form.cell] * hidden
    return tuple(state.b.part(node, at, x.dtype, shape) for at, shape in enumerate(shapes))
