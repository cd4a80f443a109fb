"""Does what others wrote come in as foreign, once, and is what passes for more refused?"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from agentkernel.cli.app import run
from agentkernel.domain.knowledge import Entry
from agentkernel.domain.plan import FOREIGN
from agentkernel.knowledge.store import open_knowledge_store
from agentkernel.knowledge.transfer import NO_LICENCE
from tests.cli.commands import Cli

Taken = dict[str, object]
Take = Callable[..., Taken]


def entry(name: str, **changes: object) -> Entry:
    values = {"id": name, "kind": "pair", "title": name, "answer": "x = 1", "passages": ["x"]}
    return Entry.model_validate(
        {**values, "problem": "y = 1", "source": "agentkernel", "licence": "MIT", **changes}
    )


def experience(name: str, time_us: float, source: str = "run 1") -> Entry:
    gain = {"gpu": "NVIDIA H100", "time_us": time_us}
    return entry(name, kind="experience", gain=gain, verified="gpu", source=source, triton="3.6.0")


def lines_of(*entries: Entry, counted: int | None = None) -> str:
    head = {"agentkernel_knowledge": 1, "entries": counted or len(entries), "kinds": {}}
    return "\n".join([json.dumps(head), *(item.model_dump_json() for item in entries)]) + "\n"


@pytest.fixture
def where(tmp_path: Path) -> Path:
    return tmp_path / "w"


@pytest.fixture
def take(tmp_path: Path, where: Path, cli: Cli) -> Take:
    """Import these entries: the answer in JSON."""

    def taken(*entries: Entry, counted: int | None = None) -> Taken:
        file = tmp_path / "in.jsonl"
        file.write_text(lines_of(*entries, counted=counted))
        words = ["knowledge", "import", str(file), "--where", str(where), "--json"]
        answer: Taken = cli.json(words)
        return answer

    return taken


def test_all_that_is_imported_says_so_and_has_a_licence(take: Take, where: Path) -> None:
    take(entry("own/1", verified="gpu"), entry("own/2"), entry("own/3", licence=" "))
    with open_knowledge_store(where) as truth:
        found = [truth.get(f"own/{number}") for number in (1, 2, 3)]
    assert [item and item.source for item in found] == [f"{FOREIGN}agentkernel"] * 3
    assert [item and item.licence for item in found] == ["MIT", "MIT", NO_LICENCE]


def test_ids_of_the_package_and_no_addresses_are_refused_by_name(take: Take, where: Path) -> None:
    package = ("kernels/evil", "notes/hopper", "Fixes/evil")
    bad = ("", "../../etc/passwd", "own/\x1b[2J", "own/a\n", "/own", "own/..")
    for _ in range(2):
        answer = take(*(entry(name) for name in (*package, *bad)), entry("own/1"))
        assert answer["refused"] == {
            "their ids are the package's own": list(package),
            "their ids are no addresses": list(bad),
        }
        assert answer["missing"] == answer["changed"] == 0
    with open_knowledge_store(where) as truth:
        hopper = truth.get("notes/hopper")
        assert hopper is not None
        assert hopper.source == "agentkernel"
        assert truth.get("kernels/evil", superseded=True) is None
        assert truth.stats().versions == 0


def test_a_repeat_changes_nothing_even_where_an_id_comes_twice(take: Take, where: Path) -> None:
    two = (entry("own/1"), entry("own/1", title="another"))
    first = take(*two)
    assert (first["added"], first["changed"]) == (1, 0)
    assert first["refused"] == {"their ids came before in this file": ["own/1"]}
    again = take(*two)
    assert (again["same"], again["changed"]) == (1, 0)
    with open_knowledge_store(where) as truth:
        assert truth.history("own/1") == ()


def test_nothing_foreign_takes_the_place_of_what_was_made_here(take: Take, where: Path) -> None:
    with open_knowledge_store(where) as truth:
        truth.put([entry("own/1", source="mine.py")])
    answer = take(entry("own/1", answer="evil = 1"))
    assert answer["refused"] == {"other entries with their ids were made here": ["own/1"]}
    with open_knowledge_store(where) as truth:
        kept = truth.get("own/1")
    assert kept is not None
    assert kept.answer == "x = 1"


def test_imported_experiences_are_settled(take: Take, where: Path) -> None:
    both = (experience("experience/slow", 90.0), experience("experience/fast", 30.0))
    for _ in range(2):
        take(*both)
        with open_knowledge_store(where) as truth:
            assert truth.get("experience/fast") is not None
            assert truth.get("experience/slow") is None
            assert truth.get("experience/slow", superseded=True) is not None
            assert truth.stats().versions == 0


def test_an_experience_whose_record_cannot_be_read_is_refused(take: Take) -> None:
    answer = take(entry("experience/1", kind="experience", hints={"experience": "{}"}))
    assert answer["refused"] == {"their figures of a run cannot be": ["experience/1"]}


def test_an_older_store_with_foreign_entries_below_the_package_is_mended(where: Path) -> None:
    with open_knowledge_store(where) as truth:
        truth.put([entry("kernels/evil")])
    assert run(["knowledge", "build", "--where", str(where)]) == 0
    with open_knowledge_store(where) as truth:
        assert truth.get("kernels/evil") is None
        assert truth.get("notes/hopper") is not None


def test_what_a_cut_export_lacks_is_said(take: Take, tmp_path: Path, where: Path, cli: Cli) -> None:
    assert take(entry("own/1"), entry("own/2"), counted=99)["missing"] == 97
    words = ["knowledge", "import", str(tmp_path / "in.jsonl"), "--where", str(where)]
    assert "97 of 99 are missing" in cli(words).out


@pytest.mark.quick(1)
@pytest.mark.parametrize("text", ["", "some\nother\nfile\n", lines_of(counted=99)])
def test_what_is_no_export_is_one_line(text: str, tmp_path: Path, where: Path, cli: Cli) -> None:
    file = tmp_path / "in.jsonl"
    file.write_text(text)
    said = cli.refused(["knowledge", "import", str(file), "--where", str(where)])
    assert "No entry in" in said


@pytest.mark.quick(1)
@pytest.mark.parametrize("packed", [False, True])
def test_gzip_is_told_by_the_content(packed: bool, tmp_path: Path, where: Path) -> None:
    text = lines_of(entry("own/1")).encode()
    file = tmp_path / ("in.jsonl" if packed else "in.jsonl.gz")
    file.write_bytes(gzip.compress(text) if packed else text)
    assert run(["knowledge", "import", str(file), "--where", str(where)]) == 0
    with open_knowledge_store(where) as truth:
        assert truth.get("own/1") is not None
