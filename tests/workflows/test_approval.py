"""Nothing is drafted or judged before somebody said yes; a cut-off run asks again."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from agentkernel.domain.candidate import Candidate
from agentkernel.domain.errors import SettingError
from agentkernel.domain.plan import Hypothesis
from agentkernel.tools.run_store import open_run
from agentkernel.workflows.approval import PendingApproval
from agentkernel.workflows.events import Decided, Event
from agentkernel.workflows.optimize import resume, run
from agentkernel.workflows.outcome import Result
from agentkernel.workflows.run import checkpoint_types
from agentkernel.workflows.state import OptimizeRequest
from tests.workflows.fakes import (
    FakeWorkshop,
    Script,
    attempts_of,
    mismatch,
    settings,
    small_problem,
)

A = Script("a", speedup=1.4, compiled=1.3)
B = Script("b", speedup=1.5, compiled=1.3)


@dataclass
class Voice:
    """Says what it was told to say, in turn, and then always yes."""

    words: list[bool | BaseException] = field(default_factory=list)
    heard: list[PendingApproval] = field(default_factory=list)

    def __call__(self, asked: PendingApproval) -> bool:
        self.heard.append(asked)
        word = self.words.pop(0) if self.words else True
        if isinstance(word, BaseException):
            raise word
        return word


def request(folder: Path, approve: str, *overrides: str) -> OptimizeRequest:
    chosen = settings(folder / "runs", f"approve={approve}", *overrides)
    return OptimizeRequest(small_problem(folder), chosen)


def stops(seen: list[Event]) -> list[str | None]:
    return [item.stop for item in seen if isinstance(item, Decided)]


def test_a_plan_that_is_approved_is_followed(tmp_path: Path) -> None:
    voice, shop, seen = Voice(), FakeWorkshop((A, B)), list[Event]()
    result = run(request(tmp_path, "plan"), seen.append, workshop=shop, approve=voice)
    assert (result.status, len(shop.judged)) == ("improved", 2)
    assert [item.kind for item in voice.heard] == ["plan"]
    asked = voice.heard[0]
    assert asked.hypothesis == asked.plan.hypotheses[0]
    kinds = [item.kind for item in seen]
    assert kinds.index("planned") < kinds.index("approval_asked")
    assert kinds.index("approval_given") < kinds.index("candidate_drafted")


def test_a_plan_that_is_declined_ends_the_run(tmp_path: Path) -> None:
    shop = FakeWorkshop((A, B))
    result = run(request(tmp_path, "plan"), workshop=shop, approve=Voice([False]))
    assert (result.status, result.exit_code) == ("kept_original", 3)
    assert result.reason == "the plan was declined"
    assert not result.interrupted
    assert shop.coder.requests == []
    assert "declined" in Path(result.report or "").read_text()
    assert resume("last", runs=tmp_path / "runs", workshop=shop) == result, "it is over"


def test_a_declined_plan_leaves_what_was_found_before(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    first = request(tmp_path / "one", "never")
    run(first, workshop=FakeWorkshop((A,)))
    store = open_run(tmp_path / "one" / "runs", "last")
    history = attempts_of(store)
    store.close()
    chosen = settings(tmp_path / "runs", "approve=plan")
    again = OptimizeRequest(first.problem, chosen, history=history)
    result = run(again, workshop=FakeWorkshop((A, B)), approve=Voice([False]))
    assert (result.status, result.exit_code, result.drafts) == ("improved", 0, 0)


def test_each_candidate_is_asked_about_before_it_is_judged(tmp_path: Path) -> None:
    shop = FakeWorkshop((Script("a", failure=mismatch("tail"), speedup=1.4, compiled=1.3), B))
    judged: list[int] = []
    voice = Voice()

    def counted(asked: PendingApproval) -> bool:
        judged.append(len(shop.judged))
        return voice(asked)

    run(request(tmp_path, "candidate"), workshop=shop, approve=counted)
    assert [item.kind for item in voice.heard] == ["candidate"] * len(shop.judged)
    assert judged == list(range(len(shop.judged))), "a repair is asked about too"
    assert "'''a first'''" in voice.heard[0].source
    assert voice.heard[0].hypothesis.strategy == "a"


def test_a_candidate_that_is_declined_is_left_out(tmp_path: Path) -> None:
    shop, seen = FakeWorkshop((A, B)), list[Event]()
    voice = Voice([False, True])
    result = run(request(tmp_path, "candidate"), seen.append, workshop=shop, approve=voice)
    assert "'''b first'''" in Path(result.candidate or "").read_text()
    assert len(shop.judged) == 1
    assert [item.hypothesis.strategy for item in voice.heard] == ["a", "b"]
    left = [item.reason for item in seen if item.kind == "candidate_set_aside"]
    assert left == ["declined"]


def test_all_candidates_declined_keeps_the_original(tmp_path: Path) -> None:
    shop = FakeWorkshop((A, B))
    result = run(request(tmp_path, "candidate"), workshop=shop, approve=Voice([False, False]))
    assert (result.status, result.exit_code, shop.judged) == ("kept_original", 3, [])
    assert result.reason == "what was drafted was declined"


def test_what_was_set_aside_is_asked_about_before_its_second_chance(tmp_path: Path) -> None:
    slow = Script("a", speedup=1.4, compiled=1.3, searched_us=50.0)
    for folder, word, judged in (("yes", True, 1), ("no", False, 0)):
        (tmp_path / folder).mkdir()
        shop, voice = FakeWorkshop((slow,), quick_us=10.0), Voice([word])
        run(request(tmp_path / folder, "candidate"), workshop=shop, approve=voice)
        assert (len(voice.heard), len(shop.judged)) == (1, judged)


@pytest.mark.quick(1)
@pytest.mark.parametrize("what", ["plan", "candidate"])
def test_a_run_that_was_cut_off_while_it_waited_asks_again(tmp_path: Path, what: str) -> None:
    cut = Voice([KeyboardInterrupt()])
    result = run(request(tmp_path, what), workshop=FakeWorkshop((A, B)), approve=cut)
    assert (result.status, result.interrupted, result.exit_code) == ("kept_original", True, 130)
    voice, shop = Voice(), FakeWorkshop((A, B))
    end = resume("last", runs=tmp_path / "runs", workshop=shop, approve=voice)
    assert voice.heard[0] == cut.heard[0]
    assert not end.interrupted
    assert "'''b first'''" in Path(end.candidate or "").read_text()


def test_a_run_that_was_killed_while_it_waited_asks_again(tmp_path: Path) -> None:
    with pytest.raises(SystemExit):
        run(
            request(tmp_path, "plan"),
            workshop=FakeWorkshop((A,)),
            approve=Voice([SystemExit("the process is gone")]),
        )
    voice = Voice([False])
    end = resume("last", runs=tmp_path / "runs", workshop=FakeWorkshop((A,)), approve=voice)
    assert (len(voice.heard), end.reason) == (1, "the plan was declined")


@pytest.mark.parametrize("what", ["plan", "candidate"])
def test_nobody_to_ask_is_one_line_before_the_run(tmp_path: Path, what: str) -> None:
    with pytest.raises(SettingError, match=f"'approve' is '{what}'") as raised:
        run(request(tmp_path, what), workshop=FakeWorkshop((A,)))
    assert "\n" not in str(raised.value)
    assert not (tmp_path / "runs").exists()


def test_a_run_that_waits_cannot_be_resumed_by_nobody(tmp_path: Path) -> None:
    run(
        request(tmp_path, "plan"),
        workshop=FakeWorkshop((A,)),
        approve=Voice([KeyboardInterrupt()]),
    )
    with pytest.raises(SettingError, match="'approve' is 'plan'"):
        resume("last", runs=tmp_path / "runs", workshop=FakeWorkshop((A,)))


@pytest.mark.slow
def test_the_wait_costs_nothing_of_the_time(tmp_path: Path) -> None:
    def slowly(asked: PendingApproval) -> bool:
        time.sleep(3.0)
        return True

    shop = FakeWorkshop((A,))
    result = run(request(tmp_path, "plan", "budget.time_s=2.5"), workshop=shop, approve=slowly)
    assert len(shop.judged) == 1
    assert result.spent_s < 2.5


def stopping(kind: str) -> Callable[[Event], None]:
    """A listener that interrupts at the first event of that kind."""
    left = [kind]

    def listen(event: Event) -> None:
        if event.kind in left:
            left.remove(event.kind)
            raise KeyboardInterrupt

    return listen


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    "kind",
    ["node_started", "planned", "candidate_drafted", "approval_asked", "approval_given", "verdict"],
)
def test_a_listener_may_interrupt_anywhere_and_resume_goes_on(tmp_path: Path, kind: str) -> None:
    result = run(
        request(tmp_path, "candidate"),
        stopping(kind),
        workshop=FakeWorkshop((A, B)),
        approve=Voice(),
    )
    assert (result.interrupted, result.exit_code) == (True, 130)
    shop = FakeWorkshop((A, B))
    end = resume("last", runs=tmp_path / "runs", workshop=shop, approve=Voice())
    assert (end.interrupted, end.drafts) == (False, 2)
    assert "'''b first'''" in Path(end.candidate or "").read_text()


def test_an_interrupt_in_another_thread_ends_the_same_way(tmp_path: Path) -> None:
    def stop(candidate: Candidate) -> None:
        if len(shop.judged) > 1:
            raise KeyboardInterrupt

    found: list[Result] = []
    shop = FakeWorkshop((A, B), on_judge=stop)
    asked = request(tmp_path, "never")
    worker = threading.Thread(target=lambda: found.append(run(asked, workshop=shop)))
    worker.start()
    worker.join(60.0)
    assert [(item.status, item.interrupted) for item in found] == [("improved", True)]
    end = resume("last", runs=tmp_path / "runs", workshop=FakeWorkshop((A, B)))
    assert "'''b first'''" in Path(end.candidate or "").read_text()


def test_a_setting_that_nobody_touched_is_no_part_of_a_benchs_key(tmp_path: Path) -> None:
    def told(*overrides: str) -> bool:
        words = settings(tmp_path / "runs", *overrides).model_dump_json(exclude_defaults=True)
        return "approve" in words

    assert not told()
    assert told("approve=plan")


def test_a_checkpoint_of_before_is_read() -> None:
    """What waited for a yes had another name."""
    value = {"kind": "plan", "round": 1, "hypothesis": Hypothesis(strategy="fused", reason="")}
    before = type("Asked", (PendingApproval,), {"__module__": PendingApproval.__module__})
    serde = JsonPlusSerializer(allowed_msgpack_modules=checkpoint_types())
    read = serde.loads_typed(serde.dumps_typed(before(**value)))
    assert type(read) is PendingApproval
    assert read == PendingApproval.model_validate(value)
