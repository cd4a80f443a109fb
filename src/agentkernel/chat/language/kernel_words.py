"""Questions about a kernel's facts, and wishes about how it is launched, by a kernel's own words.

A sentence is one of these where it names a thing that only a kernel has (warps, registers, PTX),
and every other word of it is a common one: one word more, and it is left alone.
"""

from __future__ import annotations

import difflib
import re
from typing import Literal, NamedTuple

from agentkernel.chat.language.tagging import words_of
from agentkernel.chat.requests import (
    AskFact,
    CandidateRef,
    Fact,
    Intent,
    IntentContext,
    IntentName,
    Knob,
    Plain,
    SetKnob,
    Sweep,
    SweepAxis,
)

PHRASES = (
    (r"num[_ -]?warps|warps?|wavefronts?", "WARPS"),
    (r"num[_ -]?stages|stages?|pipeline (?:stages?|depth)", "STAGES"),
    (r"register (?:pressure|usage|count)|max[_ -]?n?reg(?:s|isters)?|registers?|regs?",
     "REGISTERS"),
    (r"spills?|spilling|spilled", "SPILLS"),
    (r"shared mem(?:ory)?|smem|occupancy", "SHARED"),
    (r"(?:per|each) (?:thread|block|cta|sm)\b", "EACH"),
    (r"(?:block|tile)[_ -]?(?:sizes?|shapes?|dims?)|(?:block|tile)[_ ][mnk]|blocks?|tiles?|ctas?"
     r"|grid|launch (?:config(?:uration)?|parameters?|grid)|thread blocks?", "BLOCKS"),
    (r"how many (?:kernels|launches)", "BLOCKS"),
    (r"threads?(?: (?:per|a) block)?|programs?", "THREADS"),
    (r"ptx|sass|assembly|assembler|machine code|disassembly|cubin", "ASSEMBLY"),
    (r"tensor[- ]?cores?|h?mma|wgmma|hgmma", "TENSOR"),
    (r"split[- _]?k", "SPLITK"),
    (r"persistent(?: kernels?)?", "PERSISTENT"),
    (r"bitwise|bit[- ]for[- ]bit|bit[- ]identical|repeatab(?:le|ility)|reproducib(?:le|ility)"
     r"|deterministic(?:ally)?|determinism|nondeterministic|same bits|same results?|atomics?",
     "REPEATABLE"),
    (r"(?:what|which) (?:sizes?|shapes?|dims?|dimensions?|axes|axis) (?:is|are|can be) (?:free"
     r"|dynamic|fixed|static|baked(?: in)?|speciali[sz]ed|hard-?coded)", "SIZES"),
    (r"(?:free|other|different|another|dynamic|variable|which|what) "
     r"(?:batch )?(?:sizes?|shapes?|batch sizes?|batch)", "SIZES"),
    (r"(?:eval|evaluation)(?: mode)?|train(?:ing|\(\))?(?: mode)?|backward(?:s)?(?: pass)?"
     r"|gradients?"
     r"|grads?|autograd|inference(?: mode)?|forward only", "MODES"),
    (r"(?:in|into|to|from|inside) (?:of )?(?:my|our|the|a) (?:own )?"
     r"(?:model|code|network|project|module|script|program|repo|codebase|pipeline)", "MODEL"),
    (r"accura(?:te|cy)|numerically (?:accurate|correct)|numerics|precise|exact", "ACCURACY"),
    (r"errors?|err", "ERROR"),
    (r"fp64|float64|double precision|the oracle", "FP64"),
    (r"torch\.compile|torch compile|inductor|max-autotune", "COMPILED"),
    (r"eager(?: pytorch)?", "EAGER"),
)  # fmt: skip
"""What a kernel has, by the word that stands for it below; longer phrases are tried first."""
NOUNS = re.compile(
    "|".join(f"(?P<N{at}>\\b(?:{text})(?![\\w.]))" for at, (text, _) in enumerate(PHRASES))
)
CANDIDATE = re.compile(r"\b(?:candidate )?c?(\d{1,6})\b")
COMMON = words_of(
    "a an the this that it its it's my our me i you we us of for in on per to with by from "
    "does do did is are was will would can could be been have has had get got uses use used "
    "using need needs take takes launch launches launched run runs work works support "
    "supports hold holds what what's whats which how many much big large there any all each "
    "every kernel kernels candidate drop-in one now at please show tell give list print see "
    "look know want like about currently or and if when as against compared versus vs than "
    "only same still also here so ok go value number count amount code result results answer "
    "time twice run-to-run produce produces gives out actually really across during inside "
    "version generated numerical verified judged tested proven valid hit hits close identical "
    "running anything there max maximum abs absolute rel relative + & too or closer far "
    "away baked dynamic static specialised specialized hardcoded am whats hows pls wrt against "
    "right sitting per thread block sm both worst set end ended up bytes kb tuned chosen choose "
    "pick "
    "picked settle settled pressure size bit so flow average total exactly roughly currently"
)
"""Words that a question about a fact may have besides."""
ASKING = words_of(
    "what what's whats which how show tell give list print see does do is are can could will "
    "know did has have dump"
)
BARE = words_of(
    "a the per of its it + & and vs versus against max maximum abs absolute worst current kernel "
    "this our in on sm thread block each every total"
)
"""Words of a question that is a noun alone: "regs per thread + spills"."""
NO_VERB = frozenset(
    {"WARPS", "STAGES", "REGISTERS", "SPILLS", "SHARED", "ERROR", "ACCURACY", "ASSEMBLY", "FP64",
     "EAGER", "COMPILED", "BLOCKS", "THREADS", "EACH"}
)  # fmt: skip
WISHING = words_of(
    "use try set make take put run give with please and to the a an of it this that now just "
    "only instead me kernel kernels number count "
    "value one size at for in on my launch reduce lower fewer less decrease cut limit cap be "
    "as should must keep down more increase raise higher bump double halve half smaller bigger "
    "larger version variant one result results output outputs bitwise dot dots gemm matmul matmuls "
    "products product so it's needs with + & go up crank push dial twice many switch change bring "
    "force let's lets while back "
    "same but max most maximum"
)
"""Words that a wish may have besides."""
SUPERLATIVES = words_of("most least lowest best smallest highest fastest")
"""Of several candidates: not of one."""
LESS = words_of("fewer less reduce lower decrease cut down limit cap smaller halve half")
MORE = words_of("more increase raise higher bump double bigger larger twice")
NEGATIONS = re.compile(
    r"\b(?:no|not|don't|do not|without|avoid|disable|never|non|stop using"
    r"|turn off|switch off|get rid of|dont|forbid)\b"
)
AXIS = re.compile(r"\b(?:block|tile)[_ ]([mnk])\b")
BASELINES = frozenset({"COMPILED", "EAGER"})
FASTER = words_of(
    "faster quicker slower beat beats better speedup fast ahead compare compares fare"
)
USING = words_of("put use apply import plug integrate insert drop install load")
NEVER_MIND = re.compile(
    r"^(?:ok(?:ay)?|no|oh|ah|actually|well|sorry|wait|hmm|,| )*"
    r"(?:never ?mind|nvm|(?:ignore|forget) (?:that|it|about it)|forget about it)"
    r"(?:,| |please|then|for now|thanks|that|about it|it)*[.!]*$"
)

