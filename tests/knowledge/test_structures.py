import errno
from pathlib import Path

import numpy as np
import pytest

from agentkernel.domain.errors import DiskFailure, OutputError
from agentkernel.domain.knowledge import Filters, Structure
from agentkernel.knowledge import structure_index
from agentkernel.knowledge.embedding import facts_of
from agentkernel.knowledge.store_schema import Removed
from agentkernel.knowledge.structure_index import StructureIndex
from tests.knowledge.memory_store import MemoryTruth, entry, op_vector, similarity

FILES = ("structures.json", "*[0-9].npy", "*.ends.npy", "*.groups.npy", "*.jsonl")


def ask(*ops: str) -> Structure:
    return Structure(ops=ops)


def opened(folder: Path, version: str = "1") -> StructureIndex:
    return StructureIndex(folder, op_vector, similarity, version)


def found(index: StructureIndex, *ops: str, limit: int = 10) -> list[str]:
    return [alike.entry_id for alike in index.search(ask(*ops), limit)]


@pytest.fixture
def truth() -> MemoryTruth:
    return MemoryTruth(
        [
            entry("e/softmax", "s", ops=("sub", "exp", "sum", "div")),
            entry("e/norm", "n", ops=("mean", "sub", "mul", "rsqrt")),
            entry("e/gemm", "g", ops=("matmul", "add")),
            entry("e/gemm2", "g", ops=("matmul", "add")),
            entry("notes/hopper", "no structure"),
        ]
    )


@pytest.fixture
def index(tmp_path: Path, truth: MemoryTruth) -> StructureIndex:
    index = opened(tmp_path)
    index.catch_up(truth)
    return index


def test_what_computes_the_same_comes_first_and_ties_go_by_id(index: StructureIndex) -> None:
    answer = index.search(ask("matmul", "add"), 10)
    assert [(a.entry_id, a.value) for a in answer] == [("e/gemm", 1.0), ("e/gemm2", 1.0)]
    assert found(index, "sub", "exp", "sum") == ["e/softmax", "e/norm"]
    assert found(index, "sub", "exp", "sum", limit=1) == ["e/softmax"]


def test_only_what_filters_let_through(index: StructureIndex, truth: MemoryTruth) -> None:
    def ids(**filters: object) -> list[str]:
        answer = index.search(ask("sub", "exp"), 5, Filters.model_validate(filters))
        return [alike.entry_id for alike in answer]

    assert ids() == ["e/softmax", "e/norm"]
    assert ids(without_ids=("e/softmax",)) == ["e/norm"]
    assert ids(kinds=("fix",)) == []
    truth.put(entry("e/hopper", "h", ops=("sub",), architectures=("hopper",), verified="gpu"))
    index.catch_up(truth)
    assert ids(verified=("gpu",)) == ids(verified=("gpu",), architecture="hopper") == ["e/hopper"]
    assert ids(architecture="ampere") == ["e/softmax", "e/norm"]


def test_nothing_to_search_with(index: StructureIndex, tmp_path: Path) -> None:
    assert found(index) == []
    assert found(index, "add", limit=0) == []
    assert found(index, "conv3d") == []
    assert found(opened(tmp_path / "empty"), "add") == []


def test_changes_are_taken_in_by_their_order(index: StructureIndex, truth: MemoryTruth) -> None:
    truth.put(entry("e/gemm", "g", ops=("exp", "sum")))
    truth.put(entry("e/norm", "now without a structure"))
    truth.put(Removed("e/softmax"))
    steps: list[tuple[int, int]] = []
    assert index.catch_up(truth, lambda at, last: steps.append((at, last))) == 8
    assert steps == [(8, 8)]
    assert len(index) == 2
    assert found(index, "matmul", "add") == ["e/gemm2"]
    assert found(index, "sub", "exp", "sum", "div") == ["e/gemm"]
    assert index.catch_up(truth, lambda at, last: steps.append((at, last))) == 8
    assert len(steps) == 1


def test_it_is_all_there_when_opened_again(tmp_path: Path, index: StructureIndex) -> None:
    again = opened(tmp_path)
    assert again.seq == 5
    assert again.search(ask("sub", "exp"), 5) == index.search(ask("sub", "exp"), 5)


def test_a_reader_sees_what_another_one_wrote(
    tmp_path: Path, index: StructureIndex, truth: MemoryTruth
) -> None:
    reader = opened(tmp_path)
    truth.put(entry("e/pool", "p", ops=("max_pool2d",)))
    index.catch_up(truth)
    assert found(reader, "max_pool2d") == ["e/pool"]
    assert len(list(tmp_path.glob("structures-*.npy"))) == 3


