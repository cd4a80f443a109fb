"""Inputs and weights of the timed problem, with inputs of a batch unseen until its clock runs."""

from __future__ import annotations

import copy
import os
import random
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from agentkernel.domain.profile import MatmulPrecision
from agentkernel.domain.verdict import Precision
from agentkernel.runtime import gpu_lock
from agentkernel.tools.problem.loading import LoadedProblem
from agentkernel.tools.profiler.rounds import SideFailed, baselines_matmul
from agentkernel.tools.profiler.timing.arena import (
    Layout,
    make_room,
    row,
    row_bytes,
    spans,
    spec_of,
)
from agentkernel.tools.profiler.timing.stopwatch import Device
from agentkernel.tools.sandbox.tensors import share_tensor

if TYPE_CHECKING:
    import torch


PERIOD = 65537
"""Elements after which the pattern of halved ones comes again; prime, so that no row lines up."""
SPREAD = 1 << 16
"""How many places in the bank of factors a row may begin at."""
ROW_STEP = 1031
"""Elements between the factors of neighbouring rows; prime, so that no stride lines up."""
WEAKEST = 0.5
"""Smallest factor of an element. None is above 1: what was in [-1, 1] or [0, 1] stays there."""
LOUDNESS = (0.75, 1.0)
"""Range of a row's common factor, so that sums of many elements differ between rows too."""


class FreshInputs:
    """Writes rows of inputs: each element of the problem's own times its own random factor.

    Signs, zeros, infinities and NaN stay what they are, and so do integers and booleans. With
    `vary` False the rows are copies, for a reference that takes no other numbers than its own
    (a Cholesky factorisation, say).
    """

    def __init__(
        self, inputs: Sequence[torch.Tensor], layout: Layout, seed: int, *, vary: bool = True
    ) -> None:
        self._layout = layout
        self._sources = [span_of(item) for item in inputs]
        self._banks: dict[torch.dtype, torch.Tensor] = {}
        if vary:
            self._fill_banks(seed)

    @property
    def varies(self) -> bool:
        """True where at least one input differs from row to row."""
        return bool(self._banks)

    def begin(self, pool: torch.Tensor, seed: int) -> None:
        """The first numbers of a pool that a process has newly mapped."""
        self.write(pool, seed)

    def restore(self) -> None:
        """The problem's own inputs are never written to."""

    def write(self, pool: torch.Tensor, seed: int) -> None:
        """Fill `pool`; the same `seed` gives the same numbers. Waits for the device."""
        import torch

        chosen = random.Random(seed)
        begin = chosen.randrange(SPREAD)
        loudness = [chosen.uniform(*LOUDNESS) for _ in range(self._layout.rows)]
        targets = spans(pool, self._layout.tensors, self._layout.rows)
        with torch.no_grad():
            for target, source in zip(targets, self._sources, strict=True):
                bank = self._banks.get(source.dtype)
                if bank is None or not source.numel():
                    target.copy_(source.expand_as(target))
                    continue
                nothing = torch.zeros((), dtype=source.dtype, device=source.device)
                for index, loud in enumerate(loudness):
                    factors = bank.narrow(0, begin + index * ROW_STEP, source.numel())
                    torch.addcmul(nothing, source, factors, value=loud, out=target[index])
            if pool.is_cuda:
                torch.cuda.synchronize()

    def unchanged(self, pool: torch.Tensor, seed: int) -> list[bool]:
        """Whether each input is in all rows as `write` left it. Writes it again."""
        found = self.checksums(pool)
        self.write(pool, seed)
        return [bool(a.equal(b)) for a, b in zip(found, self.checksums(pool), strict=True)]

    def checksums(self, pool: torch.Tensor) -> list[torch.Tensor]:
        """A checksum of each input over all rows, left on the device."""
        return [checksum(item) for item in spans(pool, self._layout.tensors, self._layout.rows)]

    def _fill_banks(self, seed: int) -> None:
        for source in self._sources:
            if source.dtype not in usable_dtypes() or not source.numel():
                continue
            held = self._banks.get(source.dtype)
            need = source.numel() + SPREAD + self._layout.rows * ROW_STEP
            if held is None or held.numel() < need:
                self._banks[source.dtype] = _bank(need, source, seed)


