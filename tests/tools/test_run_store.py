from __future__ import annotations

import contextlib
import os
import re
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, tzinfo
from pathlib import Path

import pytest
import torch
from torch import nn

from agentkernel.domain.candidate import Candidate, Draft
from agentkernel.domain.errors import OutputError, RunNotFound
from agentkernel.domain.settings import Settings
from agentkernel.storage.files import make_folder, write_atomic
from agentkernel.storage.records import Records
from agentkernel.tools.judge.settings import keyed_seed
from agentkernel.tools.problem.loading import LoadedProblem, problem_from_module
from agentkernel.tools.run_store import (
    SESSION_FILE,
    USES_FILE,
    RunStore,
    create_run,
    find_kernel_run,
    find_run,
    is_unfinished,
    list_runs,
    lock_run,
    open_run,
    read_run,
    work_at,
)
from agentkernel.tools.targets import find_target
from tests.workflows.fakes import profile, settings, small_problem, verdict

CANDIDATE = Candidate(source="class ModelNew: ...\n", coder="scripted", round=1)


def new_run(
    tmp_path: Path, loaded: LoadedProblem | None = None, chosen: Settings | None = None
) -> RunStore:
    return create_run(
        loaded or small_problem(tmp_path),
        chosen or settings(tmp_path / "runs"),
        find_target("h100-sxm"),
        judge_sha256="0" * 64,
    )


def test_a_run_is_named_after_problem_time_and_chance(tmp_path: Path) -> None:
    store = new_run(tmp_path)
    assert re.fullmatch(r"plus-\d{8}-\d{6}-[0-9a-f]{4}", store.id)
    assert store.folder == tmp_path / "runs" / store.id
    assert (store.folder / "problem.py").read_text() == store.manifest.problem.source
    store.close()


def test_open_gives_back_manifest_problem_and_records(tmp_path: Path) -> None:
    store = new_run(tmp_path)
    records = store.records
    records.started("judge", "k")
    records.save_verdict("k", verdict(CANDIDATE))
    records.save_profile("p", profile(CANDIDATE))
    records.save_draft("d", Draft(candidate=CANDIDATE))
    records.add_event("x", '{"kind": "x"}')
    store.close()
    (tmp_path / "plus.py").unlink()
    again = open_run(tmp_path / "runs", store.id)
    assert (again.repaired, again.manifest) == ((), store.manifest)
    assert again.records.verdict("k") == verdict(CANDIDATE)
    assert again.records.verdict("other") is None
    assert again.records.profile("p") == profile(CANDIDATE)
    assert again.records.draft("d") == Draft(candidate=CANDIDATE)
    assert again.records.candidates() == (CANDIDATE,)
    assert again.records.events() == ('{"kind": "x"}',)
    assert [item.finished for item in again.records.executions("judge")] == [True]
    model = again.problem().build(seed=0)
    assert torch.equal(model(torch.ones(2)), torch.full((2,), 2.0))
    again.close()


def test_a_live_module_comes_back_with_its_weights(tmp_path: Path) -> None:
    module, x = nn.Linear(3, 2), torch.randn(4, 3)
    store = new_run(tmp_path, problem_from_module(module, (x,)))
    store.close()
    again = open_run(tmp_path / "runs", "linear")
    assert torch.equal(again.problem().build(seed=0)(x), module(x))
    again.close()
    (again.folder / "live.pkl").write_bytes(b"nonsense")
    broken = open_run(tmp_path / "runs", "linear")
    with pytest.raises(RunNotFound, match=r"live\.pkl"):
        broken.problem()
    broken.close()


def test_spent_seconds_add_up_over_sessions(tmp_path: Path) -> None:
    path = tmp_path / "run.sqlite"
    for seconds in (3.0, 4.0):
        records = Records(path)
        records.spend(1.0)
        records.spend(seconds)
        records.close()
    records = Records(path)
    assert records.spent_before() == 7.0
    records.spend(100.0)
    assert records.spent_before() == 7.0
    records.close()


