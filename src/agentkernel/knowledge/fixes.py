"""Which error or symptom of a Triton kernel has a known cause, and what mends it?"""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import NamedTuple

from pydantic import Field, ValidationError

from agentkernel.domain.base import Frozen
from agentkernel.domain.knowledge import Entry
from agentkernel.knowledge.documents import DocumentError, read_page

FOLDER = Path(__file__).parent / "fixes"
SECTIONS = ("Cause", "Fix", "Check")
VARIES = 200
"""Characters that a `*` may stand for; a log is long, and two halves far apart are no hit."""


class FixFrontMatter(Frozen):
    """What a fix says of itself."""

    title: str
    errors: tuple[str, ...] = ()
    """Lines as the user sees them; `*` stands for what varies."""
    symptoms: tuple[str, ...] = Field(min_length=1)
    """The same in plain words, one situation each."""
    applies: str = ""
    """The Triton versions it is for; "": all."""
    source: str
    licence: str


def load_fixes(folder: Path = FOLDER) -> tuple[Entry, ...]:
    """All fixes (`*.md`) in `folder` as entries, by id.

    The passages are each error line, each symptom, and the title with the cause. Raises
    DocumentError for a file that does not parse.
    """
    return tuple(read_fix(path) for path in sorted(folder.glob("*.md")))


def read_fix(path: Path) -> Entry:
    """One Markdown page with the front matter of `FixFrontMatter` and the three `SECTIONS`.

    Its cause's first paragraph is the summary. Raises DocumentError, which names the file.
    """
    front, text = _read(path)
    summary = _first_paragraph(text)
    return Entry(
        id=f"fixes/{path.stem}",
        kind="fix",
        title=front.title,
        summary=summary,
        answer=text,
        passages=(*front.errors, *front.symptoms, f"{front.title}. {summary}"),
        source=front.source,
        licence=front.licence,
        triton=front.applies or None,
    )


def match(error: str, folder: Path = FOLDER) -> list[str]:
    """The ids of the fixes whose error lines occur in `error`, the most literal line first.

    `error` is any text: a message, a log, a traceback. Case and the breaking of lines do not
    count. An error that no fix knows gives an empty list.
    """
    text = _squeezed(error).lower()
    best: dict[str, int] = {}
    for line in _error_lines(folder):
        if line.length > best.get(line.fix, 0) and line.occurs_in(text):
            best[line.fix] = line.length
    return sorted(best, key=lambda fix: (-best[fix], fix))


class _ErrorLine(NamedTuple):
    """One error line of a fix, ready to be looked for in lower-case text."""

    fix: str
    parts: tuple[str, ...]
    """What stands between the `*`s."""
    pattern: re.Pattern[str]

    @property
    def length(self) -> int:
        """Literal characters."""
        return sum(map(len, self.parts))

    def occurs_in(self, text: str) -> bool:
        # The plain search is far faster than the pattern, and most lines are in no log.
        return all(part in text for part in self.parts) and bool(self.pattern.search(text))


@functools.cache
def _error_lines(folder: Path) -> tuple[_ErrorLine, ...]:
    return tuple(
        _error_line(f"fixes/{path.stem}", line)
        for path in sorted(folder.glob("*.md"))
        for line in _read(path)[0].errors
    )


def _error_line(fix: str, line: str) -> _ErrorLine:
    # A `*` at an end finds nothing more, and in front it makes the search slow.
    parts = tuple(_squeezed(line).lower().strip("*").split("*"))
    pattern = f".{{0,{VARIES}}}?".join(map(re.escape, parts))
    return _ErrorLine(fix, parts, re.compile(pattern))


def _squeezed(text: str) -> str:
    return " ".join(text.split())


def _read(path: Path) -> tuple[FixFrontMatter, str]:
    page = read_page(path)
    try:
        front = FixFrontMatter.model_validate(page.front)
    except ValidationError as error:
        raise DocumentError(f"{path}: {error}") from error
    found = tuple(re.findall(r"^## (.+)$", page.body, flags=re.MULTILINE))
    if found != SECTIONS:
        raise DocumentError(f"{path} has sections {found}. Expected {SECTIONS}.")
    return front, page.body


def _first_paragraph(text: str) -> str:
    """The first paragraph below the first heading, on one line."""
    return _squeezed(text.split("\n\n")[1])
