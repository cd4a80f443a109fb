"""How does a session go, turn by turn, to its end?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from agentkernel.chat.replies import EditRequested, Reply, SessionEnded, StepRan, TextReply
from agentkernel.cli.chat.chat_commands import Ask, Change, Help, InvalidCommand, Parsed, parse
from agentkernel.cli.chat.chat_edit import NotEdited, edit
from agentkernel.cli.chat.chat_input import ALWAYS, YES, InputSource, UnclosedBlock, inputs
from agentkernel.cli.signals import SignalState
from agentkernel.domain.errors import AgentKernelError, OutputLost, UserError, one_line

if TYPE_CHECKING:
    from agentkernel.cli.chat.chat_open import SessionOpening
    from agentkernel.cli.chat.chat_protocol import ApprovalRequest, SessionLike
    from agentkernel.cli.chat.chat_screen import Screen

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
            return reply.model_copy(update={"text": f"{reply.text} {kept}"})
        return reply
