"""Does a link, a pipe or a folder in a file's place lead no write elsewhere, nor hang one?"""

from __future__ import annotations

import gzip
import json
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from agentkernel.disk import make_own_folder, open_append, open_new, read_regular, read_regular_text
from agentkernel.errors import OutputError, RunNotFound
from agentkernel.knowledge.transfer import export_entries
from agentkernel.tools.atomic import append_line, write_atomic
from agentkernel.tools.certificate import read_sealed
from agentkernel.tools.library import Library
from agentkernel.tools.library.export import export_library
from agentkernel.tools.records import open_records, read_records
from agentkernel.tools.store import list_runs, note_use, uses
from agentkernel.workflows.drive import open_saver
from agentkernel.workflows.session.store import SessionStore

PACKAGE = Path(__file__).parents[1] / "src" / "agentkernel"
OPENERS = re.compile(
    r"""\.write_text\(|\.write_bytes\(|\.touch\(|shutil\.copy\w*\(|sqlite3\.connect\("""
    r"""|(?<!fdopen)[.\s(]open\((?:[^()\n]*, )?"[waxr]\+?[bt]?\+?"(?<!"r")(?<!"rb")(?<!"rt")"""
)
OWN = {
    "cli/checks.py": "a database that is only read",
    "database.py": "copies into a folder that was made a moment ago",
    "disk.py": "the one place",
    "domain/": "nothing",
    "knowledge/structures.py": "the user's own knowledge, under names with a hash",
    "knowledge/train_embedder.py": "the maintainers' own",
    "knowledge/truth_schema.py": "refuse_strange stands before it",
    "knowledge/vector_ledger.py": "the user's own knowledge",
    "tools/compile/resources.py": "a folder that was made a moment ago",
    "tools/judge/sanitize.py": "inside the sandbox",
    "tools/library/salvage.py": "in memory",
    "tools/library/schema.py": "refuse_strange stands before it",
    "tools/lift/child.py": "a folder that was made a moment ago",
    "tools/lift/generate.py": "a folder that was made a moment ago",
    "tools/profile/audit.py": "a folder that was made a moment ago",
    "tools/records.py": "refuse_strange stands before it",
    "tools/sandbox/": "inside the sandbox",
    "tools/signing.py": "the user's own keys",
    "workflows/drive.py": "refuse_strange stands before it",
    "workflows/nights/ray_driver.py": "a folder that was made a moment ago",
    "workflows/session/store.py": "refuse_strange stands before it",
    "workflows/training/folder.py": "a folder that was made a moment ago",
    "workflows/training/gathering.py": "a folder that was made a moment ago",
    "workflows/training/pair_work.py": "a folder that was made a moment ago",
    "workflows/training/turn_ray.py": "a folder that was made a moment ago",
}
"""Files that open files themselves, and where."""


def connect(path: Path) -> None:
    with open_saver(path):
        pass


def session(path: Path) -> None:
    path.rename(path.with_name("session.sqlite"))
    SessionStore(path.parent)


WRITERS: dict[str, Callable[[Path], object]] = {
    "write": lambda path: write_atomic(path, "new"),
    "line": lambda path: append_line(path, "new"),
    "uses": lambda path: note_use(path.rename(path.with_name(".uses")).parent),
    "records": lambda path: open_records(path, pytest.fail),
    "records read": read_records,
    "checkpoint": connect,
    "session": session,
    "knowledge": lambda path: export_entries((), path),
}


@pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS)
@pytest.mark.parametrize("kind", ["link", "dangling", "pipe", "folder"])
def test_nothing_is_written_through_it(
    tmp_path: Path, write: Callable[[Path], object], kind: str
) -> None:
    target, path = tmp_path / "precious", tmp_path / "run" / "file"
    path.parent.mkdir()
    if kind == "link":
        target.write_bytes(b"")
    if kind in ("link", "dangling"):
        path.symlink_to(target)
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.mkdir()
    with pytest.raises(OutputError) as raised:
        write(path)
    assert "\n" not in str(raised.value)
    assert (target.read_bytes() if kind == "link" else target.exists()) in (b"", False)


