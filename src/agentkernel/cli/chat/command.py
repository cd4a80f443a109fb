"""`agentkernel chat`: the first prompt, behind which the conversation is loaded."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from agentkernel.cli.chat.input import is_person, shortened
from agentkernel.cli.chat.loading import BackgroundLoad
from agentkernel.cli.chat.prompt import NAME_SHOWN, WELCOME, PromptInput
from agentkernel.cli.options import ChatFlags
from agentkernel.cli.terminal import SessionClosing, print_plain, watch_signals

if TYPE_CHECKING:
    from agentkernel.cli.chat.beginning import Preparation
    from agentkernel.cli.chat.conversation import ChatRequest
    from agentkernel.tools.problem.loading import LoadedProblem

BEGINNING = "agentkernel.cli.chat.beginning"
CONVERSATION = "agentkernel.cli.chat.conversation"


def chat(flags: ChatFlags) -> None:
    """`agentkernel chat`."""
    name = module_name(flags.reference or "")
    scripted = flags.as_json or flags.script is not None or not is_person()
    if flags.reference is None or scripted:
        raise typer.Exit(import_module(BEGINNING).begin(flags, name))
    place = flags.reference.partition(":")[0]
    if not Path(place).is_file():
        import_module(BEGINNING).check_file(flags.reference)
    raise typer.Exit(FirstPrompt(flags, name).converse())


def module_name(reference: str) -> str:
    """What the prompt calls a module: its class where one is named, as the session's folder, else
    its file."""
    path, _, named = reference.partition(":")
    return named.lower() if named not in ("", "Model") else Path(path).name.removesuffix(".py")


class FirstPrompt:
    """A prompt that stands before there is a conversation: the first line is typed meanwhile."""

    def __init__(self, flags: ChatFlags, name: str) -> None:
        self.flags, self.name = flags, name
        self.loading = BackgroundLoad(self.problem)
        first = f"{shortened(name, NAME_SHOWN)}> "
        self.feed = PromptInput(lambda: first, self.loading.idle)
        self.begun = False
        self.call: ChatRequest | None = None
        self.ahead: Preparation | None = None

    def converse(self) -> int:
        """Ask for the first line, then hold the session; the exit code."""
        print_plain(WELCOME)
        self.feed.when_shown(self.load)
        with watch_signals() as closed:
            try:
                call = self.first_turn()
            except SessionClosing:
                self.loading.leave()
                return closed.exit_code
            except BaseException:
                self.loading.leave()
                raise
            if call is None:
                self.loading.leave()
                return 0
            code: int = import_module(CONVERSATION).run_chat(call)
            return code

    def first_turn(self) -> ChatRequest | None:
        """The conversation that a first line is typed for; None at Ctrl-D. Raises what loading
        raised."""
        for line in self.feed.lines():
            try:
                self.load()
                self.loading.wait_first()
            except SessionClosing:
                raise
            except KeyboardInterrupt:  # the line is dropped
                continue
            self.feed.unread(line)
            return self.call
        return None

    def load(self) -> None:
        """Begin to load what comes after the prompt; a second call does nothing."""
        if self.begun:
            return
        self.begun = True
        self.loading.start(self.feed.fail, self.look, self.knowledge, first=self.request)

    def request(self) -> None:
        """Import the conversation and check what the command line says."""
        beginning = import_module(BEGINNING)
        self.call = beginning.request_of(self.flags, self.name, self.loading, self.feed)
        self.ahead = beginning.preparation_of(self.call)

    def problem(self) -> LoadedProblem:
        """The module that is named."""
        found: LoadedProblem = import_module(BEGINNING).problem_of(self.flags)
        return found

    def look(self) -> None:
        """Work out the module's graph, figures and first plan."""
        if self.ahead is not None:
            self.ahead.look()

    def knowledge(self) -> None:
        """Open the knowledge that a search asks."""
        if self.ahead is not None:
            self.ahead.knowledge()
