"""How is text that others wrote shown, so that it steers no terminal and fakes no line?"""

from __future__ import annotations

LINES = "\n\t"
REPLACED = "\ufffd"


def plain(text: str) -> str:
    """`text` of several lines with everything that does not print written out: `\\x1b`."""
    text = text.replace("\r\n", "\n")
    return "".join(sign if sign.isprintable() or sign in LINES else _written(sign) for sign in text)


def on_one_line(text: str) -> str:
    """The same of a title, a licence or another text of one line: a break in it is written out."""
    return "".join(sign if sign.isprintable() else _written(sign) for sign in text)


def readable(text: str) -> str:
    """`text` with the bytes replaced that are no UTF-8 (Python hands them over as surrogates)."""
    return "".join(REPLACED if "\ud800" <= sign <= "\udfff" else sign for sign in text)


def _written(sign: str) -> str:
    return sign.encode("unicode_escape").decode()