def test_a_run_is_found_by_the_beginning_of_its_name_or_as_the_last(tmp_path: Path) -> None:
    stores = [new_run(tmp_path) for _ in range(2)]
    for store in stores:
        store.close()
    runs = tmp_path / "runs"
    for name in (stores[0].id, str(stores[0].folder)):
        found = open_run(runs, name)
        assert found.id == stores[0].id
        found.close()
    last = open_run(runs, "last")
    assert last.id == list_runs(runs)[-1].id
    last.close()
    with pytest.raises(RunNotFound, match="ambiguous"):
        open_run(runs, "plus")
    with pytest.raises(RunNotFound, match="No run 'minus'"):
        open_run(runs, "minus")
    with pytest.raises(RunNotFound, match="none yet"):
        open_run(tmp_path / "nowhere", "last")


def test_the_last_kernel_is_that_of_the_newest_run_with_one(tmp_path: Path) -> None:
    stores = [new_run(tmp_path) for _ in range(3)]
    for store in stores:
        store.close()
    runs = tmp_path / "runs"
    assert find_kernel_run(runs, "last") == find_run(runs, "last")
    write_atomic(stores[0].result_path, '{"status": "verified", "candidate": "a.py"}')
    write_atomic(stores[1].result_path, '{"status": "improved", "candidate": "b.py"}')
    write_atomic(stores[2].result_path, '{"status": "failed", "candidate": null}')
    assert find_kernel_run(runs, "last").name == stores[1].id
    assert find_kernel_run(runs, stores[2].id).name == stores[2].id


def test_of_the_runs_of_one_second_the_one_begun_last_is_the_last(tmp_path: Path) -> None:
    """Where an older version made them: their names differ by chance alone."""
    names = [f"plus-20260101-000000-{end}" for end in ("00ff", "ff00", "0f0f")]
    for at, name in enumerate(names):
        store = new_run(tmp_path)
        store.close()
        (store.folder / USES_FILE).unlink()
        folder = store.folder.rename(store.folder.with_name(name))
        os.utime(folder / "run.json", ns=(0, 1_000_000 - at))
    assert [Path(item.folder).name for item in list_runs(tmp_path / "runs")] == names[::-1]


@pytest.mark.parametrize("damage", ["{", "{}", None])
def test_a_corrupt_manifest_hides_no_other_run(tmp_path: Path, damage: str | None) -> None:
    good, bad = new_run(tmp_path), new_run(tmp_path)
    good.close()
    bad.close()
    path = bad.folder / "run.json"
    path.unlink() if damage is None else path.write_text(damage)
    with pytest.raises(RunNotFound) as caught:
        open_run(tmp_path / "runs", bad.id)
    assert "\n" not in str(caught.value)
    assert bad.id in str(caught.value)
    status = {item.id: item.status for item in list_runs(tmp_path / "runs")}
    assert status == {good.id: "unfinished", bad.id: "corrupt"}
    open_run(tmp_path / "runs", good.id).close()


def contents(folder: Path) -> dict[str, bytes]:
    """All files that are a reader's not to touch; SQLite may leave its own beside them."""
    return {
        item.name: item.read_bytes()
        for item in folder.iterdir()
        if item.is_file() and not item.name.endswith(("-shm", "-wal"))
    }


def test_each_damage_is_set_aside_and_said_from_then_on(tmp_path: Path) -> None:
    store = new_run(tmp_path)
    store.close()
    for number, damage in enumerate((b"x" * 5000, b"y" * 5000), 1):
        (store.folder / "run.sqlite").write_bytes(damage)
        again = open_run(tmp_path / "runs", store.id)
        assert again.records.candidates() == ()
        again.close()
        asides = sorted(store.folder.glob("run-damaged-*.sqlite"))
        assert (len(asides), asides[-1].read_bytes()) == (number, damage)
        assert again.folder == store.folder
        found = read_run(tmp_path / "runs", store.id)
        assert asides[-1].name in found.repaired[-1]
        found.close()


