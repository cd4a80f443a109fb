"""Which sentence asks for this? What is offered to be typed, and how a turn without words reads."""

from __future__ import annotations

from agentkernel.chat.intent import (
    AskDocs,
    CandidateRef,
    Compare,
    Diff,
    Edit,
    ExplainLine,
    Intent,
    LessMemory,
    MemoryLimit,
    OnCandidate,
    Plain,
    Run,
    SetBudget,
    SetDtype,
    SetPolicy,
    SetPrecision,
    SetShapes,
    SetTarget,
    StopAt,
    SwitchBranch,
    TryIdea,
    Undo,
    WriteTo,
)
from agentkernel.chat.language import EXAMPLES

ORDINALS = ("first", "second", "third", "fourth", "fifth")
ON_CANDIDATE = {
    "why_slow": ("why is it slow?", "why is {} slow?"),
    "profile": ("where does the time go?", "profile {}"),
    "roofline": ("how close are we to the roofline?", "show {} on the roofline"),
    "explain_kernel": ("explain this kernel", "explain {}"),
    "why_rejected": ("why was it rejected?", "why was {} rejected?"),
    "show_candidate": ("show the kernel", "show {}"),
    "return_to": ("go back to the current one", "go back to {}"),
    "fork": ("split from here", "split from {}"),
    "keep": ("keep it", "keep {}"),
    "reject": ("discard this one", "discard {}"),
    "verify": ("verify it", "verify {}"),
    "certificate": ("show the certificate", "show the certificate of {}"),
    "repair": ("fix it", "fix {}"),
}
PRECISIONS = {"strict": "strict precision", "tf32": "allow tf32", "bf16": "allow bf16"}
POLICIES = {
    "triton": "only your own kernels",
    "mixed": "allow library calls",
    "any": "policy any",
}


def sentence(intent: Intent) -> str:
    """Plain English for a request, in words that the grammar understands where it has any."""
    match intent:
        case Plain():
            return (
                EXAMPLES[intent.name] if intent.name != "more_aggressive" else "be more aggressive"
            )
        case OnCandidate():
            plain, named = ON_CANDIDATE[intent.name]
            return (
                plain if intent.candidate == "current" else named.format(name_of(intent.candidate))
            )
        case Run():
            return _run(intent)
        case LessMemory():
            if intent.fraction is None:
                return "use less memory"
            return f"use {round((1 - intent.fraction) * 100)}% less memory"
        case MemoryLimit():
            return f"at most {_size(intent.max_bytes)} of memory"
        case SetPrecision():
            return PRECISIONS[intent.precision]
        case SetTarget():
            return "for another gpu" if intent.target is None else f"for the {intent.target}"
        case SetShapes():
            return _shapes(intent)
        case SetDtype():
            return f"use {intent.dtype} inputs"
        case ExplainLine():
            return _line(intent)
        case Diff():
            return _diff(intent)
        case Compare():
            against = "" if intent.second is None else f" with {name_of(intent.second)}"
            return f"compare {name_of(intent.first)}{against}"
        case TryIdea():
            return _idea(intent)
        case Undo():
            return "undo" if intent.steps == 1 else f"undo {intent.steps} steps"
        case SwitchBranch():
            return (
                "switch to the other branch"
                if intent.branch is None
                else f"switch to branch {intent.branch}"
            )
        case StopAt():
            if intent.runtime_us is not None:
                return f"stop at {intent.runtime_us:g} us"
            return f"stop at {intent.speedup:g}x"
        case SetBudget():
            return _budget(intent)
        case SetPolicy():
            return POLICIES[intent.policy]
        case WriteTo():
            where = f" to {intent.path}" if intent.path else ""
            return f"save it{where}" if intent.name == "save" else f"export the session{where}"
        case AskDocs():
            return f"search the docs for {intent.query}"
        case Edit():
            at = f" line {intent.line} of" if intent.line else ""
            return f"edit{at} {name_of(intent.candidate)}"


def sentences(intents: tuple[Intent, ...]) -> str:
    """Several requests in one line."""
    return " and ".join(sentence(item) for item in intents)


def name_of(ref: CandidateRef) -> str:
    """`c3`, or the place in words."""
    if isinstance(ref, int):
        return f"c{ref}"
    words = {"current": "the current one", "original": "the original", "parent": "its parent"}
    return words.get(ref, f"the {ref} one")


def _run(intent: Run) -> str:
    if intent.rounds is not None:
        return f"run {intent.rounds} more rounds"
    return "run again" if intent.seconds is None else f"run for {intent.seconds:g} seconds"


def _size(size: int) -> str:
    for factor, unit in ((2**30, "GB"), (2**20, "MB"), (2**10, "KB")):
        if size % factor == 0:
            return f"{size // factor} {unit}"
    return f"{size} bytes"


def _shapes(intent: SetShapes) -> str:
    parts = ["x".join(map(str, item)) for item in intent.shapes]
    if parts:
        return f"use shape {' and '.join(parts)}"
    sizes = [f"{item.name.replace('_', ' ')} {item.value}" for item in intent.sizes]
    return f"use {' and '.join(sizes)}" if sizes else "use other shapes"


def _line(intent: ExplainLine) -> str:
    place = "this line" if intent.line is None else f"line {intent.line}"
    if intent.last_line is not None:
        place = f"lines {intent.line} to {intent.last_line}"
    of = "" if intent.candidate == "current" else f" of {name_of(intent.candidate)}"
    return f"explain {place}{of}"


def _diff(intent: Diff) -> str:
    if intent.against != "parent":
        return f"diff {name_of(intent.candidate)} against {name_of(intent.against)}"
    return "show the diff" if intent.candidate == "current" else f"diff {name_of(intent.candidate)}"


def _idea(intent: TryIdea) -> str:
    if isinstance(intent.idea, int):
        if intent.idea <= len(ORDINALS):
            return f"try your {ORDINALS[intent.idea - 1]} idea"
        return f"try idea {intent.idea}"
    return "try the next idea" if intent.idea == "next" else "try your last idea"


def _budget(intent: SetBudget) -> str:
    if intent.rounds is not None:
        return f"at most {intent.rounds} rounds"
    if intent.usd is not None:
        return f"spend at most ${intent.usd:g}"
    return f"at most {intent.seconds:g} seconds"
