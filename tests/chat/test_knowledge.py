"""Does a session say only what holds, for the GPU, the goal and the step that it is said of?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from agentkernel.chat.queries import memory_passes
from agentkernel.chat.replies import (
    Compared,
    Explained,
    Planned,
    PositionChanged,
    Reply,
    Roofline,
    StepRan,
    TextReply,
    TreeShown,
)
from agentkernel.chat.session import Session
from agentkernel.domain.candidate import Candidate
from agentkernel.domain.profile import Profile, ProfileFailed
from agentkernel.domain.settings import Settings
from agentkernel.tools.targets import ResolvedTarget, load_targets
from agentkernel.workflows.events import Event
from tests.chat import scripted_session
from tests.workflows import fakes

TIMES = {"h100-sxm": 2.5, "h200": 1.75}


@dataclass
class EstimatingShop(scripted_session.SessionShop):
    """No GPU: every time is an estimate for the target in force; eager takes 5 us."""

    slower: bool = False

    def resolve(self, settings: Settings) -> ResolvedTarget:
        name = {None: "h100-sxm", "h100": "h100-sxm"}.get(settings.target, settings.target)
        self.name = str(name)
        return ResolvedTarget(load_targets()[self.name], None, "a test", measurable=False)

    def _profile(self, candidate: Candidate) -> Profile | ProfileFailed:
        time_us = 7.5 if self.slower else TIMES[self.name]
        found = fakes.profile(candidate, estimate_us=time_us)
        assert found.report is not None
        kernel = found.report.kernels[0].evolve(grid=(8192, 1, 1))
        report = found.report.evolve(kernels=(kernel,))
        estimate = found.estimate.evolve(target=self.name)
        update = {"target": self.name, "estimate": estimate, "report": report}
        return found.evolve(**update)


@pytest.fixture
def shop() -> EstimatingShop:
    return EstimatingShop((fakes.Script("rows"),))


@pytest.fixture
def both(ran: Session) -> Session:
    """c1 estimated for the H100, then c2 for the H200, which is in force."""
    ran.say("try it on the h200")
    (reply,) = ran.say("run")
    assert isinstance(reply, StepRan), reply
    assert ran.tree.place.candidate == 2
    return ran


@pytest.fixture
def stopping(tmp_path: Path, shop: EstimatingShop) -> Iterator[Session]:
    """One run, then every step is stopped as it begins to draft."""
    seen: list[str] = []

    def stop(event: Event) -> None:
        if event.kind == "finished":
            seen.append(event.kind)
        if seen and event.kind == "node_started" and event.node == "draft":
            raise KeyboardInterrupt

    with scripted_session.begin(tmp_path, shop, stop) as session:
        session.say("run")
        yield session


def text_of(reply: Reply) -> str:
    assert isinstance(reply, TextReply | PositionChanged | StepRan), reply
    return reply.text


def test_the_roof_is_that_of_the_times_below_it(ran: Session) -> None:
    ran.say("try it on the h200")
    (found,) = ran.say("show the roofline")
    assert isinstance(found, Roofline)
    assert found.target == "h100-sxm"
    assert found.note == "Nobody has a time for h200 yet: 'run' gives one."


def test_candidates_of_another_gpu_are_left_out_by_name(both: Session) -> None:
    (found,) = both.say("show the roofline")
    assert isinstance(found, Roofline)
    assert (found.target, found.note) == ("h200", "Not drawn: c1 (estimated for h100-sxm).")
    assert [point.label for point in found.points] == ["eager", "c2"]


def test_times_for_two_gpus_are_never_compared(both: Session) -> None:
    assert "Fastest: c2." in text_of(both.say("where are we?")[0])
    both.say("for the h100")
    status = text_of(both.say("where are we?")[0])
    assert "Current: c2, right (interpreted), 1.75 us (estimated for h200)" in status
    assert "Fastest: c1." in status
    (found,) = both.say("compare c1 and c2")
    assert isinstance(found, Compared)
    assert found.verdict == (
        "c1 is estimated for h100-sxm, c2 for h200: such times cannot be compared."
    )
    assert "keep c1" in text_of(both.say("keep the better one")[0])
    assert "us estimated, for h200" in text_of(both.say("what did you try?")[0])
    (tree,) = both.say("show the tree")
    assert isinstance(tree, TreeShown)
    assert tree.target == "h100-sxm"


def test_nothing_is_the_fastest_for_a_gpu_that_nobody_tried(ran: Session) -> None:
    ran.say("try it on the h200")
    status = text_of(ran.say("where are we?")[0])
    assert "No time for h200 yet; fastest, estimated for h100-sxm: c1." in status
    assert "No right candidate has a time for h200 yet" in text_of(ran.say("keep the fastest")[0])


def test_the_same_gpu_by_another_name_is_no_change(ran: Session) -> None:
    before = ran.tree.place
    (same,) = ran.say("for the h100")
    assert text_of(same) == "Already set: target h100-sxm."
    assert ran.tree.place == before
    ran.say("try it on the h200")
    ran.say("for the h100 again")
    assert ran.tree.place.changes == before.changes


def test_a_step_without_a_candidate_says_why(ran: Session) -> None:
    (reply,) = ran.say("run again")
    assert isinstance(reply, StepRan)
    assert (reply.made, reply.result) == ((), None)
    assert reply.text.startswith("No new candidate: all ideas were tried (rows). Next: 'be more")
    assert ran.tree.steps[-1].outcome == "no new candidate: all ideas were tried (rows)"
    (memory,) = ran.say("use less memory")
    assert "c1 is one kernel, which keeps no value of its own in memory" in text_of(memory)
    assert "verified" not in ran.tree.steps[-1].outcome


def test_a_stopped_step_repeats_no_earlier_verdict(stopping: Session) -> None:
    stopping.say("try it on the h200")
    (reply,) = stopping.say("run")
    assert isinstance(reply, StepRan | TextReply)
    assert getattr(reply, "result", None) is None
    assert "Stopped while drafting" in text_of(reply)
    assert stopping.tree.steps[-1].outcome == "Stopped while drafting"


def test_what_is_estimated_slower_is_no_place_to_stand(
    session: Session, shop: EstimatingShop
) -> None:
    shop.slower = True
    (reply,) = session.say("run")
    assert isinstance(reply, StepRan)
    assert session.tree.place.candidate is None
    assert reply.result is not None
    assert (reply.result.status, reply.result.candidate) == ("kept_original", None)
    assert "c1 right (interpreted), estimated slower than eager: 0.67x" in reply.text


def test_a_goal_past_the_roofline_is_said_to_be(ran: Session) -> None:
    """Eager is estimated at 5 us, the roofline of the fakes at 2 us."""
    assert "out of reach" not in text_of(ran.say("where are we?")[0])
    ran.say("stop at 3x")
    said = "allows at most 2.50x of eager (estimated): the goal of 3x is out of reach."
    assert said in text_of(ran.say("where are we?")[0])
    (plan,) = ran.say("what is the plan?")
    assert isinstance(plan, Planned)
    assert said in plan.note
    (slow,) = ran.say("why is it slow?")
    assert said in dict(getattr(slow, "facts", ()))["goal"]


def test_why_slow_counts_passes_and_precision_counts_products(session: Session) -> None:
    (slow,) = session.say("why is it slow?")
    assert isinstance(slow, Explained)
    assert any("Eager makes one pass over memory" in words for _, words in slow.notes)
    assert "1 operation," in "".join(words for _, words in slow.notes)
    assert memory_passes(300, 100).startswith("Eager makes 3 passes over memory where one would do")
    assert "It changes little here" in text_of(session.say("allow tf32")[0])
    assert "It changes little" not in text_of(session.say("strict again")[0])


def test_what_was_declined_belongs_to_the_step_that_judges_it(
    tmp_path: Path, shop: EstimatingShop
) -> None:
    said = [False, True]
    made = scripted_session.settings_for(tmp_path / "runs", "approve=candidate")
    with Session.begin(
        fakes.small_problem(tmp_path),
        made,
        approve=lambda asked: said.pop(0),
        workshop=shop,
    ) as session:
        (first,) = session.say("run 1 round")
        assert isinstance(first, StepRan)
        assert first.result is None
        assert session.tree.steps[0].outcome == "c1 not judged: declined"
        (second,) = session.say("run again")
        assert isinstance(second, StepRan)
        assert second.made == (1,)
        assert second.text.startswith("New: c1 right (interpreted)")
        assert [node.step for node in session.tree.nodes] == [2]
        assert session.tree.place.candidate == 1
