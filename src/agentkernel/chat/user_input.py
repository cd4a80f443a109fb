"""Lines typed by the user: sentence, pasted candidate, or the choice between two readings.

A sentence that the grammar does not know may be read by a model. The sentence is data, and the
model's answer counts only as far as it is a list of known requests.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from pydantic import Field

from agentkernel.agents.answers import NotStructured, ask_structured
from agentkernel.agents.models.protocol import Model
from agentkernel.agents.prompts import render
from agentkernel.chat.language import EXAMPLES
from agentkernel.chat.language.wish_scope import within
from agentkernel.chat.requests import (
    AskDocs,
    AskFact,
    AskGpu,
    CandidateRef,
    Cannot,
    Compare,
    Diff,
    Edit,
    ExplainLine,
    Fact,
    Impossible,
    Intent,
    IntentContext,
    IntentName,
    LessMemory,
    MemoryLimit,
    NotUnderstood,
    OnCandidate,
    OtherModule,
    Plain,
    Run,
    SetBudget,
    SetDtype,
    SetKnob,
    SetPolicy,
    SetPrecision,
    SetShapes,
    SetTarget,
    StopAt,
    Sweep,
    SwitchBranch,
    TryIdea,
    Understanding,
    Understood,
    Undo,
    WriteTo,
)
from agentkernel.domain.base import Frozen
from agentkernel.domain.errors import ModelUnavailable, one_line
from agentkernel.domain.exchange import Message, ModelRequest, Sampling
from agentkernel.domain.settings import MODEL_PREFIXES, Settings

ORDINALS = ("first", "second", "third", "fourth", "fifth")
ON_CANDIDATE = {
    "why_slow": ("why is it slow?", "why is {} slow?"),
    "profile": ("where does the time go?", "profile {}"),
    "roofline": ("how close are we to the roofline?", "show {} on the roofline"),
    "explain_kernel": ("explain this kernel", "explain {}"),
    "why_rejected": ("why was it rejected?", "why was {} rejected?"),
    "show_candidate": ("show the kernel", "show {}"),
    "show_kernel": ("show only the kernel", "show only the kernel of {}"),
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


FACTS: dict[Fact, str] = {
    "launch": "how many warps",
    "resources": "how many registers",
    "assembly": "show the ptx",
    "accuracy": "what is the accuracy",
    "holds": "which sizes are free",
    "repeatable": "is it deterministic, that",
    "speed": "is it faster than torch.compile",
    "use": "how do I put it in my model",
    "fusion": "which operations were fused",
    "checked": "how was it checked",
    "least_error": "which candidate has the lowest error",
    "accumulate": "does it accumulate in fp32",
    "autotune": "does it autotune",
    "noise": "is it noise",
    "timing": "how was it timed",
    "whole_model": "what is the gain of the whole model",
    "package": "how do I make a wheel",
}
"""Of these the ranking has learned."""
CERTAIN_FACTS: dict[Fact, str] = {
    "fastest": "which is fastest in fp32",
    "meaning": "what does roofline mean",
}
"""Of these it has not: they are read by words that leave no doubt."""
IMPOSSIBLE: dict[Impossible, str] = {
    "by_hand": "unroll the loop",
    "foresight": "would more warps help?",
    "format": "export it to onnx",
    "gpus": "use several gpus",
    "machine": "which driver version is this?",
    "other_baseline": "compare it with cudnn",
    "rounding": "use fast math",
    "module": "remove the bias",
    "shared": "use less shared memory",
    "shell": "run nvidia-smi",
    "clocks": "set the gpu clocks",
    "condition": "use 4 warps, and if it is slower undo it",
    "fleet": "how many dollars a month does it save?",
    "graphs": "use cuda graphs",
    "judge": "skip the judge",
    "targets": "build it for an h100 and an a100",
    "device": "run it on a TPU",
    "guarantee": "guarantee me 2x",
    "language": "write it in CUDA C++",
    "message": "send me an email",
    "other_run": "compare it with an earlier run",
    "proof": "prove it for every input",
    "repository": "open a pull request",
    "tolerance": "set rtol",
    "training": "quantise the weights",
}
"""A sentence for each thing that is never done."""


def sentence(intent: Intent) -> str:
    """Plain English for a request, in words that the grammar understands where it has any."""
    match intent:
        case Plain(name="more_aggressive"):
            return "be more aggressive"
        case Plain():
            return EXAMPLES[intent.name]
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
        case Compare(first="second_last", second="last"):
            return "compare the last two"
        case Compare():
            against = "" if intent.second is None else f" with {name_of(intent.second)}"
            return f"compare {name_of(intent.first)}{against}"
        case TryIdea():
            return _idea(intent)
        case Undo():
            return "undo" if intent.steps == 1 else f"undo {intent.steps} steps"
        case SwitchBranch(branch=None):
            return "switch to the other branch"
        case SwitchBranch():
            return f"switch to branch {intent.branch}"
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
        case AskFact():
            of = "" if intent.candidate == "current" else f" of {name_of(intent.candidate)}"
            return f"{(FACTS | CERTAIN_FACTS)[intent.about]}{of}?"
        case SetKnob():
            return _knob(intent) + _scope(intent)
        case Sweep() | AskGpu() | OtherModule() | Cannot():
            return _past_one_candidate(intent)


def sentences(intents: tuple[Intent, ...]) -> str:
    """Several requests in one line."""
    return " and ".join(sentence(item) for item in intents)


def name_of(ref: CandidateRef) -> str:
    """`c3`, or the place in words."""
    if isinstance(ref, int):
        return f"c{ref}"
    words = {"current": "the current one", "original": "the original", "parent": "its parent"}
    words["second_last"] = "the last but one"
    return words.get(ref, f"the {ref} one")


def _run(intent: Run) -> str:
    if intent.rounds is not None:
        return f"run {intent.rounds} more rounds"
    return "run again" if intent.seconds is None else f"run for {intent.seconds:g} seconds"


def _scope(intent: SetKnob | Sweep) -> str:
    """ " for add_kernel on c1"."""
    names = [name if name.endswith("_kernel") else f"the {name} kernel" for name in intent.kernels]
    of = f" for {' and '.join(names)}" if names else ""
    return of + ("" if intent.candidate == "current" else f" on {name_of(intent.candidate)}")


def _knob(intent: SetKnob) -> str:
    words = {"tensor_cores": "no tensor cores", "persistent": "make it persistent"}
    words["deterministic"] = "make it deterministic"
    if intent.knob == "persistent" and intent.value == 0:
        return "not persistent"
    words["split_k"] = "use split-k" if intent.value else "no split-k"
    if intent.knob == "tensor_cores" and intent.value:
        return "use tensor cores"
    if intent.former:
        return f"put the {intent.knob} back to what it was"
    if intent.knob == "registers" and intent.value == 0:
        return "remove the register limit"
    if intent.knob in words:
        return words[intent.knob]
    if intent.knob == "block" and intent.value is None:
        return f"use a {'larger' if intent.more else 'smaller'} block size"
    if intent.knob == "block":
        block = f"block_{intent.axis.lower()}" if intent.axis else "a block size"
        return f"use {block} of {intent.value}"
    if intent.value is not None:
        return f"use {intent.value} {intent.knob}"
    return f"use {'more' if intent.more else 'fewer'} {intent.knob}"


def _past_one_candidate(intent: Sweep | AskGpu | OtherModule | Cannot) -> str:
    match intent:
        case Sweep():
            axes = [f"{axis.knob} {','.join(map(str, axis.values))}" for axis in intent.axes]
            return f"sweep {' and '.join(axes)}" + _scope(intent)
        case AskGpu(shared_kb=None):
            return f"would it be faster on {intent.target}?"
        case AskGpu():
            return f"does {intent.shared_kb:g}k of shared memory fit on {intent.target}?"
        case OtherModule():
            return _module(intent)
        case Cannot():
            return IMPOSSIBLE[intent.about]


def _module(intent: OtherModule) -> str:
    if intent.path is None:
        return f"same for class {intent.class_name}"
    return f"optimise {intent.path}" + (f":{intent.class_name}" if intent.class_name else "")


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


MOST_DIGITS = 2


def pick_option(
    text: str, found: Understanding, options: tuple[tuple[Intent, ...], ...]
) -> tuple[Intent, ...] | None:
    """The one that a number names, counted from 1, or, where there is only one, that a yes in any
    wording means. `found`: what the grammar reads in `text`. None: it picks none."""
    word = text.strip().rstrip(".!").lower()
    if word.isdecimal() and len(word) <= MOST_DIGITS and 1 <= int(word) <= len(options):
        return options[int(word) - 1]
    if len(options) == 1 and found == Understood(intents=(Plain(name="approve"),)):
        return options[0]
    return as_said(text, options)


def as_said(text: str, options: tuple[tuple[Intent, ...], ...]) -> tuple[Intent, ...] | None:
    """The reading whose own sentence was typed: there is nothing to ask about that."""
    return next((item for item in options if _bare(sentences(item)) == _bare(text)), None)


def _bare(text: str) -> str:
    """Without case, and without what stands around the words."""
    return " ".join(text.lower().split()).strip(" .!?")


FENCE = re.compile(r"^\s*(`{3,}|~{3,})[^\n]*\n(.*?)(?:\n[ \t]*\1|\Z)", re.S)
BEGINS = re.compile(
    r"^\s*(?:import (?:torch|triton)\b|from (?:torch|triton|__future__)\b|@triton\b)"
)
MODEL_NEW = re.compile(r"^class ModelNew\b", re.M)
UNSEEN = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]")
COMMAND = re.compile(r"/([a-z][a-z-]*)(?=\s|\Z)", re.I)
MOST_SOURCE = 256 * 1024
"""Characters of a pasted file."""
MOST_SENTENCE = 600
"""Characters of a request in words."""
SHOWN = 120


class Sentence(NamedTuple):
    """A request in words, without characters that cannot be seen."""

    text: str


class Pasted(NamedTuple):
    """The source of a candidate."""

    source: str


class Unreadable(NamedTuple):
    """Neither: why, in one line, and what of it stands in the transcript."""

    why: str
    kept: str


def classify_input(text: str) -> Sentence | Pasted | Unreadable:
    """What `text` is. A fenced block, an import of torch or a class ModelNew begin a candidate."""
    plain = readable(text)
    if is_source(plain):
        source = _unfenced(plain)
        if len(source) > MOST_SOURCE:
            return _too_long(text, f"a candidate of at most {MOST_SOURCE:,} characters")
        return Pasted(source)
    words = UNSEEN.sub("", plain).strip()
    if not words:
        why = "Nothing was typed. 'help' lists what can be asked."
        return Unreadable(why if not plain.strip() else f"No letters in it. {why}", "")
    command = COMMAND.match(words)
    if command:
        why = f"{command[0]!r} is a command of 'agentkernel chat', alone on a line. Expected words"
        return Unreadable(f"{why}. Next: 'help' lists what can be asked.", words[:SHOWN])
    if len(words) > MOST_SENTENCE:
        return _too_long(text, f"a sentence of at most {MOST_SENTENCE}, or a file with ModelNew")
    return Sentence(words)


def readable(text: str) -> str:
    """`text` with plain line ends and without halves of characters, which cannot be written."""
    whole = text.encode("utf-8", "replace").decode("utf-8")
    return whole.replace("\r\n", "\n").replace("\r", "\n")


def is_source(text: str) -> bool:
    """True where it reads as a file and not as a sentence."""
    return bool(FENCE.match(text) or BEGINS.match(text) or MODEL_NEW.search(text))


def _unfenced(text: str) -> str:
    found = FENCE.match(text)
    source = found[2] if found else text
    return source.strip("\n") + "\n"


def _too_long(text: str, expected: str) -> Unreadable:
    why = f"That is {len(text):,} characters. Expected {expected}. Next: a shorter one."
    head = " ".join(UNSEEN.sub("", text[:SHOWN]).split())
    return Unreadable(why, f"{head} ... ({len(text):,} characters)")


MOST_REQUESTS = 6


class Requests(Frozen):
    """What a sentence asks for, in order; empty where it asks for nothing of the kind."""

    intents: tuple[Intent, ...] = Field(max_length=MOST_REQUESTS)


def reading_model(settings: Settings) -> str | None:
    """The model that may read sentences: the planner's, else the coder's; None without any."""
    named = (settings.models.planner, settings.coder, *settings.team.members)
    return next((item for item in named if item and item.startswith(MODEL_PREFIXES)), None)


def prompt(text: str, context: IntentContext, examples: dict[IntentName, str]) -> str:
    """What the model is asked."""
    return render("intent", sentence=text, context=context, examples=examples, most=MOST_REQUESTS)


def read_with(
    model: Model,
    sampling: Sampling,
    text: str,
    context: IntentContext,
    examples: dict[IntentName, str],
    tell: Callable[[str], None],
) -> tuple[Intent, ...]:
    """The requests that the model reads, none where it gives nothing that counts. `tell` hears in
    one line why it did not answer."""
    question = ModelRequest(
        agent="reader",
        round=0,
        messages=(Message(role="user", text=prompt(text, context, examples)),),
        sampling=sampling,
    )
    try:
        found = ask_structured(model, question, Requests)
    except ModelUnavailable as error:
        tell(f"the model cannot read the sentence: {one_line(error)}")
        return ()
    if isinstance(found, NotStructured):
        tell(f"{model.name} gave no request that can be read")
        return ()
    intents = tuple(item for item in found.intents if _exists(item, context))
    scoped = within(Understood(intents=intents), text, context) if intents else None
    if isinstance(scoped, NotUnderstood):
        tell(scoped.reason)
    return scoped.intents if isinstance(scoped, Understood) else ()


def _exists(intent: Intent, context: IntentContext) -> bool:
    """False for a candidate that is not there: a model may make one up."""
    named = [getattr(intent, name, None) for name in ("candidate", "against", "first", "second")]
    numbers = [item for item in named if isinstance(item, int)]
    return not context.candidates or all(item in context.candidates for item in numbers)
