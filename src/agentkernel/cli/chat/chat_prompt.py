"""What does a person type at, with completion, suggestions and pastes as one input?"""

from __future__ import annotations

import contextlib
import re
import sys
import termios
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from prompt_toolkit import PromptSession
from prompt_toolkit.application import run_in_terminal
from prompt_toolkit.auto_suggest import AutoSuggestFromHistory
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.completion import CompleteEvent, get_common_complete_suffix
from prompt_toolkit.filters import Condition
from prompt_toolkit.input.typeahead import clear_typeahead
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys
from prompt_toolkit.patch_stdout import patch_stdout

from agentkernel.cli.chat.chat_completion import Names, SessionCompleter
from agentkernel.cli.chat.chat_history import SessionHistory
from agentkernel.cli.chat.chat_idle import IdleLock
from agentkernel.cli.signals import SessionClosing

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
    """Lines typed at a terminal. `prompt` is asked anew for each line, `say` writes a hint, `idle`
    is free while the prompt stands."""

    typed = True

    def __init__(
        self,
        prompt: Callable[[], str],
        names: Callable[[], Names],
        say: Callable[[str], None],
        idle: IdleLock,
    ) -> None:
        self._idle = idle
        self.history = SessionHistory()
        self._prompt, self._say = prompt, say
        self._pastes = Pastes()
        self._failure: BaseException | None = None
        self._completer = SessionCompleter(names)
        self._session: PromptSession[str] = PromptSession(
            completer=self._completer,
            complete_while_typing=Condition(self._is_command),
            auto_suggest=AutoSuggestFromHistory(),
            history=self.history,
            key_bindings=self._bindings(),
            reserve_space_for_menu=6,
        )

    def lines(self) -> Iterator[str]:
        """Until Ctrl-D. Raises what `fail` was given."""
        while True:
            try:
                # Inside: whoever swaps stdout meanwhile puts the patched one back.
                with patch_stdout(raw=True), self._idle.typing():
                    line = self._session.prompt(self._prompt(), pre_run=self._check)
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
                run_in_terminal(lambda: self._say(CLEARED))

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
