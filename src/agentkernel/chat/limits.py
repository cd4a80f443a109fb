"""Answers about what lies past a session: other GPUs, other modules, and what is never done."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from agentkernel.chat import actions
from agentkernel.chat.language.values import Clause, offered_knob
from agentkernel.chat.queries import not_possible
from agentkernel.chat.replies import Reply, TextReply
from agentkernel.chat.requests import AskGpu, Cannot, Impossible, OtherModule, Run
from agentkernel.chat.session_state import SessionState
from agentkernel.chat.tree import fastest, label
from agentkernel.chat.user_input import sentences
from agentkernel.domain.formatting import microseconds
from agentkernel.tools.targets import find_target

IMPOSSIBLE: dict[Impossible, str] = {
    "by_hand": (
        "A change of the text itself is not made by words. 'edit the kernel' opens it: what comes "
        "of "
        "it is judged. 'try the next idea' drafts in another way."
    ),
    "clocks": (
        "Clocks, power limits and fans of a GPU are never changed. Candidates and baselines are "
        "timed in turns, so that a clock that moves meets all of them alike."
    ),
    "condition": (
        "Nothing is done on a condition: ask for the first half, look at the time, and then say "
        "'undo' or 'keep it'."
    ),
    "device": (
        "Kernels are made for NVIDIA GPUs. For the MI300X of AMD they are compiled and their time "
        "is estimated, and none was ever run on one: 'for the mi300x' and 'run' do that. There is "
        "no other kind. 'which gpus do you support?' lists them."
    ),
    "fleet": (
        "Nothing is known of other machines, prices or bills. The energy of a call is measured "
        "on a GPU that says its power; 'use less energy' makes that small."
    ),
    "foresight": (
        "Nobody knows before it is timed. 'use 8 warps' judges one, 'sweep 4, 8 and 16 warps' "
        "several."
    ),
    "format": (
        "A drop-in is Python with Triton kernels, and in no other format. 'save it to fast.py' "
        "writes "
        "it; 'how do I make a wheel of it?' says what else there is."
    ),
    "gpus": (
        "A module is made faster on one GPU, and not spread over several. 'which gpus do you "
        "support?' lists those that it can be made for."
    ),
    "graphs": (
        "CUDA graphs are not switched on by words: a run offers that form of a drop-in of many "
        "small kernels by itself, and whether it helps is timed, not foretold. max-autotune, which "
        "it is timed against, may use them too."
    ),
    "guarantee": (
        "No speedup is promised: one is measured, at the sizes that were timed. 'stop at 2x' sets "
        "a "
        "goal; what is not faster than PyTorch is not handed over."
    ),
    "judge": (
        "The judge is not switched off, loosened or passed by: what it refuses is not handed over. "
        "'why was it refused?' says what is wrong, 'how was it checked?' what was called."
    ),
    "language": (
        "Candidates are written in Triton, and in nothing else. 'show the ptx' and 'show the sass' "
        "compile one to what a GPU runs."
    ),
    "message": "No messages are sent from here. A step says in this window when it is done.",
    "machine": (
        "This session is for the {target}. What is installed here, and on which GPU: 'agentkernel "
        "doctor' in a shell says it."
    ),
    "other_baseline": (
        "The baselines are eager PyTorch, torch.compile and max-autotune. Paste another kernel as "
        "a "
        "class ModelNew: it is judged and timed like any other, and 'compare c1 and c2' compares."
    ),
    "module": (
        "The module is the reference and is not changed: a kernel computes what it computes. "
        "Change "
        "its file and begin a session on it, in a shell: 'agentkernel chat FILE'."
    ),
    "other_run": (
        "Candidates of this session are compared with each other: 'compare c1 and c2'. Other runs: "
        "'agentkernel runs' lists them in a shell, 'agentkernel show RUN' shows one."
    ),
    "proof": (
        "Nothing is proved: a candidate is called on many inputs and compared with fp64. "
        "'how was it checked?' says which; 'verify it' judges again."
    ),
    "repository": (
        "No commit, push, pull request or ticket is made from here. 'save it to fast.py' writes "
        "the drop-in with its certificate, 'export the session' all of it, for you to commit."
    ),
    "rounding": (
        "Nothing may round more than the precision in force lets it (now {precision}). 'allow "
        "tf32' "
        "and 'allow bf16' loosen it, 'use fp16 inputs' changes the module's own dtype."
    ),
    "shared": (
        "Shared memory follows from blocks and stages: 'fewer stages' or 'use a smaller block "
        "size' "
        "takes less, 'how much shared memory?' says how much it is."
    ),
    "shell": "No command of a shell is run from here. 'agentkernel doctor' in one checks the "
    "machine.",
    "targets": (
        "A session has one target at a time, and its candidates stay when it changes: "
        "'for the h100' and 'run', then the next one."
    ),
    "tolerance": (
        "There is no tolerance to set: allowed is what honest evaluation in the precision in force "
        "gives (now {precision}). 'allow tf32' and 'allow bf16' loosen it, 'strict precision' "
        "tightens it, 'how accurate is it?' has the figures."
    ),
    "training": (
        "Weights are neither trained, quantised nor changed: a kernel computes what the module "
        "computes. 'use fp16 inputs' makes the module's inputs and parameters smaller."
    ),
}
"""Why not, and what there is instead."""


def past_the_session(work: SessionState, intent: AskGpu | OtherModule | Cannot, text: str) -> Reply:
    """The answer to each of them."""
    match intent:
        case AskGpu():
            return other_gpu(work, intent)
        case OtherModule():
            return other_module(work, intent, text)
        case Cannot():
            return cannot(work, intent, text)


GREETING = re.compile(
    r"\W*(?:hi|hello|hey|hiya|howdy|yo|greetings|good (?:morning|afternoon|evening|day))"
    r"(?: (?:there|again|everyone|all|you|agentkernel|computer))*\W*",
    re.I,
)
GREETED = (
    "Hello. Ask in plain words, as in 'make it faster', 'why is it slow?' or 'compare c1 and c2'; "
    "'help' lists what can be asked."
)
FORMAT = re.compile(r"\b(?:tf32|bf16)\b", re.I)
WHETHER = re.compile(
    r"\W*(?:(?:so|and|but|ok) )*(?:"
    r"(?:should|shall|must|do) (?:i|we) (?:(?:need|have) to )?(?:use|allow|try|enable|switch to"
    r"|go (?:for|with)|turn on) (?:tf32|bf16)"
    r"|(?:would|will|does|could|can|is) (?:(?:using|allowing|enabling) )?(?:tf32|bf16)"
    r"(?: rounding| also| really)* (?:be|help|make|speed|pay|matter|improve|gain|bring|worth|faster"
    r"|better|a good)"
    r"|is it (?:worth|better|faster) (?:it )?(?:to )?(?:us|allow|try|enabl)(?:e|ing|) "
    r"(?:tf32|bf16))\b[^,;]*",
    re.I,
)
ROUNDS = {"tf32": "10 bits of mantissa", "bf16": "7 bits of mantissa"}


def advice(work: SessionState, text: str) -> Reply | None:
    """The answer to a greeting, and to whether a format is worth it; None for all else. Neither is
    a request, and neither changes anything."""
    if GREETING.fullmatch(text):
        return TextReply(text=GREETED)
    asked = WHETHER.fullmatch(text)
    if asked is None:
        return None
    named = FORMAT.findall(text)[0].lower()
    if work.settings.goals.precision in (named, "bf16"):
        return TextReply(
            text=f"{named} is allowed already (precision {work.settings.goals.precision}): what "
            "rounds so is judged and timed like the rest. 'strict precision' forbids it."
        )
    why = actions.NO_PRODUCT
    if not actions.no_product(work):
        accuracy = "'how accurate is it?' says what that costs"
        why = f"Products may then round their operands to {ROUNDS[named]}; {accuracy}."
    first = f"Nobody knows before it is timed: 'allow {named}' and 'run' try it."
    return TextReply(text=f"{first} {why} Nothing was changed.")


def cannot(work: SessionState, intent: Cannot, asked: str = "") -> Reply:
    """What is never done here, in a line; nothing of the sentence is done. What a question names is
    offered behind it, so that no other numbers stand beside it."""
    offered = offered_knob(Clause(asked, work.context)) if intent.about == "foresight" else ()
    if offered:
        tried = "" if asked.rstrip().endswith("?") else f" {sentences(offered)!r} judges it."
        return not_possible(f"Nobody knows before it is timed.{tried} Nothing was changed.")
    said = IMPOSSIBLE[intent.about].format(
        precision=work.settings.goals.precision, target=work.resolved.target.name
    )
    return not_possible(f"{said} Nothing was changed.")


def other_module(work: SessionState, intent: OtherModule, text: str) -> Reply:
    """Run where the session's own module is named; else how a session on the other begins."""
    module = work.module
    if _is_own(module.path, module.class_name, intent):
        return actions.run(work, Run(), text)
    path = intent.path or (Path(module.path).name if module.path else "FILE")
    named = f"{path}:{intent.class_name}" if intent.class_name else path
    inputs = ', with one --input "name=dtype[shape]" for each argument of its forward'
    shaped = inputs if intent.class_name else ""
    return not_possible(
        f"This session works on {module.name} ({module.class_name}). Another module is a session "
        f"of "
        f"its own, begun in a shell: agentkernel chat {shlex.quote(named)}{shaped}\n"
        "Nothing was changed."
    )


