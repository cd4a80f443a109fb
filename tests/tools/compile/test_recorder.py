import runpy
from pathlib import Path

import pytest
import torch

from agentkernel.tools.compile.recording import bytes_touched
from agentkernel.tools.compile.worker import record_forward
from agentkernel.tools.sandbox.worker import WorkerState
from agentkernel.tools.targets import load_targets

SOURCES = runpy.run_path(str(Path(__file__).parent / "sources.py"))


@pytest.fixture
def launches(tmp_path):
    def record(source, *inputs, init=(8192,)):
        module = WorkerState(tmp_path, "cpu", False).execute(source)
        with torch.device("meta"):
            model = module.ModelNew(*init)
        return record_forward(model, inputs, load_targets()["h100-sxm"])

    return record


def test_pointers_and_sizes_divisible_by_16_say_so(launches):
    (launch,) = launches(SOURCES["LAYERNORM"], torch.empty(64, 8192, device="meta"))
    divisible = [["tt.divisibility", 16]]
    assert (launch.source.attrs[(0,)], launch.source.attrs[(4,)]) == (divisible, divisible)
    assert (launch.source.signature["x"], launch.source.signature["N"]) == ("*fp32", "i32")


def test_a_view_off_the_alignment_and_an_odd_size_do_not(launches):
    shifted = SOURCES["LAYERNORM"].replace("y = torch.empty_like(x)", "y = x = x[1:]")
    (launch,) = launches(shifted, torch.empty(65, 8191, device="meta"), init=(8191,))
    assert (launch.source.attrs.get((0,), []), launch.source.attrs.get((4,), [])) == ([], [])
    assert launch.grid == (64, 1, 1)


def test_a_size_of_one_becomes_a_constant(launches):
    (launch,) = launches(SOURCES["LAYERNORM"], torch.empty(64, 1, device="meta"), init=(1,))
    assert launch.source.signature["N"] == "constexpr"
    assert launch.constants == {"N": 1, "BLOCK": 8192}


def test_equal_launches_share_a_key_and_others_do_not(launches):
    first, second = launches(SOURCES["FOREIGN"], torch.empty(1024, 64, device="meta"), init=())
    (odd, _) = launches(SOURCES["FOREIGN"], torch.empty(1, 64, device="meta"), init=())
    assert first.key == second.key
    assert odd.key != first.key


def test_bytes_touched_counts_each_storage_once():
    base = torch.empty(1000, device="meta")
    assert bytes_touched([base, base, 7, None]) == 4000
    assert bytes_touched([base[:100], base[500:600]]) == 800
    assert bytes_touched([base, base[:100]]) == 4000
    assert bytes_touched([base[:1].expand(500)]) == 2000
    assert bytes_touched([base, torch.empty(10, dtype=torch.bfloat16, device="meta")]) == 4020
