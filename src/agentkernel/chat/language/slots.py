"""Typed requests built from a matched row or label and the values of its slots."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import pairwise
from typing import get_args
from zlib import crc32

from pydantic import TypeAdapter, ValidationError

from agentkernel.chat.language.grammar import VALUES, Item, Match, Row
from agentkernel.chat.language.tagging import Tag
from agentkernel.chat.requests import (
    AskDocs,
    CandidateName,
    Intent,
    IntentContext,
    Size,
    SwitchBranch,
)

ON_CANDIDATE = frozenset(get_args(CandidateName))
DTYPES = {
    "fp16": "float16", "f16": "float16", "half": "float16", "half precision": "float16",
    "half-precision": "float16", "float16": "float16",
    "fp64": "float64", "f64": "float64", "float64": "float64", "double precision": "float64",
    "int8": "int8", "i8": "int8", "int32": "int32", "int64": "int64", "uint8": "uint8",
}  # fmt: skip
SEEN_FROM = frozenset(
    {
        "against",
        "since",
        "from",
        "to",
        "with",
        "vs",
        "versus",
        "compared to",
        "compared with",
        "relative to",
    }
)
Slot = str | int | float | None | tuple[object, ...]
SlotValues = dict[str, Slot]


class InvalidValues(Exception):
    """The words fit, their values do not; the text is one line for the user."""


@cache
def _intents() -> TypeAdapter[Intent]:
    """Made on first use: building it takes longer than the import of all the rest."""
    return TypeAdapter(Intent)


def build_intents(match: Match, context: IntentContext, original: str) -> list[Intent]:
    """The readings of a match: one, or one for each GPU that a name may mean.

    Raises Impossible for a value that no request can have. `original`: the text as typed.
    """
    maker = MAKERS.get(match.row.name, _plain)
    found: list[Intent] = []
    for slots in maker(match, context, original):
        try:
            found.append(_intents().validate_python({"name": match.row.name, **slots}))
        except ValidationError as error:
            what = error.errors()[0]
            raise InvalidValues(
                f"The value {what['input']!r} is out of range for {match.row.name!r}."
            ) from error
    return found


def _plain(match: Match, context: IntentContext, original: str) -> list[SlotValues]:
    if match.row.name not in ON_CANDIDATE:
        return [{}]
    refs = _candidates(match, context)
    return [{"candidate": refs[0]} if refs else {}]


def _candidates(match: Match, context: IntentContext) -> list[int | str]:
    return [_candidate(tag, context) for tag in match.values("CAND", "ORD", "NUM", "PLACE")]


def _candidate(tag: Tag, context: IntentContext) -> int | str:
    """The number or the place; "the other" is a number where there are only two."""
    if tag.value == "other":
        others = [number for number in context.candidates if number != context.current]
        if context.current is None or len(others) != 1:
            raise InvalidValues("'the other' may be any of several candidates: name it, as in c3.")
        return others[0]
    if isinstance(tag.value, str):
        return tag.value
    number = _count(tag)
    if context.candidates and number not in context.candidates:
        known = ", ".join(f"c{item}" for item in context.candidates[:12])
        raise InvalidValues(f"There is no candidate c{number}. Known: {known}.")
    return number


def _count(tag: Tag) -> int:
    if not isinstance(tag.value, int | float) or tag.value % 1 or not 1 <= tag.value <= 10**9:
        raise InvalidValues(f"{tag.text!r} is no count: expected a whole number from 1.")
    return int(tag.value)


def _number(tag: Tag) -> float:
    return float(tag.value) if isinstance(tag.value, int | float) else 0.0


def _run(match: Match, context: IntentContext, original: str) -> list[SlotValues]:
    slots: SlotValues = {}
    for tag in match.values("ROUNDS"):
        slots["rounds"] = _count(tag)
    for tag in match.values("DURATION"):
        slots["seconds"] = _number(tag)
    return [slots]


def _less_memory(match: Match, context: IntentContext, original: str) -> list[SlotValues]:
    for tag in match.values("HALF"):
        return [{"fraction": _number(tag)}]
    for tag in match.values("PERCENT"):
        return [{"fraction": 1 - _number(tag) / 100}]
    for tag in match.values("TIMES"):
        return [{"fraction": 1 / max(_number(tag), 1e-9)}]
    return [{}]


def _memory_limit(match: Match, context: IntentContext, original: str) -> list[SlotValues]:
    return [{"max_bytes": int(_number(match.values("BYTES")[0]))}]


def _precision(match: Match, context: IntentContext, original: str) -> list[SlotValues]:
    return [{"precision": match.row.value}]


def _target(match: Match, context: IntentContext, original: str) -> list[SlotValues]:
    for tag in match.values("TARGET"):
        if not tag.value:
            raise InvalidValues(f"{tag.text!r} is none of the targets: 'which targets are there?'")
        if isinstance(tag.value, tuple):
            return [{"target": str(name)} for name in tag.value]
    return [{"target": "local"} if match.values("LOCAL") else {}]


def _shapes(match: Match, context: IntentContext, original: str) -> list[SlotValues]:
    shapes = tuple(tag.value for tag in match.values("SHAPELIT"))
    sizes = [
        _size(str(tag.value[0]), int(tag.value[1]))
        for tag in match.values("SIZE")
        if isinstance(tag.value, tuple)
    ]
    for tag in match.values("NUM"):
        name = sizes[-1].name if sizes else _size_name(match)
        sizes.append(_size(name, _count(tag)))
    return [{"shapes": shapes, "sizes": tuple(sizes)}]


def _size(name: str, value: int) -> Size:
    return Size(name="batch" if name in ("batch_size", "batchsize", "bs") else name, value=value)


def _size_name(match: Match) -> str:
    names = [tag.value for tag in match.values("SIZENAME") if isinstance(tag.value, str)]
    return (names[0] if names else "batch").replace(" ", "_").replace("-", "_")


def _dtype(match: Match, context: IntentContext, original: str) -> list[SlotValues]:
    for tag in match.values("DTYPE"):
        return [{"dtype": DTYPES["half" if tag.has("HALF") else str(tag.value)]}]
    return [{"dtype": "bfloat16" if match.values("BF16") else "float32"}]


def _explain_line(match: Match, context: IntentContext, original: str) -> list[SlotValues]:
    slots: SlotValues = {}
    for tag in match.values("LINE"):
        if isinstance(tag.value, tuple):
            slots = {"line": int(tag.value[0]), "last_line": int(tag.value[1])}
        else:
            slots = {"line": _count(tag)}
    refs = _candidates(match, context)
    return [{**slots, **({"candidate": refs[0]} if refs else {})}]


def _diff(match: Match, context: IntentContext, original: str) -> list[SlotValues]:
    """One candidate is seen from its parent; a place such as "the original" is what the current
    one is seen from; of two, the later in the tree is seen from the other."""
    refs = _candidates(match, context)
    if not refs:
        return [{}]
    if len(refs) == 1:
        seen_from = refs[0] in ("parent", "original", "previous") or bool(
            {tag.text for tag in match.values("AGAINST")} & SEEN_FROM
        )
        return [{"against" if seen_from else "candidate": refs[0]}]
    first, second = refs[:2]
    if isinstance(first, str) and first in ("original", "parent", "previous"):
        return [{"candidate": second, "against": first}]
    if isinstance(first, int) and isinstance(second, int) and first < second:
        return [{"candidate": second, "against": first}]
    return [{"candidate": first, "against": second}]


LAST_TWO = re.compile(r"\b(?:(?:last|latest|newest|(?:most )?recent) (?:two|2)|(?:two|2) (?:last"
                      r"|latest|newest|most recent))\b(?! (?:changes|steps|rounds))")  # fmt: skip


def _compare(match: Match, context: IntentContext, original: str) -> list[SlotValues]:
    if LAST_TWO.search(original.lower()):
        return [{"first": "second_last", "second": "last"}]
    first, *others = [*_candidates(match, context), "current"]
    second = others[0] if others and others[0] != first else None
    return [{"first": first, "second": second}]


def _verify(match: Match, context: IntentContext, original: str) -> list[SlotValues]:
    """What is checked against the original is the other candidate, or the current one."""
    refs = [ref for ref in _candidates(match, context) if ref != "original"]
    if len(refs) > 1:
        raise InvalidValues("A candidate is verified against the original module only.")
    return [{"candidate": refs[0]} if refs else {}]


def _try_idea(match: Match, context: IntentContext, original: str) -> list[SlotValues]:
    if match.row.value:
        return [{"idea": match.row.value}]
    tag = match.values("IDEA", "ORD", "NUM")[0]
    return [{"idea": tag.value if isinstance(tag.value, str) else _count(tag)}]


def _undo(match: Match, context: IntentContext, original: str) -> list[SlotValues]:
    for tag in match.values("STEPS", "TIMES"):
        return [{"steps": _count(tag)}]
    return [{}]


def _switch_branch(match: Match, context: IntentContext, original: str) -> list[SlotValues]:
    for tag in match.values("BRANCHNO"):
        return [{"branch": _count(tag)}]
    for tag in match.values("BRANCHNAME"):
        return [{"branch": str(tag.value)}]
    return [{}]


def _stop_at(match: Match, context: IntentContext, original: str) -> list[SlotValues]:
    for tag in match.values("RUNTIME"):
        return [{"runtime_us": _number(tag)}]
    for tag in match.values("PERCENT"):
        return [{"speedup": 1 + _number(tag) / 100}]
    for tag in match.values("HALF"):
        return [{"speedup": 1 / _number(tag)}]
    return [{"speedup": _number(match.values("TIMES", "FACTOR")[0])}]


def _budget(match: Match, context: IntentContext, original: str) -> list[SlotValues]:
    slots = _run(match, context, original)[0]
    for tag in match.values("MONEY"):
        slots["usd"] = _number(tag)
    return [slots]


def _policy(match: Match, context: IntentContext, original: str) -> list[SlotValues]:
    return [{"policy": match.row.value}]


def _write(match: Match, context: IntentContext, original: str) -> list[SlotValues]:
    refs = _candidates(match, context)
    slots: SlotValues = {"candidate": refs[0]} if refs else {}
    for tag in match.values("PATH"):
        slots["path"] = original[tag.start : tag.end].strip("\"'`").rstrip(".")
    return [slots]


def _edit(match: Match, context: IntentContext, original: str) -> list[SlotValues]:
    slots = _explain_line(match, context, original)[0]
    slots.pop("last_line", None)
    return [slots]


Maker = Callable[[Match, IntentContext, str], list[SlotValues]]
MAKERS: dict[str, Maker] = {
    "run": _run,
    "less_memory": _less_memory,
    "memory_limit": _memory_limit,
    "precision": _precision,
    "target": _target,
    "shapes": _shapes,
    "dtype": _dtype,
    "explain_line": _explain_line,
    "diff": _diff,
    "compare": _compare,
    "verify": _verify,
    "try_idea": _try_idea,
    "undo": _undo,
    "switch_branch": _switch_branch,
    "stop_at": _stop_at,
    "budget": _budget,
    "policy": _policy,
    "save": _write,
    "export": _write,
    "edit": _edit,
}


BUCKETS = 2**14
"""Features are hashed into so many; two that share one are seen as the same."""
LETTERS = (3, 4, 5)
"""Lengths of the pieces of words, by which a mistyped or an inflected word is still known."""
WEIGHTS = {"word": 1.0, "pair": 0.8, "triple": 0.6, "letters": 0.35, "concept": 0.7, "place": 0.8}
"""How much each sort counts before the lengths are made equal."""


def features(tags: Sequence[Tag]) -> dict[int, float]:
    """Bucket -> weight. Values stand as their kind ("4 GB" as BYTES), so that no number matters."""
    found: dict[int, float] = {}
    for bucket, weight in _weighted(tags):
        found[bucket] = found.get(bucket, 0.0) + weight
    return found


def words_of_tags(tags: Sequence[Tag]) -> list[str]:
    """The words in order, each value as its kind, marks left out but for "?"."""
    found: list[str] = []
    for tag in tags:
        if tag.has("MARK") and tag.text != "?":
            continue
        if is_value(tag):
            found.append("#" + min(tag.concepts & VALUES))
        else:
            found.extend(tag.text.split())
    return found


def is_value(tag: Tag) -> bool:
    """True for a tag with a value that no request may drop."""
    return tag.has(*VALUES) and not tag.has("FILLER") and tag.text != "one"


def _weighted(tags: Sequence[Tag]) -> Iterator[tuple[int, float]]:
    words = words_of_tags(tags)
    bounded = ["<", *words, ">"]
    for word in words:
        yield from _of_word(word)
    for first, second in pairwise(bounded):
        yield _feature("pair", f"{first} {second}")
    for first, second, third in zip(bounded, bounded[1:], bounded[2:], strict=False):
        yield _feature("triple", f"{first} {second} {third}")
    for tag in tags:
        yield from _of_concepts(tag.concepts, tag.negated)
        if is_value(tag):
            yield _feature("place", ("not " if tag.negated else "") + min(tag.concepts & VALUES))


def _feature(sort: str, text: str) -> tuple[int, float]:
    return crc32(f"{sort}:{text}".encode()) % BUCKETS, WEIGHTS[sort]


@lru_cache(2**13)
def _of_word(word: str) -> tuple[tuple[int, float], ...]:
    bounded = "" if word.startswith("#") else f" {word} "
    pieces = [
        bounded[at : at + length] for length in LETTERS for at in range(len(bounded) - length + 1)
    ]
    return _feature("word", word), *(_feature("letters", piece) for piece in pieces)


@lru_cache(2**10)
def _of_concepts(concepts: frozenset[str], negated: bool) -> tuple[tuple[int, float], ...]:
    mood = "not " if negated else ""
    return tuple(_feature("concept", mood + each) for each in sorted(concepts - VALUES))


REF = frozenset({"CAND", "ORD", "NUM"})
PRECISIONS = frozenset({"TF32", "BF16"})


@dataclass(frozen=True, slots=True)
class SlotRule:
    """`kinds`: the values that may be there; `least` and `most` of them. `beside`: a concept that
    a bare number needs beside it."""

    kinds: frozenset[str] = frozenset()
    least: int = 0
    most: int = 0
    beside: frozenset[str] = frozenset()


ON_ONE = SlotRule(REF, 0, 1)
SLOTS: dict[str, SlotRule] = {
    **dict.fromkeys(get_args(CandidateName), ON_ONE),
    "return_to": SlotRule(REF, 1, 1),
    "run": SlotRule(frozenset({"ROUNDS", "DURATION"}), 0, 1),
    "less_memory": SlotRule(frozenset({"HALF", "PERCENT", "TIMES"}), 0, 1),
    "memory_limit": SlotRule(frozenset({"BYTES"}), 1, 1),
    "precision=tf32": SlotRule(frozenset({"TF32"}), 1, 2),
    "precision=bf16": SlotRule(frozenset({"BF16"}), 1, 2),
    "precision=strict": SlotRule(PRECISIONS | {"FP32", "STRICT"}, 0, 4),
    "target": SlotRule(frozenset({"TARGET"}), 1, 1),
    "shapes": SlotRule(
        frozenset({"SHAPELIT", "SIZE", "NUM"}), 0, 6, frozenset({"SIZENAME", "SIZE", "SHAPE"})
    ),
    "dtype": SlotRule(frozenset({"DTYPE", "BF16", "FP32"}), 1, 1),
    "explain_line": SlotRule(REF | {"LINE"}, 0, 2, frozenset({"LINE", "LINEWORD"})),
    "edit": SlotRule(REF | {"LINE"}, 0, 2, frozenset({"CANDWORD", "KERNEL"})),
    "diff": SlotRule(REF, 0, 2),
    "compare": SlotRule(REF, 1, 2),
    "try_idea": SlotRule(frozenset({"IDEA", "ORD", "NUM"}), 1, 1, frozenset({"IDEAWORD"})),
    "undo": SlotRule(frozenset({"STEPS"}), 0, 1),
    "switch_branch": SlotRule(
        frozenset({"BRANCHNO", "BRANCHNAME", "NUM", "CAND"}), 0, 1, frozenset({"BRANCH", "FORK"})
    ),
    "stop_at": SlotRule(frozenset({"TIMES", "FACTOR", "RUNTIME", "PERCENT"}), 1, 1),
    "budget": SlotRule(frozenset({"DURATION", "ROUNDS", "MONEY"}), 1, 2),
    "save": SlotRule(REF | {"PATH"}, 0, 2),
    "export": SlotRule(frozenset({"PATH"}), 0, 1),
}
"""By label; a request that is not named here takes no value."""
NEVER = frozenset({"approve", "decline", "none"})
"""Labels that only the grammar reads: an answer is short, and a wrong "yes" does harm."""
NAMES_BY_PLACE = frozenset({"original", "fastest", "last", "current"})


def intent_of(
    label: str, tags: tuple[Tag, ...], context: IntentContext, shown: str
) -> Intent | None:
    """The request of this label with all of the values of `tags`; None where one does not fit."""
    name, _, value = label.partition("=")
    if label in NEVER:
        return None
    if name == "ask_docs":
        return _question(tags, shown)
    slots = SLOTS.get(label, SlotRule())
    values = _wanted([tag for tag in tags if is_value(tag)], slots)
    if not slots.least <= len(values) <= slots.most or _odd_word(tags):
        return None
    if any(not tag.has(*slots.kinds) for tag in values) or not _mood_of_values(label, values):
        return None
    bare = [tag for tag in values if tag.has("NUM")]
    if bare and slots.beside and not any(tag.has(*slots.beside) for tag in tags):
        return None
    if not _one_of_a_kind(values, label):
        return None
    if name == "explain_line" and not any(tag.has("LINE", "LINEWORD") for tag in tags):
        return None
    found = _built(name, value, values, tags, context, shown)
    if name == "switch_branch" and isinstance(found, SwitchBranch):
        return _branch(found, values)
    return found


def _branch(found: SwitchBranch, values: list[Tag]) -> Intent | None:
    """ "the other branch, number 3" names it by the number alone."""
    for tag in values:
        if tag.has("CAND") and not tag.text.startswith("number"):
            return None
        if tag.has("NUM", "CAND") and isinstance(tag.value, int | float) and tag.value >= 1:
            return SwitchBranch(branch=int(tag.value))
    return found


def _built(
    name: str,
    value: str,
    values: list[Tag],
    tags: tuple[Tag, ...],
    context: IntentContext,
    shown: str,
) -> Intent | None:
    names = [tag for tag in tags if tag.has("SIZENAME") and tag not in values]
    filled = tuple((Item(tag.concepts, True, False), tag) for tag in (*values, *names))
    row = Row(name, value or None, True, False, "act", (), frozenset())
    try:
        found = build_intents(Match(row, filled, 0.0), context, shown)
    except InvalidValues:
        return None
    return found[0] if len(found) == 1 else None


def _wanted(values: list[Tag], slots: SlotRule) -> list[Tag]:
    """Without what only describes: "the winner" beside a number, "the baseline" of a speedup."""
    numbered = any(tag.has(*REF) and not isinstance(tag.value, str) for tag in values)
    return [
        tag
        for tag in values
        if not (
            tag.has("CAND")
            and tag.value in NAMES_BY_PLACE
            and (not slots.kinds & REF or (numbered and tag.value != "original"))
        )
    ]


def _mood_of_values(label: str, values: list[Tag]) -> bool:
    """No value is ruled out, but a precision where the strict one is wanted."""
    if label == "precision=strict":
        return all(tag.negated or not tag.has(*PRECISIONS) for tag in values)
    return not any(tag.negated for tag in values)


def _one_of_a_kind(values: list[Tag], label: str) -> bool:
    """Two values of one kind only where there is room for both."""
    if label in ("diff", "compare", "shapes", "precision=strict"):
        return True
    texts = {(tuple(sorted(tag.concepts)), tag.value) for tag in values}
    kinds = {"REF" if tag.has(*REF) else min(tag.concepts) for tag in values}
    return len(kinds) == len(values) or len(texts) == 1


def _odd_word(tags: tuple[Tag, ...]) -> bool:
    """True for a word with a digit that is no value (e4m3, int4): nobody knows what it means."""
    return any(
        any(letter.isdigit() for letter in tag.text) and not is_value(tag) and not tag.concepts
        for tag in tags
    )


def _question(tags: tuple[Tag, ...], shown: str) -> Intent | None:
    """The whole question: a search loses nothing by some words more."""
    if not any(tag.has("DOCS") for tag in tags) or any(tag.has("NEG") for tag in tags):
        return None
    query = shown[tags[0].start : tags[-1].end].strip(" .,;:!?\"'")
    return AskDocs(query=query) if query else None
