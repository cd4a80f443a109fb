from __future__ import annotations

import contextlib
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import pytest

from agentkernel.agents.protocols import DraftRequest
from agentkernel.cli.app import run as cli
from agentkernel.domain.base import sha256_text
from agentkernel.domain.candidate import Candidate, Draft, NoTemplate
from agentkernel.domain.errors import ModelUnavailable, ProblemError, SettingError
from agentkernel.domain.plan import Retrieved
from agentkernel.domain.profile import ProfileFailed
from agentkernel.tools.certificate.record import read_certificate
from agentkernel.tools.problem.loading import LoadedProblem
from agentkernel.tools.run_store import list_runs, open_run
from agentkernel.tools.sandbox.session import require_time, time_left
from agentkernel.workflows.answer import answer_sentence
from agentkernel.workflows.deps import Deps
from agentkernel.workflows.events import Event, RunStarted, VerdictReached
from agentkernel.workflows.optimize import resume, run
from agentkernel.workflows.outcome import Result
from agentkernel.workflows.state import OptimizeRequest
from tests.workflows import scripted_process
from tests.workflows.fakes import (
    NOTE,
    FakeRetriever,
    FakeWorkshop,
    Script,
    ScriptedCoder,
    mismatch,
    settings,
    small_problem,
)

EVENTS = 70
"""About as many events as the scripted run has."""
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Result:
    """The scripted run, left alone."""
    folder = tmp_path_factory.mktemp("whole")
    request = OptimizeRequest(small_problem(folder), settings(folder / "runs", "budget.rounds=4"))
    return run(request, workshop=scripted_process.workshop(0.0))


