"""Do published and generated pairs come in once each, also over a kill in the middle?"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Queue

import pytest

from agentkernel.cli.knowledge.transfer import import_lock, import_shards
from agentkernel.domain.knowledge import Entry, Filters
from agentkernel.knowledge.kernelbook import LicenceRule, import_pairs
from agentkernel.knowledge.store import KnowledgeStore, open_knowledge_store
from tests.cli.commands import Cli
from tests.knowledge.kernelbook_rows import make_rows, write_json_lines
from tests.training.lent_answerers import lender, lent

__all__ = ["lender", "lent"]
RULE = LicenceRule(None, "MIT")
PLAIN = """
import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x) * 2.0


def get_inputs():
    return [torch.rand(16, 32)]


def get_init_inputs():
    return []
"""


def answer_of(cli: Cli, *words: str) -> dict[str, int]:
    answer: dict[str, int] = cli.json(["knowledge", *words, "--json"])
    return answer


def pairs_of(truth: KnowledgeStore) -> list[str]:
    return [entry.id for entry in truth.select(Filters(kinds=("pair",)))]


def test_an_import_adds_once(tmp_path: Path, cli: Cli) -> None:
    where, shards = str(tmp_path / "w"), tmp_path / "shards"
    shards.mkdir()
    rows = list(make_rows(200))
    write_json_lines(shards / "a.jsonl", iter(rows[:120]))
    write_json_lines(shards / "b.jsonl", iter(rows[120:]))
    words = ["import-kernelbook", str(shards), "--where", where]
    first = answer_of(cli, *words)
    assert first["read"] == 200
    assert first["pairs"] == first["added"] > 150
    counted = ("added", "duplicates", "refused_licence", "broken")
    assert sum(first[name] for name in counted) == 200
    second = answer_of(cli, *words)
    assert (second["read"], second["added"], second["pairs"]) == (0, 0, first["pairs"])
    # Under another rule the rows are read again: what was refused comes in, the rest is known.
    third = answer_of(cli, *words, "--allow-any-licence")
    assert third["read"] == 200
    assert third["refused_licence"] == 0
    assert 0 < third["added"] <= first["refused_licence"]
    # A shard that comes later, and before the others by name, is read alone.
    write_json_lines(shards / "0.jsonl", make_rows(20, seed=7))
    assert answer_of(cli, *words)["read"] == 20


def test_a_finished_file_is_not_read_again(tmp_path: Path, cli: Cli) -> None:
    file = write_json_lines(tmp_path / "rows.jsonl", make_rows(10))
    words = ["import-kernelbook", str(file), "--where", str(tmp_path / "w")]
    assert answer_of(cli, *words)["read"] == 10
    # Of the same size and with more rows: who reads it, finds them.
    file.write_bytes(b"0\n" * (file.stat().st_size // 2) + b"\n" * (file.stat().st_size % 2))
    assert answer_of(cli, *words)["read"] == 0


def test_a_licence_that_is_asked_for_is_the_only_one(tmp_path: Path, cli: Cli) -> None:
    where, file = tmp_path / "w", write_json_lines(tmp_path / "rows.jsonl", make_rows(60))
    words = ["knowledge", "import-kernelbook", str(file), "--where", str(where)]
    assert "refused: Apache-2.0 " in cli([*words, "--licence", "MIT"]).out
    with open_knowledge_store(where) as truth:
        licences = {entry.licence for entry in truth.select(Filters(kinds=("pair",)))}
    assert licences == {"MIT"}


def test_a_uuid_of_another_module_takes_nobodys_place(tmp_path: Path, cli: Cli) -> None:
    bodies = ("torch.softmax(x * 2, dim=-1)", "torch.sigmoid(x).cumsum(0) / (1 + x.abs().sum())")
    for number, body in enumerate(bodies):
        code = f"class M(nn.Module):\n    def forward(self, x):\n        return {body}\n"
        row = next(make_rows(1)) | {"python_code": code, "entry_point": "M", "licenses": ["MIT"]}
        file = write_json_lines(tmp_path / f"{number}.jsonl", iter([row | {"uuid": "same"}]))
        answer = answer_of(cli, "import-kernelbook", str(file), "--where", str(tmp_path / "w"))
        assert (answer["added"], answer["pairs"]) == (1, number + 1)


@pytest.mark.parametrize("count", [600, 3000])
@pytest.mark.slow
def test_a_killed_import_goes_on_and_takes_nothing_twice(
    count: int, tmp_path: Path, cli: Cli
) -> None:
    where, file = tmp_path / "w", write_json_lines(tmp_path / "rows.jsonl", make_rows(count))
    expected: list[str] = []
    whole = import_pairs(file, lambda entries, _: expected.extend(ids_of(entries)))
    words = ["import-kernelbook", str(file), "--where", str(where)]
    with open_knowledge_store(where) as truth:
        process = subprocess.Popen(
            [sys.executable, "-m", "agentkernel", "knowledge", *words],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        before = wait_for_pairs(truth, process, count // 3)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        kept = truth.count("pair")
    assert 0 < before <= kept < whole.added
    answer = answer_of(cli, *words)
    assert answer["added"] == whole.added - kept
    assert answer["read"] < count
    with open_knowledge_store(where) as truth:
        assert sorted(pairs_of(truth)) == sorted(expected)
        assert truth.stats().versions == 0
    built = answer_of(cli, "build", "--where", str(where))
    assert built["vectors_seq"] == built["structures_seq"] == built["last_seq"]


def ids_of(entries: object) -> list[str]:
    assert isinstance(entries, tuple)
    return [entry.id for entry in entries if isinstance(entry, Entry)]


def wait_for_pairs(truth: KnowledgeStore, process: subprocess.Popen[bytes], least: int) -> int:
    """The number of pairs as soon as there are `least` (of a first batch: any)."""
    end = time.monotonic() + 120
    while time.monotonic() < end and process.poll() is None:
        found = truth.count("pair")
        if found >= min(least, 200):
            return found
        time.sleep(0.005)
    pytest.fail("the import ended or hung before it could be killed")


@pytest.mark.slow
@pytest.mark.xdist_group("generated_pairs")
@pytest.mark.usefixtures("lent")
def test_generated_pairs_are_made_once(tmp_path: Path, cli: Cli) -> None:
    folder, where = tmp_path / "modules", tmp_path / "w"
    folder.mkdir()
    (folder / "doubled_relu.py").write_text(PLAIN)
    words = ["generate", str(folder), "--no-verify", "--where", str(where), "--target", "h100"]
    assert answer_of(cli, *words)["made"] == 1
    with open_knowledge_store(where) as truth:
        (name,) = pairs_of(truth)
        entry = truth.get(name)
    assert name.startswith("generated/")
    assert entry is not None
    assert "@triton.jit" in entry.answer
    assert entry.structure is not None
    assert "relu" in entry.structure.ops
    again = answer_of(cli, *words)
    assert (again["known"], again["made"]) == (1, 0)


@pytest.mark.xdist_group("generated_pairs")
@pytest.mark.usefixtures("lent")
def test_nothing_made_of_a_folder_is_1(tmp_path: Path, cli: Cli) -> None:
    folder = tmp_path / "modules"
    folder.mkdir()
    (folder / "broken.py").write_text("raise ValueError('broken')  # Model, get_inputs\n")
    words = ["generate", str(folder), "--no-verify", "--where", str(tmp_path / "w")]
    captured = cli(["knowledge", *words], 1)
    assert "0 pairs of 1 modules" in captured.out
    assert "broken.py" in captured.out


def test_imports_at_once_come_one_after_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each looks for near copies among what was there when it began."""
    said: Queue[str] = Queue()
    monkeypatch.setattr("agentkernel.cli.knowledge.transfer.print_to_stderr", said.put)
    file = write_json_lines(tmp_path / "rows.jsonl", make_rows(40))

    def take(truth: KnowledgeStore) -> int:
        with import_lock(truth):
            return import_shards(truth, file, RULE, lambda *_: None).added

    with open_knowledge_store(tmp_path) as truth, ThreadPoolExecutor(1) as other:
        with import_lock(truth):
            second = other.submit(take, truth)
            assert "this one waits" in said.get(timeout=30.0)
            assert import_shards(truth, file, RULE, lambda *_: None).added > 20
        assert second.result(timeout=30.0) == 0
