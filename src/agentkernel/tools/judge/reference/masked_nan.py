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
from torch.overrides import TorchFunctionMode

STAND_INS = (0.625, -0.75, 2.5, -3.25)
"""Finite values in place of NaN and infinity, of both signs and several sizes."""
GOLDEN = 0.6180339887
MOST_HOLES = 16
MOST_KINDS = 32
"""Sets of holes that matter to some element: of more, the rest are left as eager has them."""
Hole = tuple[int, int]
"""Which input, and which of its elements."""
Run = Callable[[Sequence[object]], list[object]]


def without_unused_nan(
    exact: list[object], leaves: Sequence[object], inputs: Sequence[object], run: Run
) -> list[object]:
    """`exact`, the fp64 outputs; where an element is NaN or infinite in it and in eager's `leaves`,
    it is what it is without the holes that do not matter to it. `run` gives fp64 outputs."""
    holes = [(number, place) for number, item in enumerate(inputs) for place in _holes(item)]
    if not holes:
        return exact
    tries = [run(_filled(inputs, _scattered(holes, turn))) for turn in range(len(STAND_INS))]
    special = [_special(value, leaf) for value, leaf in zip(exact, leaves, strict=True)]
    same = [_same(values) for values in zip(*tries, strict=True)]
    found = _merged(exact, tries[0], [_both(a, b) for a, b in zip(special, same, strict=True)])
    left = [_both(a, _not(b)) for a, b in zip(special, same, strict=True)]
    some = any(item is not None and bool(item.any()) for item in left)
    if not some or not 2 <= len(holes) <= MOST_HOLES:
        return found
    matters = [_matters(inputs, holes, hole, tries[0], run) for hole in holes]
    for kind in _kinds(matters, left):
        spared = [hole for hole, counts in zip(holes, kind, strict=True) if not counts]
        if spared:
            values = run(_filled(inputs, dict.fromkeys(spared, STAND_INS[0])))
            found = _merged(found, values, _where(matters, left, kind))
    return found


def _scattered(holes: Sequence[Hole], turn: int) -> dict[Hole, float]:
    """A value for each hole, of a size of its own in every turn: what a row of one value gives, as
    a softmax of it does, says nothing about whether it depends on the row."""
    size = STAND_INS[turn]
    return {
        hole: size * (1 + (turn + 1) * (number + 1) * GOLDEN % 1)
        for number, hole in enumerate(holes)
    }


class MaskedKeysRemoved(TorchFunctionMode):
    """Attention in which a key that a mask of truth values leaves out is left out: torch adds -inf
    to its score, which makes NaN of one that is infinite."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = False

    def __torch_function__(  # type: ignore[no-untyped-def] # torch's own signature
        self, func, types, args=(), kwargs=None
    ):
        """Run `func`, or masked attention by its definition."""
        kwargs = dict(kwargs or {})
        if func is not torch.nn.functional.scaled_dot_product_attention:
            return func(*args, **kwargs)
        named = dict(zip(("query", "key", "value", "attn_mask"), args, strict=False)) | kwargs
        keep = named.get("attn_mask")
        if len(args) > 4 or (keep is None and not named.get("is_causal")):
            return func(*args, **kwargs)
        if isinstance(keep, torch.Tensor) and keep.dtype != torch.bool:
            return func(*args, **kwargs)
        self.seen = True
        return _attend(named, keep)


def _attend(named: Mapping[str, object], keep: torch.Tensor | None) -> torch.Tensor:
    query, key, value = (cast("torch.Tensor", named[x]) for x in ("query", "key", "value"))
    if named.get("enable_gqa"):
        key, value = (
            item.repeat_interleave(query.shape[-3] // item.shape[-3], -3) for item in (key, value)
        )
    scale = cast("float | None", named.get("scale")) or query.shape[-1] ** -0.5
    scores = query @ key.transpose(-1, -2) * scale
    if keep is None:
        keep = torch.ones(scores.shape[-2:], dtype=torch.bool, device=query.device).tril()
    scores = scores.masked_fill(~keep, -torch.inf)
    nothing = (scores == -torch.inf).all(-1, keepdim=True)
    return torch.where(nothing, 0.0, scores.softmax(-1)) @ value


def without_masked_keys(
    exact: list[object], leaves: Sequence[object], inputs: Sequence[object], run: Run
) -> list[object]:
    """`exact`; where an element is NaN or infinite in it and in eager's `leaves`, it is what it is
    where masked keys are left out, if that is a number."""
    if not any(_holes(item) for item in inputs):
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
    holes: Sequence[Hole],
    hole: Hole,
    base: Sequence[object],
    run: Run,
) -> list[torch.Tensor | None]:
    """Where each output changes with the value in place of `hole`."""
    plain = _scattered(holes, 0)
    moved = [run(_filled(inputs, plain | {hole: size})) for size in STAND_INS[1:]]
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


def _holes(value: object) -> list[int]:
    """The elements that are NaN or infinite."""
    if not isinstance(value, torch.Tensor) or not value.dtype.is_floating_point:
        return []
    found: list[int] = (~value.isfinite()).reshape(-1).nonzero().reshape(-1).tolist()
    return found


def _filled(inputs: Sequence[object], values: Mapping[Hole, float]) -> list[object]:
    """`inputs` with finite values in place of some of their holes."""
    found = list(inputs)
    for number in dict.fromkeys(number for number, _ in values):
        item = cast("torch.Tensor", inputs[number])
        places = [place for other, place in values if other == number]
        sizes = [values[number, place] for place in places]
        flat = item.reshape(-1).clone()
        flat[torch.tensor(places, device=flat.device)] = flat.new_tensor(sizes)
        found[number] = flat.reshape(item.shape)
    return found
