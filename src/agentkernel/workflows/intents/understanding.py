"""What does a sentence at the prompt ask for, without a language model?

A grammar reads it first: precise, and easy to say why. What it refuses is read a second time by
examples of how people ask (by_example.py), which answers only where it is sure; where those speak
clearly against the grammar's reading, that is asked back.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import TYPE_CHECKING

from agentkernel.domain.intent import (
    Ambiguous,
    AskDocs,
    Intent,
    IntentContext,
    NotUnderstood,
    Run,
    Suggestion,
    Understanding,
    Understood,
)
from agentkernel.workflows.intents.asides import (
    ends_at_goal,
    leads_in,
    refers_back,
    speaks_of,
    states,
)
from agentkernel.workflows.intents.building import Impossible, built
from agentkernel.workflows.intents.by_example import doubts, nearest, read
from agentkernel.workflows.intents.grammar import EXAMPLES
from agentkernel.workflows.intents.matching import Match, matches
from agentkernel.workflows.intents.polarity import NOUNS, VERBS, is_question, with_polarity
from agentkernel.workflows.intents.tags import Tag, tagged
from agentkernel.workflows.intents.text import (
    MOST_CHARACTERS,
    MOST_TOKENS,
    clean,
    tokenise,
    words_of,
)
from agentkernel.workflows.intents.values import with_values

if TYPE_CHECKING:
    from agentkernel.workflows.intents.classifier import Classifier

HARD_BREAKS = frozenset(".;!?\n")
MOST_BREAKS = 8
MOST_NEAREST = 3
MOST_OPTIONS = 4
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
CLAUSE_WORDS = words_of("but or so because since cause cuz though although ( )")
"""Words and marks besides "and", comma and colon at which a clause may begin."""
SPARE_WORDS = 4
ASIDE_COST = 10
ENDS_OF_A_RUN = frozenset({"stop_at", "budget"})
"""Requests that "or" may join: a run ends at whichever comes first."""
POINTED_BACK_AT = SETTINGS | {"try_idea"}
PRONOUNS = frozenset({"it", "this", "that"})
ANSWERS = frozenset({"approve", "decline"})
DELETES = words_of("delete erase remove deletes deleting erasing removing")
ANYWAY = (
    Suggestion(name="help", example=EXAMPLES["help"]),
    Suggestion(name="run", example=EXAMPLES["run"]),
    Suggestion(name="status", example=EXAMPLES["status"]),
)
"""What is offered where a text has no words to go by."""
Reading = tuple[Intent, ...]


class _NoReading(Exception):
    """Carries the one line that says why."""


class _Unsure(Exception):
    """Carries the readings to choose from."""

    def __init__(self, options: tuple[Reading, ...]) -> None:
        super().__init__()
        self.options = options


def understand(text: str, context: IntentContext) -> Understanding:
    """The requests in `text`, in the order in which they are to be done.

    Never raises and never guesses: what has two readings is Ambiguous, and a part that has none
    makes the whole NotUnderstood, with the nearest requests that are understood.
    """
    shown = clean(text[: MOST_CHARACTERS + 1])
    if len(text) > MOST_CHARACTERS:
        return _not_understood(shown[:80], f"Longer than {MOST_CHARACTERS} characters.")
    tokens = tokenise(shown)
    if not tokens or len(tokens) > MOST_TOKENS:
        reason = "No words in it." if not tokens else f"More than {MOST_TOKENS} words."
        return _not_understood(shown, reason)
    tags = with_values(tagged(tokens, context))
    try:
        _refuse_to_delete(tags)
        found = _checked(_text(tags, context, shown), shown)
    except _Unsure as unsure:
        return Ambiguous(text=shown, options=unsure.options[:MOST_OPTIONS])
    except Impossible as none:
        return _not_understood(shown, str(none), tags)
    except _NoReading as none:
        return _second(tags, context, shown, str(none))
    if isinstance(found, Understood) and doubts(_with_polarity(tags), found.intents, _classifier()):
        return Ambiguous(text=shown, options=(found.intents,))
    return found


def _with_polarity(tags: list[Tag]) -> list[Tag]:
    return [tag for sentence in _sentences(tags) for tag in with_polarity(sentence)]


def _second(tags: list[Tag], context: IntentContext, shown: str, reason: str) -> Understanding:
    """What the reader by examples makes of a text that fits no row; `reason`: why it fits none."""
    words = _with_polarity(tags)
    found = read(words, context, shown, _classifier())
    if found.intents:
        return _checked(list(found.intents), shown)
    if found.option is not None:
        return Ambiguous(text=shown, options=((found.option,),))
    return _not_understood(shown, reason, words)


def _classifier() -> Classifier:
    """The weights; read, and numpy imported, with the first text, not with this module."""
    from agentkernel.workflows.intents.classifier import load

    return load()


def _refuse_to_delete(tags: list[Tag]) -> None:
    """Raises Impossible for "delete c4": what was tried stays on record."""
    texts = [tag.text for tag in tags]
    if DELETES.isdisjoint(texts) or not any(tag.has("CAND") for tag in tags):
        return
    raise Impossible("No candidate is ever deleted: 'discard c3' sets one aside.")


def _text(tags: list[Tag], context: IntentContext, shown: str) -> list[Intent]:
    """The requests of each sentence; where one has none by itself, of all of them read as one."""
    sentences = [with_polarity(sentence) for sentence in _sentences(tags)]
    whole = [tag for tags in sentences for tag in tags]
    if any(_has_no_object(sentence) for sentence in sentences[1:]):
        one = _Parts(tuple(whole), context, shown, True, whole[-1].text == "?").as_one()
        if one:
            return one
    try:
        return [
            intent
            for sentence in sentences
            for intent in _sentence(sentence, context, shown, len(sentences) == 1)
        ]
    except _NoReading:
        if len(sentences) == 1 or any(_docs(tags, shown) for tags in sentences):
            raise
        return _sentence(whole, context, shown, True)


def _sentence(tags: list[Tag], context: IntentContext, shown: str, only: bool) -> list[Intent]:
    docs = _docs(tags, shown)
    if docs is not None:
        return [docs]
    return _Parts(tuple(tags), context, shown, only, tags[-1].text == "?").read()


def _has_no_object(tags: list[Tag]) -> bool:
    """True for a verb by itself, which looks back for what it is about: "explain?" """
    words = [tag for tag in tags if not tag.has("MARK", "SEP", "POLITE", "MAY")]
    return len(words) == 1 and words[0].has("EXPLAIN", "VERIFY", "COMPARE")


def _sentences(tags: list[Tag]) -> list[list[Tag]]:
    found: list[list[Tag]] = [[]]
    for tag in tags:
        found[-1].append(tag)
        if tag.text in HARD_BREAKS:
            found.append([])
    return [tags for tags in found if any(not tag.has("MARK") for tag in tags)]


class _Parts:
    """The ways to cut one sentence into requests; each cut is read once."""

    def __init__(
        self, tags: tuple[Tag, ...], context: IntentContext, shown: str, only: bool, asked: bool
    ) -> None:
        self.tags, self.context, self.shown = tags, context, shown
        self.only, self.asked = only, asked
        self.forced = {at for at in range(len(tags)) if _new_command(tags, at)}
        self.known: dict[tuple[int, int], list[Match]] = {}
        self.clauses = {0, len(tags)}

    def read(self) -> list[Intent]:
        """The requests: of the whole, else cut at "and" and commas, else at prepositions too;
        first without clauses that are passed over, then with them."""
        clauses = [at for at in range(len(self.tags)) if _begins_clause(self.tags, at)]
        prepositions = [at for at, tag in enumerate(self.tags) if _may_begin(tag)]
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
        raise _NoReading("No request that I know.")

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
        return leads_in(tags) or (states(tags) and not (self.asked and end == len(self.tags)))

    def _asides_fit(self, parts: list[tuple[int, int]]) -> bool:
        """True where what is passed over speaks of nothing but what is asked for beside it."""
        rows = [self._matches(*part)[0].row for part in parts if self._matches(*part)]
        known = frozenset[str]().union(*(row.known for row in rows))
        for part in parts:
            tags = self.tags[part[0] : part[1]]
            if self._matches(*part) or self._backwards(*part):
                continue
            if leads_in(tags) and not states(tags) and any(row.kind != "info" for row in rows):
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
                raise _NoReading("After 'no' I need a verb: what is to be done?")

    def _one(self, start: int, end: int) -> Intent | None:
        """The best match's request, None for a comment. Raises where several are as good."""
        found = self._matches(start, end)
        if not found or self._backwards(start, end) or found[0].row.name == "comment":
            return None
        top = [match for match in found if match.score >= found[0].score]
        options: list[Intent] = []
        for match in top:
            options += [i for i in built(match, self.context, self.shown) if i not in options]
        if len(options) > 1 or not all(match.row.sure for match in top):
            raise _Unsure(tuple((option,) for option in options))
        return options[0]


