"""Which line of a candidate does a log speak of, and what stands around it?"""

from __future__ import annotations

import re

from agentkernel.domain.base import Frozen

AROUND = 4
TRITON_PLACE = re.compile(r"at \d+:\d+:\n((?:.*\n)*?)[ \t]*\^")
"""Triton quotes the kernel up to the line in question, the last dozen lines at most."""
TRACEBACK_PLACE = re.compile(r'candidate\.py"?,? line (\d+)')
KERNEL_PLACE = re.compile(r"\bkernel \w+ line (\d+)")
LINE_MOST = 160


class Excerpt(Frozen):
    """A line of the candidate (from 1) with those around it, numbered; `>` marks it."""

    line: int
    text: str


def blamed_line(source: str, log: str, known: int | None = None) -> int | None:
    """The line that `log` blames. A kernel's own line, as Triton quotes it, goes before `known`,
    which may be the launch's."""
    quoted = TRITON_PLACE.findall(log)
    place = _quoted_at(source, quoted[-1]) if quoted else None
    if place is not None:
        return place
    named = [int(item) for item in KERNEL_PLACE.findall(log) or TRACEBACK_PLACE.findall(log)]
    return known or (named[-1] if named else None)


def excerpt(source: str, line: int | None) -> Excerpt | None:
    """The lines around `line`; None where the source has no such line."""
    lines = source.split("\n")
    if line is None or not 1 <= line <= len(lines):
        return None
    first, last = max(1, line - AROUND), min(len(lines), line + AROUND)
    shown = [
        f"{'>' if number == line else ' '} {number:4d} | {lines[number - 1][:LINE_MOST]}".rstrip()
        for number in range(first, last + 1)
    ]
    return Excerpt(line=line, text="\n".join(shown))


def _quoted_at(source: str, quoted: str) -> int | None:
    """The line where the quoted lines end; None where they stand nowhere or more than once."""
    wanted = [line.strip() for line in quoted.rstrip("\n").split("\n")]
    lines = [line.strip() for line in source.split("\n")]
    size = len(wanted)
    places = [at for at in range(len(lines) - size + 1) if lines[at : at + size] == wanted]
    return places[0] + size if len(places) == 1 else None
