"""Requests that act: run, undo, branch, keep, export, and changes of settings and sizes."""

from __future__ import annotations

import ast
import re
from typing import Literal

from agentkernel.chat import tree
from agentkernel.chat.figures import baseline_us, time_words, verdict_words
from agentkernel.chat.files import certificate_of, drop_in_path, write_drop_in, write_session
from agentkernel.chat.problem_sizes import checked, fitted, reshaped, retyped
from agentkernel.chat.queries import not_possible, tried
from agentkernel.chat.replies import (
    ClarificationNeeded,
    EditRequested,
    FilesWritten,
    PositionChanged,
    Reply,
    TextReply,
)
from agentkernel.chat.requests import (
    Edit,
    LessMemory,
    MemoryLimit,
    OnCandidate,
    PlainName,
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
from agentkernel.chat.session_state import SessionState, difference, display_value, merge_changes
from agentkernel.chat.steps import HandWritten, continue_step, run_step
from agentkernel.chat.tree import (
    Changes,
    Node,
    Place,
    is_accepted,
    label,
    problem_of,
)
from agentkernel.chat.user_input import MOST_SOURCE
from agentkernel.domain.errors import AgentKernelError, RunNotFound, one_line
from agentkernel.domain.problem import Problem
from agentkernel.domain.profile import Measurement
from agentkernel.domain.settings import MODEL_PREFIXES
from agentkernel.storage.source_text import parse_source
from agentkernel.tools.targets import find_target, load_targets
from agentkernel.workflows.outcome import faster_baseline, ratio_against


def run(work: SessionState, intent: Run, text: str) -> Reply:
    """Go on from where the session stands; a step that was stopped here goes on itself."""
    only_now: Changes = {}
    if intent.rounds is not None:
        only_now["budget.rounds"] = intent.rounds
    if intent.seconds is not None:
        only_now["budget.time_s"] = intent.seconds
    last = work.tree.steps[-1] if work.tree.steps else None
    if (
        last is not None
        and last.state == "stopped"
        and not only_now
        and _is_here(work, last.number)
    ):
        return continue_step(work, last)
    return run_step(work, text, only_now=only_now)


def _is_here(work: SessionState, number: int) -> bool:
    """True where nothing was changed since that step began."""
    step = work.tree.step(number)
    return (
        step is not None
        and step.run is not None
        and (step.changes, step.problem) == (work.place.changes, work.place.problem)
    )


def try_idea(work: SessionState, intent: TryIdea, text: str) -> Reply:
    """Run with one strategy of the plan in front."""
    plan = work.plan or work.first_plan
    if not plan.hypotheses:
        return not_possible("The plan has no ideas. 'run' makes one and tries it in order.")
    names = [item.strategy for item in plan.hypotheses]
    if intent.idea == "last":
        return run_step(work, text, focus=names[-1])
    if intent.idea == "next":
        left = [name for name in names if name not in tried(work)]
        if not left:
            return not_possible(
                f"All {len(names)} ideas were tried. 'be more aggressive' looks for others."
            )
        return run_step(work, text, focus=left[0])
    if intent.idea > len(names):
        known = "; ".join(f"{place}. {name}" for place, name in enumerate(names, 1))
        return not_possible(f"There is no idea {intent.idea}. Known: {known}.")
    return run_step(work, text, focus=names[intent.idea - 1])


def repair(work: SessionState, intent: OnCandidate, text: str) -> Reply:
    """Draft anew from a refused candidate, where a model drafts; a right one is made faster."""
    named = intent.candidate != "current"
    node = work.node(intent.candidate) if named and work.tree.nodes else work.to_mend
    if node is None or is_accepted(node):
        return run_step(work, text)
    settings = work.settings
    if not (settings.coder.startswith(MODEL_PREFIXES) or settings.in_turns):
        return not_possible(
            f"{label(node.number)} was written by the {node.candidate.coder} coder, which drafts "
            f"by rule and would write it again. 'edit {label(node.number)}' changes it by hand; a "
            "model does with the setting coder = chat:PROVIDER:MODEL."
        )
    return run_step(work, text, focus=node.candidate.strategy or None)


def undo(work: SessionState, intent: Undo) -> Reply:
    """So many places back."""
    if work.tree.at == 0:
        return not_possible("Nothing to undo: this is where the session began.")
    if intent.steps > work.tree.at:
        most = "one step" if work.tree.at == 1 else f"{work.tree.at} steps"
        return not_possible(f"{intent.steps} steps are more than there were: {most} can be undone.")
    before = work.place
    work.tree = tree.undo(work.tree, intent.steps)
    return PositionChanged(place=work.place, text=_moved_words(work, before))


def redo(work: SessionState) -> Reply:
    """One place on again."""
    if work.tree.at + 1 >= len(work.tree.places):
        return not_possible("Nothing to redo.")
    before = work.place
    work.tree = tree.redo(work.tree)
    return PositionChanged(place=work.place, text=_moved_words(work, before))


def return_to(work: SessionState, intent: OnCandidate) -> Reply:
    """Stand at a candidate again, with its settings."""
    before = work.place
    work.tree = tree.return_to(work.tree, work.meant(intent.candidate))
    return PositionChanged(place=work.place, text=_moved_words(work, before))


def stand_at(work: SessionState, node: Node) -> PositionChanged:
    """Stand at a candidate for the inputs in force, with the settings in force."""
    before = work.place
    work.tree = tree.move(work.tree, before.evolve(candidate=node.number))
    return PositionChanged(place=work.place, text=_moved_words(work, before))


def declined(work: SessionState) -> Reply:
    """Nothing waits: what was set by the last move stays, and how it is taken back."""
    places, at = work.tree.places, work.tree.at
    set_last = _settings_moved(work, places[at - 1]) if at else []
    if not set_last:
        return TextReply(text="Nothing was waiting for an answer, and nothing was changed.")
    stays = f"What was set last stays: {'; '.join(set_last)}. 'undo' takes it back."
    return TextReply(text=f"Nothing was waiting for an answer. {stays}")


def restart(work: SessionState) -> Reply:
    """The module and the first settings; the tree stays."""
    before = work.place
    work.tree = tree.move(work.tree, Place(branch=before.branch))
    return PositionChanged(
        place=work.place, text=f"{_moved_words(work, before)} Nothing was thrown away."
    )


def fork(work: SessionState, intent: OnCandidate) -> Reply:
    """Begin a branch."""
    found = work.meant(intent.candidate)
    old = work.place.branch
    work.tree = tree.fork(work.tree, found)
    text = (
        f"Branch {work.place.branch} begins at {label(found)}. 'switch to branch {old}' goes back."
    )
    return PositionChanged(place=work.place, text=text)


def switch_branch(work: SessionState, intent: SwitchBranch) -> Reply:
    """Stand at another branch's tip."""
    if isinstance(intent.branch, str) and intent.branch != "main":
        known = ", ".join(str(item.number) for item in work.tree.branches)
        return not_possible(
            f"No branch has the name {intent.branch!r}: branches have numbers. Known: {known}."
        )
    number = 1 if isinstance(intent.branch, str) else intent.branch
    before = work.place
    work.tree = tree.switch(work.tree, number)
    return PositionChanged(
        place=work.place, text=f"Branch {work.place.branch}. {_moved_words(work, before)}"
    )


def keep(work: SessionState, intent: OnCandidate) -> Reply:
    """Write a right candidate beside the module, with its certificate."""
    return _keep(work, work.node(intent.candidate), None)


def save(work: SessionState, intent: WriteTo) -> Reply:
    """The same, to a path."""
    return _keep(work, work.node(intent.candidate), intent.path)


def _keep(work: SessionState, node: Node, path: str | None) -> Reply:
    name = label(node.number)
    if not is_accepted(node):
        return not_possible(
            f"{name} is not kept: {verdict_words(node)}. Only what the judge passed can be."
        )
    paths = write_drop_in(work, node, drop_in_path(work, path))
    work.tree = tree.keep(work.tree, node.number)
    time = time_words(node)
    text = f"Kept {name} as {paths[0]}" + (f": {time}." if time else ".")
    warning = _warning(work, node)
    return FilesWritten(paths=paths, text=f"{text} {warning}".strip())


def _warning(work: SessionState, node: Node) -> str:
    """What somebody who keeps it must know."""
    parts = []
    if problem_of(work.tree, node):
        key = problem_of(work.tree, node)
        inputs = work.store.problem(key).shape_sets[0].label
        parts.append(f"It was judged with {work.inputs_apart(key)}: {inputs}.")
    if node.profile is None or not node.profile.measurements:
        parts.append("Nobody measured it: its time is an estimate.")
    elif min(ratio_against(item, "best").low for item in node.profile.measurements) <= 1.0:
        parts.append(_faster_baseline(node.profile.measurements[0]))
    return " ".join(parts)


def _faster_baseline(measured: Measurement) -> str:
    """Which baseline a kept candidate does not surely beat, with its time and what it may round."""
    name = faster_baseline(measured)
    timing = {
        "eager": measured.eager,
        "torch.compile": measured.compiled,
        "max-autotune": measured.autotuned,
    }[name]
    time = "" if timing is None else f", which takes {timing.median_us:.3g} us"
    switch = (
        ""
        if measured.baselines_matmul == "highest"
        else f" under torch.set_float32_matmul_precision({measured.baselines_matmul!r})"
    )
    return f"It is not surely faster than {name}{time}{switch}."


def reject(work: SessionState, intent: OnCandidate) -> Reply:
    """Discard a candidate; it stays in the tree."""
    node = work.node(intent.candidate)
    if node.number in work.tree.rejected:
        return TextReply(text=f"{label(node.number)} is discarded already.")
    work.tree = tree.reject(work.tree, node.number)
    at = label(work.place.candidate)
    text = f"{label(node.number)} is discarded; the session stands at {at}."
    return PositionChanged(
        place=work.place, text=f"{text} 'keep {label(node.number)}' takes it back."
    )


def export(work: SessionState, intent: WriteTo, texts: dict[str, str]) -> Reply:
    """The whole session in a folder: readable, and replayable."""
    number = work.tree.kept or work.place.candidate
    node = work.tree.node(number) if number is not None else None
    chosen = node if node is not None and is_accepted(node) else None
    missing = ""
    if chosen is not None:
        try:
            certificate_of(work, chosen)
        except RunNotFound as error:
            missing = f". {label(chosen.number)} has no certificate here: {error}"
            chosen = None
    paths = write_session(work, intent.path, chosen, texts)
    what = f"with {label(chosen.number)} as its drop-in" if chosen else "without a drop-in"
    return FilesWritten(paths=paths, text=f"The session is written, {what}: {paths[0]}{missing}")


def edit(work: SessionState, intent: Edit) -> Reply:
    """Hand a candidate's text out to be changed."""
    number = work.meant(intent.candidate)
    if number is None:
        if intent.candidate == "original" or work.to_mend is None:
            return not_possible(
                "The module itself is not edited here. 'run' makes a candidate to edit."
            )
        number = work.to_mend.number
    return EditRequested(number=number, text=work.source(number), line=intent.line)


def offer(work: SessionState, given: HandWritten, base: int | None, text: str) -> Reply:
    """Judge a candidate that was written by hand, like any other."""
    if base is not None and work.tree.node(base) is None:
        return not_possible(f"There is no candidate c{base} that it could come from.")
    trouble = _trouble(given.source)
    if trouble:
        return not_possible(trouble)
    if base is not None and work.source(base) == given.source:
        return TextReply(text=f"Unchanged: it is {label(base)} as it was. Nothing to judge.")
    return run_step(work, text, given=given, base=base)


def _trouble(source: str) -> str:
    """Why a text cannot be judged as a candidate; "" where it can."""
    if not source.strip():
        return "The file is empty: nothing to judge."
    if len(source) > MOST_SOURCE:
        return f"That is {len(source):,} characters. Expected a file of at most {MOST_SOURCE:,}."
    try:
        parsed = parse_source(source)
    except SyntaxError as error:
        line = f" line {error.lineno}:" if error.lineno else ""
        return f"It is no Python:{line} {one_line(error.msg)}. Nothing was judged."
    if not any(isinstance(item, ast.ClassDef) and item.name == "ModelNew" for item in parsed.body):
        return "It defines no class ModelNew, which every candidate does. Nothing was judged."
    return ""


def _moved_words(work: SessionState, before: Place) -> str:
    place = work.place
    node = work.tree.node(place.candidate) if place.candidate is not None else None
    parts = [f"At {label(place.candidate)}" + (f": {verdict_words(node)}" if node else "")]
    return f"{'; '.join([*parts, *_settings_moved(work, before)])}."


def _settings_moved(work: SessionState, before: Place) -> list[str]:
    """The settings and inputs in force that were others at the place `before`."""
    place = work.place
    try:
        parts = list(difference(work.settings_of(before.changes), work.settings_of(place.changes)))
    except AgentKernelError as error:
        parts = [one_line(error)]
    if before.problem != place.problem:
        parts.append(work.store.problem(place.problem).shape_sets[0].label)
    return parts


EXTRA_ROUNDS = 3
HARDER = 1.1
"""What a harder search aims at: so many times what is there."""
RUN_HINT = "'run' tries it."
NO_PRODUCT = (
    "It changes little here: the module has no matrix product to be rounded, and moves the same "
    "bytes."
)


def change(work: SessionState, changes: Changes, hint: str = RUN_HINT) -> Reply:
    """Work with other settings from here on. Raises SettingError, UnknownTarget."""
    before = work.settings
    joined = merge_changes(work.place.changes, changes)
    told = difference(before, work.settings_of(joined))
    if not told:
        named = ", ".join(f"{key} {display_value(value)}" for key, value in changes.items())
        return TextReply(text=f"Already set: {named}.")
    work.tree = tree.move(work.tree, work.place.evolve(changes=joined))
    return PositionChanged(place=work.place, text=f"{'; '.join(told)}. {hint}".strip())


def change_and_run(work: SessionState, changes: Changes, text: str, *, run_now: bool) -> Reply:
    """Set, and run at once unless the same sentence does so later."""
    moved = change(work, changes)
    return run_step(work, text) if run_now else moved


def more_aggressive(work: SessionState, text: str, *, run_now: bool) -> Reply:
    """More rounds, another seed, nothing taken from experience, no early end, a higher goal."""
    now = work.settings
    changes: Changes = {
        "seed": now.seed + 1,
        "budget.rounds": now.budget.rounds + EXTRA_ROUNDS,
        "budget.headroom": 0.0,
        "knowledge.experience": False,
    }
    if now.in_turns:
        changes["team.beam"] = now.team.beam + 1
    node = work.current
    if node is not None and node.profile is not None and node.profile.measurements:
        reached = ratio_against(node.profile.measurements[0], now.goals.baseline).value
        changes["goals.speedup"] = round(max(now.goals.speedup, reached) * HARDER, 3)
    return change_and_run(work, changes, text, run_now=run_now)


def objective(work: SessionState, name: PlainName, text: str, *, run_now: bool) -> Reply:
    """Make another thing small, and run."""
    wanted: Literal["energy", "latency"] = "energy" if name == "less_energy" else "latency"
    return change_and_run(work, {"goals.objective": wanted}, text, run_now=run_now)


def less_memory(work: SessionState, intent: LessMemory, text: str, *, run_now: bool) -> Reply:
    """The least peak memory, or a share of what it is now where that was measured."""
    changes: Changes = {"goals.objective": "memory"}
    if intent.fraction is not None:
        profile = work.current.profile if work.current is not None else None
        if profile is None or not profile.measurements:
            moved = change(work, changes, "")
            told = moved.text if isinstance(moved, PositionChanged | TextReply) else ""
            return not_possible(
                f"{told} No peak memory was measured, so there is no share of it to ask for: name "
                "a size, as in 'at most 4 GB of memory', or 'run'."
            )
        peak = max(item.peak_memory_bytes for item in profile.measurements)
        changes["goals.max_memory_bytes"] = max(1, int(peak * intent.fraction))
    return change_and_run(work, changes, text, run_now=run_now)


def memory_limit(work: SessionState, intent: MemoryLimit) -> Reply:
    """At most so many bytes."""
    return change(work, {"goals.max_memory_bytes": intent.max_bytes})


EXACT = re.compile(r"\b(?:exact(?:ly)?|bit[- ]?(?:exact|identical|for[- ]bit)|bitwise)\b", re.I)
NOT_EXACT = (
    "The strictest there is, and not exact: a result may differ from fp64 and from eager by as "
    "much as honest rounding of its own dtype does. 'how accurate is it?' has the figures."
)


def precision(work: SessionState, intent: SetPrecision, text: str = "") -> Reply:
    """Another precision class; candidates of a looser one do not count under a stricter. Where the
    `text` asks for exact results, that strict ones are not exact."""
    moved = change(work, {"goals.precision": intent.precision})
    if intent.precision == "strict" and EXACT.search(text):
        assert isinstance(moved, PositionChanged | TextReply)
        return moved.evolve(text=f"{moved.text} {NOT_EXACT}")
    if isinstance(moved, PositionChanged) and intent.precision != "strict" and no_product(work):
        return moved.evolve(text=f"{moved.text} {NO_PRODUCT}")
    return moved


def no_product(work: SessionState) -> bool:
    """True where the module is known to have no matrix product."""
    try:
        plan = work.plan
        analysis = work.figures.analysis if plan is None else plan.analysis
    except AgentKernelError:
        return False
    return not analysis.matmul_flops


def target(work: SessionState, intent: SetTarget) -> Reply:
    """Another GPU; which one is asked where none is named."""
    if intent.target is None:
        options = tuple(f"for the {name}" for name in load_targets())
        return ClarificationNeeded(text="For which GPU?", options=options)
    resolved = find_target(intent.target)
    gpu = resolved.target.name
    if gpu == work.target_name:
        return TextReply(text=f"Already set: target {gpu}.")
    name = "local" if intent.target.strip().lower() == "local" else gpu
    moved = change(work, {"target": None if work.target_of({}) == gpu else name})
    if isinstance(moved, PositionChanged):
        return moved.evolve(text=f"{moved.text} ({resolved.note})")
    return moved


def policy(work: SessionState, intent: SetPolicy) -> Reply:
    """What a candidate may call."""
    if work.settings.policy == intent.policy:
        return TextReply(text=f"Already set: policy {intent.policy}.")
    return change(work, {"goals.policy": intent.policy})


def budget(work: SessionState, intent: SetBudget) -> Reply:
    """When a run stops."""
    changes: Changes = {}
    if intent.seconds is not None:
        changes["budget.time_s"] = intent.seconds
    if intent.rounds is not None:
        changes["budget.rounds"] = intent.rounds
    if intent.usd is not None:
        changes["budget.usd"] = intent.usd
    if not changes:
        return ClarificationNeeded(
            text="How much at most?", options=("at most 10 minutes", "at most 5 rounds")
        )
    return change(work, changes, "It holds for each run from here on.")


def stop_at(work: SessionState, intent: StopAt) -> Reply:
    """The goal; a time becomes a speedup over the baseline that is known."""
    if intent.speedup is not None:
        return change(work, {"goals.speedup": intent.speedup})
    if intent.runtime_us is None:
        return ClarificationNeeded(
            text="Stop at which speedup?", options=("stop at 2x", "stop at 100 us")
        )
    profile = work.current.profile if work.current is not None else None
    known = baseline_us(profile) if profile is not None else None
    if known is None:
        return not_possible(
            "No baseline has a time yet, so a time is no goal. 'run' first, or 'stop at 2x'."
        )
    time_us, measured = known
    speedup = round(time_us / intent.runtime_us, 3)
    basis = "measured" if measured else "estimated"
    hint = f"{intent.runtime_us:g} us is {speedup:g}x the baseline of {time_us:.3g} us ({basis})."
    return change(work, {"goals.speedup": speedup}, hint)


def shapes(work: SessionState, intent: SetShapes) -> Reply:
    """The same module at other sizes, as a problem of its own."""
    if not intent.shapes and not intent.sizes:
        options = ("use batch size 64", "use shape 64x4096")
        return ClarificationNeeded(
            text=f"Which sizes? Now: {work.problem.problem.shape_sets[0].label}.", options=options
        )
    sizes = {(item.name, item.value) for item in intent.sizes}
    twice = sorted({name for name, _ in sizes if sum(name == other for other, _ in sizes) > 1})
    if twice:
        first = min(value for name, value in sizes if name == twice[0])
        return not_possible(
            f"Several sizes of {twice[0]} are several problems: one after the other, as in "
            f"'use {twice[0]} {first}' and 'run'. Nothing was changed."
        )
    key = _next_problem(work)
    before = work.problem.problem
    derived = reshaped(before, intent, work.folder, key)
    found = fitted(derived.problem, before, work.folder, key, work.live())
    text = f"{derived.text}; {found.text}" if derived.text not in found.text else found.text
    return _at_problem(work, key, found.problem, text)


def dtype(work: SessionState, intent: SetDtype) -> Reply:
    """The same module with inputs and parameters of another dtype."""
    key = _next_problem(work)
    derived = retyped(work.problem.problem, intent.dtype, work.folder, key)
    found = checked(derived.problem, work.live())
    if work.place.problem and not work.inputs_apart_from(found.problem):
        work.tree = tree.move(work.tree, work.place.evolve(problem="", candidate=None))
        own = work.module.shape_sets[0].label
        text = f"the module's own inputs: {own}. What was found for them counts again. {RUN_HINT}"
        return PositionChanged(place=work.place, text=text)
    text = f"inputs and parameters: {found.text}"
    return _at_problem(work, key, found.problem, text, "This dtype is")


def _next_problem(work: SessionState) -> str:
    return f"p{len(work.store.problems())}"


def _at_problem(
    work: SessionState, key: str, problem: Problem, text: str, what: str = "The sizes are"
) -> Reply:
    same = [name for name in work.store.problems() if work.store.problem(name) == problem]
    if not same:
        work.store.add_problem(key, problem)
    place = work.place.evolve(problem=same[0] if same else key, candidate=None)
    work.tree = tree.move(work.tree, place)
    note = f"{what} another problem: earlier candidates stay, and do not count here."
    return PositionChanged(place=work.place, text=f"{text}. {note} {RUN_HINT}")
