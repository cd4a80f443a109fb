"""Which JSON objects stand in a model's answer, wherever it put them?"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

JSON = None | bool | int | float | str | list["JSON"] | dict[str, "JSON"]
THOUGHT = re.compile(r"<think>.*?(</think>|\Z)", re.S)
THOUGHT_END = "</think>"
LONGEST = 400_000
"""Characters at the end of an answer that are looked at; no answer worth reading is longer."""

OBJECT = re.compile(r'\{(?=\s{0,100}["}])')
MOST_TRIES = 5_000
"""Beginnings that come to nothing before the search ends: each costs a look at the text before."""


def without_reasoning(answer: str) -> str:
    """`answer` without its thoughts: some templates open the thought in the prompt, so that only
    its end is seen."""
    text = THOUGHT.sub("", answer[-LONGEST:].replace("\r\n", "\n").replace("\r", "\n"))
    return text.rpartition(THOUGHT_END)[2]


def objects_in(answer: str) -> list[dict[str, JSON]]:
    """The outermost JSON objects of `answer` in order; bare, fenced or in the middle of prose."""
    return list(_scan(without_reasoning(answer)))


def _scan(text: str) -> Iterator[dict[str, JSON]]:
    decoder = json.JSONDecoder(strict=False)
    tries, begin = 0, OBJECT.search(text)
    while begin is not None and tries < MOST_TRIES:
        try:
            found, end = decoder.raw_decode(text, begin.start())
        except (ValueError, RecursionError):
            tries, end = tries + 1, begin.start() + 1
        else:
            yield found
        begin = OBJECT.search(text, end)
