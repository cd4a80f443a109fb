"""What does a person see who types these turns at a terminal of 80 columns?

    python tests/cli/capture_session.py TURNS.txt OUT.txt -- agentkernel chat FILE --target h100

The command runs in a tmux of its own, in a scratch home of its own (nothing of the caller's is
read or written; `--home FOLDER` says what lies in it). Files that the command names are copied to
the same place under `~/work`. `--beside COMMAND` runs as long as the capture: a model's endpoint.
Each turn is typed as keys once the prompt is back, and OUT gets what the turn left on the screen,
without colours; a screen taken in mid-turn stands before it, between rules. A turn that does not
come back ends the capture with one line and exit code 1; OUT holds what there was until then.

TURNS.txt has one turn a line. `#` begins a comment line. In a turn:

    <Tab>, <Down>, <C-c>    a key, as tmux names it
    <paste FILE>            the text of FILE (beside TURNS.txt), as one bracketed paste
    /ro<Tab>                an example: Enter is pressed at the end of every turn

Indented lines belong to the turn above and are done while it runs:

    wait WORDS              until the turn has put WORDS on the screen
    screen                  capture the screen as it is now
    answer y                once a question is asked: type this and Enter
    keys C-c :wq Enter      send keys, as tmux names them; other words are typed
    excerpt LINES           afterwards: so many lines of what the turn left belong to the excerpt,
                            which `--excerpt PAGE` puts between two marks of a Markdown page
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, get_args

WIDTH, HEIGHT, HISTORY = 80, 40, 20000
MEANWHILE = " while the next turn runs ".center(WIDTH, "-")
PROMPT = re.compile(r"[\w.-]+(?: c\d+)?>")
QUESTION = "[y/N/a(lways)]"
TOKEN = re.compile(r"<(paste [^<>]+|[A-Z][\w-]*)>")
KEY = re.compile(r"(?:[CMS]-.|Tab|BTab|Enter|Escape|Space|BSpace|DC|Up|Down|Left|Right|Home|End)")
POLL_S = 0.05
SETTLE_S = 0.2
"""How long a screen stands still before it is taken."""
KEPT = ("PATH", "PYTHONPATH", "OMP_NUM_THREADS", "LANG", "LC_ALL")
"""What the command sees of the caller's environment; LANG is set where it is not."""
FOLDERS = {
    "XDG_CONFIG_HOME": ".config",
    "XDG_DATA_HOME": ".local/share",
    "XDG_CACHE_HOME": ".cache",
    "XDG_STATE_HOME": ".local/state",
}

BEGIN, END = "<!-- excerpt -->\n```\n", "\n```\n<!-- end of excerpt -->"
"""What an excerpt stands between in a page."""
CUT = "..."

Verb = Literal["wait", "screen", "answer", "keys", "excerpt"]


class CaptureFailed(Exception):
    """The turns cannot be read, or one did not come back: one line that says which."""


@dataclass(frozen=True)
class Act:
    """Something done while a turn runs."""

    verb: Verb
    words: str = ""


@dataclass(frozen=True)
class Turn:
    """A line of a turns file with what is done while it runs."""

    text: str
    acts: tuple[Act, ...] = ()


@dataclass(frozen=True)
class Keys:
    """Part of a turn: `text` that is typed, a `key` that is pressed, or a `paste`d file."""

    kind: Literal["text", "key", "paste"]
    value: str


def turns_of(text: str) -> tuple[Turn, ...]:
    """The turns of a turns file. Raises CaptureFailed, which names the line."""
    turns: list[Turn] = []
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        if not line[0].isspace():
            turns.append(Turn(line.rstrip()))
            continue
        if not turns:
            raise CaptureFailed(f"Line {number} is indented, but no turn stands above it.")
        turns[-1] = Turn(turns[-1].text, (*turns[-1].acts, act_of(line.strip(), number)))
    return tuple(turns)


