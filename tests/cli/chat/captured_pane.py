"""What does a command put on a terminal of its own, key by key?"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.cli.chat.captured_turns import CaptureFailed

WIDTH, HEIGHT, HISTORY = 80, 40, 20000
PROMPT = re.compile(r"[\w.-]+(?: c\d+)?>")
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


def trimmed(text: str) -> str:
    """`text` without trailing blanks, and without empty lines at its end."""
    return "\n".join(line.rstrip() for line in text.splitlines()).rstrip()
