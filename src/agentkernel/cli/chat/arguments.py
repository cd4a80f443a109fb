"""Values of the slash commands' arguments: candidates, ideas, line ranges, time spans, settings."""

from __future__ import annotations

import re
import types
from collections.abc import Iterator
from functools import cache
from typing import Literal, NamedTuple, Union, get_args, get_origin

import yaml
from pydantic import BaseModel

from agentkernel.chat.requests import CandidateRef, IdeaRef, Which
from agentkernel.chat.tree import SettingValue
from agentkernel.cli.rendering.text import SPAN, SPAN_FACTORS
from agentkernel.domain.settings import Settings
from agentkernel.storage.configuration import parse_yaml

PLACES: tuple[Which, ...] = get_args(Which)
CANDIDATE = re.compile(r"c(\d{1,9})", re.I)
NUMBER = re.compile(r"\d{1,9}")
LINES = re.compile(r"(?:lines?\s+)?(\d{1,9})(?:\s*(?:-|to)\s*(\d{1,9}))?$", re.I)
ROUNDS = re.compile(r"(\d{1,9})(?:\s*rounds?)?(?=\s|$)", re.I)


class InvalidArgument(Exception):
    """Carries what is wrong, without the usage."""


class LineRange(NamedTuple):
    """Lines of a file, counted from 1; `last` None: one line."""

    first: int
    last: int | None


class Span(NamedTuple):
    """How far a run goes; None: as the settings say."""

    rounds: int | None
    seconds: float | None


def candidate(word: str) -> CandidateRef:
    """`c3` or `3`, or a place such as `fastest`. Raises WrongArgument."""
    match = CANDIDATE.fullmatch(word) or re.fullmatch(r"(\d{1,9})", word)
    if match is not None and int(match[1]) > 0:
        return int(match[1])
    place = next((item for item in PLACES if item == word.lower()), None)
    if place is None:
        places = ", ".join(PLACES)
        raise InvalidArgument(f"{word[:40]!r} is no candidate; expected c1, c2 ... or {places}")
    return place


def idea(word: str) -> IdeaRef:
    """`2`, `next` or `last`. Raises WrongArgument."""
    if word.lower() == "next":
        return "next"
    if word.lower() == "last":
        return "last"
    return number(word, "an idea's number, next or last")


def number(word: str, expected: str = "a number from 1 on") -> int:
    """A whole number from 1 on. Raises WrongArgument."""
    if NUMBER.fullmatch(word) is None or int(word) == 0:
        raise InvalidArgument(f"{word[:40]!r} is not {expected}")
    return int(word)


def lines(text: str) -> LineRange:
    """`12`, `12-20` or `line 12`. Raises WrongArgument."""
    match = LINES.fullmatch(text)
    if match is None or int(match[1]) == 0:
        raise InvalidArgument(f"{text[:40]!r} is no line; expected e.g. 12 or 12-20")
    first, last = int(match[1]), int(match[2]) if match[2] else None
    if last is not None and last < first:
        raise InvalidArgument(f"lines {first}-{last} run backwards; expected {last}-{first}")
    return LineRange(first, last)


def span(text: str) -> Span:
    """`3`, `3 rounds`, `10m`, or both. Raises WrongArgument."""
    rest = text.strip()
    rounds = ROUNDS.match(rest)
    count = number(rounds[1], "a number of rounds from 1 on") if rounds else None
    rest = rest[rounds.end() :].strip() if rounds else rest
    if not rest:
        return Span(count, None)
    time = SPAN.match(rest)
    if time is None or time[2] is None or float(time[1]) == 0:
        raise InvalidArgument(f"{rest[:40]!r} is no time span; expected e.g. 90s, 10m or 1h")
    return Span(count, float(time[1]) * SPAN_FACTORS[time[2].lower()])


def setting(text: str) -> SettingValue:
    """A value in YAML: `3`, `0.5`, `true`, `null` or a name. Raises WrongArgument."""
    try:
        value = parse_yaml(text)
    except yaml.YAMLError:
        value = text
    if value is None or isinstance(value, str | int | float | bool):
        return value
    raise InvalidArgument(
        f"{text[:40]!r} is no single value; expected e.g. 3, true, null or a name"
    )


def path(text: str) -> str | None:
    """The rest of a line as one path, with or without quotes; None where there is none."""
    plain = text.strip()
    if len(plain) > 1 and plain[0] == plain[-1] and plain[0] in "'\"":
        plain = plain[1:-1]
    return plain or None


@cache
def setting_choices() -> dict[str, tuple[str, ...]]:
    """Dotted key -> the values that it takes, where they can be listed, else ()."""
    return dict(_fields(Settings, ""))


def setting_keys() -> tuple[str, ...]:
    """Every dotted key."""
    return tuple(setting_choices())


def _fields(model: type[BaseModel], prefix: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    for name, info in model.model_fields.items():
        kind = info.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            yield from _fields(kind, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", tuple(_choices(kind))


def _choices(kind: object) -> Iterator[str]:
    """The values of a Literal or a bool, and `null` for what may be left out."""
    if kind is bool:
        yield from ("true", "false")
    elif kind is type(None):
        yield "null"
    elif get_origin(kind) is Literal:
        yield from (str(value) for value in get_args(kind))
    elif get_origin(kind) in (Union, types.UnionType):
        for part in get_args(kind):
            yield from _choices(part)
