"""Grammar of the requests, one row a pattern of concepts, and the match of a clause to a row.

In a pattern `A|B` is one of both, a trailing question mark makes an item optional, and `-A` must
be ruled out ("no tf32"). ALIASES are short names. Order does not matter; a clause fits when
every needed concept is there and no word of weight is left over.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property
from itertools import pairwise
from pathlib import Path
from typing import Literal

from agentkernel.chat.language.phrases import (
    INVENTORY,
    PRECISIONS,
    SLOTS,
    is_demanded,
    is_inventory,
    is_past,
    is_past_fact,
    is_reported,
    is_statement,
)
from agentkernel.chat.language.tagging import Tag, words_of
from agentkernel.chat.requests import IntentName

Kind = Literal["info", "act", "change", "ask"]
"""info: looks only, may be a question. ask: must be one. act: moves in the tree. change: settings
and what starts work; neither may be a question."""
ALIASES = {
    "REF": "CAND|ORD|NUM|PLACE",
    "KNOWN": "TF32|BF16|STRICT|TARGET|IDEA|SHAPE|IDEAWORD|LIBRARY",
    "ENDS": "STOP|QUIT|UNTIL|GOAL",
    "DOES": "RUN|TRY|USE",
    "ASKS": "WHAT|WHATDOES|WHY|HOW",
}
"""Short names of the table: a candidate, what may have been tried, what ends a run, what one does,
question words."""
LIGHT = words_of("FILLER THIS PREP MARK SEP BUT")
TOLERATED: dict[Kind, frozenset[str]] = {
    "info": LIGHT | words_of("POLITE MAY SHOW TELL WHAT WHERE HOW AUX PAST ITIS OUT WHATDOES OR"),
    "ask": LIGHT | words_of("MAY WHAT WHERE HOW WHATDOES AUX PAST ITIS TELL SHOW"),
    "act": LIGHT | {"POLITE", "MAY", "ITIS", "OUT"},
    "change": LIGHT | {"POLITE"},
}

TABLE_FILE = Path(__file__).with_name("grammar.txt")
"""name, `=` and its value where the words give none, `?` not sure (asked back), `!` only as the
whole text; kind; pattern."""

EXAMPLES: dict[IntentName, str] = {
    "run": "run again",
    "more_aggressive": "be more aggressive",
    "less_memory": "use less memory",
    "memory_limit": "at most 4 GB of memory",
    "less_energy": "use less energy",
    "lower_latency": "optimise for latency",
    "precision": "allow tf32",
    "target": "for the h200",
    "shapes": "use batch size 64",
    "dtype": "use fp16 inputs",
    "why_slow": "why is it slow?",
    "profile": "where does the time go?",
    "roofline": "how close are we to the roofline?",
    "history": "what did you try?",
    "tree": "show the tree",
    "ideas": "what other ideas do you have?",
    "plan": "what is the plan?",
    "explain_kernel": "explain this kernel",
    "explain_line": "explain line 12",
    "why_rejected": "why was c3 rejected?",
    "show_candidate": "show c3",
    "diff": "show the diff",
    "compare": "compare c2 and c3",
    "return_to": "go back to c3",
    "undo": "undo",
    "redo": "redo",
    "restart": "start over",
    "try_idea": "try your second idea",
    "fork": "split from here",
    "switch_branch": "switch to branch 2",
    "keep": "keep it",
    "reject": "discard c3",
    "stop_at": "stop at 2x",
    "stop": "stop",
    "budget": "at most 10 minutes",
    "policy": "only your own kernels",
    "cost": "what did it cost?",
    "save": "save it to fast.py",
    "export": "export the session",
    "ask_docs": "search the docs for split-K",
    "edit": "edit line 12",
    "repair": "fix it",
    "verify": "verify c3",
    "certificate": "show the certificate",
    "settings": "show the settings",
    "targets": "which targets are there?",
    "status": "how is it going?",
    "approve": "yes",
    "decline": "no",
    "help": "help",
    "quit": "quit",
}
"""A sentence for each request: what is offered where none was understood, and the help."""


@dataclass(frozen=True, slots=True)
class Item:
    """One place of a pattern: any of `concepts`."""

    concepts: frozenset[str]
    needed: bool
    ruled_out: bool


@dataclass(frozen=True)
class Row:
    """One pattern; `needed` and `known` are for a quick look whether it can fit at all."""

    name: str
    value: str | None
    sure: bool
    alone: bool
    kind: Kind
    items: tuple[Item, ...]
    known: frozenset[str]

    @cached_property
    def needed(self) -> tuple[Item, ...]:
        """The places that must be filled."""
        return tuple(item for item in self.items if item.needed)


@cache
def rows() -> tuple[Row, ...]:
    """The table, read once."""
    return tuple(_row(line) for line in TABLE_FILE.read_text(encoding="utf-8").splitlines())


@cache
def read_only_requests() -> frozenset[str]:
    """Names of the requests that change nothing."""
    return frozenset(row.name for row in rows() if row.kind in ("info", "ask")) | {
        "ask_docs",
        "compare_all",
        "fact",
        "gpu",
        "help",
        "cannot",
        "show_kernel",
        "thanks",
    }


def _row(line: str) -> Row:
    head, kind, *pattern = line.split()
    named, equals, value = head.strip("?!").partition("=")
    items = tuple(_item(text) for text in pattern)
    known = frozenset[str]().union(*(item.concepts for item in items))
    for each in ("info", "ask", "act", "change"):
        if kind == each:
            return Row(
                name=named,
                value=value if equals else None,
                sure=not head.endswith("?"),
                alone=head.endswith("!"),
                kind=each,
                items=items,
                known=known,
            )
    raise ValueError(f"Unknown kind {kind!r} in {line!r}: expected info, ask, act or change.")


def _item(text: str) -> Item:
    names = text.removesuffix("?").removeprefix("-").split("|")
    concepts = frozenset(part for name in names for part in ALIASES.get(name, name).split("|"))
    return Item(concepts, not text.endswith("?"), text.startswith("-"))


VALUES = words_of(
    "CAND ORD NUM IDEA LINE TIMES FACTOR PERCENT DURATION RUNTIME BYTES MONEY ROUNDS STEPS TARGET "
    "TF32 BF16 STRICT FP32 DTYPE SHAPELIT SIZE PATH BRANCHNO KILO QUANTITY BRANCHNAME"
)
"""Concepts that carry a value: none of them may be left over."""
WEAK = words_of(
    "RUN SHOW USE TRY STOP KEEP RETURN YES NO HELP UNDO EXPLAIN REJECT SAVE FORK EXPORT EDIT DIFF "
    "REPAIR COMPARE RESTART COMMENT QUIT SPEED CAND KERNEL VERIFY SLOW STATUS TREE HISTORY LINE"
)
"""Concepts that are not enough by themselves where the sentence has an unknown word too."""
WEAK_WORDS = frozenset({"push", "push it", "deeper", "harder", "bold", "extreme"})
"""Words that are not enough either, although their concept is."""
TOLD = words_of("cost history profile status tree roofline plan")
"""Requests that nobody makes by a plain statement: "we pay for electricity" asks for no costs."""
REPORTED = words_of("stop_at precision policy dtype shapes verify")
"""Requests that a report makes none of: "it is 2x faster", "it uses cublas"."""
MOST_UNKNOWN = {"info": 2, "ask": 0, "act": 1, "change": 0}

SAFE_CHANGES = words_of("more_aggressive less_memory less_energy memory_limit stop_at budget")
"""Changes whose words or units are so much their own that one unknown word does no harm."""


@dataclass(frozen=True, slots=True)
class Match:
    """A row that fits. `filled`: the tags in its places; `score`: to compare matches with."""

    row: Row
    filled: tuple[tuple[Item, Tag], ...]
    score: float

    def values(self, *concepts: str) -> list[Tag]:
        """The filled tags of `concepts`, in the sentence's order."""
        found = [
            tag for item, tag in self.filled if tag.has(*concepts) and item.concepts & set(concepts)
        ]
        return sorted(found, key=lambda tag: tag.start)


