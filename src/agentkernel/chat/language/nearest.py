"""Which known requests come nearest to a text that was not understood?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from agentkernel.chat.intent import IntentName, Suggestion
from agentkernel.chat.language.grammar import EXAMPLES
from agentkernel.chat.language.tags import Tag
from agentkernel.chat.language.text import words_of

if TYPE_CHECKING:
    from agentkernel.chat.language.classifier import Classifier


COMMON = words_of(
    "FILLER SEP PREP POLITE MAY AUX WHAT WHERE WHEN HOW IF OR AFTER BUT THIS ITIS MARK PAST TELL "
    "COMMENT QUANTITY FOREIGN"
)
"""Concepts of words that a sentence about anything may have."""


def in_common(tags: Sequence[Tag]) -> bool:
    """True where a word of the text is about what can be asked for here."""
    return any(tag.concepts - COMMON for tag in tags)


def nearest_requests(
    tags: Sequence[Tag], most: int, classifier: Classifier
) -> tuple[Suggestion, ...]:
    """The likeliest requests, best first, each with a sentence that asks for it."""
    found: list[Suggestion] = []
    order = (-classifier.probabilities(tags)).argsort(kind="stable")
    for at in order:
        label = classifier.labels[int(at)]
        for name in EXAMPLES:
            if name == label.partition("=")[0] and all(name != each.name for each in found):
                found.append(Suggestion(name=name, example=_example(name, label)))
    return tuple(found[:most])


def _example(name: IntentName, label: str) -> str:
    return {
        "precision=bf16": "allow bf16",
        "precision=strict": "back to strict precision",
        "policy=mixed": "allow library calls",
    }.get(label, EXAMPLES[name])
