"""Values of a clause, read apart from its frame, and the requests that a label makes of them.

A label of the ranking says what a clause asks for; here its numbers, names and directions are
found wherever they stand in it. A value that is missing, or one too many, makes no request.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, get_args

from pydantic import ValidationError

from agentkernel.chat.language.grammar import read_only_requests
from agentkernel.chat.language.kernel_words import USUAL, read_axes
from agentkernel.chat.language.phrases import marked_tags
from agentkernel.chat.language.questions import CLASS, FILE, SHARED, asked_gpus, said
from agentkernel.chat.language.slots import SLOTS, SlotRule, intent_of, is_value
from agentkernel.chat.language.tagging import (
    Tag,
    spelled_number,
    words_of,
)
from agentkernel.chat.requests import (
    AskDocs,
    AskFact,
    CandidateRef,
    Cannot,
    Diff,
    Fact,
    Impossible,
    Intent,
    IntentContext,
    Knob,
    LessMemory,
    OnCandidate,
    OtherModule,
    Plain,
    Run,
    SetBudget,
    SetKnob,
    SetShapes,
    Size,
    StopAt,
    Sweep,
    SweepAxis,
    Undo,
    Which,
    WriteTo,
)

Axis = Literal["", "M", "N", "K"]
CONTRAST = re.compile(
    r",? (?:instead of|rather than|in place of|as opposed to|up from|down from|and not|not) "
    r"(?:the |an? |my )?(?:\w+[ =])??(?:[\w.]*\d[\w.]*|half|single|double)(?: (?:warps|stages"
    r"|inputs|ones?))?(?=$|[,.;!?])",
    re.I,
)
"""What something is not to be: "batch 1 instead of 32", "fp16, not bf16"."""
FROM_TO = re.compile(r"\bfrom \d+ (?=to \d)", re.I)
NUMBER = re.compile(r"(?<![\w.])(\d{1,6})(?![\w.%]|\.\d)")
NAMED_NUMBER = re.compile(r"\b(?:num_?)?(?:warps|stages|max_?n?regs?|block(?:_size)?)[=: ]*(\d+)\b")
TILE = re.compile(r"\b(\d+) ?(?:x|×|\*|by) ?(\d+)(?: ?(?:x|×|\*|by) ?(\d+))?\b")
AXIS = re.compile(
    r"\b(?:block|tile|b)_?(?:size_?)?([mnk])\b|\b(?:along|in|over) (?:the )?([mnk])\b", re.I
)
BLOCK_VALUE = re.compile(
    r"\b(?:block|tile|b)_?(?:size_?)?([mnk])[ =:]*(?:to |of |is )?(\d+)\b", re.I
)
LESS = words_of(
    "fewer less reduce lower decrease cut smaller halve half shrink narrower drop down lessen "
    "squeeze diet minimise minimize shallower"
)
MORE = words_of(
    "more increase raise higher bump double bigger larger twice grow wider deeper taller enlarge "
    "fatter up doubled"
)
FORMER = re.compile(
    r"\b(?:put|set|bring|change|turn|move|go|goes)\b.*\bback\b(?!.*\d)|\bback to (?:what|the old)"
    r"|\b(?:previous|former|old) value",
    re.I,
)
NO_LIMIT = re.compile(
    r"\b(?:lift|remove|drop|undo|off|away|rid|release|unlimit\w*|no limit|no cap|uncap\w*)\b", re.I
)
KNOB_NOUNS: dict[Knob, re.Pattern[str]] = {
    "warps": re.compile(r"warp|wrap", re.I),
    "stages": re.compile(r"stage|stgae|pipelin", re.I),
    "registers": re.compile(r"reg", re.I),
    "block": re.compile(r"block|tile|\bb[mnk]\b", re.I),
}
SWEPT: tuple[tuple[Knob, str], ...] = (("warps", "warps"), ("stages", "stages"), ("block", "size"))


@dataclass(frozen=True)
class Clause:
    """A part of a line as typed, and what the readers see in it."""

    shown: str
    context: IntentContext

    @cached_property
    def tags(self) -> tuple[Tag, ...]:
        """With values joined and polarity marked."""
        return marked_tags(self.shown, self.context.targets)

    @cached_property
    def plain(self) -> str:
        """In lower case, and without what is ruled out beside the value that is wanted."""
        return FROM_TO.sub("", CONTRAST.sub("", self.shown.strip())).strip().lower()

    @cached_property
    def words(self) -> frozenset[str]:
        """Of the lower-case text."""
        return frozenset(re.findall(r"[a-z0-9_'.-]+", self.plain))

    @cached_property
    def candidate(self) -> CandidateRef:
        """The one that is named, else the current one."""
        for tag in self.tags:
            if tag.has("CAND") and isinstance(tag.value, int | float) and tag.value >= 1:
                return int(tag.value)
        return "current"


def changes_nothing(label: str) -> bool:
    """True for a label that only looks, asks or says."""
    return label.partition("=")[0] in read_only_requests()


def requests_of(label: str, clause: Clause) -> tuple[Intent, ...]:
    """The requests of `label` with the values of `clause`; none where these do not fit it."""
    name, _, rest = label.partition("=")
    maker = MAKERS.get(name)
    try:
        return maker(rest, clause) if maker is not None else _of_the_grammar(label, clause)
    except ValidationError:
        return ()


PLACES: tuple[tuple[Which, re.Pattern[str]], ...] = (
    (
        "original",
        re.compile(r"\b(?:original|eager|my (?:own )?(?:module|code|version|layer|model))\b"),
    ),
    ("previous", re.compile(r"\b(?:one|candidate|version) before\b|\bprevious\b|\bback one\b")),
    ("fastest", re.compile(r"\b(?:fastest|best|quickest|winner)\b")),
    ("parent", re.compile(r"\bparent\b")),
)
"""Candidates by their place, where no number names one."""
RUNS_A_SETTING = re.compile(
    r"^(?:please |and |now |ok |then )*(?:(?:re-?run|run|redo|repeat) (?:it|this|that|everything"
    r"|again)"
    r"|rerun|re-run)\b|\b(?:re-?run|redo|run|repeat) (?:it|this|that)(?: again)? (?:for|with) "
    r"(?:that|it|those|this)\b|\band (?:go|run|re-?run)\b(?: it)?$"
)
"""A setting that is to be run with at once: "rerun at batch 1"."""
SETTINGS_OF_INPUTS = frozenset({"shapes", "dtype", "target"})
STEPS = re.compile(
    r"\b(?:last|past|back|undo|revert) (?:the last )?(\d+|two|three|four|five)\b|\b(\d+|two"
    r"|three|four|five) (?:steps|changes|times)\b|\b(twice)\b"
)
FIGURE = re.compile(r"\d+(?:\.\d+)?")
COUNTS = {"two": 2, "twice": 2, "three": 3, "four": 4, "five": 5}
ROUNDS = re.compile(
    r"(?<!have )(?<!had )(?<!are )\b(\d+) "
    r"(?:rounds?|candidates?|tries|attempts|iterations|kernels|versions)\b"
)
MORE_ROUNDS = re.compile(
    r"\b(\d+|two|three|four|five) (?:more|further|additional)\b(?! \w*(?:min|hour|sec|stage|warp))"
    r"|\banother (\d+|two|three|four|five)\b(?! \w*(?:min|hour|sec))"
    r"|\b(\d+|two|three|four|five) (?:(?:more|further) )?"
    r"(?:rounds?|iterations?|tries|attempts|goes)\b"
)
GOAL = re.compile(r"\b(\d+(?:\.\d+)?) ?(?:x|times)\b")
LINE = re.compile(r"\bl(?:ines?|n|\.)? ?\d")
NUMBERED = frozenset({"compare", "diff", "explain_line", "edit", "try_idea"})
"""Requests in which a bare number may name what they are about."""


def _of_the_grammar(label: str, clause: Clause) -> tuple[Intent, ...]:
    """A request of the grammar: where it only looks, other values only describe."""
    shown = FROM_TO.sub("", CONTRAST.sub("", clause.shown))
    tags = Clause(shown, clause.context).tags
    name = label.partition("=")[0]
    if name == "explain_kernel" and LINE.search(clause.plain):
        return ()
    if changes_nothing(label):
        if _leaves_a_value(tags, name):
            return ()
        kinds = SLOTS.get(label, SlotRule()).kinds - (frozenset() if name in NUMBERED else {"NUM"})
        tags = tuple(
            tag
            for tag in tags
            if (tag.has(*kinds) if is_value(tag) else not any(map(str.isdigit, tag.text)))
        )
    if name in SETTINGS_OF_INPUTS:
        return _inputs(name, tags, clause, shown)
    found = intent_of(label, tags, clause.context, shown) or _by_its_words(name, clause)
    if found is None or not _exists(found, clause.context):
        return ()
    return (_with_its_place(found, clause),)


def _leaves_a_value(tags: tuple[Tag, ...], name: str) -> bool:
    """True for "what's the bottleneck 13x": a value at the end that belongs to nothing, and for a
    candidate where none can be meant."""
    words = [tag for tag in tags if not tag.has("MARK")]
    slots = SLOTS.get(name, SlotRule())
    if any(tag.has("CAND") and not isinstance(tag.value, str) for tag in tags):
        return not slots.kinds & {"CAND"}
    if any(tag.has("DURATION", "BYTES", "MONEY", "STEPS", "ROUNDS") for tag in words):
        return True
    if len(words) < MOST_BARE or words[-1].has(*slots.kinds):
        return False
    if len(words) > MOST_BARE and words[-2].has("QUANTITY"):
        return True
    odd = any(map(str.isdigit, words[-1].text)) and not words[-1].concepts
    before = words[-2]
    joined = (
        before.has("PREP", "FILLER", "AUX", "AGAINST", "GOAL", "ATLEAST") or not before.concepts
    )
    ends = tags[-1 - (tags[-1].has("MARK"))] if len(tags) > 1 else tags[-1]
    alone = len(tags) > 1 and ends is words[-1] and _behind_a_mark(tags, words[-1])
    value = is_value(words[-1]) or words[-1].has("QUANTITY") or odd
    return value and (alone or not joined)


def _behind_a_mark(tags: tuple[Tag, ...], last: Tag) -> bool:
    at = tags.index(last)
    return at > 0 and tags[at - 1].has("MARK")


MOST_BARE = 2


MEASURED = ("TIMES", "RUNTIME", "DURATION", "BYTES", "MONEY", "PERCENT")
"""Figures of which a question has one at most, to say what it is about."""


def _ends_in_a_value(tags: tuple[Tag, ...]) -> bool:
    """True for "batch size 13x": a noun and a figure that says nothing of it."""
    words = [tag for tag in tags if not tag.has("MARK")]
    bare = len(words) == MOST_BARE and words[0].has("SIZENAME")
    return bare and words[1].has(*MEASURED)


def _inputs(name: str, tags: tuple[Tag, ...], clause: Clause, shown: str) -> tuple[Intent, ...]:
    """Settings of what is timed that stand beside each other: "hidden=5120 fp16", "rerun at"."""
    dtypes = tuple(
        tag for tag in tags if tag.has("DTYPE", "BF16", "FP32") and not tag.has("FILLER")
    )
    kinds = [tag for tag in tags if is_value(tag)]
    several = name == "shapes" and 0 < len(dtypes) < len(kinds) and len(dtypes) == 1
    parts = [(name, tuple(tag for tag in tags if not several or tag not in dtypes))]
    if several:
        parts.append(("dtype", dtypes))
    found = [intent_of(each, some, clause.context, shown) for each, some in parts]
    kept = tuple(item for item in found if item is not None)
    if len(kept) < len(parts) or (name == "shapes" and _sizeless(kept[0])):
        return ()
    runs = RUNS_A_SETTING.search(clause.plain.rstrip(" .!"))
    return (*kept, Run()) if runs else kept


def _sizeless(intent: Intent) -> bool:
    return isinstance(intent, SetShapes) and not intent.shapes and not intent.sizes


def _by_its_words(name: str, clause: Clause) -> Intent | None:
    """What names its value by words that are no tag's: "the one before", "the last two"."""
    text = clause.plain
    if len(FIGURE.findall(text)) > 1:
        return None
    if name in ("return_to", "decline") and FIGURE.search(text):
        return None
    if name == "return_to":
        place = place_in(text)
        return OnCandidate(name="return_to", candidate=place) if place else None
    if name == "run" and (more := MORE_ROUNDS.search(text)):
        count = next(item for item in more.groups() if item)
        return Run(rounds=COUNTS.get(count) or int(count))
    if name == "undo":
        steps = STEPS.search(text)
        said_steps = next((item for item in steps.groups() if item), "") if steps else ""
        return Undo(steps=COUNTS.get(said_steps) or int(said_steps)) if said_steps else None
    if name == "budget" and (rounds := ROUNDS.search(text)):
        return SetBudget(rounds=int(rounds[1]))
    if name == "stop_at" and (goals := GOAL.findall(text)):
        return StopAt(speedup=float(goals[-1])) if len(set(goals)) == 1 else None
    return Plain(name="decline") if name == "decline" else None


