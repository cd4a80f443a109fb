"""NaN and infinities of the inputs that an element of the output does not depend on.

0 * NaN, as behind the mask of an attention, makes eager's element NaN by accident of its
algorithm; a candidate may have the NaN or what the element is without it. Which of the NaN and
infinities matter to an element is found one at a time, with finite values in place of the
others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import cast

import torch

from agentkernel.tools.judge.reference.attention import (
    AttentionCalls,
    operands,
    scores_of,
)

STAND_INS = (0.625, -0.75, 2.5, -3.25)
"""Finite values in place of NaN and infinity, of both signs and several sizes."""
GOLDEN = 0.6180339887
MOST_HOLES = 16
MOST_KINDS = 32
"""Sets of holes that matter to some element: of more, the rest are left as eager has them."""
Holes = dict[int, torch.Tensor]
"""By the number of an input: the places of its NaN and infinities in its flat order (int64)."""
Run = Callable[[Sequence[object]], list[object]]


def without_unused_nan(
    exact: list[object], leaves: Sequence[object], inputs: Sequence[object], run: Run
) -> list[object]:
    """`exact`, the fp64 outputs; where an element is NaN or infinite in it and in eager's `leaves`,
    it is what it is without the holes that do not matter to it. `run` gives fp64 outputs."""
    holes = _holes(inputs)
    if not holes:
        return exact
    tries = [run(_filled(inputs, holes, _scattered(holes, turn))) for turn in range(len(STAND_INS))]
    special = [_special(value, leaf) for value, leaf in zip(exact, leaves, strict=True)]
    same = [_same(values) for values in zip(*tries, strict=True)]
    found = _merged(exact, tries[0], [_both(a, b) for a, b in zip(special, same, strict=True)])
    left = [_both(a, _not(b)) for a, b in zip(special, same, strict=True)]
    some = any(item is not None and bool(item.any()) for item in left)
    count = sum(len(places) for places in holes.values())
    if not some or not 2 <= count <= MOST_HOLES:
        return found
    one_by_one = [
        (number, place) for number, places in holes.items() for place in range(len(places))
    ]
    matters = [_matters(inputs, holes, hole, tries[0], run) for hole in one_by_one]
    for kind in _kinds(matters, left):
        counts = dict(zip(one_by_one, kind, strict=True))
        spared = _spared(holes, counts)
        if spared:
            values = {
                number: places.new_full((len(places),), STAND_INS[0], dtype=torch.float64)
                for number, places in spared.items()
            }
            found = _merged(
                found, run(_filled(inputs, spared, values)), _where(matters, left, kind)
            )
    return found


def _spared(holes: Holes, counts: Mapping[tuple[int, int], bool]) -> Holes:
    """The holes that do not count."""
    found: Holes = {}
    for number, places in holes.items():
        kept = [place for place in range(len(places)) if not counts[number, place]]
        if kept:
            found[number] = places[kept]
    return found


def without_specials(inputs: Sequence[object]) -> list[object]:
    """`inputs` with finite values in place of their NaN and infinities."""
    holes = _holes(inputs)
    return _filled(inputs, holes, _scattered(holes, 0))


def _scattered(holes: Holes, turn: int) -> dict[int, torch.Tensor]:
    """A value for each hole (fp64), of a size of its own in every turn: what a row of one value
    gives, as a softmax of it does, says nothing about whether it depends on the row."""
    values: dict[int, torch.Tensor] = {}
    first = 1
    for number, places in holes.items():
        order = torch.arange(first, first + len(places), device=places.device, dtype=torch.float64)
        values[number] = STAND_INS[turn] * (1 + (turn + 1) * order * GOLDEN % 1)
        first += len(places)
    return values


class MaskedKeysRemoved(AttentionCalls):
    """Attention in which a key that a mask of truth values leaves out is left out: torch adds -inf
    to its score, which makes NaN of one that is infinite."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = False

    def attend(self, named: Mapping[str, object]) -> torch.Tensor | None:
        """Masked attention by its definition."""
        keep = named.get("attn_mask")
        masked = keep.dtype == torch.bool if isinstance(keep, torch.Tensor) else False
        if not (masked or (keep is None and named.get("is_causal"))):
            return None
        self.seen = True
        query, key, value = operands(named)
        scores = scores_of(named, query, key)
        nothing = (scores == -torch.inf).all(-1, keepdim=True)
        return torch.where(nothing, 0.0, scores.softmax(-1)) @ value


