"""A drop-in's time is the device's or, where that is longer, the processor's for its launches."""

from types import SimpleNamespace

import pytest

from agentkernel.tools.search.worker_ops import time_block


class Bench:
    """Calls of 5, 7 and 9 us on the device."""

    def __init__(self, launching_us):
        self.launching_us = launching_us

    def block(self, call, calls, last_us):
        return (5.0, 7.0, 9.0)[:calls]

    def enqueue_us(self, call):
        return self.launching_us


@pytest.mark.parametrize(
    ("launching_us", "wanted"), [(1.0, [5.0, 7.0, 9.0]), (8.0, [8.0, 8.0, 9.0])]
)
def test_a_call_takes_at_least_its_launches(launching_us, wanted):
    state = SimpleNamespace(memory={"calls": {3: None}, "bench": Bench(launching_us)})
    asked = {"index": 3, "calls": 3, "last_us": 0.0, "limit_us": 100.0, "whole": True}
    assert time_block(asked, state) == {"us": wanted}
    assert time_block(asked | {"whole": False}, state) == {"us": [5.0, 7.0, 9.0]}
    assert time_block(asked | {"limit_us": 1.0}, state) == {"us": [5.0]}
