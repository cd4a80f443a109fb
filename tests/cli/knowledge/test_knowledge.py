"""Do the knowledge commands find, show, take in and hand out entries, and fail in one line?"""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from agentkernel.cli.app import run
from agentkernel.cli.command_table import KNOWLEDGE_COMMANDS
from agentkernel.cli.knowledge.search import last_lines
from agentkernel.domain.knowledge import Entry
from agentkernel.domain.plan import FOREIGN
from agentkernel.knowledge.store import open_knowledge_store
from tests.cli.commands import Cli

MODULE = """
import torch
from torch import nn


class Model(nn.Module):
    \"\"\"Doubles the softmax of a row.\"\"\"

    def forward(self, x):
        return 2.0 * torch.softmax(x, dim=-1)


def get_inputs():
    return [torch.rand(4, 8)]


def get_init_inputs():
    return []
"""
TRITON = "import triton\n\n\n@triton.jit\ndef doubled(x):\n    pass\n"
ARANGE = "arange's range must be a power of 2"
OUT_OF_MEMORY = """Traceback (most recent call last):
  File "kernel.py", line 3, in <module>
triton.runtime.errors.OutOfResources: out of resource: shared memory, Required: 262144,
Hardware limit: 232448. Reducing block sizes or `num_stages` may help.
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A knowledge folder with what the package brings; tests that write take one of their own."""
    folder = tmp_path_factory.mktemp("knowledge")
    assert run(["knowledge", "build", "--where", str(folder)]) == 0
    return folder


@pytest.fixture
def ask(cli: Cli) -> Callable[..., dict[str, object]]:
    """A command's JSON answer; it has to end in 0 and say nothing beside."""

    def asked(where: Path, *words: str) -> dict[str, object]:
        captured = cli(["knowledge", *words, "--where", str(where), "--json"])
        assert captured.err == ""
        answer: dict[str, object] = json.loads(captured.out)
        return answer

    return asked


@pytest.fixture
def pair(tmp_path: Path) -> tuple[str, str]:
    """The files of a pair of one's own."""
    problem, answer = tmp_path / "doubled.py", tmp_path / "doubled_triton.py"
    problem.write_text(MODULE)
    answer.write_text(TRITON)
    return str(problem), str(answer)


def found_ids(answer: dict[str, object]) -> list[str]:
    hits = answer["hits"]
    assert isinstance(hits, list)
    return [hit["entry"]["id"] for hit in hits]


def test_build_says_what_came_in_and_again_that_nothing_did(built: Path, cli: Cli) -> None:
    shown = cli(["knowledge", "build", "--where", str(built)]).out
    assert "packaged    0 added, 0 changed" in shown
    assert str(built) in shown


def test_build_in_json(built: Path, ask: Callable[..., dict[str, object]]) -> None:
    answer = ask(built, "build")
    assert answer["vectors_seq"] == answer["structures_seq"] == answer["last_seq"]
    assert answer["entries"] == answer["same"]


@pytest.mark.quick(1)
@pytest.mark.parametrize("words", [["search", ARANGE], ["search", "--error", "-"]])
def test_an_error_text_finds_its_fix(
    words: list[str],
    built: Path,
    ask: Callable[..., dict[str, object]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = f"Traceback:\n  File 'a.py'\nValueError: {ARANGE}\n"
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(log.encode())))
    assert found_ids(ask(built, *words))[0] == "fixes/arange_power_of_two"


def test_an_error_of_a_file_finds_its_fix(
    built: Path, tmp_path: Path, ask: Callable[..., dict[str, object]]
) -> None:
    log = tmp_path / "log.txt"
    log.write_text(OUT_OF_MEMORY)
    assert found_ids(ask(built, "search", "--error", str(log)))[0] == "fixes/shared_memory_limit"


def test_a_log_is_asked_from_its_end() -> None:
    log = "\n".join(f"line {number}" for number in range(100)) + "\n\nError: the end\n"
    assert last_lines(log).splitlines()[:2] == ["Error: the end", "line 99"]
    assert len(last_lines(log).splitlines()) == 30


