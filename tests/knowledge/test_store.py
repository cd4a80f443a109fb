import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from agentkernel.errors import OutputError
from agentkernel.knowledge.index import KnowledgeIndex
from agentkernel.knowledge.store import open_index
from agentkernel.knowledge.truth import default_folder

OPEN = (
    "import sys; from pathlib import Path; from agentkernel.knowledge.store import open_index;"
    "index = open_index(Path(sys.argv[1]), say=print);"
    "found = index.search('softmax of rows', architecture='90', patterns=('softmax',),"
    " dtype='float32'); print(found[0].id)"
)
WATCHED = """
import sys
seen = []
def watch(event, details):
    if event in ("socket.connect", "socket.getaddrinfo", "socket.sendto", "urllib.Request"):
        seen.append(f"{event} {details[1:]}")
        raise OSError("this test has no network")
sys.addaudithook(watch)
"""


def current(folder: Path) -> Path:
    return folder / str(json.loads((folder / "current.json").read_text())["folder"])


def find(index: KnowledgeIndex) -> str:
    query = "softmax of rows"
    return index.search(query, architecture="90", patterns=("softmax",), dtype="float32")[0].id


def test_a_second_open_does_not_rebuild(tmp_path: Path) -> None:
    said: list[str] = []
    first = open_index(tmp_path, say=said.append)
    before = current(tmp_path)
    second = open_index(tmp_path, say=said.append)
    assert said == []
    assert current(tmp_path) == before
    assert first.ids == second.ids
    assert len(list(tmp_path.glob("index-*"))) == 1


def _truncate(folder: Path) -> None:
    database = current(folder) / "chroma.sqlite3"
    database.write_bytes(database.read_bytes()[:5000])


def _overwrite(folder: Path) -> None:
    (current(folder) / "chroma.sqlite3").write_bytes(b"not a database" * 1000)


def _delete(folder: Path) -> None:
    (current(folder) / "chroma.sqlite3").unlink()


def _garble_pointer(folder: Path) -> None:
    (folder / "current.json").write_text("{")


def _point_nowhere(folder: Path) -> None:
    text = (folder / "current.json").read_text()
    (folder / "current.json").write_text(text.replace("index-", "nowhere-"))


@pytest.mark.parametrize(
    "damage", [_truncate, _overwrite, _delete, _garble_pointer, _point_nowhere]
)
def test_a_damaged_index_is_rebuilt_with_one_line(tmp_path: Path, damage: object) -> None:
    open_index(tmp_path)
    other = tmp_path / "somebody-elses.txt"
    other.write_text("keep me")
    damage(tmp_path)  # type: ignore[operator]
    said: list[str] = []
    index = open_index(tmp_path, say=said.append)
    assert len(said) == 1
    assert "rebuilt" in said[0]
    assert "\n" not in said[0]
    assert find(index) == "kernels/softmax_row"
    assert other.read_text() == "keep me"


def test_other_documents_make_another_index(tmp_path: Path) -> None:
    package = tmp_path / "package"
    (package / "notes").mkdir(parents=True)
    front = "---\ntitle: T\nsource: s\nlicence: l\n---\n"
    (package / "notes" / "hopper.md").write_text(f"{front}One.")
    said: list[str] = []
    folder = tmp_path / "index"
    assert open_index(folder, say=said.append, package=package).ids == ("notes/hopper",)
    (package / "notes" / "ada.md").write_text(f"{front}Two.")
    found = open_index(folder, say=said.append, package=package)
    assert found.ids == ("notes/ada", "notes/hopper")
    assert said == ["Knowledge index was outdated: rebuilt from the packaged files."]


def test_a_removed_document_is_not_found_and_comes_back_with_a_rebuild(tmp_path: Path) -> None:
    index = open_index(tmp_path)
    index.remove("kernels/softmax_row")
    assert find(index) != "kernels/softmax_row"
    assert "kernels/softmax_row" not in open_index(tmp_path).ids
    _truncate(tmp_path)
    assert find(open_index(tmp_path)) == "kernels/softmax_row"


def test_nothing_is_fetched_and_nothing_reported(tmp_path: Path) -> None:
    code = f"{WATCHED}\n{OPEN}\nprint(seen, 'posthog' in sys.modules, 'onnxruntime' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert done.stdout.split("\n")[-2] == "[] False False"


def test_the_network_watch_sees_a_connection() -> None:
    code = f"{WATCHED}\nimport socket\ntry: socket.create_connection(('127.0.0.1', 9))\n"
    code += "except OSError: pass\nprint(len(seen) > 0)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "True"


def test_processes_that_open_at_once_share_one_index(tmp_path: Path) -> None:
    running = [
        subprocess.Popen(
            [sys.executable, "-c", OPEN, str(tmp_path)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(3)
    ]
    answers = [process.communicate(timeout=120) for process in running]
    assert [process.returncode for process in running] == [0, 0, 0], answers
    assert [answer[0].strip() for answer in answers] == ["kernels/softmax_row"] * 3
    assert len(list(tmp_path.glob("index-*"))) == 1


def test_a_folder_that_cannot_be_made_gets_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="Cannot keep the knowledge index") as caught:
        open_index(tmp_path / "file" / "below")
    assert "\n" not in str(caught.value)


def test_the_default_folder_follows_xdg(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert default_folder() == tmp_path / "agentkernel" / "knowledge"
    monkeypatch.delenv("XDG_DATA_HOME")
    assert str(default_folder()).startswith(os.path.expanduser("~"))
