"""Steps of a session: runs started from requests, and their candidates taken into the tree.

A step that was stopped or cut off is finished on the next start, whatever ended it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from agentkernel.agents.protocols import Attempt
from agentkernel.chat.figures import conclusion, time_words, verdict_words
from agentkernel.chat.queries import tried
from agentkernel.chat.replies import Reply, StepRan, TextReply
from agentkernel.chat.session_state import SessionState
from agentkernel.chat.store import (
    RunEnding,
    add_attempts,
    attempt_of,
    attempts_in,
    ending_of,
    plan_in,
)
from agentkernel.chat.tree import (
    Changes,
    Node,
    Origin,
    Step,
    StepState,
    begin_step,
    end_step,
    go_on,
    is_accepted,
    label,
    move,
    note_run,
    problem_of,
)
from agentkernel.domain.base import sha256_text
from agentkernel.domain.errors import AgentKernelError, RunNotFound, one_line
from agentkernel.domain.plain_text import sentence
from agentkernel.domain.settings import MODEL_PREFIXES, Settings
from agentkernel.domain.verdict import Policy, Precision
from agentkernel.storage.files import make_folder, write_atomic
from agentkernel.tools.run_store import read_manifest, read_run, run_folders
from agentkernel.workflows.events import Event, RunStarted
from agentkernel.workflows.outcome import (
    Result,
    best_attempt,
    estimated_slower,
    estimated_vs_eager,
)
from agentkernel.workflows.state import OptimizeRequest

STOPS = {
    "met": "the goal is met already",
    "headroom": "what is there reaches the roofline already",
    "time": "the time was up",
    "tokens": "the tokens were used up",
    "money": "the money was used up",
    "stagnation": "the latest drafts were no better",
    "declined": "what it would try was declined",
}
"""Why a loop stops that has ideas left, or needs none."""
DOING = {
    "plan": "planning",
    "retrieve": "looking up what is known",
    "draft": "drafting",
    "judge": "judging",
    "profile": "timing",
    "debug": "looking for the fault",
    "decide": "deciding how to go on",
    "finish": "writing the result",
}


def why_no_candidates(work: SessionState, ending: RunEnding, tried: Sequence[str]) -> str:
    """The reason, without a full stop."""
    if ending.stop in STOPS:
        return STOPS[ending.stop]
    if ending.barren:
        return "; ".join(_exhausted(work, name, reason) for name, reason in ending.barren[:3])
    if ending.planned:
        return "no idea that is left is expected to be faster"
    if tried:
        return f"all ideas were tried ({', '.join(tried)})"
    return "no rule names an idea for this module"


def _exhausted(work: SessionState, strategy: str, reason: str) -> str:
    again = next((node for node in work.tree.nodes if node.candidate.id in reason), None)
    if again is not None:
        return f"{strategy!r} gives {label(again.number)} again"
    return f"{strategy!r}: {one_line(reason, 200)}"


def least_memory(work: SessionState, node: Node | None) -> str:
    """Where little memory is asked for: that a candidate holds nothing but inputs and outputs; ""
    where that is not known."""
    profile = None if node is None else node.profile
    if node is None or profile is None or work.settings.goals.objective != "memory":
        return ""
    report = profile.report
    if report is None or len(report.kernels) != 1 or report.library_ops:
        return ""
    return (
        f"{label(node.number)} is one kernel, which keeps no value of its own in memory: inputs "
        "and outputs are all that there is to hold."
    )


def what_next(work: SessionState, node: Node | None) -> str:
    """What may bring something new."""
    drafts = work.settings.coder
    if drafts.startswith(MODEL_PREFIXES) or work.settings.in_turns:
        first = "'run' asks the model again"
    else:
        first = "'be more aggressive' searches anew"
    by_hand = "paste a candidate" if node is None else f"'edit {label(node.number)}' by hand"
    return f"Next: {first}, {by_hand}, or other sizes."


NOT_BEGUN = "Stopped before it began"


def stopped_words(ending: RunEnding, unjudged: Sequence[Node]) -> str:
    """`Stopped while judging c4`."""
    doing = DOING.get(ending.node, "")
    if not doing:
        return NOT_BEGUN
    what = f" {label(unjudged[-1].number)}" if ending.node == "judge" and unjudged else ""
    return f"Stopped while {doing}{what}"


STATUS = {"kept_original": "the original is kept", "kept_compiled": "torch.compile is kept"}
"""A status in words, where it is none itself."""
PRECISIONS: tuple[Precision, ...] = ("strict", "tf32", "bf16")
POLICIES: tuple[Policy, ...] = ("triton", "mixed", "any")
"""From the strictest on: what holds under one holds under those behind it."""


class HandWritten(NamedTuple):
    """A candidate that somebody wrote by hand."""

    source: str
    origin: Origin


class _Ended(NamedTuple):
    state: StepState
    result: Result | None
    why: str = ""


def run_step(
    work: SessionState,
    text: str,
    *,
    only_now: Changes | None = None,
    focus: str | None = None,
    given: HandWritten | None = None,
    base: int | None = None,
) -> Reply:
    """Run once from where the session stands, with `only_now` over its settings for this step.

    `focus` is the one strategy to try; `given` a candidate to judge in place of drafting, made from
    `base`.
    """
    changes = {**work.place.changes, **(only_now or {})}
    settings = work.settings_of(changes)
    loaded = work.problem
    start = work.place.candidate if given is None else base
    if given is not None:
        settings = _for_given(work, settings, given.source)
    origin: Origin = "drafted" if given is None else given.origin
    work.tree = begin_step(work.tree, text, base=start, changes=changes, origin=origin)
    step = work.tree.steps[-1]
    work.store.save_tree(work.tree)
    request = OptimizeRequest(
        loaded,
        settings,
        None,
        ("chat", f"session={work.id}", f"step={step.number}", text),
        history=() if given is not None else earlier_attempts(work, settings),
        focus=focus,
    )
    ended = _guarded(lambda: _run(work, step.number, request))
    return finish_step(work, step.number, ended)


def continue_step(work: SessionState, step: Step) -> Reply:
    """Finish a step that was stopped or cut off; one that had not begun says so."""
    run = step.run or _run_of(work, step)
    if run is None:
        work.tree = end_step(work.tree, step.number, "stopped", "it had not begun", 0.0)
        return TextReply(text=f"{step.text!r} was cut off before it began. Ask again.", ok=False)
    work.tree = go_on(work.tree, step.number, run)
    work.store.save_tree(work.tree)
    ended = _guarded(lambda: _resume(work, step.number, run))
    return finish_step(work, step.number, ended)


def _run(work: SessionState, step: int, request: OptimizeRequest) -> Result:
    from agentkernel.workflows.optimize import run

    return run(request, _noting(work, step), workshop=work.workshop, approve=work.asking)


def _resume(work: SessionState, step: int, name: str) -> Result:
    from agentkernel.workflows.optimize import resume

    listen = _noting(work, step)
    return resume(name, listen, runs=work.runs, workshop=work.workshop, approve=work.asking)


def _noting(work: SessionState, step: int) -> Callable[[Event], None]:
    """Hears a run's events: its id is written down before anything else is done."""

    def listen(event: Event) -> None:
        if isinstance(event, RunStarted):
            work.tree = note_run(work.tree, step, event.run)
            work.store.save_tree(work.tree)
        work.on_event(event)

    return listen


