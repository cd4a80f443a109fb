"""The profiler tells the truth on a real GPU."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from agentkernel.domain.profile import Measurement, Profile, ProfileFailed
from agentkernel.tools.problem.capture import capture
from agentkernel.tools.problem.loading import LoadedProblem, load_problem
from agentkernel.tools.profiler import ProfileSession, ProfileSettings
from agentkernel.tools.profiler.rounds import TUNED_MODES
from agentkernel.tools.targets import find_target

pytestmark = pytest.mark.gpu

COPY = """
import torch
from torch import nn
class Model(nn.Module):
    def forward(self, x):
        return x.clone()
def get_inputs():
    return [torch.randn(64, 1024, 1024)]
"""
COPY_KERNEL = """
import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def copy_rows(x, out, n, BLOCK: tl.constexpr):
    places = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + places, tl.load(x + places, mask=places < n), mask=places < n)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        copy_rows[(triton.cdiv(x.numel(), 4096),)](x, out, x.numel(), BLOCK=4096, num_warps=8)
        return out
"""
CHAIN = """
import torch
from torch import nn
class Model(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(n))
    def forward(self, x):
        return torch.relu(x * self.weight + 1.0)
def get_input_sets():
    return [[torch.randn(8192, 4096)], [torch.randn(1024, 4096)]]
def get_inputs():
    return get_input_sets()[0]
def get_init_inputs():
    return [4096]
