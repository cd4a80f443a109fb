"""Measured schedules outlive a run, and nothing that happens to their file breaks one."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from agentkernel.domain.certificate import Versions
from agentkernel.tools.search.store import (
    ScheduleStore,
    StepKey,
    doublings,
    open_schedule_store,
)

STEP = StepKey("softmax", (128, 256))
SETTING = "H200, torch 2, triton 3"


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data" / "schedules.sqlite"


def opened(path: Path, said: list[str], setting: str = SETTING) -> ScheduleStore:
    return ScheduleStore(path, setting, said.append)


def test_the_fastest_of_the_same_sizes_come_first(path: Path, said: list[str]) -> None:
    with opened(path, said) as store:
        store.keep(STEP, {f"s{place}": 10.0 + place for place in range(9)})
        store.keep(StepKey("softmax", (128, 512)), {"near": 1.0, "nearer": 2.0, "last": 3.0})
        store.keep(StepKey("softmax", (4096, 512)), {"far": 0.5})
        store.keep(StepKey("norm", STEP.sizes), {"another": 0.1})
    with opened(path, said) as store:
        assert store.best(STEP) == ("s0", "s1", "s2", "s3", "near", "nearer")
        assert store.best(StepKey("softmax", (8192, 512))) == ("far",)
        assert store.best(StepKey("softmax", (8192,))) == ()
    assert said == []


def test_a_new_time_takes_the_place_of_the_old_one(path: Path, said: list[str]) -> None:
    with opened(path, said) as store:
        store.keep(STEP, {"a": 1.0, "b": 2.0})
        store.keep(STEP, {"a": 3.0})
        assert store.best(STEP) == ("b", "a")


def test_times_hold_for_one_gpu_and_its_versions(path: Path, said: list[str]) -> None:
    with opened(path, said) as store:
        store.keep(STEP, {"a": 1.0})
    with opened(path, said, "H100, torch 2, triton 3") as store:
        assert store.best(STEP) == ()


def test_distance_is_in_doublings() -> None:
    assert doublings((128, 0), (512, 1)) == 2.0


@pytest.mark.parametrize("keep", [0, 2000])
def test_a_damaged_file_is_set_aside(path: Path, said: list[str], keep: int) -> None:
    with opened(path, said) as store:
        store.keep(STEP, {"a": 1.0})
    whole = path.read_bytes()
    path.write_bytes(whole[:keep] + b"\xff" * (len(whole) - keep))
    with opened(path, said) as store:
        assert len(said) == 1
        assert "was damaged" in said[0]
        store.keep(STEP, {"b": 1.0})
        assert "b" in store.best(STEP)
    assert len(said) == 1


def test_damage_that_is_met_on_the_way_is_one_line(path: Path, said: list[str]) -> None:
    with opened(path, said) as store:
        store.keep(STEP, {"a": 1.0})
        other = sqlite3.connect(path)
        other.execute("drop table times")
        other.close()
        assert store.best(STEP) == ()
        store.keep(STEP, {"b": 1.0})
        assert store.best(STEP) == ()
    assert len(said) == 1
    assert said[0].startswith("measured schedules are not kept: ")


def test_a_folder_that_is_a_file_is_one_line(tmp_path: Path, said: list[str]) -> None:
    (tmp_path / "data").write_text("")
    with opened(tmp_path / "data" / "schedules.sqlite", said) as store:
        store.keep(STEP, {"a": 1.0})
        assert store.best(STEP) == ()
    assert len(said) == 1


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere")
def test_a_folder_that_is_read_only_is_one_line(path: Path, said: list[str]) -> None:
    path.parent.mkdir()
    path.parent.chmod(0o500)
    with opened(path, said) as store:
        store.keep(STEP, {"a": 1.0})
        assert store.best(STEP) == ()
    assert len(said) == 1


LIMITED = """
import resource, signal, sys
from pathlib import Path
from agentkernel.tools.search.store import ScheduleStore, StepKey
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
with ScheduleStore(Path(sys.argv[1]), "gpu", print) as store:
    step = StepKey("softmax", (1,))
    store.keep(step, {"small": 1.0})
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, 1 << 16))
    store.keep(step, {"x" * 1000 + str(place): 2.0 for place in range(200)})
    print(len(store.best(step)))
"""


def test_a_full_disk_is_one_line_and_keeps_what_was_there(path: Path, said: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, str(path)], capture_output=True, text=True, check=True
    )
    line, left = done.stdout.splitlines()
    assert line.startswith("measured schedules are not kept: ")
    assert left == "0"
    with opened(path, said, "gpu") as store:
        assert store.best(StepKey("softmax", (1,))) == ("small",)
    assert said == []


WRITER = """
import sys
from pathlib import Path
from agentkernel.tools.search.store import ScheduleStore, StepKey
with ScheduleStore(Path(sys.argv[1]), "gpu", print) as store:
    for place in range(50):
        store.keep(StepKey("softmax", (int(sys.argv[2]), place)), {"a": 1.0, "b": 2.0})
"""


def test_processes_write_side_by_side(path: Path, said: list[str]) -> None:
    running = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path), str(number)], stdout=subprocess.PIPE
        )
        for number in range(3)
    ]
    assert [item.communicate()[0] for item in running] == [b"", b"", b""]
    with opened(path, said, "gpu") as store:
        every = [StepKey("softmax", (n, place)) for n in range(3) for place in range(50)]
        assert all(store.best(step)[:2] == ("a", "b") for step in every)
    assert said == []


def test_the_users_own_file_is_in_the_data_folder(
    tmp_path: Path, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    versions = Versions(agentkernel="1", python="3", torch="2", triton="3", platform="")
    with open_schedule_store("H200", versions, said.append) or pytest.fail("no store") as store:
        store.keep(STEP, {"a": 1.0})
    assert (tmp_path / "agentkernel" / "schedules.sqlite").is_file()
    other = versions.model_copy(update={"triton": "4"})
    with open_schedule_store("H200", other, said.append) or pytest.fail("no store") as store:
        assert store.best(STEP) == ()
