"""Requests ranked by examples of how people ask, read in the parts of a line.

The classifier ranks every request, those about a kernel and what is never done here included; the
values are read apart from the frame (`values`). A line is cut where a part of it clearly asks for
something of its own. What is clear is done, what is near is asked back with both readings, and
what changes something must be clearer than what only looks.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

from agentkernel.chat.language.clauses import (
    ends_at_goal,
    leads_in,
    only_states_something,
    refers_back,
)
from agentkernel.chat.language.example_reader import NEGATIVE, is_undecided
from agentkernel.chat.language.kernel_words import THE_ONE
from agentkernel.chat.language.phrases import is_past, is_past_fact, is_reported
from agentkernel.chat.language.tagging import Tag, words_of
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

SURE_OF_A_LOOK = 0.7
SURE_OF_A_CHANGE = 0.85
SURE_OF_A_PART = 0.7
"""From here on a part of a line is a request of its own."""
SURE_OF_ALL = 0.9
"""From here on the whole line is one request, whatever its parts look like."""
WORTH_ASKING = 0.25
MARGIN = 0.15
"""How much likelier than the next label the first must be."""
MOST_PARTS = 6
MOST_RANKED = 4
SPOKEN = frozenset({"approve", "decline", "quit"})
LEAST_OF_WHAT_WAS_READ = 0.1
LEAST_IN_A_PART = 0.08
LEAST_WORDS = 3
"""Of a part that asks for something beside a line that is clear by itself."""
TELLS_ALL = ("cannot=condition", "sweep", "module", "save", "compare", "ask_docs")
"""Labels whose parts look like requests of their own."""
CONTRARY = ({"save", "export"}, {"undo", "redo"})
"""Pairs of which one line asks for one."""
ASIDES = ("thanks", "decline", "none")
MOST_OFFERED = 2
CUT = re.compile(
    r"(?<=[.?!;])\s+|\s*[,;]\s+(?:and then|and|then|but|so|also|plus)?\s*"
    r"|\s+(?:and then|then|and also|and|but|also|plus)\s+|\s+[-–—]+\s+|\s*\n\s*",
    re.I,
)
OWNED = re.compile(
    r"\b(?:block|tile|warp|stage|reg|batch|seq|hidden|num_)\w*(?: sizes?| of)?[ =:]+\d+$", re.I
)
NOUN_BEHIND = re.compile(r"\d+ [a-z]", re.I)
ENDS_IN_A_VALUE = re.compile(r"(?:^|[\s({\[#=])c?\d+$", re.I)
A_VALUE = re.compile(r"c?\d+\b(?! ?(?:more\b|rounds?\b|iter|x\b|min|h\b|us\b))", re.I)
WAITS = re.compile(r"\b(?:when|once|as soon as) (?:it|that|this|you|c\d|everything)\b", re.I)
HARMLESS_IF = re.compile(
    r"\b(?:even if|(?:not |n't |dont |never )(?:mind|care|matter|worry) (?:about it )?if"
    r"|(?:ok|okay|fine) (?:with me )?if)\b[^,;.]*"
    r"|\bif (?:possible|you (?:can|like|want|please)|needed|necessary|need be)\b",
    re.I,
)
"""An "if" that nothing waits for."""
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
    r"(?:hi|hey|hello|ok|okay|well|so|hmm+|oh|right|please|pls|thanks|thx|lol|btw|actually|sorry"
    r"|now"
    r"|wait|hold on|anyway|honestly|great|nice|cool|good|fine|yes|yeah|no|nah)(?: [a-z]+)?[.!]*",
    re.I,
)
"""A part that only leads up to what is asked."""
ASKED = re.compile(
    r"(?:and |so |but |ok |well |hey )*(?:why|how|what|which|who|when|where|whether|is|are|was|were"
    r"|does|do (?:i|we|you|they)|did|has|have (?:i|we|you)|should|would (?!you)|i wonder"
    r"|i'?m wondering"
    r"|any idea|wonder\w*|what if|suppose|imagine|could (?:it|this|that|we|i)|can (?:it|this"
    r"|that|i)"
    r"|may i|might)\b(?! about\b)",
    re.I,
)
"""How a question begins, with or without its mark; "could you" begins a polite command."""
WAVED_OFF = re.compile(
    r"^(?:please |no,? |ok |so )*(?:don't|do not|dont|no need|not asking|never|skip|without"
    r"|i (?:don't"
    r"|do not) (?:need|want)|not interested|stop (?:showing|explaining))\b|\bnever ?mind\b",
    re.I,
)
STATES = re.compile(
    r"(?:mine|ours|trying|because|my|our|i am|i'm|we're|they|those|these|it's|that's)\b(?!.*\?)",
    re.I,
)
"""How a part begins that says why something is asked."""
STATED = re.compile(
    r"(?:(?:we|they|i) have \d|c\d+ (?:is|was|looks?) |the \w+ (?:is|was|looks?|are) "
    r"|that \w+ (?:is|was)"
    r" |we (?:had|reached|got) )(?!.*(?:\bwhy\b|\bhow\b|\bwhat\b|slow))",
    re.I,
)
"""A statement that asks for no look: "c3 is better than c2"."""
OTHERS = re.compile(
    r"(?:i used to|we used to|whoever|(?:my (?:colleague|friend|boss|team)|somebody"
    r"|someone|people|everyone) \w+s)\b",
    re.I,
)
BARE = re.compile(
    r"\W*(?:(?:ok|then|now|use|try|go|in|with|please)\W+)*(?:bf16|bfloat16|fp16|half|fp32|float32)"
    r"(?: please)?\W*",
    re.I,
)
"""A format by itself: of the inputs, or to compute in."""
TOLD_BY = words_of(
    "said says say told suggests suggested thinks claims wrote heard tomorrow tonight later monday "
    "weekend night before"
)
"""A change that somebody else speaks of, or one for another time."""
OUT_OF_IT = re.compile(r"\b(?:out of the question|only at|no way|not an option)\b", re.I)
TOLD = re.compile(
    r"(?:so |and |but |well |ok )*(?:(?:we|it|they|this|that|c\d+|candidate \d+|you|i) (?:only "
    r"|already "
    r"|just |still |now )*(?:uses?|used|is|was|are|were|has|had|runs?|ran|reached|got|took|hit"
    r"|wanted)"
    r"|(?:the|my|our) (?:\w+ ){1,2}(?:is|was|were|has|had|uses?)|only \S+(?: \w+)? (?:is|was"
    r"|were|are)"
    r"|(?:with|at) [^,]+ it (?:is|was)|\w+\d* (?:was|were) )\b(?!.*(?:, so |\bso |[,;] ?(?:use"
    r"|tune|make"
    r"|optimi[sz]e|set|try|target|switch|go)\b))",
    re.I,
)
"""What is or was so, and nothing that follows from it."""
TOLD_OF_INPUTS = ("dtype", "shapes")
"""What is so of the inputs is what they are to be."""
FORMERLY = re.compile(r"\b(?:was|were|had|ran|reached|got|took|used|hit|already)\b")
POINTS_BACK = re.compile(
    r"(?:please |just |so |then |can you |could you |pls )*(?:lower|raise|reduce|increase|decrease"
    r"|cut|change|double|halve|force|enforce|do|make|use|take|try|fix|set|tune|apply|optimi[sz]e) "
    r"(?:for )?(?:it|them|that|those|this|so)"
    r"(?: (?:up|down|so|please|pls|then|now|happen|again))*[.!?]*",
    re.I,
)
"""A part that is about what the part before it names."""
SPEAKER = re.compile(
    r"(?:we|i|i'm|our|my|we're|it's|that's|they)\b"
    r"(?!.*\b(?:until|unless|want|wish|would like|prefer|should|must)\b)",
    re.I,
)
FRAGMENT = re.compile(r"(?:in|of|per|by|including) (?!case\b|order\b|general\b)", re.I)
"""A part that says more of what stands before it: "in dollars"."""
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

    `labels`: of the requests. `shares`: the probability of each label, for the whole line or for
    the part of it that has most. `likeliest`: the label of the whole line.
    """

    requests: tuple[Intent, ...] = ()
    options: tuple[tuple[Intent, ...], ...] = ()
    labels: tuple[str, ...] = ()
    probability: float = 0.0
    shares: Mapping[str, float] = field(default_factory=dict)
    likeliest: str = "none"


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
        return {
            label: float(each) for label, each in zip(self.classifier.labels, found, strict=True)
        }

    @property
    def best(self) -> Ranked:
        """The likeliest."""
        return self.ranked[0]

    @cached_property
    def asks_for_something(self) -> bool:
        """True where it clearly is a request of its own."""
        clear = self.best.is_request and self.best.probability >= SURE_OF_A_PART
        clear = clear and not FRAGMENT.match(self.shown)
        return clear and not (changes_nothing(self.best.label) and STATES.match(self.shown))

    @cached_property
    def is_aside(self) -> bool:
        """True where it leads up to a request or says why, and asks for nothing."""
        tags = self.clause.tags
        if not tags or ADDRESS.fullmatch(self.shown.strip()) or LEADS.match(self.shown.strip()):
            return True
        if POINTS_BACK.fullmatch(self.shown.strip()) and self.best.probability < SURE_OF_A_PART:
            return True
        points = refers_back(tags) or ends_at_goal(tags)
        return points or only_states_something(tags) or leads_in(tags) or self.explains

    @property
    def explains(self) -> bool:
        """True where it says how something is with the speaker, and no request is likely in it."""
        says = SPEAKER.match(self.shown.strip()) and not self.shown.rstrip().endswith("?")
        return bool(says) and self.best.label == "none" and self.best.probability >= WORTH_ASKING

    @cached_property
    def denies_in_an_explanation(self) -> bool:
        """True where each "not" stands in a piece of it that only explains: "we need no more"."""
        parts = [Part(piece, self.clause.context, self.classifier) for piece in pieces(self.shown)]
        denying = [part for part in parts if NEGATION.search(part.clause.plain)]
        return len(parts) > 1 and all(part.explains for part in denying)

    @property
    def only_looks(self) -> bool:
        """True where it may say more of a question beside it."""
        return self.best.label == "none" or changes_nothing(self.best.label)

    @property
    def only_asks(self) -> bool:
        """True for a question, and for an "if" that only says when something is so."""
        return self.shown.rstrip().endswith("?") or len(self.clause.words) < LEAST_WORDS + 2

    @cached_property
    def is_asked(self) -> bool:
        """True for a question, unless it is a polite command without a question mark."""
        shown = self.clause.plain
        return shown.rstrip().endswith("?") or bool(ASKED.match(shown))

    def is_lost(self, label: str) -> bool:
        """True where it clearly asks for something else than `label`, which cannot be done."""
        best = self.best
        other = best.label not in (label, *ASIDES) and not changes_nothing(best.label)
        unfilled = best.label not in (label, *ASIDES) and not best.is_request
        return best.probability >= WORTH_ASKING and (other or unfilled) and not self.is_aside

    def may_be(self, label: str) -> bool:
        """True where `label` is among the likeliest of a part of a line that has it."""
        return self.shares.get(label, 0.0) >= LEAST_IN_A_PART


