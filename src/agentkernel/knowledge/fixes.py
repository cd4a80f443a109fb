"""Which error or symptom of a Triton kernel has a known cause, and what mends it?"""

from __future__ import annotations

import functools
import re
from pathlib import Path

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
    text = _squeezed(error)
    best: dict[str, int] = {}
    for name, pattern, literal in _patterns(folder):
        if literal > best.get(name, 0) and pattern.search(text):
            best[name] = literal
    return sorted(best, key=lambda name: (-best[name], name))


@functools.cache
def _patterns(folder: Path) -> tuple[tuple[str, re.Pattern[str], int], ...]:
    return tuple(
        (f"fixes/{path.stem}", _pattern(line), len(line.replace("*", "")))
        for path in sorted(folder.glob("*.md"))
        for line in _read(path)[0].errors
    )


def _pattern(line: str) -> re.Pattern[str]:
    parts = [re.escape(part) for part in _squeezed(line).strip("*").split("*")]
    return re.compile(f".{{0,{VARIES}}}?".join(parts), re.IGNORECASE)


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
