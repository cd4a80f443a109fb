"""How does text of any origin get to a terminal without steering it?"""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel
from rich.cells import cell_len
from rich.text import Text

from agentkernel.domain.plain_text import escape, plain

Model = TypeVar("Model", bound=BaseModel)
DASH = "–"
"""What stands where there is no value."""
TAB = 4
"""Columns of a tab."""


def escaped(text: str, unicode: bool = True) -> str:
    r"""`text` with everything that is no visible sign written out: ESC becomes `\x1b`.

    Line ends and tabs stay, tabs as blanks. Without `unicode` the answer is ASCII, a dash too.
    """
    text = plain(text)
    if not unicode:
        text = text.replace(DASH, "-").encode("ascii", "backslashreplace").decode("ascii")
    return text.expandtabs(TAB)


def escaped_model(value: Model, unicode: bool = True) -> Model:
    """A copy of `value` with every text in it, however deep, as `escaped` writes it."""
    changes = {
        name: _shown_value(getattr(value, name), unicode) for name in type(value).model_fields
    }
    return value.model_copy(update=changes)


def _shown_value(value: Any, unicode: bool) -> Any:
    match value:
        case str():
            return escaped(value, unicode)
        case BaseModel():
            return escaped_model(value, unicode)
        case tuple() | list():
            return type(value)(_shown_value(item, unicode) for item in value)
        case dict():
            return {
                _shown_value(key, unicode): _shown_value(item, unicode)
                for key, item in value.items()
            }
    return value


def flat(text: str) -> str:
    """On one line."""
    return " ".join(text.split())


def relative_path(path: str) -> str:
    """A path as it is typed from the working folder; one that lies elsewhere stays as it is."""
    try:
        return str(Path(path).relative_to(Path.cwd())) if path else path
    except (ValueError, OSError):
        return path


def truncate(text: str, width: int, unicode: bool = True) -> str:
    """At most `width` columns of a line; the cut is marked by … (by > in ASCII)."""
    if cell_len(text) <= width:
        return text
    line = Text(text)
    line.truncate(max(0, width - 1), overflow="crop")
    return line.plain + ("…" if unicode else ">") if width > 0 else ""


def truncate_line(line: Text, width: int, unicode: bool) -> Text:
    """The same for a line with styles."""
    if line.cell_len <= width:
        return line
    line = line.copy()
    line.truncate(max(0, width - 1), overflow="crop")
    line.append("…" if unicode else ">", style="dim")
    return line


__all__ = [
    "escape",
    "escaped",
    "escaped_model",
    "flat",
    "relative_path",
    "truncate",
    "truncate_line",
]
