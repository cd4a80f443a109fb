"""Reading of a sentence at the prompt without a language model.

Clauses that only explain are set aside: a reason ("because it is faster"), a purpose ("so that I
can import it"), a plan ("I want to try something else"), a time ("before I start over") and what
is ruled out ("rather than undoing that"). The ranking of every request reads the rest first. What
it is not sure of is left to the grammar and to the readers by words, which also overrule it where
they read the same and more. Where the two differ and the ranking is not sure, or the words ask for
nothing yet, the user is asked back.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Literal

from agentkernel.chat.language.clauses import (
    ANSWERS,
    SETTINGS,
    UNKNOWN,
    NoReading,
    SentenceParts,
    Unsure,
    only_states,
)
from agentkernel.chat.language.docs_question import docs_question
from agentkernel.chat.language.example_reader import (
    doubts,
    in_common,
    is_undecided,
    nearest_requests,
    read,
)
from agentkernel.chat.language.follow_ups import read_follow_up
from agentkernel.chat.language.grammar import EXAMPLES, VALUES, read_only_requests
from agentkernel.chat.language.halves import read_faster_with, read_halves
from agentkernel.chat.language.kernel_words import nearest_wish, read_kernel_words
from agentkernel.chat.language.phrases import tags_of, with_polarity
from agentkernel.chat.language.questions import read_certain, read_questions
from agentkernel.chat.language.ranking import (
    ASIDES,
    SPOKEN,
    SURE_OF_A_CHANGE,
    RankedReading,
    label_of,
    read_ranked,
    speaks_against,
)
from agentkernel.chat.language.slots import InvalidValues
from agentkernel.chat.language.tagging import (
    HARD_BREAKS,
    MOST_CHARACTERS,
    MOST_TOKENS,
    Pattern,
    Tag,
    clean,
    sentences,
    text_of,
    tokenise,
    words_of,
)
from agentkernel.chat.language.values import Clause, changes_nothing, offered_knob
from agentkernel.chat.language.wish_scope import is_of_kernels, within, without_kernel_names
from agentkernel.chat.language.wishes import (
    is_praise,
    of_the_last,
    read_wishes,
    two_meanings,
)
from agentkernel.chat.language.wording import for_target, spelt_out, wordings
from agentkernel.chat.requests import (
    Ambiguous,
    Cannot,
    Intent,
    IntentContext,
    NotUnderstood,
    Plain,
    Run,
    SetPrecision,
    Suggestion,
    Understanding,
    Understood,
)
from agentkernel.domain.verdict import Precision

if TYPE_CHECKING:
    from agentkernel.chat.language.classifier import Classifier


Kind = Literal["reason", "purpose", "plan", "ruled out", "hesitation"]
SPEAKER = r"(?:i|we)"
OPENERS: tuple[tuple[Kind, Pattern], ...] = (
    (
        "reason",
        Pattern(
            r"(?:because|as a result of|due to|thanks to|given that|seeing that|considering that"
            r"|(?:since|as) (?:i|we|you|they|he|she|it|this|that)\b(?! (?:can|could|like|want)\b))"
        ),
    ),
    (
        "purpose",
        Pattern(
            r"(?:so that|so as to|in order to|in order that|for the sake of|with a view to"
            r"|so (?:i|we|they|he|she|my \w+|our \w+|the \w+) "
            r"(?:can|could|will|would|might|do not|does not|need not|will not|am able|are able)\b"
            rf"|before {SPEAKER} )"
        ),
    ),
    (
        "plan",
        Pattern(
            rf"{SPEAKER} (?:just |also |really |still |only )?(?:want to|wanted to|would like to"
            r"|am going to|are going to|am planning to|are planning to|plan to|intend to|hope to"
            r"|am about to|are about to|am trying to|are trying to|would love to)\b"
        ),
    ),
    (
        "ruled out",
        Pattern(r"(?:instead of|rather than|in place of|as opposed to|do not|never) "),
    ),
    ("hesitation", Pattern(r"(?:wait|hold on|hang on|hold it|one moment|one second) [,.!] ")),
)
"""How a clause of each kind begins."""
LEADING = Pattern(r"to (?!the\b|an?\b|my\b|c\d)[a-z]+ ")
"""A purpose that stands before its request: "to save memory, use bf16"."""
ACTS = words_of(
    "USE RUN SHOW KEEP RETURN STOP TRY ALLOW UNDO FORK SAVE REJECT EXPORT EXPLAIN COMPARE EDIT "
    "REPAIR VERIFY TELL REDO RESTART FORBID QUIT REDUCE"
)
"""Concepts of verbs by which a request begins."""
DEFINITE = words_of(
    "KEEP UNDO REDO REJECT SAVE EXPORT RETURN RESTART STOP ALLOW FORBID QUIT EDIT REPAIR"
)
"""Verbs of a plan that may be meant as a request: "I want to undo the last change"."""
OPEN = words_of("TRY USE RUN SHOW FILLER")
NAMES = words_of("CAND ORD LINE LINEWORD")
"""Values that name what is there and set nothing."""
DEMANDS = words_of("must should has need needs only please")
BEFORE_A_VERB = ("SEP", "POLITE", "MARK", "MAY", "BUT")
PLAIN_TEXT = words_of("please just now also so kindly maybe")
INFORMS = Pattern(r"as (?:i|we) (?:only|just|do|am|are|have|never|always)\b")
WEIGHTLESS = ("FILLER", "POLITE", "MARK", "SEP", "BUT", "MAY", "THIS", "PREP")
WISHES = Pattern(
    r"^(?:\W|and |so |but |ok |please )*(?:i|we) (?:want|would like|need|wish|am going|plan)"
)


@dataclass(frozen=True, slots=True)
class SplitText:
    """`request`: the tags without the clauses that explain. `cut`: there were some. `weighs`: one
    of them holds something that may be meant as a request too."""

    request: tuple[Tag, ...]
    cut: bool
    weighs: bool


@dataclass(frozen=True, slots=True)
class _Clause:
    kind: Kind
    start: int
    end: int


def split_explanations(tags: Sequence[Tag]) -> SplitText:
    """The text apart from what explains it.

    A clause that stands first is set aside only where a comma ends it, a request follows, and
    nothing in it is a value that the request may speak of.
    """
    kept: list[Tag] = []
    cut: list[_Clause] = []
    at = 0
    while at < len(tags):
        clause = _clause_at(tags, at)
        if clause is None:
            kept.append(tags[at])
            at += 1
        else:
            cut.append(clause)
            at = clause.end
    while cut and kept and kept[0].has("MARK"):
        del kept[0]
    weighs = any(_weighs(each.kind, tags[each.start : each.end]) for each in cut)
    return SplitText(tuple(kept), bool(cut), weighs)


def _clause_at(tags: Sequence[Tag], at: int) -> _Clause | None:
    text = text_of(tags[at : at + 8]) + " "
    first = not _says_something(tags[:at])
    if first and LEADING.match(text):
        clause = _Clause("purpose", at, _end("purpose", tags, at))
        return clause if _may_lead(clause, tags) else None
    for kind, opener in OPENERS:
        if opener.match(text):
            clause = _Clause(kind, at, _end(kind, tags, at))
            may = _may_lead(clause, tags) if first else _may_follow(clause, tags)
            if may:
                return clause
    return None


def _may_lead(clause: _Clause, tags: Sequence[Tag]) -> bool:
    if clause.kind == "hesitation":
        return clause.end < len(tags)
    if clause.kind == "plan" or clause.end == len(tags) or tags[clause.end].text not in (",", "!"):
        return False
    if clause.kind == "ruled out" and not _rules_out_an_act(tags[clause.start :]):
        return False
    said = [tag for tag in tags[: clause.start] if not tag.has("MARK", "SEP")]
    if clause.kind == "ruled out" and any(tag.text != "please" for tag in said):
        return False
    rest = tags[clause.end + 1 :]
    held = any(
        tag.has(*VALUES) and not tag.has("FILLER") for tag in tags[clause.start : clause.end]
    )
    points = any(tag.has("THIS") or tag.text in ("there", "them", "those") for tag in rest)
    return _is_request(rest) and not (held and (points or clause.kind != "ruled out"))


def _may_follow(clause: _Clause, tags: Sequence[Tag]) -> bool:
    before, opener = tags[: clause.start], tags[clause.start].text
    if clause.kind == "hesitation" or opener in ("do", "do not", "never"):
        return False
    if clause.kind == "ruled out":
        return _rules_out_an_act(tags[clause.start :])
    if opener == "as" and before[-1].text != ",":
        return bool(INFORMS.match(text_of(tags[clause.start :])))
    if clause.kind == "plan":
        text = text_of(before)
        return before[-1].has("MARK") and not WISHES.match(text)
    return True


def _rules_out_an_act(tags: Sequence[Tag]) -> bool:
    """True for "instead of undoing that", not for "instead of tf32"."""
    behind = [tag for tag in tags[1:4] if tag.text not in ("to", "not")]
    return bool(behind) and behind[0].has(*ACTS) and not behind[0].has(*VALUES)


def _says_something(tags: Sequence[Tag]) -> bool:
    return any(not tag.has(*WEIGHTLESS) for tag in tags)


def _end(kind: Kind, tags: Sequence[Tag], start: int) -> int:
    """Where the clause is over: at a mark that ends a sentence, or where a request begins."""
    if kind == "hesitation":
        return start + 1
    for at in range(start + 1, len(tags)):
        tag = tags[at]
        if tag.text in HARD_BREAKS or (kind == "ruled out" and tag.text == ","):
            return at
        joins = tag.text in (",", ":") or (tag.has("SEP") and _begins(kind, tag))
        if joins and _is_request(tags[at + 1 :]):
            return at
    return len(tags)


def _begins(kind: Kind, tag: Tag) -> bool:
    """ "in order to save and export it" goes on; "and then" begins something else."""
    return kind == "reason" or "then" in tag.text.split()


def _is_request(tags: Sequence[Tag]) -> bool:
    """True where a verb in its plain form, a "not" or a question follows."""
    for tag in tags:
        if tag.has(*BEFORE_A_VERB) or tag.text in PLAIN_TEXT:
            continue
        first = tag.text.split()[0]
        if first in ("i", "we", "it"):
            return False
        inflected = first.endswith(("ed", "ing", "s")) and not first.endswith("ss")
        asks = tag.text in ("do", "does") or tag.has("NEG", "WHY", "WHAT", "WHERE", "HOW")
        return asks or (tag.has(*ACTS) and not tag.has("THIS") and not inflected)
    return False


def _weighs(kind: Kind, tags: Sequence[Tag]) -> bool:
    if kind in ("ruled out", "hesitation"):
        return False
    words = {word for tag in tags for word in tag.text.split()}
    values = any(_sets(tag) for tag in tags)
    if kind == "reason":
        return values and not DEMANDS.isdisjoint(words)
    if values or any(tag.has("IF", "WHEN") and tag.text != "before" for tag in tags):
        return True
    verbs = [tag for tag in tags if tag.has(*DEFINITE) and not tag.has(*OPEN)]
    return bool(verbs) and (kind == "plan" or any(tag.has("SEP") for tag in tags[1:]))


def _sets(tag: Tag) -> bool:
    return tag.has(*VALUES) and not tag.has("FILLER", *NAMES) and tag.text != "one"


ALLOWED: dict[Precision, frozenset[str]] = {
    "strict": frozenset(),
    "tf32": frozenset({"TF32"}),
    "bf16": frozenset({"TF32", "BF16"}),
}
"""The formats that each precision lets a kernel compute in."""
ANSWER = ("GOAHEAD", "YES", "FILLER", "POLITE", "MARK", "SEP", "THIS")
"""Concepts of the words that an answer may consist of."""
NAMED = ("TF32", "BF16")
MEANS_STRICT = ("STRICT", "REDUCED", "FP32", "PRECISION")
"""Words that ask for strict results, whatever is allowed now."""


def resolve_go_ahead(
    found: Sequence[Intent], tags: Sequence[Tag], context: IntentContext
) -> list[Intent]:
    """The same requests, "go ahead" read by what waits for an answer: with nothing waiting it
    begins a run, else it is a yes."""
    goes = any(tag.has("GOAHEAD") for tag in tags) and all(tag.has(*ANSWER) for tag in tags)
    if context.waiting is None or len(found) != 1 or not goes:
        return list(found)
    if context.waiting == "nothing":
        return [Run()] if found[0] == Plain(name="approve") else list(found)
    return [Plain(name="approve")] if found[0] == Run() else list(found)


def forbids_nothing(
    found: Sequence[Intent], tags: Sequence[Tag], context: IntentContext
) -> str | None:
    """The line that says so where "don't use bf16" forbids what is not allowed now anyway; None
    where it changes something, or where the precision in force is not known."""
    precisions = [item for item in found if item.name == "precision"]
    if context.precision is None or [item.precision for item in precisions] != ["strict"]:
        return None
    named = {concept for tag in tags for concept in NAMED if tag.has(concept)}
    if not named or any(tag.has(*MEANS_STRICT) for tag in tags):
        return None
    if named & ALLOWED[context.precision]:
        return None
    names = " and ".join(sorted(name.lower() for name in named))
    verb = "is" if len(named) == 1 else "are"
    return f"{names} {verb} not allowed now (precision {context.precision}): nothing to change."


def resolve_requests(found: list[Intent], shown: str) -> Understood | Ambiguous:
    """Without a "yes" before the request itself and without repetitions; contradictions asked."""
    if any(intent.name not in ANSWERS for intent in found):
        found = [intent for intent in found if intent.name not in ANSWERS]
    found = _collapsed(found)
    unique = [intent for at, intent in enumerate(found) if intent not in found[:at]]
    if not unique:
        raise NoReading("Nothing in it to do.")
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


MOST_NEAREST = 3
MOST_OPTIONS = 4
DELETES = words_of("delete erase remove deletes deleting erasing removing")
YES = Understood(intents=(Plain(name="approve"),))
"""What one word may say; no example of how people say it is learned from."""
ANYWAY = (
    Suggestion(name="run", example="run"),
    Suggestion(name="why_slow", example=EXAMPLES["why_slow"]),
    Suggestion(name="help", example=EXAMPLES["help"]),
)
"""What is offered where a text has no words to go by, or none that are about a kernel."""


def understand(text: str, context: IntentContext) -> Understanding:
    """The requests in `text`, in the order in which they are to be done.

    Never raises and never guesses: what has two readings is Ambiguous, and a part that has none
    makes the whole NotUnderstood, with the nearest requests that are understood.
    """
    found = _understood(text, context)
    if not isinstance(found, Understood) and len(text) <= MOST_CHARACTERS:
        # A kernel's name is no word of the language: a wish that is not read with it may be
        # without it, and nothing else is taken from that reading.
        nameless = without_kernel_names(text, context)
        again = found if nameless == text else _understood(nameless, context)
        found = again if is_of_kernels(again) else found
    return within(found, text[: MOST_CHARACTERS + 1], context)


def _understood(text: str, context: IntentContext) -> Understanding:
    shown = clean(text[: MOST_CHARACTERS + 1])
    if len(text) > MOST_CHARACTERS:
        return _not_understood(shown[:80], f"Longer than {MOST_CHARACTERS} characters.")
    again = read_follow_up(shown, context) or read_certain(shown)
    again = again or read_certain(spelt_out(shown))
    if again:
        return Understood(intents=again, offers=_size_asked_about(again, shown, context))
    shown = for_target(shown, context.targets)
    rules = _first_readers(shown, context)
    if len(shown.split()) < FEW_WORDS and (isinstance(rules, Understood) or len(shown) < LETTERS):
        return rules
    asked = _without_explanations(shown, context)
    ranked = read_ranked(asked, context, _ranking())
    return _of_a_question(_decided(rules, ranked, context, asked), context, shown)


SIZE_NAMED = Pattern(r"^what .*\b(?:bigger|larger|smaller|longer|shorter)\b.*\bsay (.*\d.*)$")


def _size_asked_about(
    asked: Sequence[Intent], shown: str, context: IntentContext
) -> tuple[Intent, ...]:
    """The size that a question about other sizes names: "... bigger inputs, say 100000 rows"."""
    named = SIZE_NAMED.match(shown.lower().rstrip(" ?."))
    if named is None or any(item.name != "fact" for item in asked):
        return ()
    read = _first_readers(f"for {named[1]}", context)
    sizes = isinstance(read, Understood) and all(item.name == "shapes" for item in read.intents)
    return read.intents if isinstance(read, Understood) and sizes else ()


def _without_explanations(shown: str, context: IntentContext) -> str:
    """The line without the clauses that say why, where none of them may be a request too."""
    tags = tags_of(shown, context.targets)
    parts = split_explanations(tags)
    if not parts.cut or parts.weighs or not parts.request:
        return shown
    kept = " ".join(shown[tag.start : tag.end] for tag in parts.request)
    return re.sub(r" (?=[,.;:!?])", "", kept).strip(" ,")


OUTRIGHT = Pattern(
    r"^(?:(?:and|so|but|ok|okay|hey|well|also|hmm|btw|wait)[, ]+)*(?:can|could|would|will|should"
    r"|shall|may|might|is|are|does|do|did|what if|what about|how about|why|how|what)\b"
    r"(?!.*\b(?:please|pls|plz)\b).*\?$"
)
"""A question: polite words that are meant as a command have "please" in them, or no mark."""


def _of_a_question(found: Understanding, context: IntentContext, shown: str) -> Understanding:
    """A question changes nothing: what it asks about is offered."""
    if not isinstance(found, Understood) or not OUTRIGHT.match(shown.strip().lower()):
        return found
    if any(item.name not in SPOKEN and not changes_nothing(item.name) for item in found.intents):
        return Ambiguous(text=shown, options=(found.intents,), asked=True)
    if found.intents == (Cannot(about="foresight"),):
        return found.evolve(offers=offered_knob(Clause(shown, context)))
    return found


FEW_WORDS = 2
LETTERS = 3
"""Shorter lines are read by the first readers alone; so are single words that they know."""
REFUSED = (UNKNOWN, "Nothing in it to do.")
"""Reasons of a refusal that say nothing of the words themselves."""


def _first_readers(shown: str, context: IntentContext) -> Understanding:
    """What the readers by rules and by the grammar's examples make of it, in any wording of it."""
    found = _understand(shown, context)
    if isinstance(found, Understood):
        return found
    for other in wordings(shown, refused=isinstance(found, NotUnderstood)):
        reread = _understand(other, context)
        if isinstance(reread, Understood):
            return reread
    return found