def _guarded(work: Callable[[], Result]) -> _Ended:
    """A run's end as a value: Ctrl-C and a bug end the step, not the session."""
    try:
        result = work()
    except KeyboardInterrupt:
        return _Ended("stopped", None, "stopped")
    except AgentKernelError as error:
        return _Ended("failed", None, one_line(error, 600))
    except Exception as error:  # noqa: BLE001 - a bug in a step is told, and the session goes on
        return _Ended("failed", None, f"it ended early: {type(error).__name__}: {one_line(error)}")
    return _Ended("stopped" if result.interrupted else "done", result)


def finish_step(work: SessionState, number: int, ended: _Ended) -> Reply:
    """Take in what a step's run found, and stand at the best of it."""
    step = work.tree.step(number)
    assert step is not None
    left = {node.number for node in work.tree.nodes if node.verdict is None}
    gathered = _gather(work, step, ended)
    new = _new(work, gathered, left)
    result = ended.result
    seconds = gathered.seconds if result is None else result.spent_s
    nodes = [node for node in map(work.tree.node, gathered.seen) if node is not None]
    own = [node for node in nodes if node.step == number or node.number in new]
    shown = result if result is not None and _tells_of(result, own) else None
    stands = _stands_at(work, step, gathered.seen)
    why = _why(work, ended, gathered.ending, own, stands)
    outcome = f"{STATUS.get(shown.status, shown.status)}: {shown.reason}" if shown else why
    work.tree = end_step(work.tree, number, ended.state, outcome, seconds)
    if result is None and not gathered.seen:
        return TextReply(text=_ended_words(step, ended, why), ok=False)
    if stands != work.place.candidate:
        work.tree = move(work.tree, work.place.evolve(candidate=stands))
    return StepRan(
        step=number,
        made=new,
        place=work.place,
        result=shown,
        text=_words(work, step, new, stands, ended._replace(result=shown, why=why)),
    )


