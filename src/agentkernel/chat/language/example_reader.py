"""Second reader, by examples, for sentences that fit no row of the grammar.

It answers only where the classifier is sure of one label, each value in the sentence has its
place in that request, and nothing (a "not", an "if", a question, a clause about something else)
says otherwise. It also finds sentences that leave a request open (a wish, a deliberation, a
regret, a condition), and the known requests nearest to a text that was not understood.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from agentkernel.chat.language.clauses import (
    ENDS_OF_A_RUN,
    leads_in,
    only_states_something,
    refers_back,
    speaks_of,
)
from agentkernel.chat.language.grammar import EXAMPLES, read_only_requests, rows
from agentkernel.chat.language.phrases import (
    INVENTORY,
    LEAD,
    is_past,
    is_past_fact,
    is_question,
    is_reported,
)
from agentkernel.chat.language.slots import intent_of, is_value
from agentkernel.chat.language.tagging import (
    HARD_BREAKS,
    Pattern,
    Tag,
    sentences,
    text_of,
    words_of,
)
from agentkernel.chat.requests import Intent, IntentContext, IntentName, Suggestion

if TYPE_CHECKING:
    from agentkernel.chat.language.classifier import Classifier


SURE = 0.7
"""Least probability of the label that is answered. By cross-validation in four folds: 0.5% of
5,565 sentences are then misread."""
SURE_IN_NEGATION = 0.8
SURE_OF_CLAUSE = 0.75
"""From here on a clause is a request of its own."""
WORTH_ASKING = 0.4
PER_UNKNOWN_WORD = 0.05
"""How much surer it must be for each word that no example has."""
MOST_CLAUSES = 6
LEAST_IN_CLAUSE = 0.15
"""How probable the answered label must be in each clause."""
MOST_NONE_BESIDE_A_LOOK = 0.7
MOST_NONE_OF_A_PRONOUN = 0.5
"""Above these a clause may mean something that no request does ("tell it to my boss")."""
PRONOUNS = words_of("it that this those them one")
NEGATIVE = words_of(
    "precision=strict policy=triton policy=mixed budget memory_limit stop_at more_aggressive "
    "why_slow explain_kernel explain_line help verify lower_latency why_rejected history"
)
"""Labels that people also ask for with a "not"."""
NOT_ONLY_OWN = Pattern(r"\b(?:need|needs|needn't|have to|has to|bother|must|reinvent|everything)\b")
NO_OBJECTION = Pattern(r"\b(?:mind|problem|objections?|against|avoid|worry|care)\b")
"""What a "not" must speak of for library calls to be allowed: "it need not be all triton", or
where it reaches the library itself, "no objection to cublas"."""
NEEDS_NONE = Pattern(r"\b(?:need|have) to (?:allow|use|call|enable)\b")
NO_FURTHER = Pattern(
    r"^(?:no need to|no need for|you need not|do not|you do not have to|you do not need to) "
    r"(?:continue|go on|keep going|go further|go any further|search further|bother|carry on)\b"
)
"""Says again that a run ends there."""
REPORTED = words_of("said says say told asked suggests suggested thinks claims wrote heard read")
LATER = words_of("tomorrow tonight later yesterday afterwards monday weekend unless otherwise")
HARMLESS_IF = Pattern(
    r"\bif (?:it|that|this|you|they|needed|necessary|possible|you)\b(?: (?:really |only |ever )?"
    r"(?:helps?|can|like|want|must|need|have to|wins?|pays off|is (?:faster|quicker|better|ok|fine)"
    r"|makes it faster|makes sense))?|\bwhere (?:it|they)\b|\beven if\b"
)
"""A permission's "if": the tool decides, as it does anyway."""
STATEMENT = Pattern(
    r"^(?:the|your|my|our|that|some|its|candidate|those) (?:\S+ ){1,3}"
    r"(?:is|are|was|were|looks?|seems?|says?)\b"
)
QUESTIONS_BY_STATEMENT = frozenset(
    {"explain_line", "explain_kernel", "why_slow", "why_rejected", "help"}
)
GIVES_UP = Pattern(r"\b(?:no need|not need|not want|never mind|without|skip)\b")
"""Before something to look at: it is not wanted."""
LEAST_OF_THE_GRAMMARS = 0.05
SURE_OF_DOUBT = 0.6
"""The grammar's reading is asked back where the examples give it less than the one and another
label, or none, at least the other."""
BOUND = frozenset({"stop_at", "budget", "memory_limit"})
"""Requests whose "when" and "once" are the request itself."""
PERMISSIONS = frozenset({"policy=mixed", "policy=any", "precision=tf32", "precision=bf16"})
BREAKS = HARD_BREAKS | {",", ":"}
ACTS = ("KEEP", "UNDO", "REJECT", "SAVE", "EXPORT", "RETURN", "FORK", "RESTART")
JOINTS = words_of("and but so because since though although cause plus")


