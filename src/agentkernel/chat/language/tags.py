"""Which concept, or which value, does each word of a sentence stand for?"""

from __future__ import annotations

from dataclasses import dataclass, replace

from agentkernel.chat.intent import IntentContext
from agentkernel.chat.language.numerals import ORDINALS, spelled_number
from agentkernel.chat.language.spelling import correct_spelling
from agentkernel.chat.language.text import Token, words_of
from agentkernel.chat.language.words import (
    ALWAYS_A_CANDIDATE,
    COMPARATIVES,
    OF_TWO,
    PLACE_NOUNS,
    PLACES,
    entries,
    longest_phrase,
)

Value = int | float | str | tuple[int, ...] | tuple[str, ...] | None
MOST_TARGET_WORDS = 3
AUXILIARIES = words_of("do does did is are was were have has had can could will would should")
"""Words that a "not" behind them negates, whatever phrase they end ("please do")."""
ARTICLES = frozenset({"a", "an"})
THOUSANDS = {"k": 1024.0}
"""What a letter right behind a number stands for in the field: 4k is 4096."""


@dataclass(frozen=True, slots=True)
class Tag:
    """A word, a phrase or a value. No concepts: an unknown word.

    `negated`: it stands in the reach of a "not". `start` and `end` are its place in the text.
    """

    concepts: frozenset[str]
    text: str
    start: int
    end: int
    value: Value = None
    negated: bool = False

    def has(self, *concepts: str) -> bool:
        """True where it may stand for one of `concepts`."""
        return not self.concepts.isdisjoint(concepts)


def tag_tokens(tokens: list[Token], context: IntentContext) -> list[Tag]:
    """Tags of the tokens in order: names of GPUs, then phrases, then single words."""
    targets = _target_names(context.targets)
    found: list[Tag] = []
    at = 0
    while at < len(tokens):
        tag, used = (
            _target(tokens, at, targets)
            or _literal(tokens, at)
            or _phrase(tokens, at)
            or _numeral(tokens, at)
            or _place(tokens, at)
            or (_word(tokens[at]), 1)
        )
        found.append(tag)
        at += used
    return found


