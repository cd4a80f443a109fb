"""A real candidate and its baselines are timed, and what goes wrong is survived (CPU)."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentkernel.domain.verdict import Precision
from agentkernel.tools.problem.loading import LoadedProblem, load_problem
from agentkernel.tools.profiler.comparison import Comparison, ComparisonResult
from agentkernel.tools.profiler.rounds import Pace, ProfileSettings, SideFailed, baselines_matmul
from tests.tools.profiler.simulated_gpu import SimulatedGauge

PROBLEM = """
import torch
from torch import nn
class Model(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.w = nn.Parameter(torch.randn(n))
        self.register_buffer("shift", torch.ones(n))
    def forward(self, x, scale):
        return torch.relu(x * self.w + self.shift) * scale
def get_input_sets():
    return [[torch.randn(4, 64), 2.0], [torch.randn(2, 64), 3.0]]
def get_inputs():
    return get_input_sets()[0]
def get_init_inputs():
    return [64]
"""
CANDIDATE = PROBLEM.partition("def get_input_sets")[0].replace("Model", "ModelNew")
SETTINGS = ProfileSettings(
    pace=Pace(seconds=5.0, block_ms=1.0, min_rounds=3, max_rounds=4),
    compare_compile=False,
    energy_s=0.05,
    start_limit_s=90.0,
    call_limit_s=20.0,
)


@pytest.fixture(scope="module")
def problem(tmp_path_factory: pytest.TempPathFactory) -> LoadedProblem:
    path: Path = tmp_path_factory.mktemp("problem") / "toy.py"
    path.write_text(PROBLEM)
    return load_problem(str(path))


@pytest.fixture(scope="module")
def comparison(problem: LoadedProblem) -> Iterator[Comparison]:
    gauge = SimulatedGauge(energy=0.0)
    with Comparison(problem, SETTINGS, gauge, flush_bytes=4096, device="cpu") as held:
        yield held


def measured(
    comparison: Comparison, source: str, shape_set: int = 0
) -> ComparisonResult | SideFailed:
    process = comparison.candidate(source)
    if isinstance(process, SideFailed):
        return process
    with process:
        return comparison.measure(process, shape_set)


@pytest.mark.slow
def test_both_shape_sets_are_timed_with_one_worker_and_one_twin(comparison: Comparison) -> None:
    process = comparison.candidate(CANDIDATE)
    assert not isinstance(process, SideFailed)
    with process:
        found = [comparison.measure(process, shape_set) for shape_set in (0, 1, 0)]
    for item in found:
        assert isinstance(item, ComparisonResult), item
        assert len(item.rounds.kept) >= 3
        assert min(item.rounds.samples("candidate")) > 0
        assert (item.compiled, item.compile_error) == (None, "left out on request")
        assert item.eager.energy_mj is not None


def test_a_slower_candidate_is_seen_as_such(comparison: Comparison) -> None:
    slow = CANDIDATE.replace(
        "return torch.relu", "import time; time.sleep(0.01)\n        return torch.relu"
    )
    found = measured(comparison, slow)
    assert isinstance(found, ComparisonResult)
    assert min(found.rounds.medians("candidate")) > 10_000
    assert max(found.rounds.medians("eager")) < min(found.rounds.medians("candidate"))


def test_what_was_posted_ahead_answers_the_same_question_only(comparison: Comparison) -> None:
    assert comparison.start() is None
    baseline_process = comparison._main_baseline.process
    baseline_process.post({"do": "copy", "bytes": 1 << 20})
    early = baseline_process.ask({"do": "copy", "bytes": 1 << 20}, 20.0)
    assert not isinstance(early, SideFailed)
    assert "gb_per_s" in early
    assert not baseline_process._posted
    baseline_process.post({"do": "forget"})
    other = baseline_process.ask({"do": "copy", "bytes": 1 << 20}, 20.0)
    assert not isinstance(other, SideFailed)
    assert "gb_per_s" in other


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    ("change", "reason", "words"),
    [
        (("return torch.relu", "import os; os._exit(7); return torch.relu"), "died", "code 7"),
        (("self.w =", "self.other ="), "raised", "Missing key"),
    ],
)
def test_a_broken_candidate_is_a_value(
    comparison: Comparison, change: tuple[str, str], reason: str, words: str
) -> None:
    found = measured(comparison, CANDIDATE.replace(*change))
    assert isinstance(found, SideFailed)
    assert (found.side, found.reason) == ("candidate", reason)
    assert words in found.log


@pytest.mark.slow
def test_a_candidate_that_hangs_runs_into_the_limit(problem: LoadedProblem) -> None:
    hanging = CANDIDATE.replace("return torch.relu", "while True: pass\n        return torch.relu")
    settings = SETTINGS.evolve(start_limit_s=15.0)
    with Comparison(problem, settings, SimulatedGauge(), flush_bytes=4096, device="cpu") as held:
        found = measured(held, hanging)
    assert isinstance(found, SideFailed)
    assert found.reason == "timeout"


@pytest.mark.slow
def test_a_twin_that_died_is_started_again(comparison: Comparison) -> None:
    assert comparison.start() is None
    baseline_process = comparison._main_baseline.process
    baseline_process.close()
    assert isinstance(measured(comparison, CANDIDATE), ComparisonResult)


@pytest.mark.slow
def test_torch_compile_is_timed_beside_eager_and_kept(problem: LoadedProblem) -> None:
    settings = SETTINGS.evolve(compare_compile=True)
    with Comparison(problem, settings, SimulatedGauge(), flush_bytes=4096, device="cpu") as held:
        found = measured(held, CANDIDATE)
        again = held.measure_baselines(0)
    assert isinstance(found, ComparisonResult)
    assert found.compile_error is None
    assert found.rounds.samples("compile")
    assert not isinstance(again, SideFailed)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("trouble", "words"),
    [("raise RuntimeError('not here')", "not here"), ("time.sleep(60)", "timeout")],
)
def test_a_module_that_torch_compile_refuses_still_has_eager(
    tmp_path: Path, trouble: str, words: str
) -> None:
    """The twin alone sees a torch.compile that fails, or hangs and costs the baseline process its
    life."""
    path = tmp_path / "refused.py"
    path.write_text(
        PROBLEM
        + "import sys, time\n"
        + "def refuse(*args, **kwargs):\n"
        + f"    {trouble}\n"
        + "if 'agentkernel.tools.profiler.baseline_process:serve' in sys.orig_argv:\n"
        + "    torch.compile = refuse\n"
    )
    settings = SETTINGS.evolve(compare_compile=True, compile_limit_s=20.0)
    with Comparison(
        load_problem(str(path)), settings, SimulatedGauge(), flush_bytes=4096, device="cpu"
    ) as held:
        found = measured(held, CANDIDATE)
    assert isinstance(found, ComparisonResult)
    assert found.compiled is None
    assert words in (found.compile_error or "")


@pytest.mark.slow
def test_what_was_begun_ahead_is_taken_up(
    problem: LoadedProblem, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the CPU nothing begins by itself, since its tensors travel by value: small ones may."""
    monkeypatch.setattr("agentkernel.tools.profiler.baselines.sends_tensors", lambda request: False)
    single = problem.problem.evolve(shape_sets=problem.problem.shape_sets[:1])
    alone = dataclasses.replace(problem, problem=single)
    with Comparison(alone, SETTINGS, SimulatedGauge(), flush_bytes=4096, device="cpu") as held:
        held.begin()
        baseline_process = held._main_baseline.process
        assert baseline_process is not None
        assert not isinstance(held.copy_gb_per_s(), SideFailed)
        rounds = held.measure_baselines(0)
        assert held._main_baseline.process is baseline_process
    assert not isinstance(rounds, SideFailed)
    assert rounds.samples("eager")


@pytest.mark.slow
@pytest.mark.parametrize(("precision", "allowed"), [("strict", "highest"), ("tf32", "high")])
def test_the_baselines_may_round_as_the_candidate_may(
    tmp_path: Path, precision: Precision, allowed: str
) -> None:
    """The module gives its input back under one switch only: the timed twin sees that one."""
    switch = f"torch.get_float32_matmul_precision() == {allowed!r}"
    path = tmp_path / "switched.py"
    path.write_text(
        PROBLEM.replace("return torch.relu", f"assert {switch}\n        return torch.relu")
    )
    settings = SETTINGS.evolve(precision=precision, shape_sets=(0,))
    gauge = SimulatedGauge(energy=0.0)
    with Comparison(
        load_problem(str(path)), settings, gauge, flush_bytes=4096, device="cpu"
    ) as comparison:
        found = measured(comparison, CANDIDATE)
    assert isinstance(found, ComparisonResult), found
    assert found.matmul_precision == allowed


def test_baselines_compute_on_the_cpu_in_one_thread(tmp_path: Path) -> None:
    """Beside other processes threads that wait for one another cost more than they bring."""
    path = tmp_path / "threads.py"
    asked = "assert torch.get_num_threads() == 1"
    path.write_text(PROBLEM.replace("return torch.relu", f"{asked}\n        return torch.relu"))
    settings = SETTINGS.evolve(shape_sets=(0,))
    with Comparison(
        load_problem(str(path)), settings, SimulatedGauge(), flush_bytes=4096, device="cpu"
    ) as comparison:
        found = comparison.measure_baselines(0)
    assert not isinstance(found, SideFailed), found


def test_a_process_that_allows_more_is_left_so() -> None:
    assert baselines_matmul("tf32", "medium") == "medium"
    assert baselines_matmul("strict", "high") == "high"
    assert baselines_matmul("bf16", "highest") == "medium"


LARGE = SETTINGS.evolve(keep_bytes=0)
"""What this problem takes counts as more than can be kept: one row for all sides."""


@pytest.fixture(scope="module")
def crowded(problem: LoadedProblem) -> Iterator[Comparison]:
    with Comparison(problem, LARGE, SimulatedGauge(), flush_bytes=4096, device="cpu") as held:
        yield held


@pytest.mark.slow
def test_large_tensors_are_timed_on_one_row_with_their_outputs_checked(crowded: Comparison) -> None:
    found = measured(crowded, CANDIDATE)
    assert isinstance(found, ComparisonResult), found
    assert crowded._ground.layout.resident
    assert found.clock.fresh_inputs
    assert found.clock.checked_outputs >= 3
    crowded.make_room()
    assert crowded._problem.pool is None
    assert isinstance(measured(crowded, CANDIDATE), ComparisonResult)


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (("return torch.relu", "x.mul_(0.5); return torch.relu"), "inputs_changed"),
        (("* scale", "* (scale + 0.2)"), "wrong_output"),
        (
            (
                "return torch.relu(x * self.w + self.shift) * scale",
                "self.kept = vars(self).get('kept', torch.relu(x * self.w + self.shift) * scale)\n"
                "        return self.kept",
            ),
            "wrong_output",
        ),
    ],
)
def test_a_cheat_on_one_row_is_found(
    crowded: Comparison, change: tuple[str, str], reason: str
) -> None:
    found = measured(crowded, CANDIDATE.replace(*change))
    assert isinstance(found, SideFailed)
    assert (found.side, found.reason) == ("candidate", reason)
