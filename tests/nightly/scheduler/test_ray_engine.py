"""Does a night on a Ray cluster, also where a worker is killed, give the table of a local one?"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from agentkernel.domain.errors import MissingDependency
from agentkernel.nightly.scheduler.engine import GpuLost
from agentkernel.nightly.scheduler.jobs import CutJob, Job, KernelJob, read_job
from agentkernel.nightly.scheduler.ray_engine import (
    ClusterSlots,
    RayEngine,
    ResourceShare,
    slots_of,
)
from agentkernel.nightly.scheduler.scheduler import Scheduler
from agentkernel.runtime.machine import installed_versions
from agentkernel.runtime.ray import (
    Cluster,
    ClusterRefused,
    Connected,
    RayTask,
    TaskEnded,
    do_task,
)
from tests.nightly.scheduler.night_work import begun, zoo_of
from tests.nightly.scheduler.test_engine import go, statuses, table

REGIONS = {"a": "one shared two", "b": "shared nothing(inside)", "c": "three four"}


@contextmanager
def cluster(stand_ins: int, limit_s: float = 600.0) -> Iterator[RayEngine]:
    """One of this machine, whose custom resources stand for GPUs."""
    pytest.importorskip("ray")
    root = Path(__file__).parents[3]
    with pytest.MonkeyPatch.context() as patch:
        before = os.environ.get("PYTHONPATH", "")
        patch.setenv("PYTHONPATH", ":".join(filter(None, [str(root), before])))
        engine = RayEngine("local", stand_ins=stand_ins, limit_s=lambda job: limit_s)
        try:
            yield engine
        finally:
            engine.close()


HAS_TWO = Connected({"gpu_stand_in": 2.0, "CPU": 2.0})


@dataclass
class FakeDriver:
    """Does jobs in a thread of this process; `fate` says what becomes of one instead."""

    fate: Callable[[Job], TaskEnded | ClusterRefused | None] = lambda job: None
    answer: Connected | ClusterRefused = HAS_TWO
    most: int = 1000
    """After so many jobs the cluster is gone."""
    begins: list[RayTask] = field(default_factory=list)

    @contextmanager
    def reach(self, cluster: Cluster, log: Path) -> Iterator[Connection]:
        log.write_text("a warning\nthe head is gone\n")
        here, there = multiprocessing.Pipe()
        thread = threading.Thread(target=self._serve, args=(there,), daemon=True)
        thread.start()
        try:
            yield here
        finally:
            here.close()
            thread.join()

    def _serve(self, line: Connection) -> None:
        line.send(self.answer)
        with line, suppress(EOFError, OSError):
            while len(self.begins) < self.most:
                begin: RayTask = line.recv()
                self.begins.append(begin)
                job = read_job(begin.request)
                answer = self.fate(job)
                if answer is None:
                    answer = TaskEnded(begin.key, begin.work(begin.request))
                line.send(answer)


def driven(fate: Callable[[Job], TaskEnded | ClusterRefused | None]) -> RayEngine:
    return RayEngine("auto", reach=FakeDriver(fate).reach)


def undisturbed(folder: Path) -> tuple[object, object]:
    """The table of a local night over REGIONS."""
    alone = folder / "alone"
    alone.mkdir()
    return table(go(alone, zoo_of(alone, **REGIONS)))


def jobs() -> tuple[CutJob, KernelJob]:
    return CutJob.model_construct(), KernelJob.model_construct()


@pytest.mark.parametrize(
    ("resources", "workers", "of_cut", "of_kernel"),
    [
        ({"GPU": 4.0, "CPU": 32.0}, 4, ResourceShare(1.0, 1.0), ResourceShare(1.0, 1.0)),
        ({"gpu_stand_in": 2.0, "CPU": 8.0}, 2, ResourceShare(1.0), ResourceShare(stand_ins=1.0)),
        ({"CPU": 3.0}, 3, ResourceShare(1.0), ResourceShare(1.0)),
    ],
)
def test_what_a_job_holds(
    resources: dict[str, float], workers: int, of_cut: ResourceShare, of_kernel: ResourceShare
) -> None:
    slots = slots_of(resources)
    cut, kernel = jobs()
    assert (slots.jobs, slots.share(cut), slots.share(kernel)) == (workers, of_cut, of_kernel)


def test_a_share_in_rays_words() -> None:
    assert ResourceShare(stand_ins=1.0).options()["resources"] == {"gpu_stand_in": 1.0}
    assert ClusterSlots(1, 0, 4).share(jobs()[1]).options() == {
        "num_cpus": 1.0,
        "num_gpus": 1.0,
        "resources": {},
    }


def test_without_ray_one_line_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingDependency, match=r"pip install '.\[ray\]'"):
        RayEngine("auto")


@pytest.mark.parametrize(
    ("why", "line"),
    [
        ("Could not find any running Ray instance", "No Ray cluster answers at 'auto': Could not"),
        ("Version mismatch: Ray 2.60 and 2.50.", "cannot be used from here: Version mismatch"),
    ],
)
def test_a_cluster_that_refuses_is_one_line(why: str, line: str) -> None:
    with pytest.raises(MissingDependency, match=line):
        RayEngine("auto", reach=FakeDriver(answer=ClusterRefused(why)).reach)


def test_a_night_by_a_driver_has_the_table_of_a_local_one(tmp_path: Path) -> None:
    spread = tmp_path / "spread"
    spread.mkdir()
    driver = FakeDriver()
    engine = RayEngine("auto", reach=driver.reach)
    night = go(spread, zoo_of(spread, **REGIONS), engine=engine)
    assert table(night) == undisturbed(tmp_path)
    assert {begin.options["num_cpus"] for begin in driver.begins} == {0.0, 1.0}


def lost_once(
    ended: Callable[[str], TaskEnded | ClusterRefused],
) -> Callable[[Job], TaskEnded | ClusterRefused | None]:
    """The first draft is lost, as `ended` of its key says."""
    seen: set[str] = set()

    def fate(job: Job) -> TaskEnded | ClusterRefused | None:
        if not isinstance(job, KernelJob) or seen:
            return None
        seen.add(job.key)
        return ended(job.key)

    return fate


@pytest.mark.parametrize(
    ("ended", "why"),
    [
        (lambda key: TaskEnded(key, lost="NodeDied"), "its worker or its node was lost (NodeD"),
        (lambda key: TaskEnded(key, error=GpuLost("ECC error")), "the GPU was lost: ECC error"),
    ],
)
def test_what_is_lost_is_done_again_and_said(
    tmp_path: Path, ended: Callable[[str], TaskEnded], why: str
) -> None:
    engine = driven(lost_once(ended))
    night = go(tmp_path, zoo_of(tmp_path, a="one two"), engine=engine)
    assert statuses(night) == {"one": "new", "two": "new"}
    (lost,) = night.lost
    assert lost.again == 1
    assert lost.why.startswith(why)


def test_a_job_that_hung_is_not_tried_again(tmp_path: Path) -> None:
    fate = lost_once(lambda key: TaskEnded(key, lost="WorkerCrashedError", hung=True))
    engine = RayEngine("auto", reach=FakeDriver(fate).reach, limit_s=lambda job: 9.0)
    night = go(tmp_path, zoo_of(tmp_path, a="one two"), engine=engine)
    assert sorted(statuses(night).values()) == ["failed", "new"]
    (reason,) = [row.reason for row in night.regions if row.status == "failed"]
    assert reason == "ended after 9 s without an answer"
    assert night.lost == ()


def test_with_the_head_gone_the_same_call_goes_on(tmp_path: Path) -> None:
    zoo = zoo_of(tmp_path, a="one two three")
    engine = RayEngine("auto", reach=FakeDriver(most=2).reach)
    with pytest.raises(MissingDependency, match="not answer any more: the head is gone"):
        go(tmp_path, zoo, engine=engine)
    night = go(tmp_path, zoo, engine=RayEngine("auto", reach=FakeDriver().reach))
    assert set(statuses(night).values()) == {"new"}
    assert begun(tmp_path)["cut a"] == 1


def test_where_no_node_is_left_no_row_is_failed(tmp_path: Path) -> None:
    """All that runs is lost at once then; given out again it would be lost to the last row."""
    zoo = zoo_of(tmp_path, a="one two three")
    fate = lost_once(lambda key: ClusterRefused("LocalRayletDiedError: the raylet died"))
    with pytest.raises(MissingDependency, match="not answer any more: LocalRaylet"):
        go(tmp_path, zoo, engine=driven(fate))
    night = go(tmp_path, zoo, engine=RayEngine("auto", reach=FakeDriver().reach))
    assert set(statuses(night).values()) == {"new"}


def test_what_a_worker_raises_ends_the_night(tmp_path: Path) -> None:
    fate = lost_once(lambda key: TaskEnded(key, error=MissingDependency("no torch here")))
    with pytest.raises(MissingDependency, match="no torch here"):
        go(tmp_path, zoo_of(tmp_path, a="one"), engine=driven(fate))


def test_a_node_with_other_versions_does_no_job() -> None:
    other = installed_versions().evolve(triton="0.1")
    with pytest.raises(MissingDependency, match=r"has triton \S+; expected 0.1"):
        do_task(RayTask("key", "name", str, "{}", {}, 1.0), other)


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2, 4])
def test_on_a_cluster_the_table_is_the_same(tmp_path: Path, workers: int) -> None:
    spread = tmp_path / "spread"
    spread.mkdir()
    with cluster(workers) as engine:
        assert engine.workers == workers
        night = go(spread, zoo_of(spread, **REGIONS), engine=engine)
    assert table(night) == undisturbed(tmp_path)
    assert night.lost == ()


@pytest.mark.slow
def test_a_worker_that_is_killed_is_made_up_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NIGHT_PAUSE_S", "1.0")

    def kill() -> None:
        while not any("draft" in name for name in begun(tmp_path)):
            time.sleep(0.02)
        lines = (tmp_path / "begun.txt").read_text().splitlines()
        os.kill(int(lines[-1].split("\t")[1]), signal.SIGKILL)

    killer = threading.Thread(target=kill, daemon=True)
    with cluster(2) as engine:
        killer.start()
        night = go(tmp_path, zoo_of(tmp_path, **REGIONS), engine=engine)
    killer.join()
    monkeypatch.delenv("NIGHT_PAUSE_S")
    assert [item.again for item in night.lost] == [1]
    assert table(night) == undisturbed(tmp_path)


@pytest.mark.slow
def test_what_kills_every_worker_or_hangs_is_a_row(tmp_path: Path) -> None:
    with cluster(2, limit_s=20.0) as engine:
        night = go(tmp_path, zoo_of(tmp_path, a="dies good loses hangs"), engine=engine)
    assert statuses(night) == {
        "dies": "failed",
        "good": "new",
        "loses": "new",
        "hangs": "failed",
    }
    reasons = {row.name: row.reason for row in night.regions}
    assert "3 times" in reasons["dies"]
    assert reasons["hangs"].startswith("ended after 20 s without an answer")
    again = {"dies": 3, "hangs": 1, "loses": 2, "good": 1}
    counts = begun(tmp_path)
    assert {name.split()[1]: count for name, count in counts.items() if "draft" in name} == again
    assert counts["cut a"] == 1


@pytest.mark.slow
def test_with_the_head_killed_the_same_call_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NIGHT_PAUSE_S", "1.0")
    zoo = zoo_of(tmp_path, **REGIONS)

    def kill() -> None:
        while not any("draft" in name for name in begun(tmp_path)):
            time.sleep(0.02)
        for word in ("gcs_server", "raylet"):
            for pid, text in processes_of(engine.folder).items():
                if Path(text.split(" ")[0]).name == word:
                    os.kill(pid, signal.SIGKILL)

    killer = threading.Thread(target=kill, daemon=True)
    with cluster(2) as engine:
        killer.start()
        with pytest.raises(MissingDependency, match="does not answer any more"):
            go(tmp_path, zoo, engine=engine)
    killer.join()
    monkeypatch.delenv("NIGHT_PAUSE_S")
    night = go(tmp_path, zoo)
    assert "failed" not in statuses(night).values()
    assert all(begun(tmp_path)[f"cut {name}"] == 1 for name in REGIONS)


@pytest.mark.slow
def test_an_interruption_leaves_nothing_of_ray_behind(tmp_path: Path) -> None:
    def interrupt(scheduler: Scheduler) -> None:
        if scheduler.decided:
            raise KeyboardInterrupt

    with cluster(2) as engine:
        folder = engine.folder
        assert processes_of(folder)
        with pytest.raises(KeyboardInterrupt):
            go(tmp_path, zoo_of(tmp_path, **REGIONS), engine=engine, watch=interrupt)
        assert not processes_of(folder)
        assert not folder.exists()


def processes_of(folder: Path) -> dict[int, str]:
    """The command lines, by process, in which Ray's folder stands."""
    found = {}
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            text = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if str(folder) in text:
                found[int(path.parent.name)] = text
    return found


@pytest.mark.slow
def test_a_cluster_that_is_not_there_is_one_line() -> None:
    pytest.importorskip("ray")
    with pytest.raises(MissingDependency, match=r"No Ray cluster answers at '127\.0\.0\.1:9'"):
        RayEngine("127.0.0.1:9", patience_s=5.0)
