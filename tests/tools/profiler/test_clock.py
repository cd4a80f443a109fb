"""The clock outside sees through candidates that cheat inside (real processes, CPU)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from agentkernel.domain.profile import ClockCheck
from agentkernel.tools.problem.loading import load_problem
from agentkernel.tools.profiler.comparison import Comparison, ComparisonResult
from agentkernel.tools.profiler.rounds import Pace, ProfileSettings, SideFailed
from agentkernel.tools.profiler.timing.arena import LONG_FLUSH
from agentkernel.tools.profiler.timing.driver import APPEAL
from tests.tools.profiler.simulated_gpu import SimulatedGauge

PROBLEM = """
import torch
from torch import nn
class Model(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.w = nn.Parameter(torch.randn(n))
    def forward(self, x, scale):
        return torch.relu(x * self.w) * scale
def get_inputs():
    return [torch.randn(4, 64), 2.0]
def get_init_inputs():
    return [64]
"""
MODEL = PROBLEM.partition("def get_inputs")[0].replace("Model", "ModelNew")
WORK = "torch.relu(x * self.w) * scale"
SLEEPS = MODEL.replace("        return", "        time.sleep(0.05)\n        return")
SETTINGS = ProfileSettings(
    pace=Pace(seconds=0.5, block_ms=1.0, min_rounds=4, max_rounds=5),
    compare_compile=False,
    extras=False,
    start_limit_s=90.0,
    call_limit_s=20.0,
)
LONG = SETTINGS.evolve(pace=Pace(seconds=4.0, block_ms=250.0, min_rounds=5, max_rounds=6))


def forward(*lines: str) -> str:
    """The candidate with these lines for its `forward`."""
    body = "".join(f"        {line}\n" for line in lines)
    return MODEL.replace(f"        return {WORK}\n", body)


@pytest.fixture(scope="module")
def comparison(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Comparison]:
    path: Path = tmp_path_factory.mktemp("problem") / "toy.py"
    path.write_text(PROBLEM)
    gauge = SimulatedGauge()
    with Comparison(
        load_problem(str(path)), SETTINGS, gauge, flush_bytes=4096, device="cpu"
    ) as held:
        yield held


@pytest.fixture(scope="module")
def patient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Comparison]:
    path: Path = tmp_path_factory.mktemp("problem") / "toy.py"
    path.write_text(PROBLEM)
    gauge = SimulatedGauge()
    with Comparison(load_problem(str(path)), LONG, gauge, flush_bytes=4096, device="cpu") as held:
        yield held


def measured(comparison: Comparison, source: str) -> ComparisonResult | SideFailed:
    process = comparison.candidate(source)
    assert not isinstance(process, SideFailed), process
    with process:
        return comparison.measure(process, 0)


def clock_of(comparison: Comparison, source: str) -> ClockCheck:
    found = measured(comparison, source)
    assert isinstance(found, ComparisonResult), found
    assert found.clock is not None
    return found.clock


def test_an_honest_candidate_agrees_with_the_clock_outside(patient: Comparison) -> None:
    check = clock_of(patient, "import time\n" + SLEEPS)
    assert check.state in {"agrees", "outside_shorter"}, check
    assert check.outside_us == pytest.approx(50_000, rel=0.2)
    assert check.inside_us == pytest.approx(50_000, rel=0.1)
    assert check.checked_outputs >= 10
    assert check.fresh_inputs


@pytest.mark.slow
def test_a_patched_timer_that_reports_half_is_disputed(patient: Comparison) -> None:
    """On the CPU `perf_counter` is what CUDA events are on the GPU."""
    patched = "import time\nreal = time.perf_counter\ntime.perf_counter = lambda: real() * 0.5\n"
    check = clock_of(patient, patched + SLEEPS)
    assert check.inside_us == pytest.approx(25_000, rel=0.1)
    assert (check.outside_us, check.state) == (pytest.approx(50_000, rel=0.2), "disputed")


@pytest.mark.slow
def test_a_patched_timer_is_disputed_on_one_row_too(tmp_path: Path) -> None:
    """Its batches of one call are heard once more, behind several flushes each."""
    path = tmp_path / "toy.py"
    path.write_text(PROBLEM)
    patched = "import time\nreal = time.perf_counter\ntime.perf_counter = lambda: real() * 0.5\n"
    one_row, gauge = LONG.evolve(keep_bytes=0), SimulatedGauge()
    with Comparison(load_problem(str(path)), one_row, gauge, flush_bytes=4096, device="cpu") as one:
        check = clock_of(one, patched + SLEEPS)
        assert one._ground is not None
        assert (one._ground.layout.rows, one._ground.layout.regions) == (1, LONG_FLUSH)
    assert (check.state, check.volleys, check.calls) == ("disputed", APPEAL, APPEAL)


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    ("reasons", "source"),
    [
        pytest.param(
            {"wrong_output", "stale_output"},
            forward(
                "self.calls = getattr(self, 'calls', 0) + 1",
                f"return {WORK} if self.calls < 9 else torch.zeros_like(x)",
            ),
            id="skips-the-work-of-later-calls",
        ),
        pytest.param(
            {"stale_output"},
            forward(
                "before = getattr(self, 'before', None)",
                f"self.before = {WORK}",
                "return self.before if before is None else before",
            ),
            id="returns-the-answer-of-the-call-before",
        ),
        pytest.param(
            {"side_work", "wrong_output"},
            forward(
                "import threading, time",
                "out = torch.empty_like(x)",
                f"late = lambda: (time.sleep(0.02), out.copy_({WORK}))",
                "threading.Thread(target=late).start()",
                "return out",
            ),
            id="works-in-a-thread-after-returning",
        ),
        pytest.param(
            {"overwritten_output"},
            forward(
                "if not hasattr(self, 'out'): self.out = torch.empty_like(x)",
                f"self.out.copy_({WORK})",
                "return self.out",
            ),
            id="writes-every-answer-to-one-place",
        ),
        pytest.param({"inputs_changed"}, forward(f"y = {WORK}", "x.mul_(0.5)", "return y"),
            id="writes-to-its-input"),
        pytest.param({"weights_changed"},
            forward(f"y = {WORK}", "self.w.data[3] += 1e-6", "return y"),
            id="writes-to-a-weight"),
        pytest.param({"flush_skipped"},
            forward("torch.Tensor.fill_ = lambda self, value: self", f"return {WORK}"),
            id="patches-the-flush-away"),
        pytest.param({"missing_output"},
            forward("torch.Tensor.copy_ = lambda self, value: self", f"return {WORK}"),
            id="delivers-nothing"),
    ],
)  # fmt: skip
def test_a_cheat_has_a_name(comparison: Comparison, reasons: set[str], source: str) -> None:
    found = measured(comparison, source)
    assert isinstance(found, SideFailed), found
    assert found.side == "candidate"
    assert found.reason in reasons, found
