"""Output of a session: a terminal, a pipe, or JSON lines for a program.

With `--json` each object stands on its own line, named by what it is: session, event, asked,
reply. On a terminal an answer that takes longer than a second shows the seconds that passed.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import IO, TYPE_CHECKING, Protocol

from rich.console import Console, ConsoleOptions, RenderableType
from rich.live import Live
from rich.segment import Segment
from rich.text import Text

from agentkernel.chat.replies import Reply, SessionEnded, TextReply
from agentkernel.cli.rendering.live import RunProgress
from agentkernel.cli.rendering.replies import render
from agentkernel.cli.rendering.text import PlainConsole, show_count, show_ratio, show_us, show_usd
from agentkernel.cli.terminal import json_line, print_plain
from agentkernel.domain.certificate import Status
from agentkernel.domain.plain_text import plain
from agentkernel.workflows.events import (
    CandidateDrafted,
    CandidateSetAside,
    Decided,
    Diagnosed,
    Event,
    Finished,
    ModelAsked,
    ModelPassedOver,
    ModelRetried,
    ModelWriting,
    NodeFinished,
    NodeStarted,
    Noted,
    Planned,
    ProfileMissed,
    ProfileTaken,
    RunStarted,
    VerdictReached,
)

if TYPE_CHECKING:
    from agentkernel.cli.chat.sessions import ApprovalRequest, SessionLike


FIRST_S = 1.0
"""Seconds until anything is shown: most answers come sooner."""
EVERY_S = 1.0
ERASED = "\r\x1b[2K"


class ElapsedTime:
    """One line of `stream` that counts the seconds from `start` to `stop` and is then gone.

    It writes from a thread of its own to the stream that it was made with: whoever swaps stdout
    meanwhile swaps nothing here.
    """

    def __init__(
        self, stream: IO[str], width: int, first_s: float = FIRST_S, every_s: float = EVERY_S
    ) -> None:
        self._stream, self._width = stream, width
        self._first_s, self._every_s = first_s, every_s
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Count from now on."""
        self.stop()
        self._ended = threading.Event()
        self._thread = threading.Thread(
            target=self._count, args=(self._ended, time.monotonic()), name="clock", daemon=True
        )
        self._thread.start()

    def stop(self) -> bool:
        """Take the line away where there is one; nothing is written after this. True where it
        counted."""
        counted = self._thread is not None
        if self._thread is not None:
            self._ended.set()
            self._thread.join()
            self._thread = None
        return counted

    def _count(self, ended: threading.Event, began: float) -> None:
        wait_s, shown = self._first_s, False
        while not ended.wait(wait_s):
            self._write(f"{ERASED}{words(time.monotonic() - began)[: self._width - 1]}")
            wait_s, shown = self._every_s, True
        if shown:
            self._write(ERASED)

    def _write(self, text: str) -> None:
        try:
            self._stream.write(text)
            self._stream.flush()
        except (OSError, ValueError):  # the terminal is gone; the next answer finds out
            self._ended.set()


def words(seconds: float) -> str:
    """What the line says."""
    return f"Working, {seconds:.0f} s. Ctrl-C stops it."


STOPS = {
    "met": "the goal is met",
    "headroom": "it is at its roofline",
    "rounds": "that was the last round",
    "time": "the time is used up",
    "tokens": "the tokens are used up",
    "money": "the money is used up",
    "stagnation": "the last drafts were no better",
    "hypotheses": "every idea was tried",
    "estimate": "no idea left is estimated to be faster",
    "declined": "it was declined",
}
"""Why a run's loop ended, in words."""
ENDS: dict[Status, str] = {
    "met": "the goal is met",
    "improved": "faster than the baselines, short of the goal",
    "verified": "right, its time is an estimate",
    "kept_original": "the module stays as it is",
    "kept_compiled": "torch.compile's version stays",
    "failed": "it ended early",
}
"""What came of a run, in words."""
KEPT = "experience kept:"
"""How the note begins that says under which name a run's experience stands."""


def session_event(event: Event) -> Event | None:
    """The event as a session tells it: without names that nobody can use there. None: not at
    all."""
    match event:
        case Noted() if event.text.startswith(KEPT):
            return None
        case Decided() if event.stop is not None:
            return event.evolve(stop=f"done: {STOPS.get(event.stop, event.stop)}")
    return event


