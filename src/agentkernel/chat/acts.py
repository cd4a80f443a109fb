"""What does a session do where something is asked of it: set, run, walk, keep, write?"""

from __future__ import annotations

import ast

from agentkernel.chat import tree as trees
from agentkernel.chat.changes import difference
from agentkernel.chat.domain_session import Changes, Node, Place
from agentkernel.chat.figures import time_words, verdict_words
from agentkernel.chat.intent import Edit, OnCandidate, Run, SwitchBranch, TryIdea, Undo, WriteTo
from agentkernel.chat.looks import not_possible
from agentkernel.chat.replies import EditRequested, FilesWritten, PositionChanged, Reply, TextReply
from agentkernel.chat.steps import HandWritten, continue_step, run_step
from agentkernel.chat.tree import NoSuchCandidate, is_accepted, label, problem_of
from agentkernel.chat.typed import MOST_SOURCE
from agentkernel.chat.work import SessionState
from agentkernel.domain.errors import AgentKernelError, RunNotFound, one_line
from agentkernel.domain.profile import Measurement
from agentkernel.domain.settings import MODEL_PREFIXES
from agentkernel.storage.source_text import parse_source
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
    from agentkernel.chat.looks import tried

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
    node = work.node(intent.candidate)
    if isinstance(node, NoSuchCandidate):
        return run_step(work, text) if not work.tree.nodes else not_possible(node.text)
    if is_accepted(node):
        return run_step(work, text)
    settings = work.settings
    if not (settings.coder.startswith(MODEL_PREFIXES) or settings.in_turns):
        return not_possible(
            f"{label(node.number)} was written by the {node.candidate.coder} coder, which drafts "
            f"by rule and would write it again. 'edit {label(node.number)}' mends it by hand; a "
            "model does with the setting coder = chat:PROVIDER:MODEL."
        )
    return run_step(work, text, focus=node.candidate.strategy or None)


def undo(work: SessionState, intent: Undo) -> Reply:
    """So many places back."""
    if work.tree.at == 0:
        return not_possible("Nothing to undo: this is where the session began.")
    before = work.place
    work.tree = trees.undo(work.tree, intent.steps)
    return PositionChanged(place=work.place, text=_moved_words(work, before))


def redo(work: SessionState) -> Reply:
    """One place on again."""
    if work.tree.at + 1 >= len(work.tree.places):
        return not_possible("Nothing to redo.")
    before = work.place
    work.tree = trees.redo(work.tree)
    return PositionChanged(place=work.place, text=_moved_words(work, before))


def return_to(work: SessionState, intent: OnCandidate) -> Reply:
    """Stand at a candidate again, with its settings."""
    found = work.meant(intent.candidate)
    if isinstance(found, NoSuchCandidate):
        return not_possible(found.text)
    before = work.place
    work.tree = trees.return_to(work.tree, found.number)
    return PositionChanged(place=work.place, text=_moved_words(work, before))


def restart(work: SessionState) -> Reply:
    """The module and the first settings; the tree stays."""
    before = work.place
    work.tree = trees.move(work.tree, Place(branch=before.branch))
    return PositionChanged(
        place=work.place, text=f"{_moved_words(work, before)} Nothing was thrown away."
    )


def fork(work: SessionState, intent: OnCandidate) -> Reply:
    """Begin a branch."""
    found = work.meant(intent.candidate)
    if isinstance(found, NoSuchCandidate):
        return not_possible(found.text)
    old = work.place.branch
    work.tree = trees.fork(work.tree, found.number)
    text = (
        f"Branch {work.place.branch} begins at {label(found.number)}. "
        f"'switch to branch {old}' goes back."
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
    found = trees.switch(work.tree, number)
    if isinstance(found, NoSuchCandidate):
        return not_possible(found.text)
    before = work.place
    work.tree = found
    return PositionChanged(
        place=work.place, text=f"Branch {work.place.branch}. {_moved_words(work, before)}"
    )


def keep(work: SessionState, intent: OnCandidate) -> Reply:
    """Write a right candidate beside the module, with its certificate."""
    return _keep(work, work.node(intent.candidate), None)


def save(work: SessionState, intent: WriteTo) -> Reply:
    """The same, to a path."""
    return _keep(work, work.node(intent.candidate), intent.path)


def _keep(work: SessionState, node: Node | NoSuchCandidate, path: str | None) -> Reply:
    from agentkernel.chat.files import drop_in_path, write_drop_in

    if isinstance(node, NoSuchCandidate):
        return not_possible(node.text)
    name = label(node.number)
    if not is_accepted(node):
        return not_possible(
            f"{name} is not kept: {verdict_words(node)}. Only what the judge passed can be."
        )
    paths = write_drop_in(work, node, drop_in_path(work, path))
    work.tree = trees.keep(work.tree, node.number)
    time = time_words(node)
    text = f"Kept {name} as {paths[0]}" + (f": {time}." if time else ".")
    warning = _warning(work, node)
    return FilesWritten(paths=paths, text=f"{text} {warning}".strip())


def _warning(work: SessionState, node: Node) -> str:
    """What somebody who keeps it must know."""
    parts = []
    if problem_of(work.tree, node):
        sizes = work.store.problem(problem_of(work.tree, node)).shape_sets[0].label
        parts.append(f"It was judged at {sizes}, not at the module's own sizes.")
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
    if isinstance(node, NoSuchCandidate):
        return not_possible(node.text)
    if node.number in work.tree.rejected:
        return TextReply(text=f"{label(node.number)} is discarded already.")
    work.tree = trees.reject(work.tree, node.number)
    at = label(work.place.candidate)
    text = f"{label(node.number)} is discarded; the session stands at {at}."
    return PositionChanged(
        place=work.place, text=f"{text} 'keep {label(node.number)}' takes it back."
    )


def export(work: SessionState, intent: WriteTo, texts: dict[str, str]) -> Reply:
    """The whole session in a folder: readable, and replayable."""
    from agentkernel.chat.files import certificate_of, write_session

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
    found = work.meant(intent.candidate)
    if isinstance(found, NoSuchCandidate):
        return not_possible(found.text)
    number = found.number
    if number is None:
        node = work.node("current")
        if intent.candidate == "original" or isinstance(node, NoSuchCandidate):
            return not_possible(
                "The module itself is not edited here. 'run' makes a candidate to edit."
            )
        number = node.number
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
    try:
        parts += difference(work.settings_of(before.changes), work.settings_of(place.changes))
    except AgentKernelError as error:
        parts.append(one_line(error))
    if before.problem != place.problem:
        parts.append(work.store.problem(place.problem).shape_sets[0].label)
    return f"{'; '.join(parts)}."