def act_of(text: str, number: int) -> Act:
    """One indented line. Raises CaptureFailed."""
    first, _, words = text.partition(" ")
    for verb in get_args(Verb):
        if first == verb and bool(words) == (verb != "screen") and countable(verb, words):
            return Act(verb, words)
    raise CaptureFailed(
        f"Line {number}, {text!r}: expected 'wait WORDS', 'screen', 'answer TEXT', 'keys KEYS' or "
        "'excerpt LINES'."
    )


def countable(verb: Verb, words: str) -> bool:
    """False where `words` should be a number and are none."""
    return verb != "excerpt" or (words.isdecimal() and int(words) > 0)


def keys_of(text: str) -> tuple[Keys, ...]:
    """A turn as it is typed, without the last Enter."""
    keys: list[Keys] = []
    for index, part in enumerate(TOKEN.split(text)):
        if index % 2 == 0:
            keys += [Keys("text", part)] if part else []
        elif part.startswith("paste "):
            keys.append(Keys("paste", part.removeprefix("paste ")))
        else:
            keys.append(Keys("key", part))
    return tuple(keys)


def neutral(text: str, home: Path) -> str:
    """`text` with `~` for the scratch home."""
    return text.replace(str(home), "~")


def trimmed(text: str) -> str:
    """`text` without trailing blanks, and without empty lines at its end."""
    return "\n".join(line.rstrip() for line in text.splitlines()).rstrip()


def first_lines(text: str, count: int) -> str:
    """The first `count` lines, and a mark where there are more."""
    lines = text.splitlines()
    shown = trimmed("\n".join(lines[:count]))
    return f"{shown}\n{CUT}" if len(lines) > count else shown


def with_excerpt(page: str, excerpt: str) -> str:
    """`page` with `excerpt` between its marks. Raises CaptureFailed where it has none."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise CaptureFailed("The page has no excerpt marks with a code block between them.")
    return f"{before}{begin}{excerpt}{end}{after}"


class Pane:
    """A tmux pane with the command in it."""

    def __init__(self, home: Path, timeout_s: float) -> None:
        self.home, self.timeout_s = home, timeout_s
        self._socket = str(home / ".tmux")

    def start(self, command: Sequence[str], folder: Path) -> None:
        """Run `command` in `folder`."""
        # Before the server has a session no option can be set, and a pane keeps the history limit
        # that it began with: the first session is there for the options alone.
        self.tmux("-f", "/dev/null", "new-session", "-d", "-s", "options", "cat")
        self.tmux("set", "-g", "history-limit", str(HISTORY))
        self.tmux("set", "-g", "remain-on-exit", "on")
        self.tmux("set", "-g", "remain-on-exit-format", "")
        size = ("-x", str(WIDTH), "-y", str(HEIGHT))
        run = shlex.join(("env", "-i", *environment(self.home), *command))
        self.tmux("new-session", "-d", "-s", "chat", *size, "-c", str(folder), run)
        self.tmux("kill-session", "-t", "options")

    def close(self) -> None:
        """End the command and its tmux."""
        self.tmux("kill-server")

    def tmux(self, *words: str) -> str:
        """What tmux says."""
        command = ("tmux", "-S", self._socket, *words)
        return subprocess.run(command, capture_output=True, text=True, timeout=30).stdout

    def press(self, key: str) -> None:
        """Send one key."""
        self.tmux("send-keys", key)

    def type(self, text: str) -> None:
        """Send `text` as it is."""
        if text.endswith(";"):  # at the end of a word tmux takes it for the end of its command
            text = f"{text[:-1]}\\;"
        self.tmux("send-keys", "-l", "--", text)

    def paste(self, path: Path) -> None:
        """Send a file as one bracketed paste."""
        self.tmux("load-buffer", str(path))
        self.tmux("paste-buffer", "-p")

    def screen(self) -> str:
        """The screen as it is."""
        return trimmed(self.tmux("capture-pane", "-p"))

    def row(self) -> int:
        """The cursor's row, counted from the first line that ever was on the screen."""
        return self._scrolled() + int(self._ask("cursor_y"))

    def since(self, row: int) -> str:
        """All from `row` on, with what has scrolled off the screen."""
        return trimmed(self.tmux("capture-pane", "-p", "-S", str(row - self._scrolled())))

    def last_line(self) -> str:
        """The last line of the screen that has text."""
        return self.screen().rpartition("\n")[2]

    def at_prompt(self) -> bool:
        """True where the command waits for a turn."""
        return PROMPT.fullmatch(self.last_line()) is not None

    def ended(self) -> bool:
        """True where the command is over."""
        return self._ask("pane_dead") != "0"

    def shown(self, row: int) -> str:
        """All from `row` on, or the screen where a program such as an editor has it to itself."""
        return self.screen() if self._ask("alternate_on") == "1" else self.since(row)

    def _scrolled(self) -> int:
        return int(self._ask("history_size"))

    def _ask(self, name: str) -> str:
        return self.tmux("display-message", "-p", f"#{{{name}}}").strip()

    def wait(self, holds: Callable[[], bool], wanted: str) -> None:
        """Until `holds`. Raises CaptureFailed where it does not within the time, or the command
        ends before."""
        end = time.monotonic() + self.timeout_s
        while not holds():
            if self.ended():
                if holds():
                    return
                raise CaptureFailed(f"The command ended before {wanted}.")
            if time.monotonic() > end:
                raise CaptureFailed(f"After {self.timeout_s:g} s there was never {wanted}.")
            time.sleep(POLL_S)

    def settle(self) -> None:
        """Until the screen stands still."""
        before = None
        while before != (before := self.screen()):
            time.sleep(SETTLE_S)


