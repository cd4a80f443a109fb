"""The audit counts right, keeps to its time, and writes what it found."""

from __future__ import annotations

import ast
import io
import time

import pytest
from audit import (
    AUDIT,
    PROBLEMS,
    Audit,
    AuditRow,
    audit,
    table_of,
    waste_bytes,
)
from rich.console import Console

from agentkernel.tools.profiler.rounds import Pace
from tests.tools.profiler.simulated_gpu import STATE, SimulatedGauge


def row(kind: str, call: str, problem: str = "p") -> AuditRow:
    return AuditRow.model_validate(
        {
            "problem": problem,
            "kind": kind,
            "call": call,
            "value": 1.0,
            "half_width": 0.004,
            "low99": 0.99,
            "high99": 1.01,
            "inside_us": 100.0,
            "outside_us": 101.0,
            "clocks": "agrees",
            "seconds": 0.5,
        }
    )


def test_errors_are_counted_by_kind() -> None:
    rows = (
        row("same", "same"),
        row("same", "faster"),
        row("same", "slower"),
        row("same", "too_noisy"),
        row("slower", "slower"),
        row("slower", "same"),
    )
    found = Audit(gpu=STATE, rows=rows, failures=(), profiler_us={"p": 97.0}, seconds=9.0)
    assert (found.false_calls, found.seen) == (2, 1)
    assert Audit.model_validate_json(found.model_dump_json()) == found
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(table_of(found))
    text = console.export_text()
    assert "97.0" in text
    assert "0.40%" in text


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda problem: problem.name)
def test_every_problem_has_a_slower_twin(problem) -> None:  # type: ignore[no-untyped-def]
    same, slower = problem.candidate(), problem.slower(8_000)
    assert "class ModelNew(nn.Module)" in same
    assert "get_inputs" not in same
    assert slower.count("self.waste.mul_(1.0)") == 1
    for source in (problem.source(), same, slower):
        ast.parse(source)


def test_a_slowdown_is_planted_where_a_launch_alone_is_less() -> None:
    assert waste_bytes(20.0, 0.03, 4000.0) is None
    assert waste_bytes(1000.0, 0.03, 4000.0) == 28 * 4_000_000


@pytest.mark.slow
def test_an_audit_on_the_cpu_ends_in_time_with_rows() -> None:
    settings = AUDIT.evolve(pace=Pace(seconds=0.3, block_ms=1.0, min_rounds=3, max_rounds=4))
    begin = time.monotonic()
    found = audit(
        SimulatedGauge(), seconds=60.0, repeats=2, planted=1, device="cpu",
        problems=PROBLEMS[2:3], settings=settings, l2_flush_bytes=4096, shrink=64,
    )  # fmt: skip
    assert not found.failures
    assert len(found.of("same")) in {1, 2}
    assert found.profiler_us == {PROBLEMS[2].name: 0.0}
    assert time.monotonic() - begin < 150
