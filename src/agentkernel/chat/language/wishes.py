"""Whole sentences of a kernel engineer's hour that change something, and praise, which does not."""

from __future__ import annotations

import re
from collections.abc import Callable

from agentkernel.chat.language.questions import Reading, find_target, said
from agentkernel.chat.requests import (
    AskFact,
    IntentContext,
    OnCandidate,
    Plain,
    Run,
    SetBudget,
    SetDtype,
    SetKnob,
    SetPrecision,
    SetShapes,
    SetTarget,
    Size,
    StopAt,
    Undo,
    WriteTo,
)
from agentkernel.domain.problem import DType

COUNTS = {"two": 2, "three": 3, "four": 4, "five": 5}
SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0}
DTYPES: dict[str, DType] = {
    "fp16": "float16",
    "float16": "float16",
    "half": "float16",
    "bf16": "bfloat16",
    "bfloat16": "bfloat16",
    "fp32": "float32",
    "float32": "float32",
}
FLOATS: dict[str, DType] = {name: dtype for name, dtype in DTYPES.items() if dtype == "float16"}
DIMENSIONS = (
    r"batch(?:[_ ]size)?|bs|b|m|n|k|t|q_?len|kv_?len|seq(?:uence)?(?:[_ ]?len(?:gth)?)?|hidden"
    r"(?:[_ ]size|[_ ]dim)?|d_?model|head_dim|heads|tokens|rows|cols|columns|channels|height"
    r"|width"
    r"|vocab(?:_size)?|features|dim"
)
PAIR = re.compile(rf"\b({DIMENSIONS}) ?(?:=|:) ?(\d+)\b")
PAIRS = re.compile(
    rf"(?:(?:try|use|with|at|take|run|test|rerun|do|set|for|now) )*(?:it )?(?:(?:with|at|for) )?"
    rf"(?:(?:{DIMENSIONS}) ?(?:=|:) ?\d+(?:,? and |, ?| )?)+(?:in )?"
    rf"(?P<dtype>{'|'.join(DTYPES)})?(?P<run>(?:,? and|,)? (?:go|run(?: it)?))?$"
)
ALWAYS = re.compile(
    rf"(?:.*\b(?:so|because|since|as|,) )?(?:the |my |our )?(?P<name>{DIMENSIONS}) is always "
    r"(?P<value>\d+)$"
)
DEPLOYS = re.compile(
    r"(?:i|we|they) (?:deploy|ship|serve|run|will run|actually run)\b.*?[, ]+(?:so )?(?:redo"
    r"|re-?run|run"
    r"|retune|optimi[sz]e|tune|do) (?:it |this |that )?(?:again )?for (?:that|it|that one"
    r"|that card)$"
)


def _drop(found: re.Match[str], context: IntentContext) -> Reading:
    numbers = [int(item) for item in re.findall(r"\d+", found[1])]
    if any(item < 1 or (context.candidates and item not in context.candidates) for item in numbers):
        return ()
    return tuple(OnCandidate(name="reject", candidate=item) for item in numbers)


def _undo(found: re.Match[str], _: IntentContext) -> Reading:
    return (Undo(steps=COUNTS.get(found[1]) or int(found[1])),)


def _time(found: re.Match[str], _: IntentContext) -> Reading:
    return (SetBudget(seconds=int(found[1]) * SECONDS[found[2][0]]),) if int(found[1]) else ()


def _run(found: re.Match[str], _: IntentContext) -> Reading:
    return (Run(rounds=int(found[1])),) if int(found[1]) else ()


def _always(found: re.Match[str], _: IntentContext) -> Reading:
    value = int(found["value"])
    return (SetShapes(sizes=(Size(name=_name(found["name"]), value=value),)),) if value else ()


def _pairs(found: re.Match[str], _: IntentContext) -> Reading:
    pairs = [(_name(name), int(value)) for name, value in PAIR.findall(found[0])]
    if not all(0 < value <= 10**9 for _, value in pairs):
        return ()
    sizes = SetShapes(sizes=tuple(Size(name=name, value=value) for name, value in pairs))
    dtype = (SetDtype(dtype=DTYPES[found["dtype"]]),) if found["dtype"] else ()
    return (sizes, *dtype, *((Run(),) if found["run"] else ()))