class _Gathered(NamedTuple):
    made: tuple[int, ...]
    seen: tuple[int, ...]
    seconds: float
    ending: RunEnding = RunEnding()


def _tells_of(result: Result, own: Sequence[Node]) -> bool:
    """True where a run's result is about what its own step judged, not an earlier candidate."""
    judged = [node for node in own if node.verdict is not None]
    if result.candidate_sha256 is not None:
        return result.candidate_sha256 in {node.candidate.sha256 for node in judged}
    timed = result.time_us is not None or result.estimated_time_us is not None
    return bool(judged) and (not timed or any(map(is_accepted, judged)))


def _why(
    work: SessionState, ended: _Ended, ending: RunEnding, own: Sequence[Node], stands: int | None
) -> str:
    """What came of a step whose run has no result of its own, in one line."""
    if ended.state == "failed":
        return ended.why
    if ended.state == "stopped":
        return stopped_words(ending, [node for node in own if node.verdict is None])
    if own:
        return ", ".join(f"{label(node.number)} {verdict_words(node)}" for node in own[:6])
    why = f"no new candidate: {why_no_candidates(work, ending, tried(work))}"
    held = least_memory(work, _node(work, stands))
    return f"{why}; {held.rstrip('.')}" if held else why


def _gather(work: SessionState, step: Step, ended: _Ended) -> _Gathered:
    run = step.run or (ended.result.run if ended.result is not None else None)
    run = run or _run_of(work, step)
    if run is None:
        return _Gathered((), (), 0.0)
    try:
        store = read_run(work.runs, run)
    except RunNotFound:
        return _Gathered((), (), 0.0)
    try:
        attempts, plan, ending = attempts_in(store), plan_in(store), ending_of(store)
        seconds = store.records.spent_before()
    finally:
        store.close()
    work.tree = note_run(work.tree, step.number, run)
    found = add_attempts(work.tree, step.number, attempts, step.origin)
    work.tree = found.tree
    if plan is not None and step.origin == "drafted":
        work.store.save_plan(step.number, plan)
    return _Gathered(found.made, found.seen, seconds, ending)


def _new(work: SessionState, gathered: _Gathered, left: set[int]) -> tuple[int, ...]:
    """The candidates of this step, and those of `left`, known and not judged, that it judged."""
    nodes = [node for node in map(work.tree.node, gathered.seen) if node is not None]
    judged = [node.number for node in nodes if node.number in left and node.verdict is not None]
    return tuple(number for number in gathered.seen if number in (*gathered.made, *judged))


def _stands_at(work: SessionState, step: Step, seen: Sequence[int]) -> int | None:
    """The best right candidate of the step and of where it began; else where it began. What was
    drafted and is estimated slower than eager is no better place."""
    found = [node for node in map(work.tree.node, seen) if node is not None and is_accepted(node)]
    if step.origin != "drafted" and found:
        return found[-1].number
    found = [node for node in found if node.profile is None or not estimated_slower(node.profile)]
    base = work.tree.node(step.base) if step.base is not None else None
    if base is not None and is_accepted(base) and verdict_holds(work, base):
        found = [base, *found]
    goals = work.goals
    attempts = {item.number: attempt_of(item) for item in found}
    best = best_attempt(tuple(attempts.values()), goals)
    chosen = next((number for number, item in attempts.items() if item is best), None)
    return work.place.candidate if chosen is None else chosen


