"""What does a model write at this moment: the last lines of it, while it lasts?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderableType
from rich.padding import Padding
from rich.text import Text

from agentkernel.cli.rendering.quantities import show_count
from agentkernel.workflows.events import Event, ModelWriting

LINES = 6
KEPT = 2_000
"""Characters that are kept for these lines."""
INDENT = 2


@dataclass
class LiveWriting:
    """The end of an answer that is still being written; any other event means that it is over."""

    who: str = ""
    characters: int = 0
    tail: str = ""

    def show(self, event: Event) -> None:
        """Take one event in."""
        if not isinstance(event, ModelWriting):
            self.end()
            return
        begins = event.characters == len(event.text)
        self.who, self.characters = event.agent, event.characters
        before = "" if begins else self.tail
        self.tail = (before + event.text)[-KEPT:]

    def end(self) -> None:
        """Nobody writes."""
        self.who, self.characters, self.tail = "", 0, ""

    def lines(self) -> list[RenderableType]:
        """Who writes how much, and its last lines; nothing where nobody does."""
        if not self.who:
            return []
        head = Text(f"{self.who} writes: {show_count(self.characters)} characters")
        return [head, Padding(LastLines(self.tail), (0, 0, 0, INDENT))]


@dataclass(frozen=True)
class LastLines:
    """The last LINES lines of a text as it falls into the width at hand."""

    text: str

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        text = Text(self.text.rstrip().expandtabs(4), style="dim")
        yield from text.wrap(console, options.max_width)[-LINES:]