def _decided(
    rules: Understanding, ranked: RankedReading, context: IntentContext, shown: str
) -> Understanding:
    """The ranking's reading where it is sure; else that of the rules, asked back where the ranking
    gives it next to nothing."""
    if isinstance(rules, NotUnderstood) and rules.reason not in REFUSED:
        return rules
    if ranked.requests and not _overruled(rules, ranked):
        return _as_ranked(rules, ranked, context, shown)
    if isinstance(rules, Understood):
        if ranked.requests or _is_likely(rules.intents, ranked):
            return rules
        options = dict.fromkeys((rules.intents, *ranked.options))
        return Ambiguous(text=shown, options=tuple(options)[:MOST_NEAREST])
    if isinstance(rules, Ambiguous) or not ranked.options:
        return rules
    known = in_common(tags_of(shown, context.targets))
    return Ambiguous(text=shown, options=ranked.options) if known else rules


def _overruled(rules: Understanding, ranked: RankedReading) -> bool:
    """True where the rules read all that the ranking does and more, or its labels with values of
    their own, where the ranking contradicts itself, and where they have two questions to choose
    from or one reading that is more than the other."""
    if isinstance(rules, Ambiguous):
        asks = all(changes_nothing(item.name) for option in rules.options for item in option)
        sizes = [set(map(label_of, option)) for option in rules.options]
        nested = any(one < other for one in sizes for other in sizes)
        return len(sizes) > 1 and (asks or nested)
    if not isinstance(rules, Understood):
        return False
    if isinstance(resolve_requests(list(ranked.requests), ""), Ambiguous):
        return True
    read = {label_of(item) for item in rules.intents}
    found = {label_of(item) for item in ranked.requests}
    if read == found:
        return _held_by(rules.intents) >= _held_by(ranked.requests)
    if read > found:
        more = read - found - {"run"}
        return all(ranked.shares.get(label, 0.0) >= LEAST_OF_ONE_MORE for label in more)
    return read < found and ranked.probability < SURE_OF_A_CHANGE


