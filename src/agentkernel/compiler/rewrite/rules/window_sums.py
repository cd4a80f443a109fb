"""For each tap of a kernel, what is the sum of the inputs that it meets, borders included?"""

from __future__ import annotations

import itertools
import operator
from dataclasses import dataclass

import torch
from torch.fx import Node

from agentkernel.compiler.rewrite.convolutions import Convolution
from agentkernel.compiler.rewrite.draft import Draft, Size
from agentkernel.compiler.rewrite.reading import END, shape, static
from agentkernel.compiler.rewrite.reductions import reduced

aten = torch.ops.aten


@dataclass(frozen=True)
class TapRange:
    """Tap t meets all but the first `skipped[t]` and the last `left[t]` elements of a dimension."""

    skipped: tuple[int, ...]
    left: tuple[int, ...]


def tap_range(convolution: Convolution, index: int) -> TapRange | None:
    """What each tap meets along spatial dimension `index`; None where it depends on the size.

    A plain tap t meets x[t d - p], x[t d - p + 1], ...: its first ones lie in the zeros before x,
    and it is the last tap that meets the end. A transposed tap sends x[i] to i s + t d - p, which
    must lie inside the output of (H - 1) s - 2 p + d (k - 1) + e + 1 places.
    """
    k, s, d = (
        item[index] for item in (convolution.kernel, convolution.stride, convolution.dilation)
    )
    before, after = convolution.before[index], convolution.after[index]
    if convolution.transposed:
        room = convolution.extra[index] - after
        first = tuple(max(0, -((t * d - before) // s)) for t in range(k))
        last = tuple(max(0, -((d * (k - 1 - t) + room) // s)) for t in range(k))
        return TapRange(first, last)
    if s != 1:
        return None
    first = tuple(max(0, t * d - before) for t in range(k))
    return TapRange(first, tuple(max(0, (k - 1 - t) * d - after) for t in range(k)))


def tap_sums(draft: Draft, x: Node, dim: int, found: TapRange) -> Node | None:
    """[..., H, ...] to [..., taps, ...]: the sum of what each tap meets along `dim`.

    What all taps meet is summed once; each tap adds the pieces at either end that it meets. Nothing
    is subtracted: no digits are lost, and an infinity counts for the taps that meet it only.
    """
    if draft.size_of(shape(x)[dim]) < max(found.skipped) + max(found.left):
        return None
    core = _part(draft, x, dim, max(found.skipped), -max(found.left) or END)
    starts, ends = _pieces(found.skipped), _pieces(found.left)
    heads = [(low, _part(draft, x, dim, low, high)) for low, high in starts]
    tails = [(low, _part(draft, x, dim, -high, -low or END)) for low, high in ends]
    sums: list[Node] = []
    known: dict[tuple[Node, ...], Node] = {}
    for skipped, left in zip(found.skipped, found.left, strict=True):
        pieces = [piece for low, piece in heads if low >= skipped]
        pieces += [piece for low, piece in tails if low >= left]
        total = core
        met: tuple[Node, ...] = (core,)
        for piece in pieces:
            met = (*met, piece)
            if met not in known:
                known[met] = draft.call(aten.add.Tensor, total, piece)
            total = known[met]
        sums.append(total)
    return stacked(draft, sums, dim)


def _part(draft: Draft, x: Node, dim: int, start: int, end: int) -> Node:
    piece = x if (start, end) == (0, END) else draft.call(aten.slice.Tensor, x, dim, start, end)
    return piece if static(shape(piece)[dim]) == 1 else reduced(draft, "sum", piece, (dim,))


def _pieces(counts: tuple[int, ...]) -> list[tuple[int, int]]:
    """Neighbours among the sorted counts: the pieces that some taps meet and others do not."""
    ordered = sorted(set(counts))
    return list(itertools.pairwise(ordered))


def stacked(draft: Draft, parts: list[Node], dim: int) -> Node:
    """Join along `dim`, where each part has size 1, by choosing: a kernel can fuse that."""
    if len(parts) == 1:
        return parts[0]
    value = parts[0].meta["val"]
    full = range(len(value.shape))
    if len(set(parts)) == 1:
        sizes = [len(parts) if index == dim else -1 for index in full]
        return draft.call(aten.expand.default, parts[0], sizes)
    places = draft.call(aten.arange.default, len(parts), device=value.device)
    sizes = [len(parts) if index == dim else 1 for index in full]
    places = draft.call(aten.view.default, places, sizes)
    result = parts[-1]
    for index in range(len(parts) - 2, -1, -1):
        if parts[index] is result:
            continue
        here = draft.call(aten.eq.Scalar, places, index)
        result = draft.call(aten.where.self, here, parts[index], result)
    return result


def strided_tap_sums(draft: Draft, x: Node, convolution: Convolution, index: int) -> Node:
    """`tap_sums` of a plain convolution with a stride: each tap's own slice, step by step.

    Tap t ends at least d (k - 1 - t) before the end of the padded input, and less than a step
    before that: no further element of its slice lies between.
    """
    k, s, d = (
        item[index] for item in (convolution.kernel, convolution.stride, convolution.dilation)
    )
    before, after = convolution.before[index], convolution.after[index]
    dim = 2 + index
    sums: list[Node] = []
    for tap in range(k):
        start = tap * d - before
        start += -(start // s) * s if start < 0 else 0
        end = -max(0, d * (k - 1 - tap) - after) or END
        piece = draft.call(aten.slice.Tensor, x, dim, start, end, s)
        sums.append(reduced(draft, "sum", piece, (dim,)))
    return stacked(draft, sums, dim)


def output_size(draft: Draft, convolution: Convolution, index: int) -> Size:
    """The number of output places along a spatial dimension."""
    k, s, d = (
        item[index] for item in (convolution.kernel, convolution.stride, convolution.dilation)
    )
    zeros = convolution.before[index] + convolution.after[index]
    size = draft.size(convolution.x, 2 + index)
    if convolution.transposed:
        size = draft.arithmetic(operator.sub, size, 1) if s != 1 else size
        size = draft.arithmetic(operator.mul, size, s) if s != 1 else size
        room = d * (k - 1) + convolution.extra[index] - zeros + (1 if s != 1 else 0)
        return draft.arithmetic(operator.add, size, room) if room else size
    room = zeros - d * (k - 1)
    if s == 1:
        return draft.arithmetic(operator.add, size, room) if room else size
    windows = draft.arithmetic(operator.floordiv, draft.arithmetic(operator.add, size, room - 1), s)
    return draft.arithmetic(operator.add, windows, 1)
