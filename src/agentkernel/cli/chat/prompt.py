"""The interactive prompt: completion, history, suggestions, and a paste as one input.

Built on prompt_toolkit. Lines for the arrow keys are kept in the session's folder; a long paste
is shown by its size and restored when the line is read.
"""

from __future__ import annotations

import contextlib
import re
import sys
import termios
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from prompt_toolkit import PromptSession
from prompt_toolkit.application import run_in_terminal
from prompt_toolkit.auto_suggest import AutoSuggestFromHistory
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.completion import (
    CompleteEvent,
    Completer,
    Completion,
    PathCompleter,
    get_common_complete_suffix,
)
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition
from prompt_toolkit.history import FileHistory, InMemoryHistory
from prompt_toolkit.input.typeahead import clear_typeahead
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys
from prompt_toolkit.patch_stdout import patch_stdout

from agentkernel.cli.chat.arguments import PLACES, setting_choices
from agentkernel.cli.chat.commands import COMMANDS, ArgumentKind, Command
from agentkernel.cli.chat.sessions import IdleLock
from agentkernel.cli.terminal import SessionClosing

CANDIDATE = re.compile(r"(?:^|\s)(c\d*)$")
PRECISIONS = ("strict", "tf32", "bf16")


@dataclass(frozen=True)
class Names:
    """What exists in the session now, newest last."""

    candidates: tuple[int, ...] = ()
    branches: tuple[int, ...] = ()
    targets: tuple[str, ...] = ()


class SessionCompleter(Completer):
    """Commands and their arguments behind `/`, candidates in any sentence. `names` is asked at
    each Tab, so that a candidate of a moment ago is offered."""

    def __init__(self, names: Callable[[], Names]) -> None:
        self.names = names
        self._paths = PathCompleter(expanduser=True)

    def get_completions(self, document: Document, event: CompleteEvent) -> Iterator[Completion]:
        text = document.text_before_cursor
        if "\n" in text:
            return
        if not text.startswith("/"):
            match = CANDIDATE.search(text)
            if match:
                yield from offers(match[1], self._candidates())
            return
        name, space, rest = text[1:].partition(" ")
        if not space:
            yield from offers(name, COMMANDS, {item.name: item.help for item in COMMANDS.values()})
            return
        command = COMMANDS.get(name.lower())
        if command is not None:
            yield from self._arguments(command, rest, event)

    def _arguments(self, command: Command, rest: str, event: CompleteEvent) -> Iterator[Completion]:
        words = re.split(r"[ =]+", rest) if command.name == "set" else rest.split(" ")
        at = len(words) - 1
        if command.kinds == ("path",):
            fragment = rest.lstrip()
            yield from self._paths.get_completions(Document(fragment), event)
        elif at < len(command.kinds):
            yield from offers(words[-1], self._choices(command.kinds[at], words[0]))

    def _choices(self, kind: ArgumentKind, key: str) -> tuple[str, ...]:
        match kind:
            case "candidate":
                return (*self._candidates(), *PLACES)
            case "branch":
                return (*map(str, self.names().branches), *self._candidates())
            case "key":
                return tuple(setting_choices())
            case "value":
                targets = (*self.names().targets, "local") if key == "target" else ()
                return (*targets, *setting_choices().get(key, ()))
            case "target":
                return (*self.names().targets, "local")
            case "precision":
                return PRECISIONS
            case "idea":
                return ("next", "last")
            case "command":
                return tuple(COMMANDS)
            case "path" | "text":
                return ()

    def _candidates(self) -> tuple[str, ...]:
        return tuple(f"c{number}" for number in reversed(self.names().candidates))


def offers(
    word: str, known: Iterable[str], notes: dict[str, str] | None = None
) -> Iterator[Completion]:
    """Those of `known` that begin with `word`, without regard to capitals."""
    for item in known:
        if item.lower().startswith(word.lower()):
            note = (notes or {}).get(item, "")
            yield Completion(item, start_position=-len(word), display_meta=note)


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
