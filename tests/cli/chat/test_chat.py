"""Does a session go on through scripts, pipes, bugs, stops and editors, and show it all?"""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest
from rich.console import Console, RenderableType

from agentkernel.chat.replies import Reply, Source, StepRan
from agentkernel.chat.tree import Place
from agentkernel.cli.app import run
from agentkernel.cli.chat import screen, sessions
from agentkernel.cli.chat.loading import BackgroundLoad
from agentkernel.cli.chat.sessions import Flags, last_used, read_flags
from agentkernel.cli.rendering.events import STOPS, session_event
from agentkernel.runtime.machine import installed_versions
from agentkernel.tools.problem.loading import load_problem
from agentkernel.tools.run_store import Manifest
from agentkernel.workflows.events import Decided, Noted
from agentkernel.workflows.state import StopReason
from tests.cli.chat.chat_fake import SOURCE, FakeSession

PROBLEM = """import torch
from torch import nn

print("a module that prints")


class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x)


def get_inputs():
    return [torch.randn(24, 40)]


def get_init_inputs():
    return []
"""


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sessions, "session_class", lambda: FakeSession)
    for name in ("VISUAL", "EDITOR"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "small.py").write_text(PROBLEM)
    return tmp_path


def script(text: str) -> list[str]:
    Path("lines.txt").write_text(text)
    return ["chat", "small.py", "--target", "h100", "--script", "lines.txt"]


def session_folder(place: Path) -> Path:
    return next(place.glob("agentkernel-runs/small-chat-*"))


def turns(place: Path) -> list[str]:
    found: list[str] = json.loads((session_folder(place) / "session.sqlite").read_text())["turns"]
    return found


