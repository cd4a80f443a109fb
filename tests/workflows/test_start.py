"""A run begins with what it was given, and again with the same after that is gone."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest

from agentkernel.agents.protocols import Attempt
from agentkernel.domain.candidate import Candidate
from agentkernel.domain.errors import RunNotFound, SettingError
from agentkernel.tools.certificate.record import read_certificate
from agentkernel.tools.run_store import open_run
from agentkernel.workflows.events import Event, Noted, Planned
from agentkernel.workflows.optimize import resume, run
from agentkernel.workflows.state import OptimizeRequest
from tests.workflows.fakes import (
    FakeWorkshop,
    Script,
    attempts_of,
    mismatch,
    settings,
    small_problem,
)
from tests.workflows.given_files import RIGHT, SLOW, WRONG, GivenShop


def given(folder: Path, text: str) -> OptimizeRequest:
    """A request with that text as the coder."""
    path = folder / "kernel.py"
    path.write_text(text)
    chosen = settings(folder / "runs", f"coder=file:{path}")
    return OptimizeRequest(small_problem(folder), chosen)


def test_a_given_file_is_judged_measured_and_handed_over(tmp_path: Path) -> None:
    seen: list[Event] = []
    shop = GivenShop()
    result = run(given(tmp_path, RIGHT), seen.append, workshop=shop)
    assert (result.status, result.drafts, len(shop.judged)) == ("met", 1, 1)
    assert Path(result.candidate or "").read_text() == RIGHT
    certificate = read_certificate(Path(result.certificate or ""))
    assert certificate.candidate_source == RIGHT
    drafted = [item for item in seen if item.kind == "candidate_drafted"]
    assert [(item.coder, item.strategy) for item in drafted] == [("file:kernel.py", "given")]


@pytest.mark.parametrize(
    ("text", "status"), [(WRONG, "kept_original"), (SLOW, "kept_original")], ids=["wrong", "slow"]
)
def test_a_given_file_that_is_no_better_is_tried_once(
    tmp_path: Path, text: str, status: str
) -> None:
    seen: list[Event] = []
    result = run(given(tmp_path, text), seen.append, workshop=GivenShop())
    assert (result.status, result.candidate, result.exit_code) == (status, None, 3)
    assert [item.kind for item in seen].count("candidate_drafted") == 1


@pytest.mark.parametrize("measurable", [False, True])
def test_without_a_verdict_nothing_was_interpreted_where_a_gpu_is(
    tmp_path: Path, measurable: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row whose time was over before its judgement ended read as if there had been no GPU."""

    def stop(candidate: Candidate) -> None:
        raise KeyboardInterrupt

    shop = GivenShop(on_judge=stop)
    resolved = dataclasses.replace(shop.resolve(settings(tmp_path)), measurable=measurable)
    monkeypatch.setattr(shop, "resolve", lambda chosen: resolved)
    cut = run(given(tmp_path, RIGHT), workshop=shop)
    assert (cut.interrupted, cut.interpreted) == (True, not measurable)


def test_a_run_goes_on_after_its_given_file_is_gone(tmp_path: Path) -> None:
    def stop(candidate: Candidate) -> None:
        raise KeyboardInterrupt

    cut = run(given(tmp_path, RIGHT), workshop=GivenShop(on_judge=stop))
    assert cut.interrupted
    (tmp_path / "kernel.py").unlink()
    end = resume("last", runs=tmp_path / "runs", workshop=GivenShop())
    assert end.status == "met"
    assert Path(end.candidate or "").read_text() == RIGHT


def test_a_file_that_is_not_there_makes_no_run(tmp_path: Path) -> None:
    request = given(tmp_path, RIGHT)
    (tmp_path / "kernel.py").unlink()
    with pytest.raises(SettingError, match=r"kernel\.py"):
        run(request, workshop=GivenShop())
    assert not (tmp_path / "runs").exists()


A = Script("a", speedup=1.4, compiled=1.3)
B = Script("b", speedup=1.35, compiled=1.3)
WORSE = Script("b", speedup=1.33, compiled=1.3)


def earlier(folder: Path, *scripts: Script, overrides: tuple[str, ...] = ()) -> tuple[Attempt, ...]:
    """What a run of its own leaves behind."""
    own = folder / "earlier"
    own.mkdir()
    request = OptimizeRequest(small_problem(folder), settings(own / "runs", *overrides))
    run(request, workshop=FakeWorkshop(scripts))
    store = open_run(own / "runs", "last")
    try:
        return attempts_of(store)
    finally:
        store.close()


