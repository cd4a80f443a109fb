"""Patterns of input values: spikes, peaks, rows, constants, infinities, domains."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import torch


HEIGHTS = (2.0, 40.0)
"""Of the one element of a row that stands above all others: from where its neighbours count as much
as it does to where fp32's exponential of the difference is nothing beside one."""
NEGATIVE_SHARE = 0.25
PEAK = 2.0
"""A peak has so many times the norm of all other elements on its line."""
CONSTANT_SHARE = 0.125
"""Of uniform values so many are constants of the graph or of the file, or lie one ulp beside them,
and as many again are halves."""
Domain = Literal["", "above zero", "within one", "up to one", "from one on"]
DOMAINS: tuple[Domain, ...] = ("above zero", "within one", "up to one", "from one on")
"""Where modules are defined that are not everywhere: logarithms and roots, inverse sines, what
takes probabilities, inverse hyperbolic cosines."""
EXPONENTS = {"float16": 3.0, "bfloat16": 24.0, "float32": 24.0, "float64": 24.0}
"""Rows of values have sizes from 10 to the minus that to 10 to the plus that: the squares of the
largest overflow, and those of the smallest are zero."""
MIDDLE_EXPONENTS = 3.5
"""The same where rows are normed or summed, and at most half of those above."""
SPECIAL_SHARE = 32
"""One element in so many is NaN or infinite, at most four of a tensor: most rows stay finite."""
MEETING = (math.nan, math.inf, -math.inf, 0.0, 1.0)
"""Values of which every two meet at some place."""
NEAR = 8
"""Integers that only a wide type tells apart lie so close together."""


@dataclass(frozen=True)
class RowStructure:
    """What rows are special to a module. `pointwise`: every element is by itself, so that rows may
    have any size; `compared`: tensors are compared with each other; `of_any_size`: rows of a single
    tensor may have any that is not near the ends of the type; `dim`: along which a row lies,
    counted from the last."""

    pointwise: bool = False
    compared: bool = False
    of_any_size: bool = False
    dim: int = -1


def sparse(value: torch.Tensor, generator: torch.Generator, spike: float) -> torch.Tensor:
    """Of normal values: rows of zeros with a few spikes, rows of which only the first columns are
    large, rows of small values and rows of which one element in ten is left, in turns."""
    import torch

    if value.ndim == 0:
        return value
    n = value.shape[-1]
    rows = value.reshape(-1, n)
    chance = torch.rand(rows.shape, generator=generator, device=rows.device)
    nothing = torch.zeros_like(rows)
    spikes = torch.where(chance < 1.5 / n, spike * rows, nothing)
    head = 1e-3 * rows
    head[:, : min(4, n)] = spike * rows[:, : min(4, n)]
    kinds = (spikes, head, 1e-2 * rows, torch.where(chance < 0.1, rows, nothing))
    turn = torch.arange(rows.shape[0], device=rows.device).remainder(len(kinds))[:, None]
    for number, kind in enumerate(kinds):
        nothing = torch.where(turn == number, kind, nothing)
    return nothing.reshape(value.shape)


def spiked(value: torch.Tensor, generator: torch.Generator, scale: float) -> torch.Tensor:
    """Of normal values: in each row one element stands apart from all others, by another height in
    each: what counts for little beside it counts together, and a threshold lies within some row."""
    import torch

    if value.ndim == 0 or not value.numel():
        return value
    rows = (0.5 * value).reshape(-1, value.shape[-1])
    count, device = len(rows), rows.device
    low, high = (math.log(end) for end in HEIGHTS)
    order = torch.randperm(count, generator=generator, device=device)
    share = torch.rand(count, generator=generator, device=device)
    height = torch.exp(low + (high - low) * (order + share) / count)
    chance = torch.rand(count, generator=generator, device=device)
    height = torch.where(chance < NEGATIVE_SHARE, -height, height)
    place = torch.randint(rows.shape[1], (count, 1), generator=generator, device=device)
    rows.scatter_add_(1, place, height[:, None].to(rows.dtype))
    return rows.mul_(scale).reshape(value.shape)


def peaked(value: torch.Tensor, generator: torch.Generator, scale: float) -> torch.Tensor:
    """Of normal values: on each line along each dimension one element outweighs all others, at
    another place on each line, the ends first."""
    import torch

    found = value.clone()
    for dim, size in enumerate(value.shape):
        if size < 2 or not value.numel():
            continue
        lines = found.movedim(dim, -1)
        count = math.prod(lines.shape[:-1])
        shuffled = torch.randperm(count, generator=generator, device=value.device)
        place = peak_places(size, generator, value.device)[shuffled % size]
        shape = (*lines.shape[:-1], 1)
        height = torch.full(shape, PEAK * math.sqrt(size), dtype=found.dtype, device=value.device)
        sign = torch.rand(shape, generator=generator, device=value.device) < NEGATIVE_SHARE
        lines.scatter_(-1, place.reshape(shape), torch.where(sign, -height, height))
    return found.mul_(scale)