@dataclass(frozen=True, slots=True)
class Guess:
    """The likeliest request of some words, None where its values do not fit."""

    label: str
    probability: float
    intent: Intent | None


@dataclass(frozen=True, slots=True)
class ExampleReading:
    """What the second reader found: `intents` to do, else perhaps one `option` to ask about."""

    intents: tuple[Intent, ...] = ()
    option: Intent | None = None


def read(
    tags: Sequence[Tag], context: IntentContext, shown: str, classifier: Classifier
) -> ExampleReading:
    """The requests of a sentence that the grammar refused. `tags` with their polarity marked."""
    words = tuple(tags)
    if any(tag.has("FOREIGN", "ADVICE") for tag in words):
        return ExampleReading()
    if not any(letter.isalpha() for tag in words for letter in tag.text):
        return ExampleReading()
    if not REPORTED.isdisjoint(word for tag in words for word in tag.text.split()):
        return ExampleReading()
    judge = _Judge(context, shown, classifier)
    whole = judge.guess(words)
    clauses = _clauses(words)
    if len(clauses) > MOST_CLAUSES:
        return ExampleReading()
    parts = [judge.guess(clause) for clause in clauses]
    asked = {part.label for part in parts if part.probability >= SURE_OF_CLAUSE} - {"none"}
    if len(asked) > 1:
        several = _several(judge, clauses, parts)
        return ExampleReading(intents=several) if several else ExampleReading()
    if whole.intent is None or not judge.may_be(whole, words):
        return ExampleReading()
    least = judge.least(whole, words)
    fits = all(
        _belongs(judge, whole, clause, part) for clause, part in zip(clauses, parts, strict=True)
    )
    if whole.probability >= least and fits and not _acts_besides(whole.label, clauses):
        return ExampleReading(intents=(whole.intent,))
    if whole.probability >= WORTH_ASKING and fits and not _is_negated(words):
        return ExampleReading(option=whole.intent)
    return ExampleReading()


class _Judge:
    """Guesses about parts of one sentence."""

    def __init__(self, context: IntentContext, shown: str, classifier: Classifier) -> None:
        self.context, self.shown, self.classifier = context, shown, classifier

    def guess(self, tags: tuple[Tag, ...]) -> Guess:
        """The likeliest label with its request."""
        probabilities = self.classifier.probabilities(tags)
        best = int(probabilities.argmax())
        label = self.classifier.labels[best]
        intent = intent_of(label, tags, self.context, self.shown)
        return Guess(label, float(probabilities[best]), intent)

    def probability(self, label: str, tags: tuple[Tag, ...]) -> float:
        """Of one label."""
        at = self.classifier.labels.index(label)
        return float(self.classifier.probabilities(tags)[at])

    def least(self, guess: Guess, tags: tuple[Tag, ...]) -> float:
        """How probable it must be to be answered."""
        base = SURE_IN_NEGATION if _is_negated(tags) else SURE
        return min(base + PER_UNKNOWN_WORD * self.classifier.unknown(tags), 0.97)

    def may_be(self, guess: Guess, tags: tuple[Tag, ...]) -> bool:
        """True where mood, conditions and negations leave it a request."""
        text = text_of(tags)
        if _is_negated(tags):
            if guess.label not in NEGATIVE:
                return False
            if guess.label == "policy=mixed" and not _allows(tags, text):
                return False
        words = set(text.split())
        if not LATER.isdisjoint(words):
            return False
        if guess.label not in BOUND and not _is_harmless_if(guess.label, tags, text):
            return False
        if _looks_only(guess.label):
            told = all(_is_statement(part, guess.label) for part in _clauses(tags))
            return not GIVES_UP.search(text) and not told
        told = all(is_reported(part) or is_past(part) for part in _clauses(tags))
        held = guess.label.partition("=")[0] in INVENTORY and is_past_fact(tags)
        return not (_is_asked(tags) or told or held)