def going_on(
    folder: Path,
    history: tuple[Attempt, ...],
    focus: str | None = None,
    overrides: tuple[str, ...] = (),
) -> OptimizeRequest:
    chosen = settings(folder / "runs", *overrides)
    return OptimizeRequest(small_problem(folder), chosen, history=history, focus=focus)


def noted(seen: list[Event]) -> list[str]:
    return [item.text for item in seen if isinstance(item, Noted)]


def test_the_best_of_an_earlier_run_stays_the_best(tmp_path: Path) -> None:
    history = earlier(tmp_path, A)
    assert [item.candidate.strategy for item in history] == ["a"]
    shop, seen = FakeWorkshop((A, WORSE)), list[Event]()
    result = run(going_on(tmp_path, history), seen.append, workshop=shop)
    assert "'''a first'''" in Path(result.candidate or "").read_text()
    assert (result.status, result.drafts) == ("improved", 1)
    assert [item.hypothesis.strategy for item in shop.coder.requests] == ["b"]
    assert [item.candidate.strategy for item in shop.coder.requests[0].history] == ["a"]
    assert len(shop.judged) == 1, "what an earlier run judged is not judged again"
    assert not noted(seen)
    source = history[0].candidate.id
    assert (Path(result.report or "").parent / "candidates" / f"{source}.py").is_file()


def test_a_text_that_an_earlier_run_tried_is_no_new_candidate(tmp_path: Path) -> None:
    history = earlier(tmp_path, Script("a", failure=mismatch(), repaired=False))
    same = Script("b", source=history[0].candidate.source)
    shop, seen = FakeWorkshop((same,)), list[Event]()
    result = run(going_on(tmp_path, history[:1]), seen.append, workshop=shop)
    assert shop.judged == []
    assert (result.status, result.drafts) == ("kept_original", 0)
    reasons = [item.reason for item in seen if item.kind == "candidate_drafted"]
    assert reasons == [f"{history[0].candidate.id} was drafted again, which an earlier run tried"]


def test_a_focus_is_all_that_is_tried(tmp_path: Path) -> None:
    shop, seen = FakeWorkshop((A, B, Script("c", speedup=1.32, compiled=1.3))), list[Event]()
    run(going_on(tmp_path, (), focus="b"), seen.append, workshop=shop)
    assert [item.hypothesis.strategy for item in shop.coder.requests] == ["b"]
    first = next(item for item in seen if isinstance(item, Planned))
    assert [item.reason for item in first.plan.hypotheses] == ["try b"]


def test_a_focus_may_have_been_tried_before(tmp_path: Path) -> None:
    history = earlier(tmp_path, A)
    again = Script("a", source="class ModelNew:\n    '''another'''\n", speedup=1.45)
    shop = FakeWorkshop((again, B))
    result = run(going_on(tmp_path, history, focus="a"), workshop=shop)
    assert [item.hypothesis.strategy for item in shop.coder.requests] == ["a"]
    assert result.drafts == 1


def test_resume_has_the_earlier_attempts_and_the_focus(tmp_path: Path) -> None:
    def stop(candidate: Candidate) -> None:
        raise KeyboardInterrupt

    history = earlier(tmp_path, A)
    cut = FakeWorkshop((A, WORSE, Script("c")), on_judge=stop)
    assert run(going_on(tmp_path, history, focus="b"), workshop=cut).interrupted
    (next((tmp_path / "runs").iterdir()) / "checkpoint.sqlite").unlink()
    shop = FakeWorkshop((A, WORSE, Script("c")))
    end = resume("last", runs=tmp_path / "runs", workshop=shop)
    assert "'''a first'''" in Path(end.candidate or "").read_text()
    assert len(shop.judged) == 1


def test_ctrl_c_before_the_first_step_keeps_what_earlier_runs_left(tmp_path: Path) -> None:
    def stop(event: Event) -> None:
        if event.kind == "node_started":
            raise KeyboardInterrupt

    request = going_on(tmp_path, earlier(tmp_path, A))
    result = run(request, stop, workshop=FakeWorkshop((A, B)))
    assert (result.status, result.interrupted) == ("improved", True)


@pytest.mark.quick(1)
@pytest.mark.parametrize("text", ["{", "[]", '{"history": 3}', "\0", ""])
def test_a_damaged_start_is_one_line(tmp_path: Path, text: str) -> None:
    def stop(candidate: Candidate) -> None:
        raise KeyboardInterrupt

    request = going_on(tmp_path, earlier(tmp_path, A))
    run(request, workshop=FakeWorkshop((A, B), on_judge=stop))
    (next((tmp_path / "runs").iterdir()) / "start.json").write_text(text)
    with pytest.raises(RunNotFound, match=r"start\.json.*corrupt") as raised:
        resume("last", runs=tmp_path / "runs", workshop=FakeWorkshop((A, B)))
    assert "\n" not in str(raised.value)