def matches(
    tags: tuple[Tag, ...], whole: bool, question: bool, asked: bool, spare: int = 0
) -> list[Match]:
    """Every row that `tags` fit, best first.

    `whole`: they are the whole text. `question`: put as one. `asked`: a "?" stands behind.
    `spare`: so many more unknown words may stand in a part whose end points back at its value.
    """
    if any(tag.has("FOREIGN") for tag in tags):
        return []
    present = frozenset[str]().union(*(tag.concepts for tag in tags)) if tags else frozenset()
    polite = not present.isdisjoint({"POLITE"})
    told, reported, past = is_statement(tags), is_reported(tags), is_past(tags)
    held, there = is_past_fact(tags), is_inventory(tags)
    found = [
        match
        for row in rows()
        if all(not item.concepts.isdisjoint(present) for item in row.needed)
        and _mood_fits(row, question, asked, polite or "MAY" in present)
        and (whole or not row.alone)
        and not (row.name in TOLD and told and not asked)
        and not (row.name in REPORTED and reported and not (question or asked))
        and not (row.name == "verify" and not (question or asked) and is_demanded(tags))
        and not (row.kind in ("act", "change") and past)
        and not (row.name in INVENTORY and held)
        and not (row.name == "run" and there)
        and not (row.name == "fork" and _names_a_branch(tags))
        and (match := _match(row, tags, spare)) is not None
    ]
    return sorted(found, key=lambda match: -match.score)


