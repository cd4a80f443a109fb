"""A drop-in's time is the device's or, where that is longer, the processor's for its launches."""

from types import SimpleNamespace

import pytest
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from agentkernel.runtime.stages import recording
from agentkernel.tools.search import worker, worker_ops
from agentkernel.tools.search.worker_ops import FLUSH_US, time_block


class Bench:
    """Calls of 5, 7 and 9 us on the device, unless the host is late."""

    def __init__(self, launching_us):
        self.launching_us = launching_us

    def block(self, call, calls, last_us, flushes=1):
        late_us = max(0.0, self.launching_us - flushes * FLUSH_US)
        return tuple(item + late_us for item in (5.0, 7.0, 9.0)[:calls])

    def enqueue_us(self, call):
        return self.launching_us


@pytest.mark.parametrize(
    ("launching_us", "wanted"),
    [(1.0, (5.0, 7.0, 9.0)), (8.0, (8.0, 8.0, 9.0)), (900.0, (900.0, 900.0, 900.0))],
)
def test_a_call_takes_at_least_its_launches(launching_us, wanted):
    state = SimpleNamespace(memory={"calls": {3: None}, "bench": Bench(launching_us)})
    asked = {"index": 3, "calls": 3, "last_us": 0.0, "limit_us": 1000.0, "whole": True}
    found = time_block(asked, state)
    assert found == {"us": [5.0, 7.0, 9.0], "launch_us": launching_us}
    assert worker.Block(tuple(found["us"]), found["launch_us"]).us == wanted


def test_what_is_hopeless_is_called_once_and_a_part_is_not_asked_for_launches():
    state = SimpleNamespace(memory={"calls": {3: None}, "bench": Bench(8.0)})
    asked = {"index": 3, "calls": 3, "last_us": 0.0, "limit_us": 100.0, "whole": False}
    assert time_block(asked, state) == {"us": [5.0, 7.0, 9.0], "launch_us": 0.0}
    assert time_block(asked | {"limit_us": 1.0}, state) == {"us": [5.0], "launch_us": 0.0}


def test_what_waits_for_the_processor_alone_is_not_hopeless():
    state = SimpleNamespace(memory={"calls": {3: None}, "bench": Bench(900.0)})
    asked = {"index": 3, "calls": 3, "last_us": 0.0, "limit_us": 100.0, "whole": True}
    assert time_block(asked, state) == {"us": [5.0, 7.0, 9.0], "launch_us": 900.0}
    assert time_block(asked | {"limit_us": 1.0}, state) == {"us": [5.0], "launch_us": 900.0}


def filled(out, BLOCK: tl.constexpr):
    tl.store(out + tl.arange(0, BLOCK), 1.0)


def test_what_is_compiled_to_load_is_told_and_what_came_along_is_not(tmp_path, monkeypatch):
    monkeypatch.setenv("TRITON_DEFAULT_FP_FUSION", "1")
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(triton.knobs.compilation, "listener", None)
    compiled_s = worker_ops._note_compilations()
    source = ASTSource(triton.jit(filled), {"out": "*fp32", "BLOCK": "constexpr"}, {(1,): 64}, {})
    for _ in range(2):
        triton.compile(source, target=GPUTarget("cuda", 90, 32))
    (seconds,) = compiled_s
    assert worker.COMPILED == worker_ops.COMPILED
    with recording() as clock:
        for said in (seconds, 0, float("nan"), "long"):
            worker._tell_compiled(said)
    told = [item for item in clock.times() if item.overlapped]
    assert [(item.stage, item.seconds) for item in told] == [("compile again to load", seconds)]