def verdict_holds(work: SessionState, node: Node) -> bool:
    """True where a candidate's verdict counts under the settings and sizes in force."""
    if node.verdict is None or problem_of(work.tree, node) != work.place.problem:
        return False
    settings = work.settings
    precise = PRECISIONS.index(node.verdict.precision) <= PRECISIONS.index(settings.goals.precision)
    allowed = POLICIES.index(node.verdict.policy) <= POLICIES.index(settings.policy)
    return precise and allowed


def earlier_attempts(work: SessionState, settings: Settings) -> tuple[Attempt, ...]:
    """What earlier steps found for the same sizes under the same rules, in order."""
    rules = (settings.goals.precision, settings.policy)
    return tuple(
        attempt_of(node)
        for node in work.tree.nodes
        if node.number not in work.tree.rejected
        and problem_of(work.tree, node) == work.place.problem
        and node.verdict is not None
        and (node.verdict.precision, node.verdict.policy) == rules
    )


def _for_given(work: SessionState, settings: Settings, source: str) -> Settings:
    """The settings for judging one file by the rules in force."""
    path = work.folder / "given" / f"{sha256_text(source)[:10]}.py"
    make_folder(path.parent)
    write_atomic(path, source)
    goals = settings.goals.evolve(policy=settings.policy)
    budget = settings.budget.evolve(rounds=1, repairs=0)
    models = settings.models.evolve(planner=None, debugger=None, reviewer=None)
    return settings.evolve(coder=f"file:{path}", goals=goals, budget=budget, models=models)


def _run_of(work: SessionState, step: Step) -> str | None:
    """The run that was made for a step: its manifest says so."""
    marks = ("chat", f"session={work.id}", f"step={step.number}")
    for folder in reversed(run_folders(work.runs)):
        if not (folder / "run.json").is_file():
            continue
        try:
            manifest = read_manifest(folder)
        except RunNotFound:
            continue
        if manifest.flags[:3] == marks:
            return manifest.id
    return None


def _words(
    work: SessionState, step: Step, made: Sequence[int], stands: int | None, ended: _Ended
) -> str:
    """What changed against where the step began, in one or two lines."""
    nodes = [node for node in map(work.tree.node, made) if node is not None]
    new = ", ".join(_new_words(node) for node in nodes[:6])
    more = f" and {len(nodes) - 6} more" if len(nodes) > 6 else ""
    best, base = _node(work, stands), _node(work, step.base)
    nothing = "No new candidate."
    if ended.state == "done" and ended.why.startswith("no new"):
        nothing = f"{sentence(ended.why[0].upper() + ended.why[1:])} {what_next(work, best)}"
    lines = [f"New: {new}{more}." if nodes else nothing]
    if best is not None and base is not None and best.number != base.number:
        lines.append(conclusion(base, best))
    elif best is not None:
        time = time_words(best, work.target_name)
        lines.append(
            f"The session stands at {label(best.number)}" + (f": {time}." if time else ".")
        )
    else:
        lines.append("The session stands at the module.")
    if ended.state != "done":
        lines.append(f"{_ended_words(step, ended, ended.why)} 'run' goes on.")
    elif ended.result is not None and ended.result.status.startswith(("kept", "failed")):
        lines.append(sentence(f"This step hands nothing over: {ended.result.reason}"))
    return "\n".join(lines)


def _new_words(node: Node) -> str:
    words = f"{label(node.number)} {verdict_words(node)}"
    if node.profile is None or not is_accepted(node) or not estimated_slower(node.profile):
        return words
    return f"{words}, estimated slower than eager: {estimated_vs_eager(node.profile):.2f}x"


def _ended_words(step: Step, ended: _Ended, why: str) -> str:
    if ended.state == "stopped":
        if why == NOT_BEGUN:
            return f"{why}: nothing was drafted."
        return f"{why}: the step was stopped; what it had found is kept."
    return f"{step.text[:60]!r} failed: {ended.why}"


def _node(work: SessionState, number: int | None) -> Node | None:
    return None if number is None else work.tree.node(number)