def _held_by(requests: Sequence[Intent]) -> int:
    """How many values are named in them."""
    return sum(len(item.model_dump(exclude_defaults=True)) for item in requests)


def _as_ranked(
    rules: Understanding, ranked: RankedReading, context: IntentContext, shown: str
) -> Understanding:
    """The ranking's requests; asked back where it is not sure and the rules read something else,
    and where the words have two meanings."""
    other = two_meanings(shown, ranked.requests)
    if other is not None:
        return Ambiguous(text=shown, options=(other, ranked.requests))
    if isinstance(rules, Understood) and ranked.probability < SURE_OF_A_CHANGE:
        return Ambiguous(text=shown, options=(ranked.requests, rules.intents))
    tags = tags_of(shown, context.targets)
    intents = of_the_last(shown, ranked.requests, context)
    found = resolve_requests(list(intents), shown)
    return _in_force(found, tags, context, shown) if isinstance(found, Understood) else found


def _is_likely(read: Sequence[Intent], ranked: RankedReading) -> bool:
    """True where the ranking has heard of one of the requests that the rules `read`, or has
    nothing to say of the words; a look must only not be spoken against."""
    strict = all(item == SetPrecision(precision="strict") for item in read)
    spoken = any(item.name in SPOKEN for item in read)
    if strict or spoken or ranked.likeliest in (*ASIDES, "approve"):
        return True
    if all(changes_nothing(item.name) for item in read):
        return not speaks_against(ranked, read)
    return max(ranked.shares.get(label_of(item), 0.0) for item in read) >= LEAST_OF_THE_RULES