def run_with_rows(tmp_path: Path) -> RunStore:
    """A run with many candidates, of which each has a page of its own."""
    store = new_run(tmp_path)
    for number in range(40):
        source = f"class ModelNew: ...  # {number}\n" + "#" * 5000
        candidate = CANDIDATE.evolve(source=source)
        store.records.save_draft(f"d{number}", Draft(candidate=candidate))
    store.close()
    return store


def test_rows_of_a_damaged_database_are_saved_by_who_works_on_the_run(tmp_path: Path) -> None:
    store = run_with_rows(tmp_path)
    path = store.folder / "run.sqlite"
    data = bytearray(path.read_bytes())
    at = data.index(b"class ModelNew: ...  # 17")
    data[at + 200] ^= 1
    page = data.index(b"class ModelNew: ...  # 23") // 4096
    data[page * 4096 : page * 4096 + 4096] = b"\xff" * 4096
    path.write_bytes(data)
    before = contents(store.folder)

    seen = read_run(tmp_path / "runs", store.id)
    kept = len(seen.records.candidates()), len(seen.records.drafts())
    assert 70 <= sum(kept) < 80
    assert "agentkernel resume" in seen.repaired[0]
    seen.close()
    assert contents(store.folder) == before, "a reader changes nothing"

    again = open_run(tmp_path / "runs", store.id)
    assert (len(again.records.candidates()), len(again.records.drafts())) == kept
    assert "rows were saved into a new one" in again.repaired[0]
    again.close()


def test_a_renamed_column_is_damage_that_costs_no_other_table(tmp_path: Path) -> None:
    store = run_with_rows(tmp_path)
    with contextlib.closing(sqlite3.connect(store.folder / "run.sqlite")) as database:
        database.execute("alter table events rename column seq to other")
        database.execute("alter table drafts rename column value to other")
    for opened in (read_run, open_run):
        found = opened(tmp_path / "runs", store.id)
        assert len(found.records.candidates()) == 40
        assert found.records.events() == found.records.drafts() == ()
        assert "is without" in found.repaired[0]
        found.close()


@pytest.mark.quick(4)
@pytest.mark.parametrize("suffix", ["", "-wal", "-shm", "-journal"])
@pytest.mark.parametrize("opened", [read_run, open_run])
def test_sqlite_follows_no_link_out_of_a_run(
    tmp_path: Path, opened: Callable[[Path, str], RunStore], suffix: str
) -> None:
    store = run_with_rows(tmp_path)
    other = tmp_path / "other"
    other.write_bytes(b"precious")
    path = store.folder / f"run.sqlite{suffix}"
    path.unlink(missing_ok=True)
    path.symlink_to(other)
    with pytest.raises(OutputError, match="it is a symbolic link"):
        opened(tmp_path / "runs", store.id)
    assert other.read_bytes() == b"precious"


def test_a_changed_letter_of_a_candidate_is_damage(tmp_path: Path) -> None:
    store = run_with_rows(tmp_path)
    path = store.folder / "run.sqlite"
    data = path.read_bytes()
    path.write_bytes(data.replace(b"class ModelNew: ...  # 3", b"class ModelNew: ...  # 8"))
    found = read_run(tmp_path / "runs", store.id)
    assert len(found.records.candidates()) < 40
    assert found.repaired
    found.close()


@pytest.mark.quick(1)
@pytest.mark.parametrize("damage", ["deleted", "emptied", "cut short"])
def test_lost_records_are_said_each_time(tmp_path: Path, damage: str) -> None:
    store = run_with_rows(tmp_path)
    path = store.folder / "run.sqlite"
    if damage == "deleted":
        path.unlink()
    else:
        os.truncate(path, 0 if damage == "emptied" else path.stat().st_size // 2)
    for opened in (read_run, open_run, read_run, open_run):
        found = opened(tmp_path / "runs", store.id)
        assert len(found.repaired) == 1
        assert found.repaired[0].startswith("run.sqlite ")
        found.close()


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts a disk")
def test_a_run_on_a_read_only_disk_is_shown_with_its_journal(tmp_path: Path) -> None:
    store = new_run(tmp_path)
    store.records.save_draft("d", Draft(candidate=CANDIDATE))
    # As after a kill: what was saved is still in the journal.
    disk = tmp_path / "disk"
    shutil.copytree(store.folder, disk / "runs" / store.id)
    store.close()
    assert (disk / "runs" / store.id / "run.sqlite-wal").stat().st_size
    (disk / "runs" / store.id / "run.sqlite-shm").unlink()
    mounts = f"mount --bind {disk} {disk} && mount -o remount,ro,bind {disk}"
    command = f"{mounts} && exec {sys.executable} -m agentkernel show last --runs {disk}/runs"
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", command], capture_output=True, text=True, check=False
    )
    if "mount" in done.stderr or "unshare" in done.stderr:
        pytest.skip(f"no private mounts here: {done.stderr}")
    assert done.returncode == 0, done.stderr
    assert CANDIDATE.id in done.stdout