def _name(text: str) -> str:
    return text.replace(" ", "_")


def _deploys(found: re.Match[str], context: IntentContext) -> Reading:
    target = find_target(found[0], context)
    return (SetTarget(target=target), Run()) if target is not None else ()


def _replaced(found: re.Match[str], _: IntentContext) -> Reading:
    value = int(found["value"])
    return (SetShapes(sizes=(Size(name=_name(found["name"]), value=value),)),) if value else ()


def _goal(found: re.Match[str], _: IntentContext) -> Reading:
    speedup = float(found[1])
    return (StopAt(speedup=speedup),) if 1 <= speedup <= 10**6 else ()


def _no_cap(_: re.Match[str], context: IntentContext) -> Reading:
    last = context.last[-1] if context.last else None
    capped = isinstance(last, SetKnob) and last.knob == "registers"
    asked = isinstance(last, AskFact) and last.about == "resources"
    return (SetKnob(knob="registers", value=0),) if capped or asked else ()


def _standalone(found: re.Match[str], _: IntentContext) -> Reading:
    return (WriteTo(name="save", path=found["path"]),)


IN_BF16 = re.compile(
    r"\b(?:re-?run|run|make|get|have|want|need|let|do|try|convert|switch|turn|move|cast)"
    r" (?:it|this|that|everything|the (?:module|model|layer|kernel|inputs?))"
    r"(?: (?:to|also|run|work|go|again|all))*(?: (?:in|with|as|for|to|on))? bf(?:loat)?16\b"
)
BARE_BF16 = re.compile(
    r"\W*(?:(?:ok|then|now|use|try|go|in|with|please)\W+)*(?:bf16|bfloat16)(?: please)?\W*"
)
"""A format by itself: of the inputs, or to compute in."""
BACK_TO_BF16 = re.compile(r"\b(?:back|return) to (?:the )?(?:bf16|bfloat16)\b")
BACK = re.compile(r"\b(?:undo|revert|take back) (?:that|this|it)\b")
IT = re.compile(r"\b(?:it|that|this)\b")


def two_meanings(shown: str, found: Reading) -> Reading | None:
    """The other reading of "make it in bf16", "use bf16" and "go back to bf16": its inputs, where
    what may be computed in was read. Of "why is it slow at 128 rows": the question alone, where the
    sizes were to be set too."""
    sized = any(isinstance(item, SetShapes) for item in found)
    why = tuple(item for item in found if isinstance(item, OnCandidate) and item.name == "why_slow")
    if sized and why and shown.lower().startswith("why"):
        return why
    loosened = any(isinstance(item, SetPrecision) and item.precision == "bf16" for item in found)
    lower = shown.lower()
    either = IN_BF16.search(lower) or BARE_BF16.fullmatch(lower) or BACK_TO_BF16.search(lower)
    if not loosened or not either:
        return None
    return tuple(
        SetDtype(dtype="bfloat16") if isinstance(item, SetPrecision) else item for item in found
    )


def of_the_last(shown: str, found: Reading, context: IntentContext) -> Reading:
    """ "fix it" behind "why was c3 refused" is about c3; "undo that" behind a step back goes on
    again."""
    last = context.last[-1] if context.last else None
    if last == Undo() and found == (Undo(),) and BACK.search(shown.lower()):
        return (Plain(name="redo"),)
    if not isinstance(last, OnCandidate) or last.name != "why_rejected":
        return found
    points = IT.search(shown.lower()) is not None
    return tuple(
        item.evolve(candidate=last.candidate)
        if points
        and isinstance(item, OnCandidate)
        and item.name == "repair"
        and item.candidate == "current"
        else item
        for item in found
    )


