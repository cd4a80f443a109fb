"""Which facts does a row carry along, beside its kernel and verdict?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentkernel.agents.speed import speed_evidence
from agentkernel.compiler.graph_listing import graph_listing

if TYPE_CHECKING:
    from agentkernel.domain.plan import Analysis
    from agentkernel.domain.problem import Problem
    from agentkernel.domain.profile import Profile
    from agentkernel.domain.target import Target
    from agentkernel.tools.problem.capture import Captured


def module_facts(problem: Problem) -> dict[str, str]:
    """The inputs as a run names them, and the class where it is not `Model`."""
    shapes = problem.shape_sets
    found = {"inputs": shapes[0].label} if shapes else {}
    return found if problem.class_name == "Model" else found | {"class": problem.class_name}


def graph_facts(captured: Captured) -> dict[str, str]:
    """What is computed from what, a line an operator; nothing of a graph that is too long."""
    listing = graph_listing(captured)
    return {"graph": listing} if listing else {}


def roofline_facts(analysis: Analysis) -> dict[str, str]:
    """What one call moves and computes at the least, and how fast it could be: estimates."""
    return {
        "bytes": str(analysis.bytes_min),
        "operations": str(analysis.flops),
        "roofline": f"{analysis.bound_us:.3g} us",
    }


def profile_facts(
    profile: Profile, analysis: Analysis | None = None, target: Target | None = None
) -> dict[str, str]:
    """The lines of a profile as a run shows them; several of one name in one, the gravest first."""
    found: dict[str, str] = {}
    for fact in speed_evidence(profile, analysis, target).facts:
        before = found.get(fact.name)
        found[fact.name] = fact.value if before is None else f"{before}; {fact.value}"
    return found


__all__ = ["graph_facts", "module_facts", "profile_facts", "roofline_facts"]
