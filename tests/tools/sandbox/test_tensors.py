"""A shared tensor looks like one that the worker's own process made."""

import os

import torch

from agentkernel.tools.sandbox.tensors import (
    ALIGNMENT,
    PAGE,
    OpenTensors,
    share_exclusive,
    share_room,
)


def test_a_shared_tensor_begins_where_an_allocated_one_may():
    opened = OpenTensors()
    places = set()
    for number in range(12):
        given = torch.arange(40.0).view(5, 8).t()
        shared = share_exclusive(given) if number % 2 else share_room((5, 8), torch.float32, "cpu")
        opened.add([shared.ref], [os.dup(shared.fd)])
        found = opened.get(shared.ref)
        shared.tensor.copy_(torch.full_like(shared.tensor, number))
        assert (found == number).all()
        assert found.stride() == shared.tensor.stride()
        assert found.storage_offset() == 0
        assert found.untyped_storage().nbytes() == found.nbytes
        places.add(found.data_ptr() % PAGE)
        shared.close()
    assert len(places) > 1
    assert not any(place % ALIGNMENT for place in places)