def _is_negated(tags: tuple[Tag, ...]) -> bool:
    if any(tag.negated or tag.has("NEG", "NO") for tag in tags):
        return True
    return any("no need" in tag.text for tag in tags)


def _allows(tags: tuple[Tag, ...], text: str) -> bool:
    """True for a "not" that forbids nothing: "not everything has to be triton"."""
    if NEEDS_NONE.search(text):
        return False
    if any(tag.negated and tag.has("LIBRARY") for tag in tags):
        return bool(NO_OBJECTION.search(text))
    return bool(NOT_ONLY_OWN.search(text) or NO_OBJECTION.search(text))


def _is_statement(clause: tuple[Tag, ...], label: str) -> bool:
    """True for a statement: "the certificate looks good" asks for none. One that says that
    something is slow or unclear is a question."""
    if label in QUESTIONS_BY_STATEMENT:
        return False
    return only_states_something(clause) or bool(STATEMENT.search(text_of(clause)))


def doubts(tags: Sequence[Tag], found: Sequence[Intent], classifier: Classifier) -> bool:
    """True where the examples speak clearly against the requests that the grammar read."""
    probabilities = classifier.probabilities(tags)
    labels = {label_of(intent) for intent in found}
    own = sum(
        float(each)
        for label, each in zip(classifier.labels, probabilities, strict=True)
        if label in labels
    )
    return own < LEAST_OF_THE_GRAMMARS and float(probabilities.max()) >= SURE_OF_DOUBT


def label_of(intent: Intent) -> str:
    """The classifier's label of a request."""
    if intent.name == "precision":
        return f"precision={intent.precision}"
    return f"policy={intent.policy}" if intent.name == "policy" else intent.name


def _several(
    judge: _Judge, clauses: list[tuple[Tag, ...]], parts: list[Guess]
) -> tuple[Intent, ...]:
    """One request a clause, in order; none where a clause is neither a request nor an aside."""
    found: list[Intent] = []
    for clause, part in zip(clauses, parts, strict=True):
        sure = part.probability >= max(judge.least(part, clause), SURE_OF_CLAUSE)
        if part.intent is not None and sure and judge.may_be(part, clause):
            found.append(part.intent)
        elif not (only_states_something(clause) or leads_in(clause) or refers_back(clause)):
            return ()
    return tuple(found)


def _acts_besides(label: str, clauses: list[tuple[Tag, ...]]) -> bool:
    """True for "compare c2 and c3 and keep the faster one": a look, and something to do."""
    return _looks_only(label) and any(
        clause[0].has(*ACTS) and not clause[0].has("FILLER", "NEG", *_known(label))
        for clause in clauses[1:]
    )


def _belongs(judge: _Judge, whole: Guess, clause: tuple[Tag, ...], part: Guess) -> bool:
    """True for a clause that asks for the same, or for nothing of its own."""
    if part.label == whole.label or refers_back(clause) or leads_in(clause):
        return True
    if judge.probability(whole.label, clause) >= LEAST_IN_CLAUSE or _is_fragment(clause):
        return True
    if any(is_value(tag) for tag in clause):
        return all(
            is_value(tag) or tag.has("FILLER", "THIS", "MARK") or tag.text in ("as well", "too")
            for tag in clause
        )
    words = {word for tag in clause for word in tag.text.split()}
    none = judge.probability("none", clause)
    if _looks_only(whole.label):
        noun = len(clause) < 4 and clause[0].text in ("the", "a", "its", "your")
        return noun or none < MOST_NONE_BESIDE_A_LOOK
    text = text_of(clause)
    if whole.label in ENDS_OF_A_RUN and NO_FURTHER.match(text):
        return True
    if _only_denies(clause) and whole.label in BOUND | {"precision=strict", "policy=triton"}:
        return len(text.split()) < 3 or speaks_of(clause, _known(whole.label) | {"NEG", "NO"})
    if none < MOST_NONE_OF_A_PRONOUN and not PRONOUNS.isdisjoint(words):
        return part.probability < SURE
    return only_states_something(clause) and speaks_of(clause, _known(whole.label))


def _is_fragment(clause: tuple[Tag, ...]) -> bool:
    """True for one plain noun, as in "with the tiling and fusion"."""
    words = [tag for tag in clause if not tag.has("MARK", "FILLER")]
    return len(words) == 1 and not words[0].concepts and len(words[0].text.split()) == 1


