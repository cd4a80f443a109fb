"""Which requests does one sentence consist of?

It is cut into parts, each of which fits a row of the grammar or asks for nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from agentkernel.chat.intent import Intent, IntentContext, Run
from agentkernel.chat.language.asides import (
    ends_at_goal,
    leads_in,
    only_states_something,
    refers_back,
    speaks_of,
)
from agentkernel.chat.language.building import build_intents
from agentkernel.chat.language.commands import begins_clause, may_begin, new_command
from agentkernel.chat.language.grammar import read_only_requests
from agentkernel.chat.language.matching import Match, matches
from agentkernel.chat.language.polarity import NOUNS, VERBS, is_question
from agentkernel.chat.language.tags import Tag
from agentkernel.chat.language.text import words_of

MOST_BREAKS = 8
SETTINGS = words_of(
    "precision target shapes dtype memory_limit stop_at budget policy less_memory less_energy "
    "lower_latency"
)
"""What a phrase behind a preposition may ask for ("run | for h200 | in bf16"); two of one kind
with other values contradict each other."""
RUN_WORDS = frozenset(
    {
        "run",
        "run it",
        "run this",
        "rerun",
        "redo",
        "redo it",
        "redo this",
        "re-run",
        "run again",
        "run it again",
        "continue",
        "keep going",
        "go on",
        "retry",
        "try again",
        "carry on",
        "resume",
        "start",
    }
)
"""Words that ask for a run although the sentence is about a setting ("run it on the h200")."""
NOT_ASKED_TO_RUN = words_of(
    "it this that to we i they you production make which may might can should must will would could"
)
"""Before "run": it says where something runs."""
SPARE_WORDS = 4
ASIDE_COST = 10
ENDS_OF_A_RUN = frozenset({"stop_at", "budget"})
"""Requests that "or" may join: a run ends at whichever comes first."""
POINTED_BACK_AT = SETTINGS | {"try_idea"}
ANSWERS = frozenset({"approve", "decline"})
STATES = words_of("i we it this that these those they he she there")
"""First words of a statement."""
TOLD_OF = frozenset({"why_slow", "why_rejected", "status", "compare"})
"""Questions that a statement ("it got slower") may be read as."""
Reading = tuple[Intent, ...]


UNKNOWN = "No request that I know."
"""Why a sentence is not understood, where nothing more can be said."""


class NoReading(Exception):
    """Carries the one line that says why."""


class Unsure(Exception):
    """Carries the readings to choose from."""

    def __init__(self, options: tuple[Reading, ...]) -> None:
        super().__init__()
        self.options = options


class SentenceParts:
    """The ways to cut one sentence into requests; each cut is read once."""

    def __init__(
        self, tags: tuple[Tag, ...], context: IntentContext, shown: str, only: bool, asked: bool
    ) -> None:
        self.tags, self.context, self.shown = tags, context, shown
        self.only, self.asked = only, asked
        self.forced = {at for at in range(len(tags)) if new_command(tags, at)}
        self.known: dict[tuple[int, int], list[Match]] = {}
        self.clauses = {0, len(tags)}

    def read(self) -> list[Intent]:
        """The requests: of the whole, else cut at "and" and commas, else at prepositions too;
        first without clauses that are passed over, then with them."""
        clauses = [at for at in range(len(self.tags)) if begins_clause(self.tags, at)]
        prepositions = [at for at, tag in enumerate(self.tags) if may_begin(tag)]
        self.clauses = {0, *clauses, len(self.tags)}
        ways: tuple[list[int], ...] = (
            [],
            clauses[:MOST_BREAKS],
            sorted({*clauses, *prepositions})[:MOST_BREAKS],
        )
        for asides in (False, True):
            for cuts in ways:
                places = [0, *(at for at in cuts if at > 0), len(self.tags)]
                best = self._cut(places, set(prepositions), asides)
                if best is not None:
                    return self._ordered(best, set(prepositions))
        raise NoReading(UNKNOWN)

    def as_one(self) -> list[Intent]:
        """The one request that all of it makes together; none where there is none."""
        return (
            self._ordered([(0, len(self.tags))], set()) if self._matches(0, len(self.tags)) else []
        )

    def _cut(
        self, places: list[int], prepositions: set[int], asides: bool
    ) -> list[tuple[int, int]] | None:
        """The fewest parts, each of which fits a row or may be passed over. `places` holds both
        ends."""
        places = sorted(set(places))
        best: dict[int, list[tuple[int, int]]] = {0: []}
        for end in places[1:]:
            for start in places:
                if start >= end or start not in best or self._spans(start, end):
                    continue
                found = self._matches(start, end)
                late = start in prepositions and start > 0 and not self.tags[start].has("SEP")
                late = late and start not in self.clauses
                if late and found and found[0].row.name not in SETTINGS | {"fork"}:
                    continue
                if self._points_back(best[start], start, end):
                    found = []
                elif self._backwards(start, end) or (
                    not found and not (asides and self._may_pass(start, end))
                ):
                    continue
                option = [*best[start], (start, end)]
                if end not in best or self._cost(option) < self._cost(best[end]):
                    best[end] = option
        parts = best.get(len(self.tags))
        return parts if parts and self._asides_fit(parts) else None

    def _backwards(self, start: int, end: int) -> bool:
        """True where the part is a clause that points back, at what is read apart from it."""
        tags = self.tags[start:end]
        return start > 0 and (refers_back(tags) or ends_at_goal(tags))

    def _points_back(self, before: list[tuple[int, int]], start: int, end: int) -> bool:
        """True where the part points back at the request that was read before it."""
        if not before or not self._backwards(start, end):
            return False
        names = {match.row.name for match in self._matches(*before[-1])[:1]}
        if ends_at_goal(self.tags[start:end]):
            return bool(names & ENDS_OF_A_RUN)
        return bool(names & POINTED_BACK_AT)

    def _cost(self, parts: list[tuple[int, int]]) -> int:
        """The number of parts; what is passed over counts by the word."""
        return sum(
            1 if self._matches(*part) else ASIDE_COST * (part[1] - part[0]) for part in parts
        )

    def _may_pass(self, start: int, end: int) -> bool:
        tags = self.tags[start:end]
        if start not in self.clauses or end not in self.clauses:
            return False
        return leads_in(tags) or (
            only_states_something(tags) and not (self.asked and end == len(self.tags))
        )

    def _asides_fit(self, parts: list[tuple[int, int]]) -> bool:
        """True where what is passed over speaks of nothing but what is asked for beside it."""
        rows = [self._matches(*part)[0].row for part in parts if self._matches(*part)]
        known = frozenset[str]().union(*(row.known for row in rows))
        for part in parts:
            tags = self.tags[part[0] : part[1]]
            if self._matches(*part) or self._backwards(*part):
                continue
            if (
                leads_in(tags)
                and not only_states_something(tags)
                and any(row.kind != "info" for row in rows)
            ):
                return False
            if not leads_in(tags) and not speaks_of(tags, known):
                return False
        return bool(rows)

    def _spans(self, start: int, end: int) -> bool:
        return any(start < at < end for at in self.forced)

    def _matches(self, start: int, end: int) -> list[Match]:
        if (start, end) not in self.known:
            tags = self.tags[start:end]
            either = start > 0 and tags[0].text == "or"
            whole = self.only and start == 0 and end == len(self.tags)
            asked = self.asked and end == len(self.tags)
            spare = SPARE_WORDS if self._ends_pointing_back(start, end) else 0
            found = matches(tags[either:], whole, is_question(list(tags)), asked, spare)
            if either:
                found = [match for match in found if match.row.name in ENDS_OF_A_RUN]
            self.known[start, end] = found
        return self.known[start, end]

    def _ends_pointing_back(self, start: int, end: int) -> bool:
        inner = (at for at in self.clauses if start < at < end)
        return any(self._backwards(at, end) for at in inner)

    def _ordered(self, parts: list[tuple[int, int]], prepositions: set[int]) -> list[Intent]:
        """What follows a preposition ("run for h200") is set before that which it belongs to."""
        found: list[Intent] = []
        group = 0
        for start, end in parts:
            self._refuse_answer_with_bare_noun(parts, start, end)
            intent = self._one(start, end)
            runs = any(
                tag.text in RUN_WORDS and self._asked_to_run(at)
                for at, tag in enumerate(self.tags[start:end], start=start)
            )
            if intent is None:
                group = len(found)
            elif start in prepositions and start > 0 and intent.name in SETTINGS:
                while group < len(found) and found[group].name in SETTINGS:
                    group += 1
                found.insert(group, intent)
            else:
                asked = self.asked and end == len(self.tags)
                if start > 0 and only_states(self.tags[start:end], asked, intent, found):
                    raise Unsure((tuple(found), (*found, intent)))
                group = len(found)
                found.append(intent)
            if intent is not None and intent.name in SETTINGS and runs:
                found.append(Run())
        return found

    def _asked_to_run(self, at: int) -> bool:
        return at == 0 or self.tags[at - 1].text not in NOT_ASKED_TO_RUN

    def _refuse_answer_with_bare_noun(
        self, parts: list[tuple[int, int]], start: int, end: int
    ) -> None:
        """ "no, tf32" may forbid it or ask for it."""
        first = self._matches(*parts[0])
        if start > 0 and first and first[0].row.name == "decline":
            tags = self.tags[start:end]
            if any(tag.has(*NOUNS) for tag in tags) and not any(tag.has(*VERBS) for tag in tags):
                raise NoReading("After 'no' I need a verb: what is to be done?")

    def _one(self, start: int, end: int) -> Intent | None:
        """The best match's request, None for a comment. Raises where several are as good."""
        found = self._matches(start, end)
        if not found or self._backwards(start, end) or found[0].row.name == "comment":
            return None
        top = [match for match in found if match.score >= found[0].score]
        options: list[Intent] = []
        for match in top:
            options += [
                i for i in build_intents(match, self.context, self.shown) if i not in options
            ]
        if len(options) > 1 or not all(match.row.sure for match in top):
            raise Unsure(tuple((option,) for option in options))
        return options[0]


def only_states(tags: Sequence[Tag], asked: bool, intent: Intent, before: Sequence[Intent]) -> bool:
    """True for "it uses too much memory" behind "keep c3": a statement behind a request, which may
    explain it or ask for more. One with a value of its own ("I only have 4 GB") asks."""
    words = [tag for tag in tags if not tag.has("MARK", "SEP", "BUT")]
    if not before or asked or not words or words[0].text.split()[0] not in STATES:
        return False
    if intent.name in (read_only_requests() - TOLD_OF) | ANSWERS or any(
        tag.has("POLITE", "MAY") for tag in words
    ):
        return False
    values = intent.model_dump(exclude_defaults=True, exclude={"name"})
    return not values and all(item.name != intent.name for item in before)
