"""Questions of a kernel engineer's hour, and what is never done here, by words of their own.

What is read here changes nothing, so that it is read before the grammar.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from agentkernel.chat.language.question_words import (
    BETTER_NOW,
    BIGGER,
    BYTES_MOVED,
    CERTAIN,
    COMPARE_ALL,
    COMPARED_WITH_LAST,
    DIFFERENT_FROM_LAST,
    IMPOSSIBLE,
    MAKE_BETTER,
    MEANING,
    MEASURE_ELSEWHERE,
    MEMORY_NEEDED,
    QUESTIONS,
    SET_ROUNDS,
    TERMS,
    TO_SHIP,
)
from agentkernel.chat.requests import (
    AskFact,
    AskGpu,
    CandidateRef,
    Cannot,
    Compare,
    Diff,
    Intent,
    IntentContext,
    OnCandidate,
    OtherModule,
    Plain,
    Run,
    SetBudget,
    SetKnob,
)

Reading = tuple[Intent, ...]
EDGES = re.compile(
    r"^(?:(?:and|so|ok|okay|then|please|pls|hey|hi|well|hmm+|actually|btw|alright|right|oh|but|um"
    r"|uh"
    r"|nah|no wait|(?:i'm )?not (?:happy|satisfied|impressed)[^,]*(?=,)"
    r"|(?:can|could|may) i(?= (?:see|get|have)\b)"
    r"|(?:can|could|would|will) (?:you|we)(?: please)?|let's|let us|just"
    r"|i(?:'d| would) like (?:you )?to|i (?:want|need) (?:you )?to)[, ]+)+"
    r"|(?:[, ]+(?:please|pls|plz|thanks|thx|honestly|lol|for me|now|though|tho|i guess"
    r"|if you can|if possible|while you're at it))+$"
)
"""What people put before and behind a sentence."""
WALK = re.compile(
    r"(?:walk|talk|step|take|guide|lead) me through (?:it|this|that|the (?:kernel|code|triton"
    r"|source"
    r"|candidate))\b|explain (?:it|this|the (?:kernel|code)) (?:like|as if|to me like)\b"
)
ROOM = re.compile(
    r"\b(?:anything|something|much|more|any speed) left (?:to gain|on the table|to win)\b"
    r"|\bhead ?room\b|\btheoretical (?:best|minimum|peak|limit|optimum)\b|\bspeed of light\b"
)
SUMMARY = re.compile(
    r"tl;? ?dr\b|(?:in|as) (?:a nutshell|one (?:line|sentence))\b|(?:a |the |give me |show me )*"
    r"(?:short |quick |brief )*summary of (?:the |this |my )?(?:last |latest )?run$"
)
KERNEL_ONLY = re.compile(
    r"(?:show |give |print |see )?(?:me )?(?:just |only )?the (?:triton |actual )?kernels?"
    r"(?: functions?| code| source| body| itself)?(?: only| alone)?(?: of c\d+)?"
    r"(?:,? (?:not|without|no|skip|minus) (?:the )?(?:wrapper|class|module|rest|launcher"
    r"|host code"
    r"|boilerplate|imports)s?)?$"
)
WHY_NOT_PERSISTENT = re.compile(
    r"why (?:(?:is|are|was) (?:it|this|that|the kernel|c\d+) not|(?:isn't|aren't) (?:it|this|that"
    r"|the kernel)|not(?: (?:make|made|use|do|try|go))?(?: (?:it|this|that|the kernel|an?))?) "
    r"persistent(?: kernel)?$"
)
ALONE = re.compile(r"\b(?:just|only|alone|not|without|no|skip|minus)\b")
FILE = re.compile(r"(?<![\w/.])((?:~?/)?(?:[\w.-]+/)*[\w-]+\.py)(?::([A-Za-z_]\w*))?(?![\w/])")
CLASS = re.compile(r"\bclass ([A-Z]\w*)|\b([A-Z]\w*) (?:class|module)\b")
BEGIN = re.compile(
    r"(?:optimi[sz]e|speed up|make|take|tune|accelerate|work on|open|load|do|try"
    r"|same (?:thing )?for"
    r"|now|next)\b"
)
WRITES = re.compile(
    r"\b(?:save|write|export|store|put|keep|dump|copy|not|don't|dont|never|compare|line|diff)\b"
)
SAME_FOR = re.compile(r"(?:do |and |now )*the same (?:thing )?(?:for|with)\b|same (?:thing )?for\b")
CAMEL = re.compile(r"\b([A-Z][a-z0-9]+(?:[A-Z][A-Za-z0-9]*)+|[A-Z]{2,}[A-Za-z0-9]*[a-z]\w*)\b")
GPU_ASKED = re.compile(
    r"(?:would|will|does|do|is|how|what|what's|whats|could|can|should)\b.*\b(?:win|wins|faster"
    r"|slower"
    r"|hold up|run|perform|do (?:it )?on|fit|fits|behave|work|beat|compare|fare|look|like|get"
    r"|expect"
    r"|scale|fast|time|speed ?up|worth|go|gain|numbers?|figures?|performance|limits?)\b"
)
BUILDS = re.compile(
    r"(?:build|make|compile|generate|give|create|target|optimi[sz]e|tune)\b.*\band\b"
)
"""How a wish for several targets begins."""
ONE_MORE_GPU = re.compile(
    r"(?:,|\band\b|\bor\b|\bvs\.?|\bthan\b) ?(?:and |or )?(?:on )?(?:an? |the )"
    r"(?:rtx |gtx |tesla |radeon )?(?P<name>(?=[a-z-]*\d)[a-z0-9-]+)\b"
)
"""Another GPU of a list, known or not: "and on a V100"."""
GPU_AGAIN = re.compile(r"(?:and |what about |how about |or )*(?:on )?(?:an? |the )?([\w-]+)$")
SHARED = re.compile(
    r"(\d+(?:\.\d+)?) ?k(?:i?b)?\b.*\b(?:smem|shared)|\b(?:smem|shared).*?(\d+) ?k", re.I
)


DOCS = re.compile(r"\b(?:docs?|documentation|manual|handbook|paper|colleague|boss|friend)\b")
"""What is asked of somebody else, or told of them."""


WISHED_TOO = re.compile(
    r"[.?!] (?:please |then |and )*(?:i (?:want|need)|use|try|set|make|run|stop|keep|save|undo)\b"
)
"""A wish in a sentence behind the first, which an answer to that alone would drop."""


MORE_THAN_ONE = re.compile(
    r"[.?!;] \w|\b(?:and|then|,) (?:please )?(?:run|save|keep|show|use|try|make|undo|go|what|why"
    r"|how|which)\b"
)
"""A second request behind the first."""


class Said(NamedTuple):
    """A sentence as typed, and in lower case without what people put around it."""

    shown: str
    text: str
    asked: bool


def said(shown: str) -> Said:
    """What the tables are searched in."""
    text = " ".join(shown.lower().replace("’", "'").replace("w/o", "without").split())
    bare = text.rstrip(" ?.!")
    for _ in range(2):
        bare = EDGES.sub("", bare)
    return Said(shown, bare, text.endswith("?"))


def read_certain(shown: str) -> Reading:
    """Sentences whose words leave no doubt, so that no ranking is asked. Of "why not persistent?"
    it would read the "not" as one more wish: it is answered as the wish is, which changes nothing,
    since a launch cannot do it."""
    what = said(shown)
    text = what.text
    if WHY_NOT_PERSISTENT.match(text):
        return (SetKnob(knob="persistent", value=1),)
    if re.match(MAKE_BETTER, text):
        return () if what.asked else (Run(),)
    if re.match(MEANING, text):
        meant = AskFact(about="meaning")
        shown_too = text.startswith("explain") and re.search(TERMS["roofline"], text)
        return (meant, OnCandidate(name="roofline")) if shown_too else (meant,)
    if re.match(COMPARE_ALL, text):
        return (Plain(name="compare_all"),)
    rounds = re.match(SET_ROUNDS, text)
    if rounds:
        return () if what.asked else (SetBudget(rounds=int(rounds[1])),)
    if re.match(TO_SHIP, text):
        return (Plain(name="status"),)
    if re.match(BETTER_NOW, text):
        return (Compare(first="second_last", second="last"),)
    if re.match(COMPARED_WITH_LAST, text):
        return (Compare(first=_candidate(text), second="last"),)
    if re.match(DIFFERENT_FROM_LAST, text):
        return (Diff(candidate="last", against=_candidate(text)),)
    if re.match(MEASURE_ELSEWHERE, text):
        return (AskFact(about="timing", candidate=_candidate(text)),)
    if re.match(MEMORY_NEEDED, text) or re.match(BYTES_MOVED, text):
        return (OnCandidate(name="profile", candidate=_candidate(text)),)
    if re.match(BIGGER, text) and (what.asked or re.match("what|how", text)):
        return (AskFact(about="holds", candidate=_candidate(text)),)
    if DOCS.search(text) or MORE_THAN_ONE.search(text):
        return ()
    for about, pattern in CERTAIN:
        if re.search(pattern, text):
            return (AskFact(about=about, candidate=_candidate(text)),)
    return ()


def read_questions(shown: str, context: IntentContext) -> Reading:
    """What changes nothing: facts, another GPU, another module, what is never done here."""
    what = said(shown)
    if DOCS.search(what.text):
        return ()
    wished = WISHED_TOO.search(what.text)
    if wished:
        first, behind = what.text[: wished.start() + 1], what.text[wished.start() + 2 :]
        asked = read_questions(first, context)
        return asked if asked == read_questions(behind, context) else ()
    several = _several(what)
    if several:
        return several
    past = _module(what, context) or _impossible(what, context)
    if past is not None:
        return (past,)
    gpus = _gpus(what, context)
    found = None if gpus else _question(what, context)
    return gpus if found is None else (found,)


def _several(what: Said) -> Reading:
    """A question that has its answer in two places, and a stop with another file behind it."""
    text = what.text
    if re.search(
        r"\bsure\b.*\d ?x\b.*\breal\b|\btoo good to be true\b|\bcached the outputs?\b", text
    ):
        return (AskFact(about="noise"), AskFact(about="checked"))
    if re.match(r"(?:is|are)\b.*\b(?:launch|overhead)[- ]bound\b.*\bcuda graphs?\b", text):
        return (OnCandidate(name="why_slow"), Cannot(about="graphs"))
    if re.match(r"how much (?:of (?:the|my) )?budget\b.*\b(?:left|remains?|remaining)\b", text):
        return (Plain(name="cost"), Plain(name="settings"))
    file = FILE.search(what.shown)
    if file and re.search(r"\bstop\b.*\bwrong file\b.*\bi meant?\b", text):
        return (Plain(name="stop"), OtherModule(path=file[1], class_name=file[2]))
    return ()


def _impossible(what: Said, _: IntentContext) -> Intent | None:
    if re.match(r"(?:what|which) (?:[ra]tol|tolerance)\b", what.text):
        return None
    for about, pattern in IMPOSSIBLE:
        if re.search(pattern, what.text):
            return Cannot(about=about)
    return None


def _question(what: Said, _: IntentContext) -> Intent | None:
    text = f"{what.text}?" if what.asked or "?" in what.text else what.text
    for about, pattern in QUESTIONS:
        if re.search(pattern, text):
            file = about == "use" and FILE.search(what.shown)
            return None if file else AskFact(about=about, candidate=_candidate(what.text))
    if re.match(r"why\b.*\b(?:block size|tile|tiles|warps|stages|config\w*|schedule)\b", text):
        return Plain(name="plan")
    if re.match(
        r"how (?:many|much) (?:[gt]b/s|[gt]b per second|t?flops)|.*\bbandwidth\b.*\?", text
    ):
        return OnCandidate(name="roofline", candidate=_candidate(what.text))
    if ROOM.search(what.text):
        return OnCandidate(name="roofline", candidate=_candidate(what.text))
    if re.match(r"rank (?:them|all|the candidates|candidates)\b", text):
        return Plain(name="tree")
    if re.match(r"(?:is|are)\b.*\b(?:launch|latency|overhead)[- ]bound\b", text):
        return OnCandidate(name="why_slow", candidate=_candidate(what.text))
    if re.match(r"(?:so )?what (?:did|have) (?:you|it)\b.*\bchanged?\b.*\b(?:my|original)\b", text):
        return Diff(candidate=_candidate(what.text), against="original")
    if re.match(r"why\b[^\d,]*\bslow\w*\b (?:at|on|for|with|in|when)\b(?!.*\band\b)\D*$", text):
        return OnCandidate(name="why_slow", candidate=_candidate(what.text))
    if re.match(r"what (?:can you|are you able to|could you) (?:change|tune|set)\b", text):
        return Plain(name="help")
    if re.match(r"what (?:else|more) (?:is|can|could)\b.*\b(?:left|try|tried|do)\b", text):
        return Plain(name="ideas")
    if re.match(r"what(?:'s| is| does)\b.*\bblock_[mnk]\b.*\b(?:doing|do|for)\b", text):
        return OnCandidate(name="explain_kernel", candidate=_candidate(what.text))
    if WALK.match(what.text):
        return OnCandidate(name="explain_kernel", candidate=_candidate(what.text))
    if KERNEL_ONLY.match(what.text) and ALONE.search(what.text):
        return OnCandidate(name="show_kernel", candidate=_candidate(what.text))
    return Plain(name="status") if SUMMARY.match(what.text) else None


def _candidate(text: str) -> CandidateRef:
    found = re.search(r"\b(?:c|candidate )([1-9]\d{0,5})\b", text)
    return int(found[1]) if found else "current"


def find_target(text: str, context: IntentContext) -> str | None:
    """The first GPU that is named."""
    return next(iter(find_targets(text, context)), None)


def find_targets(text: str, context: IntentContext) -> tuple[str, ...]:
    """The GPUs that are named, each once."""
    words = re.findall(r"[a-z0-9]+(?:-[a-z0-9]+)*", text)
    named = [word for word in words if word in context.targets and word != "local"]
    return tuple(dict.fromkeys(named))


def asked_gpus(
    text: str, context: IntentContext, shared_kb: float | None = None
) -> tuple[AskGpu, ...]:
    """A question for each GPU of a list. One that nobody knows is asked for too: the answer says
    that it is not known."""
    known = find_targets(text, context)
    listed = [item["name"] for item in ONE_MORE_GPU.finditer(text)] if known else []
    unknown = [name for name in listed if name not in context.targets]
    named = dict.fromkeys((*known, *unknown))
    return tuple(AskGpu(target=name, shared_kb=shared_kb) for name in named)


def _gpus(what: Said, context: IntentContext) -> Reading:
    """ "would it still win on an A100?", and after it "what about b200"."""
    gpus = asked_gpus(what.text, context)
    if not gpus:
        return ()
    last = context.last[-1] if context.last else None
    if isinstance(last, AskGpu) and GPU_AGAIN.match(what.text):
        return asked_gpus(what.text, context, last.shared_kb)
    shared = SHARED.search(what.text)
    if what.asked and shared:
        return asked_gpus(what.text, context, float(shared[1] or shared[2]))
    if len(gpus) > 1 and BUILDS.match(what.text) and not what.asked:
        return (Cannot(about="targets"),)
    begins = said(what.shown).text
    asked = what.asked or re.search(r"\bon (?:an? |the )?[\w-]+(?: without\b.*)?$", what.text)
    return gpus if asked and GPU_ASKED.match(begins) else ()


def _module(what: Said, context: IntentContext) -> Intent | None:
    """ "optimise layers/rmsnorm.py", "same thing for GroupNorm in that file"."""
    if WRITES.search(what.text.replace("don't touch", "").replace("dont touch", "")):
        return None
    file = FILE.search(what.shown)
    named = CLASS.search(what.shown)
    name = (named[1] or named[2]) if named else None
    faster = not what.text.startswith("make") or re.search(
        r"\b(?:faster|quicker|fast$|quick$)", what.text
    )
    if file and faster and BEGIN.match(what.text):
        return OtherModule(path=file[1], class_name=file[2] or name)
    camel = CAMEL.search(what.shown)
    if SAME_FOR.match(what.text) and (name or camel):
        last = context.last[-1] if context.last else None
        path = last.path if isinstance(last, OtherModule) else None
        return OtherModule(path=path, class_name=name or (camel[1] if camel else None))
    return None