WISHES: tuple[tuple[re.Pattern[str], Callable[[re.Match[str], IntentContext], Reading]], ...] = (
    (
        re.compile(
            r"(?:drop|discard|reject|throw (?:out|away)|ditch|scrap) (?:candidates? )?"
            r"(c?\d{1,6}(?:(?:,? and |, ?| & )c?\d{1,6})+)$"
        ),
        _drop,
    ),
    (
        re.compile(
            r"(?:undo|take back|revert) (?:the )?last (two|three|four|five|[2-9])(?: (?:changes"
            r"|steps|ones))?(?:,? not (?:just |only )?(?:one"
            r"|the last(?: one)?))?(?:, i (?:only |just )?want\b.*"
            r"\bgone\b.*)?$"
        ),
        _undo,
    ),
    (
        re.compile(
            r"(?:you(?:'ve| have) (?:got )?|you get |give (?:it|yourself) )(?:at most )?"
            r"(\d{1,4}) ?(s|secs?|seconds?|m|mins?|minutes?|h|hrs?|hours?)"
            r"(?:,? (?:and |then )?(?:stop|no more|not more|that's it)(?: after that| then)?)?$"
        ),
        _time,
    ),
    (
        re.compile(
            r"(?:export|write|save)(?: it| this)?,? (?:without (?:the |any )?(?:test )?(?:harness"
            r"|tests|session|transcript)|as (?:an? )?(?:importable|standalone) (?:module|file))"
            r"(?:,? .*\b(?:import|use)\b.*)?$"
        ),
        lambda *_: (WriteTo(name="save"),),
    ),
    (
        re.compile(
            rf"(?:with |at |use |try )?(?P<name>{DIMENSIONS})(?: of| ="
            rf"|=)? ?(?P<value>\d{{1,9}}),? "
            r"(?:instead of|rather than|not|in place of) (?:\w+ )??\d+$"
        ),
        _replaced,
    ),
    (
        re.compile(
            r"(?:no|wait|sorry|i mean|i meant|make (?:it|that)|[, ])*(fp16|float16),? not "
            r"(?:bf16|bfloat16|fp32|float32)$"
        ),
        lambda found, _: (SetDtype(dtype=FLOATS[found[1]]),),
    ),
    (
        re.compile(
            r".*\btoo (?:modest|low|easy|little|lax)\b.*?\b(?:go for|make it|aim for|try for"
            r"|take) "
            r"(\d+(?:\.\d+)?) ?x$"
        ),
        _goal,
    ),
    (
        re.compile(
            r"(?:drop|lift|remove|undo|take off|get rid of) (?:the |that )(?:cap"
            r"|limit)(?: again)?$"
        ),
        _no_cap,
    ),
    (
        re.compile(
            r"(?:export|save|write)\b.*\bstandalone\b.*\b(?:call|name) it "
            r"(?P<path>[\w./~-]+\.py)$"
        ),
        _standalone,
    ),
    (
        re.compile(
            r"(?:i need |use |give me |keep )?(?:the )?(?:full|true|real|ieee) fp32"
            r"(?: path| precision| math| accuracy)?(?: please)?$"
        ),
        lambda *_: (SetPrecision(precision="strict"),),
    ),
    (re.compile(r"run (\d{1,3})(?: rounds?| times)?$"), _run),
    (PAIRS, _pairs),
    (ALWAYS, _always),
    (DEPLOYS, _deploys),
)
"""Whole sentences that change something."""


def read_wishes(shown: str, context: IntentContext) -> Reading:
    """The requests of a whole sentence that changes something; none where it is none of these."""
    what = said(shown)
    for pattern, made in WISHES:
        found = pattern.match(what.text)
        requests = made(found, context) if found and not what.asked else ()
        if requests:
            return requests
    return ()


PRAISE = re.compile(
    r"(?:nice|great|cool|wow|thanks?(?: you)?|awesome|impressive|sweet|amazing|excellent"
    r"|perfect|thx|ty|cheers"
    r"|good job|well done|lovely|neat|haha|lol|brilliant|not bad)\b[,.! ]*(?P<rest>.*)$"
)
STATES = re.compile(
    r"(?:(?:that|this|it|c?\d[\d.]*x?|i|we|you)(?:'s| is| was| are| got| did| does| works| looks"
    r"| really"
    r"| just| have| had| love| like)\b(?! to\b).*|work|job|one|stuff|good ?(?:night|bye)\b.*"
    r"|thanks?(?: you)?|(?:that"
    r"|this|it)"
    r" (?:rocks|helps|works)|)$"
)


def is_praise(shown: str) -> bool:
    """True for "nice, 1.8x is more than I hoped for": nothing is asked."""
    what = said(shown)
    found = PRAISE.match(what.text)
    return bool(
        found and not what.asked and STATES.match(re.sub(r"\blol\b", "", found["rest"]).strip())
    )