DEFINITION = re.compile(
    r"what(?:'s| is| are) (?!the\b|its?\b|this\b|different|other|free)|(?:what|how) about|what if"
)
"""How one asks what a word means, "what is a warp", or for something: "what about 8 warps"."""
POLITE = re.compile(
    r"(?:(?:can|could|would|will) (?:you|we)|let's|let us|i (?:want|would like) (?:you )?to"
    r"|i'd like (?:you )?to|i (?:need|want)|what (?:about|if (?:you|we))|how about)\b"
)
"""How a wish may begin as a question."""
HOW_TO_USE = re.compile(
    r"^(?:so |and |ok(?:ay)? )*(?:how (?:do|can|would) (?:i|we) (?:use|apply|import|install) "
    r"(?:it|the drop-in)|what do (?:i|we) import)(?: now| then)?\W*$"
)

EXAMPLES: dict[IntentName, str] = {
    "compare_all": "compare all candidates",
    "fact": "how many warps does it use?",
    "knob": "use 4 warps",
    "sweep": "sweep 4, 8 and 16 warps",
    "gpu": "would it be faster on an a100?",
    "show_kernel": "show only the kernel",
    "module": "optimise mlp.py:Mlp",
    "thanks": "nice, thanks",
}
"""A sentence for each request, for the help."""


