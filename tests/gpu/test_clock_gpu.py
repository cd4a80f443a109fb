"""Both clocks agree on a real GPU, and the outside one catches what cheats inside."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from audit import PROBLEMS, audit

from agentkernel.domain.profile import ClockCheck
from agentkernel.tools.problem.loading import load_problem
from agentkernel.tools.profiler.comparison import Comparison, ComparisonResult
from agentkernel.tools.profiler.nvml import NvmlGauge
from agentkernel.tools.profiler.rounds import ProfileSettings, SideFailed

pytestmark = pytest.mark.gpu

PROBLEM = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(n))

    def forward(self, x):
        return torch.softmax(x * self.weight, dim=-1)


def get_inputs():
    return [torch.randn(8192, 4096)]


def get_init_inputs():
    return [4096]
"""
MODEL = PROBLEM.partition("def get_inputs")[0].replace("Model(", "ModelNew(")
WORK = "torch.softmax(x * self.weight, dim=-1)"
SETTINGS = ProfileSettings(compare_compile=False, extras=False)
HALF = """
import torch
measured = torch.cuda.Event.elapsed_time
torch.cuda.Event.elapsed_time = lambda self, other: 0.5 * measured(self, other)
"""


def forward(*lines: str) -> str:
    """The candidate with these lines for its `forward`."""
    body = "".join(f"        {line}\n" for line in lines)
    return MODEL.replace(f"        return {WORK}\n", body)


@pytest.fixture(scope="module")
def contest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Comparison]:
    path: Path = tmp_path_factory.mktemp("problem") / "rows.py"
    path.write_text(PROBLEM)
    with Comparison(load_problem(str(path)), SETTINGS, NvmlGauge(), flush_bytes=256 << 20) as held:
        yield held


def measured(contest: Comparison, source: str) -> ComparisonResult | SideFailed:
    process = contest.candidate(source)
    assert not isinstance(process, SideFailed), process
    with process:
        return contest.measure(process, 0, record=False)


def clock_of(contest: Comparison, source: str) -> ClockCheck:
    found = measured(contest, source)
    assert isinstance(found, ComparisonResult), found
    assert found.clock is not None
    return found.clock


def test_an_honest_candidate_agrees_with_the_clock_outside(contest: Comparison) -> None:
    check = clock_of(contest, MODEL)
    assert check.state == "agrees", check
    assert check.outside_us == pytest.approx(check.inside_us, rel=0.05, abs=3)
    assert check.fresh_inputs


def test_events_that_report_half_are_disputed(contest: Comparison) -> None:
    # A dispute is settled by later batches: where the card throttles in between, what it said at
    # first is of another clock (an H200 went from 208 to 157 us a call).
    checks = [clock_of(contest, HALF + MODEL)]
    while len(checks) < 4 and abs(checks[-1].outside_us / checks[-1].inside_us - 2) > 0.2:
        checks.append(clock_of(contest, HALF + MODEL))
    assert all(check.state == "disputed" for check in checks), checks
    assert checks[-1].outside_us == pytest.approx(2 * checks[-1].inside_us, rel=0.1), checks


def test_a_candidate_bound_by_the_host_is_not_accused(contest: Comparison) -> None:
    """Sixty small launches behind a small result: the host needs longer than the device."""
    busy = forward("y = x[:64]", "for _ in range(60): y = y + 0.0", f"return {WORK}")
    assert clock_of(contest, busy).state in {"agrees", "outside_shorter"}


@pytest.mark.parametrize(
    ("reasons", "source"),
    [
        pytest.param(
            {"wrong_output", "stale_output", "missing_output"},
            forward(
                "self.calls = getattr(self, 'calls', 0) + 1",
                f"return {WORK} if self.calls < 9 else torch.empty_like(x)",
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
            {"wrong_output", "stale_output", "missing_output"},
            forward(
                "if not hasattr(self, 'side'): self.side = torch.cuda.Stream()",
                "out = torch.empty_like(x)",
                "with torch.cuda.stream(self.side):",
                f"    torch.cuda._sleep(2_000_000); out.copy_({WORK})",
                "return out",
            ),
            id="works-on-a-side-stream-after-returning",
        ),
        pytest.param(
            {"side_work", "wrong_output", "missing_output"},
            forward(
                "import threading, time",
                "out = torch.empty_like(x)",
                f"late = lambda: (time.sleep(0.002), out.copy_({WORK}))",
                "threading.Thread(target=late).start()",
                "return out",
            ),
            id="works-in-a-thread-after-returning",
        ),
        pytest.param(
            {"missing_output", "wrong_output", "raised"},
            "import torch\ntorch.cuda.synchronize = lambda *args: None\n"
            + forward("torch.cuda._sleep(20_000_000)", f"return {WORK}"),
            id="says-done-before-it-is",
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
        pytest.param({"flush_skipped"},
            forward("torch.Tensor.fill_ = lambda self, value: self", f"return {WORK}"),
            id="patches-the-flush-away"),
    ],
)  # fmt: skip
def test_a_cheat_has_a_name(contest: Comparison, reasons: set[str], source: str) -> None:
    found = measured(contest, source)
    assert isinstance(found, SideFailed), found
    assert found.reason in reasons, found


def test_a_short_audit_calls_the_same_code_the_same() -> None:
    found = audit(NvmlGauge(), seconds=60.0, repeats=4, planted=4, problems=PROBLEMS[2:4])
    assert not found.failures
    assert len(found.of("same")) >= 4
    assert found.false_calls == 0
    assert all(row.clocks != "disputed" for row in found.rows)
