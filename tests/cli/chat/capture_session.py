"""What does a person see who types these turns at a terminal of 80 columns?

    python -m tests.cli.chat.capture_session TURNS OUT -- agentkernel chat FILE --target h100

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
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.cli.chat.captured_pane import WIDTH, Pane, trimmed
from tests.cli.chat.captured_turns import Act, CaptureFailed, Keys, Turn, keys_of, turns_of

MEANWHILE = " while the next turn runs ".center(WIDTH, "-")
QUESTION = "[y/N/a(lways)]"
KEY = re.compile(r"(?:[CMS]-.|Tab|BTab|Enter|Escape|Space|BSpace|DC|Up|Down|Left|Right|Home|End)")
BEGIN, END = "<!-- excerpt -->\n```\n", "\n```\n<!-- end of excerpt -->"
"""What an excerpt stands between in a page."""
CUT = "..."


def neutral(text: str, home: Path) -> str:
    """`text` with `~` for the scratch home."""
    return text.replace(str(home), "~")


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
