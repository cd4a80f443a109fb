"""What was typed: a sentence, a candidate that was pasted, or something that cannot be read?"""

from __future__ import annotations

import re
from typing import NamedTuple

FENCE = re.compile(r"^\s*(`{3,}|~{3,})[^\n]*\n(.*?)(?:\n[ \t]*\1|\Z)", re.S)
BEGINS = re.compile(
    r"^\s*(?:import (?:torch|triton)\b|from (?:torch|triton|__future__)\b|@triton\b)"
)
MODEL_NEW = re.compile(r"^class ModelNew\b", re.M)
UNSEEN = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]")
COMMAND = re.compile(r"/([a-z][a-z-]*)(?=\s|\Z)", re.I)
MOST_SOURCE = 256 * 1024
"""Characters of a pasted file."""
MOST_SENTENCE = 600
"""Characters of a request in words."""
SHOWN = 120


class Sentence(NamedTuple):
    """A request in words, without characters that cannot be seen."""

    text: str


class Pasted(NamedTuple):
    """The source of a candidate."""

    source: str


class Unreadable(NamedTuple):
    """Neither: why, in one line, and what of it stands in the transcript."""

    why: str
    kept: str


def classify_input(text: str) -> Sentence | Pasted | Unreadable:
    """What `text` is. A fenced block, an import of torch or a class ModelNew begin a candidate."""
    plain = readable(text)
    if is_source(plain):
        source = _unfenced(plain)
        if len(source) > MOST_SOURCE:
            return _too_long(text, f"a candidate of at most {MOST_SOURCE:,} characters")
        return Pasted(source)
    words = UNSEEN.sub("", plain).strip()
    if not words:
        why = "Nothing was typed. 'help' lists what can be asked."
        return Unreadable(why if not plain.strip() else f"No letters in it. {why}", "")
    command = COMMAND.match(words)
    if command:
        why = f"{command[0]!r} is a command of 'agentkernel chat', alone on a line. Expected words"
        return Unreadable(f"{why}. Next: 'help' lists what can be asked.", words[:SHOWN])
    if len(words) > MOST_SENTENCE:
        return _too_long(text, f"a sentence of at most {MOST_SENTENCE}, or a file with ModelNew")
    return Sentence(words)


def readable(text: str) -> str:
    """`text` with plain line ends and without halves of characters, which cannot be written."""
    whole = text.encode("utf-8", "replace").decode("utf-8")
    return whole.replace("\r\n", "\n").replace("\r", "\n")


def is_source(text: str) -> bool:
    """True where it reads as a file and not as a sentence."""
    return bool(FENCE.match(text) or BEGINS.match(text) or MODEL_NEW.search(text))


def _unfenced(text: str) -> str:
    found = FENCE.match(text)
    source = found[2] if found else text
    return source.strip("\n") + "\n"


def _too_long(text: str, expected: str) -> Unreadable:
    why = f"That is {len(text):,} characters. Expected {expected}. Next: a shorter one."
    head = " ".join(UNSEEN.sub("", text[:SHOWN]).split())
    return Unreadable(why, f"{head} ... ({len(text):,} characters)")
