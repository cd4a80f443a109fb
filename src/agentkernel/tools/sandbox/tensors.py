"""Tensors that parent and worker share: memory files on the CPU, IPC handles on CUDA.

CPU: a sealed memory file (the worker can neither shrink nor grow it, so that the parent never
reads past its end). CUDA: an IPC handle, or a staged copy through a memory file where IPC is
refused.

The driver's legacy IPC handles are used (CUDA Driver API, Memory Management: cuIpcGetMemHandle,
cuIpcOpenMemHandle). Torch's own sharing keeps a reference counter in /dev/shm, which the worker
does not see, and would never free the parent's memory.

A handle opens the whole block that an address lies in: torch's allocator puts many tensors into
one, and the driver puts small allocations side by side (CUDA Runtime API, cudaIpcGetMemHandle:
share only allocations whose size is a multiple of 2 MiB). So shared tensors get an allocation of
their own.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import functools
import itertools
import math
import os
import secrets
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    import torch


LAZY_ENABLE_PEER_ACCESS = 1


class IpcHandle(ctypes.Structure):
    """CUipcMemHandle: 64 opaque bytes."""

    _fields_ = (("reserved", ctypes.c_ubyte * 64),)


class IpcRefused(Exception):
    """The driver shares no handle for this allocation (expandable segments, another user id)."""


@dataclass(frozen=True)
class CudaSlice:
    """`nbytes` at `offset` into the allocation of `block_nbytes` behind `handle` on `device` (an
    index)."""

    handle: bytes
    offset: int
    nbytes: int
    device: int
    block_nbytes: int

    @property
    def alone(self) -> bool:
        """True where nothing else lies in the allocation: the handle opens all of it."""
        return self.offset == 0 and self.nbytes == self.block_nbytes


class _DeviceBytes:
    """A span of device memory as torch's `as_tensor` understands it."""

    def __init__(self, address: int, nbytes: int) -> None:
        self.__cuda_array_interface__ = {
            "shape": (nbytes,),
            "typestr": "|u1",
            "data": (address, False),
            "version": 3,
        }


@functools.cache
def _driver() -> ctypes.CDLL:
    library = ctypes.CDLL("libcuda.so.1")
    library.cuIpcOpenMemHandle_v2.argtypes = [
        ctypes.POINTER(ctypes.c_uint64),
        IpcHandle,
        ctypes.c_uint,
    ]
    library.cuIpcGetMemHandle.argtypes = [ctypes.POINTER(IpcHandle), ctypes.c_uint64]
    library.cuIpcCloseMemHandle.argtypes = [ctypes.c_uint64]
    library.cuMemGetAddressRange_v2.argtypes = [
        ctypes.POINTER(ctypes.c_uint64),
        ctypes.POINTER(ctypes.c_size_t),
        ctypes.c_uint64,
    ]
    return library


def export_span(tensor: torch.Tensor) -> CudaSlice:
    """The handle of `tensor`'s whole storage. Raises IpcRefused."""
    storage = tensor.untyped_storage()
    base, size = ctypes.c_uint64(), ctypes.c_size_t()
    handle = IpcHandle()
    with _device(tensor.device.index or 0):
        _check(
            _driver().cuMemGetAddressRange_v2(
                ctypes.byref(base), ctypes.byref(size), storage.data_ptr()
            )
        )
        _check(_driver().cuIpcGetMemHandle(ctypes.byref(handle), base.value))
    return CudaSlice(
        handle=bytes(handle.reserved),
        offset=storage.data_ptr() - base.value,
        nbytes=storage.nbytes(),
        device=tensor.device.index or 0,
        block_nbytes=size.value,
    )