LEAST_OF_THE_RULES = 0.2
LEAST_OF_ONE_MORE = 0.1
"""How likely what the rules alone have read must be."""


def _understand(shown: str, context: IntentContext) -> Understanding:
    tokens = tokenise(shown)
    if not tokens or len(tokens) > MOST_TOKENS:
        reason = "No words in it." if not tokens else f"More than {MOST_TOKENS} words."
        return _not_understood(shown, reason)
    tags = tags_of(shown, context.targets)
    if len(tokens) == 1 and tokens[0].kind == "quoted":
        return _not_understood(shown, "Words in quotes ask for nothing by themselves.", tags)
    about = _by_words(shown, context)
    if about:
        return Understood(intents=about)
    found = _meant(tags, context, shown)
    if isinstance(found, Understood):
        other = two_meanings(shown, found.intents)
        if other is not None:
            return Ambiguous(text=shown, options=(other, found.intents))
        found = found.evolve(intents=of_the_last(shown, found.intents, context))
        return _in_force(found, tags, context, shown)
    praised = isinstance(found, NotUnderstood) and is_praise(shown)
    return Understood(intents=(Plain(name="thanks"),)) if praised else found


def _by_words(shown: str, context: IntentContext) -> tuple[Intent, ...]:
    """What the words of a kernel or of the hour at it ask for, before the grammar."""
    return (
        read_kernel_words(shown, context)
        or read_faster_with(shown, context, _alone)
        or read_halves(shown, context, _alone)
        or read_questions(shown, context)
        or read_wishes(shown, context)
    )


