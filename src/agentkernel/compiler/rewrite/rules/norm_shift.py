"""Which constants does a norm cancel?

Derivation: a norm takes the mean over a group of elements off them: (x + c) - mean(x + c) = x -
mean(x), and the variance does not see c either, for every c that is the same within the group.
Layer norm: the normalised dimensions. Instance norm: the space of one channel, so a convolution's
bias goes. Group norm: channels and space of one group, so a bias goes only where each channel is
its own group. Batch norm with batch statistics: batch and space of one channel; its running mean
m' = (1 - k) m + k mean(x + c) gets its share back: m' = [(1 - k) m + k mean(x)] + k c. The same
for x - mean(x) and var(x) written out.
Conditions: c is finite: a number, made of parameters, or a bias. Not for RMS norm, which has no
mean, and not for running statistics that are read.
NaN and infinities: with c finite an element is infinite or NaN with c where it is without; such a
group is NaN in both.
Rounding: x + c rounds x; without it the result is nearer to the truth.
"""

from __future__ import annotations

import operator

import torch
from torch.fx import Node

from agentkernel.compiler.rewrite.draft import Draft
from agentkernel.compiler.rewrite.reading import (
    argument,
    floating,
    is_number,
    op_of,
    rank,
    shape,
    static,
)
from agentkernel.compiler.rewrite.record import Change, Rule
from agentkernel.compiler.rewrite.reductions import reduced, sum_of
from agentkernel.compiler.rewrite.rules.shifts import Shift, shift_of

aten = torch.ops.aten
FUNCTIONAL = "_native_batch_norm_legit_functional.default"
STATELESS = "_native_batch_norm_legit.no_stats"
NEW_MEAN = 3
"""Place of the new running mean among the results of FUNCTIONAL; 1 is the batch's mean."""


def _drop_norm_shift(draft: Draft, node: Node) -> Change | None:
    if not node.args or not floating(node.args[0]):
        return None
    if op_of(node) == "sub.Tensor":
        return _centred(draft, node)
    dims = _cancelled(node)
    shift = shift_of(draft, node.args[0], dims) if dims else None
    if shift is None:
        return None
    if op_of(node) in (FUNCTIONAL, STATELESS):
        return _batch(draft, node, shift)
    new = draft.call(node.target, shift.rest, *node.args[1:], **node.kwargs)  # type: ignore[arg-type]
    return Change(_line(node, shift), {node: new})


def _cancelled(node: Node) -> tuple[int, ...]:
    """The dimensions of the group whose mean is taken off; none for what is no such norm."""
    name, full = op_of(node), rank(node.args[0])  # type: ignore[arg-type]
    if name == "layer_norm.default":
        sizes = argument(node, "normalized_shape")
        return tuple(range(full - len(sizes), full)) if isinstance(sizes, list | tuple) else ()
    if name == "group_norm.default":
        channels = static(shape(node.args[0])[1])  # type: ignore[arg-type]
        return tuple(range(2 if argument(node, "num_groups") == channels else 1, full))
    if name == "instance_norm.default":
        own = argument(node, "use_input_stats") is True and argument(node, "running_mean") is None
        return tuple(range(2, full)) if own else ()
    if name in (FUNCTIONAL, STATELESS):
        return (0, *range(2, full)) if argument(node, "training") is True else ()
    if name in ("var.correction", "std.correction", "var.dim", "std.dim"):
        dims = argument(node, "dim")
        listed = dims if isinstance(dims, list | tuple) and dims else range(full)
        return tuple(sorted(dim % full for dim in listed if isinstance(dim, int)))
    return ()


def _batch(draft: Draft, node: Node, shift: Shift) -> Change | None:
    """Batch norm: every result is read through getitem, and the new running mean gets c back."""
    momentum = argument(node, "momentum")
    places = [user.args[1] for user in node.users if op_of(user) == "getitem"]
    if 1 in places or len(places) != len(node.users) or not is_number(momentum):
        return None
    new = draft.call(node.target, shift.rest, *node.args[1:], **node.kwargs)  # type: ignore[arg-type]
    replaced: dict[Node, Node] = {}
    for user in node.users:
        part = draft.call(operator.getitem, new, user.args[1])
        if user.args[1] == NEW_MEAN:
            part = _given_back(draft, part, shift, momentum)
        replaced[user] = part
    line = _line(node, shift)
    if NEW_MEAN in places:
        line += f"; the running mean gets {momentum:g} c back"
    return Change(line, replaced)


def _given_back(draft: Draft, mean: Node, shift: Shift, momentum: float) -> Node:
    share = -momentum if shift.negative else momentum
    if not isinstance(shift.constant, Node):
        return draft.call(aten.add.Tensor, mean, share * shift.constant)
    vector = draft.call(aten.reshape.default, shift.constant, [-1])
    return draft.call(aten.add.Tensor, mean, draft.call(aten.mul.Tensor, vector, share))


def _centred(draft: Draft, node: Node) -> Change | None:
    """x - mean(x) written out."""
    x, mean = node.args[:2]
    found = sum_of(mean) if isinstance(mean, Node) else None
    if found is None or found.kind != "mean" or found.x is not x or not found.keep:
        return None
    shift = shift_of(draft, found.x, found.dims) if not node.kwargs else None
    if shift is None:
        return None
    centre = reduced(draft, "mean", shift.rest, found.dims)
    new = draft.call(aten.sub.Tensor, shift.rest, centre)
    return Change(
        f"{node.name}: (x + c) - mean(x + c) = x - mean(x), c = {shift.word}", {node: new}
    )


def _line(node: Node, shift: Shift) -> str:
    word = op_of(node).split(".")[0].removeprefix("_native_").removesuffix("_legit_functional")
    return f"{node.name}: {word.removesuffix('_legit')}(x + c) = the same of x, c = {shift.word}"


NORM_SHIFT = Rule("norm shift", _drop_norm_shift)