def place_in(text: str) -> Which | None:
    """The candidate that is named by its place."""
    return next((place for place, words in PLACES if words.search(text)), None)


def _with_its_place(intent: Intent, clause: Clause) -> Intent:
    """The same, about the candidate that is named by its place where no number names one."""
    place = place_in(clause.plain)
    if isinstance(intent, Diff) and intent == Diff() and place == "original":
        return Diff(against="original")
    return intent


def _exists(intent: Intent, context: IntentContext) -> bool:
    if not isinstance(intent, OnCandidate) or not isinstance(intent.candidate, int):
        return True
    return not context.candidates or intent.candidate in context.candidates


DIMENSIONS = (
    r"batch(?:[_ ]?size)?|bs|m|n|k|q_?len|kv_?len|seq(?:uence)?(?:[_ ]?len(?:gth)?)?|hidden"
    r"(?:[_ ]size|[_ ]dim)?|d_?model|head_dim|heads|tokens|rows|cols|columns|channels|height|width"
    r"|vocab(?:_size)?|features|dim"
)
SIZED = re.compile(
    rf"\b({DIMENSIONS})(?: ?[=:] ?| (?:is |are |of |to |at |should be |always |now )*)(\d+)\b"
)
SHAPE = re.compile(r"\b\d+(?: ?(?:x|×|\*|by) ?\d+)+\b")


