"""Does a session with a model behind it show it at work, ask before it judges, and go back?"""

from __future__ import annotations

import json
import shutil
import socket
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chat import scripted_session
from tests.cli.chat.scripted_endpoint import FASTER, FIRST, MENDED, READ, author, main
from tests.cli.chat.tmux_pane import REAL, Terminal, until
from tests.workflows import fakes
from tests.workflows.model_story import KEY, QUICK, ROOT, Place, serve

# isort: split
from agentkernel.chat.requests import WriteTo
from agentkernel.chat.session import Session
from agentkernel.cli.app import run
from agentkernel.cli.chat.input import read_script
from agentkernel.cli.rendering.live import LINES
from tests.agents.models.chat_server import Answer, ChatServer, Refuses, Scripted

CARD, COST = READ
NONSENSE = "sing me a song of six tiles"
QUESTION = "Go on with this? [y/N/a(lways)]"
Told = list[dict[str, dict[str, object]]]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    made = Place(tmp_path)
    for name, value in made.environment().items():
        monkeypatch.setenv(name, value)
    return made


def words(server: ChatServer, problem: Path) -> list[str]:
    """The command line of a session with the model of `server`."""
    model = ("--coder", "chat:openai:scripted", "--base-url", server.url)
    return ["chat", str(problem), *QUICK, *model, "--runs", "runs"]


def held(
    place: Place,
    script: list[Scripted],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    *lines: str,
) -> Told:
    """What a program is told of a session of `lines`."""
    monkeypatch.chdir(place.folder)
    Path("lines.txt").write_text("".join(f"{line}\n" for line in lines))
    with serve(script) as server:
        found = [*words(server, ROOT / "examples" / "softmax.py"), "--script", "lines.txt"]
        run([*found, "--json"])
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def of_kind(told: Told, name: str, kind: str) -> list[dict[str, object]]:
    return [item[name] for item in told if name in item and item[name]["kind"] == kind]


def kept(folder: Path) -> str:
    """Every event that the runs of a place keep."""
    found = []
    for path in folder.glob("runs/*/run.sqlite"):
        with sqlite3.connect(path) as base:
            found += ["".join(base.iterdump())]
        base.close()
    assert found
    return "\n".join(found)


