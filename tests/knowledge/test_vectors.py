import contextlib
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from agentkernel.domain.errors import DiskFailure, OutputError, SettingError
from agentkernel.domain.knowledge import Entry, Filters
from agentkernel.knowledge import vector_index
from agentkernel.knowledge.store_schema import Removed
from agentkernel.knowledge.vector_index import DenseIndex, open_vectors
from tests.knowledge.memory_store import HashEmbedder, MemoryTruth, entry, find, some_entries

EMBEDDER = HashEmbedder()


def some(number: int) -> list[Entry]:
    return [entry(f"e/{i}", f"module {i} alpha{i}", f"second beta{i}") for i in range(number)]


@pytest.fixture
def truth() -> MemoryTruth:
    return MemoryTruth(some_entries())


@pytest.fixture
def index(tmp_path: Path, truth: MemoryTruth) -> DenseIndex:
    index = open_vectors(tmp_path, EMBEDDER)
    index.catch_up(truth)
    return index


def test_the_nearest_passage_stands_for_its_entry(index: DenseIndex) -> None:
    found = index.search(EMBEDDER.embed(["exponent over sum"])[0], 5)
    assert (found[0].entry_id, found[0].passage_no) == ("pair/softmax", 1)
    assert found[0].cosine == pytest.approx(1.0, abs=1e-5)
    assert sorted(near.entry_id for near in found) == ["fixes/shape", "pair/gemm", "pair/softmax"]
    assert [near.cosine for near in found] == sorted((n.cosine for n in found), reverse=True)


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ({"kinds": ("fix",)}, {"fixes/shape"}),
        ({"architecture": "hopper"}, {"fixes/shape", "pair/gemm", "pair/softmax"}),
        ({"architecture": "ampere"}, {"fixes/shape", "pair/softmax"}),
        ({"licences": ("BSD",)}, {"pair/gemm"}),
        ({"verified": ("gpu", "interpreter")}, {"pair/softmax"}),
        ({"without_ids": ("pair/gemm",)}, {"fixes/shape", "pair/softmax"}),
        ({"kinds": ("note",), "licences": ("none",)}, set()),
    ],
)
def test_filters(index: DenseIndex, filters: dict[str, object], expected: set[str]) -> None:
    found = index.search(EMBEDDER.embed(["softmax of rows"])[0], 5, Filters.model_validate(filters))
    assert {near.entry_id for near in found} == expected


@pytest.mark.parametrize(("few", "wide"), [(0, 4), (0, 2048), (1000, 4)])
def test_filters_find_the_same_whichever_way_is_quicker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, few: int, wide: int
) -> None:
    monkeypatch.setattr(vector_index, "FEW_ROWS", few)
    monkeypatch.setattr(vector_index, "WIDE_ROWS", wide)
    index = open_vectors(tmp_path, EMBEDDER)
    fixes = [entry(f"fixes/{i}", f"far alpha{i}", "", "like beta", kind="fix") for i in range(3)]
    gpu = [entry(f"gpu/{i}", f"near gamma{i}", verified="gpu") for i in range(30)]
    index.catch_up(MemoryTruth([*some(60), *fixes, *gpu]))
    assert find(index, "far alpha2", kinds=("fix",))[0] == "fixes/2"
    assert sorted(find(index, "module 1 alpha1", kinds=("fix",))) == [
        f"fixes/{i}" for i in (0, 1, 2)
    ]
    best = find(index, "near gamma7", verified=("gpu",))
    assert best[0] == "gpu/7"
    assert len(best) == 5
    assert find(index, "near gamma7", verified=("gpu",), without_ids=("gpu/7",))[:4] == best[1:]


def test_what_is_compared_one_by_one_follows_the_changes(tmp_path: Path) -> None:
    index = open_vectors(tmp_path, EMBEDDER)
    truth = MemoryTruth([*some(10), entry("fixes/a", "one", "two", "", kind="fix")])
    index.catch_up(truth)
    (near,) = index.search(EMBEDDER.embed(["two"])[0], 5, Filters(kinds=("fix",)))
    assert (near.entry_id, near.passage_no) == ("fixes/a", 1)
    assert near.cosine == pytest.approx(1.0, abs=1e-5)
    reader = open_vectors(tmp_path, EMBEDDER)
    truth.put(entry("fixes/a", "three", kind="fix"))
    truth.put(entry("fixes/b", "four", "five", kind="fix"))
    truth.put(Removed("e/3"))
    index.catch_up(truth)
    for each in (index, reader, open_vectors(tmp_path, EMBEDDER)):
        assert find(each, "three", kinds=("fix",)) == ["fixes/a", "fixes/b"]
        assert find(each, "five", kinds=("fix",))[0] == "fixes/b"
    truth.put(Removed("fixes/a"))
    index.catch_up(truth)
    assert find(reader, "three", kinds=("fix",)) == ["fixes/b"]
    truth.put(entry("fixes/c", "six", kind="fix"))
    index.catch_up(truth)
    assert find(reader, "six", kinds=("fix",)) == ["fixes/c", "fixes/b"]


