"""A conversation from its first prompt to its last line, turn by turn.

A failure of one turn is an answer, as long as a session is open. Ctrl-C stops a step and leaves
the session as it was.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from agentkernel.chat.figures import EstimateCache
from agentkernel.chat.replies import EditRequested, Reply, SessionEnded, StepRan, TextReply
from agentkernel.cli.chat.commands import Ask, Change, Help, InvalidCommand, Parsed, parse
from agentkernel.cli.chat.input import (
    ALWAYS,
    YES,
    InputSource,
    NotEdited,
    ScriptInput,
    UnclosedBlock,
    edit,
    inputs,
    is_person,
    shortened,
)
from agentkernel.cli.chat.loading import BackgroundLoad
from agentkernel.cli.chat.prompt import NAME_SHOWN, WELCOME, Names, PromptInput
from agentkernel.cli.chat.screen import JsonScreen, Screen, TextScreen, chat_console
from agentkernel.cli.chat.sessions import (
    ApprovalRequest,
    Flags,
    SessionLike,
    SessionOpening,
)
from agentkernel.cli.terminal import SignalState, watch_signals
from agentkernel.domain.errors import (
    AgentKernelError,
    OutputLost,
    UserError,
    one_line,
)
from agentkernel.tools.command_lines import resume
from agentkernel.tools.targets import load_targets

if TYPE_CHECKING:
    from agentkernel.workflows.events import Event


STOPPED = "Stopped. The session is as it was before; nothing that was judged is lost."
CUT_SHORT = "Stopped. What was judged so far stands."
INTERRUPTED = 130
EMPTY = "Nothing was typed. Ask for something, or see /help."


@dataclass
class Approval:
    """Asks the user before a step goes on; `always` answers for the rest of the session."""

    screen: Screen
    feed: InputSource
    always: bool = False

    def __call__(self, question: ApprovalRequest) -> bool:
        if self.always:
            return True
        line = self.screen.ask(question)
        answer = self.feed.answer(line).strip().lower()
        if not self.feed.typed:
            self.screen.echo(line, answer or "no")
        self.always = answer in ALWAYS
        return self.always or answer in YES


@dataclass
class Conversation:
    """A session with its input and its screen. `prompt` is what stands before an input, `ready`
    says that the problem is loaded, `debug` lets a bug through."""

    opening: SessionOpening
    feed: InputSource
    screen: Screen
    closed: SignalState
    prompt: Callable[[], str]
    ready: Callable[[], bool] = lambda: True
    loading: str = ""
    debug: bool = False
    exit_code: int = field(default=0, init=False)
    """The last result's."""

    def converse(self) -> int:
        """Answer each input until the end; the exit code is the last result's, 0 without one."""
        try:
            for text in inputs(self.feed.lines()):
                if self._ends(text):
                    break
        except UnclosedBlock as error:
            self.screen.reply(TextReply(text=f"{error} Nothing of it was used.", ok=False))
        except KeyboardInterrupt:
            if not self.closed.signal:
                raise
        return self.closed.exit_code if self.closed.signal else self.exit_code

    def _ends(self, text: str) -> bool:
        """Do one turn; True where it was the last."""
        if not text.strip():
            if self.feed.typed:
                self.screen.note(EMPTY)
            return False
        if not self.feed.typed:
            self.screen.echo(self.prompt(), text)
        ended, self.closed.stopped = False, False
        try:
            ended = self._turn(text)
        except KeyboardInterrupt:
            if not self.closed.signal:
                self.screen.reply(TextReply(text=STOPPED))
        finally:
            self.screen.end_turn()
        if self.closed.stopped:
            self.exit_code = INTERRUPTED
        cut_off = self.closed.stopped and not self.feed.typed
        return ended or cut_off or bool(self.closed.signal)

    def _turn(self, text: str) -> bool:
        """Show the answers to one input, True where the session is over. A failure is an answer,
        as long as there is a session."""
        try:
            with self.screen.working():
                replies = self._answered(text)
            return [self._shown(reply) for reply in replies].count(True) > 0
        except (BrokenPipeError, OutputLost):
            raise
        except AgentKernelError as error:
            if self.opening.session is None and isinstance(error, UserError):
                raise
            self.screen.reply(TextReply(text=str(error), ok=False))
        except Exception as error:  # the border: the session outlives a bug in one turn
            if self.debug or self.opening.session is None:
                raise
            line = f"{type(error).__name__}: {one_line(error)}. This is a bug; the session lives."
            self.screen.failed(TextReply(text=f"{line} --debug shows where.", ok=False))
        return False

    def _shown(self, reply: Reply) -> bool:
        self.screen.reply(reply)
        if isinstance(reply, EditRequested):
            return self._shown(self._edited(reply))
        if isinstance(reply, StepRan) and reply.result is not None:
            self.exit_code = reply.result.exit_code
            if reply.result.interrupted:
                self.screen.note(CUT_SHORT)
            hint = self._hint(reply)
            if hint:
                self.screen.note(hint)
        elif isinstance(reply, StepRan) and self.exit_code == INTERRUPTED:
            self.exit_code = 0  # the stop before it is no longer what came last
        return isinstance(reply, SessionEnded)

    def _hint(self, reply: StepRan) -> str:
        """What to look at after a candidate by hand that the session does not stand at."""
        tree = self._session().tree
        made = tree.node(reply.made[-1]) if reply.made else None
        if made is None or made.origin == "drafted" or made.number == tree.place.candidate:
            return ""
        name = f"c{made.number}"
        return f"'why was {name} rejected?' says why, '/diff {name}' what was changed."

    def _answered(self, text: str) -> tuple[Reply, ...]:
        line = text.strip()
        if not line.startswith("/") or "\n" in line:
            return self._session().say(text)
        request: Parsed = parse(line)
        match request:
            case InvalidCommand():
                return (TextReply(text=request.text, ok=False),)
            case Help():
                return (TextReply(text=request.text),)
            case Ask() if self.opening.session is None and request.intent.name == "quit":
                return (SessionEnded(),)
            case Ask():
                return (self._session().do(request.intent, line),)
            case Change():
                return (self._session().set(request.changes, line),)

    def _session(self) -> SessionLike:
        if self.opening.session is None and not self.ready():
            self.screen.note(self.loading)
        return self.opening.open()

    def _edited(self, wanted: EditRequested) -> Reply:
        session = self._session()
        done = edit(wanted.text, wanted.number, wanted.line, session.folder)
        if isinstance(done, NotEdited):
            return TextReply(text=done.reason, ok=not done.failed)
        with self.screen.working():
            reply = session.offer(done.source, wanted.number, "edited")
        if isinstance(reply, TextReply) and not reply.ok:
            kept = f"The text is kept in {str(done.path)!r}."
            return reply.evolve(text=f"{reply.text} {kept}")
        return reply


