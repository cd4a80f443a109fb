import contextlib
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from agentkernel.domain.errors import KnowledgeError
from agentkernel.domain.knowledge import Entry
from agentkernel.knowledge.store import open_knowledge_store
from agentkernel.knowledge.store_schema import FILE_NAME

CHILD = """
import sys
from pathlib import Path
from agentkernel.domain.knowledge import Entry
from agentkernel.domain.errors import OutputError
from agentkernel.knowledge.store import open_knowledge_store
from agentkernel.knowledge.store_schema import Progress

def entries(name, count):
    for number in range(count):
        yield Entry(id=f"{name}/{number}", kind="pair", title=f"T {number}", passages=(),
                    answer=f"v{number} " * 200, source="s", licence="MIT")
"""


def child(folder: Path, code: str) -> "subprocess.Popen[str]":
    source = f"{CHILD}\nfolder = Path({str(folder)!r})\n{code}"
    return subprocess.Popen(
        [sys.executable, "-c", source], text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def fill(folder: Path, count: int) -> Path:
    with open_knowledge_store(folder) as truth:
        truth.put(
            Entry(
                id=f"old/{number}",
                kind="pair",
                title=f"Title {number}",
                answer=f"word{number} " * 150,
                passages=(),
                source="s",
                licence="MIT",
            )
            for number in range(count)
        )
    return folder / FILE_NAME


def test_two_processes_put_at_once_and_nothing_is_lost(tmp_path: Path) -> None:
    code = "t = open_knowledge_store(folder)\nfor n in range(4): t.put(entries(NAME + str(n), 150))"
    workers = [child(tmp_path, code.replace("NAME", repr(name))) for name in ("x", "y", "z")]
    for worker in workers:
        _, errors = worker.communicate(timeout=100)
        assert (worker.returncode, errors) == (0, "")
    with open_knowledge_store(tmp_path) as truth:
        assert truth.count() == truth.last_seq == 1800
        assert len(list(truth.entries())) == 1800


def test_a_kill_in_the_middle_keeps_all_batches_before(tmp_path: Path) -> None:
    put = "put(entries('new', 10**6), progress=Progress('book', 10**6))"
    code = f"open_knowledge_store(folder).{put}"
    worker = child(tmp_path, code)
    end = time.monotonic() + 60
    with open_knowledge_store(tmp_path) as truth:
        while truth.count() < 1000 and time.monotonic() < end:
            time.sleep(0.02)
        worker.send_signal(signal.SIGKILL)
        worker.communicate(timeout=30)
    with open_knowledge_store(tmp_path, pytest.fail) as truth:
        count = truth.count()
        assert count >= 1000
        assert count % 500 == 0
        assert truth.progress("book") is None
        assert len(truth.lexical("v7", 9)) > 0
        assert truth.put([]).added == 0


LIMITED = """
import resource
resource.setrlimit(resource.RLIMIT_FSIZE, (MOST, MOST))
t = open_knowledge_store(folder)
before = t.count()
try:
    t.put(entries('new', 10**5))
except OutputError as error:
    assert t.count() >= before
    print(error)
"""


def test_a_full_disk_is_one_clear_line_and_loses_nothing(tmp_path: Path) -> None:
    path = fill(tmp_path, 600)
    limit = path.stat().st_size + 3 * 2**20
    worker = child(tmp_path, LIMITED.replace("MOST", str(limit)))
    said, errors = worker.communicate(timeout=100)
    assert (worker.returncode, errors) == (0, "")
    assert said.startswith("Cannot write the knowledge")
    assert len(said.splitlines()) == 1
    with open_knowledge_store(tmp_path, pytest.fail) as truth:
        assert truth.get("old/0") is not None
        assert truth.get("old/599") is not None
        assert truth.put([]).added == 0


def test_a_full_small_file_system_loses_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "small"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=6m", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("needs the right to mount")
    try:
        fill(folder, 600)
        worker = child(folder, LIMITED.replace("MOST", str(2**40)))
        said, errors = worker.communicate(timeout=100)
        assert (worker.returncode, errors) == (0, "")
        assert said.startswith("Cannot write the knowledge")
        with open_knowledge_store(folder, pytest.fail) as truth:
            assert truth.get("old/0") is not None
            assert truth.get("old/599") is not None
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def test_a_truncated_file_is_set_aside_and_what_can_be_read_saved(tmp_path: Path) -> None:
    path = fill(tmp_path, 2000)
    with open_knowledge_store(tmp_path) as truth:
        identity, last = truth.identity, truth.last_seq
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    said: list[str] = []
    with open_knowledge_store(tmp_path, said.append) as truth:
        count = truth.count()
        assert count > 600
        assert truth.get("old/0") is not None
        assert truth.lexical("word5")[0].id == "old/5"
        assert truth.identity != identity
        assert all(change.seq > last for change in truth.entries())
    (line,) = said
    assert str(count) in line
    (aside,) = tmp_path.glob("knowledge-damaged-*.sqlite")
    assert str(aside) in line
    assert aside.read_bytes() == content[: len(content) // 2]
    with open_knowledge_store(tmp_path, pytest.fail) as truth:
        assert truth.count() == count


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    "damage", ["zeroed middle", "zeroed head", "no database", "tables of another program"]
)
def test_any_damage_is_mended_on_opening(tmp_path: Path, damage: str) -> None:
    path = fill(tmp_path, 1000)
    content = bytearray(path.read_bytes())
    if damage == "zeroed middle":
        content[len(content) // 2 : len(content) // 2 + 40_960] = bytes(40_960)
        path.write_bytes(content)
    elif damage == "zeroed head":
        path.write_bytes(bytes(4096) + content[4096:])
    elif damage == "no database":
        path.write_bytes(b"no database" * 1000)
    else:
        path.unlink()
        with sqlite3.connect(path) as file:
            file.execute("create table theirs (x)")
        file.close()
    said: list[str] = []
    with open_knowledge_store(tmp_path, said.append) as truth:
        assert (truth.count() > 800) == damage.startswith("zeroed")
        assert truth.put([]).added == 0
    assert len(said) == 1


def test_damage_met_on_the_way_is_one_line_and_mended_at_the_next_opening(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = fill(tmp_path, 1000)
    monkeypatch.setattr("agentkernel.storage.sqlite.CHECKED_BYTES", 0)
    content = bytearray(path.read_bytes())
    page = content.index(b'{"id":"old/300"') // 4096 * 4096
    content[page : page + 4096] = bytes(4096)
    path.write_bytes(content)
    with (
        open_knowledge_store(tmp_path, pytest.fail) as truth,
        pytest.raises(KnowledgeError, match="run the command again"),
    ):
        list(truth.entries())
    said: list[str] = []
    with open_knowledge_store(tmp_path, said.append) as truth:
        assert 950 < len(list(truth.entries())) < 1000
    assert len(said) == 1


def test_a_damaged_file_in_use_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = fill(tmp_path, 1000)
    monkeypatch.setattr("agentkernel.storage.sqlite.IN_USE_S", 0.2)
    with open_knowledge_store(tmp_path):
        path.write_bytes(path.read_bytes()[:100_000])
        with pytest.raises(KnowledgeError, match="in use by another process"):
            open_knowledge_store(tmp_path)
    assert path.exists()


def test_a_kill_while_a_damaged_file_is_replaced_loses_nothing(tmp_path: Path) -> None:
    path = fill(tmp_path, 100)
    path.rename(path.with_name(f"{FILE_NAME}.new"))
    path.with_name(f"{FILE_NAME}-wal").write_bytes(b"of the old file")
    with open_knowledge_store(tmp_path, pytest.fail) as truth:
        assert truth.count() == 100
    path.with_name(f"{FILE_NAME}.new").write_bytes(b"half")
    with open_knowledge_store(tmp_path, pytest.fail) as truth:
        assert truth.count() == 100
    assert not path.with_name(f"{FILE_NAME}.new").exists()


@pytest.mark.parametrize("state", ["vectors/vectors-k-0/state.json", "structures/structures.json"])
@pytest.mark.parametrize("loss", ["emptied", "removed"])
def test_a_file_that_is_gone_is_no_new_one(tmp_path: Path, state: str, loss: str) -> None:
    said: list[str] = []
    open_knowledge_store(tmp_path, said.append).close()
    (tmp_path / state).parent.mkdir(parents=True)
    (tmp_path / state).write_text('{"seq": 40}')
    open_knowledge_store(tmp_path, said.append).close()
    assert said == []
    if loss == "emptied":
        (tmp_path / FILE_NAME).write_bytes(b"")
    else:
        (tmp_path / FILE_NAME).unlink()
    with open_knowledge_store(tmp_path, said.append) as truth:
        # Numbers from 1 would pass for changes that the indexes have seen.
        assert truth.last_seq == 40
        assert truth.count() == 0
    open_knowledge_store(tmp_path, said.append).close()
    (line,) = said
    assert "is gone" in line
    assert "knowledge import" in line


@pytest.mark.parametrize("state", ["", "{", '{"seq": null}', "[]"])
def test_an_empty_file_without_a_readable_index_is_a_new_one(tmp_path: Path, state: str) -> None:
    (tmp_path / "structures").mkdir()
    (tmp_path / "structures/structures.json").write_text(state)
    (tmp_path / FILE_NAME).write_bytes(b"")
    said: list[str] = []
    with open_knowledge_store(tmp_path, said.append) as truth:
        assert truth.last_seq == 0
    assert said == []


def test_a_newer_format_is_refused_in_one_line(tmp_path: Path) -> None:
    path = fill(tmp_path, 1)
    with sqlite3.connect(path) as file:
        file.execute("pragma user_version = 99")
    file.close()
    with pytest.raises(KnowledgeError, match="format 99"):
        open_knowledge_store(tmp_path)
    assert path.exists()


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(Exception, match="Cannot write the knowledge"):
        open_knowledge_store(tmp_path / "file" / "below")


def test_no_link_in_the_folder_leads_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "knowledge").mkdir()
    (tmp_path / "knowledge" / FILE_NAME).symlink_to(tmp_path / "other")
    with pytest.raises(Exception, match="it is a symbolic link"):
        open_knowledge_store(tmp_path / "knowledge")
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize(
    "statement",
    ["update bodies set doc = -doc where doc = 3", "pragma user_version = -7"],
)
def test_rows_and_numbers_that_cannot_be_are_mended(tmp_path: Path, statement: str) -> None:
    path = fill(tmp_path, 5)
    with contextlib.closing(sqlite3.connect(path)) as database:
        database.execute(statement)
        database.commit()
    said: list[str] = []
    with open_knowledge_store(tmp_path, said.append) as truth:
        assert len(list(truth.entries())) >= 4
    assert "was damaged" in said[0]
    with open_knowledge_store(tmp_path, pytest.fail) as truth:
        assert truth.last_seq


@pytest.mark.quick(1)
@pytest.mark.parametrize("damage", ["text", "name of a table", "format", "schema format"])
def test_bytes_that_no_encoding_explains_are_mended(tmp_path: Path, damage: str) -> None:
    path = fill(tmp_path, 1000)
    content = bytearray(path.read_bytes())
    at, new = {
        "text": (content.index(b"word300 word300"), b"\xff\xfe"),
        "name of a table": (content.index(b"CREATE TABLE 'words_data'"), b"\xff\xfe"),
        "format": (60, b"\x7f\xff\xff\xff"),
        "schema format": (44, b"\x00\x00\x00\x63"),
    }[damage]
    content[at : at + len(new)] = new
    path.write_bytes(content)
    said: list[str] = []
    with (
        suppress(KnowledgeError),  # met on the way; the next opening fixes it
        open_knowledge_store(tmp_path, said.append) as truth,
    ):
        list(truth.entries())
    with open_knowledge_store(tmp_path, said.append) as truth:
        assert len(list(truth.entries())) >= 999
    assert len(said) == 1
    with open_knowledge_store(tmp_path, pytest.fail) as truth:
        assert truth.count() >= 999