def peak_places(size: int, generator: torch.Generator, device: str | torch.device) -> torch.Tensor:
    """All places of a line of `size`, each once: the last, the first, both sides of powers of two,
    where tiles end, then the others in any order."""
    import torch

    powers = (1 << bits for bits in range(4, size.bit_length()))
    ends = [size - 1, 0, *(place for power in powers for place in (power, power - 1))]
    ends = [place for place in dict.fromkeys(ends) if place < size]
    every = torch.randperm(size, generator=generator, device=generator.device).tolist()
    return torch.tensor(list(dict.fromkeys([*ends, *every])), device=device)


def with_constants(
    value: torch.Tensor, generator: torch.Generator, constants: Sequence[float]
) -> torch.Tensor:
    """Some elements of `value` become one of `constants`, or its neighbour on either side."""
    import torch

    if not constants:
        return value
    exact, far = tensor_like(constants, value), tensor_like((math.inf,), value)
    near = torch.cat([exact, torch.nextafter(exact, far), torch.nextafter(exact, -far)])
    return with_exact(value, generator, near)


def tensor_like(numbers: Sequence[float], like: torch.Tensor) -> torch.Tensor:
    """`numbers` in the type of `like`, where it lies."""
    import torch

    return torch.tensor(numbers, dtype=like.dtype, device=like.device)


def with_exact(
    value: torch.Tensor, generator: torch.Generator, exact: torch.Tensor
) -> torch.Tensor:
    """Some elements of `value` become elements of `exact`."""
    import torch

    shape, device = value.shape, value.device
    picks = torch.randint(len(exact), shape, generator=generator, device=device)
    chance = torch.rand(shape, generator=generator, device=device)
    return torch.where(chance < CONSTANT_SHARE, exact[picks], value)


def wide_integers(
    shape: Sequence[int], dtype: torch.dtype, generator: torch.Generator, bits: float, signed: bool
) -> torch.Tensor:
    """Integers of every length up to `bits` and those of the type; below zero where `signed`. Some
    lie beside each other past all others, which only a type of their own width tells apart."""
    import torch

    most = torch.iinfo(dtype).max
    bits = min(int(bits), most.bit_length())
    device = generator.device
    length = torch.randint(bits + 1, tuple(shape), generator=generator, device=device)
    drawn = torch.randint(most, tuple(shape), generator=generator, device=device)
    drawn >>= most.bit_length() - length
    far = (1 << bits) - 1 - torch.randint(NEAR, tuple(shape), generator=generator, device=device)
    chance = torch.rand(tuple(shape), generator=generator, device=device)
    drawn = torch.where(chance < CONSTANT_SHARE, far, drawn) if bits > NEAR.bit_length() else drawn
    chance = torch.rand(tuple(shape), generator=generator, device=device)
    return torch.where((chance < 0.5) & signed, -drawn, drawn).to(dtype)


def moved_into_domain(value: object, domain: Domain) -> object:
    """`value` moved into `domain`, its small differences kept; integers and scalars as they are."""
    import torch

    if not isinstance(value, torch.Tensor) or not value.dtype.is_floating_point or not domain:
        return value
    size = value.abs()
    if domain == "above zero":
        return size
    if domain == "from one on":
        return 1 + size
    inside = value / (1 + size)
    return inside if domain == "within one" else 0.5 + 0.5 * inside


def set_special_rows(
    values: list[object], rows: RowStructure, generator: torch.Generator, seed: int
) -> None:
    """Of normal `values`, by what the module does with rows: each of a size of its own, one line of
    the first tensor all -inf; where inputs are compared, one in the form of another is a copy of
    it but for one element of every other row."""
    import torch

    first: dict[object, torch.Tensor] = {}
    floats = [
        (place, value)
        for place, value in enumerate(values)
        if isinstance(value, torch.Tensor) and value.dtype.is_floating_point and value.numel()
    ]
    for place, value in floats:
        most = EXPONENTS.get(str(value.dtype).removeprefix("torch."), 1.0)
        if rows.pointwise:
            _spread(value, most, seed)
        elif rows.of_any_size and len(floats) == 1:
            _spread(value, min(most / 2, MIDDLE_EXPONENTS), seed)
        form = (value.shape, value.dtype)
        if rows.compared and form in first:
            values[place] = _nearly(first[form], value, generator)
        first.setdefault(form, value)
    deep = [value for _, value in floats if value.ndim > 1]
    if deep and not rows.pointwise and math.prod(deep[0].shape[:-1]) > 1:
        lines = deep[0].movedim(max(rows.dim, -deep[0].ndim), -1)
        where = [
            int(torch.randint(size, (1,), generator=generator, device=generator.device))
            for size in lines.shape[:-1]
        ]
        lines[tuple(where)] = -math.inf


