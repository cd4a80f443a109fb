"""Requests ranked by examples of how people ask, read in the parts of a line.

The classifier ranks every request, those about a kernel and what is never done here included; the
values are read apart from the frame (`values`). A line is cut where a part of it clearly asks for
something of its own. What is clear is done, what is near is asked back with both readings, and
what changes something must be clearer than what only looks.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

from agentkernel.chat.language.clauses import leads_in, only_states_something, refers_back
from agentkernel.chat.language.example_reader import NEGATIVE, is_undecided
from agentkernel.chat.language.phrases import is_past, is_question
from agentkernel.chat.language.values import Clause, changes_nothing, requests_of
from agentkernel.chat.language.wording import spelt_out
from agentkernel.chat.requests import (
    AskFact,
    Cannot,
    Intent,
    IntentContext,
    SetKnob,
    SetPolicy,
    SetPrecision,
)

if TYPE_CHECKING:
    from agentkernel.chat.language.classifier import Classifier

SURE_OF_A_LOOK = 0.5
SURE_OF_A_CHANGE = 0.75
SURE_OF_A_PART = 0.6
"""From here on a part of a line is a request of its own."""
SURE_OF_ALL = 0.85
"""From here on the whole line is one request, whatever its parts look like."""
WORTH_ASKING = 0.15
MARGIN = 0.15
"""How much likelier than the next label the first must be."""
MOST_PARTS = 6
MOST_RANKED = 4
SPOKEN = frozenset({"approve", "decline", "quit"})
LEAST_OF_WHAT_WAS_READ = 0.05
LEAST_WORDS = 3
"""Of a part that asks for something beside a line that is clear by itself."""
TELLS_ALL = ("cannot=condition", "sweep", "module")
"""Labels whose parts look like requests of their own."""
ASIDES = ("thanks", "decline", "none")
MOST_OFFERED = 2
CUT = re.compile(
    r"(?<=[.?!;])\s+|\s*[,;]\s+(?:and then|and|then|but|so|also|plus)?\s*"
    r"|\s+(?:and then|then|and also|and|but|also|plus)\s+|\s+[-–—]+\s+|\s*\n\s*",
    re.I,
)
CONDITION = re.compile(r"\b(?:if|unless|in case|otherwise|provided|as long as|whenever)\b", re.I)
NEGATION = re.compile(
    r"\b(?:not|no|never|without|cannot|nothing|avoid|\w+n't|dont|doesnt|wont|cant)\b", re.I
)
MAY_BE_NEGATED = NEGATIVE | frozenset(
    {
        "knob=tensor_cores=0", "knob=persistent=0", "knob=split_k=0", "knob=deterministic",
        "knob=registers", "module", "decline", "undo", "return_to", "reject", "stop", "less_memory",
    }
)  # fmt: skip
"""Changes that people also ask for with a "not"."""
ADDRESS = re.compile(
    r"(?:hi|hey|hello|ok|okay|well|so|hmm+|oh|right|please|pls|thanks|thx|lol|btw|actually|sorry|now"
    r"|wait|hold on|anyway|honestly|great|nice|cool|good|fine|yes|yeah|no|nah)(?: [a-z]+)?[.!]*",
    re.I,
)
"""A part that only leads up to what is asked."""
LEADS = re.compile(
    r"(?:because|since|as (?:i|we|it)|so that|in order to|for (?:my|our|the) |before |after |just "
    r"(?:asking|curious|checking)|to be (?:honest|sure)|even if|otherwise|if possible|as usual)\b",
    re.I,
)


@dataclass(frozen=True, slots=True)
class Ranked:
    """A label with its probability and the requests that the values make of it."""

    label: str
    probability: float
    requests: tuple[Intent, ...]

    @property
    def is_request(self) -> bool:
        """True where it can be done as it stands."""
        return self.label != "none" and bool(self.requests)


@dataclass(frozen=True, slots=True)
class RankedReading:
    """`requests` to do; else `options` to choose from. Neither: nothing near enough.

    `labels`: of the requests. `shares`: the probability of each label for the whole line.
    """

    requests: tuple[Intent, ...] = ()
    options: tuple[tuple[Intent, ...], ...] = ()
    labels: tuple[str, ...] = ()
    probability: float = 0.0
    shares: Mapping[str, float] = field(default_factory=dict)


class Part:
    """A stretch of a line with the labels that it may have."""

    def __init__(self, shown: str, context: IntentContext, classifier: Classifier) -> None:
        self.shown = shown
        self.clause = Clause(shown, context)
        self.classifier = classifier

    @cached_property
    def ranked(self) -> tuple[Ranked, ...]:
        """The likeliest labels, best first; a request whose values do not fit has none."""
        if not self.clause.tags:
            return (Ranked("none", 1.0, ()),)
        order = sorted(self.shares, key=lambda label: -self.shares[label])[:MOST_RANKED]
        return tuple(
            Ranked(label, self.shares[label], requests_of(label, self.clause)) for label in order
        )

    @cached_property
    def shares(self) -> dict[str, float]:
        """The probability of each label."""
        found = self.classifier.probabilities(self.clause.tags)
        return {label: float(each) for label, each in zip(self.classifier.labels, found, strict=True)}

    @property
    def best(self) -> Ranked:
        """The likeliest."""
        return self.ranked[0]

    @cached_property
    def asks_for_something(self) -> bool:
        """True where it clearly is a request of its own."""
        return self.best.is_request and self.best.probability >= SURE_OF_A_PART

    @cached_property
    def is_aside(self) -> bool:
        """True where it leads up to a request or says why."""
        tags = self.clause.tags
        if not tags or ADDRESS.fullmatch(self.shown.strip()) or LEADS.match(self.shown.strip()):
            return True
        if only_states_something(tags) or leads_in(tags) or refers_back(tags):
            return True
        return self.best.label in ("none", "thanks", "decline", "approve")


def read_ranked(shown: str, context: IntentContext, classifier: Classifier) -> RankedReading:
    """What a line asks for by the ranking of all requests."""
    text = spelt_out(shown)
    whole = Part(text, context, classifier)
    if not whole.clause.tags or not any(map(str.isalpha, text)):
        return RankedReading()
    parts = [Part(piece, context, classifier) for piece in pieces(text)]
    strong = [part for part in parts if part.asks_for_something]
    if not 1 < len(parts) <= MOST_PARTS or not _others(whole, strong):
        found = _one(whole, strong if len(parts) > 1 else ())
    else:
        found = _of_parts(whole, parts, strong)
    return replace(found, shares=whole.shares)


def speaks_against(ranked: RankedReading, read: Sequence[Intent]) -> bool:
    """True where the ranking is clear, and gives what was `read` next to nothing."""
    if not ranked.requests or ranked.probability < SURE_OF_ALL or len(ranked.labels) != 1:
        return False
    if len(read) != 1 or read[0].name in SPOKEN:
        return False
    return ranked.shares.get(label_of(read[0]), 0.0) < LEAST_OF_WHAT_WAS_READ


def label_of(intent: Intent) -> str:
    """The ranking's label of a request."""
    match intent:
        case SetPrecision():
            return f"precision={intent.precision}"
        case SetPolicy():
            return f"policy={intent.policy}"
        case AskFact() | Cannot():
            return f"{intent.name}={intent.about}"
        case SetKnob(knob="tensor_cores" | "persistent" | "split_k"):
            return f"knob={intent.knob}={intent.value}"
        case SetKnob():
            return f"knob={intent.knob}"
        case _:
            return intent.name


