"""Escaping of text from outside for terminals, pages, reports, JSON and logs.

Escaped text steers no terminal, fakes no line, hides and reorders nothing, and can be written as
UTF-8.
"""

from __future__ import annotations

import unicodedata

KEPT = "\n\t"


def plain(text: str) -> str:
    r"""`text` of several lines with every sign that does not print written out.

    ESC becomes `\x1b`, a mark that turns the direction of writing `\u202e`, a surrogate without its
    other half `\ud800`. Line feeds, tabs and blanks of any width stay.
    """
    text = text.replace("\r\n", "\n")
    if text.replace("\n", "").replace("\t", "").isprintable():
        return text
    return "".join(sign if sign in KEPT or _prints(sign) else escape(sign) for sign in text)


def plain_line(text: str) -> str:
    """The same of a name or another text of one line: a break in it is written out."""
    if text.isprintable():
        return text
    return "".join(sign if _prints(sign) else escape(sign) for sign in text)


def sentence(text: str) -> str:
    """`text` with its end: a full stop where it has none, or has several."""
    text = text.rstrip()
    return text if text.endswith(("!", "?")) else f"{text.rstrip('.')}."


def plain_values(value: object) -> object:
    """`value`, as JSON is read, with `plain` on every text in it, names of entries too."""
    if isinstance(value, str):
        return plain(value)
    if isinstance(value, list):
        return [plain_values(item) for item in value]
    if isinstance(value, dict):
        return {plain(str(key)): plain_values(item) for key, item in value.items()}
    return value


def escape(sign: str) -> str:
    r"""`\n`, `\x1b`, `\u202e` or `\U000e0001`."""
    return sign.encode("unicode_escape").decode()


def _prints(sign: str) -> bool:
    return sign.isprintable() or unicodedata.category(sign) == "Zs"


__all__ = ["escape", "plain", "plain_line", "plain_values"]
