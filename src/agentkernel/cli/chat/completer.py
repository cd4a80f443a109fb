"""What Tab offers: commands and their arguments behind `/`, candidates in any sentence."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator

from prompt_toolkit.completion import CompleteEvent, Completer, Completion, PathCompleter
from prompt_toolkit.document import Document

from agentkernel.cli.chat.arguments import PLACES, setting_choices
from agentkernel.cli.chat.commands import COMMANDS, ArgumentKind, Command
from agentkernel.cli.chat.prompt import Names

CANDIDATE = re.compile(r"(?:^|\s)(c\d*)$")
PRECISIONS = ("strict", "tf32", "bf16")


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
