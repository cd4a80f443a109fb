"""Clauses of a sentence, each of which fits a row of the grammar or asks for nothing.

A remark beside a request is a reason or a feeling ("that one was nicer", "since this is only
inference") or a clause that points back at what was just said ("so use those"). It is passed
over only where it states something: no value, no "not", no condition, no demand, and no word
about any request but those that are made beside it.
"""

from __future__ import annotations

from collections.abc import Sequence

from agentkernel.chat.language.grammar import Match, matches, read_only_requests
from agentkernel.chat.language.phrases import NOUNS, VERBS, is_question
from agentkernel.chat.language.slots import build_intents, is_value
from agentkernel.chat.language.tagging import HARD_BREAKS, Pattern, Tag, text_of, words_of
from agentkernel.chat.requests import Intent, IntentContext, Run

SUBJECTS = words_of(
    "i we it this that these those they he she there my our his her their the its everything "
    "everyone somebody someone people"
)
FINITE = words_of(
    "is are was were am has had have looks look seems seem feels feel sounds sound matters matter "
    "counts count works runs needs keeps gets comes goes means"
)
"""Verb forms that make a statement of what stands before them."""
REASONS = words_of("because since as cause cuz though although given which")
DEMANDS = words_of(
    "want wants wanted need needs must should shall ought would could may might can prefer wish "
    "rather please let try ensure never remember suggest expect you your yourself "
    "said says say told asked asks suggested suggests thinks think claims wrote"
)
"""Words by which a clause asks for something, whatever that is."""
OWN_PURPOSE = Pattern(r"^(?:because |since |as )?(?:i|we) (?:need|have|want|plan|am going) to ")
"""What the speaker is about to do is no demand: "I need to hand this over"."""
BEFORE = Pattern(r"^before (?:you|we|i) \w+")
NO_STATEMENT = words_of("NEG NO YES IF WHEN WHY WHERE HOW WHATDOES MAY ADVICE FOREIGN INSTEADOF")
GENERIC = words_of(
    "FILLER THIS PREP MARK SEP BUT AUX PAST ITIS AGAINST OUT OR USE TRY SHOW TELL SPENT DROPIN "
    "COMMENT AFTER GOAL POLITE OTHER ALLOW STATUS CANDWORD TARGETWORD PRECISION RUN WHAT "
    "KERNEL TIME"
)
"""Concepts of words so common that a statement with them speaks of no request."""
LEAD = (
    r"(?:(?:so|and|then|please|just|also|let us|you can|you may|we can|we could|could you|can you|"
    r"i want you to|go ahead and|kindly|,|\.|;|:|-) )*"
)
TAIL = r"(?: (?:please|instead|then|now|too|for now|from now on|ok|thanks|!|\.))*$"
BACK = Pattern(
    LEAD + r"(?:(?:use|take|try|test|do|go with|go for|stick to|stick with|respect|obey|honou?r|"
    r"stay (?:within|below|under|inside)|aim for|target|assume|work with|keep to|adapt to|"
    r"go ahead with|do it for|(?:tune|optimi[sz]e|compile|build|generate)(?: it| this)? for) "
    r"(?:it|that|this|those|these|them|that one|this one|those ones|that thing|exactly that)|"
    r"give (?:it|that|this|that one|this one) (?:a (?:shot|go|try|whirl|spin|chance)))" + TAIL
)
"""A clause that points back at a setting or an idea."""
BACK_TO_GOAL = Pattern(
    LEAD + r"(?:stop|finish|quit|wrap up|be done|end it) "
    r"(?:there|then|at that|at that point|when you get there|once you get there|"
    r"once you are there|when you are there|if you get there|when we get there)" + TAIL
)
"""A clause that points back at a goal or a budget."""


def refers_back(tags: tuple[Tag, ...]) -> bool:
    """True where the clause only says: use what was just named."""
    return bool(BACK.match(text_of(tags)))


def ends_at_goal(tags: tuple[Tag, ...]) -> bool:
    """True where the clause only says: stop where it was just said."""
    return bool(BACK_TO_GOAL.match(text_of(tags)))


def only_states_something(tags: tuple[Tag, ...]) -> bool:
    """True where the clause states something and asks for nothing, whatever it speaks of."""
    if any(tag.negated or tag.has(*NO_STATEMENT) or is_value(tag) for tag in tags):
        return False
    if any(tag.text == "?" for tag in tags):
        return False
    text = text_of(tuple(tag for tag in tags if not tag.has("MARK")))
    words = [word for word in text.split() if word not in ("and", "so", "but", "well", "also")]
    if not words or (not DEMANDS.isdisjoint(words) and not OWN_PURPOSE.match(" ".join(words))):
        return False
    first = words[0]
    return first in SUBJECTS | REASONS or not FINITE.isdisjoint(words[1:4])


def leads_in(tags: tuple[Tag, ...]) -> bool:
    """True for "before you start": a lead to a question."""
    if any(is_value(tag) or tag.negated for tag in tags):
        return False
    return bool(BEFORE.match(text_of(tuple(tag for tag in tags if not tag.has("MARK")))))


def speaks_of(tags: tuple[Tag, ...], known: frozenset[str]) -> bool:
    """True where every word is common, unknown, or one of `known`, the concepts of the requests
    beside it."""
    return all(
        tag.has("FILLER") or tag.concepts <= GENERIC or not tag.concepts.isdisjoint(known - GENERIC)
        for tag in tags
    )


CLAUSE_WORDS = words_of("but or so because since cause cuz though although ( )")
"""Words and marks besides "and", comma and colon at which a clause may begin."""
PRONOUNS = frozenset({"it", "this", "that"})


def new_command(tags: tuple[Tag, ...], at: int) -> bool:
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


def begins_clause(tags: tuple[Tag, ...], at: int) -> bool:
    """True for an "and", a mark, or a word such as "because", with words behind it."""
    tag = tags[at]
    if all(behind.has("MARK") for behind in tags[at:]):
        return False
    if tag.has("SEP") or tag.text in (",", ":") or tag.text in HARD_BREAKS:
        return True
    return at > 0 and tag.text in CLAUSE_WORDS


def may_begin(tag: Tag) -> bool:
    """True for a word such as "for" or "until": what follows may say how or where."""
    return tag.has("PREP", "UNTIL") or tag.text.split(" ")[0] in ("until", "within", "under")


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
        top = [
            match
            for match in found
            if match.score >= found[0].score and match.row.name != "comment"
        ]
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