class _Read(NamedTuple):
    """A sentence: the things that it names, its numbers, and its other words."""

    named: tuple[str, ...]
    numbers: tuple[int, ...]
    words: frozenset[str]
    negated: bool
    candidate: CandidateRef


def waves_off(text: str) -> bool:
    """True for "actually never mind": what was said last is not wanted, and nothing else is."""
    return bool(NEVER_MIND.match(text.strip().lower()))


ASIDE = re.compile(
    r"[, ]+(?:please|pls|plz|thanks|thx|while (?:you're|you are|we're) at it|i guess|tho|though"
    r"|lol)"
    r"(?=[ ?.!,]|$)"
)
FORMER = re.compile(r" from \d+(?= to \d)| (?:instead of|rather than|not|up from|down from) \d+$")
LEFT_ALONE = re.compile(
    r",? (?:(?:and|but) )?(?:leave|keep) (?:the )?(?:block[_ ]?)?[mnk](?:(?: and |, ?)[mnk])? "
    r"(?:alone|as (?:it|they) (?:is|are)|as is|unchanged|the same|fixed)$"
)
TILES = re.compile(
    r"^(?:(?:use|try|set|make|with|to|a|the|of|tiles?|blocks?|block sizes?|tile sizes?|go|it"
    r"|i|meant?|make that|no(?=,)|nah|sorry|actually|rather)[, ]*)*"
    r"(\d+) ?[x×*] ?(\d+)(?: ?[x×*] ?(\d+))?(?: (?:tiles?|blocks?|tiling|tile size|block size))*$"
)
AGAIN = re.compile(
    r"^(?:(?:and|or|now|then|ok|no(?=,)|nah|sorry|actually|what about|how about|try|with|at|to|use"
    r"|make (?:it|that)|i (?:mean|meant))[, ]*)*(\d+)(?: (?:then|instead))?$"
)
MEANT = re.compile(r"^(?:no|nah|sorry|actually|i mean|,| )*(.*?),? i (?:mean|meant)\b.*$")
NO_LIMIT = re.compile(
    r"^(?:lift|remove|drop|undo|take off|get rid of|release|no) (?:the |that |any )?"
    r"(?:max ?n?)?reg(?:ister)?s? (?:cap|limit|restriction|bound)(?: again)?$"
)
FORMER_KNOB = re.compile(
    r"^(?:keep [^,]*?(?:,| but| and)+ )?(?:put|set|bring|change|turn|move|reset|revert) (?:back )?"
    r"(?:the )?(warps?|num_warps|stages?|num_stages|reg(?:ister)?s?|block(?: size)?) "
    r"(?:back|to what (?:it|they) (?:was|were)|to (?:the|its|their) (?:former|old|previous)"
    r" values?)(?: to (?:what (?:it|they) (?:was|were)(?: before)?|before))?$"
)
SWEEP = re.compile(
    r"^(?:(?:sweep|scan|grid[- ]?search|loop|try|test|compare|run|search|do|measure|a sweep of|over"
    r"|with|all|through|the|use)[, ]*)+"
)
LIST = r"\d+(?: ?(?:-|to) ?\d+|(?:(?:,? (?:and|or) |, ?|/| )\d+)+)"
SWEPT = r"(?:num_)?(warps|stages|reg(?:ister)?s|block(?: sizes?|s)?)"
AXES = re.compile(
    rf"(?:(?P<before>{LIST}) {SWEPT}|{SWEPT}:? (?:of |in |from |at |to |over )?(?P<after>{LIST}))"
)
KNOWN = ("warps", "stages", "registers", "deterministic", "persistent", "occupancy")
NEAR = 0.88
MOST_RANGE = 32
MOST_AXES = 3


