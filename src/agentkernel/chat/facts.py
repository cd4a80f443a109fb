"""What is on record about a candidate's kernels, each fact in the words of its source."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import assert_never

from agentkernel.chat.figures import fastest_words, time_words, verdict_words
from agentkernel.chat.language.question_words import (
    AT_ITS_SIZE,
    BIGGER,
    ESTIMATE_MEANT,
    INPUTS_NOW,
    KIND,
    MEASURE_ELSEWHERE,
    TRAINING,
    UNDER_COMPILE,
)
from agentkernel.chat.language.questions import said
from agentkernel.chat.launches import kernel_name, launches_of
from agentkernel.chat.library_calls import library_products
from agentkernel.chat.queries import not_possible
from agentkernel.chat.replies import Reply, TextReply
from agentkernel.chat.requests import AskFact
from agentkernel.chat.session_state import SessionState
from agentkernel.chat.terms import explained
from agentkernel.chat.tree import (
    Node,
    contenders,
    fastest_of,
    is_accepted,
    label,
    problem_of,
    right_here,
)
from agentkernel.domain.errors import one_line
from agentkernel.domain.formatting import count, error_text, microseconds
from agentkernel.domain.plain_text import plain
from agentkernel.domain.profile import KernelResources, Ratio
from agentkernel.domain.verdict import CaseResult, Verdict, in_case
from agentkernel.storage.files import fit_file_name, write_atomic
from agentkernel.storage.source_text import parse_source
from agentkernel.tools.command_lines import on_problem
from agentkernel.tools.compile.candidate import assembly_of
from agentkernel.tools.search.static import last_line
from agentkernel.tools.targets import find_target
from agentkernel.workflows.outcome import DISTINGUISHABLE

NO_CANDIDATE = "There is no candidate yet: the module runs PyTorch's own kernels. 'run' drafts one."
MOST_LISTED = 8
SHOWN_LINES = 60
"""Of an assembly; the file has all."""
SASS = re.compile(r"\bsass\b", re.I)

RESTORE = (
    "In Python, where the kernels were put in:\n"
    "    agentkernel.restore(model)\n"
    "takes out all that 'apply' and 'apply_all' put into the model: every module has its own class "
    "and attributes again, its weights as they are now.\n"
    "Where ModelNew stands in place of the module, put the module back yourself. In this session "
    "'go back to the original' stands at the module, 'undo' takes the last step back."
)
COMPILED = (
    "A drop-in may stand inside of torch.compile, on a GPU: where 'apply_all' put it into the "
    "model, torch.compile traces its guard and its kernels without a graph break, at the sizes "
    "that it was made for. What the guard refuses (other sizes, training mode where it holds for "
    "eval mode only) and what records gradients the original does, in the same graph. A saved "
    "file has no guard, and the judge calls nothing under torch.compile. Without a GPU Triton's "
    "interpreter raises there. 'is it faster than torch.compile?' asks for the speed."
)
REMOTE = ("--remote", "ssh://USER@HOST")
TAKES_OUT = re.compile(
    r"\b(?:undo\w*|un-?(?:appl|swap|patch)\w*|restor\w*|revert\w*|remov\w*|uninstall\w*|detach\w*"
    r"|disabl\w*|get rid|roll\w* back|(?:turn|switch) off|(?:take|get|pull|rip|swap|bring)\b.*\bout"
    r"|(?:put|go|get|switch|bring)\b.*\bback)\b"
)
"""How somebody who asks about the use of a kernel asks for its end."""
LOADS = re.compile(r"\b(?:state_?dicts?|checkpoints?|weights)\b")
NAMED_DTYPE = re.compile(
    r"\b(?:(?P<b>bf(?:loat)?16)|f(?:p|loat)?(?P<float>8|16|32|64)|(?P<int>u?int(?:8|16|32|64))"
    r"|(?P<word>half(?! (?:the|of|an?|as)\b)|(?:single|double)(?=[- ]precision)))\b"
)
OF_A_KIND = re.compile(rf"\b(?P<kind>{KIND}) (?P<name>\w+)")
DTYPES = re.compile(rf"\b(?:d(?:ata)? ?types?|input types?)\b|{NAMED_DTYPE.pattern}|\b{KIND} \w+")
SIZES = re.compile(r"\b(?:batch\w*|siz\w+|shapes?|seq\w*|lengths?|rows|train\w*|eval|grad\w*)\b")
WORDS = {"half": "float16", "single": "float32", "double": "float64"}
RETYPED = {"float16": "fp16", "bfloat16": "bf16", "float32": "fp32"}
"""What the inputs of a module can be made, in the words that ask for it."""


def fact(work: SessionState, intent: AskFact, asked: str = "") -> Reply:
    """The answer to a question about one candidate; `asked`: its words."""
    words = asked.lower()
    if intent.about == "use" and TAKES_OUT.search(words) and not LOADS.search(words):
        return TextReply(text=RESTORE)
    known = _without_candidate(work, intent, said(asked).text)
    if known is not None:
        return known
    if not work.tree.nodes or intent.candidate == "original":
        return not_possible(NO_CANDIDATE)
    node = work.node(intent.candidate)
    name = label(node.number)
    match intent.about:
        case "launch" | "fusion" if LINE.search(words):
            return _lines(work, node)
        case "launch":
            return _of_kernels(node, partial(_launch, _warp_size(node)))
        case "resources" if TENSOR_CORES.search(words):
            return _tensor_cores(node)
        case "resources":
            return _of_kernels(node, _resources)
        case "assembly":
            found = _of_kernels(node, _resources)
            return _assembly(work, node, words, found.text) if found.ok else found
        case "speed":
            return _speed(node)
        case "use" if not is_accepted(node) or not _of_training(words):
            return _use(work, node)
        case "fusion":
            return _fusion(work, node)
        case "least_error":
            return _least_error(work)
        case "autotune":
            return _autotune(work, node)
        case "noise":
            return _noise(work, node)
        case "timing":
            return _with_launches(node) if LAUNCH_TIME.search(words) else _timing(node)
        case "package":
            return _package(work, node)
        case "whole_model":
            return _whole_model(node)
        case "use" | "accuracy" | "holds" | "repeatable" | "checked" | "accumulate":
            verdict = node.verdict
            if verdict is None or not verdict.accepted:
                return not_possible(f"{name}: {verdict_words(node)}. Its figures do not count.")
            if intent.about == "checked" and LAYOUT.search(words):
                return TextReply(text=f"{name}: {_layouts(verdict, node.candidate.source)}")
            if intent.about == "holds" and DTYPES.search(words):
                text = _dtypes(work, node, words)
                both = f"{text}\n{name}: {_holds(verdict)}"
                return TextReply(text=both if SIZES.search(words) else text)
            if intent.about == "use" or (intent.about == "holds" and _of_training(words)):
                return _training(node, verdict)
            if intent.about == "holds" and re.match(BIGGER, said(asked).text):
                return TextReply(text=f"{name}: {_other_sizes(verdict)}")
            if intent.about == "checked" and re.match(AT_ITS_SIZE, said(asked).text):
                return TextReply(text=f"{name}: {_at_its_size(work, node, verdict)}")
            if intent.about == "checked" and IN_SHORT.search(words):
                return TextReply(text=f"{name}: {_checked_in_short(verdict)}")
            if intent.about == "holds" and (batch := BATCH.match(said(asked).text)):
                return TextReply(text=f"{name}: {_of_batch(verdict, int(batch[1]))}")
            if intent.about == "accuracy" and (way := BESIDE_EAGER.match(said(asked).text)):
                return TextReply(text=f"{name}: {_beside_eager(verdict, way)}")
            told = {"accuracy": _accuracy, "holds": _holds, "repeatable": _repeatable}
            told |= {"checked": _checked, "accumulate": _accumulate}
            return TextReply(text=f"{name}: {told[intent.about](verdict)}")
        case "fastest" | "meaning":
            raise AssertionError(f"{intent.about} is answered without a candidate")
        case _:
            assert_never(intent.about)


def _without_candidate(work: SessionState, intent: AskFact, asked: str) -> TextReply | None:
    """The answer to what can be asked before there is a candidate; None for all else."""
    if intent.about == "meaning":
        return TextReply(text=explained(asked))
    if intent.about == "fastest" and work.tree.nodes:
        return _fastest_of(work, asked)
    if intent.about == "holds" and re.match(UNDER_COMPILE, asked):
        return TextReply(text=COMPILED)
    if intent.about == "holds" and re.match(INPUTS_NOW, asked):
        inputs = work.store.problem(work.place.problem).shape_sets[0].label
        return TextReply(text=f"The inputs in force: {inputs}. 'use batch 64', say, sets others.")
    if intent.about == "timing" and re.match(MEASURE_ELSEWHERE, asked):
        return TextReply(text=_elsewhere(work, _meant(work, intent)))
    if intent.about == "timing" and re.match(ESTIMATE_MEANT, asked):
        return TextReply(text=f"{_estimate(work)}\n{_elsewhere(work, _meant(work, intent))}")
    return None


def _estimate(work: SessionState) -> str:
    return (
        "An estimate is no measurement: nothing was timed, for want of the GPU, and the time "
        "follows from the bytes and operations of each launch and from the bandwidth and the peaks "
        f"of the {work.resolved.target.name}, measured ones where they are known. It stands for a "
        f"range, {DISTINGUISHABLE - 1:.0%} to either side at least: what is nearer than that "
        "cannot be told apart."
    )


def _meant(work: SessionState, intent: AskFact) -> Node | None:
    """The candidate that a question is about; None before there is one."""
    if intent.candidate == "current":
        return work.current
    if intent.candidate != "original" and work.tree.nodes:
        return work.node(intent.candidate)
    return None


def _elsewhere(work: SessionState, node: Node | None) -> str:
    """How a candidate is timed on a machine with a GPU; before there is one, how one is drafted."""
    if node is None or not is_accepted(node):
        key, save, does = work.place.problem, "", "drafts, judges and times"
        words: tuple[str, ...] = ()
    else:
        key, does = problem_of(work.tree, node), "judges and times it"
        save = f"'save {label(node.number)} to fast.py', then "
        words = ("--candidate", "fast.py")
    verb = "profile" if words else "optimize"
    command = on_problem(verb, work.store.problem(key), *words, *REMOTE)
    if command is None:
        return (
            "To measure it, begin the session in a Python on a machine with a GPU: a module that "
            "lives in Python is sent to no other. 'run' measures there, 'profile' shows the times."
        )
    return (
        f"To measure it on another machine, one with a GPU: {save}in a shell here\n    {command}\n"
        f"which {does} there, over ssh. It needs the same agentkernel, which 'agentkernel doctor "
        f"{' '.join(REMOTE)}' looks for. Or begin this session on that machine itself: 'run' "
        "measures where there is a GPU, and 'profile' shows the times."
    )


LINE = re.compile(r"\b(?:which|what|at|on) lines?\b|\bline numbers?\b|\bwhere\b.*\blaunch\w*\b")
"""Words of a question about a place in the text."""


def _lines(work: SessionState, node: Node) -> TextReply:
    """The lines of a candidate's text that launch its kernels."""
    name = label(node.number)
    found = launches_of(parse_source(work.source(node.number)))
    if not found:
        return not_possible(f"{name} launches no kernel of its own.")
    places = ", ".join(f"line {call.lineno} launches {kernel_name(call)}" for call in found)
    return TextReply(text=f"{name}: {places}. 'explain line {found[0].lineno}' says how.")


