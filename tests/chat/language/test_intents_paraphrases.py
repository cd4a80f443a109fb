"""How many of the sentences of two people who had not seen the readers do they understand?

Both sets have been seen since: the grammar was mended with their refused sentences, and the weights
learned from them. What is counted here is a floor that must not sink, and no estimate for new
sentences; `python benchmarks/chat/train_classifier.py --check` leaves one set out.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from pydantic import TypeAdapter

from agentkernel.chat.language import understand
from agentkernel.chat.requests import Intent, IntentContext, Understanding, Understood
from agentkernel.domain.base import Frozen

SENTENCES = Path(__file__).parents[3] / "benchmarks" / "chat" / "sentences"
CONTEXT = IntentContext(
    targets=("h100", "h200", "a100", "b200", "mi300x", "l4", "l40s", "rtx4090", "4090"),
    current=3,
    precision="strict",
)
NAMES: dict[str, frozenset[str]] = {
    "try_harder": frozenset({"more_aggressive"}),
    "use_less_memory": frozenset({"less_memory"}),
    "allow_tf32": frozenset({"precision=tf32"}),
    "allow_bf16": frozenset({"precision=bf16"}),
    "strict_precision": frozenset({"precision=strict"}),
    "change_target_gpu": frozenset({"target"}),
    "other_shapes": frozenset({"shapes"}),
    "what_tried": frozenset({"history"}),
    "show_tree": frozenset({"tree"}),
    "show_source": frozenset({"show_candidate"}),
    "show_diff": frozenset({"diff"}),
    "go_back": frozenset({"return_to"}),
    "stop_at_speedup": frozenset({"stop_at"}),
    "set_time_budget": frozenset({"budget"}),
    "only_triton": frozenset({"policy=triton"}),
    "library_ok": frozenset({"policy=mixed"}),
    "show_plan": frozenset({"plan", "ideas"}),
    "optimise_energy": frozenset({"less_energy"}),
    "optimise_latency": frozenset({"lower_latency"}),
    "verify": frozenset({"verify", "certificate"}),
}
"""The set's names for requests, where they differ from the grammar's."""
CHANGES_NOTHING = frozenset({"cannot", "thanks"})
"""Readings of a sentence that asks for nothing that is done here: they say so."""
LEAST_UNDERSTOOD = 0.92
SETS = ("blind_1", "blind_2")


class Row(Frozen):
    """A sentence and what it means: the names of requests, and values by name."""

    text: str
    means: tuple[str, ...]
    slots: dict[str, str | int | float]


def rows_of(name: str) -> tuple[Row, ...]:
    text = (SENTENCES / f"{name}.yaml").read_text(encoding="utf-8")
    return TypeAdapter(tuple[Row, ...]).validate_python(yaml.safe_load(text))


ROWS = tuple(row for name in SETS for row in rows_of(name))


def name_of(intent: Intent) -> str:
    if intent.name == "precision":
        return f"precision={intent.precision}"
    return f"policy={intent.policy}" if intent.name == "policy" else intent.name


def says_no(found: Understanding) -> bool:
    """True where all that is done is to say that it is not done, or that nothing was asked."""
    return isinstance(found, Understood) and CHANGES_NOTHING.issuperset(map(name_of, found.intents))


def values_of(intents: tuple[Intent, ...]) -> str:
    return " ".join(intent.model_dump_json() for intent in intents).lower()


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.text)
def test_none_is_misunderstood(row: Row) -> None:
    found = understand(row.text, CONTEXT)
    if isinstance(found, Understood) and not (says_no(found) and not row.means):
        wanted = [NAMES.get(name, frozenset({name})) for name in row.means]
        names = [name_of(intent) for intent in found.intents]
        if row.text.startswith("redo ") and names[-1] == "run":
            names.pop()
        assert len(names) == len(wanted)
        assert all(name in each for name, each in zip(names, wanted, strict=True))
        values = values_of(found.intents)
        for slot in ("candidate", "a", "b", "line", "idea", "batch", "speedup", "path", "branch"):
            if slot in row.slots:
                value = str(row.slots[slot]).lower()
                assert re.sub(r"(?<=\d)(?:x| times)$", "", value) in values


@pytest.mark.parametrize("name", SETS)
def test_most_are_understood(name: str) -> None:
    meant = [row for row in rows_of(name) if row.means]
    understood = [row for row in meant if isinstance(understand(row.text, CONTEXT), Understood)]
    assert len(understood) / len(meant) >= LEAST_UNDERSTOOD
