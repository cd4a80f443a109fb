"""Tokens of a sentence with spelling, numerals and the concepts that their words name.

The lexicon, concepts.txt, has one row a concept; entries are separated by commas and may be
phrases. A word may name several concepts: the rows of the grammar decide which one is meant.
Regular expressions are compiled on first use, so that the prompt starts fast.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, lru_cache
from pathlib import Path
from typing import NamedTuple


def words_of(text: str) -> frozenset[str]:
    """The words of a list that is written with spaces."""
    return frozenset(text.split())


HARD_BREAKS = frozenset(".;!?\n")
"""Marks that end a sentence."""
MOST_CHARACTERS = 600
"""A longer text is no request to a session; it is not read further than here."""
MOST_TOKENS = 80
TOKEN = re.compile(
    r"""
    (?P<quoted>  "[^"]{1,500}" | (?<!\w)'[^']{1,500}'(?!\w) | `[^`]{1,500}` )
  | (?P<path>    (?<!\S)(?:~|\.{1,2})?/[^\s"'`,;?!]{1,500}
               | (?<!\S)[\w./-]{1,200}\.(?:py|json|txt|md|html|zip|tar|gz|ipynb|yaml)\b )
  | (?P<shape>   [\[(]\s?\d{1,9}(?:\s?[,x×*]\s?\d{1,9}){1,7}\s?[\])]
               | \d{1,9}(?:[x×*]\d{1,9}){1,7}\b )
  | (?P<ordinal> \d{1,6}(?:st|nd|rd|th)\b )
  | (?P<number>  \d{1,3}(?:,\d{3}){1,4}\b | \d{1,15}(?:\.\d{1,6})?(?:'s\b)? )
  | (?P<word>    [^\W\d]\w*(?:['.-]\w+)* )
  | (?P<mark>    \n | [.,;:!?#$%=+×/@()-] )
    """,
    re.VERBOSE,
)
DASH = re.compile(r"(?<=[^\d\s])\s+(?:--?|–)\s+|(?<=\d)\s+(?:--?|–)\s+(?=\D)|\s*—\s*")
"""A dash between clauses; between two numbers it is a range."""
CONTRACTIONS = {
    "can't": "can not", "cannot": "can not", "cant": "can not", "won't": "will not",
    "wont": "will not", "shan't": "shall not", "dont": "do not", "doesnt": "does not",
    "didnt": "did not", "isnt": "is not", "wasnt": "was not", "shouldnt": "should not",
    "let's": "let us", "lets": "let us", "gimme": "give me", "lemme": "let me",
    "wanna": "want to", "gonna": "going to", "gotta": "got to", "whats": "what is",
    "wheres": "where is", "hows": "how is", "thats": "that is", "im": "i am", "id": "i would",
    "ive": "i have", "u": "you", "ur": "your", "youre": "you are", "theres": "there is",
    "havent": "have not", "arent": "are not", "aint": "is not", "dunno": "do not know",
    "cuz": "because", "coz": "because", "y'all": "you", "thx": "thanks", "ty": "thanks",
    "pls": "please", "plz": "please",
}  # fmt: skip
ENDINGS = {"'re": "are", "'ve": "have", "'ll": "will", "'d": "would", "'m": "am"}
IS_AFTER = words_of("what that it he she where who how there here when why this everything one")
"""Words whose 's is "is"; after others it marks an owner."""


@dataclass(frozen=True, slots=True)
class Token:
    """One word or mark in lower case; `start` and `end` are its place in the text that was read."""

    kind: str
    text: str
    start: int
    end: int


def clean(text: str) -> str:
    """The text in one normal form, control and format characters as spaces, line breaks kept."""
    normal = unicodedata.normalize("NFKC", text).replace("’", "'").replace("‘", "'")
    normal = DASH.sub(", ", normal)
    normal = normal.replace("“", '"').replace("”", '"').replace("µ", "u")
    return "".join(
        letter if letter == "\n" or unicodedata.category(letter)[0] != "C" else " "
        for letter in normal.replace("μ", "u")
    ).strip()


def tokenise(text: str) -> list[Token]:
    """The tokens of a cleaned text; what fits no kind (an emoji) is left out."""
    found: list[Token] = []
    for match in TOKEN.finditer(text):
        kind = match.lastgroup or "mark"
        start, end = match.span()
        text_here = match[0].lower()
        words = _expanded(text_here) if kind == "word" else [text_here]
        found.extend(Token(kind, word, start, end) for word in words)
    return found


def _expanded(word: str) -> list[str]:
    """`word` without a contraction: "don't" is "do", "not"."""
    if word in CONTRACTIONS:
        return CONTRACTIONS[word].split()
    if "'" not in word:
        return [word]
    if word.endswith("n't") and len(word) > 3:
        return [word[:-3], "not"]
    for ending, full in ENDINGS.items():
        if word.endswith(ending):
            return [word[: -len(ending)], full]
    if word.endswith("'s"):
        return [word[:-2], "is"] if word[:-2] in IS_AFTER else [word[:-2]]
    return [word]


ORDINALS = {
    "first": 1, "second": 2, "third": 3, "fourth": 4, "fifth": 5, "sixth": 6, "seventh": 7,
    "eighth": 8, "ninth": 9, "tenth": 10, "eleventh": 11, "twelfth": 12,
}  # fmt: skip
UNITS = {
    "zero": 0, "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7,
    "eight": 8, "nine": 9, "ten": 10, "eleven": 11, "twelve": 12, "thirteen": 13, "fourteen": 14,
    "fifteen": 15, "sixteen": 16, "seventeen": 17, "eighteen": 18, "nineteen": 19,
    "couple": 2, "dozen": 12,
}  # fmt: skip
TENS = {
    "twenty": 20, "thirty": 30, "forty": 40, "fifty": 50, "sixty": 60, "seventy": 70,
    "eighty": 80, "ninety": 90,
}  # fmt: skip
SCALES = {"hundred": 100, "thousand": 1000}


class Numeral(NamedTuple):
    """A number and how many of the words spell it."""

    value: int
    used: int


def spelled_number(words: list[str]) -> Numeral | None:
    """The longest number that `words` begin with; None where they begin with none."""
    total = current = used = 0
    scaled = False
    for at, word in enumerate(words):
        if word in SCALES and (used or word == "hundred"):
            current = max(current, 1) * SCALES[word]
            scaled = True
            if word == "thousand":
                total, current = total + current, 0
        elif word in TENS and current % 100 == 0 and (scaled or not used):
            current += TENS[word]
        elif word in UNITS and (not used or _fits_behind(words[at - 1], UNITS[word], scaled)):
            current += UNITS[word]
        elif word == "and" and scaled and at == used and _counts(words[at + 1 : at + 2]):
            continue
        else:
            break
        used = at + 1
    return Numeral(total + current, used) if used else None


def _fits_behind(word: str, unit: int, scaled: bool) -> bool:
    """ "two" behind "thirty" or "hundred (and)", but not behind "one"."""
    return (word in TENS and 0 < unit < 10) or (scaled and word in (*SCALES, "and"))


def _counts(words: list[str]) -> bool:
    return bool(words) and (words[0] in UNITS or words[0] in TENS)


class Pattern:
    """A regular expression that is compiled on first use: the prompt does not wait for it."""

    def __init__(self, text: str, flags: int = 0) -> None:
        self._text, self._flags = text, flags

    @cached_property
    def _compiled(self) -> re.Pattern[str]:
        return re.compile(self._text, self._flags)

    def match(self, text: str, at: int = 0) -> re.Match[str] | None:
        """As `re.Pattern.match`."""
        return self._compiled.match(text, at)

    def search(self, text: str, at: int = 0) -> re.Match[str] | None:
        """As `re.Pattern.search`."""
        return self._compiled.search(text, at)

    def fullmatch(self, text: str) -> re.Match[str] | None:
        """As `re.Pattern.fullmatch`."""
        return self._compiled.fullmatch(text)


COMPARATIVES = words_of("better faster quicker")
"""Behind "the" and before a noun, "of" or the end they name one of the two that were compared."""
OF_TWO = tuple(
    tuple(phrase.split())
    for phrase in ("of the two", "of those two", "of these two", "of them", "of both")
)
LEXICON_FILE = Path(__file__).with_name("concepts.txt")
"""A concept, a colon, and its words and phrases; lines with a space before them go on."""


PLACES = {
    "last": "last", "latest": "last", "newest": "last", "recent": "last",
    "fastest": "fastest", "best": "fastest", "quickest": "fastest", "winning": "fastest",
    "winner": "fastest", "champion": "fastest", "leader": "fastest",
    "previous": "previous", "prior": "previous", "preceding": "previous", "earlier": "previous",
    "parent": "parent", "predecessor": "parent",
    "original": "original", "baseline": "original", "eager": "original", "reference": "original",
    "current": "current", "present": "current",
    "other": "other",
}  # fmt: skip
"""Adjectives and nouns that name a candidate by its place."""
PLACE_NOUNS = words_of(
    "candidate version variant one kernel attempt solution result run code module candidates "
    "implementation source draft pytorch torch model revision"
)
ALWAYS_A_CANDIDATE = words_of(
    "parent predecessor original baseline winner champion leader fastest best"
)
"""Places that need no noun behind them."""
ORDINARY = words_of("""
    point print share shared stage patch match taken cast casts state block tiled tiles light
    quiet quite later great where there these those their thing think would could should about
    after might while whole white write wrote right night price prize prime trace track trick
    world words weeks hours house horse mouse month mouth other under order older owner lower
    power tower lover cover never fever level lever clean clear plain plane place space spare
    scale store story stone stuff start smart stand brand grand large small still style table
    loops looped unroll unrolled expect except respect inspect aspect tokens broken spoken pencil
    tensor sensor center matter better letter butter water waste taste paste party pasta
    shave shade shake excited editor credit branch brunch ranch french benches bench""")
"""Ordinary words near the lexicon's, which are never read as mistyped ones."""


@cache
def entries() -> dict[str, frozenset[str]]:
    """Word or phrase -> the concepts it may stand for."""
    found: dict[str, set[str]] = {}
    for row in re.split(r"\n(?! )", LEXICON_FILE.read_text(encoding="utf-8").strip()):
        concept, _, words = row.partition(":")
        for word in words.split(","):
            found.setdefault(" ".join(word.split()), set()).add(concept)
    return {word: frozenset(concepts) for word, concepts in found.items()}


@cache
def longest_phrase() -> int:
    """Words in the longest phrase."""
    return max(len(phrase.split()) for phrase in entries())


SHORTEST = 4
"""Letters; of words under five only those with two letters swapped are read ("shwo")."""


def correct_spelling(word: str) -> str | None:
    """The one known word at distance 1 (a letter more, less, changed, or two swapped) of `word`.

    None where there is none or more than one, for shorter words, and where the first
    letter differs: that is seldom mistyped and tells many words apart (accept, except).
    """
    if len(word) < SHORTEST or word in ORDINARY or not word.isalpha() or len(word) > 30:
        return None
    found = {known for key in _keys(word) for known in _index().get(key, ()) if _near(word, known)}
    if len(word) == SHORTEST:
        found = {known for known in found if sorted(known) == sorted(word) or _is_light(known)}
    return found.pop() if len(found) == 1 else None


def _is_light(known: str) -> bool:
    """Five letters that say nothing: read for four of them without harm ("agin")."""
    return len(known) > SHORTEST and "FILLER" in entries()[known]


def _keys(word: str) -> set[str]:
    """The word, and each word that is left with one letter taken out (never the first)."""
    return {word, *(word[:at] + word[at + 1 :] for at in range(1, len(word)))}


@cache
def _index() -> dict[str, tuple[str, ...]]:
    found: dict[str, list[str]] = {}
    for known in entries():
        if len(known) >= SHORTEST and known.isalpha():
            for key in _keys(known):
                found.setdefault(key, []).append(known)
    return {key: tuple(words) for key, words in found.items()}


def _near(one: str, other: str) -> bool:
    """One place apart: equal up to there and equal behind it."""
    at = next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), None)
    if at is None:
        return abs(len(one) - len(other)) <= 1
    return (
        one[at + 1 :] == other[at + 1 :]
        or one[at + 1 :] == other[at:]
        or one[at:] == other[at + 1 :]
        or (one[at : at + 2] == other[at : at + 2][::-1] and one[at + 2 :] == other[at + 2 :])
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


def tag_tokens(tokens: list[Token], targets: tuple[str, ...]) -> list[Tag]:
    """Tags of the tokens in order: names of GPUs, then phrases, then single words."""
    names = _target_names(targets)
    found: list[Tag] = []
    at = 0
    while at < len(tokens):
        tag, used = (
            _target(tokens, at, names)
            or _literal(tokens, at)
            or _phrase(tokens, at)
            or _numeral(tokens, at)
            or _place(tokens, at)
            or (_word(tokens[at]), 1)
        )
        found.append(tag)
        at += used
    return found


@lru_cache(8)
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
    if tokens[at].text == "-":
        return None
    for used in range(min(MOST_TARGET_WORDS + 2, len(tokens) - at), 0, -1):
        joined = "".join(item.text for item in tokens[at : at + used]).replace("-", "")
        names = targets.get(joined) or targets.get(joined.removesuffix("s"))
        if names and tokens[at + used - 1].text != "-":
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


@cache
def _phrase_lengths() -> dict[tuple[str, ...], tuple[int, ...]]:
    """How many words the phrases have that begin with two given ones, the longest first."""
    found: dict[tuple[str, ...], set[int]] = {}
    for phrase in entries():
        words = phrase.split(" ")
        if 1 < len(words) <= longest_phrase():
            found.setdefault(tuple(words[:2]), set()).add(len(words))
    return {two: tuple(sorted(lengths, reverse=True)) for two, lengths in found.items()}


def _phrase(tokens: list[Token], at: int) -> tuple[Tag, int] | None:
    """The longest phrase of two words or more that begins here."""
    known, two = entries(), tuple(item.text for item in tokens[at : at + 2])
    for used in _phrase_lengths().get(two, ()):
        here = tokens[at : at + used]
        if len(here) < used:
            continue
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


def text_of(tags: Sequence[Tag]) -> str:
    """The words in lower case, one space between them."""
    return " ".join(tag.text for tag in tags)


def sentences(tags: Sequence[Tag]) -> list[list[Tag]]:
    """Cut behind the marks that end one; what has marks only is left out."""
    found: list[list[Tag]] = [[]]
    for tag in tags:
        found[-1].append(tag)
        if tag.text in HARD_BREAKS:
            found.append([])
    return [each for each in found if any(not tag.has("MARK") for tag in each)]