"""
SAME_CHAIN = CHAIN.partition("def get_input_sets")[0].replace("Model", "ModelNew")
TWICE = SAME_CHAIN.replace(
    "return torch.relu", "torch.relu(x * self.weight + 1.0)\n        return torch.relu"
)


def load(text: str, folder: Path, name: str) -> LoadedProblem:
    path = folder / f"{name}.py"
    path.write_text(text)
    return load_problem(str(path))


def measured(found: Profile | ProfileFailed) -> tuple[Measurement, ...]:
    assert isinstance(found, Profile), found
    assert found.measurements
    return found.measurements


@pytest.fixture(scope="module")
def copy_measurement(tmp_path_factory: pytest.TempPathFactory) -> Measurement:
    loaded = load(COPY, tmp_path_factory.mktemp("copy"), "copy")
    with ProfileSession(loaded, find_target(None), ProfileSettings()) as session:
        return measured(session.profile(capture(loaded), COPY_KERNEL))[0]


def test_a_copy_agrees_with_do_bench(copy_measurement: Measurement) -> None:
    assert copy_measurement.candidate.do_bench_us is not None
    assert copy_measurement.candidate.median_us == pytest.approx(
        copy_measurement.candidate.do_bench_us, rel=0.03
    )


def test_a_copy_reaches_the_copy_ceiling(copy_measurement: Measurement) -> None:
    assert 0.85 < copy_measurement.roofline_fraction < 1.05
    assert copy_measurement.achieved_gb_per_s < 1.05 * copy_measurement.copy_gb_per_s


def test_energy_memory_and_launches_are_there(copy_measurement: Measurement) -> None:
    assert copy_measurement.energy_mj is not None
    assert copy_measurement.energy_mj > 0
    power_w = copy_measurement.energy_mj / copy_measurement.candidate.median_us * 1e3
    assert 50 < power_w < 1500
    size = 64 * 1024 * 1024 * 4
    assert size <= copy_measurement.peak_memory_bytes < 1.1 * size
    assert copy_measurement.launches == 1
    assert copy_measurement.own_kernel_share == pytest.approx(1.0)
    assert copy_measurement.gpu.sm_clock_mhz


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory) -> LoadedProblem:
    return load(CHAIN, tmp_path_factory.mktemp("chain"), "chain")


def test_the_same_code_on_both_sides_is_a_draw_and_twice_the_work_is_half_as_fast(
    chain: LoadedProblem,
) -> None:
    captured = capture(chain)
    with ProfileSession(chain, find_target(None), ProfileSettings()) as session:
        same = measured(session.profile(captured, SAME_CHAIN))
        slow = measured(session.profile(captured, TWICE))
        alone = session.baselines()
    assert len(same) == 2
    draw = same[0].vs_eager
    assert draw.value == pytest.approx(1.0, abs=0.015)
    assert draw.low - 0.003 <= 1.0 <= draw.high + 0.003
    assert slow[0].vs_eager.value == pytest.approx(0.5, abs=0.04)
    assert slow[0].vs_eager.high < 0.6
    assert same[0].compiled is not None, same[0].compile_error
    assert same[0].vs_compile.value < 0.7
    assert not isinstance(alone, ProfileFailed)
    assert alone.eager.median_us == pytest.approx(same[0].eager.median_us, rel=0.03)


def test_a_candidate_that_reads_out_of_bounds_costs_only_itself(chain: LoadedProblem) -> None:
    bad = COPY_KERNEL.replace("x.numel()", "(x.numel() * 1000)").replace(
        "class ModelNew(nn.Module):",
        "class ModelNew(nn.Module):\n"
        "    def __init__(self, n):\n"
        "        super().__init__()\n"
        "        self.weight = nn.Parameter(torch.randn(n))\n",
    )
    settings = ProfileSettings(shape_sets=(0,), compare_compile=False, extras=False)
    with ProfileSession(chain, find_target(None), settings) as session:
        failed = session.profile(capture(chain), bad)
        good = session.profile(capture(chain), SAME_CHAIN)
    assert isinstance(failed, ProfileFailed)
    assert failed.side == "candidate"
    assert isinstance(good, Profile)


LAYERS = """
import torch
from torch import nn
class Model(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.first = nn.Linear(n, n)
        self.second = nn.Linear(n, n)
    def forward(self, x):
        return self.second(torch.relu(self.first(x)))
def get_inputs():
    return [torch.randn(64, 512)]
def get_init_inputs():
    return [512]
"""
SAME_LAYERS = LAYERS.partition("def get_inputs")[0].replace("Model", "ModelNew")


def test_max_autotune_is_timed_in_the_same_rounds_and_overwrites_nothing(tmp_path: Path) -> None:
    """Volleys change its inputs from call to call and hold no output past the next one: the
    candidate's answers are checked against eager's beside it."""
    loaded = load(LAYERS, tmp_path, "layers")
    settings = ProfileSettings(max_autotune=True, autotune_limit_s=240.0)
    with ProfileSession(loaded, find_target(None), settings) as session:
        session.begin()
        found = measured(session.profile(capture(loaded), SAME_LAYERS))[0]
        alone = session.baselines()
    assert found.compiled is not None, found.compile_error
    assert found.autotuned is not None, found.autotune_error
    assert found.autotuned_mode in TUNED_MODES
    assert 0 < found.vs_autotune.low <= found.vs_autotune.value <= found.vs_autotune.high
    assert math.isfinite(found.vs_autotune.high)
    assert found.autotuned.do_bench_us is not None
    assert found.clock.checked_outputs > 0
    assert not isinstance(alone, ProfileFailed)
    assert alone.autotuned is not None
    assert alone.autotuned_mode == found.autotuned_mode


def test_a_max_autotune_that_takes_too_long_costs_only_itself(tmp_path: Path) -> None:
    loaded = load(LAYERS, tmp_path, "layers")
    settings = ProfileSettings(max_autotune=True, autotune_limit_s=0.5, extras=False)
    with ProfileSession(loaded, find_target(None), settings) as session:
        session.begin()
        found = measured(session.profile(capture(loaded), SAME_LAYERS))[0]
    assert found.compiled is not None, found.compile_error
    assert found.autotuned is None
    assert "longer than 0.5 s" in (found.autotune_error or "")


def test_quick_times_are_near_the_baselines(tmp_path: Path) -> None:
    loaded = load(COPY, tmp_path, "copy")
    with ProfileSession(loaded, find_target(None), ProfileSettings(extras=False)) as session:
        quick = session.quick_times()
        assert session.quick_times() is quick
        full = session.baselines()
    assert quick is not None
    assert not isinstance(full, ProfileFailed)
    assert quick.eager_us == pytest.approx(full.eager.median_us, rel=0.1)
    assert quick.compiled_us == pytest.approx(full.compiled.median_us, rel=0.1)
