"""Does a night do every job once, whatever is lost, and go on after a kill with the same table?"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pytest

from agentkernel.domain.base import sha256_text
from agentkernel.domain.errors import MissingDependency, OutputError, RunBusy
from agentkernel.domain.nightly import NightlyRun, RegionRow, Zoo
from agentkernel.nightly import run as nightly_run
from agentkernel.nightly.library import Library
from agentkernel.nightly.run import OPENED, NightMarker, NightOptions, run_night
from agentkernel.nightly.scheduler.engine import Engine, JobSource, LocalEngine, Work
from agentkernel.nightly.scheduler.jobs import Answer, Job, KernelJob, Ranking
from agentkernel.nightly.scheduler.scheduler import ENDED_UNDER_WAY, Scheduler
from agentkernel.storage.configuration import load_settings
from tests.nightly.scheduler import night_work
from tests.nightly.scheduler.night_work import begun, parts_of, zoo_of
from tests.workflows.fakes import VERSIONS

RANKING = Ranking(night_work.merge, night_work.Order, night_work.budget)
KILLED = {"a": "one shared two", "b": "shared nothing(inside)", "c": "three four"}
CHILD = """
import sys
from pathlib import Path
sys.path.insert(0, {root!r})
if __name__ == "__main__":
    from tests.nightly.scheduler import test_engine as own
    own.go(Path(sys.argv[1]), own.zoo_of(Path(sys.argv[1]), **own.KILLED))
