"""Does a night on a Ray cluster, also where a worker is killed, give the table of a local one?"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import night_work
from night_work import begun, zoo_of
from test_night_engine import go, statuses, table

from agentkernel.errors import MissingDependency
from agentkernel.workflows.nights.jobs import CutJob, KernelJob
from agentkernel.workflows.nights.on_ray import RayEngine, Share, Slots, connected, slots_of

REGIONS = {"a": "one shared two", "b": "shared nothing(inside)", "c": "three four"}


@contextmanager
def cluster(stand_ins: int) -> Iterator[RayEngine]:
    """One of this machine, whose custom resources stand for GPUs."""
    pytest.importorskip("ray")
    here, more = Path(__file__).parent, Path(__file__).parents[1]
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = ":".join([str(here), str(more), *filter(None, [before])])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        engine = RayEngine("local", stand_ins=stand_ins)
        try:
            yield engine
        finally:
            engine.close()
            if before is None:
                del os.environ["PYTHONPATH"]
            else:
                os.environ["PYTHONPATH"] = before


def jobs() -> tuple[CutJob, KernelJob]:
    return CutJob.model_construct(), KernelJob.model_construct()


@pytest.mark.parametrize(
    ("resources", "workers", "of_cut", "of_kernel"),
    [
        ({"GPU": 4.0, "CPU": 32.0}, 4, Share(1.0, 1.0), Share(1.0, 1.0)),
        ({"gpu_stand_in": 2.0, "CPU": 8.0}, 2, Share(1.0), Share(stand_ins=1.0)),
        ({"CPU": 3.0}, 3, Share(1.0), Share(1.0)),
    ],
)
def test_what_a_job_holds(
    resources: dict[str, float], workers: int, of_cut: Share, of_kernel: Share
) -> None:
    slots = slots_of(resources)
    cut, kernel = jobs()
    assert (slots.jobs, slots.share(cut), slots.share(kernel)) == (workers, of_cut, of_kernel)


def test_a_share_in_rays_words() -> None:
    assert Share(stand_ins=1.0).options()["resources"] == {"gpu_stand_in": 1.0}
    assert Slots(1, 0, 4).share(jobs()[1]).options() == {
        "num_cpus": 1.0,
        "num_gpus": 1.0,
        "resources": {},
    }


def test_without_ray_one_line_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingDependency, match=r"agentkernel\[ray\]"):
        connected("auto")


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2, 4])
def test_on_a_cluster_the_table_is_the_same(tmp_path: Path, workers: int) -> None:
    alone, spread = tmp_path / "alone", tmp_path / "spread"
    alone.mkdir()
    spread.mkdir()
    with cluster(workers) as engine:
        assert engine.workers == workers
        night = go(spread, zoo_of(spread, **REGIONS), engine=engine)
    assert table(night) == table(go(alone, zoo_of(alone, **REGIONS)))
    assert night.lost == ()


@pytest.mark.slow
def test_a_worker_that_is_killed_is_made_up_for_by_ray(tmp_path: Path) -> None:
    os.environ["NIGHT_PAUSE_S"] = "1.0"

    def kill() -> None:
        while not any("draft" in name for name in begun(tmp_path)):
            time.sleep(0.02)
        lines = (tmp_path / "begun.txt").read_text().splitlines()
        os.kill(int(lines[-1].split("\t")[1]), signal.SIGKILL)

    killer = threading.Thread(target=kill, daemon=True)
    try:
        with cluster(2) as engine:
            killer.start()
            night = go(tmp_path, zoo_of(tmp_path, **REGIONS), engine=engine)
    finally:
        del os.environ["NIGHT_PAUSE_S"]
    killer.join()
    assert [item.again for item in night.lost] == [1]
    alone = tmp_path / "alone"
    alone.mkdir()
    assert table(night) == table(go(alone, zoo_of(alone, **REGIONS)))


@pytest.mark.slow
def test_a_job_that_kills_every_worker_is_a_row(tmp_path: Path) -> None:
    with cluster(1) as engine:
        night = go(tmp_path, zoo_of(tmp_path, a="dies good loses"), engine=engine)
    assert statuses(night) == {"dies": "failed", "good": "new", "loses": "new"}
    assert night_work.begun(tmp_path)["cut a"] == 1


@pytest.mark.slow
def test_a_cluster_that_is_not_there_is_one_line() -> None:
    pytest.importorskip("ray")
    with pytest.raises(MissingDependency, match="No Ray cluster answers at 'auto'"):
        connected("auto")