def kernels_of(node: Node) -> tuple[KernelResources, ...]:
    """A candidate's launches as they were compiled; none where they were not."""
    report = node.profile.report if node.profile is not None else None
    return report.kernels if report is not None else ()


def _of_kernels(node: Node, told: Callable[[KernelResources], str]) -> TextReply:
    found = kernels_of(node)
    name = label(node.number)
    if not found:
        return not_possible(f"{name} has no kernels that were compiled: {verdict_words(node)}.")
    assert node.profile is not None
    lines = list(dict.fromkeys(f"{kernel.name}: {told(kernel)}" for kernel in found))
    return TextReply(text="\n".join([f"{name}, compiled for {node.profile.target}:", *lines]))


TENSOR_CORES = re.compile(r"\b(?:tensor[- ]?cores?|h?mma|wgmma|hgmma)\b")


def _tensor_cores(node: Node) -> TextReply:
    """Whether a candidate multiplies on tensor cores, its own kernels and the library apart."""
    own, products = _of_kernels(node, _resources), library_products(node)
    kernels = {kernel.name: kernel.tensor_core for kernel in kernels_of(node)}
    if not products and not kernels:
        return own
    on = {item.tensor_cores for item in products} | {core is not None for core in kernels.values()}
    answer = "yes" if True in on else "it depends" if None in on else "no"
    text = f"{label(node.number)}: {answer}."
    if products:
        which = "product is" if len(products) == 1 else "products are"
        told = "; ".join(item.words for item in products)
        text += f" The {which} the library's ({told})."
    if not kernels:
        return TextReply(text=text)
    using = [name for name, core in kernels.items() if core is not None]
    named = using or list(kernels)
    use = f"{', '.join(named)} {'use' if len(named) > 1 else 'uses'}"
    said = f"{use} them{' too' if products else ''}" if using else f"{use} none"
    return TextReply(text=f"{text} Of its own kernels, {said}.\n{own.text}")


