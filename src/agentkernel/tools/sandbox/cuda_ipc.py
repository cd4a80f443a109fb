"""How does a CUDA tensor of the parent become memory of the worker, without a copy?

The driver's legacy IPC handles (CUDA Driver API, "Memory Management": cuIpcGetMemHandle,
cuIpcOpenMemHandle). Torch's own sharing keeps a reference counter in /dev/shm, which the worker
does not see, and would never free the parent's memory.
"""

from __future__ import annotations

import ctypes
import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING

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
