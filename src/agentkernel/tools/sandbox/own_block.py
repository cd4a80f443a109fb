"""How does device memory come by itself, so that its IPC handle opens nothing else?

A handle opens the whole block that an address lies in: torch's allocator puts many tensors into
one, and the driver puts small allocations side by side (CUDA Runtime API, cudaIpcGetMemHandle: it
is advised to share only allocations whose size is a multiple of 2 MiB).
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import weakref
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import torch

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
            code = _driver().cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(nbytes))
        if code not in (0, OUT_OF_MEMORY):
            raise OSError(f"cuMemAlloc: CUDA driver error {code}")
        return address.value if code == 0 else None

    def free(self, address: int, device: int) -> None:
        """cuMemFree, which waits for what still uses the memory."""
        import torch

        with contextlib.suppress(RuntimeError), torch.cuda.device(device):
            _driver().cuMemFree_v2(ctypes.c_uint64(address))

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
def _driver() -> ctypes.CDLL:
    return ctypes.CDLL("libcuda.so.1")
