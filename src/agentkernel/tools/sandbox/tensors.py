"""How does a tensor of the parent become a tensor of the worker?

CPU: a sealed memory file (the worker can neither shrink nor grow it, so that the parent never reads
past its end). CUDA: an IPC handle, or a staged copy through a memory file where IPC is refused.
"""

from __future__ import annotations

import fcntl
import itertools
import math
import os
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from agentkernel.tools.sandbox.cuda_ipc import CudaSlice, IpcMappings, IpcRefused, export_span
from agentkernel.tools.sandbox.own_block import ipc_allocation

if TYPE_CHECKING:
    import torch

ALIGNMENT = 64
"""Bytes, at which torch's own allocator begins tensors on the CPU."""
PAGE = 4096
SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
_numbers = itertools.count(1)


@dataclass(frozen=True)
class TensorRef:
    """A tensor that both processes see. `stride` and `offset` in elements, within `nbytes`."""

    number: int
    kind: Literal["memory", "ipc", "staged"]
    dtype: str
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int
    nbytes: int
    span: CudaSlice | None = None
    device: str = "cpu"
    begin: int = 0
    """Bytes of its memory file before it."""


@dataclass(eq=False)
class Shared:
    """The parent's side: the tensor, its reference, and (until it is sent) its file descriptor.

    `host` is the memory file's view of a staged tensor.
    """

    ref: TensorRef
    tensor: torch.Tensor
    fd: int | None = None
    host: torch.Tensor | None = None

    def close(self) -> None:
        """The file descriptor is sent, or never will be."""
        if self.fd is not None:
            os.close(self.fd)
            self.fd = None

    def push(self) -> None:
        """Bring a staged tensor's bytes to the memory file."""
        if self.host is not None:
            self.host.copy_(_storage_bytes(self.tensor))

    def pull(self) -> None:
        """Bring a staged tensor's bytes back from the memory file."""
        if self.host is not None:
            _storage_bytes(self.tensor).copy_(self.host)


def share_tensor(tensor: torch.Tensor) -> Shared:
    """Make `tensor` visible to a process that is trusted. A CPU tensor is copied once: use
    `Shared.tensor`, which is the shared memory itself, from there on. A CUDA tensor is shared as it
    is, with the whole block of memory that it lies in."""
    import torch

    with torch.no_grad():
        tensor = tensor.detach()
        if tensor.device.type == "cuda":
            return _share_cuda(tensor)
        return _share_memory(tensor)


def share_exclusive(tensor: torch.Tensor) -> Shared:
    """Make a copy of `tensor` visible to a worker: `Shared.tensor`, which lies in memory of its own
    with nothing else in it. Strides stay; what lies between the elements does not cross."""
    import torch

    with torch.no_grad():
        tensor = tensor.detach()
        if tensor.device.type == "cuda":
            return _share_cuda(copy_exclusive(tensor, ipc_allocation), alone=True)
        return _share_memory(tensor)


def share_resident(tensor: torch.Tensor) -> Shared:
    """Make `tensor` itself visible to a worker where its storage is an allocation that holds
    nothing else; a copy (`share_exclusive`) elsewhere, and on the CPU."""
    if tensor.device.type == "cuda":
        found = share_tensor(tensor)
        if found.ref.span is not None and found.ref.span.alone:
            return found
        found.close()
    return share_exclusive(tensor)


def share_room(shape: Sequence[int], dtype: torch.dtype, device: str) -> Shared:
    """Memory for a contiguous tensor that a worker sees, with nothing in it: no copy is made. On a
    device it has zeros; "cpu" is host memory for a worker of any kind."""
    import torch

    if torch.device(device).type != "cuda":
        return _share_room(tuple(shape), dtype)
    span = max(1, math.prod(shape)) * dtype.itemsize
    data = ipc_allocation(span, torch.device(device).index or 0)[:span]
    return _share_cuda(data.view(dtype)[: math.prod(shape)].view(tuple(shape)), alone=True)


def _share_room(shape: tuple[int, ...], dtype: torch.dtype) -> Shared:
    begin = _drawn_begin()
    fd, data = _memory_file(math.prod(shape) * dtype.itemsize, begin)
    ref = TensorRef(
        number=next(_numbers),
        kind="memory",
        dtype=str(dtype).removeprefix("torch."),
        shape=shape,
        stride=_strides(shape),
        offset=0,
        nbytes=data.numel(),
        begin=begin,
    )
    return Shared(ref, view_bytes(data, ref), fd)


def _strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Of a contiguous tensor, as torch counts them."""
    found: list[int] = []
    step = 1
    for size in reversed(shape):
        found.append(step)
        step *= max(size, 1)
    return tuple(reversed(found))


def copy_exclusive(
    tensor: torch.Tensor, allocate: Callable[[int, int], torch.Tensor]
) -> torch.Tensor:
    """`tensor` copied, with its strides, into bytes that `allocate(nbytes, device index)` gives:
    uint8, zero, at least that many, at the start of an allocation that holds nothing else."""
    span = _extent(tensor.shape, tensor.stride()) * tensor.element_size()
    data = allocate(max(span, 1), tensor.device.index or 0)[:span]
    own = data.view(tensor.dtype).as_strided(tensor.shape, tensor.stride(), 0)
    _fill(own, tensor)
    return own


def _fill(own: torch.Tensor, tensor: torch.Tensor) -> None:
    """Copy; an expanded dimension's elements are one in memory, and are written once."""
    for dim, (size, step) in enumerate(zip(tensor.shape, tensor.stride(), strict=True)):
        if size > 1 and step == 0:
            own, tensor = own.narrow(dim, 0, 1), tensor.narrow(dim, 0, 1)
    own.copy_(tensor)