def _warp_size(node: Node) -> int:
    """Threads of a warp on the target that a candidate was compiled for."""
    return find_target(node.profile.target).target.warp_size if node.profile is not None else 0


def _launch(warp_size: int, kernel: KernelResources) -> str:
    grid = " x ".join(map(str, kernel.grid))
    threads = warp_size * kernel.num_warps
    warps, stages = count(kernel.num_warps, "warp"), count(kernel.num_stages, "stage")
    words = f"grid {grid}, {warps} ({threads} threads), {stages}"
    blocks = [f"{key} {value}" for key, value in kernel.constants.items() if key.isupper()]
    return ", ".join([words, *blocks])


def _resources(kernel: KernelResources) -> str:
    if kernel.error is not None:
        return kernel.error
    known = kernel.registers is not None
    parts = [f"{kernel.registers} registers a thread" if known else "registers not known"]
    if kernel.spill_bytes is not None:
        spilled = f"{kernel.spill_bytes} B a thread spilled" if kernel.spill_bytes else "no spills"
        parts.append(spilled)
    parts.append(f"{kernel.shared_bytes} B of shared memory")
    if kernel.occupancy is not None:
        parts.append(f"occupancy {kernel.occupancy:.0%}")
    core = kernel.tensor_core
    parts.append(f"tensor cores ({core})" if core is not None else "no tensor cores")
    return ", ".join(parts)


