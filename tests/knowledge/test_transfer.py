import gzip
import json
from pathlib import Path

import pytest

from agentkernel.domain.errors import KnowledgeError, OutputError
from agentkernel.domain.knowledge import Filters
from agentkernel.knowledge.store import open_knowledge_store
from agentkernel.knowledge.store_schema import PutCounts
from tests.knowledge.memory_store import entry

ENTRIES = (entry("a", answer="line\nbreak ü"), entry("b", kind="note"), entry("c"))


def exported(folder: Path, name: str = "out.jsonl") -> Path:
    with open_knowledge_store(folder / "from") as truth:
        truth.put([*ENTRIES, entry("ended")])
        truth.remove("ended", "withdrawn")
        assert truth.export(folder / name) == 3
    return folder / name


@pytest.mark.parametrize("name", ["out.jsonl", "out.jsonl.gz"])
def test_an_export_comes_back_whole(tmp_path: Path, name: str) -> None:
    path = exported(tmp_path, name)
    assert (path.read_bytes()[:2] == b"\x1f\x8b") == name.endswith(".gz")
    with open_knowledge_store(tmp_path / "to") as truth:
        truth.put([entry("a", answer="older"), ENTRIES[1]])
        done = truth.import_(path)
        assert (done.put, done.expected, done.broken) == (PutCounts(1, 1, 1), 3, ())
        assert tuple(truth.select(Filters())) == ENTRIES
        assert truth.import_(path).put == PutCounts(same=3)


def test_the_first_line_says_what_follows(tmp_path: Path) -> None:
    head = json.loads(exported(tmp_path).read_text().splitlines()[0])
    assert head == {"agentkernel_knowledge": 1, "entries": 3, "kinds": {"note": 1, "pair": 2}}


def test_filters_choose_what_is_exported(tmp_path: Path) -> None:
    exported(tmp_path)
    with open_knowledge_store(tmp_path / "from") as truth:
        assert truth.export(tmp_path / "notes.jsonl", Filters(kinds=("note",))) == 1


def test_a_broken_line_is_counted_and_named(tmp_path: Path) -> None:
    path = exported(tmp_path)
    head, *lines = path.read_bytes().splitlines()
    broken = [b"{", b'{"id": "x"}', b"\xff\xfe", b"[" * 5000]
    path.write_bytes(b"\n".join([head, lines[0], *broken, b"", *lines[1:]]) + b"\n")
    with open_knowledge_store(tmp_path / "to") as truth:
        done = truth.import_(path)
        assert done.put == PutCounts(added=3)
    assert done.broken_count == 4
    assert [line.split(":")[0] for line in done.broken] == [f"line {n}" for n in (3, 4, 5, 6)]


def test_an_export_that_breaks_off_gives_what_it_holds(tmp_path: Path) -> None:
    path = tmp_path / "cut.jsonl.gz"
    lines = b"\n".join(
        entry(str(n), answer=f"{n * n * 7919:x}" * 50).model_dump_json().encode()
        for n in range(500)
    )
    whole = gzip.compress(lines)
    path.write_bytes(whole[: len(whole) // 2])
    with open_knowledge_store(tmp_path / "to") as truth:
        done = truth.import_(path)
        assert done.put.added == truth.count() > 10
    assert done.broken_count == 1
    assert "breaks off" in done.broken[0]


def test_a_line_that_would_fill_the_memory_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agentkernel.knowledge.transfer.LONGEST_LINE", 1000)
    path = exported(tmp_path)
    with path.open("ab") as file:
        file.write(b"x" * 5000 + b"\n" + entry("d").model_dump_json().encode())
    with open_knowledge_store(tmp_path / "to") as truth:
        done = truth.import_(path)
        assert done.put == PutCounts(added=4)
    assert done.broken == ("line 5: longer than 1000 bytes",)


def test_a_newer_format_and_a_missing_file_are_refused_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "newer.jsonl"
    path.write_text('{"agentkernel_knowledge": 99, "shape": "new"}\n')
    with open_knowledge_store(tmp_path / "to") as truth:
        with pytest.raises(KnowledgeError, match="format 99"):
            truth.import_(path)
        with pytest.raises(KnowledgeError, match="check the path"):
            truth.import_(tmp_path / "none.jsonl")
        with pytest.raises(OutputError, match="Cannot export"):
            truth.export(tmp_path / "none" / "out.jsonl")
        assert truth.count() == 0