def test_a_module_finds_what_computes_the_same(
    built: Path, pair: tuple[str, str], ask: Callable[..., dict[str, object]]
) -> None:
    answer = ask(built, "search", "--module", pair[0], "--kind", "kernel", "--limit", "3")
    found = found_ids(answer)
    assert len(found) == 3
    assert any("softmax" in name for name in found)
    assert all(name.startswith("kernels/") for name in found)
    hits = answer["hits"]
    assert isinstance(hits, list)
    assert hits[0]["score"]["structural_rank"] is not None


def test_search_shows_why_and_how_a_hit_begins(built: Path, cli: Cli) -> None:
    words = ["softmax", "--kind", "kernel", "--verified", "interpreter", "--limit", "1"]
    shown = cli(["knowledge", "search", *words, "--where", str(built)]).out
    assert shown.startswith("1. ")
    assert "| kernel | agentkernel | Apache-2.0 | verified in the interpreter" in shown
    assert "(ranks: dense " in shown
    assert "   @triton.jit" in shown
    assert "\n2. " not in shown


def test_a_search_without_a_build_builds_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert found_ids(cli.json(["knowledge", "search", ARANGE, "--json"]))
    assert (tmp_path / "agentkernel" / "knowledge" / "knowledge.sqlite").is_file()


def test_filters_leave_out(built: Path, ask: Callable[..., dict[str, object]]) -> None:
    assert ask(built, "search", "softmax", "--verified", "gpu")["hits"] == []
    for kind in ("note", "fix"):
        names = found_ids(ask(built, "search", "memory", "--kind", kind, "--arch", "sm_90"))
        assert names
        assert "notes/ampere" not in names
    few = ask(built, "search", "memory", "--tokens", "1")
    assert len(found_ids(few)) == 1


def test_own_pairs_are_added_once_and_found(
    tmp_path: Path, pair: tuple[str, str], ask: Callable[..., dict[str, object]], cli: Cli
) -> None:
    where = tmp_path / "own"
    words = ["add", pair[0], "--answer", pair[1], "--title", "A doubled row", "--licence", "MIT"]
    first = ask(where, *words)
    name = str(first["id"])
    assert first["state"] == "added"
    assert name.startswith("own/")
    assert len(name) == len("own/") + 12
    assert ask(where, *words)["state"] == "known already"
    assert name in found_ids(ask(where, "search", "--module", pair[0], "--kind", "pair"))
    entry = ask(where, "show", name)["entry"]
    assert isinstance(entry, dict)
    assert (entry["verified"], entry["licence"], entry["kind"]) == ("no", "MIT", "pair")
    assert entry["source"] == "doubled.py"
    assert "softmax" in entry["structure"]["ops"]
    said = cli(["knowledge", *words, "--where", str(where)]).out
    assert "known already, not verified: A doubled row" in said


def test_a_pair_is_read_and_never_run(tmp_path: Path) -> None:
    trace = tmp_path / "ran"
    evil = f"open({str(trace)!r}, 'w')\n"
    problem, answer = tmp_path / "p.py", tmp_path / "a.py"
    problem.write_text(evil + MODULE)
    answer.write_text(evil + TRITON)
    where = str(tmp_path / "w")
    words = ["knowledge", "add", str(problem), "--answer", str(answer), "--where", where]
    assert run(words) == 0
    assert not trace.exists()


def test_show_prints_the_whole_entry_without_control_characters(tmp_path: Path, cli: Cli) -> None:
    with open_knowledge_store(tmp_path) as truth:
        truth.put([entry_of("own/1", answer="x = '\x1b[2Jblank'\n")])
        truth.put([entry_of("own/1", answer="x = '\x1b[2Jother'\n")])
        truth.remove("own/1", "no use")
    shown = cli(["knowledge", "show", "own/1", "--history", "--where", str(tmp_path)]).out
    assert "other" in shown
    assert "\x1b" not in shown
    assert "found no more" in shown
    assert "(no use)" in shown
    assert shown.count("until ") == 2