"""


def wanted(folder: Path, zoo: Zoo, budget_s: float | None = None) -> NightOptions:
    settings = load_settings(None, (), {"runs": str(folder / "runs")})
    return NightOptions(
        zoo=zoo,
        parts=parts_of(zoo),
        target="h100-sxm",
        settings=settings,
        gpu=None,
        versions=VERSIONS,
        locks=folder / "locks",
        budget_s=budget_s,
    )


def go(
    folder: Path,
    zoo: Zoo,
    *,
    engine: Engine | None = None,
    budget_s: float | None = None,
    watch: Callable[[Scheduler], None] = lambda scheduler: None,
    report: Callable[[NightlyRun], int | None] = lambda night: None,
) -> NightlyRun:
    here = engine or LocalEngine(("cpu",), folder / "locks")
    with Library(folder / "library.sqlite") as library:
        return run_night(
            wanted(folder, zoo, budget_s), library, here, night_work.work, RANKING, watch, report
        )


def by_name(night: NightlyRun) -> dict[str, RegionRow]:
    return {row.name: row for row in night.regions}


def statuses(night: NightlyRun) -> dict[str, str]:
    return {row.name: row.status for row in night.regions}


def table(night: NightlyRun) -> tuple[object, object]:
    """What a reader sees, without ids, moments and seconds."""
    return night.models, tuple(row.evolve(spent_s=0.0) for row in night.regions)


def test_a_night_from_models_to_their_rows(tmp_path: Path) -> None:
    night = go(tmp_path, zoo_of(tmp_path, a="one shared", b="shared nothing(inside)"))
    assert statuses(night) == {
        "one": "new",
        "shared": "new",
        "nothing": "kept",
        "inside": "new",
    }
    assert {row.name: row.swapped for row in night.models} == {"a": 2, "b": 2}
    assert begun(tmp_path)["draft shared " + by_name(night)["shared"].signature[:8]] == 1
    assert night.finished is not None
    assert night.lost == ()
    assert by_name(night)["shared"].spent_s == 1.0
    assert night.gpu_s == pytest.approx(2 * 0.5 + 3 * 1.0 + 2.0 + 2 * 0.25)
    with Library(tmp_path / "library.sqlite") as library:
        assert library.nights("made-up") == (night,)


def test_a_whole_model_is_one_more_region_and_what_it_lacks_is_said(tmp_path: Path) -> None:
    night = go(tmp_path, zoo_of(tmp_path, a="one @all", b="one @nothing", c="one"))
    assert statuses(night) == {"one": "new", "all": "new", "nothing": "kept"}
    assert {row.name: (row.swapped, row.why) for row in night.models} == {
        "a": (2, ""),
        "b": (1, "kept: nothing is faster"),
        "c": (1, "one of its submodules computes the same"),
    }


@pytest.mark.slow
def test_parts_are_left_alone_where_the_parent_found_something(tmp_path: Path) -> None:
    night = go(tmp_path, zoo_of(tmp_path, a="good(inside)"))
    assert statuses(night) == {"good": "new"}


def test_the_next_night_uses_what_is_known(tmp_path: Path) -> None:
    zoo = zoo_of(tmp_path, a="one shared", b="shared nothing")
    first = go(tmp_path, zoo)
    second = go(tmp_path, zoo)
    assert second.id != first.id
    assert statuses(second) == {"one": "reused", "shared": "reused", "nothing": "kept"}
    assert "with the same versions" in by_name(second)["nothing"].reason
    kinds = [name.split()[0] for name in begun(tmp_path).elements()]
    assert (kinds.count("draft"), kinds.count("verify")) == (3, 2)


@pytest.mark.slow
def test_a_kernel_that_fails_to_verify_is_withdrawn_and_replaced(tmp_path: Path) -> None:
    zoo = zoo_of(tmp_path, a="one two")
    first = by_name(go(tmp_path, zoo))
    with Library(tmp_path / "library.sqlite") as library:
        (known,) = library.kernels(signature=first["one"].signature)
        later = {"created": "2030-01-01T00:00:00+00:00"}
        wrong = night_work.kernel(known.key, "# WRONG\n").evolve(**later)
        library.put(wrong)
    night = go(tmp_path, zoo)
    row = by_name(night)["one"]
    assert statuses(night) == {"one": "withdrawn", "two": "reused"}
    assert row.reason.startswith("mismatch; since then: retuned")
    assert (row.parent, row.sha256) == (wrong.sha256, known.sha256)
    assert night.models[0].swapped == 2


@pytest.mark.slow
def test_a_kernel_that_was_edited_in_the_library_is_withdrawn(tmp_path: Path) -> None:
    zoo = zoo_of(tmp_path, a="one")
    signature = by_name(go(tmp_path, zoo))["one"].signature
    with Library(tmp_path / "library.sqlite") as library:
        library._db.execute("update kernels set source = source || '# more'")
        library._db.commit()
    night = go(tmp_path, zoo)
    assert statuses(night) == {"one": "withdrawn"}
    with Library(tmp_path / "library.sqlite") as library:
        assert library.kernels(signature=signature), "nothing is thrown away"
    assert statuses(go(tmp_path, zoo)) == {"one": "reused"}, "and it is said once"


@pytest.mark.slow
def test_other_versions_draft_anew_from_what_was_known(tmp_path: Path) -> None:
    zoo = zoo_of(tmp_path, a="one")
    first = by_name(go(tmp_path, zoo))["one"]
    other = wanted(tmp_path, zoo)
    other = replace(other, versions=VERSIONS.evolve(triton="99.0"))
    with Library(tmp_path / "library.sqlite") as library:
        engine = LocalEngine(("cpu",), tmp_path / "locks")
        night = run_night(other, library, engine, night_work.work, RANKING)
    row = by_name(night)["one"]
    assert (row.status, row.parent) == ("retuned", first.sha256)


def test_a_worker_that_dies_costs_its_job_a_second_try(tmp_path: Path) -> None:
    night = go(tmp_path, zoo_of(tmp_path, a="dies_once good"))
    assert statuses(night) == {"dies_once": "new", "good": "new"}
    assert [(item.job.split()[1], item.again) for item in night.lost] == [("dies_once", 1)]
    assert night.lost[0].why.startswith("its process ended")
    assert night.lost[0].why.endswith("; begun again")


@pytest.mark.slow
def test_a_job_that_kills_every_worker_is_a_row(tmp_path: Path) -> None:
    night = go(tmp_path, zoo_of(tmp_path, a="dies(inside) good"))
    assert statuses(night) == {"dies": "failed", "inside": "new", "good": "new"}
    assert "3 times" in by_name(night)["dies"].reason
    assert [item.again for item in night.lost] == [1, 2]


def test_a_job_that_hangs_is_ended_once(tmp_path: Path) -> None:
    engine = LocalEngine(("cpu",), tmp_path / "locks", limit_s=lambda job: 3.0)
    zoo = zoo_of(tmp_path, a="hangs(inside) good")
    night = go(tmp_path, zoo, engine=engine, budget_s=200.0)
    assert statuses(night) == {"hangs": "failed", "inside": "new", "good": "new"}
    assert by_name(night)["hangs"].reason.startswith("ended after 3 s without an answer, with a")
    assert night.lost == ()
    assert max(begun(tmp_path).values()) == 1


def test_a_bug_in_a_job_is_the_machines_to_tell(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        go(tmp_path, zoo_of(tmp_path, a="bug"))


def test_a_lost_gpu_is_done_without(tmp_path: Path) -> None:
    engine = LocalEngine(("6", "7"), tmp_path / "locks", answers=lambda device: device == "7")
    night = go(tmp_path, zoo_of(tmp_path, a="loses one", b="two"), engine=engine)
    assert set(statuses(night).values()) == {"new"}
    assert [item.why.partition(":")[0] for item in night.lost] == ["the GPU was lost"]


@pytest.mark.slow
def test_without_any_gpu_left_the_same_call_goes_on(tmp_path: Path) -> None:
    zoo = zoo_of(tmp_path, a="loses one")
    engine = LocalEngine(("7",), tmp_path / "locks", answers=lambda device: False)
    with pytest.raises(MissingDependency, match="None of the devices 7"):
        go(tmp_path, zoo, engine=engine)
    night = go(tmp_path, zoo)
    assert statuses(night) == {"loses": "new", "one": "new"}
    assert begun(tmp_path)["cut a"] == 1


@pytest.mark.slow
def test_what_the_machine_lacks_ends_the_night_and_keeps_what_is_done(tmp_path: Path) -> None:
    zoo = zoo_of(tmp_path, a="one lacks")
    with pytest.raises(MissingDependency):
        go(tmp_path, zoo)
    with pytest.raises(MissingDependency):
        go(tmp_path, zoo)
    assert begun(tmp_path)["cut a"] == 1
    assert sum(count for name, count in begun(tmp_path).items() if "draft one" in name) == 1


def test_an_interruption_leaves_a_night_to_go_on_with(tmp_path: Path) -> None:
    zoo = zoo_of(tmp_path, a="one two three")

    def interrupt(scheduler: Scheduler) -> None:
        if len(scheduler.decided) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        go(tmp_path, zoo, watch=interrupt)
    night = go(tmp_path, zoo)
    assert statuses(night) == {"one": "new", "two": "new", "three": "new"}
    assert max(begun(tmp_path).values()) == 1


class Inline:
    """One job at a time, in this process."""

    workers = 1

    def run(self, jobs: JobSource, work: Work) -> None:
        while (job := jobs.take()) is not None:
            jobs.done(job, self.answer(job, work))

    def answer(self, job: Job, work: Work) -> Answer:
        return work(job)


@dataclass
class Interrupted(Inline):
    """In the middle of the first draft, whose run has begun, after `seconds` of it."""

    library: Path
    seconds: float = 0.0
    noted: str = ""
    """The night's note just before."""

    def answer(self, job: Job, work: Work) -> Answer:
        if not isinstance(job, KernelJob):
            return work(job)
        run = Path(job.runs) / "one-20261201-131058-e9ef"
        run.mkdir(parents=True)
        (run / "run.json").touch()
        time.sleep(self.seconds)
        with Library(self.library) as library:
            (self.noted,) = library.jobs(OPENED).values()
        raise KeyboardInterrupt


