"""Does a captured session hold what each turn put on the screen, and nothing of this machine?"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from tests.cli.chat.capture_session import (
    BEGIN,
    END,
    capture,
    copied,
    first_lines,
    main,
    neutral,
    with_excerpt,
)
from tests.cli.chat.captured_pane import WIDTH, trimmed
from tests.cli.chat.captured_turns import Act, CaptureFailed, Keys, Turn, keys_of, turns_of

DOCS = Path(__file__).parents[3] / "docs"

TOY = """
import os, sys, time
print("a toy in", os.getcwd(), flush=True)
while True:
    try:
        line = input("toy> ")
    except EOFError:
        break
    if line == "long":
        print("\\n".join(f"line {n}" for n in range(100)))
    elif line == "ask":
        print("heard", input("Go on? [y/N/a(lways)] "))
        print("heard", input("Really? [y/N/a(lways)] "))
    elif line == "slow":
        try:
            print("begun", flush=True)
            time.sleep(60)
        except KeyboardInterrupt:
            print("stopped")
    elif line == "home":
        print(sorted(os.listdir(os.environ["HOME"])), "TOY_SECRET" in os.environ)
    elif line == "quit":
        print("bye")
        sys.exit(3)
    else:
        print("you said", line)
"""
needs_tmux = pytest.mark.skipif(shutil.which("tmux") is None, reason="needs tmux")


def test_turns_have_what_is_done_while_they_run() -> None:
    text = "# a story\nwhy?\n\nrun\n    wait drafted now\n    screen\n    answer y\n  keys C-c\n"
    acts = (Act("wait", "drafted now"), Act("screen"), Act("answer", "y"), Act("keys", "C-c"))
    assert turns_of(text) == (Turn("why?"), Turn("run", acts))


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("    wait x\n", "Line 1 is indented"),
        ("run\n    sleep 3\n", "Line 2, 'sleep 3': expected 'wait WORDS'"),
        ("run\n    wait\n", "Line 2, 'wait'"),
        ("run\n    screen now\n", "Line 2, 'screen now'"),
        ("run\n    excerpt all\n", "Line 2, 'excerpt all'"),
        ("run\n    excerpt 0\n", "Line 2, 'excerpt 0'"),
    ],
)
def test_a_line_that_is_no_turn_is_named(text: str, line: str) -> None:
    with pytest.raises(CaptureFailed, match=line):
        turns_of(text)


def test_keys_and_pastes_stand_in_a_turn() -> None:
    assert keys_of("/ro<Tab>") == (Keys("text", "/ro"), Keys("key", "Tab"))
    assert keys_of("<paste a file.py>") == (Keys("paste", "a file.py"),)
    assert keys_of("is c1 < c2, or c2 > c1?") == (Keys("text", "is c1 < c2, or c2 > c1?"),)


def test_the_scratch_home_is_not_told(tmp_path: Path) -> None:
    assert neutral(f"kept as {tmp_path}/work/a.py", tmp_path) == "kept as ~/work/a.py"


def test_blanks_at_the_end_are_cut() -> None:
    assert trimmed("a  \n  b\n\n \n") == "a\n  b"


def test_an_excerpt_says_where_it_is_cut() -> None:
    assert first_lines("a\nb\nc", 2) == "a\nb\n..."
    assert first_lines("a\n\nb", 2) == "a\n..."
    assert first_lines("a\nb", 2) == "a\nb"


def test_an_excerpt_stands_between_its_marks() -> None:
    page = f"before\n{BEGIN}old{END}\nafter\n"
    assert with_excerpt(page, "new") == f"before\n{BEGIN}new{END}\nafter\n"
    with pytest.raises(CaptureFailed, match="has no excerpt marks"):
        with_excerpt("before\nafter\n", "new")


def test_the_page_of_a_session_shows_what_was_captured() -> None:
    page = (DOCS / "chat.md").read_text()
    excerpt = page.partition(BEGIN)[2].partition(END)[0]
    whole = (DOCS / "sessions" / "swiglu.txt").read_text()
    turns = excerpt.split("\n\nswiglu")
    assert len(turns) > 3
    for turn in turns:
        assert turn.removesuffix("\n...") in whole


@pytest.mark.parametrize("name", ["swiglu", "softmax", "model"])
def test_a_kept_capture_fits_its_turns_and_tells_nothing_of_a_machine(name: str) -> None:
    shown = (DOCS / "sessions" / f"{name}.txt").read_text()
    turns = turns_of((DOCS / "sessions" / f"{name}-turns.txt").read_text())
    at = 0
    for turn in turns:
        first = next((keys.value for keys in keys_of(turn.text) if keys.kind == "text"), "> import")
        at = shown.index(first, at) + len(first)
    assert max(map(len, shown.split("\n\n", 1)[1].splitlines())) <= WIDTH
    for word in ("/tmp", "/root", "/home", "/work/", "Traceback"):
        assert word not in shown.replace("~/work/", "")


def test_the_files_of_a_command_lie_in_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "examples").mkdir()
    (tmp_path / "examples" / "a.py").write_text("x = 1\n")
    monkeypatch.chdir(tmp_path)
    copied(("chat", "examples/a.py", str(tmp_path / "examples" / "a.py")), tmp_path / "work")
    found = [path for path in (tmp_path / "work").rglob("*") if path.is_file()]
    assert found == [tmp_path / "work" / "examples" / "a.py"]


def taken(tmp_path: Path, turns: str, *flags: str) -> tuple[int, str]:
    """The exit code and the screens of `turns` typed at the toy."""
    (tmp_path / "turns.txt").write_text(turns)
    (tmp_path / "toy.py").write_text(TOY)
    out = tmp_path / "out.txt"
    words = (str(tmp_path / "turns.txt"), str(out), *flags, "--", "python")
    sys.argv = ["capture_session.py", *words, str(tmp_path / "toy.py")]
    return main(), out.read_text()


@pytest.fixture(autouse=True)
def _arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", sys.argv)
    monkeypatch.setenv("TOY_SECRET", "not for the screen")


@needs_tmux
def test_each_turn_is_on_the_screen_once(tmp_path: Path) -> None:
    lent = tmp_path / "lent"
    (lent / ".config").mkdir(parents=True)
    asked = "ask\n    answer y\n    answer n\n"
    slow = "slow\n    wait begun\n    screen\n    keys C-c\n"
    turns = f"hello;\nlong\n{asked}{slow}home\nquit\n"
    code, shown = taken(tmp_path, turns, "--home", str(lent), "--timeout", "20")
    assert code == 0
    opened, said, long, answered, *stopped, home, bye = shown.split("\n\n")[1:]
    assert opened == "a toy in ~/work"
    assert said == "toy> hello;\nyou said hello;"
    assert long.splitlines() == ["toy> long", *(f"line {number}" for number in range(100))]
    first, second = "Go on? [y/N/a(lways)] y\nheard y", "Really? [y/N/a(lways)] n\nheard n"
    assert answered == f"toy> ask\n{first}\n{second}"
    assert [part.splitlines()[1:3] for part in stopped[:1]] == [["toy> slow", "begun"]]
    assert stopped[1].endswith("stopped")
    assert home == "toy> home\n['.config', '.tmux', 'work'] False"
    assert bye == "toy> quit\nbye\n"
    assert "dead" not in shown


@pytest.mark.slow
@needs_tmux
def test_a_paste_and_a_key_are_typed(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("pasted words")
    code, shown = taken(tmp_path, "<paste mine.txt>\nabc<BSpace>d\nquit\n", "--timeout", "20")
    assert code == 0
    assert "you said pasted words" in shown
    assert "you said abd" in shown


@pytest.mark.slow
@needs_tmux
def test_a_turn_that_does_not_come_back_ends_the_capture(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, shown = taken(tmp_path, "hello\nslow\nquit\n", "--timeout", "1.5")
    assert code == 1
    error = capsys.readouterr().err
    assert error.startswith("Turn 'slow': After 1.5 s there was never the next prompt.")
    assert shown.endswith("you said hello\n\ntoy> slow\nbegun\n")


@needs_tmux
def test_a_command_that_ends_too_soon_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, shown = taken(tmp_path, "quit\nhello\n", "--timeout", "20")
    assert code == 1
    assert "The command ended before 'hello' on the screen." in capsys.readouterr().err
    assert "bye" in shown


@needs_tmux
def test_a_command_without_a_prompt_leaves_what_it_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules[__name__], "TOY", "print('no such module')")
    code, shown = taken(tmp_path, "hello\n", "--timeout", "20")
    assert code == 1
    assert "The command ended before a prompt." in capsys.readouterr().err
    assert "no such module" in shown


@needs_tmux
def test_what_runs_beside_ends_with_the_capture(tmp_path: Path) -> None:
    turns, program = tmp_path / "turns.txt", tmp_path / "beside.py"
    turns.write_text("quit\n")
    (tmp_path / "toy.py").write_text(TOY)
    end = "signal.signal(15, lambda *_: (open('ended', 'w').close(), sys.exit()))"
    program.write_text(
        f"import os, signal, sys, time\nos.chdir({str(tmp_path)!r})\n{end}\ntime.sleep(60)\n"
    )
    command = ("python", str(tmp_path / "toy.py"))
    beside = f"{sys.executable} {program}"
    capture(turns, command, tmp_path / "out.txt", timeout_s=20, beside=beside)
    assert (tmp_path / "ended").exists()
    with pytest.raises(CaptureFailed, match="'true' ended before the session"):
        capture(turns, command, tmp_path / "out.txt", timeout_s=20, beside="true")


@needs_tmux
def test_an_excerpt_is_put_into_its_page(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"{BEGIN}old{END}\n")
    turns = "hello\nlong\n    excerpt 2\nquit\n    excerpt 9\n"
    code, _ = taken(tmp_path, turns, "--timeout", "20", "--excerpt", str(page))
    assert code == 0
    excerpt = page.read_text().removeprefix(BEGIN).removesuffix(f"{END}\n")
    assert excerpt.split("\n\n")[1:] == ["toy> long\nline 0\n...", "toy> quit\nbye"]
