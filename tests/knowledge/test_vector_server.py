import gc
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentkernel.domain.knowledge import Filters, Query
from agentkernel.knowledge import vector_index
from agentkernel.knowledge.base import open_base
from agentkernel.knowledge.code_structure import structure_of_code
from agentkernel.knowledge.store_schema import Removed
from agentkernel.knowledge.vector_index import open_vectors
from tests.knowledge.memory_store import HashEmbedder, MemoryTruth, entry, find, some_entries

# Chroma leaves its sockets to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
EMBEDDER = HashEmbedder()
MODULE = """import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return torch.softmax(x, dim=-1)
"""


@pytest.fixture(autouse=True)
def _sockets_are_closed() -> Iterator[None]:
    yield
    gc.collect()


@pytest.fixture
def truth() -> MemoryTruth:
    return MemoryTruth(some_entries())


def test_a_server_holds_the_same(server: str, truth: MemoryTruth) -> None:
    index = open_vectors(server, EMBEDDER)
    assert find(index, "softmax of rows") == []
    index.catch_up(truth)
    truth.put(entry("pair/softmax", "argmax of columns"))
    truth.put(Removed("fixes/shape"))
    again = open_vectors(server, EMBEDDER)
    assert again.seq == 4
    assert again.catch_up(truth) == 6
    assert find(again, "exponent over sum") == find(again, "argmax of columns")[::-1]
    assert find(again, "matrix", licences=("BSD",)) == ["pair/gemm"]
    assert find(again, "matrix", kinds=("fix",)) == []
    assert find(again, "matrix", without_ids=("pair/gemm",)) == ["pair/softmax"]
    said: list[str] = []
    assert open_vectors(server, HashEmbedder("other"), said.append).seq == 0
    assert len(said) == 1


def test_a_truth_that_begins_again_empties_the_server(server: str, truth: MemoryTruth) -> None:
    index = open_vectors(server, EMBEDDER)
    index.catch_up(truth)
    index.catch_up(MemoryTruth([entry("e/new", "softmax anew")]))
    assert find(index, "softmax of rows") == ["e/new"]


@pytest.mark.slow
def test_another_machine_s_groups_are_seen_after_a_while(
    server: str, truth: MemoryTruth, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = open_vectors(server, EMBEDDER)
    open_vectors(server, EMBEDDER).catch_up(truth)
    assert reader.seq == 0
    monkeypatch.setattr(vector_index, "LOOK_AGAIN_S", 0.0)
    assert find(reader, "shape", kinds=("fix",)) == ["fixes/shape"]
    assert reader.seq == 4


def test_batches_stay_within_what_the_server_takes(
    server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vector_index, "BATCH_ROWS", 50)
    index = open_vectors(server, EMBEDDER)
    index._store._most = 20  # type: ignore[attr-defined]
    several = [entry(f"e/{i}", f"module {i} alpha{i}", f"second beta{i}") for i in range(60)]
    index.catch_up(MemoryTruth([*several, entry("e/long", *[f"part {i}" for i in range(70)])]))
    assert find(index, "part 69", limit=1) == ["e/long"]
    assert find(index, "second beta59", limit=1) == ["e/59"]
    index.catch_up(MemoryTruth([entry("e/long", "short")]))
    assert find(index, "part 69", limit=3) == ["e/long"]


@pytest.mark.slow
def test_the_whole_base_is_built_at_a_server_and_finds_what_a_folder_finds(
    server: str, tmp_path: Path
) -> None:
    questions = [
        Query(text="softmax over long rows"),
        Query(text=MODULE, structure=structure_of_code(MODULE)),
        Query(text="out of resource: shared memory", filters=Filters(kinds=("fix",))),
        Query(text="matrix product", filters=Filters(architecture="hopper", kinds=("note",))),
    ]
    found: list[list[list[str]]] = []
    for chroma in (None, server):
        with open_base(tmp_path / str(chroma is None), chroma=chroma) as base:
            built = base.refresh()
            assert built.vectors == base.truth.last_seq > 100
            found.append([[hit.entry.id for hit in base.search(item)] for item in questions])
    assert found[0] == found[1]
    assert all(found[0])
    assert not (tmp_path / "False" / "vectors").exists()


@pytest.mark.slow
def test_the_command_searches_at_a_server(server: str, tmp_path: Path) -> None:
    place = ("--where", str(tmp_path / "k"), "--chroma", server, "--json")
    for words in (("build",), ("search", "softmax")):
        answer = subprocess.run(
            [sys.executable, "-m", "agentkernel", "knowledge", *words, *place],
            capture_output=True,
            text=True,
            check=True,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        )
    assert "softmax" in answer.stdout