@pytest.mark.parametrize("killed", [False, True])
def test_the_clock_counts_to_the_interruption(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, killed: bool
) -> None:
    """In the middle of a job: to the second after Ctrl-C, to the last note after a SIGKILL."""
    monkeypatch.setattr(nightly_run, "NOTED_EVERY_S", 0.05)
    zoo, path = zoo_of(tmp_path, a="one two"), tmp_path / "library.sqlite"
    engine = Interrupted(path, 1.0)
    with pytest.raises(KeyboardInterrupt):
        go(tmp_path, zoo, engine=engine)
    with Library(path) as library:
        ((key, text),) = library.jobs(OPENED).items()
        if killed:
            library.save_job(key, OPENED, engine.noted)
    least = 0.5 if killed else 1.0
    assert NightMarker.model_validate_json(engine.noted if killed else text).wall_s >= least
    clocks: list[float] = []
    night = go(
        tmp_path,
        zoo,
        engine=Inline(),
        watch=lambda scheduler: clocks.append(scheduler.wall_s),
    )
    assert clocks[0] >= least
    assert night.wall_s == pytest.approx(clocks[-1], abs=0.5)
    (lost,) = night.lost
    assert lost.job.startswith("draft one")
    assert lost.why == f"{ENDED_UNDER_WAY}; went on from the run folder"


