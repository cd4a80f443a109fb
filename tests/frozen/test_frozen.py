"""What earlier code left on a disk opens, goes on and says what it said: see make.py.

The answers stand in `said/`; AGENTKERNEL_RECORD=1 records them anew.
"""

from __future__ import annotations

import io
import json
import re
import shutil
import sys
import tarfile
from html import unescape
from pathlib import Path

import pytest

from agentkernel.cli.app import run
from agentkernel.knowledge.store import open_knowledge_store
from agentkernel.knowledge.vector_index import open_vectors
from agentkernel.tools.certificate.record import read_certificate
from agentkernel.tools.run_store import open_run
from agentkernel.workflows.optimize import resume
from agentkernel.workflows.run import open_saver
from tests.goldens import as_text, same_as_golden
from tests.knowledge.memory_store import HashEmbedder
from tests.workflows import scripted_process
from tests.workflows.fakes import attempts_of

HERE = Path(__file__).parent
SAID = HERE / "said"
EXPORTED = re.compile(rb'"exported": "[^"]*"')
NOT_SEEN = re.compile(r"<(script|style)\b.*?</\1>|<[^>]*>", re.DOTALL)


@pytest.fixture(scope="session")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All fixtures; nobody writes here."""
    folder = tmp_path_factory.mktemp("frozen")
    for path in sorted(HERE.glob("*.tar.gz")):
        with tarfile.open(path) as archive:
            archive.extractall(folder / path.name.removesuffix(".tar.gz"), filter="data")
    return folder


@pytest.fixture
def place(
    unpacked: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Path:
    """A copy of the fixture that the test is marked with, as the current folder."""
    folder = tmp_path / "place"
    shutil.copytree(unpacked / request.param, folder)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    return folder


def fixture(name: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("place", [name], indirect=True)


def only(pattern: str) -> Path:
    """The one path below the current folder that fits."""
    (found,) = Path().glob(pattern)
    return found


def heard(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> str:
    """What a command prints, without the test's own folder."""
    capsys.readouterr()
    assert run(list(words)) == code
    text = capsys.readouterr().out.replace(str(Path.cwd()), "<folder>")
    return "".join(f"{line.rstrip()}\n" for line in text.splitlines())


def told(text: str) -> str:
    """A panel without its last block: paths of any length, which are wrapped."""
    return text.partition("\nrun   ")[0] + "\n"


def as_said(name: str, text: str) -> None:
    same_as_golden(SAID / name, text, f"What is said of the frozen {name.split('.')[0]}")


def tidy(text: str) -> str:
    """JSON as it is printed, a line a value."""
    return as_text(json.loads(text))


def words_of(page: Path) -> str:
    """What a reader of a page sees."""
    text = unescape(NOT_SEEN.sub("\n", page.read_text(encoding="utf-8")))
    return "".join(f"{line.strip()}\n" for line in text.splitlines() if line.strip())