def _others(whole: Part, strong: Sequence[Part]) -> bool:
    """True where a part asks for something that the whole line is not."""
    best = whole.best
    if best.label in TELLS_ALL and best.probability >= SURE_OF_A_PART and best.is_request:
        return False
    others = [part for part in strong if part.best.label not in (best.label, *ASIDES)]
    if best.probability >= SURE_OF_ALL and best.is_request:
        if best.label.startswith("cannot="):
            return False
        others = [
            part
            for part in others
            if len(part.clause.words) >= LEAST_WORDS and part.best.probability >= SURE_OF_A_CHANGE
        ]
    return bool(others)


def pieces(text: str) -> list[str]:
    """The line cut at marks and at words such as "and"."""
    return [piece for piece in (each.strip() for each in CUT.split(text)) if piece]


def _of_parts(whole: Part, parts: Sequence[Part], strong: Sequence[Part]) -> RankedReading:
    """Each part's own request, in order; asked back where a part is neither request nor aside."""
    found: list[Intent] = []
    labels: list[str] = []
    least = 1.0
    for part in parts:
        if part in strong:
            if not _may_be_done(part, part.best):
                return _offered(whole, strong)
            found += [item for item in part.best.requests if item not in found]
            labels.append(part.best.label)
            least = min(least, part.best.probability)
        elif not part.is_aside and not _goes_with(part, strong):
            return _offered(whole, strong)
    if len({label for label in labels if label != "thanks"}) == 1 and whole.best.is_request:
        if whole.best.label not in labels and whole.best.probability >= least - MARGIN:
            return _offered(whole, strong)
    kept = [item for item in found if item.name != "thanks"] or found
    undecided = any(not changes_nothing(each) for each in labels) and is_undecided(
        whole.clause.tags, kept
    )
    if undecided:
        return RankedReading(options=(tuple(kept),))
    return RankedReading(tuple(kept), labels=tuple(labels), probability=least)