def environment(home: Path) -> tuple[str, ...]:
    """NAME=VALUE for all that the command sees."""
    kept = {name: os.environ[name] for name in KEPT if name in os.environ}
    path = os.pathsep.join((str(Path(sys.executable).parent), kept.get("PATH", os.defpath)))
    folders = {name: str(home / folder) for name, folder in FOLDERS.items()}
    values = {"LANG": "C.UTF-8", **kept, "PATH": path, "HOME": str(home), **folders}
    values |= {"TERM": "screen-256color", "SHELL": "/bin/sh"}
    return tuple(f"{name}={value}" for name, value in values.items())


@dataclass
class Sitting:
    """The turns of one session, typed into `pane`; `screens` are what they left there."""

    pane: Pane
    beside: Path
    screens: list[str] = field(default_factory=list)
    excerpts: list[str] = field(default_factory=list)

    def open(self) -> None:
        """Wait for the first prompt. Raises CaptureFailed."""
        try:
            self.pane.wait(self.pane.at_prompt, "a prompt")
        except CaptureFailed:
            self.screens.append(self.pane.screen())
            raise
        self.pane.settle()
        self.screens.append("\n".join(self.pane.screen().splitlines()[:-1]))

    def take(self, turn: Turn) -> None:
        """Type one turn and see it to its end. Raises CaptureFailed, which names the turn."""
        pane, row = self.pane, self.pane.row()
        try:
            self._type(turn.text)
            pane.press("Enter")
            for act in turn.acts:
                self._do(act, row)
            pane.wait(lambda: pane.at_prompt() or pane.ended(), "the next prompt")
            pane.settle()
        except CaptureFailed as error:
            self.screens.append(pane.since(row))
            raise CaptureFailed(f"Turn {turn.text!r}: {error}") from None
        lines = pane.since(row).splitlines()
        self.screens.append(trimmed("\n".join(lines if pane.ended() else lines[:-1])))
        for act in turn.acts:
            if act.verb == "excerpt":
                self.excerpts.append(first_lines(self.screens[-1], int(act.words)))

    def _type(self, text: str) -> None:
        for keys in keys_of(text):
            self._send(keys)
            self.pane.settle()

    def _send(self, keys: Keys) -> None:
        pane = self.pane
        row, before = pane.row(), pane.screen()
        match keys.kind:
            case "text":
                wanted = squeezed(keys.value)
                pane.type(keys.value)
                pane.wait(
                    lambda: wanted in squeezed(pane.since(row)), f"{keys.value!r} on the screen"
                )
            case "key":
                pane.press(keys.value)
            case "paste":
                pane.paste(self.beside / keys.value)
                pane.wait(lambda: pane.screen() != before, "the paste on the screen")

    def _do(self, act: Act, row: int) -> None:
        match act.verb:
            case "wait":
                self.pane.wait(lambda: act.words in self.pane.shown(row), repr(act.words))
            case "screen":
                self.screens.append(f"{MEANWHILE}\n{self.pane.shown(row)}\n{'-' * WIDTH}")
            case "answer":
                self.pane.wait(lambda: self.pane.last_line().endswith(QUESTION), "a question")
                self.pane.settle()
                self.pane.type(act.words)
                # Until it is there this question would be taken for the next one.
                self.pane.wait(
                    lambda: self.pane.last_line().endswith(f"{QUESTION} {act.words}"),
                    f"{act.words!r} as the answer",
                )
                self.pane.press("Enter")
            case "excerpt":
                pass
            case "keys":
                for word in act.words.split():
                    (self.pane.press if KEY.fullmatch(word) else self.pane.type)(word)