def without_masked_keys(
    exact: list[object], leaves: Sequence[object], inputs: Sequence[object], run: Run
) -> list[object]:
    """`exact`; where an element is NaN or infinite in it and in eager's `leaves`, it is what it is
    where masked keys are left out, if that is a number."""
    if not _holes(inputs):
        return exact
    mode = MaskedKeysRemoved()

    def apart(given: Sequence[object]) -> list[object]:
        with mode:
            return run(given)

    others = apart(inputs)
    if not mode.seen:
        return exact
    others = without_unused_nan(others, leaves, inputs, apart)
    special = [_special(value, leaf) for value, leaf in zip(exact, leaves, strict=True)]
    numbers = [
        None if x is None else cast("torch.Tensor", y).isfinite()
        for x, y in zip(special, others, strict=True)
    ]
    return _merged(exact, others, [_both(a, b) for a, b in zip(special, numbers, strict=True)])


def _matters(
    inputs: Sequence[object],
    holes: Holes,
    hole: tuple[int, int],
    base: Sequence[object],
    run: Run,
) -> list[torch.Tensor | None]:
    """Where each output changes with the value in place of `hole`: an input, and which of its."""
    moved = []
    for size in STAND_INS[1:]:
        values = _scattered(holes, 0)
        values[hole[0]][hole[1]] = size
        moved.append(run(_filled(inputs, holes, values)))
    return [_not(_same(values)) for values in zip(base, *moved, strict=True)]


def _kinds(
    matters: Sequence[Sequence[torch.Tensor | None]], left: Sequence[torch.Tensor | None]
) -> list[tuple[bool, ...]]:
    """The sets of holes that matter to the elements that are `left`."""
    kinds: dict[tuple[bool, ...], None] = {}
    for index, where in enumerate(left):
        if where is not None and bool(where.any()):
            masks = torch.stack([cast("torch.Tensor", one[index])[where] for one in matters])
            kinds |= {tuple(kind): None for kind in torch.unique(masks.T, dim=0).tolist()}
    return list(kinds)[:MOST_KINDS]


def _where(
    matters: Sequence[Sequence[torch.Tensor | None]],
    left: Sequence[torch.Tensor | None],
    kind: Sequence[bool],
) -> list[torch.Tensor | None]:
    """The elements that are `left`, to which just the holes of `kind` matter."""
    found: list[torch.Tensor | None] = []
    for index, where in enumerate(left):
        for one, counts in zip(matters, kind, strict=True):
            mask = one[index]
            where = _both(where, mask if counts else _not(mask))
        found.append(where)
    return found


def _merged(
    values: Sequence[object], others: Sequence[object], where: Sequence[torch.Tensor | None]
) -> list[object]:
    return [
        value
        if mask is None
        else torch.where(mask, cast("torch.Tensor", other), cast("torch.Tensor", value))
        for value, other, mask in zip(values, others, where, strict=True)
    ]


def _special(value: object, leaf: object) -> torch.Tensor | None:
    """Where both are NaN or infinite; None for what is no floating tensor."""
    if not isinstance(value, torch.Tensor) or not value.dtype.is_floating_point:
        return None
    return ~value.isfinite() & ~cast("torch.Tensor", leaf).isfinite()


def _same(values: Sequence[object]) -> torch.Tensor | None:
    """Where all of them agree."""
    first, *rest = values
    if not isinstance(first, torch.Tensor) or not first.dtype.is_floating_point:
        return None
    close = [torch.isclose(first, cast("torch.Tensor", x), rtol=1e-9, atol=0.0) for x in rest]
    return torch.stack(close).all(0)


def _both(one: torch.Tensor | None, other: torch.Tensor | None) -> torch.Tensor | None:
    return None if one is None or other is None else one & other


def _not(value: torch.Tensor | None) -> torch.Tensor | None:
    return None if value is None else ~value


def _holes(inputs: Sequence[object]) -> Holes:
    """The elements that are NaN or infinite. There may be millions, where a size that fp16 does
    not reach is given: they stay on their device."""
    found: Holes = {}
    for number, item in enumerate(inputs):
        if isinstance(item, torch.Tensor) and item.dtype.is_floating_point:
            places = (~item.isfinite()).reshape(-1).nonzero().reshape(-1)
            if len(places):
                found[number] = places
    return found


def _filled(
    inputs: Sequence[object], holes: Holes, values: Mapping[int, torch.Tensor]
) -> list[object]:
    """`inputs` with finite values in place of `holes`."""
    found = list(inputs)
    for number, places in holes.items():
        item = cast("torch.Tensor", inputs[number])
        flat = item.reshape(-1).clone()
        flat[places] = values[number].to(flat.dtype)
        found[number] = flat.reshape(item.shape)
    return found
