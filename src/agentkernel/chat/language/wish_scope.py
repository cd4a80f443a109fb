"""The candidate and the kernels that a wish about a launch is for, by the words of its sentence."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from agentkernel.chat.language.tagging import words_of
from agentkernel.chat.requests import (
    Ambiguous,
    CandidateRef,
    Intent,
    IntentContext,
    NotUnderstood,
    Run,
    SetKnob,
    Suggestion,
    Sweep,
    Understanding,
    Understood,
    Which,
)

Wish = SetKnob | Sweep
ONE_AT_A_TIME = "One thing is wished twice. Ask for one kernel at a time."
KERNEL = "_kernel"
GENERIC = words_of(
    "all any both current each every it its my one our own same that the these this those triton "
    "two three whole"
)
"""Words before "kernel" that tell none from another."""
WORD = r"(?!(?:for|give|in|of|on|set|the|to|use|with)\b)[a-z_][\w-]*"
NAMED = re.compile(
    rf"\b(?:for|give|in|of|on|the)\s+(?:only |just )?(?:the\s+)?"
    rf"(?P<words>(?:{WORD}(?:\s*,\s*|\s+)){{1,6}}?)kernels?\b"
)
IDENTIFIER = re.compile(rf"\b\w+{KERNEL}\b")
JOINS = re.compile(r"\s*,\s*(?:and\s+|or\s+)?|\s+and\s+(?:the\s+)?|\s+or\s+")
BUT = re.compile(
    r"\b(?:except|excluding|but|besides|without|not|other than|apart from)"
    r"(?:\s+(?:for|in|of|on|from|to))?(?:\s+the)?\s+$"
)
CANDIDATE = re.compile(r"(?<!as )(?<!as in )(?<!like )(?<!than )(?<!not )\bc(\d{1,6})\b")
PLACE = re.compile(
    r"\b(?:for|in|of|on)\s+the\s+(?P<place>fastest|last|previous|parent)"
    r"(?:\s+(?:one|candidate|version))?$"
)
PLACES: dict[str, Which] = {
    "fastest": "fastest",
    "last": "last",
    "previous": "previous",
    "parent": "parent",
}


class _Unclear(Exception):
    """Carries the line that says what is to be named."""


def without_kernel_names(text: str, context: IntentContext) -> str:
    """The line with "the kernel" for each kernel's name: what is wished does not hang on it."""
    line = text.lower()
    if len(line) != len(text):
        return text
    for start, end, _ in reversed(_spans(line, context)):
        named = line[end:].lstrip().startswith("kernel")
        word = "" if named else "kernel" if re.search(r"\bthe\s+$", line[:start]) else "the kernel"
        text = text[:start] + word + text[end:]
    return " ".join(text.split())


def is_of_kernels(found: Understanding) -> bool:
    """True where nothing but wishes about launches was understood, each of another thing, and a
    run of them."""
    if not isinstance(found, Understood):
        return False
    alone = all(isinstance(item, SetKnob | Sweep | Run) for item in found.intents)
    wishes = [item for item in found.intents if isinstance(item, Wish)]
    things = {(item.knob, item.axis) for item in wishes if isinstance(item, SetKnob)}
    swept = sum(isinstance(item, Sweep) for item in wishes)
    return alone and bool(wishes) and len(things) + swept == len(wishes)


def within(found: Understanding, text: str, context: IntentContext) -> Understanding:
    """The requests, their wishes about launches for the candidate and the kernels that are named.
    What names none stays as it is."""
    try:
        match found:
            case Understood():
                return found.evolve(
                    intents=_scoped(found.intents, text, context),
                    offers=_scoped(found.offers, text, context),
                )
            case Ambiguous():
                options = tuple(_scoped(each, text, context) for each in found.options)
                wishes = {each for option in options for each in option if isinstance(each, Wish)}
                if len(options) > 1 and any(len(each.kernels) > 1 for each in wishes):
                    raise _Unclear(ONE_AT_A_TIME)
                return found.evolve(options=options)
            case NotUnderstood():
                return found
    except _Unclear as why:
        nearest = (Suggestion(name="knob", example="use 4 warps"),)
        return NotUnderstood(text=text, reason=str(why), nearest=nearest)


def _scoped(intents: tuple[Intent, ...], text: str, context: IntentContext) -> tuple[Intent, ...]:
    wishes = [item for item in intents if isinstance(item, SetKnob | Sweep)]
    if not wishes:
        return intents
    line = " ".join(text.lower().split()).rstrip(" ?.!")
    alone = all(isinstance(item, SetKnob | Sweep | Run) for item in intents)
    candidate = _candidate(line) if alone else "current"
    kernels = _kernels(line, context)
    each = _each(wishes, kernels)
    made: list[Intent] = []
    for item in intents:
        if isinstance(item, SetKnob | Sweep):
            own = next(each)
            item = item.evolve(kernels=own) if own else item
            item = item.evolve(candidate=candidate) if candidate != "current" else item
        made.append(item)
    return tuple(made)


def _each(wishes: list[Wish], kernels: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """The kernels of each wish: one each where one thing is wished as often as kernels are named,
    else all of them."""
    things = Counter((item.knob, item.axis) for item in wishes if isinstance(item, SetKnob))
    twice = any(many > 1 for many in things.values())
    if not twice or not kernels:
        return iter([kernels] * len(wishes))
    if len(things) == 1 and len(wishes) == len(kernels):
        return iter([(name,) for name in kernels])
    raise _Unclear(ONE_AT_A_TIME)


def _candidate(line: str) -> CandidateRef:
    numbers = {int(item) for item in CANDIDATE.findall(line)} - {0}
    if len(numbers) > 1:
        raise _Unclear("Which candidate is to be changed? Name one: 'use 4 warps on c1'.")
    place = PLACE.search(line)
    return next(iter(numbers), PLACES[place["place"]] if place else "current")


def _kernels(line: str, context: IntentContext) -> tuple[str, ...]:
    """What kernels are called in the line, in its order."""
    kept = _spans(line, context)
    if any(BUT.search(line[:start]) for start, _, _ in kept):
        raise _Unclear("Name the kernels that are to change: 'use 2 warps for add_kernel'.")
    return tuple(dict.fromkeys(name for _, _, name in kept))


def _spans(line: str, context: IntentContext) -> list[tuple[int, int, str]]:
    """Where kernels are named in the line, and what they are called there."""
    spans = [(item.start(), item.end(), item[0]) for item in IDENTIFIER.finditer(line)]
    for name in context.kernels:
        bare = "|".join(map(re.escape, (name.lower(), name.lower().removesuffix(KERNEL))))
        alone = r"\b" if "_" in name else r"\b(?:for|in|of|on)\s+(?:the\s+)?"
        for pattern in (
            rf"{alone}(?P<name>{re.escape(name.lower())})\b",
            rf"\b(?:for|in|of|on)\s+(?:only |just )?(?:the\s+)?(?P<name>{bare})"
            r"(?:\s+(?:only|alone))?$",
        ):
            found = re.finditer(pattern, line)
            spans += [(item.start("name"), item.end("name"), item["name"]) for item in found]
    for item in NAMED.finditer(line):
        at = item.start("words")
        for word in JOINS.split(item["words"].strip()):
            bare = " ".join(part for part in word.split() if part not in GENERIC)
            start = line.index(word, at)
            if bare:
                spans.append((start, start + len(word), bare))
    kept: list[tuple[int, int, str]] = []
    for span in sorted(spans, key=lambda each: (each[0], -each[1])):
        if not kept or span[0] >= kept[-1][1]:
            kept.append(span)
    return kept