def _alone(half: str, context: IntentContext) -> Understanding:
    """The reading of one half of a sentence, which is not halved again."""
    wished = read_questions(half, context) or read_wishes(half, context)
    if wished:
        return Understood(intents=wished)
    tags = tags_of(half, context.targets)
    found = _meant(tags, context, half) if tags else _not_understood(half, "No words in it.")
    return _in_force(found, tags, context, half) if isinstance(found, Understood) else found


def _in_force(
    found: Understood, tags: list[Tag], context: IntentContext, shown: str
) -> Understanding:
    """The requests that change something where the session stands."""
    intents = resolve_go_ahead(found.intents, tags, context)
    nothing = forbids_nothing(intents, tags, context)
    if nothing is None:
        return Understood(intents=tuple(intents))
    left = tuple(item for item in intents if item.name != "precision")
    return Understood(intents=left) if left else _not_understood(shown, nothing, tags)


def _meant(tags: list[Tag], context: IntentContext, shown: str) -> Understanding:
    """What the text asks for without the clauses that explain; where nothing is left that asks, of
    all of it, in which one setting or question may be read, and no more."""
    parts = split_explanations(tags)
    if not parts.cut or any(docs_question(sentence, shown) for sentence in sentences(tags)):
        return _read(tags, context, shown)
    asked = _read(list(parts.request), context, shown)
    if isinstance(asked, Ambiguous) or (isinstance(asked, Understood) and not parts.weighs):
        return asked
    whole = _read(tags, context, shown)
    if isinstance(asked, Understood):
        if isinstance(whole, Understood) and len(whole.intents) > len(asked.intents):
            return _asked_back(shown, asked, whole)
        return _asked_back(shown, asked)
    if not isinstance(whole, Understood):
        return whole
    harmless = len(whole.intents) == 1 and whole.intents[0].name in SETTINGS | read_only_requests()
    return whole if harmless else _asked_back(shown, whole)