def _shapes(rest: str, clause: Clause) -> tuple[Intent, ...]:
    """By the grammar's values; else by dimensions that it has no word for, and "4096 x 5120"."""
    found = _of_the_grammar("shapes", clause)
    text = clause.plain
    if found or FIGURE.findall(SHAPE.sub(" ", SIZED.sub(" ", text))):
        return found
    shapes = tuple(tuple(map(int, FIGURE.findall(each))) for each in SHAPE.findall(text))
    sizes = tuple(
        Size(name=_dimension(name), value=int(value))
        for name, value in SIZED.findall(SHAPE.sub(" ", text))
    )
    return (SetShapes(shapes=shapes, sizes=sizes),) if shapes or sizes else ()


def _dimension(name: str) -> str:
    joined = name.replace(" ", "_")
    return "batch" if joined in ("batch_size", "batchsize", "bs") else joined


def _less_memory(rest: str, clause: Clause) -> tuple[Intent, ...]:
    halved = not clause.words.isdisjoint(("half", "halve", "halved", "halving"))
    return tuple(
        LessMemory(fraction=0.5) if halved and item == LessMemory() else item
        for item in _of_the_grammar("less_memory", clause)
    )


FOLDER = re.compile(
    r"\b(?:to|into|under) (?:the (?:folder|directory) )?(?P<path>[\w~.][\w./~-]*)"
    r"(?:,? (?:please|pls|now|thanks|thx))*[.! ]*$"
)
NO_FOLDER = words_of(
    "a an the it me us my our disk file files folder here there markdown json text html pdf git "
    "one this that full end date triton"
)