def test_a_night_that_its_machine_ends_keeps_its_clock(tmp_path: Path) -> None:
    def fails(night: NightlyRun) -> int:
        time.sleep(0.5)
        raise OutputError("no room")

    zoo = zoo_of(tmp_path, a="")
    with pytest.raises(OutputError):
        go(tmp_path, zoo, engine=Inline(), report=fails)
    assert go(tmp_path, zoo, engine=Inline()).wall_s >= 0.5


def test_what_is_not_taken_up_again_is_not_said_to_be(tmp_path: Path) -> None:
    zoo = zoo_of(tmp_path, a="one")
    with pytest.raises(KeyboardInterrupt):
        go(tmp_path, zoo, engine=Interrupted(tmp_path / "library.sqlite"), budget_s=60.0)
    with Library(tmp_path / "library.sqlite") as library:
        ((key, text),) = library.jobs(OPENED).items()
        spent = NightMarker.model_validate_json(text).evolve(wall_s=55.0)
        library.save_job(key, OPENED, spent.model_dump_json())
    night = go(tmp_path, zoo, engine=Inline(), budget_s=60.0)
    assert statuses(night) == {"one": "unreached"}
    assert [item.why for item in night.lost] == [ENDED_UNDER_WAY]


@pytest.mark.quick(1)
@pytest.mark.parametrize("change", ["", "source", "certificate", "unsigned", "kept"])
def test_an_answer_that_was_changed_in_the_library_is_done_again(
    tmp_path: Path, change: str
) -> None:
    zoo = zoo_of(tmp_path, a="one two three")

    def interrupt(scheduler: Scheduler) -> None:
        if len(scheduler.decided) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        go(tmp_path, zoo, watch=interrupt)
    with Library(tmp_path / "library.sqlite") as library:
        for key, text in library.jobs("kernel").items():
            library.save_job(key, "kernel", changed(text, change))
    night = go(tmp_path, zoo)
    with Library(tmp_path / "library.sqlite") as library:
        for text in library.jobs("kernel").values():
            assert "evil" not in text
            assert json.loads(text)["kernel"]["certificate"]["signature"]
    assert all(row.sha256 for row in night.regions)
    done = sum(count for name, count in begun(tmp_path).items() if name[:5] in ("draft", "verif"))
    assert done == (3 if change == "" else 5)


def changed(text: str, what: str) -> str:
    """The answer with another kernel, whose hashes fit."""
    tree = json.loads(text)
    kernel = tree["kernel"]
    if what == "unsigned":
        kernel["certificate"]["signature"] = None
    elif what == "source":
        kernel["source"] += "evil = 1\n"
    elif what in ("certificate", "kept"):
        tree["status"] = "kept" if what == "kept" else tree["status"]
        old, evil = kernel["sha256"], kernel["source"] + "evil = 1\n"
        kernel["source"] = kernel["certificate"]["candidate_source"] = evil
        return json.dumps(tree).replace(old, sha256_text(evil))
    return json.dumps(tree)


def test_a_kernel_that_is_changed_after_its_answer_is_not_put_in(tmp_path: Path) -> None:
    zoo = zoo_of(tmp_path, a="one two")

    def change(scheduler: Scheduler) -> None:
        if "a" not in scheduler.rows and len(scheduler.decided) == 2:
            for key, text in scheduler.kernel_store.jobs("kernel").items():  # type: ignore[attr-defined]
                scheduler.kernel_store.save_job(key, "kernel", changed(text, "certificate"))

    assert go(tmp_path, zoo, watch=change).models[0].swapped == 0


def test_a_kernel_is_kept_with_its_night_and_its_live_module(tmp_path: Path) -> None:
    zoo = zoo_of(tmp_path, a="live one")
    night = go(tmp_path, zoo)
    with Library(tmp_path / "library.sqlite") as library:
        lines = {line.sha256: line for line in library.lines()}
        pickles = {row.name: library.live_pickle(lines[row.sha256 or ""]) for row in night.regions}
        assert {item.night for line in lines for item in library.measurements(line)} == {night.id}
    assert pickles["one"] is None, "its run left none"
    assert pickles["live"] is not None
    assert pickles["live"].read_text() == "live"


