"""Which fixes that are known bear on a failure?"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from agentkernel.agents.retriever import KnowledgeSearch
from agentkernel.domain.base import Frozen
from agentkernel.domain.knowledge import Entry, Filters, Query
from agentkernel.domain.verdict import Failure
from agentkernel.knowledge.fixes import match

MOST = 2
ADVICE_MOST = 400


class KnownFix(Frozen):
    """An entry that tells what mends an error. Its text is data."""

    id: str
    title: str
    text: str
    literal: bool
    """One of its own error lines stands in the log; else it is only about the like."""


KnownFixes = Callable[[Failure], Sequence[KnownFix]]
"""The fixes for a failure, the surest first."""


def no_known_fixes(failure: Failure) -> tuple[KnownFix, ...]:
    """Nothing is known."""
    return ()


def fixes_from(base: KnowledgeSearch) -> KnownFixes:
    """The fixes of a knowledge base: those whose error lines stand in the log, then the nearest."""

    def known(failure: Failure) -> tuple[KnownFix, ...]:
        text = error_text(failure)
        if not text:
            return ()
        literal = match(text)
        hits = base.search(Query(words=text, filters=Filters(kinds=("fix",)), limit=MOST))
        found = [entry for name in literal if (entry := base.get(name)) is not None]
        found += [hit.entry for hit in hits if hit.entry.id not in literal]
        return tuple(_known(entry, entry.id in literal) for entry in found[:MOST])

    return known


def error_text(failure: Failure) -> str:
    """What an error said; "" for a failure that raised none."""
    return str(getattr(failure, "log", ""))


def best_fix_text(fixes: Sequence[KnownFix]) -> str:
    """The surest fix in a sentence, with its id, if its own error line was seen; else ""."""
    first = next((item for item in fixes if item.literal), None)
    return "" if first is None else f" Known ({first.id}): {first.title}. {_how(first.text)}"


def _how(text: str) -> str:
    """The first paragraph of what mends it, on one line."""
    section = text.partition("## Fix")[2].strip().partition("\n\n")[0]
    line = " ".join(section.split())
    return line if len(line) <= ADVICE_MOST else f"{line[:ADVICE_MOST]}..."


def _known(entry: Entry, literal: bool) -> KnownFix:
    return KnownFix(id=entry.id, title=entry.title, text=entry.answer, literal=literal)
