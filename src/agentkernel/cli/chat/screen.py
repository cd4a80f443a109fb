"""Output of a session: a terminal, a pipe, or JSON lines for a program.

With `--json` each object stands on its own line, named by what it is: session, event, asked,
reply. On a terminal an answer that takes longer than a second shows the seconds that passed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import IO, TYPE_CHECKING, Protocol

from rich.console import Console, ConsoleOptions, RenderableType
from rich.live import Live
from rich.segment import Segment
from rich.text import Text

from agentkernel.chat.replies import DiffOf, Reply, SessionEnded, Source, TextReply
from agentkernel.cli.chat.input import shortened
from agentkernel.cli.rendering.events import event_line, session_event
from agentkernel.cli.rendering.live import RunProgress
from agentkernel.cli.rendering.replies import render
from agentkernel.cli.rendering.text import PlainConsole
from agentkernel.cli.terminal import SILENCE_S, ElapsedTime, json_line, print_plain
from agentkernel.domain.plain_text import plain
from agentkernel.workflows.events import Event, Finished, ModelAsked, RunStarted

if TYPE_CHECKING:
    from agentkernel.cli.chat.sessions import ApprovalRequest, SessionLike


FIRST_S = 1.0
"""Seconds until anything is shown: most answers come sooner."""
EVERY_S = 1.0


def words(seconds: float) -> str:
    """What the line says."""
    return f"Working, {seconds:.0f} s. Ctrl-C stops it."


LEAST_WIDTH = 20
ECHOED = 200
"""Characters of an input that are said again."""
APPROVAL_PROMPT = "Go on with this? [y/N/a(lways)] "


class Screen(Protocol):
    """Where turns are shown."""

    def opened(self, session: SessionLike) -> None:
        """A session is at hand."""
        ...

    def echo(self, prompt: str, text: str) -> None:
        """An input that nobody saw being typed."""
        ...

    def note(self, text: str) -> None:
        """A line that is no answer."""
        ...

    def working(self) -> AbstractContextManager[None]:
        """Held while an answer is worked out."""
        ...

    def event(self, event: Event) -> None:
        """Something happened in a step."""
        ...

    def ask(self, question: ApprovalRequest) -> str:
        """Show what is to be approved; the line to ask with."""
        ...

    def reply(self, reply: Reply) -> None:
        """An answer."""
        ...

    def failed(self, said: TextReply) -> None:
        """What is said of a bug: shown without what might have the bug."""
        ...

    def end_turn(self) -> None:
        """Nothing more comes for this input."""
        ...


WHOLE_LINES = 10_000
"""Columns of a source in a pipe."""


class TextScreen:
    """For people: a live table where a terminal can draw one, else one line an event."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._drawn = console.is_terminal and not console.is_dumb_terminal
        self._clock = ElapsedTime(
            console.file,
            console.width,
            self._words,
            first_s=FIRST_S if self._drawn else SILENCE_S,
            every_s=EVERY_S if self._drawn else SILENCE_S,
            lines=not self._drawn,
        )
        self._progress: RunProgress | None = None
        self._live: Live | None = None

    def opened(self, session: SessionLike) -> None:
        pass

    def _words(self, seconds: float) -> str:
        """What is being done: in a pipe how far the run's step is."""
        doing = self._progress.doing() if self._progress is not None else ""
        return doing or words(seconds)

    def echo(self, prompt: str, text: str) -> None:
        self.note(f"{prompt}{shortened(text, ECHOED)}")

    def note(self, text: str) -> None:
        counted = self._clock.stop()
        self.console.print(Text(plain(text)), soft_wrap=not self.console.is_terminal)
        if counted:
            self._clock.start()

    @contextmanager
    def working(self) -> Iterator[None]:
        """A terminal shows the seconds of an answer that takes longer than one, a pipe a line
        after half a minute without any."""
        self._clock.start()
        try:
            yield
        finally:
            self._clock.stop()

    def event(self, event: Event) -> None:
        told = session_event(event)
        if told is None:
            return
        counted = self._clock.stop()
        if not self._drawn:
            self._progress = RunProgress() if self._progress is None else self._progress
            self._progress.show(event)
            self._line(told)
            if counted:
                self._clock.start()
            return
        self._draw(told)
        if counted and self._progress is None:  # no run, whose table counts itself
            self._clock.start()

    def ask(self, question: ApprovalRequest) -> str:
        self._clock.stop()
        if self._progress is not None:
            self._progress.note = ""  # the question says which idea it is
        self._stop(leave=True)  # what came of the one before it stands above the next question
        self.console.print(Text(question_text(question)))
        return APPROVAL_PROMPT

    def reply(self, reply: Reply) -> None:
        self._stop(leave=True)
        if isinstance(reply, SessionEnded):
            return  # whoever closes the session says how to go on, for any end of it
        if self.console.is_terminal:
            self.console.print(EscapedOutput(picture(reply, self.console)))
            return
        width = self.console.width
        if isinstance(reply, Source | DiffOf):
            self.console.width = max(width, WHOLE_LINES)  # a file is to be copied, not cut
        try:
            with self.console.capture() as text:
                self.console.print(EscapedOutput(picture(reply, self.console)))
        finally:
            self.console.width = width
        for line in text.get().splitlines():  # no blanks up to the width for a file or a diff
            print(line.rstrip(), file=self.console.file, flush=True)

    def failed(self, said: TextReply) -> None:
        self._stop(leave=True)
        self.note(said.text)

    def end_turn(self) -> None:
        self._stop(leave=True)
        self._progress = None

    def _line(self, event: Event) -> None:
        line = event_line(event)
        if line:
            self.console.print(Text(line), soft_wrap=True)

    def _draw(self, event: Event) -> None:

        if isinstance(event, RunStarted):
            self._stop(leave=True)
            self._progress = RunProgress()
        if self._progress is None:  # no run: a model reads a sentence, and /cost counts that
            if not isinstance(event, ModelAsked):
                self._line(event)
            return
        self._progress.show(event)
        if isinstance(event, Finished):
            self._stop(leave=True)
        elif self._live is None:
            table = self._progress.table
            self._live = Live(
                console=self.console,
                refresh_per_second=4,
                get_renderable=lambda: EscapedOutput(table()),
            )
            self._live.start()

    def _stop(self, *, leave: bool) -> None:
        """End the drawing; `leave` it on the screen, or take it away until the next event."""
        if self._progress is not None:
            self._progress.writing.end()
        if self._live is not None:
            self._live.transient = not leave
            live, self._live = self._live, None
            live.stop()


