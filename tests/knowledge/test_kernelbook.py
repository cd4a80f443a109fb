import gzip
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from agentkernel.domain.errors import MissingDependency, SettingError
from agentkernel.domain.knowledge import Entry
from agentkernel.knowledge.kernelbook import (
    LONGEST_PASSAGE,
    BadRow,
    ImportReport,
    LicenceRule,
    Pair,
    import_pairs,
    pair_entry,
    read_pairs,
)
from agentkernel.knowledge.pairs import NearDuplicates
from agentkernel.knowledge.store_schema import Progress
from tests.knowledge.kernelbook_rows import Row, make_rows, write_json_lines, write_parquet

COUNT = 600


class Shelf:
    """Keeps what it is given, as a store would."""

    def __init__(self) -> None:
        self.entries: dict[str, Entry] = {}
        self.progress: list[Progress] = []

    def put(self, entries: Sequence[Entry], progress: Progress) -> None:
        self.entries |= {item.id: item for item in entries}
        self.progress.append(progress)


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    return list(make_rows(COUNT))


@pytest.fixture(scope="module")
def json_lines(tmp_path_factory: pytest.TempPathFactory, rows: list[Row]) -> Path:
    return write_json_lines(tmp_path_factory.mktemp("pairs") / "pairs.jsonl", iter(rows))


def a_row(**changes: object) -> Row:
    row = next(make_rows(1, seed=4))
    return row | changes


def one_module(name: str, body: str) -> Row:
    code = (
        f"import torch\nfrom torch import nn\n\nclass {name}(nn.Module):\n"
        f"    def forward(self, x):\n        return {body}\n"
    )
    return a_row(uuid="same", python_code=code, entry_point=name, licenses=["MIT"])


def read_one(path: Path, row: object) -> Pair | BadRow:
    (path / "one.jsonl").write_text(json.dumps(row) + "\n")
    (found,) = read_pairs(path / "one.jsonl")
    return found


def test_rows_are_the_same_in_every_run() -> None:
    assert list(make_rows(50)) == list(make_rows(50))
    assert list(make_rows(50)) != list(make_rows(50, seed=1))


def test_columns_become_a_pair(rows: list[Row], json_lines: Path) -> None:
    first = next(read_pairs(json_lines))
    assert isinstance(first, Pair)
    assert len(first.uuid) == 16
    assert first.entry_point == rows[0]["entry_point"]
    assert first.python_code == rows[0]["python_code"]
    assert first.licences == tuple(rows[0]["licenses"])  # type: ignore[arg-type]
    assert first.link.startswith("https://")
    assert first.at == Progress("pairs.jsonl", 1)


def test_every_layout_of_a_file_gives_the_same_pairs(
    tmp_path: Path, rows: list[Row], json_lines: Path
) -> None:
    packed, array = tmp_path / "a.jsonl.gz", tmp_path / "b.json"
    with gzip.open(packed, "wt", encoding="utf-8") as file:
        file.write(json_lines.read_text())
    array.write_text(json.dumps(rows, indent=1))
    expected = [item.python_code for item in read_pairs(json_lines) if isinstance(item, Pair)]
    for path in (packed, array):
        found = [item.python_code for item in read_pairs(path) if isinstance(item, Pair)]
        assert found == expected


def test_parquet(tmp_path: Path, rows: list[Row], json_lines: Path) -> None:
    pytest.importorskip("pyarrow")
    path = write_parquet(tmp_path / "pairs.parquet", iter(rows), group=100)
    expected = [item.uuid for item in read_pairs(json_lines) if isinstance(item, Pair)]
    assert [item.uuid for item in read_pairs(path) if isinstance(item, Pair)] == expected
    for start in (250, 300, 599):
        rest = list(read_pairs(path, ("pairs.parquet", start)))
        assert [item.uuid for item in rest if isinstance(item, Pair)] == expected[start:]
        assert rest[0].at.position == start + 1


def test_parquet_that_breaks_is_a_broken_row(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    (tmp_path / "x.parquet").write_bytes(b"PAR1 no parquet at all PAR1")
    (found,) = read_pairs(tmp_path / "x.parquet")
    assert isinstance(found, BadRow)


def test_parquet_without_its_package_names_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    (tmp_path / "x.parquet").write_bytes(b"")
    with pytest.raises(MissingDependency, match="pip install pyarrow"):
        list(read_pairs(tmp_path / "x.parquet"))


def test_a_folder_is_read_by_name_and_from_where_it_stopped(
    tmp_path: Path, rows: list[Row]
) -> None:
    for number, name in enumerate(["b/two.jsonl", "a.jsonl", "c.jsonl"]):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        write_json_lines(tmp_path / name, iter(rows[10 * number : 10 * number + 10]))
    (tmp_path / "README.md").write_text("no pairs")
    every = [item.at for item in read_pairs(tmp_path)]
    assert [at.source for at in every[::10]] == ["a.jsonl", "b/two.jsonl", "c.jsonl"]
    rest = [item.at for item in read_pairs(tmp_path, ("b/two.jsonl", 4))]
    assert rest == every[14:]


@pytest.mark.parametrize("name", ["absent.jsonl", "notes.txt", "."])
def test_a_path_without_pairs_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "notes.txt").write_text("")
    with pytest.raises(SettingError, match=r"No pairs at .* Next: "):
        list(read_pairs(tmp_path / name))