def test_one_entry_with_many_near_passages_hides_no_other(tmp_path: Path) -> None:
    index = open_vectors(tmp_path, EMBEDDER)
    index.catch_up(
        MemoryTruth(
            [entry("e/many", *[f"same words {i}" for i in range(90)]), entry("e/other", "same")]
        )
    )
    assert find(index, "same words", limit=2) == ["e/many", "e/other"]


def test_nothing_to_search_with(index: DenseIndex, tmp_path: Path) -> None:
    assert find(index, "") == []
    assert find(index, "softmax", limit=0) == []
    assert find(open_vectors(tmp_path / "empty", EMBEDDER), "softmax") == []


def test_changes_are_taken_in_by_their_order(index: DenseIndex, truth: MemoryTruth) -> None:
    truth.put(entry("pair/softmax", "argmax of columns", kind="kernel"))
    truth.put(Removed("pair/gemm"))
    reached: list[tuple[int, int]] = []
    assert index.catch_up(truth, lambda at, last: reached.append((at, last))) == truth.last_seq
    assert reached == [(6, 6)]
    assert find(index, "exponent over sum", kinds=("pair",)) == []
    assert set(find(index, "argmax of columns")) == {"pair/softmax", "fixes/shape"}
    assert find(index, "argmax of columns", kinds=("kernel",)) == ["pair/softmax"]
    assert index.catch_up(truth, lambda at, last: reached.append((at, last))) == 6
    assert len(reached) == 1


def test_batches_stay_within_what_chroma_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vector_index, "BATCH_ROWS", 7)
    index = open_vectors(tmp_path, EMBEDDER)
    steps: list[int] = []
    index.catch_up(
        MemoryTruth([*some(20), entry("e/long", *[f"part {i}" for i in range(30)])]),
        lambda at, last: steps.append(at),
    )
    assert steps == [3, 6, 7, 10, 13, 14, 17, 20, 21]
    assert find(index, "part 29", limit=1) == ["e/long"]


def test_a_truth_that_begins_again_empties_the_index(index: DenseIndex) -> None:
    index.catch_up(MemoryTruth([entry("e/new", "softmax anew")]))
    assert find(index, "softmax of rows") == ["e/new"]


def test_it_is_all_there_when_opened_again(tmp_path: Path, index: DenseIndex) -> None:
    code = (
        "import sys; from pathlib import Path\n"
        "from tests.knowledge.memory_store import HashEmbedder\n"
        "from agentkernel.knowledge.vector_index import open_vectors\n"
        "index = open_vectors(Path(sys.argv[1]), HashEmbedder(), print)\n"
        "print(index.seq, index.search(HashEmbedder().embed(['matrix product'])[0], 1)[0].entry_id)"
    )
    assert in_child(code, tmp_path).communicate()[0].split() == ["4", "pair/gemm"]


def in_child(code: str, folder: Path) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", code, str(folder)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )


FILL = """
import sys
from pathlib import Path
from tests.knowledge.memory_store import HashEmbedder, MemoryTruth, entry
from agentkernel.knowledge import vector_index as vectors
vectors.BATCH_ROWS = 20
entries = [entry(f"e/{i}", f"module {i} alpha{i}", f"second beta{i}") for i in range(400)]
truth = MemoryTruth(entries)
index = vectors.open_vectors(Path(sys.argv[1]), HashEmbedder())
index.catch_up(truth, lambda at, last: print(at, flush=True))
print("done", flush=True)
"""


def test_a_kill_in_the_middle_costs_a_batch_at_most(tmp_path: Path) -> None:
    child = in_child(FILL, tmp_path)
    assert child.stdout is not None
    for _ in range(5):
        reached = int(child.stdout.readline())
    child.send_signal(signal.SIGKILL)
    child.communicate()
    said: list[str] = []
    index = open_vectors(tmp_path, EMBEDDER, said.append)
    assert said == []
    assert index.seq >= reached
    steps: list[int] = []
    index.catch_up(MemoryTruth(some(400)), lambda at, last: steps.append(at))
    assert steps[0] > reached
    for number in (0, 50, 399):
        assert find(index, f"second beta{number}", limit=1) == [f"e/{number}"]