def _goes_with(part: Part, strong: Sequence[Part]) -> bool:
    """True where it may say more of a question beside it, and holds no value of its own."""
    looks = all(changes_nothing(each.best.label) for each in strong)
    return looks and (not part.best.is_request or changes_nothing(part.best.label))


def _one(whole: Part, strong: Sequence[Part]) -> RankedReading:
    """One request, by the whole line; surer where a part of it says the same."""
    best = whole.best
    sure = max(
        [best.probability, *(part.best.probability for part in strong if part.best.label == best.label)]
    )
    second = next((each for each in whole.ranked[1:]), None)
    clear = second is None or sure - second.probability >= MARGIN
    least = SURE_OF_A_LOOK if changes_nothing(best.label) else SURE_OF_A_CHANGE
    if best.is_request and sure >= least and clear and _may_be_done(whole, best):
        if not changes_nothing(best.label) and is_undecided(whole.clause.tags, best.requests):
            return RankedReading(options=(best.requests,))
        return RankedReading(best.requests, labels=(best.label,), probability=sure)
    return _offered(whole, strong)


def _may_be_done(part: Part, ranked: Ranked) -> bool:
    """False for a change that is asked about, negated, conditional, or told of."""
    if changes_nothing(ranked.label):
        return True
    tags, shown = part.clause.tags, part.clause.plain
    if CONDITION.search(shown) or is_past(tags):
        return False
    if NEGATION.search(shown) and ranked.label not in MAY_BE_NEGATED:
        return False
    return not (is_question(list(tags)) and shown.rstrip().endswith("?"))


def _offered(whole: Part, strong: Sequence[Part]) -> RankedReading:
    """The nearest readings to choose from."""
    found = dict.fromkeys(_near(whole, strong))
    options = tuple(found)[:MOST_OFFERED]
    return RankedReading(options=options, probability=whole.best.probability)


def _near(whole: Part, strong: Sequence[Part]) -> Iterator[tuple[Intent, ...]]:
    if whole.best.label == "none" and whole.best.probability > SURE_OF_A_LOOK:
        return
    for ranked in (*whole.ranked, *(part.best for part in strong)):
        if ranked.is_request and ranked.probability >= WORTH_ASKING:
            yield ranked.requests
