"""What is typed in a session that is to be captured, and what is done while a turn runs?

The format stands in capture_session.py.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, get_args

TOKEN = re.compile(r"<(paste [^<>]+|[A-Z][\w-]*)>")
Verb = Literal["wait", "screen", "answer", "keys", "excerpt"]


class CaptureFailed(Exception):
    """The turns cannot be read, or one did not come back: one line that says which."""


@dataclass(frozen=True)
class Act:
    """Something done while a turn runs."""

    verb: Verb
    words: str = ""


@dataclass(frozen=True)
class Turn:
    """A line of a turns file with what is done while it runs."""

    text: str
    acts: tuple[Act, ...] = ()


@dataclass(frozen=True)
class Keys:
    """Part of a turn: `text` that is typed, a `key` that is pressed, or a `paste`d file."""

    kind: Literal["text", "key", "paste"]
    value: str


def turns_of(text: str) -> tuple[Turn, ...]:
    """The turns of a turns file. Raises CaptureFailed, which names the line."""
    turns: list[Turn] = []
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        if not line[0].isspace():
            turns.append(Turn(line.rstrip()))
            continue
        if not turns:
            raise CaptureFailed(f"Line {number} is indented, but no turn stands above it.")
        turns[-1] = Turn(turns[-1].text, (*turns[-1].acts, act_of(line.strip(), number)))
    return tuple(turns)


def act_of(text: str, number: int) -> Act:
    """One indented line. Raises CaptureFailed."""
    first, _, words = text.partition(" ")
    for verb in get_args(Verb):
        if first == verb and bool(words) == (verb != "screen") and countable(verb, words):
            return Act(verb, words)
    raise CaptureFailed(
        f"Line {number}, {text!r}: expected 'wait WORDS', 'screen', 'answer TEXT', 'keys KEYS' or "
        "'excerpt LINES'."
    )


def countable(verb: Verb, words: str) -> bool:
    """False where `words` should be a number and are none."""
    return verb != "excerpt" or (words.isdecimal() and int(words) > 0)


def keys_of(text: str) -> tuple[Keys, ...]:
    """A turn as it is typed, without the last Enter."""
    keys: list[Keys] = []
    for index, part in enumerate(TOKEN.split(text)):
        if index % 2 == 0:
            keys += [Keys("text", part)] if part else []
        elif part.startswith("paste "):
            keys.append(Keys("paste", part.removeprefix("paste ")))
        else:
            keys.append(Keys("key", part))
    return tuple(keys)
