"""While baselines compile the next hypothesis is drafted, and nothing accepted stays unprofiled."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentkernel.agents.protocols import Attempt, Goals
from agentkernel.domain.plan import Hypothesis
from agentkernel.domain.profile import ProfileFailed
from agentkernel.workflows.events import CandidateDrafted, Event, ProfileMissed, ProfileTaken
from agentkernel.workflows.optimize import run
from agentkernel.workflows.outcome import EARLIER, Result
from agentkernel.workflows.routing import LEAST_LEFT_S, may_wait, profile_waiting
from agentkernel.workflows.state import Limits, LoopState, OptimizeRequest
from tests.workflows.fakes import FakeWorkshop, Script, profile, settings, small_problem
from tests.workflows.test_screening import candidate, tried

NEXT = (Hypothesis(strategy="next", reason="a test"),)


def done(tmp_path: Path, shop: FakeWorkshop, *more: str) -> tuple[Result, list[Event]]:
    seen: list[Event] = []
    chosen = settings(tmp_path / "runs", "budget.rounds=4", *more)
    return run(OptimizeRequest(small_problem(tmp_path), chosen), seen.append, workshop=shop), seen


def order(seen: list[Event]) -> list[str]:
    """What was drafted (its strategy) and profiled (`*`), in turn."""
    names: dict[str | None, str] = {}
    said: list[str] = []
    for item in seen:
        if isinstance(item, CandidateDrafted):
            names[item.candidate] = item.strategy
            said.append(item.strategy)
        elif isinstance(item, ProfileTaken | ProfileMissed):
            said.append(f"{names[item.candidate]}*")
    return said


FASTER = (
    Script("a", speedup=1.6, searched_us=20.0),
    Script("b", speedup=1.7, searched_us=10.0),
)


def test_baselines_that_are_there_change_nothing(tmp_path: Path) -> None:
    _, seen = done(tmp_path, FakeWorkshop(FASTER))
    assert order(seen) == ["a", "a*", "b", "b*"]


def test_while_they_compile_the_next_one_is_drafted(tmp_path: Path) -> None:
    shop = FakeWorkshop(FASTER, ready_after=2)
    result, seen = done(tmp_path, shop)
    assert order(seen) == ["a", "b", "b*"], "a is slower than b, which is known"
    assert (result.status, result.speedup_vs_eager) == ("improved", 1.7)
    assert len(shop.judged) == 2, "a judgement is looked up, not repeated"


def test_at_the_end_of_the_queue_the_profile_waits_no_longer(tmp_path: Path) -> None:
    _, seen = done(tmp_path, FakeWorkshop(FASTER, ready_after=99))
    assert order(seen) == ["a", "b", "b*"]


def test_what_is_wrong_or_slow_leaves_the_first_one_to_be_profiled(tmp_path: Path) -> None:
    slow = Script("b", speedup=0.5, searched_us=90.0)
    result, seen = done(tmp_path, FakeWorkshop((FASTER[0], slow), ready_after=99))
    assert order(seen) == ["a", "b", "a*"]
    assert result.speedup_vs_eager == 1.6


def test_one_that_breaks_in_its_profile_gives_way_to_the_other(tmp_path: Path) -> None:
    broke = ProfileFailed(side="candidate", reason="wrong_output")
    broken = Script("b", unprofiled=broke, searched_us=10.0)
    result, seen = done(tmp_path, FakeWorkshop((FASTER[0], broken), ready_after=99))
    assert order(seen) == ["a", "b", "b*", "a*"]
    assert result.speedup_vs_eager == 1.6


def test_little_time_is_not_spent_on_drafts(tmp_path: Path) -> None:
    shop = FakeWorkshop(FASTER, ready_after=99)
    _, seen = done(tmp_path, shop, f"budget.time_s={LEAST_LEFT_S - 1}")
    assert order(seen)[:2] == ["a", "a*"]


def test_who_may_wait() -> None:
    timed = candidate("a", 10.0)
    asked = LoopState(queue=NEXT, hypothesis=Hypothesis(strategy="a", reason="a test"))
    assert may_wait(asked, timed)
    assert not may_wait(asked, candidate("a", None)), "the next one could not be compared"
    refusals = {
        "queue": (),
        "approve": "candidate",
        "goals": Goals(objective="memory"),
        "limits": Limits(time_s=100.0, rounds=0),
        "hypothesis": Hypothesis(strategy="a", reason="a test", because="experience/1"),
    }
    for name, value in refusals.items():
        assert not may_wait(asked.evolve(**{name: value}), timed), name


@pytest.mark.parametrize("later", [True, False])
def test_whose_turn_it_is(later: bool) -> None:
    slow, fast = tried("slow", 20.0), tried("fast", 10.0)
    wrong = tried("wrong", 1.0, right=False)
    history: tuple[Attempt, ...] = (slow, fast, wrong)
    found = profile_waiting(history if later else history[::-1])
    assert found is not None
    assert found.strategy == "fast"
    profiled = fast.evolve(profile=profile(fast.candidate, estimate_us=1.0))
    assert profile_waiting((slow, profiled)) is None
    missed = fast.evolve(unprofiled=ProfileFailed(side="gpu", reason="throttled"))
    assert profile_waiting((slow, missed)) == slow.candidate
    earlier = fast.evolve(candidate=fast.candidate.evolve(round=EARLIER))
    assert profile_waiting((earlier,)) is None