def test_a_name_that_was_foreseen_leads_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("secrets.token_hex", lambda _: "0")
    target = tmp_path / "precious"
    (tmp_path / f".file.{os.getpid()}.0.tmp").symlink_to(target)
    with pytest.raises(OutputError):
        write_atomic(tmp_path / "file", "new")
    assert not target.exists()


def test_a_regular_file_is_written_and_read(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_atomic(path, "one\r\n")
    append_line(path, "two")
    assert read_regular(path) == b"one\r\ntwo\n"
    assert read_regular_text(path) == "one\ntwo\n"
    with open_append(path) as file:
        file.write(b"three\n")
        file.seek(0)
        assert len(file.readlines()) == 3
    with open_new(tmp_path / "new") as file:
        file.write(b"4")
    with pytest.raises(FileExistsError):
        open_new(path)
    with pytest.raises(OSError, match="more than 3 bytes"):
        read_regular(path, 3)


def test_a_record_of_any_size_is_not_read(tmp_path: Path) -> None:
    with open_new(tmp_path / "certificate.json") as file:
        file.truncate(2**40)
    with pytest.raises(RunNotFound, match="has more than"):
        read_sealed(tmp_path / "certificate.json")


def test_a_typed_path_may_be_a_link_or_what_a_shell_hands_over(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("text")
    (tmp_path / "link").symlink_to("file")
    assert read_regular(tmp_path / "link", typed=True) == b"text"
    with pytest.raises(OSError, match="symbolic link"):
        read_regular(tmp_path / "link")
    end, begin = os.pipe()
    os.write(begin, b"handed over")
    os.close(begin)
    assert read_regular(Path(f"/dev/fd/{end}"), typed=True) == b"handed over"
    os.close(end)


def test_an_export_follows_no_link(tmp_path: Path) -> None:
    (tmp_path / "precious").mkdir()
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "kernels").symlink_to(tmp_path / "precious")
    index = {"format": 1, "exported": "", "kernels": []}
    (tmp_path / "out" / "index.json").write_text(json.dumps(index))
    library = Library(tmp_path / "library.sqlite", pytest.fail)
    with library, pytest.raises(OutputError, match="symbolic link"):
        export_library(library, tmp_path / "out")
    assert not list((tmp_path / "precious").iterdir())


def test_a_packed_export_is_read_again(tmp_path: Path) -> None:
    assert export_entries((), tmp_path / "out.gz") == 0
    assert b"agentkernel_knowledge" in gzip.decompress((tmp_path / "out.gz").read_bytes())


def test_a_folder_of_candidates_that_is_a_link_takes_none(tmp_path: Path) -> None:
    make_own_folder(tmp_path / "new")
    make_own_folder(tmp_path / "new")
    (tmp_path / "link").symlink_to("new")
    with pytest.raises(OSError, match="symbolic link"):
        make_own_folder(tmp_path / "link")


@pytest.mark.parametrize("name", ["run.json", "result.json", ".uses"])
def test_a_pipe_in_a_run_hangs_no_list(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "plus-20261121-100000-abcd"
    folder.mkdir()
    os.mkfifo(folder / name)
    assert [item.status for item in list_runs(tmp_path)] == ["corrupt"]
    assert uses(folder).last == 0


def test_a_pipe_is_no_certificate(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "certificate.json")
    with pytest.raises(RunNotFound, match="named pipe"):
        read_sealed(tmp_path / "certificate.json")


def test_a_pipe_is_no_library(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "library.sqlite")
    with pytest.raises(OutputError, match="named pipe"):
        Library(tmp_path / "library.sqlite", pytest.fail)


def test_a_library_of_the_users_may_be_a_link(tmp_path: Path) -> None:
    Library(tmp_path / "real.sqlite", pytest.fail).close()
    (tmp_path / "library.sqlite").symlink_to("real.sqlite")
    with Library(tmp_path / "library.sqlite", pytest.fail) as library:
        assert library.lines() == ()


def test_nothing_else_opens_a_file_to_write() -> None:
    found = {}
    for path in PACKAGE.rglob("*.py"):
        name = path.relative_to(PACKAGE).as_posix()
        calls = OPENERS.findall(path.read_text(encoding="utf-8"))
        if calls and not any(name.startswith(own) for own in OWN):
            found[name] = calls
    assert found == {}