def _target_names(targets: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    """Name without marks -> the targets that it may mean: itself, else all that begin with it."""
    plain = {name.lower().replace("-", "").replace(" ", ""): name for name in targets}
    found: dict[str, tuple[str, ...]] = {key: (name,) for key, name in plain.items()}
    begins: dict[str, list[str]] = {}
    for name in targets:
        first = name.lower().split("-")[0]
        if first not in plain:
            begins.setdefault(first, []).append(name)
    found.update({first: tuple(names) for first, names in begins.items()})
    for key, names in list(found.items()):
        if key.startswith("rtx"):
            found.setdefault(key[3:], names)
    return found


def _target(
    tokens: list[Token], at: int, targets: dict[str, tuple[str, ...]]
) -> tuple[Tag, int] | None:
    for used in range(min(MOST_TARGET_WORDS + 2, len(tokens) - at), 0, -1):
        joined = "".join(item.text for item in tokens[at : at + used] if item.text != "-")
        names = targets.get(joined.replace("-", "")) or targets.get(joined.removesuffix("s"))
        if names and tokens[at].text != "-" and tokens[at + used - 1].text != "-":
            return _join(tokens[at : at + used], {"TARGET"}, names), used
    return None


def _literal(tokens: list[Token], at: int) -> tuple[Tag, int] | None:
    """Numbers, shapes, paths, quoted words, c3, #3, $5 and M=64 are values in themselves."""
    token, after = tokens[at], tokens[at + 1] if at + 1 < len(tokens) else None
    if token.kind == "number":
        if after is not None and after.text in THOUSANDS and after.start == token.end:
            number = float(token.text.replace(",", "")) * THOUSANDS[after.text]
            return _join([token, after], {"KILO"}, number), 2
        number = float(token.text.removesuffix("'s").replace(",", ""))
        return _join([token], {"NUM"}, number), 1
    if token.text == "l" and [item.text for item in tokens[at + 1 : at + 2]] == ["."]:
        line = tokens[at + 2] if at + 2 < len(tokens) else None
        if line is not None and line.kind == "number" and line.text.isdecimal():
            return _join(tokens[at : at + 3], {"LINE"}, int(line.text)), 3
    if token.kind == "ordinal":
        return _join([token], {"ORD"}, int(token.text[:-2])), 1
    if token.kind == "shape":
        return _join([token], {"SHAPELIT"}, _dims(token.text)), 1
    if token.kind in ("path", "quoted"):
        path = token.text if token.kind == "path" else token.text[1:-1]
        return _join([token], {"PATH"}, path), 1
    if after is not None and after.kind == "number" and token.text in ("#", "$"):
        number = float(after.text.removesuffix("'s").replace(",", ""))
        return _join([token, after], {"CAND" if token.text == "#" else "MONEY"}, number), 2
    letter, digits = token.text[:1], token.text[1:].removesuffix("'s")
    if letter in "cvl" and digits.isascii() and digits.isdecimal() and len(digits) < 10:
        if letter == "l" and at and tokens[at - 1].text in ARTICLES:
            return _join([token], {"TARGET"}, ()), 1
        return _join([token], {"LINE" if letter == "l" else "CAND"}, int(digits)), 1
    return None


def _numeral(tokens: list[Token], at: int) -> tuple[Tag, int] | None:
    """A number in words, hyphens taken apart."""
    if tokens[at].kind != "word":
        return None
    parts: list[str] = []
    ends: dict[int, int] = {}
    for used, token in enumerate(tokens[at : at + 6], start=1):
        if token.kind != "word":
            break
        parts += token.text.split("-")
        ends[len(parts)] = used
    found = spelled_number(parts)
    if found is None or found.used not in ends:
        return None
    here = tokens[at : at + ends[found.used]]
    return _join(here, {"NUM", "CARDINAL"}, float(found.value)), len(here)


def _dims(text: str) -> tuple[int, ...]:
    for mark in "x×*":
        text = text.replace(mark, ",")
    return tuple(int(part) for part in text.strip("[]() ").split(","))


def _phrase(tokens: list[Token], at: int) -> tuple[Tag, int] | None:
    """The longest phrase of two words or more that begins here."""
    known = entries()
    for used in range(min(longest_phrase(), len(tokens) - at), 1, -1):
        here = tokens[at : at + used]
        negated = tokens[at + used].text == "not" if at + used < len(tokens) else False
        if negated and here[-1].text in AUXILIARIES:
            continue
        if any(item.kind not in ("word", "mark", "number") for item in here):
            continue
        if concepts := known.get(" ".join(item.text for item in here)):
            value = _value_of_word(" ".join(item.text for item in here), concepts)
            return _join(here, concepts, value), used
    return None


def _place(tokens: list[Token], at: int) -> tuple[Tag, int] | None:
    """A candidate named by its place: "the last one", "the fastest"."""
    token = tokens[at]
    if token.text in COMPARATIVES:
        return _better(tokens, at)
    if (place := PLACES.get(token.text)) is None:
        return None
    also = entries().get(token.text, frozenset())
    after = tokens[at + 1].text if at + 1 < len(tokens) else ""
    if after in PLACE_NOUNS:
        return _join(tokens[at : at + 2], {"CAND"}, place), 2
    if token.text in ALWAYS_A_CANDIDATE:
        return _join([token], {"CAND", *also}, place), 1
    return _join([token], {"PLACE", "FILLER", *also}, place), 1


def _better(tokens: list[Token], at: int) -> tuple[Tag, int] | None:
    """One of two: "the better", "the faster one", "the quicker of the two". "The faster the better"
    names none."""
    words = [item.text for item in tokens]
    if at == 0 or words[at - 1] != "the" or sum(word in COMPARATIVES for word in words) > 1:
        return None
    rest = words[at + 1 :]
    used = 1 + (bool(rest) and rest[0] in PLACE_NOUNS)
    for ending in OF_TWO:
        if tuple(words[at + used : at + used + len(ending)]) == ending:
            return _join(tokens[at : at + used + len(ending)], {"CAND"}, "better"), used + len(
                ending
            )
    ends = at + used == len(words) or tokens[at + used].kind == "mark"
    return (_join(tokens[at : at + used], {"CAND"}, "better"), used) if used > 1 or ends else None


def _word(token: Token) -> Tag:
    word = token.text
    if word in ORDINALS:
        return _join([token], {"ORD"}, ORDINALS[word])
    known = entries()
    for form in _forms(word):
        if form in known:
            return _join([token], known[form], _value_of_word(form, known[form]))
    meant = correct_spelling(word) if token.kind == "word" else None
    if meant:
        return _join([token], known[meant], _value_of_word(meant, known[meant]))
    mark = {"MARK"} if token.kind == "mark" else set()
    return _join([token], mark)


def _forms(word: str) -> tuple[str, ...]:
    """The word, then what it may be a form of: shapes, running, reducing."""
    forms = [word, word.replace("-", " "), word.replace("-", "")]
    if len(word) > 3 and word.endswith("s") and not word.endswith("ss"):
        forms += [word[:-1], word[:-2]] if word.endswith("es") else [word[:-1]]
    if len(word) > 5 and word.endswith("ing"):
        forms += [word[:-3], word[:-3] + "e", word[:-4]]
    if len(word) > 5 and word.endswith("ly"):
        forms.append(word[:-2])
    return tuple(forms)


def _value_of_word(word: str, concepts: frozenset[str]) -> Value:
    if "SIZENAME" in concepts and word.endswith(("lengths", "sizes", "dims")):
        return word.removesuffix("s")
    return word if "DTYPE" in concepts or "SIZENAME" in concepts else None


def _join(tokens: list[Token], concepts: set[str] | frozenset[str], value: Value = None) -> Tag:
    text = " ".join(item.text for item in tokens)
    return Tag(frozenset(concepts), text, tokens[0].start, tokens[-1].end, value)


def merged(tags: list[Tag], concept: str, value: Value) -> Tag:
    """One tag over all of `tags`."""
    text = " ".join(tag.text for tag in tags)
    negated = any(tag.negated for tag in tags)
    return Tag(frozenset({concept}), text, tags[0].start, tags[-1].end, value, negated)


def negated(tag: Tag) -> Tag:
    """The tag in the reach of a "not"."""
    return replace(tag, negated=True)