def _export(rest: str, clause: Clause) -> tuple[Intent, ...]:
    folder = FOLDER.search(clause.shown)
    path = folder["path"].rstrip(".") if folder else ""
    if not folder or not path or path.lower() in NO_FOLDER:
        return _of_the_grammar("export", clause)
    found = _of_the_grammar("export", Clause(clause.shown[: folder.start()], clause.context))
    return tuple(
        item.evolve(path=path) if isinstance(item, WriteTo) and item.path is None else item
        for item in found
    )


LOOKED_UP = (
    re.compile(
        r"\b(?:docs?|documentation|notes?|knowledge(?: base)?|manual|handbook)\b"
        r"(?: (?:say|have))?(?: (?:for|about|on|regarding|to say (?:about|on))|:| -)+ "
        r"(?P<query>.+)$",
        re.I,
    ),
    re.compile(
        r"\b(?:look(?:ing)? up|search(?: for)?|google|find|rtfm)"
        r"(?: (?:something|anything|me)?(?: ?(?:on|about|for))?)? "
        r"(?P<query>.+?)(?: (?:in|from) (?:the |your )?(?:docs|documentation|notes|manual"
        r"|knowledge base))?$",
        re.I,
    ),
)
REFUSED = re.compile(r"\b(?:don't|dont|do not|never|no need|stop)\b", re.I)


