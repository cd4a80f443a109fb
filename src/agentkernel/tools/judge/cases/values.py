"""Input values, drawn by the judge and never by the candidate."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from agentkernel.domain.errors import AgentKernelError
from agentkernel.domain.problem import ScalarSpec, ShapeSet, TensorSpec
from agentkernel.storage.source_text import read_literal
from agentkernel.tools.judge.cases.patterns import (
    RowStructure,
    mask_rows,
    peaked,
    set_meeting_values,
    set_special_rows,
    sparse,
    spiked,
    sprinkled,
    tensor_like,
    wide_integers,
    with_constants,
    with_exact,
)
from agentkernel.tools.problem.loading import LoadedProblem

if TYPE_CHECKING:
    import torch

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
HALVES = tuple(number / 2 for number in range(-7, 8))
"""Exact values: zero, small integers, and the ties between them, of which 0.5 and its like are
thresholds as well."""
WIDE_BITS = (63.0, 31.0, 15.0, 7.0)
MEANS: dict[str, tuple[float, ...]] = {
    "float16": (1e3, 1e2, 1e1),
    "bfloat16": (1e2, 1e1),
    "float32": (1e4, 1e3, 1e2, 1e1),
    "float64": (1e4, 1e3, 1e2, 1e1),
}
"""Means of shifted values, whose spread is 1: as far above it as the type still tells them
apart."""
IGNORED_SHARE = 0.25
SAMPLE_LIMIT_BYTES = 8 << 30
THIN_BYTES = 256 << 20
"""Of samples past this size THIN_ELEMENTS of each tensor are kept."""
THIN_ELEMENTS = 1 << 20
PIECE_ELEMENTS = 1 << 26
"""So many elements of an input are drawn at once where memory is short."""


@dataclass(frozen=True)
class SpecialValues:
    """What a graph says of values. `ignored`: those that count for nothing, by the position of the
    integer input; "uniform" and "sparse" draw them too. `constants`: those that "uniform" draws
    beside its own. `wide`: positions of the integer inputs that "wide" draws over the whole range
    of their type, and whether below zero too. `rows` says what "rows" are."""

    ignored: Mapping[int, int] = field(default_factory=dict)
    constants: Sequence[float] = ()
    wide: Mapping[int, bool] = field(default_factory=dict)
    rows: RowStructure = field(default_factory=RowStructure)


class Sampler:
    """Draws inputs. Keeps one sample of the problem's own inputs, for ranges of integers and for
    modules that make no sense on a plain distribution."""

    def __init__(
        self,
        loaded: LoadedProblem,
        device: str,
        seed: int,
        special: SpecialValues | None = None,
    ) -> None:
        special = special or SpecialValues()
        self._ignored = special.ignored
        self._constants = tuple(special.constants)
        self._wide = special.wide
        self._rows = special.rows
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
            set_special_rows(values, self._rows, generator, seed)
        if distribution == "nan" and self._rows.pointwise:
            set_meeting_values(values, generator)
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
            return mask_rows(truths, generator) if distribution == "rows" else truths
        if not dtype.is_floating_point:
            low, high = self._range(index, position)
            if distribution == "wide" and position in self._wide:
                signed = torch.iinfo(dtype).min < 0 and (low < 0 or self._wide[position])
                return wide_integers(spec.shape, dtype, generator, scale, signed=signed)
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
                plain = with_exact(plain, generator, tensor_like(HALVES, plain))
            return with_constants(plain, generator, self._constants) if scale else plain
        value = torch.randn(spec.shape, dtype=wide, generator=generator, device=device)
        if distribution == "sparse":
            return sparse(value, generator, scale).to(dtype)
        if distribution == "spiked":
            return spiked(value, generator, scale).to(dtype)
        if distribution == "peaked":
            return peaked(value, generator, scale).to(dtype)
        if distribution == "sorted" and value.ndim:
            return value.sort(dim=-1).values.to(dtype)
        if distribution in ("nan", "inf"):
            return sprinkled(value, distribution == "nan", generator).to(dtype)
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


def _dtype(spec: TensorSpec) -> torch.dtype:
    import torch

    dtype: torch.dtype = getattr(torch, spec.dtype)
    return dtype


def tensors_of(values: Sequence[object]) -> list[tuple[int, torch.Tensor]]:
    """Position and tensor of every tensor among `values`."""
    import torch

    return [(i, value) for i, value in enumerate(values) if isinstance(value, torch.Tensor)]
