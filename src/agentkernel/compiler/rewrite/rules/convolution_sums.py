"""How does a mean over space or over channels move through a convolution to its input or weight?

Derivation: a convolution's output at place p is sum_{c,t} W_oct x[c, p s + t d - pad] + b_o. Over
all p: sum_{c,t} W_oct S_ct + P b_o, where S_ct is the sum of the inputs that tap t meets as the
kernel moves over the borders (`window_sums`), and P the number of places: one small product per
image. A transposed convolution sends x[c, i] by W_cot to i s + t d - pad; S_ct is the sum of the
x[c, i] whose target lies inside the output. Over output channels: sum_o conv(x, W)_o = conv(x,
sum_o W_o).
Conditions: weights made of parameters; all spatial dimensions are reduced, or the channel alone
(groups = 1). With a stride above 1 each tap is summed on its own, so an element may be read more
than once. For sums (not means) with a bias, sizes are static.
NaN and infinities: over space, weights made of parameters meet the same infinities as in eager,
for S_ct holds exactly the elements that tap t meets. Over channels see `folds`.
Rounding: S is summed in fp32 or wider and multiplied as a matrix product, where eager's
convolution rounds its operands to TF32 on the GPUs that have it.
"""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch.fx import Node

from agentkernel.compiler.rewrite.convolutions import (
    CONVOLUTION_OPS,
    TRANSPOSED_OPS,
    Convolution,
    convolution_of,
)
from agentkernel.compiler.rewrite.draft import Draft
from agentkernel.compiler.rewrite.reading import dtype, static_sizes
from agentkernel.compiler.rewrite.record import Change, Rule
from agentkernel.compiler.rewrite.reductions import Reduction, reduced, sum_of
from agentkernel.compiler.rewrite.rules.folds import folded, selected_fold
from agentkernel.compiler.rewrite.rules.window_sums import (
    output_size,
    strided_tap_sums,
    tap_range,
    tap_sums,
)

aten = torch.ops.aten


def _sum_convolution_operands(draft: Draft, node: Node) -> Change | None:
    found = sum_of(node)
    convolution = convolution_of(found.x) if found is not None else None
    if found is None or convolution is None or not draft.parametric(convolution.weight):
        return None
    if not (convolution.bias is None or draft.parametric(convolution.bias)):
        return None
    if set(convolution.space) <= set(found.dims):
        return _over_space(draft, node, found, convolution)
    if found.dims == (1,) and convolution.groups == 1:
        return _over_channels(draft, node, found, convolution)
    return None


def _over_space(
    draft: Draft, node: Node, found: Reduction, convolution: Convolution
) -> Change | None:
    counts = static_sizes(found.x, convolution.space)
    if found.kind == "sum" and convolution.bias is not None and counts is None:
        return None
    if convolution.transposed and convolution.groups != 1:
        return None
    sums = _window_sums(draft, convolution)
    if sums is None:
        return None
    new = _contracted(draft, convolution, sums)
    if found.kind == "mean":
        places = [output_size(draft, convolution, index) for index in range(convolution.n)]
        new = draft.call(aten.div.Tensor, new, draft.product(places))
    if convolution.bias is not None:
        bias = draft.wide(convolution.bias)
        bias = draft.call(aten.view.default, bias, [-1, *[1] * convolution.n])
        if found.kind == "sum":
            bias = draft.call(aten.mul.Tensor, bias, math.prod(counts or ()))
        new = draft.call(aten.add.Tensor, new, bias)
    rest = tuple(dim for dim in found.dims if dim not in convolution.space)
    new = reduced(draft, found.kind, new, rest)
    new = draft.cast(draft.squeeze(new, found.dims, found.keep), dtype(node))
    line = (
        f"{node.name}: {found.word}_p conv(x, W)_p = sum_(c,t) W_ct S_ct"
        f"{' / P' if found.kind == 'mean' else ''}, S_ct: what tap t meets of {convolution.x.name}"
    )
    return Change(line, {node: new})


def _window_sums(draft: Draft, convolution: Convolution) -> Node | None:
    """[B, C, *space] to [B, C, *taps]: what each tap meets, one dimension after the other."""
    sums: Node | None = draft.wide(convolution.x)
    for index in range(convolution.n):
        if sums is None:
            return None
        found = tap_range(convolution, index)
        if found is not None:
            sums = tap_sums(draft, sums, 2 + index, found)
        else:
            sums = strided_tap_sums(draft, sums, convolution, index)
    return sums


def _contracted(draft: Draft, convolution: Convolution, sums: Node) -> Node:
    """[B, C, *taps] times the weight: [B, O, 1, ...]."""
    weight = draft.wide(convolution.weight)
    if convolution.groups != 1:
        ones, zeros = [1] * convolution.n, [0] * convolution.n
        op = CONVOLUTION_OPS[convolution.n]
        return draft.call(op, sums, weight, None, ones, zeros, ones, convolution.groups)
    if convolution.transposed:
        weight = draft.call(aten.transpose.int, weight, 0, 1)
    flat = draft.call(aten.flatten.using_ints, sums, 1)
    rows = draft.call(aten.flatten.using_ints, weight, 1)
    result = draft.call(aten.linear.default, flat, rows)
    for _ in range(convolution.n):
        result = draft.call(aten.unsqueeze.default, result, -1)
    return result


def _over_channels(
    draft: Draft, node: Node, found: Reduction, convolution: Convolution
) -> Change | None:
    outputs = 1 if convolution.transposed else 0
    weight = folded(draft, found.kind, convolution.weight, outputs)
    if dtype(weight) != dtype(convolution.x):
        return None
    both = _again(draft, convolution, weight)
    new = selected_fold(draft, both, 1)
    if convolution.bias is not None:
        bias = reduced(draft, found.kind, convolution.bias, (0,))
        new = draft.call(aten.add.Tensor, new, bias)
    line = f"{node.name}: {found.word}_o conv(x, W)_o = conv(x, {found.word}_o W_o)"
    return Change(line, {node: draft.squeeze(new, found.dims, found.keep)})


def _again(draft: Draft, old: Convolution, weight: Node) -> Node:
    """The convolution with another weight and no bias."""
    given = replace(old, weight=weight)
    if old.transposed:
        return draft.call(TRANSPOSED_OPS[old.n], given.x, weight, None, list(old.stride),
                          list(old.before), list(old.extra), 1, list(old.dilation))  # fmt: skip
    padding = list(old.before) if old.before == old.after else "same"
    op = CONVOLUTION_OPS[old.n] if old.before == old.after else PADDED[old.n]
    return draft.call(op, given.x, weight, None, list(old.stride), padding, list(old.dilation))


PADDED = {1: aten.conv1d.padding, 2: aten.conv2d.padding, 3: aten.conv3d.padding}
CONVOLUTION_SUMS = Rule("convolution sums", _sum_convolution_operands)
