"""Outputs that are still being written when their stream is done are seen."""

import torch

from agentkernel.tools.judge.execution import process_state
from agentkernel.tools.judge.execution.process_state import background_work


class Idle:
    """The streams of a call whose kernels are done."""

    def unfinished(self) -> int:
        return 0


def asked(leaves, write=lambda: None):
    return background_work(leaves, Idle(), lambda: None, write)


def test_what_is_written_after_the_stream_was_done_shows(monkeypatch):
    monkeypatch.setattr(process_state, "PIECE_BYTES", 256)
    value, other = torch.randn(1000), torch.randn(64, 3).t()
    assert not asked([value, other, 3.0])
    assert not asked([value[:3], value, other])
    assert asked([value, other], lambda: value[999:].add_(1)).startswith("output 0 was still")
    assert asked([value, other], lambda: other[2, 60:].mul_(-1)).startswith("output 1 was still")


def test_no_temporary_of_the_size_of_an_output(monkeypatch):
    """Sums are taken piece by piece: a copy has no room beside outputs that fill a device."""
    monkeypatch.setattr(process_state, "PIECE_BYTES", 1 << 16)
    value = torch.zeros(1 << 22)
    largest = 0
    clone = torch.Tensor.clone

    def seen(tensor, *args, **kwargs):
        nonlocal largest
        largest = max(largest, tensor.numel())
        return clone(tensor, *args, **kwargs)

    monkeypatch.setattr(torch.Tensor, "clone", seen)
    assert not asked([value])
    assert largest < value.numel()
