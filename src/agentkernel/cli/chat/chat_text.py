"""How is text that somebody else wrote shown without moving the terminal?"""

from __future__ import annotations


def shortened(text: str, most: int) -> str:
    """The first line of `text`, at most `most` characters, with what was left out."""
    first, _, rest = text.strip().partition("\n")
    more = f" ... ({rest.count(chr(10)) + 2} lines)" if rest.strip() else ""
    cut = f"{first[:most]}..." if len(first) > most else first
    return f"{cut}{more}"
