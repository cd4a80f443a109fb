"""Input values and module state, drawn by the judge and never by the candidate."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from agentkernel.domain.errors import AgentKernelError
from agentkernel.domain.problem import ScalarSpec, ShapeSet, TensorSpec
from agentkernel.storage.source_text import read_literal
from agentkernel.tools.problem.loading import LoadedProblem

if TYPE_CHECKING:
    import torch
    from torch import nn

Distribution = Literal[
    "normal",
    "uniform",
    "large",
    "tiny",
    "zeros",
    "ones",
    "constant",
    "sparse",
    "sorted",
    "shifted",
    "spiked",
    "peaked",
    "wide",
    "rows",
    "nan",
    "inf",
    "own",
]
CONSTANTS: dict[str, float] = {"zeros": 0.0, "ones": 1.0, "constant": 0.75}
TINY = {"float16": 1e-3, "bfloat16": 1e-5, "float32": 1e-5, "float64": 1e-5}
LARGE = (1e15, 1e6, 1e4, 1e3, 1e2, 1e1)
SPIKES = (1e2, 1e1, 1.0)
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
HALVES = tuple(number / 2 for number in range(-7, 8))
"""Exact values: zero, small integers, and the ties between them, of which 0.5 and its like are
thresholds as well."""
EXPONENTS = {"float16": 3.0, "bfloat16": 24.0, "float32": 24.0, "float64": 24.0}
"""Rows of values have sizes from 10 to the minus that to 10 to the plus that: the squares of the
largest overflow, and those of the smallest are zero."""
SCALED_WEIGHT = 1.5
ZERO_WEIGHTS = 0.125
"""Of parameters with signs and sizes of their own, so many are zero."""
VANISHED = 16
"""Of so many variances one is zero, and one is next to zero."""
NEXT_TO_ZERO = 1e-8
AHEAD = (1_000, 100_000)
"""So far ahead are counts of calls: past a warm-up, and past most schedules."""
SMALL = 3
"""The largest of small integers, as zero points and kinds of tokens are."""
WIDE_BITS = (63.0, 31.0, 15.0, 7.0)
MEANS: dict[str, tuple[float, ...]] = {
    "float16": (1e3, 1e2, 1e1),
    "bfloat16": (1e2, 1e1),
    "float32": (1e4, 1e3, 1e2, 1e1),
    "float64": (1e4, 1e3, 1e2, 1e1),
}
"""Means of shifted values, whose spread is 1: as far above it as the type still tells them
apart."""
SPECIAL_SHARE = 32
"""One element in so many is NaN or infinite, at most four of a tensor: most rows stay finite."""
MEETING = (math.nan, math.inf, -math.inf, 0.0, 1.0)
"""Values of which every two meet at some place."""
NEAR = 8
"""Integers that only a wide type tells apart lie so close together."""
IGNORED_SHARE = 0.25
SAMPLE_LIMIT_BYTES = 8 << 30
THIN_BYTES = 256 << 20
"""Of samples past this size THIN_ELEMENTS of each tensor are kept."""
THIN_ELEMENTS = 1 << 20
PIECE_ELEMENTS = 1 << 26
"""So many elements of an input are drawn at once where memory is short."""


@dataclass(frozen=True)
class RowStructure:
    """What rows are special to a module. `pointwise`: every element is by itself, so that rows may
    have any size; `compared`: tensors are compared with each other; `dim`: along which a row lies,
    counted from the last."""

    pointwise: bool = False
    compared: bool = False
    dim: int = -1


class Sampler:
    """Draws inputs. Keeps one sample of the problem's own inputs, for ranges of integers and for
    modules that make no sense on a plain distribution. `ignored`: values that count for nothing, by
    the position of the integer input; "uniform" and "sparse" draw them too. `constants`: values
    that "uniform" draws beside its own. `wide`: positions of the integer inputs that "wide" draws
    over the whole range of their type, and whether below zero too. `rows` says what "rows" are."""

    def __init__(
        self,
        loaded: LoadedProblem,
        device: str,
        seed: int,
        ignored: Mapping[int, int] | None = None,
        constants: Sequence[float] = (),
        wide: Mapping[int, bool] | None = None,
        rows: RowStructure | None = None,
    ) -> None:
        self._ignored = ignored or {}
        self._constants = tuple(constants)
        self._wide = wide or {}
        self._rows = rows or RowStructure()
        self._loaded = loaded
        self._device = device
        self._seed = seed
        self._samples: dict[int, tuple[object, ...] | None] = {}

    def add_constants(self, constants: Sequence[float]) -> None:
        """Further values that "uniform" draws beside its own."""
        self._constants = tuple(dict.fromkeys((*self._constants, *constants)))

    def draw(
        self,
        inputs: ShapeSet,
        index: int,
        distribution: Distribution,
        seed: int,
        scale: float,
        cap: int | None = None,
    ) -> list[object]:
        """Values for `inputs` (of declared set `index`) on the device; scalars as they are.

        `scale` is the standard deviation of normal values and the mean of shifted ones; integers
        stay at or below `cap`.
        """
        import torch

        generator = torch.Generator(device=self._device)
        generator.manual_seed(seed)
        values: list[object] = []
        for position, spec in enumerate(inputs.inputs):
            if isinstance(spec, ScalarSpec):
                values.append(read_literal(spec.literal))
            else:
                value = self._tensor(spec, index, position, distribution, generator, scale)
                exact = value.dtype.is_floating_point or value.dtype == torch.bool
                values.append(value if cap is None or exact else value.clamp_(max=cap))
        if distribution == "rows":
            _special_rows(values, self._rows, generator, seed)
        if distribution == "nan" and self._rows.pointwise:
            _meet(values, generator)
        return values

    def fill(
        self,
        rooms: Sequence[object],
        inputs: ShapeSet,
        index: int,
        distribution: Distribution,
        seed: int,
        scale: float,
    ) -> None:
        """As `draw`, into `rooms`, piece by piece along the first dimension: no tensor of the size
        of an input is made beside them."""
        import torch

        generator = torch.Generator(device=self._device)
        generator.manual_seed(seed)
        for position, (room, spec) in enumerate(zip(rooms, inputs.inputs, strict=True)):
            if isinstance(spec, ScalarSpec) or not isinstance(room, torch.Tensor):
                continue
            for piece in pieces(room):
                part = spec.evolve(shape=tuple(piece.shape))
                drawn = self._tensor(part, index, position, distribution, generator, scale)
                piece.copy_(drawn)

    def own(self, index: int) -> tuple[object, ...] | None:
        """The problem's own inputs of set `index`; None where they are too large to make."""
        if index not in self._samples:
            self._samples[index] = self._sample(index)
        return self._samples[index]

    def _sample(self, index: int) -> tuple[object, ...] | None:
        import torch

        specs = self._loaded.problem.shape_sets[index].tensors
        size = sum(torch.Size(s.shape).numel() * _dtype(s).itemsize for s in specs)
        if size <= THIN_BYTES:
            return self._loaded.make_inputs(index, seed=self._seed, device=self._device)
        if size > SAMPLE_LIMIT_BYTES and self._device == "cpu":
            return None
        try:
            values = self._loaded.make_inputs(index, seed=self._seed, device=self._device)
        except torch.OutOfMemoryError:
            torch.cuda.empty_cache()
            values = self._loaded.make_inputs(index, seed=self._seed, device="cpu")
        return tuple(self._thinned(value) for value in values)

    def _thinned(self, value: object) -> object:
        """Of a large sample so much that it can be drawn from: the smallest and the largest value,
        and some of those between."""
        import torch

        if not isinstance(value, torch.Tensor) or value.numel() <= THIN_ELEMENTS:
            return value
        flat = value.reshape(-1)
        some = flat[:: flat.numel() // THIN_ELEMENTS + 1].clone()
        if not some.dtype.is_floating_point and some.dtype != torch.bool:
            some[0], some[-1] = flat.min(), flat.max()
        return some.to(self._device)

    def _tensor(
        self,
        spec: TensorSpec,
        index: int,
        position: int,
        distribution: Distribution,
        generator: torch.Generator,
        scale: float,
    ) -> torch.Tensor:
        import torch

        dtype = _dtype(spec)
        device = self._device
        if dtype == torch.bool:
            truths = torch.rand(spec.shape, generator=generator, device=device).less(0.5)
            return _masks(truths, generator) if distribution == "rows" else truths
        if not dtype.is_floating_point:
            low, high = self._range(index, position)
            if distribution == "wide" and position in self._wide:
                signed = torch.iinfo(dtype).min < 0 and (low < 0 or self._wide[position])
                return _wide(spec.shape, dtype, generator, scale, signed=signed)
            drawn = torch.randint(
                low, high + 1, spec.shape, dtype=torch.int64, generator=generator, device=device
            )
            if position in self._ignored and distribution in ("uniform", "sparse"):
                some = torch.rand(spec.shape, generator=generator, device=device) < IGNORED_SHARE
                drawn[some] = self._ignored[position]
            return drawn.to(dtype)
        if distribution == "own":
            return self._resampled(spec, index, position, generator)
        wide = torch.float64 if dtype == torch.float64 else torch.float32
        if distribution in CONSTANTS:
            return torch.full(spec.shape, CONSTANTS[distribution], dtype=dtype, device=device)
        if distribution == "uniform":
            plain = torch.rand(spec.shape, dtype=wide, generator=generator, device=device).to(dtype)
            if scale > 1:
                plain = _with_exact(plain, generator, _tensor_of(HALVES, plain))
            return _with_constants(plain, generator, self._constants) if scale else plain
        value = torch.randn(spec.shape, dtype=wide, generator=generator, device=device)
        if distribution == "sparse":
            return _sparse(value, generator, scale).to(dtype)
        if distribution == "spiked":
            return _spiked(value, generator, scale).to(dtype)
        if distribution == "peaked":
            return _peaked(value, generator, scale).to(dtype)
        if distribution == "sorted" and value.ndim:
            return value.sort(dim=-1).values.to(dtype)
        if distribution in ("nan", "inf"):
            return _sprinkled(value, distribution == "nan", generator).to(dtype)
        if distribution == "shifted":
            return value.add_(scale if value.ndim > 1 or self._flat(index) else 0.0).to(dtype)
        return (value if distribution == "wide" else value.mul_(scale)).to(dtype)

    def _flat(self, index: int) -> bool:
        """Whether no tensor of the set has rows: then vectors are data, else weights."""
        return all(len(spec.shape) < 2 for spec in self._loaded.problem.shape_sets[index].tensors)

    def _range(self, index: int, position: int) -> tuple[int, int]:
        import torch

        sample = self.own(index)
        value = None if sample is None else sample[position]
        if not isinstance(value, torch.Tensor) or value.numel() == 0:
            return 0, 1
        return int(value.min()), int(value.max())

    def _resampled(
        self, spec: TensorSpec, index: int, position: int, generator: torch.Generator
    ) -> torch.Tensor:
        import torch

        sample = self.own(index)
        if sample is None or not isinstance(sample[position], torch.Tensor):
            raise AgentKernelError("The problem's own inputs are too large to sample from.")
        value = sample[position]
        assert isinstance(value, torch.Tensor)
        flat = value.reshape(-1)
        picks = torch.randint(
            0, max(1, flat.numel()), spec.shape, generator=generator, device=self._device
        )
        return flat[picks]


def pieces(value: torch.Tensor) -> Iterator[torch.Tensor]:
    """Parts of `value` along its first dimension of at most PIECE_ELEMENTS, where one row fits."""
    if value.ndim == 0 or value.numel() <= PIECE_ELEMENTS:
        yield value
        return
    step = max(1, value.shape[0] * PIECE_ELEMENTS // value.numel())
    for start in range(0, value.shape[0], step):
        yield value[start : start + step]


def _sparse(value: torch.Tensor, generator: torch.Generator, spike: float) -> torch.Tensor:
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


def _spiked(value: torch.Tensor, generator: torch.Generator, scale: float) -> torch.Tensor:
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


def _peaked(value: torch.Tensor, generator: torch.Generator, scale: float) -> torch.Tensor:
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


def _with_constants(
    value: torch.Tensor, generator: torch.Generator, constants: Sequence[float]
) -> torch.Tensor:
    """Some elements of `value` become one of `constants`, or its neighbour on either side."""
    import torch

    if not constants:
        return value
    exact, far = _tensor_of(constants, value), _tensor_of((math.inf,), value)
    near = torch.cat([exact, torch.nextafter(exact, far), torch.nextafter(exact, -far)])
    return _with_exact(value, generator, near)


def _tensor_of(numbers: Sequence[float], like: torch.Tensor) -> torch.Tensor:
    import torch

    return torch.tensor(numbers, dtype=like.dtype, device=like.device)


def _with_exact(
    value: torch.Tensor, generator: torch.Generator, exact: torch.Tensor
) -> torch.Tensor:
    """Some elements of `value` become elements of `exact`."""
    import torch

    shape, device = value.shape, value.device
    picks = torch.randint(len(exact), shape, generator=generator, device=device)
    chance = torch.rand(shape, generator=generator, device=device)
    return torch.where(chance < CONSTANT_SHARE, exact[picks], value)


def _wide(
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


def _special_rows(
    values: list[object], rows: RowStructure, generator: torch.Generator, seed: int
) -> None:
    """Of normal `values`, by what the module does with rows: each of a size of its own, or one line
    of the first tensor all -inf; where inputs are compared, one in the form of another is a copy of
    it but for one element of every other row."""
    import torch

    first: dict[object, torch.Tensor] = {}
    floats = [
        (place, value)
        for place, value in enumerate(values)
        if isinstance(value, torch.Tensor) and value.dtype.is_floating_point and value.numel()
    ]
    for place, value in floats:
        if rows.pointwise:
            _spread(value, seed)
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


def _meet(values: Sequence[object], generator: torch.Generator) -> None:
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


def _spread(value: torch.Tensor, seed: int) -> None:
    """Give each row a size of its own, in place; as many rows of another tensor get the same."""
    import torch

    rows = value.view(-1, value.shape[-1]) if value.ndim else value.view(1, 1)
    most = EXPONENTS.get(str(value.dtype).removeprefix("torch."), 1.0)
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


def _masks(truths: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
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


def _sprinkled(value: torch.Tensor, nan: bool, generator: torch.Generator) -> torch.Tensor:
    """A few elements of `value` become NaN, or inf and -inf by turns, in place."""
    import torch

    if value.numel() == 0:
        return value
    count = max(1, min(4, value.numel() // SPECIAL_SHARE))
    places = torch.randint(0, value.numel(), (count,), generator=generator, device=generator.device)
    for turn, place in enumerate(places.tolist()):
        value.view(-1)[place] = math.nan if nan else math.inf * (-1) ** turn
    return value


def scales(distribution: Distribution, inputs: ShapeSet) -> tuple[float, ...]:
    """Standard deviations to try (of shifted values means, of wide ones bits, of uniform ones
    whether constants are among them, and halves): the first that the reference survives counts."""
    if distribution == "large":
        return LARGE
    if distribution == "sparse":
        return SPIKES
    if distribution in ("spiked", "peaked"):
        return (1.0, 0.125)
    if distribution == "uniform":
        return (2.0, 1.0, 0.0)
    if distribution == "wide":
        return WIDE_BITS
    if distribution == "shifted":
        narrow = [MEANS[s.dtype] for s in inputs.tensors if s.dtype in MEANS]
        return min(narrow, key=lambda means: means[0], default=(1.0,))
    if distribution == "tiny":
        kinds = [TINY[s.dtype] for s in inputs.tensors if s.dtype in TINY]
        return (max(kinds, default=1.0),)
    return (1.0,)


def randomise_state(model: nn.Module, seed: int, sign: int = 0, least: int | None = None) -> None:
    """Move parameters and buffers off their initial values, in place, reproducibly.

    Zeros, signs and infinities of plain buffers stay: they may be masks. With a `sign`, parameters
    may have any sign and size and be zero, one of a single element is past 1 on that side, and
    masks and indices have their slices along the last dimension in another order, and
    below zero some variances vanish. With a `least` too, buffers of one value everywhere get
    others: a count is far ahead, other integers are from `least` on, small ones or 0 and 1, floats
    of both signs; and some rows of matrices are zero."""
    import torch

    parameters = _parameter_names(model)
    with torch.no_grad():
        for position, (name, value) in enumerate(sorted(model.state_dict().items())):
            if value.numel() == 0:
                continue
            generator = torch.Generator(device=value.device)
            generator.manual_seed(seed * 1009 + position)
            is_parameter = name in parameters
            known = name.rpartition(".")[2] in ("running_mean", "running_var")
            plain = not (is_parameter or known)
            if least is not None and plain and bool((value == value.flatten()[0]).all()):
                _replace(value, generator, sign, least)
            elif not value.dtype.is_floating_point:
                if sign and value.ndim:
                    _reorder(value, generator)
            else:
                _perturb(name, value, generator, is_parameter=is_parameter)
                if sign < 0 and name.rpartition(".")[2] == "running_var":
                    _vanish(value, generator)
                if sign and is_parameter:
                    _scatter(value, generator, sign)
                    if least is not None:
                        _without_rows(value, generator)
                elif sign and plain and value.ndim and _is_mask(value):
                    _reorder(value, generator)


def _is_mask(value: torch.Tensor) -> bool:
    """Whether some places of a floating buffer are left out: zero, or infinite."""
    return bool((value.isinf() | (value == 0)).any())


def _replace(value: torch.Tensor, generator: torch.Generator, sign: int, least: int) -> None:
    """Other values for a buffer of one value everywhere, in place."""
    import torch

    shape, device = value.shape, value.device
    if value.dtype.is_floating_point:
        noise = torch.randn(shape, generator=generator, device=device)
        one = value.numel() == 1
        noise = sign * (1 + noise.abs()) if one else noise
        value.copy_(noise * torch.where(value == 0, AHEAD[0] if one else 1.0, value.float()))
    elif value.dtype == torch.bool:
        value.copy_(torch.rand(shape, generator=generator, device=device) < 0.5)
    elif value.numel() == 1:
        value.copy_(value + AHEAD[sign < 0])
    else:
        value.copy_(
            torch.randint(
                least, (SMALL if least else 1) + 1, shape, generator=generator, device=device
            )
        )


def _vanish(value: torch.Tensor, generator: torch.Generator) -> None:
    """Some variances are zero, as those of dead channels are, and as many next to zero."""
    import torch

    count = -(-value.numel() // VANISHED)
    order = torch.randperm(value.numel(), generator=generator, device=value.device)
    for place, small in enumerate((0.0, NEXT_TO_ZERO)):
        value.view(-1)[order[place * count : (place + 1) * count]] = small


def _without_rows(value: torch.Tensor, generator: torch.Generator) -> None:
    """Some rows of a matrix are zero, as those of padding and of pruned weights are."""
    import torch

    if value.ndim < 2 or len(value) < 2:
        return
    order = torch.randperm(len(value), generator=generator, device=value.device)
    value[order[: max(1, int(ZERO_WEIGHTS * len(value)))]] = 0.0


def _reorder(value: torch.Tensor, generator: torch.Generator) -> None:
    """Of a mask each row keeps as many elements as it had, of indices each row its own."""
    import torch

    order = torch.randperm(value.shape[-1], generator=generator, device=value.device)
    value.copy_(value[..., order])


def _scatter(value: torch.Tensor, generator: torch.Generator, sign: int) -> None:
    """A parameter of both signs and other sizes, in place. One of several dimensions that has both
    signs already, as those of products do, keeps its size."""
    import torch

    shape, device = value.shape, value.device
    noise = torch.randn(shape, generator=generator, device=device)
    if value.numel() == 1:
        value.copy_(sign * (1 + noise.abs()))
        return
    flat = sum(size > 1 for size in shape) < 2
    if flat:
        value.copy_(SCALED_WEIGHT * noise)
    elif not bool((value < 0).any()) or not bool((value > 0).any()):
        value.copy_(value.abs() * noise.sign())
    chance = torch.rand(shape, generator=generator, device=device)
    value.masked_fill_(chance < (ZERO_WEIGHTS if flat else ZERO_WEIGHTS / 2), 0.0)


def _perturb(
    name: str, value: torch.Tensor, generator: torch.Generator, *, is_parameter: bool
) -> None:
    import torch

    device = value.device
    if name.rpartition(".")[2] == "running_var":
        value.copy_(
            (
                value.float().abs()
                * (0.5 + torch.rand(value.shape, generator=generator, device=device))
            )
            + 1e-2
        )
    elif name.rpartition(".")[2] == "running_mean":
        value.add_(
            torch.randn(value.shape, generator=generator, device=device).mul_(0.5).to(value.dtype)
        )
    elif is_parameter:
        noise = torch.randn(value.shape, generator=generator, device=device)
        shift = 0.1 * value.float().std(correction=0).clamp(min=0.1 if value.ndim < 2 else 1e-3)
        value.copy_(value.float() * (1 + 0.1 * noise) + shift * noise.roll(1))
    else:
        noise = torch.randn(value.shape, generator=generator, device=device).clamp_(-3, 3)
        value.copy_(value.float() * (1 + 0.1 * noise))


def _parameter_names(model: nn.Module) -> set[str]:
    return {name for name, _ in model.named_parameters(remove_duplicate=False)}


def _dtype(spec: TensorSpec) -> torch.dtype:
    import torch

    dtype: torch.dtype = getattr(torch, spec.dtype)
    return dtype


def tensors_of(values: Sequence[object]) -> list[tuple[int, torch.Tensor]]:
    """Position and tensor of every tensor among `values`."""
    import torch

    return [(i, value) for i, value in enumerate(values) if isinstance(value, torch.Tensor)]
