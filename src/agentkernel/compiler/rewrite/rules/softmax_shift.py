"""Which constants does a softmax forget?

Derivation: softmax(x + c)_i = exp(x_i) exp(c) / sum_j exp(x_j) exp(c) = softmax(x)_i for every c
that is the same along the dimension, and log_softmax likewise.
Conditions: c is a number, made of parameters alone, a bias that does not vary along the dimension,
or minus the maximum of x along it.
NaN and infinities: c is finite, so x + c is infinite or NaN where x is. Where max(x) is +inf or
NaN, x - max(x) has NaN and its softmax is NaN, as softmax(x) is; a row of -inf is NaN in both.
Rounding: x + c rounds x; without it the result is nearer to the truth.
"""

from __future__ import annotations

from torch.fx import Node

from agentkernel.compiler.rewrite.draft import Draft
from agentkernel.compiler.rewrite.reading import argument, floating, op_of, rank
from agentkernel.compiler.rewrite.record import Change, Rule
from agentkernel.compiler.rewrite.rules.shifts import shift_of

SOFTMAXES = ("softmax.int", "_softmax.default", "log_softmax.int", "_log_softmax.default")


def _drop_softmax_shift(draft: Draft, node: Node) -> Change | None:
    if op_of(node) not in SOFTMAXES or not floating(node.args[0]):
        return None
    x, dim = node.args[0], argument(node, "dim")
    if not isinstance(dim, int):
        return None
    shift = shift_of(draft, x, (dim % rank(x),))
    if shift is None:
        return None
    new = draft.call(node.target, shift.rest, *node.args[1:], **node.kwargs)  # type: ignore[arg-type]
    word = op_of(node).split(".")[0].removeprefix("_")
    return Change(f"{node.name}: {word}(x + c) = {word}(x), c = {shift.word}", {node: new})


SOFTMAX_SHIFT = Rule("softmax shift", _drop_softmax_shift)