def squeezed(text: str) -> str:
    """`text` without white space, which a wrapped line has at other places."""
    return "".join(text.split())


def copied(command: Sequence[str], folder: Path) -> None:
    """Copy the files that `command` names to the same places under `folder`."""
    for word in command:
        path = Path(word)
        if path.is_file() and not path.is_absolute():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, folder / path)


@contextmanager
def running(command: str | None) -> Iterator[None]:
    """`command` in a process of its own, ended with the block. Raises CaptureFailed where it ended
    before."""
    if command is None:
        yield
        return
    with subprocess.Popen(shlex.split(command), stdout=subprocess.DEVNULL) as process:
        try:
            yield
            if process.poll() is not None:
                raise CaptureFailed(f"{command!r} ended before the session.")
        finally:
            process.terminate()


def capture(
    turns: Path,
    command: Sequence[str],
    out: Path,
    *,
    timeout_s: float,
    lent: Path | None = None,
    beside: str | None = None,
    page: Path | None = None,
) -> None:
    """Write to `out` the screens of `turns` typed at `command`, in a home that begins as a copy of
    `lent`, and their excerpt into `page`. Raises CaptureFailed."""
    read = turns_of(turns.read_text())
    typed = f"$ {shlex.join(command)}"
    # A session that is hung up on may still be saving while its home is taken away.
    scratch_home = tempfile.TemporaryDirectory(prefix="k", ignore_cleanup_errors=True)
    with scratch_home as scratch, running(beside):
        home = Path(scratch)
        if lent is not None:
            shutil.copytree(lent, home, dirs_exist_ok=True)
        work = home / "work"
        work.mkdir()
        copied(command, work)
        pane = Pane(home, timeout_s)
        sitting = Sitting(pane, turns.parent)
        try:
            pane.start(command, work)
            sitting.open()
            for turn in read:
                sitting.take(turn)
        finally:
            out.write_text(neutral("\n\n".join((typed, *sitting.screens)), home) + "\n")
            with suppress(subprocess.TimeoutExpired):
                pane.close()
        if page is not None:
            excerpt = neutral("\n\n".join((typed, *sitting.excerpts)), home)
            page.write_text(with_excerpt(page.read_text(), excerpt))


def main() -> int:
    """Read the command line; 0, or 1 where a turn did not come back."""
    parser = argparse.ArgumentParser(description="Capture the screens of a chat session.")
    parser.add_argument("turns", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--timeout", type=float, default=300.0, help="Seconds a turn may take.")
    parser.add_argument("--home", type=Path, help="A folder: what lies in the scratch home.")
    parser.add_argument("--beside", metavar="COMMAND", help="Runs as long as the capture.")
    parser.add_argument("--excerpt", metavar="PAGE", type=Path, help="Where the excerpt goes.")
    parser.add_argument("command", nargs="+", help="After --: the command line of the session.")
    given = parser.parse_args()
    try:
        capture(
            given.turns,
            given.command,
            given.out,
            timeout_s=given.timeout,
            lent=given.home,
            beside=given.beside,
            page=given.excerpt,
        )
    except CaptureFailed as error:
        print(f"{error} What there was until then is in {given.out}.", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