def read_ranked(shown: str, context: IntentContext, classifier: Classifier) -> RankedReading:
    """What a line asks for by the ranking of all requests."""
    text = spelt_out(shown)
    whole = Part(text, context, classifier)
    if not whole.clause.tags or not any(map(str.isalpha, text)):
        return RankedReading()
    parts = [Part(piece, context, classifier) for piece in pieces(text)]
    strong = [part for part in parts if part.asks_for_something]
    if not 1 < len(parts) <= MOST_PARTS or not _others(whole, strong):
        several = len(parts) > 1
        found = _one(whole, parts if several else (), strong if several else ())
    else:
        found = _of_parts(whole, parts, strong)
    if _drops_a_figure(whole, found):
        found = RankedReading(options=(found.requests,))
    most = {
        label: max([share, *(part.shares[label] for part in parts if part.clause.tags)])
        for label, share in whole.shares.items()
    }
    return replace(found, shares=most, likeliest=whole.best.label)


BETWEEN = re.compile(r"(?<=\d)x(?=\d)")
CANDIDATE = re.compile(r"\bc(\d+)\b", re.I)
FIGURE = re.compile(r"(?<![A-Za-z\d.])\d+(?:\.\d+)?")


def _drops_a_figure(whole: Part, found: RankedReading) -> bool:
    """True where something would be changed and the line has more figures than the requests."""
    if all(changes_nothing(label) for label in found.labels):
        return False
    held = Counter(
        number
        for item in found.requests
        for number in re.findall(r"\d+(?:\.\d+)?", item.model_dump_json(exclude_defaults=True))
    )
    shown = BETWEEN.sub(" ", whole.clause.plain)
    held -= Counter(CANDIDATE.findall(shown))  # their numbers are no figures
    return len(FIGURE.findall(shown)) > held.total()


