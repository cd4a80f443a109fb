from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from agentkernel.domain.candidate import Candidate, Draft
from agentkernel.errors import OutputError, RunNotFound
from agentkernel.tools.atomic import make_folder, write_atomic
from agentkernel.tools.problems import LoadedProblem, problem_from_module
from agentkernel.tools.records import Records
from agentkernel.tools.store import (
    SESSION_FILE,
    RunStore,
    alone,
    create_run,
    list_runs,
    open_run,
)
from fakes import VERSIONS, profile, settings, small_problem, verdict

CANDIDATE = Candidate(source="class ModelNew: ...\n", coder="scripted", round=1)


def new_run(tmp_path: Path, loaded: LoadedProblem | None = None) -> RunStore:
    return create_run(
        tmp_path / "runs",
        loaded or small_problem(tmp_path),
        settings(tmp_path / "runs"),
        target="h100-sxm",
        note="a test",
        versions=VERSIONS,
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
    assert again.manifest == store.manifest
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


def test_of_the_runs_of_one_second_the_one_begun_last_is_the_last(tmp_path: Path) -> None:
    """Their names differ by chance alone."""
    names = [f"plus-20260101-000000-{end}" for end in ("00ff", "ff00", "0f0f")]
    for at, name in enumerate(names):
        store = new_run(tmp_path)
        store.close()
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
    found = open_run(tmp_path / "runs", good.id)
    found.close()


def test_a_corrupt_database_is_set_aside(tmp_path: Path) -> None:
    store = new_run(tmp_path)
    store.close()
    (store.folder / "run.sqlite").write_bytes(b"x" * 5000)
    again = open_run(tmp_path / "runs", store.id)
    assert again.repaired == ("run.sqlite",)
    assert again.records.candidates() == ()
    assert (store.folder / "run.sqlite.corrupt").read_bytes() == b"x" * 5000
    again.close()


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
    big = CANDIDATE.model_copy(update={"source": "x" * 100_000})
    with pytest.raises(OutputError, match="No room left on the disk"):
        records.save_draft("big", Draft(candidate=big))
    assert records.verdict("kept") is not None
    assert records.draft("big") is None
    records.close()


FULL_DISK = """
import sys
from pathlib import Path
from agentkernel.errors import OutputError
from agentkernel.tools.atomic import write_atomic

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
    with alone(tmp_path):
        child = subprocess.run(
            [sys.executable, "-c", BUSY, str(tmp_path)], capture_output=True, text=True, check=True
        )
    assert "works on run" in child.stdout
    with alone(tmp_path, 0.0):
        pass


BUSY = """
import sys
from pathlib import Path
from agentkernel.errors import RunBusy
from agentkernel.tools.store import alone
try:
    with alone(Path(sys.argv[1]), 0.2):
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
