"""Links, pipes and folders in a file's place lead no write elsewhere and hang none."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import json
import os
import re
import sqlite3
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from agentkernel.chat.store import SessionStore
from agentkernel.cli.app import run
from agentkernel.cli.chat.sessions import sessions
from agentkernel.domain.errors import KnowledgeError, OutputError, ProblemError, RunNotFound
from agentkernel.knowledge.transfer import export_entries, import_entries
from agentkernel.knowledge.vector_index import open_vectors
from agentkernel.nightly.library import Library
from agentkernel.nightly.library.maintenance import export_library
from agentkernel.nightly.page.comparison import compare_nights
from agentkernel.nightly.page.files import NightFile
from agentkernel.nightly.zoo.loader import parse_reference
from agentkernel.storage.files import (
    append_line,
    make_own_folder,
    open_append,
    open_new,
    read_regular,
    read_regular_text,
    write_atomic,
)
from agentkernel.storage.records import Records, open_records, read_records
from agentkernel.storage.source_text import read_source
from agentkernel.tools.certificate.record import read_certificate_file
from agentkernel.tools.own_files import is_certificate, read_live, sha256_of
from agentkernel.tools.problem.packages import source_bytes
from agentkernel.tools.run_store import list_runs, note_use, uses
from agentkernel.workflows.run import open_saver
from tests.knowledge.memory_store import HashEmbedder, MemoryTruth, entry
from tests.nightly.library.library_rows import night

PACKAGE = Path(__file__).parents[2] / "src" / "agentkernel"
OPENERS = re.compile(
    r"""\.write_text\(|\.write_bytes\(|\.touch\(|shutil\.copy\w*\(|sqlite3\.connect\("""
    r"""|(?<!fdopen)[.\s(]open\((?:[^()\n]*, )?"[waxr]\+?[bt]?\+?"(?<!"r")(?<!"rb")(?<!"rt")"""
)
OWN = {
    "cli/doctor.py": "a database that is only read",
    "storage/sqlite.py": "copies into a folder that was made a moment ago",
    "storage/files.py": "the one place",
    "domain/": "nothing",
    "knowledge/structure_index.py": "the user's own knowledge, under names with a hash",
    "knowledge/vector_ledger.py": "the user's own knowledge",
    "tools/compile/occupancy.py": "a folder that was made a moment ago",
    "tools/judge/compute_sanitizer.py": "inside the sandbox",
    "storage/records.py": "refuse_strange stands before it",
    "tools/sandbox/": "inside the sandbox",
    "tools/certificate/signing.py": "the user's own keys",
    "workflows/run.py": "refuse_strange stands before it",
    "runtime/pool.py": "a file of the kernel, below /proc",
    "runtime/ray.py": "a folder that was made a moment ago",
    "chat/store.py": "refuse_strange stands before it",
    "training/folder.py": "a folder that was made a moment ago",
    "training/data/sources.py": "a folder that was made a moment ago",
    "training/data/pair_worker.py": "a folder that was made a moment ago",
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
        read_certificate_file(tmp_path / "certificate.json")


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


def test_an_export_waits_for_no_pipe(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    os.mkfifo(tmp_path / "out" / "kernels")
    index = {"format": 1, "exported": "", "kernels": []}
    (tmp_path / "out" / "index.json").write_text(json.dumps(index))
    library = Library(tmp_path / "library.sqlite", pytest.fail)
    with library, pytest.raises(OutputError):
        export_library(library, tmp_path / "out")


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
        read_certificate_file(tmp_path / "certificate.json")


def test_a_pipe_is_no_library(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "library.sqlite")
    with pytest.raises(OutputError, match="named pipe"):
        Library(tmp_path / "library.sqlite", pytest.fail)


def test_a_library_of_the_users_may_be_a_link(tmp_path: Path) -> None:
    Library(tmp_path / "real.sqlite", pytest.fail).close()
    (tmp_path / "library.sqlite").symlink_to("real.sqlite")
    with Library(tmp_path / "library.sqlite", pytest.fail) as library:
        assert library.lines() == ()


def test_a_loop_of_links_hides_no_run(tmp_path: Path) -> None:
    (tmp_path / "plus-20261121-100000-abcd").mkdir()
    (tmp_path / "loop").symlink_to("loop")
    assert [item.id for item in list_runs(tmp_path)] == ["plus-20261121-100000-abcd"]


def test_uses_of_any_size_are_not_read(tmp_path: Path) -> None:
    (tmp_path / ".uses").touch()
    os.truncate(tmp_path / ".uses", 2**40)
    assert uses(tmp_path).last == 0


def test_what_is_no_file_is_no_session(tmp_path: Path) -> None:
    (tmp_path / "plus-chat").mkdir()
    os.mkfifo(tmp_path / "plus-chat" / "session.sqlite")
    assert sessions(tmp_path) == ()


def test_a_page_follows_no_link(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = night()
    record = NightFile(night=made, comparison=compare_nights(None, made))
    (tmp_path / "night.json").write_text(record.model_dump_json())
    (tmp_path / "precious").write_text("precious")
    (tmp_path / "night.html").symlink_to("precious")
    assert run(["report", str(tmp_path)]) == 2
    assert "symbolic link" in capsys.readouterr().err
    assert (tmp_path / "precious").read_text() == "precious"


def test_an_import_reads_no_device_and_waits_for_no_pipe(tmp_path: Path) -> None:
    (tmp_path / "zeros.jsonl").symlink_to("/dev/zero")
    os.mkfifo(tmp_path / "pipe.jsonl")
    for name in ("zeros.jsonl", "pipe.jsonl"):
        with pytest.raises(KnowledgeError):
            import_entries(lambda _: pytest.fail("it is read"), tmp_path / name)


def test_a_pickle_of_any_size_is_hashed_and_not_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(path: Path, most: int | None = None) -> bytes:
        assert path.name != "live.pkl"
        return read_regular(path, most)

    monkeypatch.setattr("agentkernel.tools.own_files.read_regular", read)
    (tmp_path / "live.pkl").write_bytes(b"x" * 1000)
    assert sha256_of(tmp_path / "live.pkl") == hashlib.sha256(b"x" * 1000).hexdigest()
    with pytest.raises(RunNotFound, match="not vouched for"):
        read_live(tmp_path / "live.pkl", signed_sha256="0" * 64)


def test_a_source_is_no_pipe(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "file.py")
    with pytest.raises(OSError, match="named pipe"):
        read_source(tmp_path / "file.py")
    with pytest.raises(ProblemError, match="named pipe"):
        source_bytes(tmp_path / "file.py")


def test_a_loop_is_no_file_of_a_zoo(tmp_path: Path) -> None:
    (tmp_path / "models.py").symlink_to("models.py")
    with pytest.raises(ProblemError, match="No such file"):
        parse_reference("models.py:Mlp", tmp_path)


def test_an_index_of_vectors_holds_no_link(tmp_path: Path) -> None:
    open_vectors(tmp_path, HashEmbedder()).catch_up(MemoryTruth([entry("a/b", "row sum")]))
    (rows,) = tmp_path.glob("*/rows.f32")
    rows.rename(tmp_path / "precious")
    rows.symlink_to(tmp_path / "precious")
    with pytest.raises(OutputError, match="symbolic link"):
        open_vectors(tmp_path, HashEmbedder())


def test_an_index_that_is_nested_too_deeply_is_no_export(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "index.json").write_text("[" * 100_000)
    with (
        Library(tmp_path / "library.sqlite", pytest.fail) as library,
        pytest.raises(OutputError, match="holds other files"),
    ):
        export_library(library, tmp_path / "out")
    assert not is_certificate("[" * 100_000)


def test_nothing_else_opens_a_file_to_write() -> None:
    found = {}
    for path in PACKAGE.rglob("*.py"):
        name = path.relative_to(PACKAGE).as_posix()
        calls = OPENERS.findall(path.read_text(encoding="utf-8"))
        if calls and not any(name.startswith(own) for own in OWN):
            found[name] = calls
    assert found == {}


def test_a_text_that_is_no_utf_8_is_damage_of_every_table(tmp_path: Path) -> None:
    path = tmp_path / "run.sqlite"
    Records(path).close()
    with contextlib.closing(sqlite3.connect(path)) as database:
        database.execute("insert into events (kind, value) values ('k', cast(x'ca' as text))")
        database.commit()
    assert "is damaged" in read_records(path).losses()[0]


def test_a_certificate_of_any_depth_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "certificate.json"
    signed = '{"signature": {"key": "", "fingerprint": "", "value": ""}, "a": '
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(1000)  # other tests leave a larger one behind
    try:
        for depth in range(1000, 0, -1):
            path.write_text(signed + "[" * depth + "]" * depth + "}")
            with contextlib.suppress(RunNotFound):
                read_certificate_file(path)
                break
        else:
            pytest.fail("none is read")
    finally:
        sys.setrecursionlimit(limit)