def read_kernel_words(text: str, context: IntentContext) -> tuple[Intent, ...]:
    """The fact that is asked for, or the wishes about the launch; none where it is neither."""
    if waves_off(text):
        return (Plain(name="decline"),)
    plain = _plain(text)
    before = _swept(plain) or _tuned(plain) or _before(plain, context)
    if before:
        return before
    for tried in dict.fromkeys((plain, _respelt(plain))):
        read = _read(tried, context)
        if not read.named and not HOW_TO_USE.match(tried):
            continue
        found = _fact(tried, read) or _wishes(tried, read)
        if found:
            return found
    return ()


def _plain(text: str) -> str:
    """In lower case and without what only says how it is meant."""
    lower = " ".join(text.strip().lower().split())
    return LEFT_ALONE.sub("", FORMER.sub("", ASIDE.sub("", lower.rstrip(" .!"))))


def _respelt(text: str) -> str:
    """With words of a kernel that are misspelt by a letter or two as they are spelt."""
    words = []
    for word in text.split(" "):
        bare = word.rstrip(",.?")
        known = not bare.isalpha() or len(bare) < 5 or bare in COMMON | WISHING | set(KNOWN)
        meant = bare if known else _nearest(bare)
        words.append(meant + word[len(bare) :])
    return " ".join(words)


def _nearest(word: str) -> str:
    """A word of the same letters in another order, or one that is nearly the same; else itself."""
    for known in KNOWN:
        if sorted(known) == sorted(word):
            return known
    return next(iter(difflib.get_close_matches(word, KNOWN, 1, NEAR)), word)


def _before(text: str, context: IntentContext) -> tuple[Intent, ...]:
    """What needs the sentence before it, or the candidate before this one."""
    bare = text.rstrip("?")
    last = context.last[-1] if context.last else None
    tiles = TILES.match(bare)
    if tiles and (re.search(r"tile|block", bare) or _is_block(last)):
        axes: tuple[Literal["M", "N", "K"], ...] = ("M", "N", "K")
        sizes = [int(item) for item in tiles.groups() if item is not None]
        if all(0 < size <= 10**6 for size in sizes):
            pairs = zip(axes, sizes, strict=False)
            return tuple(SetKnob(knob="block", value=size, axis=axis) for axis, size in pairs)
    again = AGAIN.match(bare)
    if again and isinstance(last, SetKnob) and last.knob in VALUED.values():
        value = int(again[1])
        return (last.evolve(value=value, more=False, former=False),) if 0 < value < 10**6 else ()
    if isinstance(last, AskFact) and last.about == "speed" and (meant := MEANT.match(bare)):
        named = {PHRASES[int((item.lastgroup or "N0")[1:])][1] for item in NOUNS.finditer(meant[1])}
        return (last,) if named and named <= BASELINES else ()
    if NO_LIMIT.match(bare):
        return (SetKnob(knob="registers", value=0),)
    former = FORMER_KNOB.match(bare)
    return (SetKnob(knob=_swept_knob(former[1]), former=True),) if former else ()


def _is_block(last: Intent | None) -> bool:
    return isinstance(last, SetKnob) and last.knob == "block"


def _swept_knob(word: str) -> Knob:
    for knob in VALUED.values():
        if word.removeprefix("num_")[:3] == knob[:3]:
            return knob
    return "block"


def _swept(text: str) -> tuple[Intent, ...]:
    """ "sweep warps 2,4,8 and stages 1-4, give me a table"."""
    begins = SWEEP.match(text)
    if begins is None or text.endswith("?"):
        return ()
    rest = text[begins.end() :]
    found = list(AXES.finditer(rest))
    left = AXES.sub(" ", rest)
    left = re.sub(
        r"\b(?:and|with|x|by|times|(?:and )?(?:give|show|print)(?: me)? (?:a|the) "
        r"(?:table|results?|comparison))\b",
        " ",
        left,
    )
    if not found or left.strip(" ,.;"):
        return ()
    axes = read_axes(rest)
    return (Sweep(axes=axes),) if any(len(axis.values) > 1 for axis in axes) else ()


def read_axes(text: str) -> tuple[SweepAxis, ...]:
    """The things that are swept, with their values, wherever they stand; none where two are one."""
    axes: list[SweepAxis] = []
    for match in AXES.finditer(text):
        values = _values(match["before"] or match["after"])
        knob = _swept_knob(next(word for word in (match[2], match[3]) if word))
        if not values or knob in [axis.knob for axis in axes]:
            return ()
        axes.append(SweepAxis(knob=knob, values=values))
    return tuple(axes) if len(axes) <= MOST_AXES else ()


