"""What does a sentence at the prompt ask for, without a language model?

Clauses that only explain are set aside (explained.py). A grammar reads the rest first: precise, and
easy to say why. What it refuses is read a second time by examples of how people ask
(by_example.py), which answers only where it is sure; where those speak clearly against the
grammar's reading, or the words ask for nothing yet (unsettled.py), that is asked back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from agentkernel.chat.intent import (
    Ambiguous,
    Intent,
    IntentContext,
    NotUnderstood,
    Plain,
    Suggestion,
    Understanding,
    Understood,
)
from agentkernel.chat.language.building import InvalidValues
from agentkernel.chat.language.by_example import doubts, read
from agentkernel.chat.language.docs_question import docs_question
from agentkernel.chat.language.explained import split_explanations
from agentkernel.chat.language.grammar import EXAMPLES, read_only_requests
from agentkernel.chat.language.in_force import forbids_nothing, resolve_go_ahead
from agentkernel.chat.language.nearest import in_common, nearest_requests
from agentkernel.chat.language.parts import SETTINGS, NoReading, SentenceParts, Unsure, only_states
from agentkernel.chat.language.polarity import with_polarity
from agentkernel.chat.language.settled import resolve_requests
from agentkernel.chat.language.tags import Tag, tag_tokens
from agentkernel.chat.language.text import (
    HARD_BREAKS,
    MOST_CHARACTERS,
    MOST_TOKENS,
    clean,
    tokenise,
    words_of,
)
from agentkernel.chat.language.unsettled import is_undecided
from agentkernel.chat.language.values import with_values

if TYPE_CHECKING:
    from agentkernel.chat.language.classifier import Classifier

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
    shown = clean(text[: MOST_CHARACTERS + 1])
    if len(text) > MOST_CHARACTERS:
        return _not_understood(shown[:80], f"Longer than {MOST_CHARACTERS} characters.")
    tokens = tokenise(shown)
    if not tokens or len(tokens) > MOST_TOKENS:
        reason = "No words in it." if not tokens else f"More than {MOST_TOKENS} words."
        return _not_understood(shown, reason)
    tags = with_values(tag_tokens(tokens, context))
    if len(tokens) == 1 and tokens[0].kind == "quoted":
        return _not_understood(shown, "Words in quotes ask for nothing by themselves.", tags)
    found = _meant(tags, context, shown)
    return _in_force(found, tags, context, shown) if isinstance(found, Understood) else found


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
    if not parts.cut or any(docs_question(sentence, shown) for sentence in _sentences(tags)):
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
    return [tag for sentence in _sentences(tags) for tag in with_polarity(sentence)]


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


def _refuse_to_delete(tags: list[Tag]) -> None:
    """Raises Impossible for "delete c4": what was tried stays on record."""
    texts = [tag.text for tag in tags]
    if DELETES.isdisjoint(texts) or not any(tag.has("CAND") for tag in tags):
        return
    raise InvalidValues("No candidate is ever deleted: 'discard c3' sets one aside.")


def _text(tags: list[Tag], context: IntentContext, shown: str) -> list[Intent]:
    """The requests of each sentence; where one has none by itself, of all of them read as one."""
    sentences = [with_polarity(sentence) for sentence in _sentences(tags)]
    whole = [tag for tags in sentences for tag in tags]
    if not whole:
        raise NoReading("Nothing in it to do.")
    if any(_has_no_object(sentence) for sentence in sentences[1:]):
        one = SentenceParts(tuple(whole), context, shown, True, whole[-1].text == "?").as_one()
        if one:
            return one
    try:
        found: list[Intent] = []
        for sentence in sentences:
            more = _sentence(sentence, context, shown, len(sentences) == 1)
            asked = sentence[-1].text == "?"
            if any(only_states(sentence, asked, intent, found) for intent in more):
                raise Unsure((tuple(found), (*found, *more)))
            found += more
        return found
    except NoReading:
        if len(sentences) == 1 or any(docs_question(each, shown) for each in sentences):
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


def _sentences(tags: list[Tag]) -> list[list[Tag]]:
    found: list[list[Tag]] = [[]]
    for tag in tags:
        found[-1].append(tag)
        if tag.text in HARD_BREAKS:
            found.append([])
    return [tags for tags in found if any(not tag.has("MARK") for tag in tags)]


def _not_understood(shown: str, reason: str, tags: Sequence[Tag] = ()) -> NotUnderstood:
    if not in_common(tags):
        return NotUnderstood(text=shown, reason=reason, nearest=ANYWAY)
    return NotUnderstood(
        text=shown, reason=reason, nearest=nearest_requests(tags, MOST_NEAREST, _classifier())
    )
