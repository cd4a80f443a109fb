"""What do the words behind a slash command stand for?"""

from __future__ import annotations

import re
from typing import NamedTuple, get_args

import yaml

from agentkernel.chat.domain_session import SettingValue
from agentkernel.chat.intent import CandidateRef, IdeaRef, Which
from agentkernel.cli.rendering.quantities import SPAN, SPAN_FACTORS
from agentkernel.storage.yaml_text import parse_yaml

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
