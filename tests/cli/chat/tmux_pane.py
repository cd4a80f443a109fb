"""A terminal for tests: what does a person see who types into it?"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

FAKE = (sys.executable, str(Path(__file__).parent / "chat_child.py"))
"""The program with sessions that need no agents."""
REAL = (sys.executable, "-m", "agentkernel")
WAIT_S = 60.0
CODE = "ended-with"
"""File in the folder for the program's exit status: tmux's own word on that is late at times."""


class Terminal:
    """A tmux pane of 80 columns with `agentkernel` in it."""

    def __init__(self, folder: Path, program: Sequence[str]) -> None:
        self.folder, self.socket, self.program = folder, str(folder / "tmux"), program

    def start(self, *words: str, **environment: str) -> None:
        env = {**environment, "PYTHONPATH": os.pathsep.join(sys.path)}
        settings = " ".join(f"{key}={shlex.quote(value)}" for key, value in env.items())
        command = shlex.join((*self.program, *words))
        self.tmux("-f", "/dev/null", "new-session", "-d", "-x", "80", "-y", "40")
        self.tmux("set", "-g", "remain-on-exit", "on")
        self.tmux(
            "respawn-pane",
            "-k",
            "-c",
            str(self.folder),
            f"env {settings} {command}; echo $? > {CODE}",
        )

    def tmux(self, *words: str) -> str:
        done = subprocess.run(
            ("tmux", "-S", self.socket, *words), capture_output=True, text=True, timeout=30
        )
        return done.stdout

    def type(self, *keys: str) -> None:
        self.tmux("send-keys", *keys)

    def paste(self, text: str) -> None:
        path = self.folder / "paste.txt"
        path.write_text(text)
        self.tmux("load-buffer", str(path))
        self.tmux("paste-buffer", "-p")

    def screen(self, *flags: str) -> str:
        return self.tmux("capture-pane", "-p", *flags).rstrip()

    def wait(self, words: str) -> str:
        until(lambda: words in self.screen(), lambda: f"{words!r} in\n{self.screen()}")
        return self.screen()

    def ended_with(self, status: int) -> None:
        """Wait until the program has ended so."""
        file, words = self.folder / CODE, f"{status}\n"
        until(lambda: file.exists() and file.read_text() == words, lambda: self.screen())

    def last_line(self, words: str) -> None:
        """Wait until the last line of the screen is `words`."""
        found = lambda: self.screen().splitlines()[-1:] == [words]  # noqa: E731
        until(found, lambda: f"{words!r} at the end of\n{self.screen()}")

    def turns(self) -> list[str]:
        paths = list(self.folder.glob("agentkernel-runs/*/session.sqlite"))
        kept: list[str] = json.loads(paths[0].read_text())["turns"] if paths else []
        return kept

    def closed(self) -> bool:
        return bool(list(self.folder.glob("agentkernel-runs/*/closed")))


def until(holds: Callable[[], bool], wanted: Callable[[], str]) -> None:
    end = time.monotonic() + WAIT_S
    while not holds():
        assert time.monotonic() < end, f"never: {wanted()}"
        time.sleep(0.05)