class FreshInputsInPlace:
    """Writes the next inputs over the last ones: each floating element is its own value or half of
    it. For inputs too large to exist twice.

    A step by a power of two is undone exactly, so that the problem's own values, whose checksums
    are known, can be brought back and compared. Halving rounds a subnormal once: the base is what
    is left after that. Integers, booleans, NaN and infinities stay what they are.
    """

    def __init__(self, layout: Layout, home: torch.Tensor, *, vary: bool = True) -> None:
        """`home`: the pool whose one row holds the problem's own inputs."""
        self._layout = layout
        self._vary = vary
        self._home = home.data_ptr()
        self._halved: dict[int, torch.Tensor] = {}
        for flat in self._floating(home):
            flat.mul_(0.5).mul_(2.0)
        self._base = self.checksums(home)
        self._source = home

    @property
    def varies(self) -> bool:
        """True where at least one input changes from batch to batch."""
        return self._vary and bool(self._floating(self._source))

    def begin(self, pool: torch.Tensor, seed: int) -> None:
        """The first numbers of a pool that a process has newly mapped; the CPU gives each process
        a pool of its own, which begins with the problem's values."""
        if pool.data_ptr() != self._home:
            self.restore()
            own = spans(self._source, self._layout.tensors, 1)
            for target, source in zip(spans(pool, self._layout.tensors, 1), own, strict=True):
                target.copy_(source)
            self._halved.pop(pool.data_ptr(), None)
        self.write(pool, seed)

    def restore(self) -> None:
        """Bring the problem's own values back."""
        self._bring(self._source, self._plain(self._source))

    def write(self, pool: torch.Tensor, seed: int) -> None:
        """Make the inputs of `seed` in `pool`. Waits for the device."""
        import torch

        generator = torch.Generator().manual_seed(seed)
        share = 0.3 + 0.4 * float(torch.rand((), generator=generator))
        halved = torch.rand(PERIOD, generator=generator) < share
        self._bring(pool, halved.to(pool.device) if self._vary else self._plain(pool))
        if pool.is_cuda:
            torch.cuda.synchronize()

    def unchanged(self, pool: torch.Tensor, seed: int) -> list[bool]:
        """Whether each input is as `write` left it. Writes it again."""
        self._bring(pool, self._plain(pool))
        same = [bool(a.equal(b)) for a, b in zip(self._base, self.checksums(pool), strict=True)]
        self.write(pool, seed)
        return same

    def checksums(self, pool: torch.Tensor) -> list[torch.Tensor]:
        """A checksum of each input, left on the device."""
        return [checksum(item[0]) for item in spans(pool, self._layout.tensors, 1)]

    def _bring(self, pool: torch.Tensor, halved: torch.Tensor) -> None:
        import torch

        before = self._halved.get(pool.data_ptr(), torch.zeros_like(halved))
        factors = torch.exp2(before.float() - halved.float())
        with torch.no_grad():
            for flat in self._floating(pool):
                scale_in_period(flat, factors.to(flat.dtype))
        self._halved[pool.data_ptr()] = halved

    @staticmethod
    def _plain(pool: torch.Tensor) -> torch.Tensor:
        import torch

        return torch.zeros(PERIOD, dtype=torch.bool, device=pool.device)

    def _floating(self, pool: torch.Tensor) -> list[torch.Tensor]:
        flats = [item[0] for item in spans(pool, self._layout.tensors, 1)]
        return [flat for flat in flats if flat.dtype in usable_dtypes() and flat.numel()]


def scale_in_period(flat: torch.Tensor, factors: torch.Tensor) -> None:
    """`flat[i] *= factors[i % len(factors)]`, without a temporary of its size."""
    whole = flat.numel() // factors.numel() * factors.numel()
    flat[:whole].view(-1, factors.numel()).mul_(factors)
    flat[whole:].mul_(factors[: flat.numel() - whole])