def _new_command(tags: tuple[Tag, ...], at: int) -> bool:
    """True for an "and" or a comma with a verb behind it: what follows is a request of its own."""
    if not (tags[at].has("SEP") or tags[at].text == ","):
        return False
    if at and (tags[at - 1].has("SEP") or tags[at - 1].text == ","):
        return False
    if all(tag.has("FILLER", "AGAINST", "PREP", "POLITE", "MARK", "SEP") for tag in tags[:at]):
        return False
    if refers_back(_clause(tags, at)) or _only_gives_up(tags[:at]):
        return False
    rest = [tag for tag in tags[at + 1 :] if not tag.has("SEP", "POLITE", "MARK")]
    if (
        tags[at].has("SEP")
        and len(rest) > 1
        and rest[0].has("TELL")
        and rest[1].has("WHY", "WHAT", "HOW")
    ):
        return True
    if not rest or not rest[0].has(*VERBS) or rest[0].has(*NOUNS, "FILLER"):
        return False
    same_thing = rest[0].text.split(" ")[-1] in PRONOUNS or (len(rest) > 1 and rest[1].has("THIS"))
    verbs = rest[0].concepts & VERBS
    before = frozenset[str]().union(*(tag.concepts for tag in tags[:at]))
    return not same_thing or (
        tags[at].has("SEP") and verbs.isdisjoint(before) and _acts_on_a_candidate(tags[:at])
    )