def without_keys(attempt: Attempt) -> Attempt:
    return attempt.evolve(judge_key="", profile_key="")


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    ("overrides", "why"),
    [
        (("goals.precision=bf16",), "judged with precision strict, not bf16"),
        (("goals.policy=triton",), "judged with policy mixed, not triton"),
        (("judge.seed=3",), "judged under other settings"),
    ],
)
def test_what_was_judged_otherwise_is_judged_anew(
    tmp_path: Path, overrides: tuple[str, ...], why: str
) -> None:
    history = earlier(tmp_path, A)
    shop, seen = FakeWorkshop((A,)), list[Event]()
    result = run(going_on(tmp_path, history, overrides=overrides), seen.append, workshop=shop)
    assert shop.judged == [history[0].candidate.sha256]
    assert result.drafts == 1
    assert noted(seen) == [f"earlier candidate {history[0].candidate.id} is left out: it was {why}"]


def wrong_text(attempt: Attempt) -> Attempt:
    other = attempt.candidate.evolve(source="other")
    return without_keys(attempt).evolve(candidate=other)


def other_problem(attempt: Attempt) -> Attempt:
    elsewhere = attempt.verdict.evolve(problem="f" * 64)
    return attempt.evolve(verdict=elsewhere)


def on_a_gpu(attempt: Attempt) -> Attempt:
    native = attempt.verdict.evolve(interpreted=False)
    return attempt.evolve(verdict=native)


def other_seed(attempt: Attempt) -> Attempt:
    return without_keys(attempt).evolve(verdict=attempt.verdict.evolve(seed=7))


def other_target(attempt: Attempt) -> Attempt:
    other = attempt.profile.evolve(target="a100-sxm-80")
    return without_keys(attempt).evolve(profile=other)


def other_profile_key(attempt: Attempt) -> Attempt:
    return attempt.evolve(profile_key="f" * 64)


def foreign_profile(attempt: Attempt) -> Attempt:
    return attempt.evolve(profile=attempt.profile.evolve(candidate="f" * 64))


def never_judged(attempt: Attempt) -> Attempt:
    return Attempt(candidate=attempt.candidate)


@pytest.mark.quick(3)
@pytest.mark.parametrize(
    ("change", "why"),
    [
        (wrong_text, "another text"),
        (other_problem, "another problem"),
        (on_a_gpu, "another kind of device"),
        (other_target, "profiled for a100-sxm-80, not h100-sxm"),
        (other_profile_key, "profiled under other settings"),
        (foreign_profile, "profile is about another text"),
        (never_judged, "it was not judged"),
    ],
)
def test_only_what_holds_is_taken_over(
    tmp_path: Path, change: Callable[[Attempt], Attempt], why: str
) -> None:
    history = earlier(tmp_path, A)
    seen: list[Event] = []
    changed = tuple(map(change, history))
    run(going_on(tmp_path, changed), seen.append, workshop=FakeWorkshop((B,)))
    assert [why in text for text in noted(seen)] == [True]


def test_a_seed_counts_where_one_is_asked_for(tmp_path: Path) -> None:
    history = tuple(map(other_seed, earlier(tmp_path, A)))
    for overrides, notes in ((), 0), (("judge.seed=0",), 1):
        seen: list[Event] = []
        run(
            going_on(tmp_path, history, overrides=overrides),
            seen.append,
            workshop=FakeWorkshop((B,)),
        )
        assert ["seed 7, not 0" in text for text in noted(seen)] == [True] * notes


def test_without_keys_the_values_decide(tmp_path: Path) -> None:
    history = tuple(map(without_keys, earlier(tmp_path, A)))
    seen: list[Event] = []
    shop = FakeWorkshop((A, WORSE))
    result = run(going_on(tmp_path, history), seen.append, workshop=shop)
    assert (result.drafts, noted(seen), len(shop.judged)) == (1, [], 1)


def test_a_candidate_that_was_set_aside_needs_no_verdict(tmp_path: Path) -> None:
    history = earlier(tmp_path, A)
    aside = Attempt(candidate=history[0].candidate, aside="in the search 3x slower")
    shop = FakeWorkshop((A, B))
    run(going_on(tmp_path, (aside,)), workshop=shop)
    assert [item.hypothesis.strategy for item in shop.coder.requests] == ["b"]