def _ask_docs(rest: str, clause: Clause) -> tuple[Intent, ...]:
    """What is to be looked up; of a question without a place to look, all of it."""
    text = clause.shown.strip(" .,;:!?\"'")
    if REFUSED.search(text) or not text:
        return ()
    found = next((match for each in LOOKED_UP if (match := each.search(text))), None)
    return (AskDocs(query=(found["query"] if found else text).strip(" .,;:!?\"'") or text),)


SPEEDS = words_of("slow slower fast faster quick quicker")
"""Words by which it is not asked whether something works."""


def _fact(rest: str, clause: Clause) -> tuple[Intent, ...]:
    if _ends_in_a_value(clause.tags) or sum(tag.has(*MEASURED) for tag in clause.tags) > 1:
        return ()
    about: Fact = next(item for item in get_args(Fact) if item == rest)
    if about == "holds" and not SPEEDS.isdisjoint(clause.words):
        return ()
    return (AskFact(about=about, candidate=clause.candidate),)


def _cannot(rest: str, clause: Clause) -> tuple[Intent, ...]:
    about: Impossible = next(item for item in get_args(Impossible) if item == rest)
    return (Cannot(about=about),)


def _thanks(rest: str, clause: Clause) -> tuple[Intent, ...]:
    return (Plain(name="thanks"),)


def _show_kernel(rest: str, clause: Clause) -> tuple[Intent, ...]:
    return (OnCandidate(name="show_kernel", candidate=clause.candidate),)


def _gpu(rest: str, clause: Clause) -> tuple[Intent, ...]:
    shared = SHARED.search(clause.plain)
    kb = float(shared[1] or shared[2]) if shared else None
    return asked_gpus(clause.plain, clause.context, kb)


def _module(rest: str, clause: Clause) -> tuple[Intent, ...]:
    file, named = FILE.search(clause.shown), CLASS.search(clause.shown)
    name = (named[1] or named[2]) if named else None
    if file is not None:
        behind = clause.shown[file.end() :]
        name = file[2] or name or _camel(clause.shown[: file.start()]) or _camel(behind)
        return (OtherModule(path=file[1], class_name=name),)
    name = name or _camel(clause.shown)
    return (OtherModule(class_name=name),) if name else ()


CAMEL = re.compile(r"\b((?!I\b|GPU|CUDA|PTX|SASS)[A-Z][a-z0-9]*(?:[A-Z]+[a-z0-9]*)+)\b")


def _camel(text: str) -> str | None:
    found = CAMEL.search(text)
    return found[1] if found else None


def _knob(rest: str, clause: Clause) -> tuple[Intent, ...]:
    name, _, value = rest.partition("=")
    knob: Knob = next(item for item in get_args(Knob) if item == name)
    if value:
        return (SetKnob(knob=knob, value=int(value)),)
    if knob == "deterministic":
        return (SetKnob(knob=knob, value=1),)
    if not KNOB_NOUNS[knob].search(clause.plain) or "code" in clause.words:
        return ()
    return _block(clause) if knob == "block" else _counted(knob, clause)


