"""What does a file become by the edits of an answer: SEARCH/REPLACE blocks or a unified diff?

Only the text of an edit counts. The file names in a diff are not read: what is edited is the
parent's source, and nothing on a disk.
"""

from __future__ import annotations

import re
from typing import NamedTuple

SEARCH = re.compile(r"^<{5,9} ?SEARCH\b")
MIDDLE = re.compile(r"^={5,9}[ \t]*$")
REPLACE = re.compile(r"^>{5,9} ?REPLACE\b")
HUNK = re.compile(r"^@@(?: -(?P<start>\d+)(?:,\d+)? \+\d+(?:,\d+)? @@)?[^\n]*$")
MARKS = ("+", "-", " ", "\\")
MOST = 200
"""Edits of one answer that are applied."""
DIFF_END = re.compile(r"^(diff --git |--- |\+\+\+ |index [0-9a-f]+\.\.|```|~~~)")


class Edit(NamedTuple):
    """Lines to be found and what stands there afterwards; `near`: the claimed line, 0 for none."""

    old: tuple[str, ...]
    new: tuple[str, ...]
    near: int = 0


class Edits(NamedTuple):
    """All edits of an answer, with the place in it where the last one begins."""

    edits: tuple[Edit, ...]
    place: int


def find_edits(text: str) -> Edits | None:
    """The SEARCH/REPLACE blocks of `text`, else the hunks of its diffs; None where neither is."""
    return _blocks(text) or _hunks(text)


def apply_edits(source: str, edits: tuple[Edit, ...]) -> str | None:
    """`source` after all edits, in order; None where one finds no place or more than one."""
    lines = source.split("\n")
    for edit in edits:
        place = _find(lines, edit)
        if place is None:
            return None
        lines[place : place + len(edit.old)] = edit.new
    return "\n".join(lines)


def edit_is_open(text: str) -> bool:
    """True where the last SEARCH block of `text` does not come to its REPLACE."""
    is_open = False
    for line in text.split("\n"):
        is_open = (is_open or bool(SEARCH.match(line))) and not REPLACE.match(line)
    return is_open


def _find(lines: list[str], edit: Edit) -> int | None:
    """Where the old lines stand, exactly or but for the space at the ends of lines."""
    size = len(edit.old)
    if not size:
        return 0 if not any(lines) else None
    for form in (str, str.rstrip):
        wanted = [form(line) for line in edit.old]
        shaped = [form(line) for line in lines]
        places = [at for at in range(len(lines) - size + 1) if shaped[at : at + size] == wanted]
        if len(places) == 1:
            return places[0]
        if places and edit.near:
            return min(places, key=lambda at: abs(at + 1 - edit.near))
    return None


def _blocks(text: str) -> Edits | None:
    edits: list[Edit] = []
    last, offset = 0, 0
    sides: list[list[str]] = []
    for line in text.split("\n"):
        if SEARCH.match(line):
            sides, begin = [[]], offset
        elif len(sides) == 1 and MIDDLE.match(line):
            sides.append([])
        elif len(sides) == 2 and REPLACE.match(line):
            edits.append(Edit(tuple(sides[0]), tuple(sides[1])))
            sides, last = [], begin
        elif sides:
            sides[-1].append(line)
        offset += len(line) + 1
    return Edits(tuple(edits[:MOST]), last) if edits else None


def _hunks(text: str) -> Edits | None:
    edits: list[Edit] = []
    last, offset, near = 0, 0, 0
    hunk: list[str] | None = None
    for line in [*text.split("\n"), "@@"]:
        head = HUNK.match(line)
        if hunk is not None and (head or DIFF_END.match(line)):
            edits.append(_hunk(hunk, near))
            hunk = None
        if head and offset < len(text):
            hunk, near, last = [], int(head["start"] or 0), offset
        elif hunk is not None:
            hunk.append(line)
        offset += len(line) + 1
    changes = tuple(edit for edit in edits if edit.old != edit.new)
    return Edits(changes[:MOST], last) if changes else None


def _hunk(lines: list[str], near: int) -> Edit:
    """One hunk, without the prose that may follow it where no fence closes it.

    A line without a mark is context whose leading space was lost.
    """
    while lines and lines[-1][:1] not in MARKS:
        lines = lines[:-1]
    old, new = [], []
    for line in lines:
        mark, rest = line[:1], line[1:] if line[:1] in MARKS else line
        if mark not in ("+", "\\"):
            old.append(rest)
        if mark not in ("-", "\\"):
            new.append(rest)
    return Edit(tuple(old), tuple(new), near)