def _only_denies(clause: tuple[Tag, ...]) -> bool:
    """True for "no longer", "no shortcuts", "not a minute more"."""
    return clause[0].text.split()[0] in ("no", "not", "nothing")


def _clauses(tags: tuple[Tag, ...]) -> list[tuple[Tag, ...]]:
    """Cut at marks and at words such as "and"; the marks are left out, "?" stays."""
    found: list[list[Tag]] = [[]]
    for tag in tags:
        if tag.text in BREAKS or tag.has("SEP") or tag.text in JOINTS:
            if tag.text == "?":
                found[-1].append(tag)
            found.append([])
        else:
            found[-1].append(tag)
    return [tuple(each) for each in found if any(not tag.has("MARK") for tag in each)]


@cache
def _known(label: str) -> frozenset[str]:
    name = label.partition("=")[0]
    return frozenset[str]().union(*(row.known for row in rows() if row.name == name))


def _looks_only(label: str) -> bool:
    return label.partition("=")[0] in read_only_requests()


def _is_asked(tags: tuple[Tag, ...]) -> bool:
    """True where the last clause is a question, unless it is a polite command."""
    last = list(_clauses(tags)[-1])
    ends = [at for at, tag in enumerate(tags[:-1]) if tag.text in HARD_BREAKS]
    sentence = tags[ends[-1] + 1 if ends else 0 :]
    polite = any(tag.has("POLITE", "MAY") for tag in sentence)
    return is_question(last) or (last[-1].text == "?" and not polite)


def _is_harmless_if(label: str, tags: tuple[Tag, ...], text: str) -> bool:
    whens = {"when", "once", "until"}.intersection(text.split())
    if not whens and not any(tag.has("IF", "WHEN") for tag in tags):
        return True
    if label in ("target", "shapes") and text.startswith("what if"):
        return True
    return _looks_only(label) or (label in PERMISSIONS and bool(HARMLESS_IF.search(text)))


HEDGE = Pattern(
    LEAD + r"(?:i (?:could|might|may|was going to|was about to|wish|would have|could have"
    r"|should have|had thought|thought about|regret|doubt)\b"
    r"|we (?:might|were going to|would have|should have|could have|wish|regret|doubt)\b"
    r"|you (?:would have|should have|could have|might have)\b"
    r"|(?:maybe|perhaps) i should\b|remind me to\b|forget that i\b"
    r"|(?:imagine|suppose|assume|assuming|pretend|say|let us say|let us assume|let us pretend) "
    r"(?:that )?(?:i|we|you|it)\b)"
)
"""Who might, wishes or imagines has not decided."""
ONLY_EXPLAINS = Pattern(
    r"^(?:because|so that|in order to|so (?:i|we|they|he|she) (?:can|could|will|might)\b)[^,:;.]*$"
)
"""A reason or a purpose, and nothing beside it."""
DELIBERATION = Pattern(
    LEAD + r"(?:do|does|did|must|need|ought|shall) (?:i|we|they|it) (?!know\b|see\b)"
    r"|" + LEAD + r"(?:is|was|would) (?:it|there|that) (?:worth|necessary|wise|smart|safe|sensible"
    r"|a good idea|better|make sense|any point|any need)\b"
)
"""Whether something should be done is asked: "do I need to save it"."""
MISTAKE = Pattern(
    r"\b(?:was|is|would be|were) (?:probably |clearly |just |perhaps )?"
    r"(?:a |an |my )?(?:\w+ )?(?:mistake|error|blunder|bad idea|bad move)\b|\bregret\b"
    r"|\b(?:was|is) wrong\b"
)
RULED_OUT = Pattern(LEAD + r"(?:instead of|rather than|in place of|as opposed to) \w+ing\b")
"""What is not wanted stands first, and no comma says where it ends."""
WRONG_TO = Pattern(r"\b(?:mistake|error|blunder|bad idea|bad move|wrong) to\b")
TAKES_BACK = words_of("undo reject return_to restart precision policy repair redo stop decline")
"""What one does about a mistake."""
POSTPONED = Pattern(
    r"\b(?:later|tomorrow|tonight|some ?day|eventually|at some point|next week|another time)\b"
)
ON_ALREADY = Pattern(
    LEAD + r"\S+ (?:is|are) (?:already |now |still |currently )*"
    r"(?:on|enabled|active|in use|in force|set|switched on|turned on)$"
)
"""What is so: "tf32 is on"."""
CONDITION = Pattern(r"\b(?:when|once|as soon as|after|until|till|if)\b")
AT_ONCE = words_of("save export keep reject return_to undo redo fork restart switch_branch")
"""Requests that are done as they are read, which is too early where they wait for a goal."""
USES = Pattern(
    LEAD + r"(?:our|my|the|their|every\w+|most|some) (?:[^, ]+ ){0,3}"
    r"(?:runs?|uses?|trains?|serves?|trained|likes?|hates?|loves?)\b(?!.*(?:,| so | then ))"
)
FEELS = Pattern(LEAD + r"(?:i|we) (?:really |just )?(?:hate|dislike|fear|distrust|love)\b")
"""What others do, or somebody feels, allows nothing yet."""
ALLOWANCES = frozenset({"precision", "policy", "dtype"})
COMPARED = Pattern(
    r"^(?:\S+ ){1,3}(?:is|was|looks|seems) (?:much |far |way |a bit |slightly |even )?"
    r"(?:\w+er|better|worse|more \w+|less \w+) than\b"
)
SPOKEN = frozenset({"approve", "decline", "quit"})


