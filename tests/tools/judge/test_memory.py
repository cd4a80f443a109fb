"""Nothing of a case's memory is kept where the device has no room for all of it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest
import torch

from agentkernel.tools.judge.memory import CaseMemory
from agentkernel.tools.judge.reference.oracle_inputs import ReferenceCase
from agentkernel.tools.sandbox.session import Worker


class FullWorker:
    """Has room for so many tensors."""

    device = "cpu"

    def __init__(self, room: int) -> None:
        self.room = room
        self.shared = 0
        self.held: set[int] = set()

    def share(self, tensor: torch.Tensor) -> int:
        if len(self.held) == self.room:
            raise torch.OutOfMemoryError("CUDA out of memory")
        self.shared += 1
        self.held.add(self.shared)
        return self.shared

    def release(self, refs: list[int]) -> None:
        self.held -= set(refs)


@pytest.mark.parametrize("room", [0, 1, 2, 3])
def test_what_was_shared_is_released(room: int) -> None:
    worker = FullWorker(room)
    inputs = [torch.ones(4), 2.0, torch.ones(3)]
    reference_case = SimpleNamespace(inputs=inputs, answer=SimpleNamespace(leaves=[torch.ones(2)]))
    with pytest.raises(torch.OutOfMemoryError):
        CaseMemory(cast("Worker", worker), cast("ReferenceCase", reference_case), recalls=True)
    assert not worker.held
