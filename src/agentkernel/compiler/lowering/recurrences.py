"""Lowerings of recurrent layers to products of all their inputs and kernels that step through time.

The products with the inputs of the first layer are one product for all steps. What follows it is
one node of the IR for a stack of layers, or, where layers run in both directions, one a layer.
"""

from __future__ import annotations

from collections.abc import Sequence

import sympy

from agentkernel.compiler.ir import Node, Shape, UnsupportedOp
from agentkernel.compiler.lowering.data_movement import joined
from agentkernel.compiler.lowering.products import linear, multiplied
from agentkernel.compiler.lowering.registry import Lowered, Lowering, lowers
from agentkernel.compiler.recurrence import GATES, RECURRENCE, Cell, Recurrence

MOST_HIDDEN = 16384
"""Beyond it a weight has more elements than 32 bits count."""


@lowers("lstm.input")
def _lstm(
    state: Lowering, x: Node, begin: Sequence[Node], weights: Sequence[Node], biased: bool,
    layers: int, dropout: float, train: bool, bidirectional: bool, batch_first: bool,
) -> Lowered:  # fmt: skip
    _check(state, x, weights, biased, layers, bidirectional, dropout if train else 0.0)
    return _stacked(state, "lstm", x, begin, weights, (biased, layers, bidirectional, batch_first))


@lowers("gru.input", "rnn_tanh.input", "rnn_relu.input")
def _plain(
    state: Lowering, x: Node, begin: Node, weights: Sequence[Node], biased: bool,
    layers: int, dropout: float, train: bool, bidirectional: bool, batch_first: bool,
) -> Lowered:  # fmt: skip
    _check(state, x, weights, biased, layers, bidirectional, dropout if train else 0.0)
    assert state.call is not None
    name = str(state.call.target)
    cell: Cell = "gru" if "gru" in name else "tanh" if "tanh" in name else "relu"
    return _stacked(state, cell, x, [begin], weights, (biased, layers, bidirectional, batch_first))


def _check(
    state: Lowering, x: Node, weights: Sequence[Node], biased: bool, layers: int,
    bidirectional: bool, dropped: float,
) -> None:  # fmt: skip
    """Raise UnsupportedOp where the layer is not to be stepped through by kernels of ours."""
    call = str(state.call.target) if state.call else ""
    each = 4 if biased else 2
    if not state.stepped:
        raise UnsupportedOp(call, "left to the library")
    if dropped:
        raise UnsupportedOp(call, "it draws random numbers")
    if len(weights) != each * layers * (1 + bidirectional):
        raise UnsupportedOp(call, "projections of its states")
    if len(x.shape) != 3 or not all(multiplied(x, weight) for weight in weights):
        raise UnsupportedOp(call, "of these types or dimensions")
    hidden = weights[1].shape[1]
    if not hidden.is_number or int(hidden) > MOST_HIDDEN:
        raise UnsupportedOp(call, "a width of its states that is free, or large")


def _stacked(
    state: Lowering, cell: Cell, x: Node, begin: Sequence[Node], weights: Sequence[Node],
    form: tuple[bool, int, bool, bool],
) -> tuple[Node, ...]:  # fmt: skip
    """The outputs, the last states and, of an LSTM, the last cells."""
    biased, layers, bidirectional, batch_first = form
    if batch_first and _returned_and_read(state):
        # Eager's outputs lie step after step, which only their copy does for those who read them.
        turned = state.b.permute(x, (1, 0, 2))
        form = (biased, layers, bidirectional, False)
        output, *last = _stacked(state, cell, turned, begin, weights, form)
        return (state.b.permute(output, (1, 0, 2)), *last)
    each = 4 if biased else 2
    sets = [weights[at : at + each] for at in range(0, len(weights), each)]
    if not bidirectional:
        return _run(state, Recurrence(cell, layers, 1, biased, batch_first), x, begin, sets)
    ends: list[tuple[Node, ...]] = []
    for layer in range(layers):
        states = [_cut(state, item, 2 * layer) for item in begin]
        one = Recurrence(cell, 1, 2, biased, batch_first)
        x, *last = _run(state, one, x, states, sets[2 * layer : 2 * layer + 2])
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