def speaks_against(ranked: RankedReading, read: Sequence[Intent]) -> bool:
    """True where the ranking gives a request that was `read` next to nothing, whole or in parts,
    and something else more."""
    labels = {label_of(item) for item in read} - {"run"}
    if not labels or not ranked.shares or any(item.name in SPOKEN for item in read):
        return False
    if ranked.likeliest in (*ASIDES, *labels) and len(labels) == 1:
        return False
    few = any(ranked.shares.get(label, 0.0) < LEAST_OF_WHAT_WAS_READ for label in labels)
    return few and bool(ranked.requests or (ranked.options and changes_nothing(ranked.likeliest)))


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
            return any(part.shown.endswith("?") and part is not strong[-1] for part in others)
        others = [
            part
            for part in others
            if len(part.clause.words) >= LEAST_WORDS and part.best.probability >= SURE_OF_A_CHANGE
        ]
    return bool(others)


def _joins_values(left: str, right: str) -> bool:
    """True between the values of one list; "block 128 and 4 warps" has two things of one each."""
    two = OWNED.search(left) and NOUN_BEHIND.match(right)
    return bool(ENDS_IN_A_VALUE.search(left) and A_VALUE.match(right)) and not two


def pieces(text: str) -> list[str]:
    """The line cut at marks and at words such as "and", but not between values: "c1 and c2"."""
    cuts = [
        cut
        for cut in CUT.finditer(text)
        if not _joins_values(text[: cut.start()], text[cut.end() :])
    ]
    starts, ends = [0, *(cut.end() for cut in cuts)], [*(cut.start() for cut in cuts), len(text)]
    found = (text[start:end].strip() for start, end in zip(starts, ends, strict=True))
    return [piece for piece in found if piece]


