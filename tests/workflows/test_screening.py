"""Candidates that the search saw too slow are set aside, and judged where nothing else is right."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentkernel.agents.protocols import Attempt
from agentkernel.domain.candidate import Candidate
from agentkernel.domain.profile import ProfileFailed
from agentkernel.workflows.events import CandidateSetAside, Event, VerdictReached
from agentkernel.workflows.optimize import run
from agentkernel.workflows.outcome import Result
from agentkernel.workflows.routing import retry_skipped, should_skip
from agentkernel.workflows.state import OptimizeRequest
from tests.workflows.fakes import FakeWorkshop, Script, mismatch, settings, small_problem, verdict


def candidate(name: str, searched_us: float | None) -> Candidate:
    return Candidate(source=name, coder="c", round=1, strategy=name, searched_us=searched_us)


def tried(name: str, searched_us: float | None, *, right: bool = True, aside: str = "") -> Attempt:
    made = candidate(name, searched_us)
    found = None if aside else verdict(made, None if right else mismatch())
    return Attempt(candidate=made, verdict=found, aside=aside)


@pytest.mark.parametrize(
    ("own", "history", "baseline", "expected"),
    [
        (10.0, (), None, None),
        (10.0, (), 8.1, None),
        (10.0, (), 7.9, "baseline"),
        (None, (tried("a", 1.0),), 1.0, None),
        (10.0, (tried("a", 10.2),), 20.0, None),
        (10.0, (tried("a", 10.1),), 20.0, "the accepted"),
        (10.0, (tried("a", 5.0, right=False),), 20.0, None),
        (10.0, (tried("a", 5.0, aside="slow"),), 20.0, None),
        (10.0, (tried("a", None),), 20.0, None),
    ],
)
def test_who_is_hopeless(
    own: float | None, history: tuple[Attempt, ...], baseline: float | None, expected: str | None
) -> None:
    found = should_skip(candidate("x", own), history, baseline)
    assert (found is None) == (expected is None)
    assert expected is None or expected in (found or "")


def test_the_fastest_of_those_set_aside_gets_a_second_chance_unless_one_was_accepted() -> None:
    waiting = (tried("a", 9.0, aside="slow"), tried("b", 8.0, aside="slow"))
    found = retry_skipped((tried("c", 1.0, right=False), *waiting))
    assert found.strategy == "b"
    assert retry_skipped((*waiting, tried("d", 9.0))) is None
    assert retry_skipped((tried("c", 1.0, right=False),)) is None


def test_one_that_broke_while_it_was_profiled_is_nobody_s_rival() -> None:
    broke = ProfileFailed(side="candidate", reason="wrong_output")
    broken = tried("a", 1.0).evolve(unprofiled=broke)
    assert should_skip(candidate("x", 10.0), (broken,), None) is None
    waiting = tried("b", 10.0, aside="slow")
    assert retry_skipped((broken, waiting)) == waiting.candidate


def done(tmp_path: Path, shop: FakeWorkshop) -> tuple[Result, list[Event]]:
    seen: list[Event] = []
    request = OptimizeRequest(
        small_problem(tmp_path), settings(tmp_path / "runs", "budget.rounds=4")
    )
    return run(request, seen.append, workshop=shop), seen


def test_a_run_does_not_judge_what_is_too_slow(tmp_path: Path) -> None:
    scripts = (
        Script("fast", speedup=1.55, searched_us=10.0),
        Script("slow", speedup=1.2, searched_us=20.0),
    )
    result, seen = done(tmp_path, FakeWorkshop(scripts, quick_us=15.0))
    judged = [item for item in seen if isinstance(item, VerdictReached)]
    aside = [item for item in seen if isinstance(item, CandidateSetAside)]
    assert len(judged) == len(aside) == 1
    assert "2.00x the time of the accepted" in aside[0].reason
    assert "set aside: in the search 2.00x the time" in Path(result.report or "").read_text()


def test_where_all_are_too_slow_the_fastest_is_judged_at_the_end(tmp_path: Path) -> None:
    scripts = (
        Script("a", speedup=0.5, searched_us=40.0),
        Script("b", speedup=0.7, searched_us=30.0),
    )
    result, seen = done(tmp_path, FakeWorkshop(scripts, quick_us=10.0))
    judged = [item for item in seen if isinstance(item, VerdictReached)]
    aside = [item for item in seen if isinstance(item, CandidateSetAside)]
    assert [item.candidate for item in judged] == [aside[1].candidate]
    assert judged[0].accepted
    assert result.status.startswith("kept")