@pytest.mark.slow
def test_a_night_has_finished_once_it_is_reported(tmp_path: Path) -> None:
    zoo = zoo_of(tmp_path, a="one two")
    first = go(tmp_path, zoo)
    time.sleep(1.1)  # nights are told apart by the second

    def broken(night: NightlyRun) -> int:
        with Library(tmp_path / "library.sqlite") as library:
            assert library.night("last", zoo="made-up") == first
            assert night.id in {item.id for item in library.history("made-up")}
        raise OutputError("no room")

    for _ in range(2):
        with pytest.raises(OutputError):
            go(tmp_path, zoo, report=broken)
        with Library(tmp_path / "library.sqlite") as library:
            assert library.night("last", zoo="made-up") == first
    jobs = begun(tmp_path)
    reported: list[NightlyRun] = []

    def report(night: NightlyRun) -> int:
        reported.append(night)
        return 5

    night = go(tmp_path, zoo, report=report)
    assert reported == [night]
    assert begun(tmp_path) == jobs, "the same night goes on, and nothing of it is done again"
    with Library(tmp_path / "library.sqlite") as library:
        assert [item.id for item in library.nights()] == [first.id, night.id]
        assert library.night("last", zoo="made-up") == night
        assert library.night("last-green", zoo="made-up") == first
    assert go(tmp_path, zoo).id != night.id


def test_the_budget_is_shared_and_what_it_does_not_reach_is_said(tmp_path: Path) -> None:
    budgets: list[float | None] = []

    def watch(scheduler: Scheduler) -> None:
        budgets.extend(
            job.budget_s for job in scheduler.running.values() if isinstance(job, KernelJob)
        )

    night = go(tmp_path, zoo_of(tmp_path, a="one two"), budget_s=200.0, watch=watch)
    assert set(statuses(night).values()) == {"new"}
    assert budgets
    assert all(item is not None and item <= 170.0 for item in budgets)
    tiny = tmp_path / "tiny"
    tiny.mkdir()
    night = go(tiny, zoo_of(tiny, a="one(inside) two"), budget_s=10.0)
    assert statuses(night) == {"one": "unreached", "two": "unreached"}
    assert night.models[0].error is None, "the model is timed all the same"


def test_two_calls_of_one_night_at_a_time_are_one_too_many(tmp_path: Path) -> None:
    zoo = zoo_of(tmp_path, a="one")

    def watch(scheduler: Scheduler) -> None:
        with pytest.raises(RunBusy, match="made-up"):
            go(tmp_path, zoo)

    go(tmp_path, zoo, watch=watch)


@pytest.mark.slow
@pytest.mark.parametrize("lanes", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_killed_twice_the_table_is_that_of_an_undisturbed_night(
    tmp_path: Path, lanes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    script, killed = tmp_path / "child.py", tmp_path / "killed"
    killed.mkdir()
    script.write_text(CHILD.format(root=str(Path(__file__).parents[3])))
    for after in (3, 6):
        child = subprocess.Popen(
            [sys.executable, str(script), str(killed)],
            env={**os.environ, "NIGHT_PAUSE_S": "0.3"},
        )
        wait_until(partial(more_than, killed, after))
        child.send_signal(signal.SIGKILL)
        child.wait()
    engine = LocalEngine(("cpu",), killed / "locks", lanes=lanes)
    night = go(killed, zoo_of(killed, **KILLED), engine=engine)
    again = [name for name, count in begun(killed).items() if count > 1]
    assert len(again) <= 2
    assert {item.job for item in night.lost} >= set(again)
    assert {item.why for item in night.lost} <= {ENDED_UNDER_WAY, f"{ENDED_UNDER_WAY}; begun again"}
    alone = tmp_path / "alone"
    alone.mkdir()
    assert table(night) == table(go(alone, zoo_of(alone, **KILLED)))
    with Library(killed / "library.sqlite") as library:
        assert len(library.nights("made-up")) == 1


def more_than(folder: Path, jobs: int) -> bool:
    return sum(begun(folder).values()) > jobs


def wait_until(true: Callable[[], bool], seconds: float = 240.0) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.02)


SEMAPHORES = """
from multiprocessing import synchronize
from agentkernel.nightly.scheduler import engine

engine._answer = lambda job: 1 / 0
made, plain = [], synchronize.SemLock.__init__
synchronize.SemLock.__init__ = lambda self, *more, **named: (
    made.append(1), plain(self, *more, **named)
)[1]
engine.run_job(None)
from tqdm import tqdm

list(tqdm(range(2), disable=True))
print(len(made))
"""


def test_a_job_leaves_no_semaphore_that_python_would_warn_of() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SEMAPHORES], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "0", done.stderr