def offered_knob(clause: Clause) -> tuple[Intent, ...]:
    """The wish about the launch that a question is about; none where it names none."""
    found = (requests_of(f"knob={knob}", clause) for knob in KNOB_NOUNS)
    return next((each for each in found if each), ())


def _block(clause: Clause) -> tuple[Intent, ...]:
    pairs = BLOCK_VALUE.findall(clause.plain)
    if pairs:
        return tuple(SetKnob(knob="block", value=int(size), axis=_axis(a)) for a, size in pairs)
    tile = TILE.search(clause.plain)
    if tile is not None:
        sizes = [int(item) for item in tile.groups() if item is not None]
        axes: tuple[Axis, ...] = ("M", "N", "K")
        return tuple(
            SetKnob(knob="block", value=size, axis=axis)
            for axis, size in zip(axes, sizes, strict=False)
        )
    found = AXIS.search(clause.plain)
    axis = _axis(found[1] or found[2]) if found else ""
    return _counted("block", clause, axis)


def _axis(letter: str) -> Axis:
    known: dict[str, Axis] = {"m": "M", "n": "N", "k": "K"}
    return known.get(letter.lower(), "")


def _counted(knob: Knob, clause: Clause, axis: Axis = "") -> tuple[Intent, ...]:
    """So many; else fewer, more, or as many as before."""
    numbers = numbers_of(clause)
    others = [
        item for item, noun in KNOB_NOUNS.items() if item != knob and noun.search(clause.plain)
    ]
    if len(numbers) == 1 and not others:
        return (SetKnob(knob=knob, value=numbers[0], axis=axis),) if numbers[0] > 0 else ()
    if numbers:
        return ()
    if knob == "registers" and NO_LIMIT.search(clause.plain):
        return (SetKnob(knob=knob, value=0),)
    if FORMER.search(clause.plain):
        return (SetKnob(knob=knob, former=True, axis=axis),)
    less, more = not clause.words.isdisjoint(LESS), not clause.words.isdisjoint(MORE)
    return (SetKnob(knob=knob, more=more, axis=axis),) if less != more else ()


def numbers_of(clause: Clause) -> list[int]:
    """The bare counts: no sizes of targets, candidates, speedups or units."""
    text = re.sub(r"\b(?:candidate |c)\d+\b", " ", clause.plain)
    found = [int(item) for item in (*NAMED_NUMBER.findall(text), *NUMBER.findall(text))]
    words = [] if found else [word for word in text.split() if word.isalpha() and word != "one"]
    numerals = [spelled_number([word]) for word in words]
    spelt = [int(item.value) for item in numerals if item is not None]
    return list(dict.fromkeys(found or spelt))


BRACKETS = re.compile(r"[{}()\[\]:]")


def _sweep(rest: str, clause: Clause) -> tuple[Intent, ...]:
    axes = read_axes(" ".join(BRACKETS.sub(" ", clause.plain).split()))
    if axes:
        return (Sweep(axes=axes),) if any(len(axis.values) > 1 for axis in axes) else ()
    named = [knob for knob, noun in SWEPT if KNOB_NOUNS[knob].search(clause.plain)]
    if not named or numbers_of(clause):
        return ()
    return (Sweep(axes=tuple(SweepAxis(knob=knob, values=USUAL[knob]) for knob in named)),)


Maker = Callable[[str, Clause], tuple[Intent, ...]]
MAKERS: dict[str, Maker] = {
    "fact": _fact,
    "cannot": _cannot,
    "thanks": _thanks,
    "show_kernel": _show_kernel,
    "gpu": _gpu,
    "module": _module,
    "knob": _knob,
    "sweep": _sweep,
    "shapes": _shapes,
    "less_memory": _less_memory,
    "export": _export,
    "ask_docs": _ask_docs,
}


def asks(tags: Sequence[Tag], shown: str) -> bool:
    """True where the line ends as a question."""
    return said(shown).asked or (bool(tags) and tags[-1].text == "?")
