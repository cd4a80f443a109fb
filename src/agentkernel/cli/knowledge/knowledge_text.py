"""How is text that others wrote shown, so that it steers no terminal and fakes no line?"""

from __future__ import annotations

REPLACED = "\ufffd"


def readable(text: str) -> str:
    """`text` with the bytes replaced that are no UTF-8 (Python hands them over as surrogates)."""
    return "".join(REPLACED if "\ud800" <= sign <= "\udfff" else sign for sign in text)