def test_files_are_written_in_batches(
    tmp_path: Path, truth: MemoryTruth, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(structure_index, "BATCH_ENTRIES", 2)
    index = opened(tmp_path)
    steps: list[int] = []
    index.catch_up(truth, lambda at, last: steps.append(at))
    assert steps == [2, 4, 5]
    assert found(index, "matmul") == ["e/gemm", "e/gemm2"]


def test_another_definition_begins_anew(
    tmp_path: Path, index: StructureIndex, truth: MemoryTruth
) -> None:
    other = opened(tmp_path, "2")
    assert other.seq == 0
    assert other.catch_up(truth) == 5
    assert found(other, "matmul") == ["e/gemm", "e/gemm2"]
    assert opened(tmp_path).seq == 0


@pytest.mark.parametrize("pattern", FILES)
@pytest.mark.parametrize("remains", [None, 0, 20])
def test_damaged_files_count_as_missing(
    tmp_path: Path, index: StructureIndex, truth: MemoryTruth, pattern: str, remains: int | None
) -> None:
    path = next(tmp_path.glob(pattern))
    if remains is None:
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:remains])
    again = opened(tmp_path)
    assert again.seq == 0
    assert again.catch_up(truth) == 5
    assert found(opened(tmp_path), "matmul") == ["e/gemm", "e/gemm2"]


def test_a_truth_that_begins_again_empties_the_index(index: StructureIndex) -> None:
    index.catch_up(MemoryTruth([entry("e/new", "x", ops=("exp",))]))
    assert found(index, "exp", "matmul") == ["e/new"]


def test_a_writer_that_does_not_wait(tmp_path: Path, index: StructureIndex) -> None:
    import fcntl

    with (tmp_path / "structures.lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        assert index.catch_up(MemoryTruth(), wait=False) == 5


@pytest.mark.parametrize("few_ops", [0, 1000])
def test_the_short_list_is_the_best_of_brute_force(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, few_ops: int
) -> None:
    monkeypatch.setattr(structure_index, "FEW_OPS", few_ops)
    monkeypatch.setattr(structure_index, "SHORTLIST", 40)
    random = np.random.default_rng(0)
    names = [f"op{i}" for i in range(30)]
    everything = [
        entry(
            f"e/{i:03}",
            "x",
            ops=tuple(random.choice(names, random.integers(1, 9))),
            kind="kernel" if i % 31 == 0 else "pair",
        )
        for i in range(900)
    ]
    index = opened(tmp_path)
    index.catch_up(MemoryTruth(everything))

    def cosine(left: Structure, right: Structure) -> float:
        a, b = op_vector(left), op_vector(right)
        return float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))

    question = ask("op1", "op2", "op2", "op7")
    for filters in (Filters(), Filters(kinds=("kernel",))):
        passing = [e for e in everything if facts_of(e).passes(filters)]
        scored = sorted((-cosine(question, e.structure), e.id) for e in passing if e.structure)
        edge = scored[min(len(scored), 40) - 1][0]
        sure = {name for value, name in scored[:40] if value < min(edge, -1e-6) - 1e-6}
        assert sure <= {a.entry_id for a in index.search(question, 40, filters)}
        assert len(sure) > 5


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="Cannot keep the structures"):
        opened(tmp_path / "file")


@pytest.mark.parametrize("pattern", FILES)
def test_flipped_bits_are_damage_that_is_said_and_mended(
    tmp_path: Path, index: StructureIndex, truth: MemoryTruth, pattern: str
) -> None:
    path = next(tmp_path.glob(pattern))
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    said: list[str] = []
    again = StructureIndex(tmp_path, op_vector, similarity, "1", said.append)
    assert again.seq == 0
    assert found(again, "matmul") == []
    assert len(said) == 1
    assert said[0].startswith("Structure index was damaged (")
    assert again.catch_up(truth) == 5
    whole = StructureIndex(tmp_path, op_vector, similarity, "1", pytest.fail)
    assert found(whole, "matmul") == ["e/gemm", "e/gemm2"]


def test_a_full_disk_is_the_machines_and_leaves_the_index(
    index: StructureIndex, truth: MemoryTruth, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    def full(self: Path, data: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    truth.put(entry("e/new", "x", ops=("exp",)))
    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", full)
        with pytest.raises(DiskFailure, match="No space left"):
            index.catch_up(truth)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    assert index.catch_up(truth) == 6