@fixture("run")
def test_a_finished_run(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    as_said("run.show.txt", told(heard(capsys, "show")))
    as_said("run.show.json", tidy(heard(capsys, "show", "--json")))
    as_said("run.runs.json", tidy(heard(capsys, "runs", "--json")))
    as_said("run.source.txt", heard(capsys, "show", "--source"))
    heard(capsys, "report")
    as_said("run.report.txt", words_of(only("agentkernel-runs/*/report.html")))


@fixture("run")
def test_a_finished_run_answers_a_resume_at_once(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    certificate = only("agentkernel-runs/*/certificate.json")
    before = certificate.read_bytes()
    (line,) = heard(capsys, "resume", certificate.parent.name, "--json").splitlines()
    as_said("run.resume.json", tidy(line))
    assert certificate.read_bytes() == before


@fixture("run")
def test_a_certificate_holds(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("verify", str(only("agentkernel-runs/*/certificate.json")), "--no-replay")
    as_said("run.verify.json", tidy(heard(capsys, *words, "--json")))
    assert heard(capsys, *words).endswith("not replayed\nholds\n")


@pytest.mark.slow
@fixture("run")
def test_a_certificate_is_replayed(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The judge and the versions may be others by now; the verdict may not."""
    path = only("agentkernel-runs/*/certificate.json")
    capsys.readouterr()
    run(["verify", str(path), "--json"])
    found = json.loads(capsys.readouterr().out)
    assert (found["signature"], found["edited"], found["verdict"]["accepted"]) == (
        "valid",
        [],
        True,
    )


@fixture("killed")
def test_a_killed_run(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    as_said("killed.show.txt", heard(capsys, "show", "--runs", "killed-runs"))


@pytest.mark.slow
@fixture("killed")
def test_a_killed_run_goes_on(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    drafted = only("killed-runs/*/candidates/*.py").stem
    heard(capsys, "resume", "--runs", "killed-runs")
    certificate = read_certificate(only("killed-runs/*/certificate.json"))
    assert certificate.status == "verified"
    assert certificate.candidate_sha256 is not None
    assert certificate.candidate_sha256.startswith(drafted)


@fixture("scripted")
def test_every_value_of_a_checkpoint_is_restored(place: Path) -> None:
    """A type that the list of the saver lacks comes back as a plain dict, which a state accepts."""
    with open_saver(only("scripted/runs/*/checkpoint.sqlite")) as saver:
        (last, *_) = saver.list(None, limit=1)
        values = last.checkpoint["channel_values"]
    as_said("scripted.checkpoint.txt", as_text({key: types(item) for key, item in values.items()}))


def types(value: object) -> object:
    """The name of a value's type; of a sequence those of its items."""
    if isinstance(value, list | tuple):
        return sorted({str(types(item)) for item in value})
    return type(value).__name__


@fixture("scripted")
def test_a_checkpoint_goes_on(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = Path("scripted/runs")
    as_said("scripted.show.txt", heard(capsys, "show", "--runs", str(runs)))
    store = open_run(runs, "last")
    before = [item.candidate.sha256 for item in attempts_of(store)]
    judged = [item.candidate for item in store.records.verdicts()]
    store.close()
    assert before
    workshop = scripted_process.workshop(0.0)
    result = resume("last", runs=runs, workshop=workshop)
    assert not set(judged) & set(workshop.judged), "nothing is judged twice"
    kept = ("status", "reason", "candidate_sha256", "speedup", "speedup_ci95", "baseline")
    dumped = result.model_dump(mode="json")
    as_said("scripted.resume.json", as_text({key: dumped.get(key) for key in kept}))


@fixture("chat")
def test_a_chat_goes_on(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = "/tree\n/status\n/show c1\nwhy is it slow?\n"
    monkeypatch.setattr(sys, "stdin", io.StringIO(asked))
    name = only("chats/plus-chat-*").name
    as_said("chat.resume.txt", heard(capsys, "resume", name, "--runs", "chats"))


@fixture("night")
def test_a_library_lists_its_kernels(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    where = ("--library", "library.sqlite")
    listed = heard(capsys, "library", "list", "--json", *where)
    as_said("night.list.json", tidy(listed))
    as_said("night.list.txt", heard(capsys, "library", "list", *where))
    name = json.loads(listed)[0]["sha256"]
    as_said("night.show.json", tidy(heard(capsys, "library", "show", name, "--json", *where)))


@fixture("night")
def test_a_library_is_exported_as_before(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    heard(capsys, "library", "export", "again", "--library", "library.sqlite")
    before, now = (
        {
            path.relative_to(folder).as_posix(): EXPORTED.sub(b"", path.read_bytes())
            for path in Path(folder).rglob("*")
            if path.is_file()
        }
        for folder in ("export", "again")
    )
    assert now == before
    assert any(name.endswith(".json") for name in now)


@fixture("night")
def test_certificates_of_a_library_hold(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = sorted(Path("export").rglob("*certificate*.json"))
    assert found
    for path in found:
        heard(capsys, "verify", str(path), "--no-replay")


@pytest.mark.slow
@fixture("night")
def test_a_library_verifies_again(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("library", "verify", "--all", "--unpickle", "--json", "--library", "library.sqlite")
    found = json.loads(heard(capsys, *words))
    assert found["kernels"]
    assert found["exit_code"] == 0


@fixture("night")
def test_a_night_has_its_page(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number, path in enumerate(sorted(Path("agentkernel-nights").glob("*/*/night.json"))):
        heard(capsys, "report", str(path.parent))
        as_said(f"night.{number}.page.txt", words_of(path.with_name("night.html")))


@fixture("bench")
def test_a_bench_is_compared_with_itself(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    as_said(
        "bench.compare.json", tidy(heard(capsys, "bench", "compare", "bench", "bench", "--json"))
    )


@fixture("bench")
def test_a_bench_has_nothing_left_to_do(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fast = ("-c", "judge.seeds=1", "-c", "budget.rounds=1", "-c", "knowledge.limit=0")
    words = ("bench", "suite", "--target", "h100", "--out", "bench", *fast)
    rows = Path("bench/rows.jsonl").read_text()
    as_said("bench.again.txt", heard(capsys, *words, code=1))
    assert Path("bench/rows.jsonl").read_text() == rows


@fixture("knowledge")
def test_a_knowledge_folder(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    where = ("--where", "knowledge")
    as_said("knowledge.stats.json", tidy(heard(capsys, "knowledge", "stats", "--json", *where)))
    with open_knowledge_store(Path("knowledge")) as store:
        names = [entry.id for _, entry in store.entries(0, 100)]
    shown = [
        json.loads(heard(capsys, "knowledge", "show", name, "--history", "--json", *where))
        for name in sorted(set(names))
    ]
    as_said("knowledge.show.json", as_text(shown))


@fixture("knowledge")
def test_vectors_are_read_as_they_lie(place: Path) -> None:
    embedder = HashEmbedder()
    files = {path: path.stat().st_mtime_ns for path in Path("knowledge/vectors").rglob("*.f32")}
    lines: list[str] = []
    with open_knowledge_store(Path("knowledge")) as store:
        dense = open_vectors(Path("knowledge/vectors"), embedder, lines.append)
        assert dense.seq == store.last_seq
        near = dense.search(embedder.embed(["SwiGLU gate"])[0], 2)
    assert lines == []
    assert {path: path.stat().st_mtime_ns for path in files} == files
    as_said(
        "knowledge.near.json", as_text([[item.entry_id, round(item.cosine, 4)] for item in near])
    )