def usable_dtypes() -> tuple[torch.dtype, ...]:
    """What inputs are varied in."""
    import torch

    return (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def checksum(values: torch.Tensor) -> torch.Tensor:
    """Sums of the bytes' words down to a few columns, int64: any single change shows, and a value
    that moved to another column does. One pass over the memory. `values`: [rows, n] or flat."""
    import torch

    if not values.numel():
        return torch.zeros(1, dtype=torch.int64, device=values.device)
    words = values.reshape(-1, values.shape[-1]) if values.dim() > 1 else values.reshape(1, -1)
    width = {1: torch.uint8, 2: torch.int16, 4: torch.int32}.get(words.element_size(), torch.int64)
    if words.is_complex():
        words = torch.view_as_real(words).flatten(-2)
        width = torch.int32 if words.element_size() == 4 else torch.int64
    bits = words.view(width)
    columns = 64 if bits.shape[1] >= 64 else 1
    whole = bits.shape[1] // columns * columns
    parts = bits[:, :whole].as_strided(
        (bits.shape[0], whole // columns, columns),
        (bits.stride(0), columns, 1),
        bits.storage_offset(),
    )
    body = parts.sum(dim=(0, 1), dtype=torch.int64)
    return torch.cat([body, bits[:, whole:].sum(dtype=torch.int64).view(1)])


def sums_of(tensors: Mapping[str, torch.Tensor]) -> dict[str, bytes]:
    """The checksum of each of `tensors`, brought to the CPU."""
    return {name: checksum(item).cpu().numpy().tobytes() for name, item in tensors.items()}


def span_of(tensor: torch.Tensor) -> torch.Tensor:
    """The memory from the first element to the last one, flat."""
    return tensor.detach().as_strided((spec_of(tensor).extent,), (1,), tensor.storage_offset())


def _bank(length: int, like: torch.Tensor, seed: int) -> torch.Tensor:
    import torch

    generator = torch.Generator(device=like.device).manual_seed(seed)
    drawn = torch.rand(length, dtype=torch.float32, device=like.device, generator=generator)
    return (1.0 - (1.0 - WEAKEST) * drawn).to(like.dtype)


class CallSizes(NamedTuple):
    """Bytes of the tensors that one call takes and gives."""

    inputs: int
    outputs: int


def call_sizes(loaded: LoadedProblem, shape_set: int) -> CallSizes:
    """Found on the meta device; no outputs where the module does not run there."""
    from agentkernel.tools.judge.memory_count import bytes_of, count_module, meta_inputs

    inputs = loaded.problem.shape_sets[shape_set]
    try:
        outputs = count_module(loaded.build(seed=0, device="meta"), inputs).outputs
    except Exception:  # noqa: BLE001 - the user's module may raise anything
        outputs = 0
    return CallSizes(bytes_of(meta_inputs(inputs)), outputs)


class ProblemTensors:
    """The parent's weights, made once, and the inputs of one shape set at a time."""

    def __init__(
        self,
        loaded: LoadedProblem,
        *,
        seed: int,
        flush_bytes: int,
        device: Device,
        keep_bytes: int,
        precision: Precision = "strict",
    ) -> None:
        self.loaded = loaded
        self.inputs: tuple[object, ...] = ()
        self.shape_set: int | None = None
        self.seed = seed
        self.flush_bytes = flush_bytes
        self.device: Device = device
        self._precision: Precision = precision
        self._keep_bytes = keep_bytes
        self._weights: dict[str, torch.Tensor] | None = None
        self._large: dict[int, bool] = {}
        self.pool: torch.Tensor | None = None
        """The allocation that `inputs` lie in, where a second copy of them would be too much."""

    @property
    def small(self) -> bool:
        """True where all of it may lie in memory from the start of a run: one shape set, a module
        made from its source, tensors of moderate size."""
        several = len(self.loaded.problem.shape_sets) > 1
        return self.loaded.live is None and not several and not self.large(0)

    def large(self, shape_set: int) -> bool:
        """True where the inputs and outputs of a call are more than is kept without need."""
        if shape_set not in self._large:
            sizes = call_sizes(self.loaded, shape_set)
            self._large[shape_set] = sizes.inputs + sizes.outputs > self._keep_bytes
        return self._large[shape_set]

    def make_inputs(self, shape_set: int) -> SideFailed | None:
        """Bring the weights and the inputs of `shape_set` into memory, and no others."""
        import torch

        self.drop_inputs()
        try:
            with gpu_lock.shared():
                self.parameters()
                self.inputs = self._made(shape_set)
        except torch.OutOfMemoryError as error:
            return SideFailed(side="inputs", reason="memory", log=str(error))
        self.shape_set = shape_set
        return None

    def _made(self, shape_set: int) -> tuple[object, ...]:
        """The inputs on the device; large ones in one allocation. Where the device does not hold
        them twice, they are made on the host."""
        import torch

        if not self.large(shape_set):
            return self.loaded.make_inputs(shape_set, seed=self.seed, device=self.device)
        try:
            return self._pooled(
                list(self.loaded.make_inputs(shape_set, seed=self.seed, device=self.device))
            )
        except torch.OutOfMemoryError:
            self.drop_inputs()
        return self._pooled(list(self.loaded.make_inputs(shape_set, seed=self.seed, device="cpu")))

    def _pooled(self, values: list[object]) -> tuple[object, ...]:
        """`values` moved into one allocation, each one's own memory freed as it is."""
        import torch

        specs = [spec_of(item) for item in values if isinstance(item, torch.Tensor)]
        self.pool = make_room(row_bytes(specs), self.device, alone=True)
        views = iter(row(self.pool, specs, 0))
        for place, value in enumerate(values):
            if isinstance(value, torch.Tensor):
                view = next(views)
                span_of(view).copy_(span_of(value))
                values[place] = view
        self._empty_cache()
        return tuple(values)

    def drop_inputs(self) -> None:
        """Free the inputs in memory; the weights stay."""
        self.inputs, self.shape_set, self.pool = (), None, None
        self._empty_cache()

    def parameters(self) -> dict[str, torch.Tensor]:
        """The reference's state dict on the device, made once."""
        import torch

        if self._weights is None:
            module = self.loaded.build(seed=self.seed, device=self.device)
            self._weights = {
                name: value.detach()
                for name, value in module.state_dict().items()
                if isinstance(value, torch.Tensor)
            }
        return self._weights

    @property
    def matmul_precision(self) -> MatmulPrecision:
        """What eager and torch.compile may round in their products."""
        from agentkernel.tools.matmul_precision import matmul_precision

        return baselines_matmul(self._precision, matmul_precision())

    def release(self) -> None:
        """Free all of it."""
        self._weights = None
        self.drop_inputs()

    def start_request(self) -> dict[str, object]:
        """What a process needs to build the module with these weights."""
        import torch

        from agentkernel.tools.matmul_precision import convolutions_round

        live = self.loaded.live
        return {
            "do": "start",
            "device": self.device,
            "problem": self.loaded.problem,
            "live": None if live is None else (copy.deepcopy(live).cpu(), ()),
            "seed": self.seed,
            "flush_bytes": self.flush_bytes,
            "matmul_precision": self.matmul_precision,
            "cudnn_benchmark": torch.backends.cudnn.benchmark,
            "convolutions_round": convolutions_round(),
            "state": {name: self._sendable(value) for name, value in self.parameters().items()},
        }

    def prepare_request(self, shape_set: int, *, eager: bool) -> dict[str, object]:
        """The inputs in memory; `eager`: it is timed there."""
        inputs = [self._sendable(item) for item in self.inputs]
        return {
            "do": "prepare",
            "shape_set": shape_set,
            "inputs": inputs,
            "eager": eager,
            "large": self.large(shape_set),
        }

    def _sendable(self, value: object) -> object:
        """How a process gets a value: device memory by handle, or else by copy."""
        import torch

        if not isinstance(value, torch.Tensor):
            return value
        if value.device.type == "cuda":
            shared = share_tensor(value)
            if shared.ref.kind == "ipc":
                return shared.ref
            if shared.fd is not None:
                os.close(shared.fd)
        return value.detach().cpu()

    def _empty_cache(self) -> None:
        if self.device == "cuda":
            import torch

            torch.cuda.empty_cache()
