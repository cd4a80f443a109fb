"""Which request is it that a fitting row and its values describe?"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import get_args

from pydantic import TypeAdapter, ValidationError

from agentkernel.chat.intent import CandidateName, Intent, IntentContext, Size
from agentkernel.chat.language.matching import Match
from agentkernel.chat.language.tags import Tag

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


def _compare(match: Match, context: IntentContext, original: str) -> list[SlotValues]:
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
    tag = match.values("IDEA", "ORD")[0]
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