def test_an_unknown_start_is_refused(json_lines: Path) -> None:
    with pytest.raises(SettingError, match=r"other\.jsonl"):
        list(read_pairs(json_lines, ("other.jsonl", 3)))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{not json}\n", "no JSON"),
        ("3\n", "not a JSON object"),
        ("{}\n", "no PyTorch code"),
        ('{"python_code": "x = 1"}\n', "no Triton code"),
        ("[" * 100_000 + "\n", "JSON array breaks"),
        ('[{"a": 1}, {"b": ', "JSON array breaks"),
    ],
)
def test_a_row_that_is_no_pair_is_named(tmp_path: Path, text: str, reason: str) -> None:
    (tmp_path / "x.jsonl").write_text(text)
    found = list(read_pairs(tmp_path / "x.jsonl"))[-1]
    assert isinstance(found, BadRow)
    assert reason in found.reason
    assert "\n" not in found.reason


def test_a_broken_archive_is_a_broken_row(tmp_path: Path, json_lines: Path) -> None:
    content = gzip.compress(json_lines.read_bytes())
    (tmp_path / "x.jsonl.gz").write_bytes(content[: len(content) // 2])
    found = list(read_pairs(tmp_path / "x.jsonl.gz"))
    assert isinstance(found[-1], BadRow)
    assert len(found) > 10


def test_a_row_beyond_the_bound_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agentkernel.knowledge.pairs.LONGEST_ROW", 10_000)
    good = json.dumps(a_row(triton_code="x = 1"))
    long = json.dumps(a_row(triton_code="x = 1\n" * 9000))
    (tmp_path / "x.jsonl").write_text(f"{good}\n{long}\n{good}\n")
    found = list(read_pairs(tmp_path / "x.jsonl"))
    assert [type(item) for item in found] == [Pair, BadRow, Pair]


@pytest.mark.parametrize("chat", [False, True])
def test_a_conversation_becomes_a_pair(tmp_path: Path, *, chat: bool) -> None:
    row = a_row()
    asked = f"Like this:\n```python\nx = 1\n```\nNow:\n```python\n{row['python_code']}```\nGo."
    answered = f"Here:\n```python\n{row['triton_code']}```\nDone."
    turns = [{"role": "user", "content": asked}, {"role": "assistant", "content": answered}]
    made = {"messages": turns} if chat else {"prompt": asked, "completion": answered}
    found = read_one(tmp_path, made)
    assert isinstance(found, Pair)
    assert found.python_code == row["python_code"]
    assert found.triton_code == row["triton_code"]
    assert found.licences == ()
    assert len(found.uuid) == 16


@pytest.mark.parametrize("uuid", ["../../etc", "", None, "a b", "x" * 200, 17, "17"])
def test_an_odd_uuid_is_replaced(tmp_path: Path, uuid: object) -> None:
    found = read_one(tmp_path, a_row(uuid=uuid))
    assert isinstance(found, Pair)
    assert len(found.uuid) == 16


def test_two_sets_that_number_their_rows_from_0_do_not_collide(tmp_path: Path) -> None:
    shelf = Shelf()
    for seed in (0, 1):
        import_pairs(write_json_lines(tmp_path / f"{seed}.jsonl", make_rows(20, seed)), shelf.put)
    codes = {item.problem for item in shelf.entries.values()}
    assert len(codes) == len(shelf.entries) > 25


def test_two_modules_with_one_uuid_are_two_entries_whatever_the_order(tmp_path: Path) -> None:
    one = one_module("RowSoftmax", "torch.softmax(x * 2, dim=-1)")
    other = one_module("Gate", "torch.sigmoid(x).cumsum(0) / (1 + x.abs().amax(1, keepdim=True))")
    both = write_json_lines(tmp_path / "both.jsonl", iter([one, other]))
    shelf = Shelf()
    assert import_pairs(both, shelf.put).added == len(shelf.entries) == 2
    assert shelf.entries["kernelbook/same"].problem == one["python_code"]
    stored = dict(shelf.entries)

    def held(entry_id: str) -> str | None:
        return stored[entry_id].problem if entry_id in stored else None

    # Called again over the same store, also where it no longer knows the codes, nothing flips.
    again = Shelf()
    import_pairs(both, again.put, held=held)
    assert again.entries == stored
    late = Shelf()
    turned = write_json_lines(tmp_path / "turned.jsonl", iter([other, one]))
    import_pairs(turned, late.put, held=held)
    assert late.entries == stored


def test_an_entry_says_what_the_pair_is(tmp_path: Path) -> None:
    code = (
        "import torch\nfrom torch import nn\n\nclass RowSoftmax2d(nn.Module):\n"
        '    """Scales each row."""\n\n    def forward(self, x):\n'
        "        return torch.softmax(x * 2, dim=-1)\n\n"
        "def get_inputs():\n    return [torch.rand([4, 8])]\n"
    )
    row = a_row(python_code=code, entry_point="RowSoftmax2d", uuid="row-17", sha="a" * 40)
    found = read_one(tmp_path, row)
    assert isinstance(found, Pair)
    entry = pair_entry(found)
    assert entry.id == "kernelbook/row-17"
    assert entry.kind == "pair"
    assert entry.title == "RowSoftmax2d: mul, softmax"
    assert entry.summary == "Scales each row."
    assert entry.source.endswith("@" + "a" * 40)
    assert entry.verified == "no"
    assert entry.structure is not None
    assert entry.structure.reduction == "row"
    assert entry.structure.rank == 2
    words, forward = entry.passages
    assert words == "row softmax 2 d. mul, softmax. Scales each row"
    assert forward == "def forward(self, x):\n    return torch.softmax(x * 2, dim=-1)"


def test_an_import_keeps_what_is_sound_permitted_and_new(rows: list[Row], json_lines: Path) -> None:
    shelf = Shelf()
    said: list[ImportReport] = []
    report = import_pairs(json_lines, shelf.put, say=said.append)
    parts = (report.added, report.duplicates, report.refused_licence, report.broken)
    assert report.read == sum(parts) == COUNT
    assert min(parts) > 0
    assert report.added == len(shelf.entries)
    assert all("GPL" not in item.licence and item.licence for item in shelf.entries.values())
    assert sum(report.licences_refused.values()) == report.refused_licence
    assert len(report.first_broken) == min(20, report.broken)
    assert "PyTorch code is no Python" in report.first_broken[0]
    assert all(len(text) <= LONGEST_PASSAGE for e in shelf.entries.values() for text in e.passages)
    assert all(e.structure and e.structure.ops for e in shelf.entries.values())
    assert [item.read for item in said] == [256, 512, COUNT]
    assert shelf.progress[-1] == Progress("pairs.jsonl", COUNT)
    assert (report.source, report.position) == ("pairs.jsonl", COUNT)


@pytest.mark.slow
def test_an_import_that_was_cut_off_goes_on(json_lines: Path) -> None:
    whole, halves = Shelf(), Shelf()
    import_pairs(json_lines, whole.put)

    class Cut(Exception):
        pass

    def put_once(entries: Sequence[Entry], progress: Progress) -> None:
        if halves.progress:
            raise Cut
        halves.put(entries, progress)

    with pytest.raises(Cut):
        import_pairs(json_lines, put_once)
    seen = NearDuplicates.of(item.problem for item in halves.entries.values())
    report = import_pairs(json_lines, halves.put, seen=seen, start_at=halves.progress[-1])
    assert halves.entries == whole.entries
    assert report.read == COUNT - 256
    again = import_pairs(json_lines, halves.put, start_at=halves.progress[-1])
    assert again.read == again.added == 0


def test_licences_can_be_chosen(json_lines: Path) -> None:
    every = import_pairs(json_lines, Shelf().put, LicenceRule(None))
    assert every.refused_licence == 0
    none = import_pairs(json_lines, Shelf().put, LicenceRule(frozenset({"Artistic-2.0"})))
    assert none.added == 0
    shelf = Shelf()
    import_pairs(json_lines, shelf.put, LicenceRule(frozenset({"mit"})))
    assert {item.licence for item in shelf.entries.values()} == {"MIT"}


def test_a_set_under_one_licence(tmp_path: Path) -> None:
    path = write_json_lines(tmp_path / "x.jsonl", iter([a_row(licenses=[])]))
    assert import_pairs(path, Shelf().put).refused_licence == 1
    shelf = Shelf()
    assert import_pairs(path, shelf.put, LicenceRule(if_missing="MIT")).added == 1
    assert {item.licence for item in shelf.entries.values()} == {"MIT"}


def test_nothing_of_a_pair_is_executed(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    trap = f"open({str(mark)!r}, 'w').close()\n"
    row = a_row()
    made = row | {
        "python_code": trap + str(row["python_code"]),
        "triton_code": trap + str(row["triton_code"]),
    }
    path = write_json_lines(tmp_path / "x.jsonl", iter([made]))
    assert import_pairs(path, Shelf().put).added == 1
    assert not mark.exists()


def test_the_importer_loads_no_torch() -> None:
    code = "import agentkernel.knowledge.kernelbook, sys; print('torch' in sys.modules)"
    answer = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert answer.stdout.strip() == "False"