def _accuracy(verdict: Verdict) -> str:
    margin = f", {verdict.margin_text}" if verdict.margin_text else ""
    odd = in_case(verdict.worst_eager_case)
    return (
        f"error against fp64 {error_text(verdict.worst_error)}, eager's "
        f"{error_text(verdict.worst_eager_error)}{odd}{margin} (precision {verdict.precision}; the "
        f"worst of {len(verdict.cases)} calls, on {verdict.device})."
    )


TOLD_APART = 2.0
"""Worst errors that differ by less are not told apart: other inputs may turn their order over."""
BESIDE_EAGER = re.compile(
    r"(?:is|are|was) (?P<who>eager|pytorch|torch)?.*\b(?P<way>more|less|better|worse|closer"
    r"|nearer|further|lower|higher)\b.*\b(?:accura\w*|precise|errors?|fp64|closer|nearer|better"
    r"|worse|further)\b.*\bthan\b|(?:is|are|was) (?:it|this|that|c\d+)\b.*\b(?P<way2>more"
    r"|less|better|worse|closer|nearer|further)\b.*\bthan (?:eager|pytorch|torch|the original)\b"
)
"""Whether one of both is the more accurate."""


def _beside_eager(verdict: Verdict, asked: re.Match[str]) -> str:
    """Whether a candidate is more accurate than eager, or what of the two was asked."""
    own, eager = verdict.worst_error, verdict.worst_eager_error
    if own is None or eager is None:
        return f"cannot be told: {_accuracy(verdict)}"
    if max(own, eager) < TOLD_APART * min(own, eager) or own == eager:
        return (
            "no difference to eager that can be told, for worst errors within a factor of "
            f"{TOLD_APART:g} are as good as alike; {_accuracy(verdict)}"
        )
    better = own < eager
    inverted = (asked["way"] or asked["way2"]) in ("less", "worse", "further", "higher")
    yes = better != inverted if asked["who"] is None else better == inverted
    word = "more" if better else "less"
    return f"{'yes' if yes else 'no'}, it is {word} accurate than eager; {_accuracy(verdict)}"


BATCH = re.compile(
    r"(?!.*\b(?:break|crash|fail|rais|error|wrong|slow|fast|only|just)\w*)"
    r"(?:does|do|can|will|would|is|could)\b.*\bbatch(?:es|[_ ]?sizes?)?(?: of| =|=)? ?(\d{1,9})\b"
)
"""Whether a batch of so many is held for."""
FIRST_SIZE = re.compile(r"\[(\d+)")


def _of_batch(verdict: Verdict, batch: int) -> str:
    """Whether the first dimension may be `batch`, by the sizes that were judged."""
    found = [FIRST_SIZE.search(case.shapes) for case in verdict.cases]
    judged = {int(item[1]) for item in found if item is not None}
    if batch in judged:
        answer = f"yes, a first dimension of {batch} was judged"
    elif len(judged) > 1 and not verdict.declared_sizes:
        answer = f"yes, the first dimension is free; {batch} itself was not judged"
    else:
        fixed = ", ".join(map(str, sorted(judged))) or "what was judged"
        answer = f"no, its first dimension is {fixed} alone"
    return f"{answer}; {_holds(verdict)}"


def _holds(verdict: Verdict) -> str:
    mode = "eval mode only: in training mode it raises" if verdict.eval_only else "train and eval"
    gradients = "gradients as the original's" if verdict.gradients else "forward only"
    return f"{mode}; {gradients}; {_sizes(verdict)}."


def _sizes(verdict: Verdict) -> str:
    if verdict.declared_sizes:
        return "the declared sizes only: at others it raises"
    sizes = sorted({case.shapes for case in verdict.cases})
    return free_sizes(sizes) or f"free sizes; judged at {'; '.join(sizes)}"


def _of_training(asked: str) -> bool:
    return bool(re.search(TRAINING, asked)) and not LOADS.search(asked)


def _training(node: Node, verdict: Verdict) -> TextReply:
    """Whether a model may be trained with it, and how."""
    holds = f"{label(node.number)}: {_holds(verdict)}"
    if verdict.gradients and not verdict.eval_only:
        lines = [
            holds,
            "That is ModelNew itself, called in place of the module. What 'apply_all' puts in runs "
            "after model.eval(): an applied model that trains runs its own modules.",
            *_in_place(node),
        ]
        return TextReply(text="\n".join(lines))
    return TextReply(
        text=f"{holds}\nTrain with the original: behind the guard of 'apply_all' it runs in "
        "training mode, and the kernel after model.eval(). 'how do I use it?' has the lines."
    )


