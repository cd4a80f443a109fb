"""What speaks against a row before anything is learned from it?"""

from __future__ import annotations

from collections.abc import Collection
from functools import lru_cache

from agentkernel.domain.rules import Policy
from agentkernel.tools.judge.policy.policy import check_policy
from agentkernel.training.data.vetting import module_refusal
from agentkernel.training.pair_process import is_undecided
from agentkernel.training.training import JudgedKernel

RIGHT = ("gpu", "interpreter")
"""Labels of kernels that the judge accepted."""


def permitted_licence(licence: str, allowed: Collection[str]) -> str | None:
    """`licence` as `allowed` spells it, of several joined by a comma each; None where one of them
    is not allowed, or none is named."""
    known = {item.lower(): item for item in allowed}
    found = [known.get(item.strip().lower()) for item in licence.split(",")]
    return None if None in found else ", ".join(item for item in found if item)


def row_objection(row: JudgedKernel, allowed: Collection[str]) -> str | None:
    """Why nothing is made of `row`, in a few words that are the same for all of a kind; None where
    nothing speaks against it. What a row says of itself is held against its verdict."""
    if permitted_licence(row.licence, allowed) is None:
        return f"licence {row.licence or 'not stated'}"
    if row.label == "not-judged":
        return None
    found = row.verdict
    if found is None:
        return "says that it was judged, without a verdict"
    if found.candidate != row.sha256:
        return "its verdict is about another text"
    if found.policy != row.policy:
        return "judged under another policy than it says"
    if row.label == "refused":
        if found.accepted or found.failure is None:
            return "says refused, and its verdict does not"
        return "the judge came to no answer" if is_undecided(found.failure) else None
    if not found.accepted or found.failure is not None or found.gate != "accepted":
        return "says accepted, and its verdict does not"
    if found.interpreted != (row.label == "interpreter"):
        return "says that it was judged elsewhere than its verdict does"
    broken = _violation(row.kernel, row.policy)
    return None if broken is None else f"a cheat by the static policy: {broken}"


@lru_cache(maxsize=64)
def _violation(kernel: str, policy: Policy) -> str | None:
    found = check_policy(kernel, policy)
    return None if found is None else found.rule


@lru_cache(maxsize=64)
def module_objection(problem: str) -> str | None:
    """Why the module is not taught with: reinforcement and bench run it. None for a plain one."""
    found = module_refusal(problem, "", ("",))
    if found is None:
        return None
    head, _, words = found.partition(": ")
    return f"module: {words if head.startswith('line ') and words else found}"


__all__ = ["RIGHT", "module_objection", "permitted_licence", "row_objection"]