def _asked_back(shown: str, *found: Understood) -> Ambiguous:
    return Ambiguous(text=shown, options=tuple(each.intents for each in found))


def _read(tags: list[Tag], context: IntentContext, shown: str) -> Understanding:
    try:
        _refuse_to_delete(tags)
        found = resolve_requests(_text(tags, context, shown), shown)
    except Unsure as unsure:
        return Ambiguous(text=shown, options=unsure.options[:MOST_OPTIONS])
    except InvalidValues as none:
        return _not_understood(shown, str(none), tags)
    except NoReading as none:
        second = _second(tags, context, shown, str(none))
        if isinstance(second, Understood) and is_undecided(tags, second.intents):
            return _asked_back(shown, second)
        return second
    if not isinstance(found, Understood) or (len(tags) == 1 and found == YES):
        return found
    doubted = doubts(_with_polarity(tags), found.intents, _classifier())
    return _asked_back(shown, found) if doubted or is_undecided(tags, found.intents) else found


def _with_polarity(tags: list[Tag]) -> list[Tag]:
    return [tag for sentence in sentences(tags) for tag in with_polarity(sentence)]


def _second(tags: list[Tag], context: IntentContext, shown: str, reason: str) -> Understanding:
    """What the reader by examples makes of a text that fits no row; `reason`: why it fits none."""
    words = _with_polarity(tags)
    found = read(words, context, shown, _classifier())
    if found.intents:
        return resolve_requests(list(found.intents), shown)
    if found.option is not None:
        return Ambiguous(text=shown, options=((found.option,),))
    return _not_understood(shown, reason, words)