def _other_sizes(verdict: Verdict) -> str:
    """What is known of other sizes than those in force, and how they are judged."""
    return (
        f"{_sizes(verdict)}. Its time is for its own sizes alone: 'use batch 64', say, and 'run' "
        "draft, judge and time at others."
    )


def _dtypes(work: SessionState, node: Node, asked: str) -> str:
    """The dtypes of the inputs that a candidate was judged with; of one that is asked for, whether
    it is among them, and which candidate has it or how one comes to be."""
    name = label(node.number)
    found = NAMED_DTYPE.search(asked)
    wanted = None if found is None else _dtype_of(found)
    held = _input_dtypes(work, node)
    kind = OF_A_KIND.search(asked)
    if wanted is None and kind is not None:
        return f"{_of_kind(held, kind)} {name} was judged with nothing else."
    takes = "; ".join(f"{', '.join(names)} {dtype}" for dtype, names in held.items())
    said = f"{name} takes {takes} alone, as it was judged."
    if wanted in held:
        return f"Yes: {said}"
    others = [
        (other, label(item.number))
        for item in work.tree.nodes
        if is_accepted(item) and item.number not in work.tree.rejected
        for other in _input_dtypes(work, item).keys() - held.keys()
        if wanted in (None, other)
    ]
    lines = [said if wanted is None else f"No: {said}"]
    lines += [f"{other} is for {dtype}." for dtype, other in dict(others).items()]
    made = wanted or next(item for item in RETYPED if item not in held)
    if not others and made in RETYPED:
        lines.append(f"'use {RETYPED[made]} inputs' and 'run' draft one for {made}.")
    return " ".join(lines)


def _of_kind(held: dict[str, list[str]], asked: re.Match[str]) -> str:
    """Whether an input may be a float, an integer or a truth value, by its name or that of all."""
    kind, name = asked["kind"][:3], asked["name"]
    by_name = {one: dtype for dtype, names in held.items() for one in names}
    named = {one: dtype for one, dtype in by_name.items() if one == name} or by_name
    of = [
        one
        for one, dtype in named.items()
        if {"flo": "float", "boo": "bool"}.get(kind, kind) in dtype
    ]
    answer = "Yes" if of else "No"
    told = ", ".join(f"{one} is {dtype}" for one, dtype in named.items())
    other = (
        "" if of else " Another is another module: give it in its inputs, in a session of its own."
    )
    return f"{answer}: {told}.{other}"


def _fastest_of(work: SessionState, asked: str) -> TextReply:
    """The fastest right candidate whose floating inputs have the dtype that is asked for, for each
    set of such inputs."""
    found = NAMED_DTYPE.search(asked)
    wanted = "" if found is None else _dtype_of(found)
    lines = []
    for key in dict.fromkeys(problem_of(work.tree, node) for node in work.tree.nodes):
        inputs = work.store.problem(key).shape_sets[0]
        if wanted in {item.dtype for item in inputs.tensors}:
            nodes = contenders(work.tree, work.target_name, key)
            best = fastest_of(nodes)
            if best is not None:
                time = time_words(best, work.target_name) or "nobody has a time"
                lines.append(f"Fastest with {inputs.label}: {fastest_words(nodes)}; {time}.")
    if lines:
        return TextReply(text="\n".join(lines))
    say = f" 'use {RETYPED[wanted]} inputs' and 'run' draft one." if wanted in RETYPED else ""
    return not_possible(f"No right candidate with {wanted} inputs has a time here.{say}")


def _dtype_of(found: re.Match[str]) -> str:
    if found["b"]:
        return "bfloat16"
    return found["int"] or WORDS.get(found["word"] or "") or f"float{found['float']}"


def _input_dtypes(work: SessionState, node: Node) -> dict[str, list[str]]:
    """Dtype -> the inputs that have it, of the problem that a candidate answers."""
    held: dict[str, list[str]] = {}
    for item in work.store.problem(problem_of(work.tree, node)).shape_sets[0].tensors:
        held.setdefault(item.dtype, []).append(item.name)
    return held


SIZE = re.compile(r"(?<=[\[ ])\d+(?=[,\]])")
"""A size in `x float32[33, 1024]`."""


def free_sizes(shapes: Sequence[str]) -> str:
    """`x float32[free, 1024], where a free size was judged at 7, 33; ...`, of the sizes of each
    call; "" where all are one, or the calls differ in more than sizes."""
    columns = [set(column) for column in zip(*map(SIZE.findall, shapes), strict=False)]
    several = [column for column in columns if len(column) > 1]
    if not several or len({SIZE.sub("", item) for item in shapes}) > 1:
        return ""
    words = iter("free" if len(column) > 1 else column.pop() for column in columns)
    judged = sorted({int(size) for column in several for size in column})
    return (
        f"{SIZE.sub(lambda _: next(words), shapes[0])}: a free size was judged at "
        f"{', '.join(map(str, judged))}; a number is fixed, no other was judged"
    )