def test_a_script_is_echoed_answered_and_saved(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(script("# a comment\n\nwhy is it slow?\n/run 1\n/tree\n")) == 3
    shown = capsys.readouterr().out
    assert "small> why is it slow?" in shown
    assert "a comment" not in shown
    assert "run small-1: small for h100-sxm (no local GPU)" in shown
    assert "made c1" in shown
    assert "small c1> /tree" in shown
    assert "agentkernel resume small-chat-20260101-120000-abcd" in shown
    assert turns(place) == ["why is it slow?", "/run 1", "/tree"]
    assert (session_folder(place) / "closed").is_file()


def test_the_exit_code_is_the_last_results(place: Path) -> None:
    assert run(script("/status\nlost\n")) == 0
    assert turns(place) == ["/status"]


def test_nothing_that_moves_a_terminal_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    run(script("show\n/run\nwhat \x1b[31m is\x07 this\n/\x1b[2J\n"))
    shown = capsys.readouterr().out
    assert "\x1b" not in shown
    assert "\x07" not in shown
    assert "a note with \\x1b[2J in it" in shown


def test_a_pasted_block_is_one_input(place: Path) -> None:
    run(script(f"<<<\n# a comment in the paste\n{SOURCE}\n>>>\n/status\n"))
    assert turns(place)[0] == f"# a comment in the paste\n{SOURCE}"


def test_a_block_without_its_end_is_used_by_nobody(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(script("/status\n<<<\nclass ModelNew:\n"))
    assert "The block that begins at line 2 with <<< has no >>>." in capsys.readouterr().out
    assert turns(place) == ["/status"]


def test_an_exported_session_is_a_script(place: Path) -> None:
    lines = [{"text": "run", "at": "x"}, {"text": "a\nb"}]
    Path("session.jsonl").write_text("\n".join(json.dumps(line) for line in lines))
    words = ["chat", "small.py", "--target", "h100", "--script", "session.jsonl"]
    assert run(words) == 3
    assert turns(place) == ["run", "a\nb"]


@pytest.mark.parametrize(
    ("name", "content", "why"),
    [
        ("none.txt", None, "No such file"),
        ("bytes.txt", b"\xff\xfe\x00", "no UTF-8"),
        ("bad.jsonl", b"[1]\n", "Line 1 of 'bad.jsonl' is no turn"),
        ("bad.jsonl", b"{\n", "Line 1 of 'bad.jsonl' is no turn"),
    ],
)
def test_a_script_that_cannot_be_read(
    name: str, content: bytes | None, why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if content is not None:
        Path(name).write_bytes(content)
    assert run(["chat", "small.py", "--target", "h100", "--script", name]) == 2
    error = capsys.readouterr().err
    assert why in error
    assert error.count("\n") == 1


def test_json_is_one_object_a_line_and_nothing_else(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*script("run\n/nothing\nask\nyes\n/quit\nnever\n"), "--json"]) == 3
    captured = capsys.readouterr()
    objects = [json.loads(line) for line in captured.out.splitlines()]
    names = [next(iter(item)) for item in objects]
    assert all(len(item) == 1 for item in objects)
    assert names[:2] == ["session", "event"]
    assert set(names) == {"session", "event", "asked", "reply"}
    kinds = [item["reply"]["kind"] for item in objects if "reply" in item]
    assert kinds == ["ran", "said", "ran", "ended"]
    assert "a module that prints" in captured.err
    assert turns(place) == ["run", "ask", "/quit"]


@pytest.mark.parametrize(("answers", "made"), [("n\n", 0), ("\n", 0), ("", 0), ("y\n", 1)])
def test_nothing_goes_on_without_a_yes(
    answers: str, made: int, capsys: pytest.CaptureFixture[str]
) -> None:
    run(script(f"ask\n{answers}"))
    shown = capsys.readouterr().out
    assert "Round 1, candidate:\n  one fused kernel: fewer \\x1bbytes\n" in shown
    assert "class ModelNew:" in shown
    assert "Go on with this? [y/N/a(lways)]" in shown
    assert ("made c1" in shown) == bool(made)


def test_always_is_asked_once(capsys: pytest.CaptureFixture[str]) -> None:
    run(script("ask\nalways\nask\n"))
    shown = capsys.readouterr().out
    assert shown.count("Go on with this?") == 1
    assert "made c2" in shown


def test_a_bug_and_a_mistake_leave_the_session_alive(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(script("crash\nlost\n/status\n")) == 0
    shown = capsys.readouterr().out
    assert "RuntimeError: a bug of two lines. This is a bug; the session lives." in shown
    assert "No candidate c9." in shown
    assert turns(place) == ["/status"]


def test_a_picture_with_a_bug_leaves_the_session_alive(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def draw(reply: Reply, console: Console) -> RenderableType:
        raise ZeroDivisionError("no width")

    monkeypatch.setattr(screen, "picture", draw)
    assert run(script("/status\n/cost\n")) == 0
    assert capsys.readouterr().out.count("ZeroDivisionError: no width. This is a bug") == 2
    assert turns(place) == ["/status", "/cost"]


def test_debug_shows_a_bug() -> None:
    with pytest.raises(RuntimeError, match="a bug"):
        run(script("crash\n"), debug=True)


def test_what_needs_no_session_opens_none(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(script("/help\n/help save\n/rooflin\n/quit\n/never\n")) == 0
    shown = capsys.readouterr().out
    assert "/roofline [CANDIDATE]" in shown
    assert "Did you mean /roofline?" in shown
    assert "/never" not in shown
    assert "Go on with" not in shown
    assert not (place / "agentkernel-runs").exists()


def test_set_changes_the_session(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(script("/set budget.rounds 7\n"))
    assert 'set {"budget.rounds": 7}' in capsys.readouterr().out
    assert turns(place) == ["/set budget.rounds 7"]


def test_a_stop_ends_a_script_with_130_and_saves(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    timer = threading.Timer(0.0, lambda: None)

    class Interrupting(FakeSession):
        def step(self, text: str, seconds: float = 0.0) -> object:  # type: ignore[override]
            if seconds:
                timer.start()
            return super().step(text, seconds)

    def interrupt() -> None:
        time.sleep(0.2)
        os.kill(os.getpid(), signal.SIGINT)

    timer.function = interrupt
    sessions.session_class = lambda: Interrupting
    assert run(script("slow\n/status\n")) == 130
    assert "Stopped." in capsys.readouterr().out
    assert turns(place) == ["slow"]


def test_a_piped_stdin_is_a_script(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    piped = io.TextIOWrapper(io.BytesIO(b"run\r\n\xff\xfe\n" + b"x" * 2**20 + b"\n/quit\n"))
    monkeypatch.setattr(sys, "stdin", piped)
    assert run(["chat", "small.py", "--target", "h100"]) == 3
    shown = capsys.readouterr().out
    assert "small> run" in shown
    assert max(map(len, shown.splitlines())) < 400
    assert len(turns(place)[2]) == 2**20


def editor(place: Path, body: str) -> str:
    path = place / "my editor.sh"
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return f"'{path}'"


@pytest.mark.parametrize("line", ["/edit", "edit"])
def test_an_edited_candidate_is_offered(
    line: str, place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("EDITOR", "false")
    monkeypatch.setenv("VISUAL", editor(place, 'echo "new = 1" >> "$1"; echo noise'))
    run(script(f"{line}\n"))
    shown = capsys.readouterr().out
    assert f"judged {len(SOURCE) + 8} characters, edited from None" in shown
    assert "noise" not in shown
    assert (session_folder(place) / "edits" / "module-1.py").read_text() == SOURCE + "new = 1\n"


def test_an_edit_that_is_refused_says_where_it_is(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("EDITOR", editor(place, 'echo "def (" >> "$1"'))
    run(script("/edit\n"))
    shown = "".join(capsys.readouterr().out.split())
    assert "ItisnoPython.Thetextiskeptin'agentkernel-runs/" in shown
    assert "edits/module-1.py'." in shown


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("true", "Nothing was changed"),
        ('printf " \\n" > "$1"', "The file is empty"),
        ('rm "$1"', "cannot be read"),
        ('printf "\\377" > "$1"', "no UTF-8"),
        ('echo half > "$1"; exit 3', "ended with code 3, so nothing is judged. The text is kept"),
        ("kill -9 $$", "ended with signal 9"),
    ],
)
def test_an_editor_that_fails_is_one_line(
    body: str,
    words: str,
    place: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("EDITOR", editor(place, body))
    assert run(script("/edit\n/status\n")) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert words in shown
    assert "judged" not in shown.replace("nothing is judged", "").replace("Nothing is judged", "")
    assert turns(place) == ["/edit", "/status"]


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("", "$VISUAL and $EDITOR are not set"),
        ("nano 'x", "which no shell can read"),
        ("/no/such/editor", "cannot be started: No such file"),
    ],
)
def test_no_editor_is_one_line(
    value: str, words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("EDITOR", value)
    assert run(script("/edit\n")) == 0
    assert words in " ".join(capsys.readouterr().out.split())


def test_resume_opens_the_session_again(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run([*script("run\n"), "-c", "budget.rounds=2"])
    folder = session_folder(place)
    assert read_flags(folder) == Flags(given={"target": "h100"}, overrides=("budget.rounds=2",))
    monkeypatch.setattr(sys, "stdin", io.StringIO("run\n"))
    capsys.readouterr()
    assert run(["resume", "small-chat"]) == 3
    shown = capsys.readouterr().out
    assert "1 step, 1 candidate, now at c1. The last request was 'run'." in shown
    assert "made c2" in shown
    assert turns(place) == ["run", "run"]
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    assert run(["resume", str(folder), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["session"]["id"] == folder.name


def finished_run(place: Path, name: str, *flags: str) -> Path:
    """A run as it lies there afterwards, made by a command with these flags."""
    folder = place / "agentkernel-runs" / name
    folder.mkdir()
    (folder / "run.sqlite").touch()
    manifest = Manifest(
        id=name,
        created="2026-01-01T13:00:00+00:00",
        problem=load_problem("small.py").problem,
        settings=Flags(given={"target": "h100"}).settings({}),
        target="h100-sxm",
        note="no local GPU",
        versions=installed_versions(),
        judge_sha256="0" * 64,
        flags=flags,
    )
    (folder / "run.json").write_text(manifest.model_dump_json())
    return folder


def test_last_is_what_was_used_last(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = place / "agentkernel-runs"
    assert last_used(runs) is None
    run(script("run\n"))
    folder = session_folder(place)
    assert last_used(runs) == folder
    other = finished_run(place, "other-20260101-130000-abcd")
    os.utime(folder / "session.sqlite", (1e9, 1e9))
    os.utime(other / "run.sqlite", (2e9, 2e9))
    assert last_used(runs) is None, "a run was used after the chat"
    os.utime(folder / "session.sqlite", (3e9, 3e9))
    assert last_used(runs) == folder
    os.utime(folder / "session.sqlite", (1e9, 1e9))
    finished_run(place, "own-20260101-140000-abcd", "chat", f"session={folder.name}", "step=1")
    assert last_used(runs) == folder, "its own step was cut off"
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    capsys.readouterr()
    assert run(["resume", "last", "--json"]) == 0
    shown = capsys.readouterr()
    assert f"'last' is the chat {folder.name}" in shown.err
    assert json.loads(shown.out)["session"]["id"] == folder.name


def test_a_step_that_was_cut_off_is_shown_when_it_ended(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run(script("cut off\n"))
    (session_folder(place) / "flags.json").unlink()
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    capsys.readouterr()
    assert run(["resume", "small"]) == 0
    shown = capsys.readouterr().out
    assert "finished: the module stays as it is\nthe step was finished\nsmall-chat" in shown
    assert "1 candidate, now at c1" in shown


def test_resume_of_a_name_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["resume", "nothing"]) == 2
    assert "No run 'nothing'" in capsys.readouterr().err


def test_chat_alone_lists_the_sessions(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["chat"]) == 0
    assert "agentkernel chat FILE" in capsys.readouterr().out
    run(script("run\n"))
    capsys.readouterr()
    assert run(["chat"]) == 0
    shown = capsys.readouterr().out
    assert "small-chat-20260101-120000-abcd" in shown
    assert "agentkernel resume SESSION" in shown
    assert run(["chat", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["id"] == "small-chat-20260101-120000-abcd"


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["chat", "none.py"], "No such file: 'none.py'"),
        (["chat", "small.py", "--target", "h1000"], "Unknown target 'h1000'"),
        (["chat", "small.py", "-c", "budget.round=1"], "Unknown setting"),
        (["chat", "broken.py"], "broken.py"),
    ],
)
def test_a_session_that_cannot_begin(
    words: list[str], why: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("broken.py").write_text("def (:\n")
    monkeypatch.setattr(sys, "stdin", io.StringIO("run\n"))
    assert run(words) == 2
    error = capsys.readouterr().err
    assert why in error
    assert error.count("\n") == 1


def test_null_takes_a_flag_back() -> None:
    flags = Flags(given={"target": "h100", "budget.usd": 2.0})
    assert flags.settings({}).budget.usd == 2.0
    assert flags.settings({"budget.usd": None}).budget.usd is None


def test_loading_tells_of_a_failure_and_raises_it_where_it_is_asked() -> None:
    heard: list[BaseException] = []

    def fail() -> Iterator[None]:
        raise ValueError("no module")

    loading = BackgroundLoad(fail)  # type: ignore[arg-type]
    loading.start(heard.append)
    with pytest.raises(ValueError, match="no module"):
        loading.problem()
    loading.leave()
    assert loading.ready
    assert [str(error) for error in heard] == ["no module"]


def test_the_end_says_once_how_to_go_on_with_the_command_on_its_own_line(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for text in ("run\n/quit\n", "run\n"):
        run(script(text))
        name = session_folder(place).name
        shown = capsys.readouterr().out
        assert shown.endswith(f"Saved. Go on with:\nagentkernel resume {name}\n")
        assert "Bye." not in shown
        shutil.rmtree(place / "agentkernel-runs")


def test_a_candidate_by_hand_that_is_refused_says_how_to_look_at_it(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    hint = "'why was c2 rejected?' says why, '/diff c2' what was changed."

    def offer(session: FakeSession, text: str) -> tuple[Reply, ...]:
        made = session.step(text)
        assert isinstance(made, StepRan)
        if text == "refused":
            nodes = (
                *session.tree.nodes[:-1],
                session.tree.nodes[-1].evolve(origin="edited"),
            )
            session.tree = session.tree.evolve(nodes=nodes, places=(Place(candidate=1),), at=0)
        return (made,)

    monkeypatch.setattr(FakeSession, "say", offer)
    run(script("run\nrefused\n"))
    assert capsys.readouterr().out.count(hint) == 1
    shutil.rmtree(place / "agentkernel-runs")
    run(script("run\nrun\n"))
    assert hint not in capsys.readouterr().out


def test_a_session_tells_no_names_that_nobody_can_use() -> None:
    kept = Noted(text="experience kept: experience/b59e763dc8806cd7")
    failed = Noted(text="experience is not kept: the disk is full")
    assert session_event(kept) is None
    assert session_event(failed) is failed
    for stop in get_args(StopReason):
        ended = Decided(round=1, next="finish", stop=stop, best=None, status="failed", reason="r")
        told = session_event(ended)
        assert isinstance(told, Decided)
        assert told.stop == f"done: {STOPS[stop]}"


@pytest.mark.parametrize(("terminal", "whole"), [(False, True), (True, False)])
def test_a_source_is_whole_in_a_pipe(terminal: bool, whole: bool) -> None:
    console = Console(file=io.StringIO(), width=80, force_terminal=terminal, color_system=None)
    long = "value = " + "1" * 300
    screen.TextScreen(console).reply(Source(number=1, name="c1.py", text=f"{long}\n"))
    assert isinstance(console.file, io.StringIO)
    assert (long in console.file.getvalue()) == whole
    assert console.width == 80