@pytest.mark.slow
def test_two_writers_and_a_reader_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    open_vectors(tmp_path, EMBEDDER)
    writers = [in_child(FILL, tmp_path) for _ in range(2)]
    assert writers[0].stdout is not None
    writers[0].stdout.readline()
    began = time.monotonic()
    reader = open_vectors(tmp_path, EMBEDDER)
    find(reader, "module 1 alpha1")
    assert time.monotonic() - began < 5.0
    # A writer that does not want to wait is told how far the other is.
    assert reader.catch_up(MemoryTruth(some(400)), wait=False) <= 400
    for writer in writers:
        writer.communicate()
    assert [writer.returncode for writer in writers] == [0, 0]
    monkeypatch.setattr(vector_index, "REOPEN_SECONDS", 0.0)
    assert find(reader, "second beta399", limit=1) == ["e/399"]


def test_a_writer_does_not_undo_what_another_one_wrote(tmp_path: Path) -> None:
    """Each holds the state in which it opened the index; rows must not be lost between them."""
    one = open_vectors(tmp_path, EMBEDDER)
    other = open_vectors(tmp_path, EMBEDDER)
    truth = MemoryTruth()
    asked: list[int] = []
    entries = truth.entries

    def watched(after_seq: int, limit: int) -> Iterator[tuple[int, Entry | Removed]]:
        asked.append(after_seq)
        return entries(after_seq, limit)

    truth.entries = watched  # type: ignore[method-assign]
    for number, item in enumerate(some(1200)):
        truth.put(item)
        if number % 300 == 299:
            (one, other)[number // 300 % 2].catch_up(truth)
    assert asked == sorted(asked)
    last = open_vectors(tmp_path, EMBEDDER)
    for index in (last, other):
        for number in (0, 299, 300, 899, 900, 1199):
            assert find(index, f"second beta{number}", limit=1) == [f"e/{number}"]


def _folder(root: Path) -> Path:
    return next(root.glob("vectors-*"))


def _flipped_graph(root: Path) -> None:
    path = max(_folder(root).glob("*/*"), key=lambda item: item.stat().st_size)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def _other_type(root: Path) -> None:
    """Chroma's Rust part panics over it."""
    with contextlib.closing(sqlite3.connect(_folder(root) / "chroma.sqlite3")) as database:
        database.execute("update databases set id = x'00'")
        database.commit()


def _gone(name: str) -> Callable[[Path], None]:
    return lambda root: (_folder(root) / name).unlink()


def _changed(name: str, change: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    def damage(root: Path) -> None:
        path = _folder(root) / name
        path.write_bytes(change(path.read_bytes()))

    return damage


DAMAGES = {
    "flipped graph": _flipped_graph,
    "other type": _other_type,
    "cut database": _changed("chroma.sqlite3", lambda data: data[:5000]),
    "no database": _changed("chroma.sqlite3", lambda _: b"not a database" * 1000),
    "lost database": _gone("chroma.sqlite3"),
    "lost state": _gone("state.json"),
    "garbled state": _changed("state.json", lambda _: b"{"),
    "short rows": _changed("rows.f32", lambda _: b""),
    "other rows": _changed("rows.f32", lambda data: os.urandom(len(data))),
    "garbled facts": _changed("facts.jsonl", lambda _: b"{\n"),
    "one fact less": _changed("facts.jsonl", lambda data: data[: data.rindex(b"\n", 0, -1) + 1]),
    "another fact": _changed("facts.jsonl", lambda data: data.replace(b"BSD", b"MIT")),
}


@pytest.mark.quick(3)
@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_index_is_made_anew_with_one_line(
    tmp_path: Path, index: DenseIndex, truth: MemoryTruth, damage: Callable[[Path], None]
) -> None:
    damage(tmp_path)
    said: list[str] = []
    again = open_vectors(tmp_path, EMBEDDER, said.append)
    assert len(said) == 1
    assert "damaged" in said[0]
    assert again.seq == 0
    again.catch_up(truth)
    assert find(again, "matrix product", limit=1) == ["pair/gemm"]
    assert open_vectors(tmp_path, EMBEDDER, said.append).seq == 4
    assert len(said) == 1


def test_a_state_of_any_size_is_damage_that_costs_no_memory(
    tmp_path: Path, index: DenseIndex, truth: MemoryTruth
) -> None:
    os.truncate(_folder(tmp_path) / "state.json", 2**30)
    said: list[str] = []
    tracemalloc.start()
    again = open_vectors(tmp_path, EMBEDDER, said.append)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 2**27
    assert len(said) == 1
    assert again.catch_up(truth) == 4


def test_a_reader_sees_that_another_process_began_again(
    tmp_path: Path, index: DenseIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vector_index, "REOPEN_SECONDS", 0.0)
    reader = open_vectors(tmp_path, EMBEDDER)
    other = MemoryTruth([entry("pair/other", "another truth, written anew")])
    assert index.catch_up(other) == 1
    assert find(reader, "another truth", kinds=("pair",)) == ["pair/other"]


def test_rows_that_were_copied_are_no_damage(
    tmp_path: Path, index: DenseIndex, truth: MemoryTruth
) -> None:
    for name in ("rows.f32", "facts.jsonl"):
        os.utime(_folder(tmp_path) / name, (0, 0))
    said: list[str] = []
    copied = open_vectors(tmp_path, EMBEDDER, said.append)
    truth.put(entry("pair/new", "written after the copy"))
    assert copied.catch_up(truth) == 5
    assert open_vectors(tmp_path, EMBEDDER, said.append).seq == 5
    assert said == []


def test_another_embedder_makes_its_own_index_beside(tmp_path: Path, index: DenseIndex) -> None:
    said: list[str] = []
    other = open_vectors(tmp_path, HashEmbedder("other", 48), said.append)
    assert said == ["Vector index was made by another embedder or version: a new one is made."]
    assert other.seq == 0
    assert open_vectors(tmp_path, EMBEDDER, said.append).seq == 4
    assert len(said) == 1
    old = _folder(tmp_path)
    for folder in tmp_path.glob("vectors-*"):
        os.utime(folder / "state.json", (0, 0))
        old = folder
    open_vectors(tmp_path, HashEmbedder("third"))
    assert not old.exists()


def test_facts_at_hand(index: DenseIndex) -> None:
    facts = index.facts("pair/gemm")
    assert facts is not None
    assert (facts.kind, facts.licence, facts.architectures) == ("pair", "BSD", ("ada", "hopper"))
    assert index.facts("nobody") is None


def test_the_database_is_checked_only_where_it_changed(
    tmp_path: Path, index: DenseIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Path] = []
    monkeypatch.setattr(vector_index, "database_damage", asked.append)
    open_vectors(tmp_path, EMBEDDER)
    assert asked == []


def test_recall_against_brute_force(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    centres = random.standard_normal((30, 64))
    table = centres[random.integers(0, 30, 1500)] + 0.8 * random.standard_normal((1500, 64))
    table = (table / np.linalg.norm(table, axis=1, keepdims=True)).astype(np.float32)

    class Table:
        fingerprint = "table"

        def embed(self, texts: object) -> np.ndarray:
            return table[[int(text or 0) for text in texts]]  # type: ignore[attr-defined]

    index = open_vectors(tmp_path, Table())
    index.catch_up(MemoryTruth([entry(f"e/{i}", str(i)) for i in range(1500)]))
    shared = 0
    for number in range(50):
        best = np.argsort(-(table @ table[number]))[:10]
        found = index.search(table[number], 10)
        shared += len({f"e/{place}" for place in best} & {near.entry_id for near in found})
    assert shared / 500 >= 0.95


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="Cannot keep the vectors"):
        open_vectors(tmp_path / "file", EMBEDDER)


def test_a_server_that_is_not_there() -> None:
    with pytest.raises(SettingError, match="Cannot use the Chroma server"):
        open_vectors("http://127.0.0.1:9", EMBEDDER)


def test_the_state_is_what_was_reached(tmp_path: Path, index: DenseIndex) -> None:
    assert json.loads((_folder(tmp_path) / "state.json").read_text())["seq"] == index.seq == 4


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "small"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("needs the right to mount")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_full_disk_is_no_damage(small_disk: Path, truth: MemoryTruth) -> None:
    open_vectors(small_disk / "v", EMBEDDER, pytest.fail).catch_up(truth)
    rest = shutil.disk_usage(small_disk).free - 36 * 1024
    (small_disk / "others").write_bytes(bytes(rest))
    with contextlib.suppress(DiskFailure):  # where SQLite has its files open, it can be read
        open_vectors(small_disk / "v", EMBEDDER, pytest.fail)
    with pytest.raises(DiskFailure, match="No space left"):
        open_vectors(small_disk / "new", EMBEDDER, pytest.fail)
    (small_disk / "others").unlink()
    again = open_vectors(small_disk / "v", EMBEDDER, pytest.fail)
    assert find(again, "matrix product", limit=1) == ["pair/gemm"]