def set_meeting_values(values: Sequence[object], generator: torch.Generator) -> None:
    """Of elementwise modules of two inputs and more: every two of `MEETING` lie at one place of
    the first two, as far as there are places, and any of them at that of the others, in place."""
    import torch

    floats = [x for x in values if isinstance(x, torch.Tensor) and x.dtype.is_floating_point]
    if len(floats) < 2:
        return
    try:
        shape = torch.broadcast_shapes(*(x.shape for x in floats))  # type: ignore[no-untyped-call]
    except RuntimeError:
        return
    pairs = [(a, b) for a in MEETING for b in MEETING]
    size, device = math.prod(shape), generator.device
    places = torch.randperm(size, generator=generator, device=device)[: len(pairs)].tolist()
    taken: set[tuple[int, tuple[int, ...]]] = set()
    for place, pair in zip(places, pairs, strict=False):
        others = torch.randint(len(MEETING), (len(floats),), generator=generator, device=device)
        where = [int(x) for x in torch.unravel_index(torch.tensor(place), shape)]
        for number, value in enumerate(floats):
            own = where[len(shape) - value.ndim :]
            own_place = tuple(min(at, n - 1) for at, n in zip(own, value.shape, strict=True))
            if (number, own_place) not in taken:  # one that is repeated meets others elsewhere
                taken.add((number, own_place))
                value[own_place] = (*pair, *(MEETING[int(x)] for x in others))[number]


def _spread(value: torch.Tensor, most: float, seed: int) -> None:
    """Give each row a size of its own, from 10 to the minus `most` to 10 to the `most`, in place;
    as many rows of another tensor get the same."""
    import torch

    rows = value.view(-1, value.shape[-1]) if value.ndim else value.view(1, 1)
    generator = torch.Generator(device=value.device).manual_seed(seed)
    order = torch.randperm(len(rows), generator=generator, device=value.device)
    share = torch.rand(len(rows), generator=generator, device=value.device)
    powers = most * (2 * (order + share) / len(rows) - 1)
    size = torch.pow(10.0, powers.double())[:, None]
    rows.copy_((rows.double() * size).to(value.dtype))


def _nearly(value: torch.Tensor, other: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """`value` with one element of `other` in every second row, the last place first."""
    import torch

    if value.ndim == 0:
        return value.clone()
    found = value.clone()
    rows, others = found.view(-1, found.shape[-1]), other.reshape(-1, other.shape[-1])
    changed = torch.arange(len(rows), device=value.device)[::2]
    places = peak_places(rows.shape[1], generator, value.device)
    place = places[(changed // 2) % rows.shape[1]]
    rows[changed, place] = others[changed, place]
    return found


def mask_rows(truths: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Rows in turns as they are, all False, all True, True up to some place, and at one alone."""
    import torch

    if truths.ndim == 0 or not truths.numel():
        return truths
    rows = truths.view(-1, truths.shape[-1])
    count, size = rows.shape
    device = truths.device
    place = torch.randint(size, (count, 1), generator=generator, device=device)
    column = torch.arange(size, device=device)
    nothing = torch.zeros_like(rows)
    kinds = (nothing, ~nothing, column == place, column <= place, rows)
    turn = torch.randperm(count, generator=generator, device=device).remainder(len(kinds))[:, None]
    found = rows
    for number, kind in enumerate(kinds):
        found = torch.where(turn == number, kind, found)
    return found.view(truths.shape)


def sprinkled(value: torch.Tensor, nan: bool, generator: torch.Generator) -> torch.Tensor:
    """A few elements of `value` become NaN, or inf and -inf by turns, in place."""
    import torch

    if value.numel() == 0:
        return value
    count = max(1, min(4, value.numel() // SPECIAL_SHARE))
    places = torch.randint(0, value.numel(), (count,), generator=generator, device=generator.device)
    for turn, place in enumerate(places.tolist()):
        value.view(-1)[place] = math.nan if nan else math.inf * (-1) ** turn
    return value
