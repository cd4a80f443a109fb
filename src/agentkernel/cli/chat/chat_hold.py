"""How is a session held from its first prompt to its last line?"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from agentkernel.chat.outlook import EstimateCache
from agentkernel.cli.chat.chat_ahead import Preparation
from agentkernel.cli.chat.chat_completion import Names
from agentkernel.cli.chat.chat_input import InputSource, ScriptInput, is_terminal
from agentkernel.cli.chat.chat_open import BackgroundLoad, Flags, SessionOpening
from agentkernel.cli.chat.chat_prompt import PromptInput
from agentkernel.cli.chat.chat_screen import JsonScreen, Screen, TextScreen, chat_console
from agentkernel.cli.chat.chat_sessions import resume_words
from agentkernel.cli.chat.chat_text import shortened
from agentkernel.cli.chat.chat_turns import Approval, Conversation
from agentkernel.cli.signals import SignalState, watch_signals

if TYPE_CHECKING:
    from agentkernel.cli.chat.chat_protocol import ApprovalRequest, SessionLike
    from agentkernel.workflows.events import Event

NAME_SHOWN = 24
STDIN = Path("-")
WELCOME = "Plain words or commands, see /help. Ctrl-C stops a step, Ctrl-D ends."


@dataclass(frozen=True)
class ChatRequest:
    """What a command line asks for: a new session, or with `folder` an old one. `name` stands in
    the prompt; `script` None: a person, or standard input."""

    flags: Flags | None
    name: str
    loading: BackgroundLoad
    folder: Path | None = None
    script: Path | None = None
    as_json: bool = False
    debug: bool = False


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
        self.estimates = EstimateCache()
        self.opening = SessionOpening(
            flags=call.flags,
            on_event=self.event,
            approve=self.approve,
            opened=self.opened,
            problem=call.loading.problem,
            folder=call.folder,
            estimates=self.estimates,
        )
        self.feed = self.feed_of()
        self.approval = Approval(screen, self.feed)

    def feed_of(self) -> InputSource:
        """A prompt where a person sits at both ends, else lines."""
        script = self.call.script
        person = is_terminal(sys.stdin) and is_terminal(sys.__stdout__)
        if script is not None and script != STDIN:
            return ScriptInput(script)
        if script is not None or self.call.as_json or not person:
            return ScriptInput()
        return PromptInput(self.prompt, self.names, self.screen.note, self.call.loading.idle)

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
            if isinstance(self.feed, PromptInput):
                loading.start(self.feed.fail, *self.ahead())
            return chat.converse()
        finally:
            self.leave()

    def ahead(self) -> tuple[Callable[[], None], ...]:
        """What another thread works out while the prompt stands. An old session has its plan, or
        works it out when it is asked."""
        flags = self.call.flags
        if flags is None or self.call.folder is not None:
            return ()
        ahead = Preparation(
            self.estimates, self.call.loading.problem, lambda: flags.settings({}), self.screen.note
        )
        return ahead.look, ahead.knowledge

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
        if self.feed.typed:
            self.screen.note(WELCOME)

    def leave(self) -> None:
        """Close what is open; say how to go on."""
        self.call.loading.leave()
        session = self.opening.session
        self.opening.close()
        if session is not None:
            usual = Path(Flags(given={}).settings({}).runs)
            self.screen.note(f"Saved. Go on with:\n{resume_words(session.folder, usual)}")

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
        from agentkernel.tools.targets import load_targets

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
