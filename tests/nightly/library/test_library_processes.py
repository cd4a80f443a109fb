"""Does the library survive several writers, kills, full disks, damage and older versions?"""

from __future__ import annotations

import contextlib
import signal
import sqlite3
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from agentkernel.domain.errors import LibraryError
from agentkernel.nightly.library import Library, database
from agentkernel.nightly.library.database import TABLES, VERSION_1, VERSION_2, salvage
from tests.nightly.library.library_rows import H200, kernel, key, model, night, region

ROOT = Path(__file__).parents[3]
OLD = Path(__file__).with_name("version_1.sql")
CHILD = f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
from pathlib import Path
from agentkernel.domain.errors import OutputError
from agentkernel.nightly.library import Library
from tests.nightly.library.library_rows import kernel, night, region
library = Library(Path(sys.argv[1]))
print("open", flush=True)
"""


def child(path: Path, code: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", CHILD + code, str(path)],
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def fill(path: Path, count: int) -> None:
    with Library(path) as library:
        for number in range(count):
            library.put(kernel(number))
        library.save_night(night(models=(model(),), regions=tuple(map(region, range(count)))))
        library.save_job("cut/bert", "cut", '{"regions": 3}')


def break_page(path: Path, table: str) -> None:
    """Overwrite the page in the middle of a table's leaves."""
    connection = sqlite3.connect(path)
    connection.execute("pragma wal_checkpoint(truncate)")
    size = connection.execute("pragma page_size").fetchone()[0]
    pages = connection.execute(
        "select pageno from dbstat where name = ? and pagetype = 'leaf'", (table,)
    ).fetchall()
    connection.close()
    with path.open("r+b") as file:
        file.seek((pages[len(pages) // 2][0] - 1) * size)
        file.write(b"\xa5" * size)


@pytest.mark.slow
def test_four_processes_write_at_once_and_one_is_killed(tmp_path: Path) -> None:
    path = tmp_path / "library.sqlite"
    code = "for n in range(FIRST, FIRST + 200): library.put(kernel(n)); print(n, flush=True)"
    workers = [child(path, code.replace("FIRST", str(first))) for first in (0, 200, 400, 600)]
    killed, others = workers[0], workers[1:]
    assert killed.stdout is not None
    for line in killed.stdout:
        if line == "40\n":
            killed.send_signal(signal.SIGKILL)
    killed.communicate(timeout=60)
    for worker in others:
        _, errors = worker.communicate(timeout=100)
        assert (worker.returncode, errors) == (0, "")
    with Library(path, pytest.fail) as library:
        lines = library.lines()
        numbers = [number for number in range(800) if library.find(key(number)) is not None]
    assert numbers[:41] == list(range(41))
    assert numbers[-600:] == list(range(200, 800))
    assert 641 <= len(lines) == len(numbers) < 800


@pytest.mark.slow
def test_processes_that_open_a_new_file_at_once_make_it_once(tmp_path: Path) -> None:
    path = tmp_path / "new" / "library.sqlite"
    workers = [child(path, f"library.put(kernel({number}))") for number in range(3)]
    for worker in workers:
        _, errors = worker.communicate(timeout=60)
        assert (worker.returncode, errors) == (0, "")
    with Library(path, pytest.fail) as library:
        assert len(library.lines()) == 3


@pytest.mark.slow
def test_a_night_that_is_killed_while_saved_is_the_one_before(tmp_path: Path) -> None:
    path = tmp_path / "library.sqlite"
    before = night(regions=(region(7),))
    with Library(path) as library:
        library.save_night(before)
    worker = child(
        path,
        "rows = tuple(map(region, range(300))) * 100\n"
        "print('saving', flush=True)\nlibrary.save_night(night(regions=rows))",
    )
    assert worker.stdout is not None
    assert [next(worker.stdout) for _ in range(2)] == ["open\n", "saving\n"]
    time.sleep(0.15)
    worker.send_signal(signal.SIGKILL)
    worker.communicate(timeout=60)
    with Library(path, pytest.fail) as library:
        assert library.nights() == (before,)


@pytest.mark.slow
def test_a_full_disk_is_one_clear_line_and_loses_nothing(tmp_path: Path) -> None:
    path = tmp_path / "library.sqlite"
    fill(path, 50)
    limit = path.stat().st_size + 2**18
    worker = child(
        path,
        f"""
import resource
resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}))
try:
    for number in range(1000, 3000):
        library.put(kernel(number))
except OutputError as error:
    print(error)
""",
    )
    said, errors = worker.communicate(timeout=60)
    assert (worker.returncode, errors) == (0, "")
    assert said.splitlines()[1].startswith("Cannot write the library")
    assert len(said.splitlines()) == 2
    with Library(path, pytest.fail) as library:
        assert all(library.find(key(number)) is not None for number in range(50))
        library.put(kernel(5000))


@pytest.mark.parametrize("table", ["kernels", "certificates", "night_regions"])
def test_a_damaged_file_is_set_aside_and_the_rest_saved(table: str, tmp_path: Path) -> None:
    path = tmp_path / "library.sqlite"
    fill(path, 60)
    break_page(path, table)
    said: list[str] = []
    with Library(path, said.append) as library:
        found = sum(library.find(key(number)) is not None for number in range(60))
        (saved,) = library.nights()
        assert library.job("cut/bert") == '{"regions": 3}'
        library.put(kernel(99))
    (line,) = said
    assert f"{found} kernels and 1 night were saved" in line
    assert (30 <= found < 60) is (table != "night_regions")
    assert len(saved.models) == 1
    assert (10 <= len(saved.regions) < 60) is (table == "night_regions")
    assert len(list(tmp_path.glob("library-damaged-*.sqlite"))) == 1
    with Library(path, pytest.fail) as library:
        assert len(library.lines()) == found + 1


def test_a_file_without_a_head_is_set_aside(tmp_path: Path) -> None:
    path = tmp_path / "library.sqlite"
    fill(path, 5)
    data = path.read_bytes()
    path.write_bytes(b"\0" * 100 + data[100:])
    said: list[str] = []
    with Library(path, said.append) as library:
        assert library.lines() == ()
    assert len(said) == 1
    (aside,) = tmp_path.glob("library-damaged-*.sqlite")
    assert aside.read_bytes()[100:] == data[100:]


def test_a_cut_file_keeps_what_lies_before_the_cut(tmp_path: Path) -> None:
    path = tmp_path / "library.sqlite"
    fill(path, 60)
    data = path.read_bytes()
    path.write_bytes(data[: len(data) * 2 // 3])
    said: list[str] = []
    with Library(path, said.append) as library:
        assert 0 < len(library.lines()) <= 60
    assert len(said) == 1


def test_damage_met_on_the_way_is_one_line_and_mended_by_the_next_opening(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "library.sqlite"
    fill(path, 60)
    break_page(path, "kernels")
    monkeypatch.setattr("agentkernel.storage.sqlite.CHECKED_BYTES", 0)
    with Library(path, pytest.fail) as library, pytest.raises(LibraryError, match="is damaged"):
        library.lines()
    said: list[str] = []
    with Library(path, said.append) as library:
        assert library.lines()
    assert len(said) == 1


def test_damage_while_another_process_uses_it_waits_for_that_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "library.sqlite"
    fill(path, 60)
    monkeypatch.setattr("agentkernel.storage.sqlite.IN_USE_S", 0.1)
    with Library(path):
        break_page(path, "kernels")
        with pytest.raises(LibraryError, match="damaged and in use"):
            Library(path)


def make_old(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.executescript(OLD.read_text())
    connection.close()


def test_a_file_of_version_1_becomes_one_of_today(tmp_path: Path) -> None:
    path = tmp_path / "library.sqlite"
    make_old(path)
    with Library(path, pytest.fail) as library:
        (found,) = library.kernels(withdrawn=False)
        assert library.find(found.key) == found
        (measured,) = library.measurements(found.sha256)
        assert (measured.gpu, measured.time_us, measured.speedup) == (H200, 10.0, 2.0)
        assert [item.withdrawn for item in library.lines()] == [None, "wrong at 3 x 5"]
        (old,) = library.nights("tiny")
        assert (old.id, old.models[0].vs_eager.value) == ("n1", 2.0)
        assert library.job("cut/bert") == '{"regions": 3}'
        library.put(kernel(9))
    connection = sqlite3.connect(path)
    assert connection.execute("pragma user_version").fetchone() == (
        len(database.DATABASE.versions),
    )
    made = sqlite3.connect(tmp_path / "new.sqlite")
    with Library(tmp_path / "new.sqlite"):
        for table in TABLES:
            columns = f"pragma table_info({table})"
            assert connection.execute(columns).fetchall() == made.execute(columns).fetchall()
    connection.close()
    made.close()


def test_a_format_below_zero_is_damage(tmp_path: Path) -> None:
    path = tmp_path / "library.sqlite"
    Library(path).close()
    with contextlib.closing(sqlite3.connect(path)) as database:
        database.execute("pragma user_version = -7")
        database.commit()
    said: list[str] = []
    with Library(path, said.append) as library:
        assert library.count() == 0
    assert "damaged" in said[0]


def test_a_damaged_file_of_version_1_keeps_its_kernels(tmp_path: Path) -> None:
    old, new = tmp_path / "old.sqlite", tmp_path / "new.sqlite"
    make_old(old)
    assert salvage(old, new) == "2 kernels and 1 night were"
    with Library(new, pytest.fail) as library:
        assert [item.withdrawn for item in library.lines()] == [None, "wrong at 3 x 5"]


def test_a_migration_that_fails_leaves_the_older_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "library.sqlite"
    make_old(path)
    broken = (VERSION_1, (*VERSION_2, "insert into nowhere values (1)"))
    with monkeypatch.context() as patch:
        patch.setattr(database, "DATABASE", replace(database.DATABASE, versions=broken))
        with pytest.raises(Exception, match="nowhere"):
            Library(path)
    connection = sqlite3.connect(path)
    assert connection.execute("pragma user_version").fetchone() == (1,)
    connection.close()
    with Library(path, pytest.fail) as library:
        assert len(library.lines()) == 2


def test_a_newer_version_is_one_line_and_untouched(tmp_path: Path) -> None:
    path = tmp_path / "library.sqlite"
    fill(path, 3)
    connection = sqlite3.connect(path)
    newer = len(database.DATABASE.versions) + 1
    connection.execute(f"pragma user_version = {newer}")
    connection.close()
    before = path.read_bytes()
    with pytest.raises(LibraryError, match=f"format {newer}") as caught:
        Library(path)
    assert "\n" not in str(caught.value)
    assert path.read_bytes() == before
    assert not path.with_name("library.sqlite-wal").exists()


def test_the_database_of_another_program_and_a_text_are_left_alone(tmp_path: Path) -> None:
    other = tmp_path / "other.sqlite"
    connection = sqlite3.connect(other)
    connection.executescript("create table kernels (id); pragma user_version = 1")
    connection.close()
    unnumbered = tmp_path / "unnumbered.sqlite"
    connection = sqlite3.connect(unnumbered)
    connection.execute("create table notes (id)")
    connection.close()
    text = tmp_path / "notes.txt"
    text.write_text("mine")
    for path in (other, unnumbered, text):
        before = path.read_bytes()
        with pytest.raises(LibraryError, match="Expected a"):
            Library(path)
        assert path.read_bytes() == before
    assert not list(tmp_path.glob("*damaged*"))