STDIN = Path("-")


@dataclass(frozen=True)
class ChatRequest:
    """What a command line asks for: a new session, or with `folder` an old one. `name` stands in
    the prompt; `script` None: a person, or standard input; `feed` is a prompt that stands already,
    and `estimates` what is worked out behind it."""

    flags: Flags | None
    name: str
    loading: BackgroundLoad
    folder: Path | None = None
    script: Path | None = None
    as_json: bool = False
    debug: bool = False
    feed: PromptInput | None = None
    estimates: EstimateCache = field(default_factory=EstimateCache)


def run_chat(call: ChatRequest) -> int:
    """Hold the session; the exit code is the last result's, 0 without one."""
    with screen_of(call) as screen, watch_signals() as closed:
        return TerminalChat(call, screen, closed).run()


@contextmanager
def screen_of(call: ChatRequest) -> Iterator[Screen]:
    """The screen; with --json nothing but objects goes to stdout, whoever prints."""
    if not call.as_json:
        yield TextScreen(chat_console())
        return
    screen = JsonScreen(sys.stdout)
    with redirect_stdout(sys.stderr):
        yield screen


class TerminalChat:
    """The parts of a session, put together."""

    def __init__(self, call: ChatRequest, screen: Screen, closed: SignalState) -> None:
        self.call, self.screen, self.closed = call, screen, closed
        self.events = 0
        self.opening = SessionOpening(
            flags=call.flags,
            on_event=self.event,
            approve=self.approve,
            opened=self.opened,
            problem=call.loading.problem,
            folder=call.folder,
            estimates=call.estimates,
        )
        self.feed = self.feed_of()
        self.approval = Approval(screen, self.feed)

    def feed_of(self) -> InputSource:
        """A prompt where a person sits at both ends, else lines."""
        script = self.call.script
        if script is not None and script != STDIN:
            return ScriptInput(script)
        if script is not None or self.call.as_json or not is_person():
            return ScriptInput()
        feed = self.call.feed or PromptInput(self.prompt, self.call.loading.idle)
        feed.prompt, feed.names, feed.say = self.prompt, self.names, self.screen.note
        return feed

    def run(self) -> int:
        """Open, converse, close; say how to go on."""
        loading = self.call.loading
        chat = Conversation(
            opening=self.opening,
            feed=self.feed,
            screen=self.screen,
            closed=self.closed,
            prompt=self.prompt,
            ready=lambda: loading.ready,
            loading=f"Loading {self.call.name} ...",
            debug=self.call.debug,
        )
        try:
            self.welcome()
            if isinstance(self.feed, PromptInput) and self.call.feed is None:
                loading.start(self.feed.fail)
            return chat.converse()
        finally:
            self.leave()

    def welcome(self) -> None:
        """What a person reads first; a session that goes on is opened for it."""
        if self.call.folder is not None:
            self.screen.note(f"Opening {self.call.folder.name} ...")
            session = self.opening.open()
            if self.events:  # a step that a kill cut off went on to its end
                for reply in session.transcript()[-1].replies:
                    self.screen.reply(reply)
            self.screen.end_turn()
            self.screen.note(status_line(session))
        if self.feed.typed and self.call.feed is None:
            self.screen.note(WELCOME)

    def leave(self) -> None:
        """Close what is open; say how to go on."""
        self.call.loading.leave()
        session = self.opening.session
        self.opening.close()
        if session is not None:
            usual = Path(Flags(given={}).settings({}).runs)
            self.screen.note(f"Saved. Go on with:\n{resume(session.folder, usual)}")

    def opened(self, session: SessionLike) -> None:
        """Tell the screen, and keep what is typed in the session's folder."""
        self.screen.opened(session)
        if isinstance(self.feed, PromptInput):
            self.feed.history.keep_in(session.folder)

    def event(self, event: Event) -> None:
        """Something happened in a step."""
        self.events += 1
        self.screen.event(event)

    def approve(self, question: ApprovalRequest) -> bool:
        """Ask the user."""
        return self.approval(question)

    def prompt(self) -> str:
        """`layernorm c3> `: the problem, and where the session stands."""
        name = shortened(self.call.name, NAME_SHOWN)
        session = self.opening.session
        at = None if session is None else session.tree.place.candidate
        return f"{name}> " if at is None else f"{name} c{at}> "

    def names(self) -> Names:
        """What Tab may offer now."""

        aliases = (name for item in load_targets().values() for name in (item.name, *item.aliases))
        session = self.opening.session
        if session is None:
            return Names(targets=tuple(aliases))
        return Names(
            candidates=tuple(node.number for node in session.tree.nodes),
            branches=tuple(branch.number for branch in session.tree.branches),
            targets=tuple(aliases),
        )


def status_line(session: SessionLike) -> str:
    """Where a session stands, in a line."""
    tree = session.tree
    at = tree.place.candidate
    steps = f"{len(tree.steps)} step{'' if len(tree.steps) == 1 else 's'}"
    made = f"{len(tree.nodes)} candidate{'' if len(tree.nodes) == 1 else 's'}"
    last = f" The last request was {shortened(tree.steps[-1].text, 60)!r}." if tree.steps else ""
    place = "the module" if at is None else f"c{at}"
    return f"{session.id}: {steps}, {made}, now at {place}.{last}"