def kill_after(folder: Path, events: int, more_s: float) -> bool:
    """Run or resume in a child and kill -9 it after so many events; False where it ended first."""
    child = subprocess.Popen(
        [sys.executable, "-m", "tests.workflows.scripted_process", str(folder), "0.01"],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    with child:
        for _ in range(events):
            if not child.stdout.readline():
                assert child.wait() == 0
                return False
        time.sleep(more_s)
        child.send_signal(signal.SIGKILL)
    return child.returncode == -signal.SIGKILL


def assert_same_end(folder: Path, whole: Result, kills: int) -> None:
    """Resume to the end; the candidate is the same, no finished work was done twice."""
    result = resume("last", runs=folder / "runs", workshop=scripted_process.workshop(0.0))
    assert result.status == whole.status == "improved"
    assert result.candidate_sha256 == whole.candidate_sha256
    assert result.speedup_ci95 == whole.speedup_ci95
    assert result.candidate is not None
    assert Path(result.candidate).read_text() == Path(whole.candidate or "").read_text()
    store = open_run(folder / "runs", "last")
    try:
        done = store.records.executions()
        finished = Counter((item.task, item.key) for item in done if item.finished)
        assert set(finished.values()) == {1}
        assert sum(1 for item in done if not item.finished) <= kills
        assert sum(1 for key in finished if key[0] == "judge") == len(store.records.verdicts()) == 5
    finally:
        store.close()


def kill_and_compare(folder: Path, whole: Result, seed: int, kills: int) -> None:
    choose = random.Random(seed)
    for _ in range(kills):
        events = choose.randrange(1, EVENTS // kills)
        if not kill_after(folder, events, choose.random() * 0.02):
            break
    assert_same_end(folder, whole, kills)


@pytest.mark.slow
def test_three_kills_then_resume(tmp_path: Path, whole: Result) -> None:
    kill_and_compare(tmp_path, whole, seed=20, kills=3)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
def test_a_kill_at_any_moment(tmp_path: Path, whole: Result, seed: int) -> None:
    folder = tmp_path / "one"
    folder.mkdir()
    kill_after(
        folder, random.Random(seed).randrange(1, EVENTS), random.Random(seed).random() * 0.03
    )
    assert_same_end(folder, whole, 1)


def request(folder: Path, *overrides: str) -> OptimizeRequest:
    return OptimizeRequest(small_problem(folder), settings(folder / "runs", *overrides))


def interrupted_run(folder: Path, judged_before: int) -> Result:
    """Ctrl-C while the judge is at work, after some judgements."""

    def stop(candidate: Candidate) -> None:
        if len(shop.judged) > judged_before:
            raise KeyboardInterrupt

    shop = FakeWorkshop(
        (Script("a", speedup=1.4, compiled=1.3), Script("b", speedup=1.5, compiled=1.3)),
        on_judge=stop,
    )
    return run(request(folder), workshop=shop)


def test_ctrl_c_hands_back_the_best_so_far_and_resume_goes_on(tmp_path: Path) -> None:
    result = interrupted_run(tmp_path, judged_before=1)
    assert (result.status, result.interrupted, result.exit_code) == ("improved", True, 130)
    assert result.candidate is not None
    assert "'''a first'''" in Path(result.candidate).read_text()
    assert list_runs(tmp_path / "runs")[0].status == "improved (interrupted)"
    shop = FakeWorkshop(
        (Script("a", speedup=1.4, compiled=1.3), Script("b", speedup=1.5, compiled=1.3))
    )
    end = resume("last", runs=tmp_path / "runs", workshop=shop)
    assert not end.interrupted
    assert "'''b first'''" in Path(end.candidate or "").read_text()
    assert len(shop.judged) == 1, "the first judgement was finished and must not be repeated"


def test_ctrl_c_before_any_verdict_keeps_the_original(tmp_path: Path) -> None:
    result = interrupted_run(tmp_path, judged_before=0)
    assert (result.status, result.candidate, result.exit_code) == ("kept_original", None, 130)
    assert result.drafts == 1, "the draft is kept, and resume goes on with it"
    assert result.reason.endswith("was drafted; interrupted before it was judged")
    assert list_runs(tmp_path / "runs")[0].status == "interrupted"
    report = (tmp_path / "runs" / result.run / "report.md").read_text()
    assert "interrupted while it was at work" in report
    shop = FakeWorkshop((Script("a", speedup=1.4, compiled=1.3), Script("b", speedup=1.5)))
    assert not resume("last", runs=tmp_path / "runs", workshop=shop).interrupted
    assert shop.judged[0].startswith(result.reason.split()[0])


def test_a_crash_leaves_the_best_so_far(tmp_path: Path) -> None:
    def crash(candidate: Candidate) -> None:
        if len(shop.judged) > 1:
            raise ZeroDivisionError("a bug")

    shop = FakeWorkshop((Script("a"), Script("b")), on_judge=crash)
    shop.coder.predicted_us = 1.0
    with pytest.raises(ZeroDivisionError):
        run(request(tmp_path), workshop=shop)
    folder = next((tmp_path / "runs").iterdir())
    assert "'''a first'''" in (folder / "plus_optimized.py").read_text()
    assert list_runs(tmp_path / "runs")[0].status == "verified (interrupted)"


def test_a_crash_before_any_candidate_is_a_failure_that_resume_mends(tmp_path: Path) -> None:
    def crash(candidate: Candidate) -> None:
        raise ModelUnavailable("the model does not answer")

    with pytest.raises(ModelUnavailable):
        run(request(tmp_path), workshop=FakeWorkshop((Script("a"),), on_judge=crash))
    assert list_runs(tmp_path / "runs")[0].status == "failed"
    end = resume("last", runs=tmp_path / "runs", workshop=FakeWorkshop((Script("a"),)))
    assert end.status == "verified"


def test_inputs_that_do_not_fit_leave_a_failed_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    class Misfit(FakeWorkshop):
        @contextmanager
        def equip(self, *given: Any) -> Iterator[Deps]:
            with super().equip(*given) as deps:
                yield deps._replace(tools=replace(deps.tools, analyse=refuse))

    def refuse() -> NoReturn:
        raise ProblemError("The forward raised. Next: check shapes.")

    with pytest.raises(ProblemError):
        run(request(tmp_path), workshop=Misfit((Script("a"),)))
    folder = next((tmp_path / "runs").iterdir())
    result = Result.model_validate_json((folder / "result.json").read_text())
    assert (result.status, result.interrupted, result.exit_code) == ("failed", False, 1)
    assert result.reason == "The forward raised. Next: check shapes."
    assert "interrupted" not in (folder / "report.md").read_text()
    assert "resume" not in answer_sentence(result, None)
    assert not list_runs(tmp_path / "runs")[0].began
    assert cli(["runs", "--runs", str(tmp_path / "runs")]) == 0
    assert capsys.readouterr().out == "1 run failed before a draft; --json names them.\n"


def test_a_retrieved_document_changes_a_recorded_decision(tmp_path: Path) -> None:
    def focus(documents: tuple[Retrieved, ...], folder: str) -> str | None:
        (tmp_path / folder).mkdir()
        shop = FakeWorkshop((Script("a"),), retriever=FakeRetriever(documents))
        result = run(request(tmp_path / folder), workshop=shop)
        plan = read_certificate(Path(result.certificate or "")).plan
        assert plan.retrieved == tuple(item.id for item in documents)
        assert shop.coder.requests[0].plan == plan, "the coder drafts under the changed plan"
        return plan.decision("focus")

    assert focus((NOTE,), "with") == "rows"
    assert focus((), "without") == "fewest bytes"


def test_a_finished_run_answers_at_once(tmp_path: Path) -> None:
    first = run(request(tmp_path), workshop=FakeWorkshop((Script("a", speedup=2.0),)))
    shop = FakeWorkshop((Script("a", speedup=2.0),))
    seen: list[Event] = []
    assert resume("last", seen.append, runs=tmp_path / "runs", workshop=shop) == first
    assert [item.kind for item in seen] == ["finished"]
    assert shop.judged == []


@pytest.mark.quick(1)
@pytest.mark.parametrize("how", ["garbage", "truncated", "gone"])
def test_a_damaged_checkpoint_is_rebuilt_without_judging_again(tmp_path: Path, how: str) -> None:
    interrupted_run(tmp_path, judged_before=1)
    path = next((tmp_path / "runs").iterdir()) / "checkpoint.sqlite"
    damage(path, how)
    shop = FakeWorkshop(
        (Script("a", speedup=1.4, compiled=1.3), Script("b", speedup=1.5, compiled=1.3))
    )
    verdicts: list[VerdictReached] = []

    def listen(event: Event) -> None:
        if isinstance(event, VerdictReached):
            verdicts.append(event)

    end = resume("last", listen, runs=tmp_path / "runs", workshop=shop)
    assert "'''b first'''" in Path(end.candidate or "").read_text()
    assert len(shop.judged) == 1
    assert [item.reused for item in verdicts] == [True, False]


def damage(path: Path, how: str) -> None:
    if how == "garbage":
        path.write_bytes(b"this is no database" * 100)
    elif how == "truncated":
        path.write_bytes(path.read_bytes()[:5000])
    else:
        path.unlink()


def test_a_damaged_database_is_set_aside_and_filled_from_the_checkpoint(tmp_path: Path) -> None:
    interrupted_run(tmp_path, judged_before=1)
    folder = next((tmp_path / "runs").iterdir())
    (folder / "run.sqlite").write_bytes(b"this is no database" * 100)
    shop = FakeWorkshop(
        (Script("a", speedup=1.4, compiled=1.3), Script("b", speedup=1.5, compiled=1.3))
    )
    seen: list[Event] = []
    end = resume("last", seen.append, runs=tmp_path / "runs", workshop=shop)
    started = next(item for item in seen if isinstance(item, RunStarted))
    assert len(started.warnings) == 1
    assert started.warnings[0].startswith("run.sqlite was damaged")
    assert list(folder.glob("run-damaged-*.sqlite"))
    assert "'''b first'''" in Path(end.candidate or "").read_text()
    assert len(shop.judged) == 1


def test_time_spent_before_counts(tmp_path: Path) -> None:
    result = interrupted_run(tmp_path, judged_before=1)
    store = open_run(tmp_path / "runs", "last")
    store.records.spend(100.0)
    store.close()
    seen: list[Event] = []
    resume("last", seen.append, runs=tmp_path / "runs", workshop=FakeWorkshop((Script("b"),)))
    started = next(item for item in seen if isinstance(item, RunStarted))
    assert started.spent_s > 100.0 > result.spent_s


def test_the_time_budget_stops_the_loop(tmp_path: Path) -> None:
    shop = FakeWorkshop(
        (Script("a", speedup=1.4, compiled=1.3), Script("b", speedup=1.5, compiled=1.3)),
        on_judge=lambda candidate: time.sleep(2.0),
    )
    result = run(request(tmp_path, "budget.time_s=2.0"), workshop=shop)
    assert len(shop.judged) == 1
    assert result.status == "improved"


def test_what_is_accepted_as_the_time_ends_is_measured_all_the_same(tmp_path: Path) -> None:
    left: list[float] = []
    shop = FakeWorkshop(
        (Script("a", speedup=1.4, compiled=1.3),),
        on_judge=lambda candidate: time.sleep(max(0.0, time_left()) + 0.1),
        on_profile=lambda candidate: left.append(time_left()),
    )
    result = run(request(tmp_path, "budget.time_s=4.0"), workshop=shop)
    assert result.status == "improved"
    assert 0.0 < left[0] < 0.15 * 4.0


def until_time_is_up() -> None:
    for _ in range(400):
        require_time()
        time.sleep(0.05)


@pytest.mark.quick(1)
@pytest.mark.parametrize("refused", [False, True])
def test_the_time_budget_ends_the_last_judgement(tmp_path: Path, refused: bool) -> None:
    """What was drafted and not judged is named, beside what was judged before."""
    wrong = Script("wrong", failure=mismatch(), repaired=False)
    scripts = (wrong, Script("right")) if refused else (Script("right"),)

    def judged(candidate: Candidate) -> None:
        if candidate.strategy == "right":
            until_time_is_up()

    shop = FakeWorkshop(scripts, on_judge=judged)
    limits = ("budget.time_s=3.0", "budget.repairs=0")
    begin = time.monotonic()
    result = run(request(tmp_path, *limits), workshop=shop)
    assert time.monotonic() - begin < 10.0
    left = sha256_text("class ModelNew:\n    '''right first'''\n")[:10]
    assert result.status == "kept_original"
    if refused:
        assert f"none accepted ({left}: the time limit was over before it was" in result.reason
    else:
        assert result.reason.startswith(f"{left} was drafted; the time limit of 3.0 s was over")
    assert f"| {left} |" in (report := Path(result.report or "").read_text())
    assert "set aside: the time limit was over before it was judged" in report


def test_a_run_that_its_time_limit_ended_goes_on_with_more(tmp_path: Path) -> None:
    slow = [True]

    def judged(candidate: Candidate) -> None:
        if candidate.strategy == "right" and slow:
            until_time_is_up()

    wrong = Script("wrong", failure=mismatch(), repaired=False)
    shop = FakeWorkshop((wrong, Script("right")), on_judge=judged)
    first = run(request(tmp_path, "budget.time_s=2.0", "budget.repairs=0"), workshop=shop)
    assert first.out_of_time
    assert first.status == "kept_original"
    go_on = f"Out of time. Go on with: agentkernel resume {first.run} --time 10m"
    assert go_on in answer_sentence(first, None).replace(f"{tmp_path / 'runs'}/", "")
    assert resume(first.run, runs=tmp_path / "runs", workshop=shop) == first
    slow.clear()
    judgements = len(shop.judged)
    seen: list[Event] = []
    end = resume(first.run, seen.append, runs=tmp_path / "runs", workshop=shop, more_s=60.0)
    assert end.status == "verified"
    assert end.candidate is not None
    assert len(shop.judged) == judgements + 1, "what was judged is not judged again"
    assert any(isinstance(item, VerdictReached) and item.reused for item in seen)
    started = next(item for item in seen if isinstance(item, RunStarted))
    assert started.time_limit_s == pytest.approx(first.spent_s + 60.0, abs=2.0)
    with pytest.raises(SettingError, match="ended for another reason"):
        resume(first.run, runs=tmp_path / "runs", workshop=shop, more_s=60.0)


class Endless(ScriptedCoder):
    """Drafts until the time is up."""

    def draft(self, problem: LoadedProblem, request: DraftRequest) -> Draft:
        until_time_is_up()
        return Draft(candidate=None, none=NoTemplate(reason="nobody told the time"))


@pytest.mark.slow
def test_the_time_budget_ends_drafting(tmp_path: Path) -> None:
    shop = FakeWorkshop((Script("a"),))
    shop.coder = Endless(shop.scripts)
    result = run(request(tmp_path, "budget.time_s=2.0"), workshop=shop)
    assert result.reason == "a was not drafted: the time limit was over"


def test_wrong_everywhere_keeps_the_original(tmp_path: Path) -> None:
    shop = FakeWorkshop((Script("a", failure=mismatch(), repaired=False),))
    result = run(request(tmp_path), workshop=shop)
    assert (result.status, result.candidate, result.exit_code) == ("kept_original", None, 3)
    assert "none accepted" in result.reason


def test_no_template_keeps_the_original_with_the_coders_reason(tmp_path: Path) -> None:
    result = run(request(tmp_path), workshop=FakeWorkshop((Script("a", drafted=False),)))
    assert (result.status, result.reason) == ("kept_original", "no template for a")


def test_slower_than_the_faster_baseline_is_never_handed_over(tmp_path: Path) -> None:
    shop = FakeWorkshop((Script("a", speedup=1.4, compiled=1.5),))
    result = run(request(tmp_path), workshop=shop)
    assert (result.status, result.candidate) == ("kept_compiled", None)
    assert result.speedup_vs_eager == pytest.approx(1.4)
    assert "slower than the faster baseline" in result.reason
    assert not list(Path(result.report or "").parent.glob("*_optimized.py"))


@pytest.mark.parametrize(
    ("side", "status"), [("candidate", "kept_original"), ("gpu", "verified"), ("eager", "verified")]
)
def test_a_candidate_that_breaks_while_profiled_is_not_handed_over(
    tmp_path: Path, side: str, status: str
) -> None:
    failed = ProfileFailed(side=side, reason="compile", log="ptxas\nerror: no such register")
    result = run(request(tmp_path), workshop=FakeWorkshop((Script("a", unprofiled=failed),)))
    assert result.status == status
    assert "compile" in result.reason
    assert (result.candidate is not None) == (status == "verified")


def test_a_lost_result_is_written_again(tmp_path: Path) -> None:
    first = run(request(tmp_path), workshop=FakeWorkshop((Script("a", speedup=2.0),)))
    Path(first.report or "").unlink()
    shop = FakeWorkshop((Script("a", speedup=2.0),))
    again = resume("last", runs=tmp_path / "runs", workshop=shop)
    assert again.candidate_sha256 == first.candidate_sha256
    assert Path(first.report or "").is_file()
    assert shop.judged == []


def test_a_kill_between_a_nodes_writes_and_its_checkpoint(tmp_path: Path) -> None:
    interrupted_run(tmp_path, judged_before=1)
    path = next((tmp_path / "runs").iterdir()) / "checkpoint.sqlite"
    newest = "select max(checkpoint_id) from checkpoints"
    with contextlib.closing(sqlite3.connect(path)) as database, database:
        database.execute(f"delete from checkpoints where checkpoint_id = ({newest})")
    seen: list[Event] = []
    shop = FakeWorkshop(
        (Script("a", speedup=1.4, compiled=1.3), Script("b", speedup=1.5, compiled=1.3))
    )
    resume("last", seen.append, runs=tmp_path / "runs", workshop=shop)
    nodes = [item.node for item in seen if item.kind == "node_started"]
    assert nodes[0] == "judge", "it goes on where it was, not from the beginning"
    assert len(shop.judged) == 1


def test_a_run_that_was_moved_is_shown_from_where_it_lies(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = interrupted_run(tmp_path, judged_before=1)
    made = Path(result.candidate or "")
    shutil.copytree(tmp_path / "runs", tmp_path / "moved")
    made.write_text("another text at the old place\n")
    assert cli(["show", "last", "--source", "--runs", str(tmp_path / "moved")]) == 0
    assert "'''a first'''" in capsys.readouterr().out
    assert cli(["show", "last", "--runs", str(tmp_path / "moved")]) == 0
    shown = capsys.readouterr().out
    assert str(tmp_path / "moved") in shown
    assert "agentkernel resume" in shown