def _classifier() -> Classifier:
    """The weights; read, and numpy imported, with the first text, not with this module."""
    from agentkernel.chat.language.classifier import load

    return load()


def _ranking() -> Classifier:
    """The ranking of every request, read with the first line that needs it."""
    from agentkernel.chat.language.classifier import RANKING_FILE, load

    return load(RANKING_FILE)


def _refuse_to_delete(tags: list[Tag]) -> None:
    """Raises Impossible for "delete c4": what was tried stays on record."""
    texts = [tag.text for tag in tags]
    if DELETES.isdisjoint(texts) or not any(tag.has("CAND") for tag in tags):
        return
    raise InvalidValues("No candidate is ever deleted: 'discard c3' sets one aside.")


def _text(tags: list[Tag], context: IntentContext, shown: str) -> list[Intent]:
    """The requests of each sentence; where one has none by itself, of all of them read as one."""
    parts = [with_polarity(sentence) for sentence in sentences(tags)]
    whole = [tag for tags in parts for tag in tags]
    if not whole:
        raise NoReading("Nothing in it to do.")
    if any(_has_no_object(sentence) for sentence in parts[1:]):
        one = SentenceParts(tuple(whole), context, shown, True, whole[-1].text == "?").as_one()
        if one:
            return one
    try:
        found: list[Intent] = []
        for sentence in parts:
            more = _sentence(sentence, context, shown, len(parts) == 1)
            asked = sentence[-1].text == "?"
            if any(only_states(sentence, asked, intent, found) for intent in more):
                raise Unsure((tuple(found), (*found, *more)))
            found += more
        return found
    except NoReading:
        if len(parts) == 1 or any(docs_question(each, shown) for each in parts):
            raise
        return _sentence(whole, context, shown, True)


def _sentence(tags: list[Tag], context: IntentContext, shown: str, only: bool) -> list[Intent]:
    docs = docs_question(tags, shown)
    if docs is not None:
        return [docs]
    return SentenceParts(tuple(tags), context, shown, only, tags[-1].text == "?").read()


def _has_no_object(tags: list[Tag]) -> bool:
    """True for a verb by itself, which looks back for what it is about: "explain?" """
    words = [tag for tag in tags if not tag.has("MARK", "SEP", "POLITE", "MAY")]
    return len(words) == 1 and words[0].has("EXPLAIN", "VERIFY", "COMPARE")


def _not_understood(shown: str, reason: str, tags: Sequence[Tag] = ()) -> NotUnderstood:
    if not in_common(tags):
        return NotUnderstood(text=shown, reason=reason, nearest=ANYWAY)
    nearest = nearest_requests(tags, MOST_NEAREST, _classifier())
    wish = nearest_wish(shown)
    if wish is not None:
        nearest = (Suggestion(name="knob", example=wish), *nearest[: MOST_NEAREST - 1])
    return NotUnderstood(text=shown, reason=reason, nearest=nearest)