USUAL: dict[Knob, tuple[int, ...]] = {
    "warps": (2, 4, 8, 16),
    "stages": (1, 2, 3, 4),
    "block": (64, 128, 256, 512),
}
"""What is tried of a thing that is to be tuned, and no values are named."""
TUNED = re.compile(
    r"^(?:tune|autotune|find|pick|choose|search|sweep|try|optimi[sz]e|scan|explore)(?: for| over)? "
    r"(?:the |all |different |other |some |various )?(?:best |right |optimal |number of "
    r"|values? of )*"
    r"(?P<one>(?:num_)?(?:warps|stages)|block sizes?|tile sizes?)"
    r"(?: (?:and|x) (?:the )?(?:best |number of )?(?P<two>(?:num_)?(?:warps|stages)"
    r"|block sizes?))?$"
)


def _tuned(text: str) -> tuple[Intent, ...]:
    """ "tune the number of warps": its usual values."""
    found = TUNED.match(text)
    named = [] if found is None else [item for item in found.groups() if item]
    knobs = list(dict.fromkeys("block" if "size" in item else _swept_knob(item) for item in named))
    axes = tuple(SweepAxis(knob=knob, values=USUAL[knob]) for knob in knobs)
    return (Sweep(axes=axes),) if axes else ()


def _values(text: str) -> tuple[int, ...]:
    """The numbers of "2,4,8" or "1-4"; none for a range that is too long or runs backwards."""
    first, dash, last = text.replace(" ", "").replace("to", "-").partition("-")
    if dash:
        span = range(int(first), int(last) + 1)
        return tuple(span) if int(first) > 0 and 0 < len(span) <= MOST_RANGE else ()
    numbers = [int(item) for item in re.findall(r"\d+", text)]
    good = len(numbers) <= MOST_RANGE and all(0 < item <= 10**6 for item in numbers)
    return tuple(dict.fromkeys(numbers)) if good else ()


def _read(text: str, context: IntentContext) -> _Read:
    lower = " ".join(text.lower().replace("=", " ").split()).rstrip(" ?.!")
    named = []
    rest = lower
    for match in NOUNS.finditer(lower):
        named.append(PHRASES[int((match.lastgroup or "N0")[1:])][1])
        rest = rest.replace(match[0], " ", 1)
    negated = bool(NEGATIONS.search(rest))
    rest = NEGATIONS.sub(" ", rest)
    candidate: CandidateRef = "current"
    numbers: list[int] = []
    for match in CANDIDATE.finditer(rest):
        number = int(match[1])
        if match[0].startswith("c"):
            candidate = max(number, 1)
        else:
            numbers.append(number)
    words = frozenset(re.sub(r"[,;:()]", " ", CANDIDATE.sub(" ", rest)).split())
    return _Read(tuple(named), tuple(numbers), words, negated, candidate)


FACTS: dict[str, Fact] = {
    "WARPS": "launch",
    "STAGES": "launch",
    "BLOCKS": "launch",
    "THREADS": "launch",
    "PERSISTENT": "launch",
    "SPLITK": "launch",
    "REGISTERS": "resources",
    "SPILLS": "resources",
    "SHARED": "resources",
    "TENSOR": "resources",
    "ASSEMBLY": "assembly",
    "REPEATABLE": "repeatable",
    "SIZES": "holds",
    "MODES": "holds",
    "FP64": "accuracy",
    "ACCURACY": "accuracy",
    "ERROR": "accuracy",
}


ASKS_FOR = re.compile(r"(?:what|which|how many|how much|how large|how big)\b")
"""How a question begins in which one word more is not known."""


