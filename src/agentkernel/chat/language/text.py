"""Which words, numbers and marks does a sentence consist of, and where does each stand in it?"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass


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
    "can't": "can not",
    "cannot": "can not",
    "cant": "can not",
    "won't": "will not",
    "wont": "will not",
    "shan't": "shall not",
    "dont": "do not",
    "doesnt": "does not",
    "didnt": "did not",
    "isnt": "is not",
    "wasnt": "was not",
    "shouldnt": "should not",
    "let's": "let us",
    "lets": "let us",
    "gimme": "give me",
    "lemme": "let me",
    "wanna": "want to",
    "gonna": "going to",
    "gotta": "got to",
    "whats": "what is",
    "wheres": "where is",
    "hows": "how is",
    "thats": "that is",
    "im": "i am",
    "id": "i would",
    "ive": "i have",
    "u": "you",
    "ur": "your",
    "youre": "you are",
    "theres": "there is",
    "havent": "have not",
    "arent": "are not",
    "aint": "is not",
    "dunno": "do not know",
    "cuz": "because",
    "coz": "because",
    "y'all": "you",
    "thx": "thanks",
    "ty": "thanks",
    "pls": "please",
    "plz": "please",
}
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
    if word.endswith("n't") and len(word) > 3:
        return [word[:-3], "not"]
    for ending, full in ENDINGS.items():
        if word.endswith(ending):
            return [word[: -len(ending)], full]
    if word.endswith("'s"):
        return [word[:-2], "is"] if word[:-2] in IS_AFTER else [word[:-2]]
    return [word]