def _share_memory(tensor: torch.Tensor) -> Shared:
    span = _extent(tensor.shape, tensor.stride()) * tensor.element_size()
    begin = _drawn_begin()
    fd, data = _memory_file(span, begin)
    ref = TensorRef(
        number=next(_numbers),
        kind="memory",
        dtype=str(tensor.dtype).removeprefix("torch."),
        shape=tuple(tensor.shape),
        stride=tuple(tensor.stride()),
        offset=0,
        nbytes=data.numel(),
        begin=begin,
    )
    mapped = view_bytes(data, ref)
    _fill(mapped, tensor)
    return Shared(ref, mapped, fd)


def _share_cuda(tensor: torch.Tensor, *, alone: bool = False) -> Shared:
    import torch

    torch.cuda.synchronize(tensor.device)
    ref = TensorRef(
        number=next(_numbers),
        kind="ipc",
        dtype=str(tensor.dtype).removeprefix("torch."),
        shape=tuple(tensor.shape),
        stride=tuple(tensor.stride()),
        offset=int(tensor.storage_offset()),
        nbytes=tensor.untyped_storage().nbytes(),
        device=f"cuda:{tensor.device.index or 0}",
    )
    try:
        span = export_span(tensor)
        if alone and not span.alone:
            raise IpcRefused("other data lies in the same allocation")
        return Shared(_with(ref, span=span), tensor)
    except (IpcRefused, OSError):
        fd, host = _memory_file(ref.nbytes)
        host = host[: ref.nbytes]
        return Shared(_with(ref, kind="staged"), tensor, fd, host)


def _with(ref: TensorRef, **changes: object) -> TensorRef:
    import dataclasses

    return dataclasses.replace(ref, **changes)  # type: ignore[arg-type]


class OpenTensors:
    """The worker's side: the shared tensors by number."""

    def __init__(self) -> None:
        self._tensors: dict[int, torch.Tensor] = {}
        self._refs: dict[int, TensorRef] = {}
        self._hosts: dict[int, torch.Tensor] = {}
        self._mappings = IpcMappings()

    def add(self, refs: Sequence[TensorRef], fds: Sequence[int]) -> None:
        """Map what the parent has newly shared; `fds` belong to the non-IPC ones, in order."""
        descriptors = iter(fds)
        for ref in refs:
            data = self._bytes(ref, descriptors)
            self._refs[ref.number] = ref
            # `data`: as a tensor that was made in this process, not a view of another one.
            self._tensors[ref.number] = view_bytes(data, ref).data

    def get(self, ref: TensorRef) -> torch.Tensor:
        """The tensor behind `ref`."""
        return self._tensors[ref.number]

    def holds(self, number: int) -> bool:
        """Whether the parent has not released it yet."""
        return number in self._refs

    def drop(self, numbers: Sequence[int]) -> None:
        """Unmap what the parent has released."""
        for number in numbers:
            ref = self._refs.pop(number, None)
            self._tensors.pop(number, None)
            self._hosts.pop(number, None)
            if ref is not None and ref.span is not None:
                self._mappings.release(ref.span)

    def pull(self) -> None:
        """Read staged tensors afresh before an op."""
        for number, host in self._hosts.items():
            _storage_bytes(self._tensors[number]).copy_(host)

    def push(self) -> None:
        """Finish device work and write staged tensors back after an op."""
        import torch

        if any(tensor.is_cuda for tensor in self._tensors.values()):
            torch.cuda.synchronize()
        for number, host in self._hosts.items():
            host.copy_(_storage_bytes(self._tensors[number]))

    def _bytes(self, ref: TensorRef, descriptors: object) -> torch.Tensor:
        if ref.span is not None:
            return self._mappings.bytes_of(ref.span)
        fd = next(descriptors)  # type: ignore[call-overload]
        data = _map(fd, max(ref.nbytes, 1), ref.begin)
        os.close(fd)
        if ref.kind == "memory":
            return data
        self._hosts[ref.number] = data[: ref.nbytes]
        return data[: ref.nbytes].to(ref.device)


def view_bytes(data: torch.Tensor, ref: TensorRef) -> torch.Tensor:
    """`ref`'s dtype, shape and stride over raw bytes (uint8, shape (nbytes,))."""
    import torch

    dtype: torch.dtype = getattr(torch, ref.dtype)
    size = data.numel() // dtype.itemsize * dtype.itemsize
    return data[:size].view(dtype).as_strided(ref.shape, ref.stride, ref.offset)


def _drawn_begin() -> int:
    """Where in a page a tensor begins: anywhere that torch's own allocator may begin one."""
    return ALIGNMENT * secrets.randbelow(PAGE // ALIGNMENT)


def _memory_file(nbytes: int, begin: int = 0) -> tuple[int, torch.Tensor]:
    size = max(16, (nbytes + 15) // 16 * 16)
    fd = os.memfd_create("agentkernel-tensor", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, begin + size)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, SEALS)
    return fd, _map(fd, size, begin)


def _map(fd: int, size: int, begin: int) -> torch.Tensor:
    """The file's `size` bytes from `begin` on, in a storage that holds nothing else."""
    import torch

    path = f"/proc/self/fd/{fd}"
    data = torch.from_file(path, shared=True, size=begin + size, dtype=torch.uint8)
    return torch.frombuffer(data.numpy().data[begin:], dtype=torch.uint8)


def _storage_bytes(tensor: torch.Tensor) -> torch.Tensor:
    import torch

    storage = tensor.untyped_storage()
    return torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(storage)


def _extent(shape: Sequence[int], stride: Sequence[int]) -> int:
    """Elements from the first to the last one, both included."""
    if any(size == 0 for size in shape):
        return 0
    return 1 + sum((size - 1) * step for size, step in zip(shape, stride, strict=True))