def test_last_is_the_run_begun_last_though_the_clock_was_set_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Clock(datetime):
        year_now = 2026

        @classmethod
        def now(cls, tz: tzinfo | None = None) -> Clock:
            return cls(cls.year_now, 1, 1, tzinfo=tz)

    monkeypatch.setattr("agentkernel.tools.run_store.datetime", Clock)
    made = []
    for year in (2026, 2024, 2025):
        Clock.year_now = year
        store = new_run(tmp_path)
        store.close()
        os.utime(store.folder / "run.json", ns=(0, year))
        made.append(store.id)
    assert [item.id for item in list_runs(tmp_path / "runs")] == made
    found = read_run(tmp_path / "runs", "last")
    assert found.id == made[-1]
    found.close()


def test_a_name_of_300_letters_has_a_folder(tmp_path: Path) -> None:
    loaded = small_problem(tmp_path)
    problem = loaded.problem.evolve(name="N" * 300)
    store = new_run(tmp_path, replace(loaded, problem=problem))
    assert len(store.id) < 255
    assert open_run(tmp_path / "runs", "n" * 150).id == store.id


def test_stray_folders_are_no_runs(tmp_path: Path) -> None:
    run = new_run(tmp_path)
    run.close()
    for number in range(2000):
        (tmp_path / "runs" / f"stray-{number}").mkdir()
    assert [item.id for item in list_runs(tmp_path / "runs")] == [run.id]


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError) as caught:
        make_folder(tmp_path / "file" / "runs")
    assert "file" in str(caught.value)
    assert "\n" not in str(caught.value)
    with pytest.raises(OutputError):
        write_atomic(Path("/proc/nothing/here.py"), "x")


def test_writing_replaces_whole_files_and_leaves_nothing_beside(tmp_path: Path) -> None:
    path = tmp_path / "a.py"
    write_atomic(path, "one")
    write_atomic(path, b"two")
    assert path.read_text() == "two"
    assert [item.name for item in tmp_path.iterdir()] == ["a.py"]


def test_a_full_database_names_the_cause_and_keeps_what_was_saved(tmp_path: Path) -> None:
    records = Records(tmp_path / "run.sqlite")
    records.save_verdict("kept", verdict(CANDIDATE))
    pages = records._db.execute("pragma page_count").fetchone()[0]
    records._db.execute(f"pragma max_page_count={pages + 1}")
    big = CANDIDATE.evolve(source="x" * 100_000)
    with pytest.raises(OutputError, match="No room left on the disk"):
        records.save_draft("big", Draft(candidate=big))
    assert records.verdict("kept") is not None
    assert records.draft("big") is None
    records.close()


FULL_DISK = """
import sys
from dataclasses import replace
from datetime import datetime, tzinfo
from pathlib import Path
from agentkernel.domain.errors import OutputError
from agentkernel.storage.files import write_atomic

folder = Path(sys.argv[1])
write_atomic(folder / "first.py", "saved")
try:
    write_atomic(folder / "second.py", "x" * 200_000)
except OutputError as error:
    print(error)
print(sorted(item.name for item in folder.iterdir()))
"""