LAYOUT = re.compile(r"contiguous|stride|transpose|layout")
"""Words of a question about how inputs may lie in memory."""
NOT_CONTIGUOUS = re.compile(r"\b(strided|stepped|expanded|sliced|permuted|swapped) inputs\b")
"""What the judge's calls say of inputs with gaps, repeats or another order in memory."""


def _layouts(verdict: Verdict, source: str) -> str:
    """Whether inputs must be contiguous, and what that rests on."""
    found = [item[1] for case in verdict.cases if (item := NOT_CONTIGUOUS.search(case.label))]
    copies = ".contiguous()" in source
    copied = "it copies them first ('.contiguous()' is in its text)"
    if not found:
        known = f"no: {copied}" if copies else "not known whether inputs must be contiguous"
        return f"{known}; all judged calls had contiguous inputs."
    kinds = ", ".join(sorted(set(found)))
    how = f"; {copied}" if copies else ""
    return (
        f"no, inputs need not be contiguous: it was right in {len(found)} of "
        f"{count(len(verdict.cases), 'judged call')} with others ({kinds}){how}."
    )


def _repeatable(verdict: Verdict) -> str:
    if verdict.repeatable is None:
        return "nobody called it twice on the same inputs: not known whether its bits repeat."
    if verdict.repeatable:
        return f"the same inputs twice gave the same bits (on {verdict.device})."
    return "the same inputs twice gave other bits: sums are added in an order that changes."


def _speed(node: Node) -> Reply:
    name = label(node.number)
    if not is_accepted(node):
        return not_possible(f"{name}: {verdict_words(node)}. Its speed does not count.")
    profile = node.profile
    if profile is None:
        return not_possible(f"{name} has no time. 'run' takes one.")
    if not profile.measurements:
        eager = profile.baseline_estimate
        said = f"{name} {microseconds(profile.estimate.time_us)} us"
        said += f", eager {microseconds(eager.time_us)} us" if eager is not None else ""
        return TextReply(
            text=f"Cannot tell: nothing was measured. Estimated for {profile.target}: {said}; of "
            "torch.compile there is no estimate."
        )
    found = profile.measurements[0]
    rows = (
        ("torch.compile", found.vs_compile),
        ("max-autotune", found.vs_autotune),
        ("eager", found.vs_eager),
    )
    lines = [f"{name} {_against(ratio)} {other}" for other, ratio in rows if ratio is not None]
    if found.vs_compile is None:
        lines.insert(0, f"torch.compile was not timed: {found.compile_error or 'left out'}")
    return TextReply(text="\n".join([*lines, f"measured on {profile.measured_on}"]))


def _against(ratio: Ratio) -> str:
    span = f"{ratio.value:.2f}x [{ratio.low:.2f}, {ratio.high:.2f}]"
    if ratio.low > 1:
        return f"is faster, {span}, than"
    return f"is slower, {span}, than" if ratio.high < 1 else f"is about as fast, {span}, as"


def _in_place(node: Node) -> list[str]:
    """How a candidate is called in place of its module, as lines to type."""
    name = label(node.number)
    return [
        f"'save {name} to fast.py' writes {name}; then, in place of the module:",
        "    from fast import ModelNew",
        "The constructor's arguments and the weights' names are the original's.",
    ]


def _use(work: SessionState, node: Node) -> TextReply:
    name = label(node.number)
    if not is_accepted(node):
        return not_possible(f"{name} cannot be handed over: {verdict_words(node)}.")
    step = work.tree.step(node.step)
    lines = _in_place(node)
    if step is not None and step.run is not None:
        lines += [
            "To put what its run handed over into a model of your own, behind a guard:",
            f"    agentkernel.apply_all(model, {str(work.runs / step.run)!r})",
            "For a part of the model alone, give that part in place of 'model', such as its first "
            "layers: model.layers[:16].",
        ]
    return TextReply(text="\n".join(lines))


def _fusion(work: SessionState, node: Node) -> Reply:
    """Which operations of the module run in how many launches."""
    if not is_accepted(node):
        return not_possible(f"{label(node.number)}: {verdict_words(node)}.")
    assert node.verdict is not None
    launches = list(node.verdict.launches)
    plan = work.plan_of(node)
    ops = plan.analysis.op_counts if plan is not None else {}
    named = ", ".join(f"{name} x{number}" for name, number in sorted(ops.items()))
    what = (
        f"the module's {count(sum(ops.values()), 'operation')} ({named})" if ops else "the module"
    )
    times = ", ".join(dict.fromkeys(launches)) or "none of its own"
    return TextReply(
        text=f"{label(node.number)} computes {what} in {count(len(launches), 'call')} of its own "
        f"kernels: {times}.\nWhat each of them does: 'explain {label(node.number)}'."
    )


