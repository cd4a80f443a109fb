"""Lines that only name another value for what was asked before: "and c3?", "what about b200"."""

from __future__ import annotations

import re

from agentkernel.chat.language.slots import DTYPES, is_value
from agentkernel.chat.language.tagging import Tag
from agentkernel.chat.language.values import CONTRAST, TILE, Clause, numbers_of, requests_of
from agentkernel.chat.requests import (
    AskFact,
    AskGpu,
    ExplainLine,
    Intent,
    IntentContext,
    OnCandidate,
    Plain,
    SetBudget,
    SetDtype,
    SetKnob,
    SetShapes,
    SetTarget,
    StopAt,
    TryIdea,
    Undo,
)

OPENER = re.compile(
    r"^(?:(?:and|or|also|now|then|the same|same(?: thing| question| again)?|again|no|nah|sorry|wait"
    r"|actually|ok|okay|oh|hm+|well|make (?:it|that)|rather|i meant?|i mean|what about|how about"
    r"|try|maybe|once more|but|let's (?:say|try)"
    r"|lets (?:say|try)|better)\b[, ]*)+(?:for |with |of )?",
    re.I,
)
CLOSER = re.compile(r"[, ]+(?:instead|then|please|pls|too|as well|now|again)$", re.I)
IDEA = re.compile(
    r"(?:(?:ok|okay|yes|then|so|let's|lets|please|and)[, ]+)*"
    r"(?:(?:do|try|take|use|go (?:with|for)|draft|start with|i like|i'd take)(?: with)? )?"
    r"(?:the )?(?:idea |number |no\.? |suggestion |option |#)?"
    r"(?P<idea>first|second|third|fourth|fifth|next|last|[1-9]\d?)"
    r"(?: one| idea| suggestion| option)?"
    r"(?:[, ]+(?:sounds|looks|seems) \w+| then| please| pls| first)*[.!]*",
    re.I,
)
"""A choice among ideas that were just listed."""
ORDINALS = {"first": 1, "second": 2, "third": 3, "fourth": 4, "fifth": 5}
BROUGHT_BACK = re.compile(
    r"(?:\w+[, ]+){0,3}(?:bring|put|get|i want) (?:it|that) back\b(?! to).*"
    r"|.*\bundo (?:the|that) undo\b.*",
    re.I,
)
SCALED = re.compile(
    r"(?:make it |no |and |then )*(?P<by>half|halve|double|twice) (?:of )?(?:that|it)"
)
MINUTE, HOUR = 60, 3600
LIGHT = (
    "FILLER",
    "PREP",
    "MARK",
    "THIS",
    "SEP",
    "POLITE",
    "OTHER",
    "KERNEL",
    "CANDWORD",
    "SIZENAME",
)
MOST_WORDS = 7
ABOUT_ONE = (OnCandidate, AskFact)
COUNTED = frozenset({"warps", "stages", "registers", "block"})


def read_follow_up(shown: str, context: IntentContext) -> tuple[Intent, ...]:
    """The last request with the value that the line names; none where it says anything else."""
    if not context.last or len(shown.split()) > MOST_WORDS:
        return ()
    last, line = context.last[-1], shown.strip().rstrip(" ?.!")
    named = _chosen(last, line) or _scaled(last, line)
    if named is not None:
        return (named,)
    opener = OPENER.match(line)
    closed = CLOSER.sub("", line)
    bare = CONTRAST.sub("", closed[opener.end() :] if opener else closed)
    tiles = _tiles(last, bare)
    if tiles:
        return tiles
    clause = Clause(bare, context)
    values = [tag for tag in clause.tags if is_value(tag) and not tag.negated]
    plain = all(tag.has(*LIGHT) or tag in values for tag in clause.tags)
    if len(values) != 1 or not plain:
        return ()
    found = _with(last, values[0], clause, opened=opener is not None or closed != line)
    return (found,) if found is not None and found != last else ()


def _chosen(last: Intent, line: str) -> Intent | None:
    """One of the ideas that were listed, and what was undone."""
    if isinstance(last, Undo) and BROUGHT_BACK.fullmatch(line):
        return Plain(name="redo")
    idea = IDEA.fullmatch(line)
    if idea is None or last.name not in ("ideas", "plan", "try_idea"):
        return None
    word: str = idea["idea"].lower()
    if word in ("next", "last"):
        return TryIdea(idea="next" if word == "next" else "last")
    return TryIdea(idea=ORDINALS.get(word) or int(word))


def _scaled(last: Intent, line: str) -> Intent | None:
    """ "half that" behind a wish about the launch."""
    found = SCALED.fullmatch(line.lower())
    if found is None or not isinstance(last, SetKnob) or last.knob not in COUNTED:
        return None
    more = found["by"] in ("double", "twice")
    value = None if not last.value else last.value * 2 if more else max(last.value // 2, 1)
    return last.evolve(value=value, more=more and value is None, former=False)


def _tiles(last: Intent, bare: str) -> tuple[Intent, ...]:
    """ "128x64" behind a wish about a block."""
    tile = TILE.fullmatch(bare)
    if tile is None or not isinstance(last, SetKnob) or last.knob != "block":
        return ()
    return requests_of("knob=block", Clause(f"block {bare}", IntentContext()))


def _with(last: Intent, value: Tag, clause: Clause, *, opened: bool) -> Intent | None:
    """`last` with the one value; None where it has no place in it."""
    names = value.value if isinstance(value.value, tuple) else ()
    if isinstance(last, AskGpu | SetTarget) and value.has("TARGET") and len(names) == 1:
        return last.evolve(target=str(names[0])) if opened or isinstance(last, AskGpu) else None
    if not opened:
        return None
    if isinstance(last, ABOUT_ONE) and value.has("CAND") and clause.candidate != "current":
        known = not clause.context.candidates or clause.candidate in clause.context.candidates
        return last.evolve(candidate=clause.candidate) if known else None
    numbers = numbers_of(clause)
    if isinstance(last, SetKnob) and last.knob in COUNTED and value.has("NUM") and numbers:
        return last.evolve(value=numbers[0], more=False, former=False) if numbers[0] else None
    if isinstance(last, ExplainLine) and value.has("LINE") and isinstance(value.value, int):
        return last.evolve(line=value.value, last_line=None)
    number = float(value.value) if isinstance(value.value, int | float) else 0.0
    if isinstance(last, SetShapes) and len(last.sizes) == 1 and value.has("NUM") and numbers:
        size = last.sizes[0].evolve(value=numbers[0]) if numbers[0] else None
        return last.evolve(sizes=(size,)) if size is not None else None
    if isinstance(last, StopAt) and number > 1 and value.has("TIMES", "NUM") and last.speedup:
        return StopAt(speedup=number)
    if isinstance(last, SetBudget) and number > 0:
        return _budget(last, value, number)
    if isinstance(last, SetDtype) and value.has("DTYPE", "BF16") and isinstance(value.value, str):
        dtype = DTYPES.get(value.value, "bfloat16" if value.has("BF16") else None)
        return SetDtype.model_validate({"dtype": dtype}) if dtype else None
    return None


def _budget(last: SetBudget, value: Tag, number: float) -> Intent | None:
    """A bare number is in what was counted before: minutes, hours, dollars or rounds."""
    if value.has("DURATION"):
        return SetBudget(seconds=number)
    if not value.has("NUM"):
        return None
    if last.seconds is not None:
        unit = next((each for each in (HOUR, MINUTE) if last.seconds % each == 0), 1)
        return SetBudget(seconds=number * unit)
    return SetBudget(usd=number) if last.usd is not None else SetBudget(rounds=int(number))