def test_history_in_json(built: Path, ask: Callable[..., dict[str, object]]) -> None:
    answer = ask(built, "show", "notes/hopper", "--history")
    assert answer["current"] is True
    assert answer["history"] == []


def test_stats_count(built: Path, ask: Callable[..., dict[str, object]]) -> None:
    answer = ask(built, "stats")
    kinds = answer["by_kind"]
    assert isinstance(kinds, dict)
    assert sum(kinds.values()) == answer["current"]
    assert kinds["fix"] > 10
    assert run(["knowledge", "stats", "--where", str(built)]) == 0


def test_an_export_comes_back_and_what_is_foreign_says_so(
    built: Path, tmp_path: Path, ask: Callable[..., dict[str, object]]
) -> None:
    first, second, file = tmp_path / "first", tmp_path / "second", tmp_path / "all.jsonl.gz"
    with open_knowledge_store(first) as truth:
        truth.put([entry_of("generated/1", verified="gpu"), entry_of("own/1", verified="no")])
    assert ask(first, "export", str(file))["entries"] == 2
    assert ask(first, "import", str(file))["same"] == 2
    assert ask(second, "import", str(file))["added"] == 2
    assert ask(second, "import", str(file))["changed"] == 0
    with open_knowledge_store(second) as truth:
        foreign, own = truth.get("generated/1"), truth.get("own/1")
    assert foreign is not None
    assert own is not None
    assert foreign.source == f"{FOREIGN}somewhere"
    assert foreign.verified == "gpu"
    assert own.source == f"{FOREIGN}somewhere"
    back = tmp_path / "back.jsonl"
    ask(second, "export", str(back), "--kind", "pair")
    assert ask(first, "import", str(back))["same"] == 2
    packaged = tmp_path / "packaged.jsonl"
    ask(built, "export", str(packaged), "--kind", "kernel")
    assert ask(second, "import", str(packaged))["changed"] == 0


def test_broken_lines_of_an_import_are_named(tmp_path: Path, cli: Cli) -> None:
    file = tmp_path / "some.jsonl"
    file.write_text('{"id": "own/1"}\n' + entry_of("own/2").model_dump_json() + "\n")
    shown = cli(["knowledge", "import", str(file), "--where", str(tmp_path / "w")]).out
    assert "1 added" in shown
    assert "1 broken lines" in shown
    assert "line 1: " in shown


def test_doctor_says_what_lags_and_what_is_damaged(tmp_path: Path, cli: Cli) -> None:
    words = ["knowledge", "doctor", "--where", str(tmp_path)]
    assert "nothing in" in cli(words).out
    assert list(tmp_path.iterdir()) == []
    assert run(["knowledge", "build", "--where", str(tmp_path)]) == 0
    with open_knowledge_store(tmp_path) as truth:
        truth.put([entry_of("own/1")])
    shown = cli(words).out
    assert shown.count("1 changes behind") == 2
    assert "Next: agentkernel knowledge build" in shown
    rows = next(tmp_path.glob("vectors/*/rows.f32"))
    rows.write_bytes(bytes(rows.stat().st_size))
    assert "Vector index was damaged (rows.f32" in " ".join(cli(words).out.split())
    file = tmp_path / "knowledge.sqlite"
    content = file.read_bytes()
    file.write_bytes(content[:8192] + b"\x55" * 65536 + content[8192 + 65536 :])
    findings = cli.json([*words, "--json"], 4)["findings"]
    assert findings[-1]["name"] == "truth"
    assert "damaged" in findings[-1]["found"]
    for lose in (lambda: file.write_bytes(b""), file.unlink):
        lose()
        finding = cli.json([*words, "--json"], 4)["findings"][-1]
        assert finding["name"] == "truth"
        assert "gone" in finding["found"]
        assert "knowledge import" in finding["mend"]