class EscapedOutput:
    """A renderable whose own text moves no terminal: events and answers hold what others wrote."""

    def __init__(self, inner: RenderableType) -> None:
        self.inner = inner

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        for segment in console.render(self.inner, options):
            text = segment.text if segment.control else plain(segment.text)
            yield Segment(text, segment.style, segment.control)


class JsonScreen:
    """For programs: one object a line on `stream`, named by what it is: session, event, asked,
    reply. Nothing else goes there."""

    def __init__(self, stream: IO[str]) -> None:
        self.stream = stream

    def opened(self, session: SessionLike) -> None:
        self._write("session", json.dumps({"id": session.id, "folder": str(session.folder)}))

    def echo(self, prompt: str, text: str) -> None:
        pass

    def note(self, text: str) -> None:
        print_plain(text, error=True)

    def working(self) -> AbstractContextManager[None]:
        return nullcontext()

    def event(self, event: Event) -> None:
        self._write("event", json_line(event))

    def ask(self, question: ApprovalRequest) -> str:
        self._write("asked", json_line(question))
        return ""

    def reply(self, reply: Reply) -> None:
        self._write("reply", json_line(reply))

    def failed(self, said: TextReply) -> None:
        self.reply(said)

    def end_turn(self) -> None:
        pass

    def _write(self, name: str, value: str) -> None:
        print(f'{{"{name}":{value}}}', file=self.stream, flush=True)


def chat_console() -> Console:
    """Stdout: as wide as the terminal, 80 columns where there is none; NO_COLOR is obeyed. What
    is told to have next to no columns has 20: at 0 nothing would be shown."""
    asked = os.environ.get("COLUMNS", "")
    narrow = asked.isdecimal() and int(asked) < LEAST_WIDTH
    return PlainConsole(highlight=False, width=LEAST_WIDTH if narrow else None)


def picture(reply: Reply, console: Console) -> RenderableType:
    """The answer as it is drawn on `console`."""

    colour = console.color_system is not None and not console.no_color
    return render(reply, console.width, colour, unicode=not console.options.ascii_only)


def question_text(question: ApprovalRequest) -> str:
    """The hypotheses of a plan, or the text of a candidate below its idea."""
    made, plan = question.candidate, question.plan
    tried = (question.hypothesis,) if plan is None else plan.hypotheses
    heading = f"Round {question.round}, {question.kind}:"
    ideas = (f"  {item.strategy}: {item.reason}" for item in tried)
    source = () if made is None else ("", *made.source.splitlines(), "")
    return plain("\n".join((heading, *ideas, *source)))