@pytest.mark.skipif(shutil.which("unshare") is None, reason="needs unshare")
def test_a_full_disk_is_one_line_and_leaves_no_half_file(tmp_path: Path) -> None:
    mount = f"mount -t tmpfs -o size=64k none {tmp_path}"
    command = f"{mount} && exec {sys.executable} -c '{FULL_DISK}' {tmp_path}"
    done = subprocess.run(
        ["unshare", "-rm", "sh", "-c", command], capture_output=True, text=True, check=False
    )
    if (done.returncode != 0 and "mount" in done.stderr) or "unshare" in done.stderr:
        pytest.skip("no private mounts here")
    assert done.returncode == 0, done.stderr
    line, listing = done.stdout.splitlines()
    assert line.startswith("No room left on the disk")
    assert listing == "['first.py']"


def test_a_run_is_worked_on_by_one_process(tmp_path: Path) -> None:
    with lock_run(tmp_path):
        child = subprocess.run(
            [sys.executable, "-c", BUSY, str(tmp_path)], capture_output=True, text=True, check=True
        )
    assert "works on run" in child.stdout
    with lock_run(tmp_path, 0.0):
        pass


BUSY = """
import sys
from dataclasses import replace
from datetime import datetime, tzinfo
from pathlib import Path
from agentkernel.domain.errors import RunBusy
from agentkernel.tools.run_store import lock_run
try:
    with lock_run(Path(sys.argv[1]), 0.2):
        print("two at once")
except RunBusy as busy:
    print(busy)
"""


def test_the_folder_of_a_session_is_no_run(tmp_path: Path) -> None:
    run = new_run(tmp_path)
    session = tmp_path / "runs" / "problem-chat-29991231-235959-ffff"
    session.mkdir()
    (session / SESSION_FILE).touch()
    assert [item.id for item in list_runs(tmp_path / "runs")] == [run.id]
    assert open_run(tmp_path / "runs", "last").id == run.id


def test_a_replay_draws_the_seeds_of_the_run_that_it_replays(tmp_path: Path) -> None:
    first, other = new_run(tmp_path), new_run(tmp_path)
    key = first.manifest.judge_key
    assert key is not None
    assert key != other.manifest.judge_key
    then = first.manifest.settings
    models = then.models.evolve(replay=first.manifest.id)
    assert new_run(tmp_path, chosen=then.evolve(models=models)).manifest.judge_key == key
    assert keyed_seed(key, "a" * 64) == keyed_seed(key, "a" * 64) != keyed_seed(key, "b" * 64)
    assert keyed_seed(key, "a" * 64) != keyed_seed(str(other.manifest.judge_key), "a" * 64)


def test_who_works_on_a_run_and_at_what_is_known(tmp_path: Path) -> None:
    store = new_run(tmp_path)
    assert work_at(store) is None
    with lock_run(store.folder):
        assert work_at(store) == (None, "start")
        store.records.spend(0.0)
        store.records.add_event(
            "node_started", '{"kind": "node_started", "node": "judge", "round": 1}'
        )
        assert work_at(store) == (os.getpid(), "judge of round 1")
        store.records.add_event("verdict", '{"kind": "verdict", "seconds": 1.0}')
        assert work_at(store) == (os.getpid(), "judge of round 1")
        store.records.add_event("node_finished", '{"kind": "node_finished", "round": 1}')
        assert work_at(store) == (os.getpid(), "")
    assert work_at(store) is None
    store.close()


@pytest.mark.parametrize(
    ("result", "unfinished"),
    [
        (None, True),
        ('{"status": "kept_original", "interrupted": true}', True),
        ('{"status": "kept_original", "interrupted": false}', False),
        ('{"status": "kept_original"}', False),
        ("[", True),
        ("3", True),
    ],
)
def test_the_runs_own_result_says_whether_it_ended(
    tmp_path: Path, result: str | None, unfinished: bool
) -> None:
    assert not is_unfinished(tmp_path)  # it is no folder of a run that can go on
    (tmp_path / "checkpoint.sqlite").touch()
    if result is not None:
        (tmp_path / "result.json").write_text(result)
    assert is_unfinished(tmp_path) is unfinished