def _is_own(path: str, class_name: str, intent: OtherModule) -> bool:
    """True where nothing that was named speaks for another module."""
    if intent.class_name is not None and intent.class_name != class_name:
        return False
    if intent.path is None:
        return True
    asked, own = Path(intent.path).expanduser(), Path(path)
    return bool(path) and own.parts[-len(asked.parts) :] == asked.parts[-len(own.parts) :]


def other_gpu(work: SessionState, intent: AskGpu) -> Reply:
    """What is known for another GPU, measured or estimated; the target stays what it is."""
    target = find_target(intent.target).target
    if intent.shared_kb is not None:
        most = target.shared_kb_per_block.value
        fits = "fit" if intent.shared_kb <= most else "do not fit"
        return TextReply(
            text=f"{intent.shared_kb:g} KB {fits}: a block may have at most {most:g} KB of shared "
            f"memory on {target.title}."
        )
    best = fastest(work.tree, target.name)
    node = work.tree.node(best) if best is not None else None
    lines = []
    if node is not None and node.profile is not None:
        held = "measured" if node.profile.measurements else "only estimated"
        lines.append(f"{label(best)} was made for {target.title}; its time is {held}.")
    else:
        lines.append(f"No candidate has a time on {target.title}.")
    analysis, eager = work.estimates.figures(work.problem, target, work.settings.goals.precision)
    inputs = work.problem.problem.shape_sets[0].label
    lines.append(
        f"Estimated there: eager {microseconds(eager.time_us)} us, the roofline "
        f"{microseconds(analysis.bound_us)} us (bound by {analysis.roofline}), for {inputs}; an "
        "estimate cannot tell which kernel is faster."
    )
    most = target.shared_kb_per_block.value
    lines.append(f"A block may have at most {most:g} KB of shared memory there.")
    lines.append(f"'for the {target.name}' and 'run' draft and judge for it.")
    return TextReply(text="\n".join(lines))
