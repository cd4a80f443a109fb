"""Can the goal be reached at all, as far as the roofline tells?"""

from __future__ import annotations

from agentkernel.chat.basis import for_target
from agentkernel.chat.tree import problem_of
from agentkernel.chat.work import SessionState
from agentkernel.domain.errors import AgentKernelError
from agentkernel.domain.plan import Analysis, Plan
from agentkernel.domain.profile import Estimate, Measurement
from agentkernel.workflows.outcome import faster_baseline


def infeasible_goal(work: SessionState, *, look: bool = True) -> str:
    """One line where the roofline allows less than the goal against the faster baseline known; ""
    where the goal may be reached, or nobody knows.

    Measurements for the target count, else the estimates. `look`: work them out where
    no run did; False: only where they are at hand.
    """
    goal, against = work.settings.goals.speedup, work.settings.goals.baseline
    try:
        plan = work.plan or (work.first_plan if look or work.looked_at else None)
    except AgentKernelError:
        return ""
    if plan is None or _does_less(plan):
        return ""
    measured = _measured(work)
    if measured:
        most, baseline = max(_against(item, against) for item in measured)
        basis = "measured"
    else:
        eager = _eager(work, look)
        if eager is None or against == "compile":
            return ""
        most, baseline, basis = roofline_speedup(eager, plan.analysis), "eager", "estimated"
    if most >= goal:
        return ""
    return (
        f"The roofline allows at most {most:.2f}x of {baseline} ({basis}): the goal of {goal:g}x "
        "is out of reach."
    )


def roofline_speedup(eager: Estimate, analysis: Analysis) -> float:
    """The speedup over eager of what reaches the roofline, both estimated."""
    return eager.time_us / analysis.bound_us if analysis.bound_us else float("inf")


def _does_less(plan: Plan) -> bool:
    """True where an idea rewrites the graph: the bound of the graph as it came is then not its
    own."""
    return any(item.algebra is not None for item in plan.hypotheses)


def _measured(work: SessionState) -> tuple[Measurement, ...]:
    """Of every candidate for these sizes and this target: the most hopeful one counts."""
    target, found = work.target_name, []
    for node in reversed(work.tree.nodes):
        same = problem_of(work.tree, node) == work.place.problem and for_target(node, target)
        if same and node.profile is not None and node.profile.measurements:
            found.append(node.profile.measurements[0])
    return tuple(found)


def _against(measured: Measurement, baseline: str) -> tuple[float, str]:
    """The most speedup over the baseline of the goal, and that baseline's name."""
    compiled, autotuned = measured.compiled, measured.autotuned
    name = faster_baseline(measured)
    if baseline == "eager" or (baseline == "compile" and compiled is None):
        name = "eager"
    elif baseline == "compile":
        name = "torch.compile"
    times = {
        "eager": measured.eager.median_us,
        "torch.compile": compiled.median_us if compiled is not None else 0.0,
        "max-autotune": autotuned.median_us if autotuned is not None else 0.0,
    }
    return times[name] / measured.roofline_us, name


def _eager(work: SessionState, look: bool) -> Estimate | None:
    """Eager's estimate: a candidate's for this target, else the module's own."""
    target = work.target_name
    for node in reversed(work.tree.nodes):
        same = problem_of(work.tree, node) == work.place.problem and for_target(node, target)
        if same and node.profile is not None and node.profile.baseline_estimate is not None:
            return node.profile.baseline_estimate
    if not (look or work.looked_at):
        return None
    try:
        return work.figures.eager
    except AgentKernelError:
        return None