@pytest.mark.quick(5)
@pytest.mark.parametrize(
    "words",
    [
        ["build", "--embedder", "none"],
        ["search"],
        ["search", "x", "--kind", "poem"],
        ["search", "x", "--verified", "maybe"],
        ["search", "x", "--arch", "vliw"],
        ["search", "x", "--limit", "0"],
        ["search", "--module", "nowhere.py"],
        ["search", "--error", "nowhere.log"],
        ["search", "x"],
        ["search", "x", "--chroma", "notaurl"],
        ["show", "own/nothing"],
        ["stats"],
        ["eval", "benchmarks/retrieval"],
        ["stats", "-c", "knowledge.nothing=1"],
        ["add", "nowhere.py", "--answer", "nowhere.py"],
        ["import-kernelbook", "nowhere"],
        ["import-kernelbook", "x", "--licence", "MIT", "--allow-any-licence"],
        ["generate", "nowhere"],
        ["export", "nowhere/x.jsonl"],
        ["import", "nowhere.jsonl"],
        ["doctor", "--embedder", "none"],
        ["forget"],
    ],
)
def test_a_mistake_is_one_line(words: list[str], tmp_path: Path, cli: Cli) -> None:
    where = [] if words == ["forget"] else ["--where", str(tmp_path / "w")]
    cli.refused(["knowledge", *words, *where])
    if words[0] in ("search", "show", "stats", "eval", "doctor"):
        assert not (tmp_path / "w").exists()


def test_what_is_no_pair_is_not_added(tmp_path: Path, pair: tuple[str, str], cli: Cli) -> None:
    bad = tmp_path / "bad.py"
    bad.write_text("def (")
    for problem, answer in ((str(bad), pair[1]), (pair[0], str(bad))):
        words = ["add", problem, "--answer", answer, "--where", str(tmp_path / "w")]
        assert "bad.py" in cli(["knowledge", *words], 2).err
    assert not (tmp_path / "w").exists()


@pytest.mark.parametrize("command", ["build", "stats"])
def test_a_file_in_place_of_the_folder_is_one_line(command: str, tmp_path: Path, cli: Cli) -> None:
    (tmp_path / "file").write_text("")
    assert cli(["knowledge", command, "--where", str(tmp_path / "file")], 2).err.count("\n") == 1


def test_the_settings_name_the_folder(
    built: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    found = cli.json(["knowledge", "stats", "--json", "-c", f"knowledge.index={built}"])
    assert found["file"] == str(built / "knowledge.sqlite")


@pytest.mark.parametrize("command", [command.name for command in KNOWLEDGE_COMMANDS])
def test_every_command_has_help_and_its_place_in_the_pages(command: str, cli: Cli) -> None:
    assert "--where" in cli(["knowledge", command, "--help"]).out
    page = Path(__file__).parents[3] / "docs" / "knowledge.md"
    assert f"agentkernel knowledge {command}" in page.read_text()


def entry_of(entry_id: str, *, answer: str = "x = 1\n", verified: str = "no") -> Entry:
    values = {"title": "Title", "problem": MODULE, "source": "somewhere", "licence": "MIT"}
    return Entry.model_validate(
        {
            "id": entry_id,
            "kind": "pair",
            "answer": answer,
            "passages": ("title",),
            "verified": verified,
            **values,
        }
    )


@pytest.mark.slow
def test_eval_prints_a_row_a_kind_and_what_it_missed(tmp_path: Path, cli: Cli) -> None:
    where = ["--where", str(tmp_path / "base"), "--embedder", "static"]
    folder = Path(__file__).parents[3] / "benchmarks" / "retrieval"
    cli(["knowledge", "build", *where])
    found = cli.json(["knowledge", "eval", str(folder), *where, "--json"])
    lexical, meaning, every = found["outcomes"]
    assert lexical["name"].startswith("words only")
    assert meaning["name"] == "meaning only"
    assert every["by_kind"]["all"]["recall"]["5"] >= 0.9
    bar = lexical["by_kind"]["all"]["recall"]["5"]
    assert every["by_kind"]["all"]["recall"]["5"] >= bar + 0.09
    assert found["gaps"] > 0
    assert "judgements.yaml" in cli(["knowledge", "eval", str(tmp_path / "none"), *where], 2).err
