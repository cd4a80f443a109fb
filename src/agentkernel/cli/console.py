"""The console of a command on stdout, and the progress of a long one on stderr."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.progress import TimeElapsedColumn as Elapsed

from agentkernel.cli.rendering.text import PlainConsole

if TYPE_CHECKING:
    pass


UNWRAPPED = 100_000
"""Columns where no terminal has an end of the line: a row of a table is one line for `grep`."""
PADDING = re.compile(r" +(?=\n)")


class PipeConsole(PlainConsole):
    """A console on a pipe or a file, whose rows end where their text ends."""

    def __init__(self) -> None:
        super().__init__(highlight=False, width=UNWRAPPED, force_terminal=False, no_color=True)

    def print(self, *objects: object, **style: Any) -> None:
        """Print the objects, without the spaces that fill a table's last column."""
        with self.capture() as drawn:
            super().print(*objects, **style)
        self.file.write(PADDING.sub("", drawn.get()))


def console() -> Console:
    """A console on stdout; plain text whose lines are never wrapped where it is not a terminal."""
    return PlainConsole(highlight=False) if sys.stdout.isatty() else PipeConsole()


QUIET_S = 5.0
"""Between two lines where no terminal watches."""
ShowProgress = Callable[[int, int | None, str], None]
"""Hears how much is done, of how much where that is known, and a few words."""


@contextmanager
def progress_bar(what: str, *, silent: bool = False) -> Iterator[ShowProgress]:
    """A bar on stderr, or a line every `QUIET_S` where that is no terminal; `silent`: nothing."""
    screen = PlainConsole(stderr=True)
    watched = screen.is_terminal and not silent
    columns = (
        BarColumn(),
        MofNCompleteColumn(),
        Elapsed(),
        TextColumn("{task.description}", markup=False),
    )
    said = time.monotonic()
    with Progress(*columns, console=screen, transient=True, disable=not watched) as bar:
        task = bar.add_task(what, total=None)

        def show(done: int, total: int | None, words: str) -> None:
            nonlocal said
            bar.update(task, completed=done, total=total, description=f"{what} {words}".rstrip())
            if not watched and not silent and time.monotonic() - said > QUIET_S:
                said = time.monotonic()
                of = "" if total is None else f" of {total}"
                screen.print(f"{what}: {done}{of} {words}".rstrip(), markup=False, highlight=False)

        yield show


@contextmanager
def indexing_progress(*, silent: bool = False) -> Iterator[Callable[[int, int], None]]:
    """The progress of a refresh: the number of the change reached, and the last one."""
    with progress_bar("indexing", silent=silent) as show:
        yield lambda done, last: show(done, last, "")