def event_line(event: Event) -> str:
    """One line for a pipe, with nothing in it that moves a terminal; "" for what says nothing
    there."""
    return " ".join(plain(_words(event)).split())


def _words(event: Event) -> str:
    match event:
        case RunStarted():
            again = "again " if event.resumed else ""
            return f"run {event.run}: {event.problem} for {event.target} {again}({event.note})"
        case NodeStarted():
            return f"round {event.round}: {event.node} ..."
        case NodeFinished():
            return f"round {event.round}: {event.node} took {event.seconds:.1f} s"
        case Planned():
            first = event.plan.hypotheses[0].strategy if event.plan.hypotheses else "nothing"
            return f"plan: {first}, bound by {event.plan.analysis.roofline}"
        case CandidateDrafted(candidate=None):
            return f"no draft: {event.reason or 'nothing to offer'}"
        case CandidateDrafted():
            return f"drafted {_short(event.candidate)} by {event.coder}: {event.strategy}"
        case CandidateSetAside():
            return f"set aside {_short(event.candidate)}: {event.reason}"
        case VerdictReached():
            how = " (interpreted)" if event.interpreted else ""
            why = "accepted" if event.accepted else f"rejected at {event.gate}: {event.failure}"
            return f"judged {_short(event.candidate)}: {why}{how}"
        case ProfileTaken():
            return f"timed {_short(event.candidate)}: {_speed(event)}"
        case ProfileMissed():
            return f"not timed {_short(event.candidate)}: {event.reason}"
        case Diagnosed():
            return f"diagnosis: {event.failure_class}: {event.advice}"
        case ModelAsked():
            tokens = show_count(event.prompt_tokens + event.completion_tokens)
            cost = show_usd(event.cost_usd)
            return f"{event.agent} asked {event.model}: {tokens} tokens, {cost}"
        case ModelWriting():
            return ""
        case ModelRetried():
            return f"{event.model} failed ({event.failure}), again in {event.wait_s:.0f} s"
        case ModelPassedOver() | Noted():
            return event.text
        case Decided():
            return f"round {event.round}: {event.stop or event.reason}, next: {event.next}"
        case Finished():
            return f"finished: {ENDS[event.result.status]}"
        case _:
            return str(event.kind).replace("_", " ")


def _speed(event: ProfileTaken) -> str:
    if not event.measured:
        return f"{show_us(event.estimated_time_us)} estimated"
    eager, compiled = show_ratio(event.speedup_vs_eager), show_ratio(event.speedup_vs_compile)
    return f"{show_us(event.time_us)} measured, {eager} eager, {compiled} torch.compile"


def _short(candidate: str | None) -> str:
    return (candidate or "-")[:10]


def shortened(text: str, most: int) -> str:
    """The first line of `text`, at most `most` characters, with what was left out."""
    first, _, rest = text.strip().partition("\n")
    more = f" ... ({rest.count(chr(10)) + 2} lines)" if rest.strip() else ""
    cut = f"{first[:most]}..." if len(first) > most else first
    return f"{cut}{more}"


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


class TextScreen:
    """For people: a live table where a terminal can draw one, else one line an event."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._drawn = console.is_terminal and not console.is_dumb_terminal
        self._clock = ElapsedTime(console.file, console.width)
        self._progress: RunProgress | None = None
        self._live: Live | None = None

    def opened(self, session: SessionLike) -> None:
        pass

    def echo(self, prompt: str, text: str) -> None:
        self.note(f"{prompt}{shortened(text, ECHOED)}")

    def note(self, text: str) -> None:
        counted = self._clock.stop()
        self.console.print(Text(plain(text)), soft_wrap=not self.console.is_terminal)
        if counted:
            self._clock.start()

    @contextmanager
    def working(self) -> Iterator[None]:
        """A terminal shows the seconds of an answer that takes longer than one."""
        if self._drawn:
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
            self._line(told)
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
        shown = EscapedOutput(picture(reply, self.console))
        if self.console.is_terminal:
            self.console.print(shown)
            return
        with self.console.capture() as text:
            self.console.print(shown)
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