def _of_parts(whole: Part, parts: Sequence[Part], strong: Sequence[Part]) -> RankedReading:
    """Each part's own request, in order; asked back where a part is neither request nor aside."""
    looks = all(changes_nothing(part.best.label) for part in strong)
    if not all(part in strong or part.is_aside or (looks and part.only_looks) for part in parts):
        return _offered(whole, strong)
    if not all(_may_be_done(part, part.best) for part in strong) or _is_held_up(whole, strong):
        return _offered(whole, strong)
    named = [part for part in strong if part.best.label not in ASIDES]
    led_up_to = [part for part in named if part.is_aside]
    if len(led_up_to) < len(named) and whole.best.probability >= SURE_OF_ALL:
        named = [part for part in named if part not in led_up_to]
    asked = [part.best for part in named] or [strong[0].best]
    found = tuple(dict.fromkeys(item for each in asked for item in each.requests))
    labels = tuple(dict.fromkeys(each.label for each in asked))
    least = min(each.probability for each in asked)
    if any(pair <= set(labels) for pair in CONTRARY):
        return _offered(whole, strong)
    against = whole.best.is_request and whole.best.label not in labels
    if len(labels) == 1 and against and whole.best.probability >= least - MARGIN:
        return _offered(whole, strong)
    if not looks and is_undecided(whole.clause.tags, found):
        return RankedReading(options=(found,))
    return RankedReading(found, labels=labels, probability=least)


def _is_held_up(whole: Part, strong: Sequence[Part]) -> bool:
    """True where a condition or a "don't" of the line reaches over its parts."""
    shown = whole.clause.plain
    changes = any(not changes_nothing(part.best.label) for part in strong)
    held = CONDITION.search(shown) or WAITS.search(shown)
    return bool(WAVED_OFF.search(shown)) or (changes and bool(held))


