"""Which of the readings that were asked about does an answer pick?"""

from __future__ import annotations

from agentkernel.chat.intent import Intent, Plain, Understanding, Understood

MOST_DIGITS = 2


def pick_option(
    text: str, found: Understanding, options: tuple[tuple[Intent, ...], ...]
) -> tuple[Intent, ...] | None:
    """The one that a number names, counted from 1, or, where there is only one, that a yes in any
    wording means. `found`: what the grammar reads in `text`. None: it picks none."""
    word = text.strip().rstrip(".!").lower()
    if word.isdecimal() and len(word) <= MOST_DIGITS and 1 <= int(word) <= len(options):
        return options[int(word) - 1]
    if len(options) == 1 and found == Understood(intents=(Plain(name="approve"),)):
        return options[0]
    return None
