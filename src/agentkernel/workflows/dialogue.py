"""What does a sentence at the chat prompt ask for?"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Literal

from agentkernel.domain.base import Frozen

Word = Literal["go", "again", "diff", "undo", "keep", "show", "history", "help", "quit"]
SettingValue = str | int | float


class Command(Frozen):
    """Something to do with what is there. `argument`: the path behind `keep`."""

    word: Word
    argument: str = ""


class Change(Frozen):
    """Settings to change before the next run, as dotted keys."""

    settings: dict[str, SettingValue]


class NotUnderstood(Frozen):
    """No rule fits the sentence."""

    text: str


HELP = """\
go                        optimise with the settings as they are
target h200               for another GPU
precision bf16            strict, tf32 or bf16
memory, memory 4G         the least peak memory, or at most so much
latency, energy           what to make small
speedup 1.5               the goal
policy triton             triton, mixed or any
coder chat:openai:MODEL   who drafts
again                     a second try: more rounds, another seed
diff, show, history       what changed, what is there, every step so far
undo                      back to the step before
keep [PATH]               write the drop-in beside the module, or to PATH
quit"""

COMMANDS: tuple[tuple[str, Word], ...] = (
    (r"quit|exit|bye|q", "quit"),
    (r"help|\?", "help"),
    (r"undo|go back|take (?:it|that) back|revert", "undo"),
    (r"diff|what changed|compare", "diff"),
    (r"history|steps|tree", "history"),
    (r"again|retry|(?:a )?second try|another try|try harder", "again"),
    (r"show|status|result|source", "show"),
)
KEEP = re.compile(
    r"(?:please )?(?:keep|save)(?: it| this| that)?(?: (?:as|to|in))?(?: (\S*[./]\S*))?$", re.I
)
SIZE_FACTORS = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30}


def understand(text: str) -> Command | Change | NotUnderstood:
    """The request in `text`; several settings may be named at once ("for a100 in bf16")."""
    plain = " ".join(text.split())
    words = plain.lower()
    keep = KEEP.match(plain)
    if keep:
        return Command(word="keep", argument=keep[1] or "")
    settings: dict[str, SettingValue] = {}
    for rule in RULES:
        settings.update(rule(words))
    settings.update(_coder(plain))
    if settings:
        return Change(settings=settings)
    for pattern, word in COMMANDS:
        if re.search(rf"(?:^|\s)(?:{pattern})(?:$|[\s.!,])", words):
            return Command(word=word)
    if re.search(r"\b(go|optimi[sz]e|run|start)\b", words):
        return Command(word="go")
    return NotUnderstood(text=text.strip())


def _target(words: str) -> dict[str, SettingValue]:
    found = re.search(r"\b(?:target|(?:for|on)(?: an?| the)?) ([a-z]*\d[\w-]*|local)\b", words)
    return {"target": found[1]} if found else {}


def _precision(words: str) -> dict[str, SettingValue]:
    found = re.search(r"\b(strict|tf32|bf16)\b", words)
    return {"goals.precision": found[1]} if found else {}


def _objective(words: str) -> dict[str, SettingValue]:
    limit = re.search(r"\bmemory\D*?(\d+(?:\.\d+)?) ?([kmg]?)(?:i?b)?\b", words)
    if limit:
        size = int(float(limit[1]) * SIZE_FACTORS[limit[2]])
        return {"goals.objective": "memory", "goals.max_memory_bytes": size}
    if re.search(r"\bmemory\b", words):
        return {"goals.objective": "memory"}
    if re.search(r"\b(energy|power|joules?)\b", words):
        return {"goals.objective": "energy"}
    if re.search(r"\b(latency|fast|faster|speed)\b", words):
        return {"goals.objective": "latency"}
    return {}


def _goal(words: str) -> dict[str, SettingValue]:
    found = re.search(r"\bspeed-?up(?: of)? (\d+(?:\.\d+)?)", words)
    return {"goals.speedup": float(found[1])} if found else {}


def _policy(words: str) -> dict[str, SettingValue]:
    found = re.search(r"\bpolicy (triton|mixed|any)\b", words)
    return {"goals.policy": found[1]} if found else {}


def _coder(plain: str) -> dict[str, SettingValue]:
    """In the case it was written in: models' names may have capitals."""
    found = re.search(r"\bcoder (\S+)", plain, re.I)
    return {"coder": found[1]} if found else {}


def _rounds(words: str) -> dict[str, SettingValue]:
    found = re.search(r"\b(\d+) rounds\b|\brounds (\d+)\b", words)
    return {"budget.rounds": int(found[1] or found[2])} if found else {}


RULES: tuple[Callable[[str], dict[str, SettingValue]], ...] = (
    _target,
    _precision,
    _objective,
    _goal,
    _policy,
    _rounds,
)