def _one(whole: Part, parts: Sequence[Part], strong: Sequence[Part]) -> RankedReading:
    """One request, by the whole line; surer where a part of it says the same."""
    best = whole.best
    same = [part.best.probability for part in strong if part.best.label == best.label]
    sure = max([best.probability, *same])
    clear = sure - whole.ranked[1].probability >= MARGIN if len(whole.ranked) > 1 else True
    looks = changes_nothing(best.label)
    fits = all(part.is_aside or part.may_be(best.label) for part in parts)
    told_all = best.label in TELLS_ALL and best.probability >= SURE_OF_ALL
    lost = any(part.is_lost(best.label) for part in parts)
    fits = fits or best.label == "ask_docs" or ((looks or told_all) and not lost)
    fits = fits and (best.label in UNDER_A_CONDITION or not looks or not _holds_a_condition(parts))
    least = SURE_OF_A_LOOK if looks else SURE_OF_A_CHANGE
    if not (best.is_request and sure >= least and clear and fits and _may_be_done(whole, best)):
        return _offered(whole, strong)
    if not looks and is_undecided(whole.clause.tags, best.requests):
        return RankedReading(options=(best.requests,))
    return RankedReading(best.requests, labels=(best.label,), probability=sure)


UNDER_A_CONDITION = ("cannot=condition", "cannot=message", "cannot=judge", "cannot=tolerance")


def _holds_a_condition(parts: Sequence[Part]) -> bool:
    return any(CONDITION.match(part.shown) and not part.only_asks for part in parts)


def _may_be_done(part: Part, ranked: Ranked) -> bool:
    """False for a change that is asked about, negated, conditional, or told of, and for a look
    that is waved off."""
    tags, shown = part.clause.tags, part.clause.plain
    if changes_nothing(ranked.label):
        told = "=" not in ranked.label and not shown.rstrip().endswith("?") and STATED.match(shown)
        return not (WAVED_OFF.search(shown) or told or OTHERS.match(shown))
    shown = HARMLESS_IF.sub("", shown)
    if CONDITION.search(shown) or OUT_OF_IT.search(shown) or BARE.fullmatch(shown):
        return False
    past = ranked.label not in TOLD_OF_INPUTS or FORMERLY.search(shown)
    if (
        tells(tags)
        or (past and TOLD.match(shown))
        or OTHERS.match(shown)
        or not TOLD_BY.isdisjoint(part.clause.words - {"before"})
    ):
        return False
    if ranked.label.startswith("knob") and THE_ONE.search(shown):
        return False
    if ranked.label not in ("stop_at", "budget") and WAITS.search(shown):
        return False
    if "before" in part.clause.words and ranked.label != "return_to":
        return False
    negated = NEGATION.search(shown) and ranked.label not in MAY_BE_NEGATED
    if negated and not part.denies_in_an_explanation:
        return False
    return not part.is_asked


def tells(tags: Sequence[Tag]) -> bool:
    """True for what was or is so: "we reached 2x", "it uses cublas"."""
    return is_past(tags) or is_reported(tags) or is_past_fact(tags)


def _offered(whole: Part, strong: Sequence[Part]) -> RankedReading:
    """The nearest readings to choose from."""
    found = dict.fromkeys(_near(whole, strong))
    options = tuple(found)[:MOST_OFFERED]
    return RankedReading(options=options, probability=whole.best.probability)


def _near(whole: Part, strong: Sequence[Part]) -> Iterator[tuple[Intent, ...]]:
    if whole.best.label == "none" and whole.best.probability > SURE_OF_A_LOOK:
        return
    refused = bool(NEGATION.search(whole.clause.plain))
    for ranked in (*whole.ranked, *(part.best for part in strong)):
        if ranked.label in ASIDES or not ranked.is_request or ranked.probability < WORTH_ASKING:
            continue
        if changes_nothing(ranked.label) or ranked.label in MAY_BE_NEGATED or not refused:
            yield ranked.requests