def _only_gives_up(tags: tuple[Tag, ...]) -> bool:
    """ "forget bf16": what is wanted instead follows."""
    return any(tag.has("INSTEADOF") for tag in tags) and not any(tag.has(*VERBS) for tag in tags)


def _clause(tags: tuple[Tag, ...], at: int) -> tuple[Tag, ...]:
    """From `at` to the next comma or the next "and"."""
    ends = [
        end
        for end in range(at + 1, len(tags))
        if tags[end].has("SEP") or tags[end].text in (",", ":")
    ]
    return tags[at : ends[0] if ends else len(tags)]


def _acts_on_a_candidate(tags: tuple[Tag, ...]) -> bool:
    """True for "keep 7": a command with the candidate that it is about."""
    return any(tag.has(*VERBS) for tag in tags) and any(tag.has("NUM", "CAND") for tag in tags)


def _begins_clause(tags: tuple[Tag, ...], at: int) -> bool:
    tag = tags[at]
    if all(behind.has("MARK") for behind in tags[at:]):
        return False
    if tag.has("SEP") or tag.text in (",", ":") or tag.text in HARD_BREAKS:
        return True
    return at > 0 and tag.text in CLAUSE_WORDS


def _may_begin(tag: Tag) -> bool:
    return tag.has("PREP", "UNTIL") or tag.text.split(" ")[0] in ("until", "within", "under")


def _docs(tags: list[Tag], shown: str) -> Intent | None:
    """A question to the documentation; its own words are taken as typed."""
    words = [tag for tag in tags if not tag.has("MARK")]
    if any(tag.has("NEG") for tag in words):
        return None
    about = {"for", "about", "on", "regarding"}
    docs = [at for at, tag in enumerate(tags) if tag.has("DOCS") and not tag.has("CAND", "PLACE")]
    asks = [at for at, tag in enumerate(tags) if tag.text in ("look up", "search for", "google")]
    if docs:
        behind = docs[-1] + 1
        if behind < len(tags) and tags[behind].text == "say":
            behind += 1
        while behind < len(tags) and tags[behind].text in about | {"to", "how", "what", ":"}:
            behind += 1
        if any(not tag.has("MARK", "FILLER", "THIS") for tag in tags[behind:]):
            return _query(tags[behind:], shown)
        starts = [at for at in range(docs[-1]) if tags[at].has("SEARCH") or tags[at].text in about]
        first = next((at for at in starts if tags[at].has("SEARCH")), None)
        if first is not None:
            return _query(_without_edges(tags[first + 1 : docs[-1]]), shown)
        return None
    if asks and asks[0] == next((at for at, tag in enumerate(tags) if not _edge(tag)), None):
        return _query(tags[asks[0] + 1 :], shown)
    return None


def _edge(tag: Tag) -> bool:
    return tag.has("FILLER", "PREP", "POLITE", "MARK", "THIS", "SEP", "MAY", "DOCS")


def _without_edges(tags: list[Tag]) -> list[Tag]:
    """Without "for" before and "in the" behind."""
    while tags and (tags[-1].has("PREP", "MARK") or tags[-1].text in ("the", "triton", "our")):
        tags = tags[:-1]
    while tags and tags[0].text in ("for", "about", "on", "up"):
        tags = tags[1:]
    return tags


def _query(tags: list[Tag], shown: str) -> Intent | None:
    if not tags:
        return None
    query = shown[tags[0].start : tags[-1].end].strip(" .,;:!?\"'")
    return AskDocs(query=query) if query else None


def _checked(found: list[Intent], shown: str) -> Understanding:
    """Without a "yes" before the request itself and without repetitions; contradictions asked."""
    if any(intent.name not in ANSWERS for intent in found):
        found = [intent for intent in found if intent.name not in ANSWERS]
    found = _collapsed(found)
    unique = [intent for at, intent in enumerate(found) if intent not in found[:at]]
    if not unique:
        raise _NoReading("Nothing in it to do.")
    for one, other in product(unique, unique):
        if one.name == other.name and one != other and one.name in SETTINGS:
            return Ambiguous(text=shown, options=((one,), (other,)))
    return Understood(intents=tuple(unique))


def _collapsed(found: list[Intent]) -> list[Intent]:
    """ "keep 9, that's the winner" keeps one; "redo it with batch 64" runs again."""
    kept = [intent for intent in found if intent.name == "keep"]
    if len(kept) > 1:
        found = [i for i in found if i.name != "keep" or i.candidate != "current"]
    if any(intent.name in SETTINGS for intent in found):
        found = [Run() if intent.name == "redo" else intent for intent in found]
    return found


def _not_understood(shown: str, reason: str, tags: Sequence[Tag] = ()) -> NotUnderstood:
    if not tags:
        return NotUnderstood(text=shown, reason=reason, nearest=ANYWAY)
    return NotUnderstood(
        text=shown, reason=reason, nearest=nearest(tags, MOST_NEAREST, _classifier())
    )