def _checked(verdict: Verdict) -> str:
    """What the judge called it with, and how often."""
    cases = verdict.cases
    seeds = len({case.seed for case in cases})
    rows = (
        ("sizes", Counter(case.shapes for case in cases), "; "),
        ("values", Counter(case.distribution for case in cases), ", "),
        ("also", Counter(also for case in cases for also in _beside(case)), ", "),
    )
    lines = [
        f"{what}: " + between.join(f"{name} ({times})" for name, times in found.most_common())
        for what, found, between in rows
        if found
    ]
    return "\n".join(
        [
            f"{count(len(cases), 'call')} compared with fp64, {count(seeds, 'seed')}, precision "
            f"{verdict.precision}, on {verdict.device}; in brackets how many of them.",
            *lines,
            f"That is testing, and no proof; {verdict.margin_text or 'it passed'}.",
        ]
    )


def _beside(case: CaseResult) -> list[str]:
    """What is said of a call behind its values, its seed and its sizes: `strided inputs`."""
    if not case.shapes:
        return []
    _, _, behind = case.label.partition(case.shapes)
    return list(filter(None, behind.split(", ")))


def _at_its_size(work: SessionState, node: Node, verdict: Verdict) -> str:
    """Whether the sizes that were given were themselves judged, or others in their place."""
    given = [item.label for item in work.store.problem(problem_of(work.tree, node)).shape_sets]
    judged = {case.shapes for case in verdict.cases}
    left = [item for item in given if item not in judged]
    if not left:
        calls = sum(case.shapes in given for case in verdict.cases)
        return f"yes: {count(calls, 'judged call')} had {'; '.join(given)} itself, and was right."
    here = " Without a GPU large sizes are judged at smaller ones." if verdict.interpreted else ""
    return (
        f"right in all {count(len(verdict.cases), 'judged call')}, but none had "
        f"{'; '.join(left)} itself.{here} Judged: {'; '.join(sorted(judged))}."
    )


IN_SHORT = re.compile(r"\b(?:safe|trustworthy|production[- ]ready)\b")
"""Words of a question that wants no list of calls."""


def _checked_in_short(verdict: Verdict) -> str:
    cases = verdict.cases
    kinds, sizes = {case.distribution for case in cases}, {case.shapes for case in cases}
    error = f"error {verdict.margin_text}" if verdict.margin_text else "it passed"
    mode = "; for eval mode only" if verdict.eval_only else ""
    return (
        f"right in {count(len(cases), 'call')} compared with fp64 "
        f"({count(len(kinds), 'kind')} of values, {count(len(sizes), 'set')} of sizes), "
        f"{error}{mode}. That is testing, and no proof: 'how was it checked?' lists the calls."
    )


def _accumulate(verdict: Verdict) -> str:
    return (
        f"it passed under precision {verdict.precision}, in which sums kept in 16 bits are refused "
        "as a loss of precision; 'tl.dot' of 16-bit operands sums in fp32 unless its text says "
        f"otherwise. Error against fp64 {error_text(verdict.worst_error)}, eager's "
        f"{error_text(verdict.worst_eager_error)}. Nothing to change."
    )


def _least_error(work: SessionState) -> Reply:
    """The right candidates for the sizes in force by their error, least first."""
    found = [
        (node.verdict.worst_error, node.number)
        for node in right_here(work.tree)
        if node.verdict is not None
    ]
    right = sorted((error, number) for error, number in found if error is not None)[:MOST_LISTED]
    if not right:
        return not_possible("No right candidate has an error yet. 'run' drafts one.")
    lines = [f"{label(number)}: {error_text(error)}" for error, number in right]
    best = right[0][0]
    alike = [label(number) for error, number in right if error <= TOLD_APART * best]
    answer = f"Most accurate: {alike[0]}."
    if len(alike) > 1:
        answer = (
            f"No difference that can be told between {', '.join(alike)}: each was judged on inputs "
            f"of its own seed, and worst errors within a factor of {TOLD_APART:g} are as good as "
            "alike."
        )
    return TextReply(text="\n".join([answer, "Error against fp64, least first:", *lines]))


def _autotune(work: SessionState, node: Node) -> Reply:
    name = label(node.number)
    if "autotune" in work.source(node.number):
        return TextReply(
            text=f"{name} tunes itself where it runs: '@triton.autotune' is in its text."
        )
    return TextReply(
        text=f"{name} tunes nothing where it runs: warps, stages and blocks are constants in its "
        "text, chosen before. Nothing to change."
    )


def _noise(work: SessionState, node: Node) -> Reply:
    """The speed with its intervals, and how it is timed once more."""
    found = _speed(node)
    if not isinstance(found, TextReply) or not found.ok:
        return found
    measured = node.profile is not None and node.profile.measurements
    if not measured and not work.resolved.measurable:
        return TextReply(text=f"{found.text}\n{_elsewhere(work, node)}")
    target = ("--target", work.target_name) if work.target_name else ()
    problem = work.store.problem(work.place.problem)
    command = on_problem("profile", problem, "--candidate", "fast.py", *target)
    again = (
        f"'save it to fast.py', then in a shell\n    {command}"
        if command is not None
        else "'run' once more; a module that lives in Python is timed by no shell"
    )
    return TextReply(
        text=f"{found.text}\nIn brackets stands the 95% interval; one that holds 1 is no speedup.\n"
        f"To time it once more: {again}"
    )


