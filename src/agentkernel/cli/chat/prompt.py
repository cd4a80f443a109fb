"""The interactive prompt: history, suggestions, and a paste as one input.

Built on prompt_toolkit, and on nothing else that takes time to import: it stands before the
conversation is loaded. Lines for the arrow keys are kept in the session's folder; a long paste is
shown by its size and restored when the line is read.
"""

from __future__ import annotations

import contextlib
import re
import sys
import termios
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path

from prompt_toolkit import PromptSession
from prompt_toolkit.application import run_in_terminal
from prompt_toolkit.auto_suggest import AutoSuggestFromHistory
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.completion import (
    CompleteEvent,
    Completer,
    DynamicCompleter,
    get_common_complete_suffix,
)
from prompt_toolkit.filters import Condition
from prompt_toolkit.history import FileHistory, InMemoryHistory
from prompt_toolkit.input.typeahead import clear_typeahead
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys
from prompt_toolkit.patch_stdout import patch_stdout

from agentkernel.cli.chat.loading import IdleLock
from agentkernel.cli.terminal import SessionClosing, print_plain

WELCOME = "Plain words or commands, see /help. Ctrl-C stops a step, Ctrl-D ends."
NAME_SHOWN = 24
"""Characters of the problem's name in the prompt."""


@dataclass(frozen=True)
class Names:
    """What exists in the session now, newest last."""

    candidates: tuple[int, ...] = ()
    branches: tuple[int, ...] = ()
    targets: tuple[str, ...] = ()


FILE = "prompt_history"
MOST_CHARACTERS = 2000
"""A longer input is a paste: nobody wants it suggested."""


class SessionHistory(InMemoryHistory):
    """Lines for the arrow keys and suggestions, kept in the session folder once there is one.

    A line that cannot be written is still there until the end: it is a convenience, and a full
    disk is told of by what matters.
    """

    def __init__(self) -> None:
        super().__init__()
        self._file: FileHistory | None = None
        self._typed: list[str] = []

    def keep_in(self, folder: Path) -> None:
        """Read what `folder` has, and write to it from now on."""
        self._file = FileHistory(folder / FILE)
        for text in self._typed:
            self._write(text)

    def load_history_strings(self) -> Iterable[str]:
        """Newest first."""
        if self._file is None:
            return ()
        try:
            return list(self._file.load_history_strings())
        except OSError:
            return ()

    def store_string(self, string: str) -> None:
        """One more line."""
        if len(string) <= MOST_CHARACTERS:
            self._typed.append(string)
            self._write(string)

    def _write(self, text: str) -> None:
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.store_string(text)


MOST_SHOWN = 2000
"""Characters of a paste that are put into the line; a longer one is shown by its size."""
PASTE_PLACEHOLDER = re.compile(r"\[paste (\d+): \d+ lines?\]")
CLEARED = "Ctrl-D or /quit ends the session."
"""What Ctrl-C says where there is nothing to clear."""


@dataclass
class Pastes:
    """Long pastes, and what stands for them in the line."""

    texts: list[str] = field(default_factory=list)

    def shown(self, text: str) -> str:
        """What is put into the line for a paste."""
        if len(text) <= MOST_SHOWN:
            return text
        self.texts.append(text)
        count = text.count("\n") + 1
        return f"[paste {len(self.texts)}: {count} line{'s' if count > 1 else ''}]"

    def restored(self, line: str) -> str:
        """The line with the pastes in place of what stands for them."""

        def text(match: re.Match[str]) -> str:
            at = int(match[1]) - 1
            return self.texts[at] if at < len(self.texts) else match[0]

        return PASTE_PLACEHOLDER.sub(text, line)


