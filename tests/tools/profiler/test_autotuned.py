"""Max-autotune is a third baseline that the other two never pay for (CPU)."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from agentkernel.runtime import gpu_lock
from agentkernel.tools.problem.loading import LoadedProblem, load_problem
from agentkernel.tools.profiler.baselines import SLACK_S, autotuned_role
from agentkernel.tools.profiler.comparison import Comparison, ComparisonResult
from agentkernel.tools.profiler.rounds import TUNED_MODES, Pace, ProfileSettings, Rounds, SideFailed
from tests.tools.profiler.simulated_gpu import SimulatedGauge

pytestmark = pytest.mark.slow

PROBLEM = """
import torch
from torch import nn
class Model(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.w = nn.Parameter(torch.randn(n))
    def forward(self, x):
        return torch.relu(x * self.w + 1.0)
"""
SETS = """
def get_inputs():
    return [torch.randn(4, 64)]
def get_init_inputs():
    return [64]
"""
CANDIDATE = PROBLEM.replace("Model", "ModelNew")
IN_THE_TWINS = """
import os, sys, time
ORIGINAL = torch.compile
def compile(module, *, mode=None, **rest):
    calls = 0
    def tuned(*inputs):
        nonlocal calls
        calls += 1
        TROUBLE
        return module(*inputs)
    return tuned if mode in TROUBLED else module
if 'agentkernel.tools.profiler.baseline_process:serve' in sys.orig_argv:
    torch.compile = compile
"""
SETTINGS = ProfileSettings(
    pace=Pace(seconds=5.0, block_ms=1.0, min_rounds=3, max_rounds=4), max_autotune=True,
    autotune_limit_s=60.0, energy_s=0.05, start_limit_s=90.0, call_limit_s=20.0,
)  # fmt: skip


def problem(folder: Path, more: str = "") -> LoadedProblem:
    path = folder / "toy.py"
    path.write_text(PROBLEM + SETS + more)
    return load_problem(str(path))


def troubled(trouble: str, *modes: str) -> str:
    """Lines of a problem that befall those modes of torch.compile in the baseline processes."""
    return IN_THE_TWINS.replace("TROUBLED", repr(modes)).replace("TROUBLE", trouble)


def measured(comparison: Comparison) -> ComparisonResult:
    process = comparison.candidate(CANDIDATE)
    assert not isinstance(process, SideFailed), process
    with process:
        found = comparison.measure(process, 0)
    assert isinstance(found, ComparisonResult), found
    return found


def test_all_three_are_timed_in_the_same_rounds(tmp_path: Path) -> None:
    with Comparison(
        problem(tmp_path), SETTINGS, SimulatedGauge(), flush_bytes=4096, device="cpu"
    ) as held:
        found = measured(held)
        alone = held.measure_baselines(0)
    assert found.autotuned is not None
    assert found.autotuned_mode in TUNED_MODES
    assert (found.compile_error, found.autotune_error) == (None, None)
    everyone = ("candidate", "compile", "eager", "max-autotune")
    assert all(tuple(sorted(item.samples_us)) == everyone for item in found.rounds.kept)
    assert found.clock is not None, "the third side must not keep volleys from being used"
    assert isinstance(alone, Rounds)
    assert alone.sides() == everyone[1:]


@pytest.mark.parametrize(
    ("trouble", "words"),
    [
        ("raise RuntimeError('no such tile')", "no such tile"),
        ("time.sleep(60)", "max-autotune took longer than 3 s to compile"),
        ("calls < 20 or os._exit(7)", "died"),
    ],
)
def test_what_befalls_it_costs_the_others_nothing(tmp_path: Path, trouble: str, words: str) -> None:
    """It is refused, does not end, or dies in the middle of the rounds."""
    settings = SETTINGS.evolve(autotune_limit_s=3.0)
    loaded = problem(tmp_path, troubled(trouble, *TUNED_MODES))
    with Comparison(loaded, settings, SimulatedGauge(), flush_bytes=4096, device="cpu") as held:
        found = measured(held)
        again = held.measure_baselines(0)
    assert found.autotuned is None
    assert words in (found.autotune_error or "")
    assert found.compile_error is None
    assert set(found.rounds.sides()) == {"candidate", "eager", "compile"}
    assert len(found.rounds.kept) >= 3
    assert isinstance(again, Rounds)
    assert again.sides() == ("compile", "eager")


@pytest.mark.parametrize(
    ("trouble", "slow", "kept"),
    [
        ("time.sleep(0.02)", 0, 1),
        ("time.sleep(0.02)", 1, 0),
        ("raise RuntimeError('no such tile')", 0, 1),
        ("raise RuntimeError('no such tile')", 1, 0),
        ("os._exit(7)", 0, 1),
        ("calls != 2 or time.sleep(60)", 1, 0),
    ],
)
def test_the_faster_of_its_two_modes_is_kept_or_the_one_that_works(
    tmp_path: Path, trouble: str, slow: int, kept: int
) -> None:
    """One mode is slow, is refused, takes the process down, or does not end within the time."""
    settings = SETTINGS.evolve(autotune_limit_s=4.0)
    loaded = problem(tmp_path, troubled(trouble, TUNED_MODES[slow]))
    with Comparison(loaded, settings, SimulatedGauge(), flush_bytes=4096, device="cpu") as held:
        found = measured(held)
    assert (found.autotune_error, found.autotuned_mode) == (None, TUNED_MODES[kept])
    assert max(found.rounds.samples("max-autotune")) < 0.02e6


def test_quick_times_do_not_wait_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It compiles on meanwhile. Small tensors may travel by value, so that it can be begun."""
    monkeypatch.setattr("agentkernel.tools.profiler.baselines.sends_tensors", lambda request: False)
    loaded = problem(tmp_path, troubled("time.sleep(50)", *TUNED_MODES))
    begun = time.monotonic()
    with Comparison(loaded, SETTINGS, SimulatedGauge(), flush_bytes=4096, device="cpu") as held:
        held.begin()
        rounds = held.measure_quickly()
        took_s = time.monotonic() - begun
        assert held._tuned.fresh
    assert isinstance(rounds, Rounds)
    assert rounds.sides() == ("compile", "eager")
    assert took_s < 50


def test_left_out_it_starts_no_process(tmp_path: Path) -> None:
    settings = SETTINGS.evolve(max_autotune=False, compare_compile=False)
    with Comparison(
        problem(tmp_path), settings, SimulatedGauge(), flush_bytes=4096, device="cpu"
    ) as held:
        rounds = held.measure_baselines(0)
        assert held.autotune_error(0) == "left out on request"
        children = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split()
        twins = [pid for pid in children if b"baseline_process:serve" in cmdline(pid)]
    assert isinstance(rounds, Rounds)
    assert rounds.sides() == ("eager",)
    assert len(twins) == 1


def cmdline(pid: str) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes()


def test_behind_the_searches_of_other_lanes_it_has_twice_its_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(gpu_lock.FOLDER, raising=False)
    assert autotuned_role(SETTINGS).own_limit_s == 60.0
    monkeypatch.setenv(gpu_lock.FOLDER, str(tmp_path))
    beside = autotuned_role(SETTINGS)
    assert (beside.own_limit_s, beside.compile_limit_s) == (120.0, 120.0 + SLACK_S)