def is_undecided(tags: Sequence[Tag], found: Sequence[Intent]) -> bool:
    """True where the requests that were read should be asked back before they are done. Those that
    only look are in doubt only where two candidates are compared by a statement."""
    changing: set[str] = {
        item.name
        for item in found
        if item.name not in read_only_requests() and item.name not in SPOKEN
    }
    if not changing:
        return any(_states_a_comparison(sentence) for sentence in sentences(tags))
    text = text_of(tags)
    return (
        any(_leaves_open(sentence, changing) for sentence in sentences(tags))
        or (len(found) > 1 and bool(RULED_OUT.match(text)))
        or _waits_for_a_goal(text, changing)
        or _drops_an_act(tags, changing)
        or bool(WRONG_TO.search(text))
        or (bool(MISTAKE.search(text)) and not changing <= TAKES_BACK)
    )


def _leaves_open(sentence: Sequence[Tag], changing: set[str]) -> bool:
    text = text_of(sentence)
    if any(each.match(text) for each in (HEDGE, DELIBERATION, FEELS)) or POSTPONED.search(text):
        return True
    if any(each.match(text.rstrip(" .!")) for each in (ON_ALREADY, ONLY_EXPLAINS)):
        return True
    return changing <= ALLOWANCES and bool(USES.match(text))


def _states_a_comparison(sentence: Sequence[Tag]) -> bool:
    asked = is_question(list(sentence)) or sentence[-1].text == "?"
    return bool(COMPARED.match(text_of(sentence))) and not asked


def _waits_for_a_goal(text: str, changing: set[str]) -> bool:
    """True for "save it when you reach 2x": read as a goal and something that is done at once."""
    ends = bool(changing & ENDS_OF_A_RUN) and bool(changing & AT_ONCE)
    return ends and bool(CONDITION.search(text))


def _drops_an_act(tags: Sequence[Tag], changing: set[str]) -> bool:
    """True for "export it after 10 minutes" where only the time was read."""
    return changing <= ENDS_OF_A_RUN and any(
        tag.has("EXPORT", "UNDO", "REJECT", "FORK", "RESTART")
        and not tag.has("FILLER", "STOP", "UNTIL", "GOAL", "FORBID", "DROPIN")
        for tag in tags
    )


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
    """The likeliest requests, best first, each with a sentence that asks for it; never an answer or
    the end of the session."""
    names: dict[str, IntentName] = {name: name for name in EXAMPLES if name not in SPOKEN}
    found: dict[IntentName, Suggestion] = {}
    for at in (-classifier.probabilities(tags)).argsort(kind="stable"):
        label = classifier.labels[int(at)]
        name = names.get(label.partition("=")[0])
        if name is not None and name not in found:
            found[name] = Suggestion(name=name, example=_example(name, label))
            if len(found) == most:
                break
    return tuple(found.values())


def _example(name: IntentName, label: str) -> str:
    return {
        "precision=bf16": "allow bf16",
        "precision=strict": "back to strict precision",
        "policy=mixed": "allow library calls",
    }.get(label, EXAMPLES[name])