class PromptInput:
    """Lines typed at a terminal. `prompt` is asked anew for each line, `names` at each Tab, `say`
    writes a hint, `idle` is free while the prompt stands."""

    typed = True

    def __init__(self, prompt: Callable[[], str], idle: IdleLock) -> None:
        self._idle = idle
        self.history = SessionHistory()
        self.prompt = prompt
        self.names: Callable[[], Names] = Names
        self.say: Callable[[str], None] = print_plain
        self._unread: list[str] = []
        self._pastes = Pastes()
        self._failure: BaseException | None = None
        self._completer = DynamicCompleter(self._of_session)
        self._session: PromptSession[str] = PromptSession(
            completer=self._completer,
            complete_while_typing=Condition(self._is_command),
            auto_suggest=AutoSuggestFromHistory(),
            history=self.history,
            key_bindings=self._bindings(),
            reserve_space_for_menu=6,
        )

    def when_shown(self, begin: Callable[[], None]) -> None:
        """Call `begin` once, as soon as the first prompt stands."""
        shown = self._session.app.after_render

        def once(app: object) -> None:
            shown.remove_handler(once)
            begin()

        shown.add_handler(once)

    def unread(self, line: str) -> None:
        """Give `line` once more, before what is typed next."""
        self._unread.append(line)

    def lines(self) -> Iterator[str]:
        """Until Ctrl-D. Raises what `fail` was given."""
        while True:
            if self._unread:
                yield self._unread.pop()
                continue
            try:
                # Inside: whoever swaps stdout meanwhile puts the patched one back.
                with patch_stdout(raw=True), self._idle.typing():
                    line = self._session.prompt(self.prompt(), pre_run=self._check)
            except EOFError:
                return
            except SessionClosing:
                raise
            except KeyboardInterrupt:  # while this line waited for the other thread: it is dropped
                continue
            yield self._pastes.restored(line)

    def answer(self, question: str) -> str:
        """A line for a question alone: it has no history and completes nothing, and what was typed
        before it was read is no answer."""
        asked: PromptSession[str] = PromptSession()
        clear_typeahead(asked.app.input)
        termios.tcflush(sys.stdin, termios.TCIFLUSH)
        try:
            return asked.prompt(question)
        except EOFError:
            return ""

    def fail(self, error: BaseException) -> None:
        """End the prompt with `error`, from another thread."""
        self._failure = error
        loop = self._session.app.loop
        if loop is not None:
            with contextlib.suppress(RuntimeError):  # the prompt ended meanwhile
                loop.call_soon_threadsafe(self._check)

    def _check(self) -> None:
        app = self._session.app
        if self._failure is not None and app.is_running and not app.is_done:
            app.exit(exception=self._failure)

    def _of_session(self) -> Completer:
        module = import_module("agentkernel.cli.chat.completer")
        completer: Completer = module.SessionCompleter(self.names)
        return completer

    def _is_command(self) -> bool:
        return self._session.default_buffer.text.startswith("/")

    def _bindings(self) -> KeyBindings:
        bindings = KeyBindings()

        @bindings.add(Keys.BracketedPaste)
        def paste(event: KeyPressEvent) -> None:
            text = event.data.replace("\r\n", "\n").replace("\r", "\n")
            event.current_buffer.insert_text(self._pastes.shown(text))

        @bindings.add(Keys.ControlC)
        @bindings.add(Keys.SIGINT)
        def clear(event: KeyPressEvent) -> None:
            was_empty = not event.current_buffer.text
            event.current_buffer.reset()
            if was_empty:
                run_in_terminal(lambda: self.say(CLEARED))

        @bindings.add(Keys.ControlI)
        def tab(event: KeyPressEvent) -> None:
            self._complete(event.current_buffer)

        return bindings

    def _complete(self, buffer: Buffer) -> None:
        """Put in what is sure, at once: the menu that opens while one types may still be on its
        way. Then the menu, and from entry to entry in it."""
        if buffer.complete_state is not None:
            buffer.complete_next()
            return
        asked = CompleteEvent(completion_requested=True)
        found = list(self._completer.get_completions(buffer.document, asked))
        if len(found) == 1:
            buffer.apply_completion(found[0])
            return
        common = get_common_complete_suffix(buffer.document, found)
        if common:
            buffer.insert_text(common)
        buffer.start_completion(select_first=False)
