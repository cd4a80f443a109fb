"""Memory that the parent and a timed process share during a timing batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from agentkernel.tools.sandbox.tensors import ipc_allocation

if TYPE_CHECKING:
    import torch

ALIGNMENT = 512
"""Bytes: what the caching allocator gives, so that kernels see the alignment they know."""
HEADER = 16
"""Words of the control block before the order of the calls."""
GO, STOP, RELEASE = 0, 1, 2
"""Words that the parent writes."""
ARMED, PROGRESS, DONE = 3, 4, 5
"""Words that the timed process writes."""
LONG_FLUSH = 4
"""Flush regions a call in batches that leave no host-bound gap: about 0.6 ms on an H200."""
KEEP = 1 << 32
"""Flag in an order word: this call's output is looked at again after the later calls."""


@dataclass(frozen=True)
class Spec:
    """Layout of one tensor; `stride` in elements."""

    dtype: str
    shape: tuple[int, ...]
    stride: tuple[int, ...]

    @property
    def extent(self) -> int:
        """Elements from the first to the last one, both included."""
        if any(size == 0 for size in self.shape):
            return 0
        return 1 + sum((n - 1) * step for n, step in zip(self.shape, self.stride, strict=True))

    @property
    def nbytes(self) -> int:
        """Bytes of that span."""
        import torch

        dtype: torch.dtype = getattr(torch, self.dtype)
        return self.extent * dtype.itemsize


def spec_of(tensor: torch.Tensor) -> Spec:
    """The layout of `tensor`."""
    dtype = str(tensor.dtype).removeprefix("torch.")
    return Spec(dtype, tuple(tensor.shape), tuple(tensor.stride()))


def packed(dtype: str, shape: Sequence[int]) -> Spec:
    """The contiguous layout of `shape`."""
    strides: list[int] = []
    step = 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return Spec(dtype, tuple(shape), tuple(reversed(strides)))


@dataclass(frozen=True)
class Layout:
    """`rows` sets of inputs, and for each call of a batch a slot for its outputs and a region that
    its flush fills, with `spare` regions more where a call of few rows may have several. `inputs`
    has None for what is no tensor; `kept` outputs are looked at again."""

    inputs: tuple[Spec | None, ...]
    outputs: tuple[Spec, ...]
    rows: int
    flush_bytes: int
    kept: int = 2
    spare: int = 0

    @property
    def regions(self) -> int:
        """Flush regions of a batch, each filled at most once in it."""
        return self.rows + self.spare

    def most_calls(self, fills: int) -> int:
        """Calls of a batch that has a row for each of them and `fills` regions before each."""
        return min(self.rows, self.regions // fills)

    @property
    def resident(self) -> bool:
        """True where one call's tensors are too large for rows: all sides then share one row of
        inputs and one slot, and give back what a batch took."""
        return self.rows == 1

    @property
    def tensors(self) -> tuple[Spec, ...]:
        """The inputs that are tensors."""
        return tuple(spec for spec in self.inputs if spec is not None)


class Buffers(NamedTuple):
    """`control` int64 on the CPU; the others raw bytes (uint8) on the device."""

    control: torch.Tensor
    pool: torch.Tensor
    slots: torch.Tensor
    kept: torch.Tensor
    flush: torch.Tensor


def row_bytes(specs: Sequence[Spec]) -> int:
    """Bytes of one row of `specs`, each aligned."""
    return sum(map(_aligned, specs)) or ALIGNMENT


def make_room(nbytes: int, device: str, *, alone: bool = False) -> torch.Tensor:
    """`nbytes` zeros (uint8) on `device`; `alone`: on a GPU in an allocation of their own, which
    every process can map without a copy."""
    import torch

    if alone and device == "cuda":
        return ipc_allocation(nbytes, torch.cuda.current_device())[:nbytes]
    return torch.zeros(nbytes, dtype=torch.uint8, device=device)


def make_buffers(layout: Layout, device: str, pool: torch.Tensor | None = None) -> Buffers:
    """Fresh memory, zeroed: inputs that are never written are at least numbers. `pool`: the rows of
    inputs, where they exist already."""
    import torch

    def room(nbytes: int) -> torch.Tensor:
        return make_room(nbytes, device, alone=layout.resident)

    outputs = row_bytes(layout.outputs)
    return Buffers(
        control=torch.zeros(HEADER + layout.rows + layout.regions, dtype=torch.int64),
        pool=room(layout.rows * row_bytes(layout.tensors)) if pool is None else pool,
        slots=room(layout.rows * outputs),
        kept=room(layout.kept * outputs),
        flush=room(layout.regions * flush_step(layout)),
    )


def flush_step(layout: Layout) -> int:
    """Bytes of one flush region."""
    return -(-max(layout.flush_bytes, 1) // ALIGNMENT) * ALIGNMENT


def row(data: torch.Tensor, specs: Sequence[Spec], index: int) -> list[torch.Tensor]:
    """The tensors of row `index`, with their shapes and strides; none is a view of another."""
    import torch

    begin = data.storage_offset() + index * row_bytes(specs)
    found = []
    for spec in specs:
        dtype: torch.dtype = getattr(torch, spec.dtype)
        made = torch.empty(0, dtype=dtype, device=data.device)
        offset = begin // dtype.itemsize
        found.append(made.set_(data.untyped_storage(), offset, spec.shape, spec.stride))
        begin += _aligned(spec)
    return found


def spans(data: torch.Tensor, specs: Sequence[Spec], rows: int) -> list[torch.Tensor]:
    """A spec's memory in all rows: [rows, extent], for each of `specs`."""
    step = row_bytes(specs)
    found, begin = [], 0
    for spec in specs:
        flat = _typed(data, spec, begin, _aligned(spec))
        stride = (step // flat.element_size(), 1)
        found.append(flat.as_strided((rows, spec.extent), stride, flat.storage_offset()))
        begin += _aligned(spec)
    return found


def flush_regions(data: torch.Tensor, layout: Layout) -> torch.Tensor:
    """int32 [regions, words]."""
    import torch

    return data.view(torch.int32).view(layout.regions, flush_step(layout) // 4)


def _typed(data: torch.Tensor, spec: Spec, begin: int, nbytes: int) -> torch.Tensor:
    import torch

    dtype: torch.dtype = getattr(torch, spec.dtype)
    return data.narrow(0, begin, nbytes).view(dtype)


def _aligned(spec: Spec) -> int:
    return max(-(-spec.nbytes // ALIGNMENT), 1) * ALIGNMENT
