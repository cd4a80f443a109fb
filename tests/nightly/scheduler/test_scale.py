"""Does a job of a night cost what it changes, and not the size of the zoo?"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import night as scale
import pytest
import recorded

from agentkernel.cli.nightly.zoo import NightlyScreen
from agentkernel.domain.nightly import NightlyRun
from agentkernel.domain.region import KernelKey
from agentkernel.nightly.library import Library
from agentkernel.nightly.run import NightOptions, run_night
from agentkernel.nightly.scheduler.engine import JobSource, Work
from agentkernel.nightly.scheduler.scheduler import Scheduler
from agentkernel.storage.configuration import load_settings

OWN = tuple(
    f"/agentkernel/{place}"
    for place in ("nightly/run.py", "nightly/scheduler/", "nightly/regions/", "cli/nightly/zoo.py")
)
"""The code whose steps are counted; what a certificate takes would hide them."""
BLOCKS = 2
"""Ten regions a model."""


class Inline:
    """One job at a time, in this process."""

    workers = 2

    def run(self, jobs: JobSource, work: Work) -> None:
        while (job := jobs.take()) is not None:
            jobs.done(job, work(job))


class CountedLibrary(Library):
    """Counts what a night asks of it."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.asked: Counter[str] = Counter()

    def has(self, key: KernelKey) -> bool:
        self.asked["has"] += 1
        return super().has(key)

    def job(self, key: str) -> str | None:
        self.asked["job"] += 1
        return super().job(key)


def go(
    folder: Path, library: Library, models: int, watch: Callable[[Scheduler], None] | None = None
) -> NightlyRun:
    """A night, watched as `agentkernel batch --json` watches it where nobody else does."""
    zoo = recorded.zoo_of(models, BLOCKS, 0.5, folder)
    wanted = NightOptions(
        zoo=zoo,
        parts=recorded.parts_of(zoo),
        target="h200",
        settings=load_settings(None, (), {"runs": str(folder / "runs")}),
        gpu=recorded.GPU,
        versions=recorded.VERSIONS,
        locks=folder / "locks",
        budget_s=scale.BUDGET_S,
    )
    shown = NightlyScreen(as_json=True).watch
    return run_night(wanted, library, Inline(), recorded.work, scale.ranking(0.0), watch or shown)


def calls_a_job(folder: Path, models: int) -> float:
    """Function calls that a night's own code makes, for each of its jobs."""
    folder.mkdir()
    calls = Counter[str]()

    def count(frame: FrameType, event: str, argument: object) -> None:
        if any(folder in frame.f_code.co_filename for folder in OWN):
            calls[event] += 1

    with Library(folder / "library.sqlite") as library:
        go(folder, library, 1)  # what is made once
        sys.setprofile(count)
        try:
            night = go(folder, library, models)
        finally:
            sys.setprofile(None)
    return (calls["call"] + calls["c_call"]) / (2 * models + len(night.regions))


@pytest.mark.slow
def test_a_job_takes_as_many_steps_in_a_larger_zoo(tmp_path: Path) -> None:
    small, large = (calls_a_job(tmp_path / str(models), models) for models in (8, 32))
    assert 0 < large < 1.1 * small


def test_the_screen_says_each_thing_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Library(tmp_path / "library.sqlite") as library:
        night = go(tmp_path, library, 3)
    said = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    kinds = Counter(item["kind"] for item in said)
    assert kinds == {"night": 1, "cut": 3, "region": len(night.regions), "model": 3}
    assert len({(item["kind"], item["what"]) for item in said}) == len(said)


def test_a_night_is_killed_and_finished_and_the_next_one_uses_it(tmp_path: Path) -> None:
    class Killed(Exception):
        pass

    def kill(scheduler: Scheduler) -> None:
        if len(scheduler.decided) == 30:
            raise Killed

    library = CountedLibrary(tmp_path / "library.sqlite")
    with library:
        with pytest.raises(Killed):
            go(tmp_path, library, 10, kill)
        night = go(tmp_path, library, 10)
        drafts = len(library.jobs("kernel"))
        assert drafts == len(night.regions)
        library.asked.clear()
        second = go(tmp_path, library, 10)
    found = {row.signature for row in night.regions if row.sha256 is not None}
    assert {row.signature for row in second.regions if row.status == "reused"} == found
    assert [row.swapped for row in second.models] == [row.swapped for row in night.models]
    assert library.asked["has"] == len(second.regions), "each region is looked up once"


@pytest.mark.slow
def test_two_hundred_models_of_forty_regions_by_the_script() -> None:
    words = [sys.executable, str(scale.__file__), "--models", "200"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=550, check=True)
    assert done.stdout.count("\n") == 3