def _fact(text: str, read: _Read) -> tuple[Intent, ...]:
    named = set(read.named)
    bare = bool(named) and named <= NO_VERB and read.words <= BARE
    asked = (
        bare
        or ASKS_FOR.match(text) is not None
        or text.strip().endswith("?")
        or not ASKING.isdisjoint(read.words)
    )
    left = read.words - COMMON
    if not asked or read.negated or read.numbers or DEFINITION.match(text.strip().lower()):
        return ()
    if not SUPERLATIVES.isdisjoint(read.words):
        return ()
    if "ERROR" in named and named.isdisjoint({"FP64", "ACCURACY", *BASELINES}):
        return ()  # what stood in the way of a candidate is called so too
    if (named == {"MODEL"} and left and left <= USING) or HOW_TO_USE.match(text.strip().lower()):
        return (AskFact(about="use", candidate=read.candidate),)
    if named and named <= BASELINES and left and left <= FASTER:
        return (AskFact(about="speed", candidate=read.candidate),)
    about = {FACTS[name] for name in named - BASELINES - {"MODEL", "EACH"}}
    if not about or (left and not (len(left) == 1 and ASKS_FOR.match(text))):
        return ()
    if len(about) == 1 or about == {"launch", "resources"}:
        return tuple(AskFact(about=item, candidate=read.candidate) for item in sorted(about))
    return ()


VALUED: dict[str, Knob] = {
    "WARPS": "warps",
    "STAGES": "stages",
    "BLOCKS": "block",
    "REGISTERS": "registers",
}


SAID: dict[Knob, str] = {
    "warps": "use 4 warps",
    "stages": "use 3 stages",
    "block": "use a block size of 64",
    "registers": "limit registers to 64",
}


def nearest_wish(text: str) -> str | None:
    """A wish about the thing of a launch that `text` names; None where it names none."""
    found = (PHRASES[int((item.lastgroup or "N0")[1:])][1] for item in NOUNS.finditer(text.lower()))
    return next((SAID[VALUED[name]] for name in found if name in VALUED), None)


THE_ONE = re.compile(r"\b(?:one|candidate|version|kernel)s? (?:with|that|which|of)\b", re.I)
"""A candidate by what it has: "keep the one with 8 warps"."""


def _wishes(text: str, read: _Read) -> tuple[Intent, ...]:
    if THE_ONE.search(text):
        return ()
    polite = POLITE.match(text.strip().lower())
    words = read.words - frozenset(polite[0].split() if polite is not None else ())
    if words - WISHING or (text.strip().endswith("?") and polite is None):
        return ()
    named = set(read.named)
    if read.negated and named in ({"SPLITK"}, {"PERSISTENT"}):
        return (SetKnob(knob="split_k" if "SPLITK" in named else "persistent", value=0),)
    if read.negated:
        off = (SetKnob(knob="tensor_cores", value=0),) if named == {"TENSOR"} else ()
        return (SetKnob(knob="deterministic", value=1),) if "atomic" in text.lower() else off
    if not read.numbers:
        return _unvalued(named, read.words)
    valued = [VALUED[name] for name in read.named if name in VALUED]
    if len(valued) != len(read.named) or len(valued) != len(read.numbers):
        return ()
    axes = iter(AXIS.findall(text.lower()))
    pairs = zip(valued, read.numbers, strict=True)
    return tuple(
        SetKnob(knob=knob, value=value, axis=_axis(next(axes, "")) if knob == "block" else "")
        for knob, value in pairs
        if value > 0
    )


def _axis(letter: str) -> Literal["", "M", "N", "K"]:
    """The letter of `block_n`; "" for any other."""
    known: dict[str, Literal["M", "N", "K"]] = {"m": "M", "n": "N", "k": "K"}
    return known.get(letter, "")


def _unvalued(named: set[str], words: frozenset[str]) -> tuple[Intent, ...]:
    if named in ({"TENSOR"}, {"SPLITK"}) and words.isdisjoint(LESS):
        return (SetKnob(knob="tensor_cores" if "TENSOR" in named else "split_k", value=1),)
    if named == {"PERSISTENT"} and words.isdisjoint(LESS):
        return (SetKnob(knob="persistent", value=1),)
    if named == {"REPEATABLE"} and words.isdisjoint(LESS):
        return (SetKnob(knob="deterministic", value=1),)
    if named == {"REGISTERS"} and not words.isdisjoint(LESS):
        return (SetKnob(knob="registers"),)
    if named in ({"WARPS"}, {"STAGES"}, {"BLOCKS"}) and not words.isdisjoint(LESS | MORE):
        (name,) = named
        return (SetKnob(knob=VALUED[name], more=words.isdisjoint(LESS)),)
    return ()
