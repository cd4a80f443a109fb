"""How does a fourth set, of requests and of sentences that ask for nothing, fare when it is asked?

When it was first asked, 80 of 100 requests were understood. Two were answered with one report more
than was asked for (the comparison with the status, a goal with the history); none of 30 sentences
that ask for nothing did anything. Nothing was learned from it.
"""

from __future__ import annotations

from pathlib import Path

import yaml
from pydantic import Field, TypeAdapter

from agentkernel.chat.language import understand
from agentkernel.chat.requests import Understood
from agentkernel.domain.base import Frozen
from tests.chat.language.test_intents_paraphrases import CHANGES_NOTHING, CONTEXT, NAMES, name_of

OWN_NAMES = NAMES | {
    "strict": frozenset({"precision=strict"}),
    "set_target": frozenset({"target"}),
    "set_shapes": frozenset({"shapes"}),
    "set_dtype": frozenset({"dtype"}),
    "stop_at_runtime": frozenset({"stop_at"}),
    "policy_triton": frozenset({"policy=triton"}),
    "policy_mixed": frozenset({"policy=mixed"}),
    "policy_any": frozenset({"policy=any"}),
    "verify": frozenset({"verify"}),
    "history": frozenset({"history"}),
}
LEAST_UNDERSTOOD = 0.80
MOST_MISREAD = 2


class Row(Frozen):
    """A sentence, the requests in it, and what else would be a fine answer."""

    text: str
    means: tuple[str, ...]
    slots: dict[str, object] = Field(default_factory=dict)
    may: tuple[str, ...] = ()
    waiting: str | None = None


ROWS = TypeAdapter(tuple[Row, ...]).validate_python(
    yaml.safe_load(Path(__file__).with_name("paraphrases_fourth.yaml").read_text(encoding="utf-8"))
)


def names_of(words: str) -> frozenset[str]:
    """The grammar's names for one label; "a|b" is either."""
    return frozenset().union(*(OWN_NAMES.get(item, {item}) for item in words.split("|")))


def read(row: Row) -> list[str] | None:
    """The names of the requests that are read; None where it is asked back."""
    waiting = {"waiting": "approval"} if row.waiting else {}
    found = understand(row.text, CONTEXT.evolve(**waiting))
    return [name_of(item) for item in found.intents] if isinstance(found, Understood) else None


def test_most_are_understood_and_next_to_none_misread() -> None:
    right, misread = 0, []
    asking = [row for row in ROWS if row.means]
    for row in asking:
        names = read(row)
        if names is None:
            continue
        wanted = [names_of(item) for item in row.means]
        if len(names) == len(wanted) and all(map(frozenset.__contains__, wanted, names)):
            right += 1
        else:
            misread.append(row.text)
    assert right >= LEAST_UNDERSTOOD * len(asking)
    assert len(misread) <= MOST_MISREAD, misread


def test_what_asks_for_nothing_does_nothing() -> None:
    acted = {}
    for row in ROWS:
        names = None if row.means else read(row)
        fine = CHANGES_NOTHING.union(*(names_of(item) for item in row.may))
        if names is not None and not fine.issuperset(names):
            acted[row.text] = names
    assert not acted
