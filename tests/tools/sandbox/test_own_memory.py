"""A shared tensor lies alone in its memory."""

import gc
import os

import pytest
import torch

from agentkernel.tools.sandbox.tensors import (
    GRANULE_BYTES,
    CudaSlice,
    IpcAllocation,
    copy_exclusive,
    share_exclusive,
)


class Device:
    """A device with `room` bytes, and `cached` more that can be given back."""

    def __init__(self, room, cached=0):
        self.room, self.cached, self.held = room, cached, {}

    def allocate(self, nbytes, device):
        if nbytes > self.room:
            return None
        self.room -= nbytes
        address = (len(self.held) + 1) << 32
        self.held[address] = (nbytes, device)
        return address

    def free(self, address, device):
        nbytes, owner = self.held.pop(address)
        assert owner == device
        self.room += nbytes

    def make_room(self):
        self.room, self.cached = self.room + self.cached, 0


@pytest.mark.quick(1)
@pytest.mark.parametrize(("nbytes", "granules"), [(1, 1), (2 << 20, 1), ((2 << 20) + 1, 2)])
def test_a_block_is_whole_granules_and_freed_with_its_last_user(nbytes, granules):
    device = Device(16 << 20)
    block = IpcAllocation(nbytes, 3, device)
    address, writable = block.__cuda_array_interface__["data"][0], 3
    assert device.held == {address: (granules * GRANULE_BYTES, writable)}
    assert block.nbytes == granules * GRANULE_BYTES
    del block
    gc.collect()
    assert device.held == {}


def test_a_full_device_is_asked_twice_and_then_says_so():
    IpcAllocation(4 << 20, 0, Device(0, cached=4 << 20))
    with pytest.raises(MemoryError):
        IpcAllocation(4 << 20, 0, Device(0, cached=2 << 20))


def zeros(nbytes, device):
    return torch.zeros(-(-nbytes // GRANULE_BYTES) * GRANULE_BYTES, dtype=torch.uint8)


@pytest.mark.parametrize(
    "tensor",
    [
        torch.arange(24.0).reshape(4, 6)[:, ::2],
        torch.arange(24).reshape(4, 6).t(),
        torch.arange(6, dtype=torch.bfloat16)[None].expand(4, 6),
        torch.tensor([True, False]),
        torch.tensor(3.5),
        torch.zeros(0, 3),
        torch.arange(4.0).to(torch.complex64),
    ],
)
def test_a_copy_apart_has_the_values_and_strides_and_nothing_else(tensor):
    own = copy_exclusive(tensor, zeros)
    assert torch.equal(own, tensor)
    assert (own.stride(), own.dtype, own.storage_offset()) == (tensor.stride(), tensor.dtype, 0)
    storage = own.untyped_storage()
    assert storage.nbytes() % GRANULE_BYTES == 0
    everything = torch.empty(0, dtype=torch.uint8).set_(storage)
    held = int(torch.as_tensor(everything).count_nonzero())
    values = {id(tensor): tensor.reshape(-1).contiguous().view(torch.uint8)}
    assert held <= int(values[id(tensor)].count_nonzero())


def test_gaps_do_not_cross():
    """What lies between a strided input's elements may be anything of the judge's."""
    base = torch.full((8, 8), 7.0)
    own = copy_exclusive(base[:, ::2], zeros)
    whole = torch.empty(0, dtype=torch.uint8).set_(own.untyped_storage()).view(torch.float32)
    assert int((whole == 7.0).sum()) == 32
    shared = share_exclusive(base[:, ::2])
    whole = torch.empty(0, dtype=torch.uint8).set_(shared.tensor.untyped_storage())
    assert int((whole[: whole.numel() // 4 * 4].view(torch.float32) == 7.0).sum()) == 32
    os.close(shared.fd)


def test_a_span_knows_whether_it_is_alone():
    assert CudaSlice(b"", 0, 2 << 20, 0, 2 << 20).alone
    assert not CudaSlice(b"", 0, 1 << 20, 0, 2 << 20).alone
    assert not CudaSlice(b"", 512, 1 << 20, 0, 1 << 20).alone