def test_a_sentence_that_only_the_model_understands(
    place: Place, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    told = held(place, [author(0.0)], capsys, monkeypatch, CARD, "/undo", NONSENSE, "/cost")
    moves = [str(item["text"]) for item in of_kind(told, "reply", "moved")]
    assert moves[0].startswith("target: h100 -> a100")
    assert moves[1].endswith("-> h100.")
    notes = [item["text"] for item in of_kind(told, "event", "noted")]
    asking = "asking chat:openai:scripted what this means"
    assert notes == [asking, "read as: for the a100", asking]
    (puzzled,) = of_kind(told, "reply", "puzzled")
    why = "I do not know what that asks for, nor does chat:openai:scripted."
    assert puzzled["text"] == why
    assert [item["name"] for item in puzzled["nearest"]] == ["run", "why_slow", "help"]  # type: ignore[attr-defined]
    (cost,) = of_kind(told, "reply", "cost")
    asked = of_kind(told, "event", "model_asked")
    assert [item["agent"] for item in asked] == ["reader", "reader"]
    tokens = sum(int(str(item["prompt_tokens"])) for item in asked)
    assert f"{tokens} tokens in" in str(cost["text"])
    assert "$0.00" in str(cost["text"])


def test_a_model_that_refuses_the_key_is_one_line(
    place: Place, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    told = held(place, [Refuses(401)], capsys, monkeypatch, NONSENSE)
    (puzzled,) = of_kind(told, "reply", "puzzled")
    assert "the model cannot read the sentence" in str(puzzled["text"])
    assert KEY not in json.dumps(told)


def test_a_model_explains_in_words_that_are_marked_as_its_own(
    place: Place, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def explains(request: dict[str, object]) -> Answer:
        asked.append(json.dumps(request))
        return f"It divides by the sum. \x1b[2J {KEY}"

    told = held(
        place,
        [explains, Refuses(401)],
        capsys,
        monkeypatch,
        "/explain original 12",
        "/explain original",
    )
    first, second = of_kind(told, "reply", "explained")
    _, (line, words) = first["notes"]  # type: ignore[misc]
    assert line is None
    assert words.startswith("In the words of chat:openai:scripted, which nobody verified:\nIt ")
    assert "lines 12 to 12" in asked[0]
    assert "chat:openai:scripted cannot explain it: " in str(second["notes"])
    assert KEY not in json.dumps(told)


def test_what_is_written_is_told_and_not_kept(
    place: Place, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = f"No file \x1b[2J today, {KEY[:9]}{KEY[9:]}, only words. " * 30

    def prose(request: dict[str, object]) -> Answer:
        return text

    told = held(place, [prose], capsys, monkeypatch, "/run 1")
    pieces = of_kind(told, "event", "model_writing")
    written = "".join(str(item["text"]) for item in pieces)
    assert written.count("No file \\x1b[2J today, <OPENAI_API_KEY>, only words.") == 60
    assert pieces[0]["characters"] == len(str(pieces[0]["text"]))
    assert len(of_kind(told, "event", "model_asked")) == 2  # it is asked for a file once more
    assert "model_asked" in kept(place.folder)
    assert "model_writing" not in kept(place.folder)
    assert KEY not in json.dumps(told) + kept(place.folder)


def test_a_port_in_use_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(port) == 2
    told = capsys.readouterr().err
    assert told.startswith(f"Port {port} cannot be used: ")
    assert told.count("\n") == 1


@pytest.fixture
def asked(tmp_path: Path) -> Iterator[Session]:
    """After a run whose first candidate is approved, and no other."""
    answers = iter([True])
    runs = tmp_path / "runs"
    settings = scripted_session.settings_for(runs, "approve=candidate")
    with Session.begin(
        fakes.small_problem(tmp_path),
        settings,
        approve=lambda _: next(answers, False),
        workshop=scripted_session.shop(),
    ) as session:
        session.say("run")
        session.say("what did you try?")
        yield session


def test_answers_are_exported_with_the_turn_that_they_belong_to(
    asked: Session, tmp_path: Path
) -> None:
    assert [item.approved for item in asked.transcript()] == [(True, False, False), ()]
    asked.do(WriteTo(name="export", path=str(tmp_path / "out")))
    lines = ["run", "y", "n", "n", "what did you try?"]
    assert (tmp_path / "out" / "session.txt").read_text().splitlines() == lines
    assert read_script(tmp_path / "out" / "session.jsonl") == lines
    told = (tmp_path / "out" / "session.md").read_text()
    assert "Asked for approval, the answer was: yes, no, no." in told


def streamed(screen: str) -> list[str]:
    """What stands below the line that says who writes; [] where nobody does."""
    found = screen.splitlines()
    heads = [at for at, line in enumerate(found) if line.startswith("coder writes: ")]
    return found[heads[-1] + 1 :] if heads else []


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("tmux") is None, reason="needs tmux")
def test_a_sitting_with_a_model(place: Place) -> None:
    terminal = Terminal(place.folder, REAL)
    problem = place.folder / "softmax.py"
    shutil.copy(ROOT / "examples" / "softmax.py", problem)
    try:
        with serve([author()]) as server:
            own = {"XDG_DATA_HOME": str(place.folder / "data"), "CUDA_VISIBLE_DEVICES": ""}
            home = {"XDG_CONFIG_HOME": str(place.folder / "config"), "OPENAI_API_KEY": KEY}
            terminal.start(*words(server, problem), **own, **home)
            sit(terminal)
    finally:
        terminal.tmux("kill-server")
    script = (place.folder / "out" / "session.txt").read_text().splitlines()
    assert script[:6] == ["/set approve candidate", "/run 2", "y", "y", "n", "/run 1"]
    assert (place.folder / "out" / "softmax_optimized.py").read_text() == FASTER
    assert "model_writing" not in kept(place.folder)
    assert KEY not in kept(place.folder)


def sit(terminal: Terminal) -> None:
    """Type the whole story, and look at what comes."""
    terminal.last_line("softmax>")
    terminal.type("/set approve candidate", "Enter")
    terminal.wait("never -> candidate")
    terminal.type("/run 2", "Enter")
    until(lambda: len(streamed(terminal.screen())) > 2, terminal.screen)
    shown = terminal.screen()
    assert len(streamed(shown)) <= LINES
    assert all(len(line) <= 80 for line in shown.splitlines())
    answer(terminal, FIRST, "y")
    answer(terminal, MENDED, "y")
    assert "correctness: mismatch" in terminal.screen("-S", "-90")
    answer(terminal, FASTER, "n")
    # c2 is estimated slower than eager: the session does not move to it.
    terminal.last_line("softmax>")
    assert "coder writes" not in terminal.screen("-S", "-300")
    assert "c3 not judged: declined" in " ".join(terminal.screen().split())
    terminal.type("/run 1", "Enter")
    answer(terminal, FASTER, "y")
    terminal.last_line("softmax c3>")
    assert "New: c3 right (interpreted)" in " ".join(terminal.screen().split())
    terminal.type("/undo", "Enter")
    terminal.last_line("softmax>")
    terminal.type("/redo", "Enter")
    terminal.last_line("softmax c3>")
    terminal.type("bf16 is fine by me", "Enter")
    terminal.wait("strict -> bf16")
    terminal.type("/undo", "Enter")
    terminal.wait("bf16 -> strict")
    terminal.type(CARD, "Enter")
    terminal.wait("read as: for the a100")
    terminal.wait("h100 -> a100-80")
    terminal.type("/undo", "Enter")
    terminal.wait("a100-80 -> h100")
    terminal.type(COST, "Enter")
    terminal.wait("reader")
    terminal.type("/export out", "Enter")
    terminal.wait("out/session.md")
    terminal.type("/quit", "Enter")
    until(lambda: terminal.tmux("display", "-p", "#{pane_dead}").strip() == "1", terminal.screen)


def answer(terminal: Terminal, source: str, said: str) -> None:
    """Wait for the question about `source`, and answer it."""
    terminal.last_line(QUESTION)
    shown = "".join(terminal.screen("-S", "-60").split())  # a long line takes two
    assert shown.rpartition("importtorch")[2].startswith("".join(source.split())[11:])
    terminal.type(said, "Enter")
    until(lambda: not terminal.screen().endswith(QUESTION), terminal.screen)
