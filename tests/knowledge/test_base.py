"""A refresh brings in what the package brings, once, whatever else happens to the folder."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from chromadb.errors import InternalError

from agentkernel.domain.errors import OutputError
from agentkernel.knowledge import base as base_module
from agentkernel.knowledge.base import KnowledgeBase, open_base
from agentkernel.knowledge.documents import PACKAGE, all_packaged, packaged_sha256
from agentkernel.knowledge.store import open_knowledge_store
from tests.knowledge.memory_store import entry

PARTS = ("notes/*.md", "fixes/*.md", "kernels/*.py", "*.py", "../domain/knowledge.py")
REFRESH = """
import sys
from pathlib import Path
from agentkernel.knowledge.base import open_base
with open_base(Path(sys.argv[1])) as base:
    print(base.refresh().vectors == base.truth.last_seq)
"""


def refreshing(folder: Path) -> subprocess.Popen[str]:
    words = [sys.executable, "-c", REFRESH, str(folder)]
    return subprocess.Popen(words, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("built")
    with open_base(folder) as base:
        base.refresh()
    return folder


@pytest.fixture
def base(built: Path, tmp_path: Path) -> Iterator[KnowledgeBase]:
    shutil.copytree(built, tmp_path / "base")
    with open_base(tmp_path / "base") as opened:
        yield opened


def test_a_refresh_with_nothing_changed_reads_no_entry_and_writes_nothing(
    base: KnowledgeBase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(base_module, "all_packaged", pytest.fail)
    monkeypatch.setattr(base.truth, "put", pytest.fail)
    done = base.refresh()
    assert done.packaged == (0, 0, base.truth.count())
    assert done.removed == 0


def test_another_text_or_reader_is_read_anew(
    base: KnowledgeBase, monkeypatch: pytest.MonkeyPatch
) -> None:
    hopper = base.truth.get("notes/hopper")
    assert hopper is not None
    entries = [entry for entry in all_packaged() if entry.id != "notes/ada"]
    entries[entries.index(hopper)] = hopper.evolve(title="Another")
    monkeypatch.setattr(base_module, "all_packaged", lambda: tuple(entries))
    assert base.refresh().packaged.changed == 0
    monkeypatch.setattr(base_module, "packaged_sha256", lambda: "another")
    done = base.refresh()
    assert (done.packaged.added, done.packaged.changed, done.removed) == (0, 1, 1)
    monkeypatch.setattr(base_module, "all_packaged", pytest.fail)
    assert base.refresh().packaged == (0, 0, len(entries))


def test_what_others_changed_of_the_package_comes_back(base: KnowledgeBase) -> None:
    before = base.truth.get("notes/hopper")
    base.truth.put([entry("notes/hopper"), entry("notes/zzz"), entry("other/1")])
    done = base.refresh()
    assert (done.packaged.changed, done.removed) == (1, 1)
    assert base.truth.get("notes/hopper") == before
    assert base.truth.get("notes/zzz") is None
    assert base.truth.get("other/1") is not None


@pytest.mark.parametrize("pattern", PARTS)
def test_every_file_that_has_a_part_changes_the_hash(
    pattern: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = tmp_path / "knowledge"
    for each in PARTS:
        file = next(PACKAGE.glob(each))
        to = tmp_path / file.resolve().relative_to(PACKAGE.parent)
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, to)
    monkeypatch.setattr("agentkernel.knowledge.documents.PACKAGE", copy)
    before = packaged_sha256()
    assert packaged_sha256() == before
    file = next(copy.glob(pattern))
    file.write_bytes(file.read_bytes() + b"\n")
    assert packaged_sha256() != before


@pytest.mark.slow
def test_two_processes_refresh_at_once(tmp_path: Path) -> None:
    both = [refreshing(tmp_path), refreshing(tmp_path)]
    assert [worker.communicate(timeout=100) for worker in both] == [("True\n", "")] * 2
    with open_knowledge_store(tmp_path, pytest.fail) as truth:
        assert truth.count() == truth.last_seq == len(all_packaged())


def test_a_kill_in_a_refresh_costs_nothing(tmp_path: Path) -> None:
    vectors = tmp_path / "vectors"
    worker = refreshing(tmp_path)
    end = time.monotonic() + 60
    while not vectors.is_dir() and time.monotonic() < end:
        time.sleep(0.005)
    time.sleep(0.1)
    worker.send_signal(signal.SIGKILL)
    worker.communicate(timeout=30)
    with open_base(tmp_path, say=pytest.fail) as opened:
        opened.refresh()
        assert opened.truth.count() == len(all_packaged())


def test_a_full_disk_under_the_vectors_is_one_line(
    base: KnowledgeBase, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> int:
        raise InternalError("database or disk\nis full")

    monkeypatch.setattr("agentkernel.knowledge.vector_index.DenseIndex.catch_up", full)
    with pytest.raises(OutputError, match="disk is full") as caught:
        base.refresh()
    assert "\n" not in str(caught.value)
