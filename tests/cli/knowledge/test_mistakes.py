"""Odd logs, licences, addresses and texts of others give an answer or one line."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from agentkernel.cli.app import run
from agentkernel.cli.knowledge.place import readable
from agentkernel.cli.knowledge.search import LOG_BYTES, error_text
from agentkernel.domain.errors import SettingError
from agentkernel.domain.knowledge import Entry
from agentkernel.domain.plain_text import plain, plain_line
from agentkernel.knowledge.base import open_base
from agentkernel.knowledge.store import open_knowledge_store
from tests.cli.commands import Cli

ARANGE = "ValueError: arange's range must be a power of 2"
LICENCES = ("MIT", "Apache-2.0, GPL-2.0", "")
ESCAPES = "red\x1b[31m\x1b]0;name\x07\n2. A false hit\r\u202e"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the package brings, pairs under odd licences, and a text that steers terminals."""
    folder = tmp_path_factory.mktemp("knowledge")
    with open_knowledge_store(folder) as truth:
        truth.put([pair(f"own/{number}", licence) for number, licence in enumerate(LICENCES)])
        for answer in ("x = 1", "x = 2"):
            evil = {"title": ESCAPES, "triton": ESCAPES, "source": ESCAPES, "verified": "gpu"}
            truth.put([pair("own/evil", ESCAPES, answer=answer, **evil)])
    assert run(["knowledge", "build", "--where", str(folder)]) == 0
    return folder


def pair(name: str, licence: str, **changes: object) -> Entry:
    values = {"id": name, "kind": "pair", "title": f"zebra {name}", "answer": f"a = '{name}'"}
    more = {"problem": "y = 1", "passages": ["zebra"], "source": "s", "licence": licence}
    return Entry.model_validate({**values, **more, **changes})


def search(where: Path, cli: Cli, *words: str) -> list[str]:
    found = cli.json(["knowledge", "search", *words, "--where", str(where), "--json"])
    return [hit["entry"]["id"] for hit in found["hits"]]


# -- logs ------------------------------------------------------------------------------------------


def test_a_fix_is_found_by_a_line_far_before_the_end_of_a_log(
    built: Path, tmp_path: Path, cli: Cli
) -> None:
    log = tmp_path / "log.txt"
    noise = "".join(f"INFO worker {number} stopped\n" for number in range(5000))
    log.write_text(f"{ARANGE}\n{noise}RuntimeError: job failed\n")
    assert search(built, cli, "--error", str(log))[0] == "fixes/arange_power_of_two"


def test_the_end_of_a_long_log_is_read(tmp_path: Path) -> None:
    log = tmp_path / "log.txt"
    log.write_bytes(b"x" * LOG_BYTES + b"the end")
    assert len(error_text(str(log))) == LOG_BYTES
    assert error_text(str(log)).endswith("xthe end")


def test_what_is_no_utf8_is_replaced(
    built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    content = b"\xff\xfe " + ARANGE.encode()
    (tmp_path / "log.txt").write_bytes(content)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content)))
    for words in (["--error", str(tmp_path / "log.txt")], ["--error", "-"], [f"\udcff {ARANGE}"]):
        assert search(built, cli, *words)[0] == "fixes/arange_power_of_two"
    assert run(["knowledge", "show", "own/\udcff", "--where", str(built)]) == 2


# -- licences --------------------------------------------------------------------------------------


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ("mit", "own/0"),
        ("apache-2.0", "own/1"),
        ("GPL-2.0", "own/1"),
        ("apache-2.0, gpl-2.0", "own/1"),
        ("not stated", "own/2"),
    ],
)
def test_a_licence_is_found_in_any_case_and_by_its_parts(
    asked: str, found: str, built: Path, cli: Cli
) -> None:
    assert search(built, cli, "zebra", "--kind", "pair", "--licence", asked) == [found]


def test_a_licence_that_no_entry_has_is_said(built: Path, cli: Cli) -> None:
    words = ["zebra", "--licence", "GPL-9", "--where", str(built)]
    captured = cli(["knowledge", "search", *words])
    assert "Nothing found" in captured.out
    assert "--licence is 'GPL-9', which no entry has. Known here: Apache-2.0" in captured.err