LAUNCH_TIME = re.compile(r"\blaunch\w*|\boverhead\b")
A_LAUNCH = "us a launch"
"""In what an estimate assumes."""


def _with_launches(node: Node) -> Reply:
    """Whether a time has its launches in it, and their share."""
    name, profile = label(node.number), node.profile
    if profile is None:
        return not_possible(f"{name} has no time. 'run' takes one.")
    host = "What the host takes to launch is not"
    if profile.measurements:
        found = profile.measurements[0]
        return TextReply(
            text=f"{name}: yes, on the device: {found.candidate.median_us:.3g} us is the time of "
            f"a whole call there, launches ({found.launches}) and all. {host}: it hides behind the "
            "flush of the L2."
        )
    share = next((item for item in profile.estimate.assumptions if A_LAUNCH in item), "")
    told = f": {share}" if share else ""
    return TextReply(
        text=f"{name}: yes, its {profile.estimate.time_us:.3g} us (estimated) have the launches in "
        f"them{told}. {host}."
    )


def _timing(node: Node) -> Reply:
    """How times are taken, and how many rounds the candidate's own rest on."""
    profile = node.profile
    found = profile.measurements[0] if profile is not None and profile.measurements else None
    own = (
        f"{label(node.number)}: {count(found.rounds, 'round')}, measured on {profile.measured_on}."
        if found is not None and profile is not None
        else f"{label(node.number)} was not measured: there was no GPU, its time is estimated."
    )
    return TextReply(
        text=f"{own}\nOn a GPU each call is timed with a cold L2 (flushed before it) and fresh "
        "inputs, after an untimed warm-up, candidate and baselines in shuffled turns, until the "
        "ratios are known well enough. A time is the median; ratios are paired and have a 95% "
        "interval. An output kept from another call is found and refused."
    )


def _assembly(work: SessionState, node: Node, asked: str, resources: str) -> TextReply:
    """PTX and SASS, compiled anew, in files of the session; the beginning of what was named."""
    assert node.profile is not None
    texts = assembly_of(
        work.problem_at(problem_of(work.tree, node)),
        node.candidate.source,
        find_target(node.profile.target).target,
        allow_unsandboxed=work.settings.judge.allow_unsandboxed,
    )
    if not isinstance(texts, dict):
        return not_possible(f"{resources}\nNo assembly: {one_line(last_line(texts.log))}")
    lines, shown = [resources], list[str]()
    for kernel, kinds in sorted(texts.items(), key=lambda item: not _is_named(item[0], asked)):
        for kind, text in kinds.items():
            path = work.folder / fit_file_name(f"{label(node.number)}-{kernel}.{kind}")
            write_atomic(path, text)
            lines.append(
                f"{kind.upper()} of {kernel}, {count(text.count(chr(10)), 'line')}: {path}"
            )
            if not shown and (kind == "sass") == ("sass" in kinds and bool(SASS.search(asked))):
                shown = plain(text).splitlines()
    more = [f"and {len(shown) - SHOWN_LINES} lines more."] if len(shown) > SHOWN_LINES else []
    return TextReply(text="\n".join([*lines, *shown[:SHOWN_LINES], *more]))


def _is_named(kernel: str, asked: str) -> bool:
    """Whether a question says which kernel it means: "the sass of the add kernel"."""
    return bool(
        ({*kernel.lower().split("_")} - {"kernel"}) & set(re.findall(r"\w+", asked.lower()))
    )


def _package(work: SessionState, node: Node) -> Reply:
    """The command that makes a package of what a run handed over."""
    step = work.tree.step(node.step)
    if not is_accepted(node) or step is None or step.run is None:
        return not_possible(f"{label(node.number)} cannot be handed over: {verdict_words(node)}.")
    return TextReply(
        text="What a run handed over becomes a wheel, a repository for the Hub or an op of "
        "torch.library, in a shell:\n"
        f"    agentkernel export {work.runs / step.run} --as wheel|hub|torch-library"
    )


def _whole_model(node: Node) -> Reply:
    """Why it is not known, and how far it can go."""
    profile = node.profile
    ratio = profile.measurements[0].vs_compile if profile and profile.measurements else None
    lines = ["A session times the module alone: the model around it is not known here."]
    if ratio is not None:
        whole = 1 / (0.7 + 0.3 / ratio.value)
        lines.append(
            f"Where the module takes 30% of a model's time, {ratio.value:.2f}x on it is "
            f"{whole:.2f}x "
            "on the model (Amdahl)."
        )
    lines.append(
        "'how do I use it?' says how it gets into a model, which your own clock then times."
    )
    return TextReply(text="\n".join(lines))
