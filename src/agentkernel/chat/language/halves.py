"""Reading of a sentence in two halves, one of them about a kernel's own words."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from agentkernel.chat.language.clauses import ANSWERS, SETTINGS
from agentkernel.chat.language.kernel_words import read_kernel_words
from agentkernel.chat.language.questions import read_questions
from agentkernel.chat.requests import (
    AskFact,
    Intent,
    IntentContext,
    Run,
    Understanding,
    Understood,
)

JOINTS = re.compile(r"(?:,? and then |,? and |,? then |; |\. |(?<=\?) |, )", re.I)
MOST_JOINTS = 4
BARE_FORMATS = frozenset({"bf16", "fp16", "tf32", "fp32", "float16", "bfloat16", "float32"})
"""What may be the inputs' dtype or a format to compute in."""


FASTER_WITH = re.compile(
    r"(?:please |ok |now )*(?:make (?:it|this|that|the (?:kernel|module))|go|optimi[sz]e it)"
    r"(?: (?:just|really|even|much))*(?: (?:as )?(?:fast|quick)(?:er)?)?"
    r"(?: as (?:you can|possible|it gets|it can be))?(?:,? but|,) (?P<setting>.+)",
    re.I,
)
"""A run that is wished with something to be kept to."""


def read_faster_with(
    shown: str, context: IntentContext, alone: Callable[[str, IntentContext], Understanding]
) -> tuple[Intent, ...]:
    """ "make it as fast as you can, but only with your own kernels": the setting, then a run."""
    found = FASTER_WITH.fullmatch(shown.strip())
    read = None if found is None else alone(found["setting"], context)
    if not isinstance(read, Understood) or any(item.name not in SETTINGS for item in read.intents):
        return ()
    return (*read.intents, Run())


def read_halves(
    shown: str, context: IntentContext, alone: Callable[[str, IntentContext], Understanding]
) -> tuple[Intent, ...]:
    """ "8 warps and show me the SASS after": two halves, one of them about a kernel's own words,
    the other read by `alone`; none where either is not."""
    for joint in list(JOINTS.finditer(shown))[:MOST_JOINTS]:
        halves = shown[: joint.start()], shown[joint.end() :]
        if any(half.strip().lower() in BARE_FORMATS for half in halves):
            return ()
        words = [read_kernel_words(half, context) for half in halves]
        asks = [() if any(words) else read_questions(half, context) for half in halves]
        about = [known or asked for known, asked in zip(words, asks, strict=True)]
        if not any(words) and not any(asks):
            continue
        read = [
            Understood(intents=known) if known else alone(half, context)
            for half, known in zip(halves, about, strict=True)
        ]
        found = [item for each in read if isinstance(each, Understood) for item in each.intents]
        if all(isinstance(each, Understood) for each in read) and _are_two(found):
            return _without_repeats(found)
    return ()


def _are_two(found: Sequence[Intent]) -> bool:
    """True where each half asks for something of its own that is done in this session."""
    return len(_without_repeats(found)) > 1 and not any(
        item.name in ("cannot", "module", *ANSWERS) for item in found
    )


def _without_repeats(found: Sequence[Intent]) -> tuple[Intent, ...]:
    """Each request once; what is said of PTX and SASS says what the registers are."""
    once = tuple(dict.fromkeys(found))
    assembly = [item for item in once if isinstance(item, AskFact) and item.about == "assembly"]
    return tuple(
        item
        for item in once
        if not (assembly and isinstance(item, AskFact) and item.about == "resources")
    )