def test_no_licence_is_shown_as_not_stated(built: Path, cli: Cli) -> None:
    for words in (["show", "own/2"], ["stats"], ["search", "zebra", "--licence", "not stated"]):
        assert "not stated" in cli(["knowledge", *words, "--where", str(built)]).out


def test_an_empty_licence_is_not_taken(tmp_path: Path, cli: Cli) -> None:
    for words in (["add", "p.py", "--answer", "a.py"], ["generate", str(tmp_path)]):
        where = ["--where", str(tmp_path / "w")]
        assert "--licence is ' '" in cli(["knowledge", *words, "--licence", " ", *where], 2).err
    assert not (tmp_path / "w").exists()


def test_a_pair_of_a_set_without_a_licence_says_so(tmp_path: Path) -> None:
    module = "import torch\n\n\nclass M(torch.nn.Module):\n    def forward(self, x):\n"
    row = {"python_code": module + "        return x\n", "triton_code": "x = 1\n"}
    (tmp_path / "rows.jsonl").write_text(json.dumps(row) + "\n")
    words = ["import-kernelbook", str(tmp_path / "rows.jsonl"), "--allow-any-licence"]
    assert run(["knowledge", *words, "--where", str(tmp_path / "w")]) == 0
    with open_knowledge_store(tmp_path / "w") as truth:
        assert truth.stats().by_licence["not stated"] == 1


def test_rows_that_are_all_broken_are_a_mistake_each_time(tmp_path: Path, cli: Cli) -> None:
    (tmp_path / "rows.jsonl").write_text("{}\n{}\n")
    words = ["import-kernelbook", str(tmp_path / "rows.jsonl"), "--where", str(tmp_path / "w")]
    for _ in range(2):
        captured = cli(["knowledge", *words], 2)
        assert "None of 2 rows" in captured.err
        assert "added" not in captured.out


# -- places ----------------------------------------------------------------------------------------


def test_an_export_of_nothing_leaves_the_file_as_it_was(
    built: Path, tmp_path: Path, cli: Cli
) -> None:
    file = tmp_path / "out.jsonl"
    file.write_text("kept")
    empty = tmp_path / "empty"
    empty.mkdir()
    for words in (["--kind", "experience", "--where", str(built)], ["--where", str(empty)]):
        cli.refused(["knowledge", "export", str(file), *words])
    assert file.read_text() == "kept"
    assert list(empty.iterdir()) == []


@pytest.mark.parametrize("address", ["notaurl", "http://", "ftp://host:1", "http://host:port"])
def test_what_is_no_server_is_one_line_and_no_folder(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SettingError, match="The Chroma server is"):
        open_base(tmp_path / "w", chroma=address)
    for command in ("build", "doctor"):
        assert run(["knowledge", command, "--where", "w", "--chroma", address]) == 2
    assert list(tmp_path.iterdir()) == []


# -- texts of others -------------------------------------------------------------------------------


def test_texts_of_others_steer_no_terminal_and_fake_no_line(built: Path, cli: Cli) -> None:
    search_all = ["search", "red", "--kind", "pair", "--verified", "gpu"]
    for words in (search_all, ["show", "own/evil", "--history"], ["stats"]):
        shown = cli(["knowledge", *words, "--where", str(built)]).out
        assert "\\x1b[31m" in shown.replace("\n", "")
        assert all(sign.isprintable() or sign == "\n" for sign in shown)
        assert not any(line.startswith("2. A false hit") for line in shown.splitlines())


def test_an_added_title_is_written_out(tmp_path: Path, cli: Cli) -> None:
    problem, answer = tmp_path / "p.py", tmp_path / "a.py"
    problem.write_text("import torch\n\n\nclass M(torch.nn.Module):\n    def forward(self, x):\n")
    with problem.open("a") as file:
        file.write("        return x\n")
    answer.write_text("x = 1\n")
    words = ["add", str(problem), "--answer", str(answer), "--title", ESCAPES + "\udcff"]
    shown = cli(["knowledge", *words, "--where", str(tmp_path / "w")]).out
    assert "red\\x1b[31m" in shown
    assert "\x1b" not in shown


def test_signs_that_do_not_print_are_written_out() -> None:
    assert plain("a\r\n\tb\x1b\x9b") == "a\n\tb\\x1b\\x9b"
    assert plain_line("a\nb\u202e ü") == "a\\nb\\u202e ü"
    assert readable("a\udcff\ud800ü") == "a\ufffd\ufffdü"