def _names_a_branch(tags: tuple[Tag, ...]) -> bool:
    """True for "the other branch": one that is there already."""
    return any(
        tag.text == "branch" and before.text.split(" ")[-1] in ("the", "other", "that")
        for before, tag in pairwise(tags)
    )


def _mood_fits(row: Row, question: bool, asked: bool, polite: bool) -> bool:
    if row.kind == "ask":
        return question or asked
    if row.kind == "info":
        return True
    return not question and (polite or not asked)


def _match(row: Row, tags: tuple[Tag, ...], spare: int) -> Match | None:
    filled = _fill(row, tags)
    if filled is None:
        return None
    rest = [tag for tag in tags if all(tag is not used for _, used in filled)]
    if any(not tag.concepts and _has_digit(tag.text) for tag in rest):
        return None
    unknown = sum(1 for tag in rest if not tag.concepts)
    if unknown > _most_unknown(row, filled) + (spare if _names_a_value(filled) else 0):
        return None
    if not all(_tolerated(tag, row, filled) for tag in rest if tag.concepts):
        return None
    needed = sum(1 for item, _ in filled if item.needed)
    words = sum(1 for item, tag in filled if not tag.has("FILLER"))
    return Match(
        row, tuple(filled), 10 * len(filled) + needed + 2 * words - 4 * unknown - 5 * row.alone
    )


def _has_digit(word: str) -> bool:
    """True for "int4", "e4m3": a value of a kind that no request takes."""
    return any(letter.isdigit() for letter in word)


def _fill(row: Row, tags: tuple[Tag, ...]) -> list[tuple[Item, Tag]] | None:
    """The row's places with tags in them, None where a needed one stays empty.

    Each takes the tag that can stand for the fewest other things; the hardest place goes first.
    """
    free = list(tags)
    rejects = any(item.ruled_out for item in row.items)
    filled: list[tuple[Item, Tag]] = []
    needed = sorted(row.needed, key=lambda item: sum(tag.has(*item.concepts) for tag in free))
    for item in (*needed, *(item for item in row.items if not item.needed)):
        fitting = [
            tag
            for tag in free
            if (tag.negated == item.ruled_out or (tag.negated and rejects and not item.needed))
            and not tag.concepts.isdisjoint(item.concepts)
        ]
        if fitting:
            chosen = min(fitting, key=lambda tag: len(tag.concepts - row.known))
            filled.append((item, chosen))
            free.remove(chosen)
        elif item.needed:
            return None
    return filled


def _names_a_value(filled: list[tuple[Item, Tag]]) -> bool:
    return any(item.needed and tag.has(*VALUES) for item, tag in filled)


def _most_unknown(row: Row, filled: list[tuple[Item, Tag]]) -> int:
    """How many words that nobody knows may stand beside so much that is known."""
    needed = [tag for item, tag in filled if item.needed]
    if len(needed) == 1 and (needed[0].has(*WEAK, *VALUES) or needed[0].text in WEAK_WORDS):
        return 0
    most = 1 if row.name in SAFE_CHANGES else MOST_UNKNOWN[row.kind]
    return min(most, len(filled))


def _tolerated(tag: Tag, row: Row, filled: list[tuple[Item, Tag]]) -> bool:
    """May this word be left over? No value, no "not" that the row does not speak of, no question
    word in a command; repetitions of what the row knows are fine."""
    ruled_out = any(item.ruled_out for item, _ in filled)
    if tag.has("NEG"):
        return ruled_out or _rules_out_another(tag, filled)
    if tag.has("INSTEADOF"):
        return True
    if tag.has("FILLER"):
        return not tag.has("ORD", "NUM") or not tag.has(*VALUES)
    if tag.negated and not ruled_out and tag.has("USE", "ALLOW"):
        return True
    if tag.has(*VALUES) or (tag.negated and not ruled_out):
        return tag.negated and _beside_another(tag, filled)
    return tag.has(*TOLERATED[row.kind]) or not tag.concepts.isdisjoint(row.known)


def _rules_out_another(tag: Tag, filled: list[tuple[Item, Tag]]) -> bool:
    """A "not" in a row that wants something: only beside the same sort of thing, said before or
    behind it ("bf16, not tf32"), which `_tolerated` sees at the slot that it reaches."""
    return any(used.has(*SLOTS, "SIZE") and not used.negated for _, used in filled)


def _beside_another(tag: Tag, filled: list[tuple[Item, Tag]]) -> bool:
    """True where `tag` is ruled out and another of its sort is wanted."""
    for _, used in filled:
        if used.negated:
            continue
        if used.has(*PRECISIONS) and tag.has(*PRECISIONS):
            return True
        if not (used.concepts & tag.concepts).isdisjoint(SLOTS):
            return True
        if used.has("CAND", "ORD", "NUM") and tag.has("CAND", "ORD", "NUM"):
            return True
        if used.has("SIZE") and tag.has("SIZE", "NUM"):
            return True
    return False
