"""How does a session go on with other settings, sizes or another dtype?"""

from __future__ import annotations

from typing import Literal

from agentkernel.chat import tree as trees
from agentkernel.chat.changes import difference, display_value, merge_changes
from agentkernel.chat.domain_session import Changes, Node
from agentkernel.chat.figures import baseline_us
from agentkernel.chat.intent import (
    LessMemory,
    MemoryLimit,
    PlainName,
    SetBudget,
    SetDtype,
    SetPolicy,
    SetPrecision,
    SetShapes,
    SetTarget,
    StopAt,
)
from agentkernel.chat.looks import not_possible
from agentkernel.chat.replies import ClarificationNeeded, PositionChanged, Reply, TextReply
from agentkernel.chat.steps import run_step
from agentkernel.chat.work import SessionState
from agentkernel.domain.errors import AgentKernelError
from agentkernel.domain.problem import Problem
from agentkernel.workflows.outcome import ratio_against

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
        named = ", ".join(f"{key} is {display_value(value)}" for key, value in changes.items())
        return TextReply(text=f"It is so already: {named}.")
    work.tree = trees.move(work.tree, work.place.model_copy(update={"changes": joined}))
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
    node = work.node("current")
    if isinstance(node, Node) and node.profile is not None and node.profile.measurements:
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
        node = work.node("current")
        profile = node.profile if isinstance(node, Node) else None
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


def precision(work: SessionState, intent: SetPrecision) -> Reply:
    """Another precision class; candidates of a looser one do not count under a stricter."""
    moved = change(work, {"goals.precision": intent.precision})
    if isinstance(moved, PositionChanged) and intent.precision != "strict" and _no_product(work):
        return moved.model_copy(update={"text": f"{moved.text} {NO_PRODUCT}"})
    return moved


def _no_product(work: SessionState) -> bool:
    """True where the module is known to have no matrix product."""
    try:
        plan = work.plan
        analysis = work.figures.analysis if plan is None else plan.analysis
    except AgentKernelError:
        return False
    return not analysis.matmul_flops


def target(work: SessionState, intent: SetTarget) -> Reply:
    """Another GPU; which one is asked where none is named."""
    from agentkernel.tools.targets import find_target, load_targets

    if intent.target is None:
        options = tuple(f"for the {name}" for name in load_targets())
        return ClarificationNeeded(text="For which GPU?", options=options)
    resolved = find_target(intent.target)
    gpu = resolved.target.name
    if gpu == work.target_name:
        return TextReply(text=f"It is so already: the target is {gpu}.")
    name = "local" if intent.target.strip().lower() == "local" else gpu
    moved = change(work, {"target": None if work.target_of({}) == gpu else name})
    if isinstance(moved, PositionChanged):
        return moved.model_copy(update={"text": f"{moved.text} ({resolved.note})"})
    return moved


def policy(work: SessionState, intent: SetPolicy) -> Reply:
    """What a candidate may call."""
    if work.settings.policy == intent.policy:
        return TextReply(text=f"It is so already: policy is {intent.policy}.")
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
    node = work.node("current")
    profile = node.profile if isinstance(node, Node) else None
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
    from agentkernel.chat.sizes import fitted, reshaped

    if not intent.shapes and not intent.sizes:
        options = ("use batch size 64", "use shape 64x4096")
        return ClarificationNeeded(
            text=f"Which sizes? Now: {work.problem.problem.shape_sets[0].label}.", options=options
        )
    key = _next_problem(work)
    before = work.problem.problem
    derived = reshaped(before, intent, work.folder, key)
    found = fitted(derived.problem, before, work.folder, key, work.live())
    text = f"{derived.text}; {found.text}" if derived.text not in found.text else found.text
    return _at_problem(work, key, found.problem, text)


def dtype(work: SessionState, intent: SetDtype) -> Reply:
    """The same module with inputs and parameters of another dtype."""
    from agentkernel.chat.sizes import checked, retyped

    key = _next_problem(work)
    derived = retyped(work.problem.problem, intent.dtype, work.folder, key)
    found = checked(derived.problem, work.live())
    return _at_problem(work, key, found.problem, f"inputs and parameters: {found.text}")


def _next_problem(work: SessionState) -> str:
    return f"p{len(work.store.problems())}"


def _at_problem(work: SessionState, key: str, problem: Problem, text: str) -> Reply:
    same = [name for name in work.store.problems() if work.store.problem(name) == problem]
    if not same:
        work.store.add_problem(key, problem)
    place = work.place.model_copy(update={"problem": same[0] if same else key, "candidate": None})
    work.tree = trees.move(work.tree, place)
    note = "The sizes are another problem: earlier candidates stay, and do not count here."
    return PositionChanged(place=work.place, text=f"{text}. {note} {RUN_HINT}")