class IpcMappings:
    """The worker's open handles, one mapping an allocation, closed with its last user."""

    def __init__(self) -> None:
        self._open: dict[bytes, tuple[int, int]] = {}

    def bytes_of(self, span: CudaSlice) -> torch.Tensor:
        """A uint8 CUDA tensor over `span`, shape (nbytes,). Raises IpcRefused."""
        import torch

        torch.cuda.current_device()
        address, users = self._open.get(span.handle, (0, 0))
        if not users:
            address = self._map(span)
        self._open[span.handle] = (address, users + 1)
        view = _DeviceBytes(address + span.offset, span.nbytes)
        return torch.as_tensor(view, device=f"cuda:{span.device}")

    def release(self, span: CudaSlice) -> None:
        """Give up one use of the mapping."""
        address, users = self._open.get(span.handle, (0, 0))
        if users > 1:
            self._open[span.handle] = (address, users - 1)
        elif users == 1:
            del self._open[span.handle]
            with _device(span.device):
                _check(_driver().cuIpcCloseMemHandle(address))

    def _map(self, span: CudaSlice) -> int:
        handle = IpcHandle((ctypes.c_ubyte * 64).from_buffer_copy(span.handle))
        address = ctypes.c_uint64()
        with _device(span.device):
            _check(
                _driver().cuIpcOpenMemHandle_v2(
                    ctypes.byref(address), handle, LAZY_ENABLE_PEER_ACCESS
                )
            )
        return address.value


def _device(index: int) -> torch.cuda.device:
    """Context manager under which `index` is current, its primary context made."""
    import torch

    torch.empty(1, device=f"cuda:{index}")
    return torch.cuda.device(index)


def _check(code: int) -> None:
    if code != 0:
        raise IpcRefused(f"CUDA driver error {code}")


GRANULE_BYTES = 2 << 20
OUT_OF_MEMORY = 2


class DeviceMemory(Protocol):
    """What the driver does; addresses are those of `device` (an index)."""

    def allocate(self, nbytes: int, device: int) -> int | None:
        """The address, or None where there is not enough. Raises OSError."""

    def free(self, address: int, device: int) -> None: ...

    def make_room(self) -> None:
        """Give back what is cached."""


class IpcAllocation:
    """Device memory of whole granules, freed with its last user. Torch reads its address from it.

    Raises MemoryError where the device has too little, OSError for any other refusal.
    """

    def __init__(self, nbytes: int, device: int, memory: DeviceMemory) -> None:
        self.nbytes = max(1, -(-nbytes // GRANULE_BYTES)) * GRANULE_BYTES
        address = memory.allocate(self.nbytes, device)
        if address is None:
            memory.make_room()
            address = memory.allocate(self.nbytes, device)
        if address is None:
            raise MemoryError(f"the device has no {self.nbytes} bytes left")
        weakref.finalize(self, memory.free, address, device).atexit = False
        self.__cuda_array_interface__ = {
            "shape": (self.nbytes,),
            "typestr": "|u1",
            "data": (address, False),
            "version": 3,
        }


class CudaMemory:
    """The CUDA driver (Driver API, "Memory Management")."""

    def allocate(self, nbytes: int, device: int) -> int | None:
        """cuMemAlloc in the primary context, which torch has made."""
        import torch

        address = ctypes.c_uint64()
        torch.empty(1, device=f"cuda:{device}")
        with torch.cuda.device(device):
            code = _cuda_driver().cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(nbytes))
        if code not in (0, OUT_OF_MEMORY):
            raise OSError(f"cuMemAlloc: CUDA driver error {code}")
        return address.value if code == 0 else None

    def free(self, address: int, device: int) -> None:
        """cuMemFree, which waits for what still uses the memory."""
        import torch

        with contextlib.suppress(RuntimeError), torch.cuda.device(device):
            _cuda_driver().cuMemFree_v2(ctypes.c_uint64(address))

    def make_room(self) -> None:
        """Torch's cache holds most of what is free."""
        import torch

        torch.cuda.empty_cache()


def ipc_allocation(nbytes: int, device: int) -> torch.Tensor:
    """Zeros: uint8, on `device`, whole granules and at least `nbytes`, alone in their allocation.
    Raises torch.OutOfMemoryError."""
    import torch

    try:
        block = IpcAllocation(nbytes, device, CudaMemory())
    except MemoryError as error:
        raise torch.OutOfMemoryError(f"CUDA out of memory: {error}") from error
    return torch.as_tensor(block, device=f"cuda:{device}").zero_()


@functools.cache
def _cuda_driver() -> ctypes.CDLL:
    return ctypes.CDLL("libcuda.so.1")


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
