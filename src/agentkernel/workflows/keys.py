"""Under which content hash is a finished piece of work found again?"""

from __future__ import annotations

from agentkernel.agents.protocols import DraftRequest
from agentkernel.domain.base import Frozen, sha256_text
from agentkernel.domain.candidate import Candidate
from agentkernel.domain.certificate import Versions
from agentkernel.domain.rules import Policy, Precision


class JudgeScope(Frozen):
    """All that a judgement depends on beside the candidate."""

    problem: str
    precision: Precision
    policy: Policy
    device: str
    seed: int | None
    """None: a fresh one for each judgement, which the verdict names."""
    seeds: int
    budget_s: float
    kernelbench: bool = False
    judge_sha256: str
    versions: Versions
    declared_sizes: bool = False


class ProfileScope(Frozen):
    """All that a profile depends on beside the candidate."""

    problem: str
    target: str
    device: str
    seed: int
    max_autotune: bool = False
    versions: Versions


def work_key(scope: Frozen, candidate: Candidate) -> str:
    """Key of a judgement or a profile of `candidate`."""
    return sha256_text(f"{scope.model_dump_json()}\n{candidate.sha256}")


def draft_key(scope: str, request: DraftRequest) -> str:
    """Key of a draft; `scope` names the problem, the coder and the versions."""
    history = [
        f"{item.candidate.sha256}:{item.verdict.gate if item.verdict else ''}"
        for item in request.history
    ]
    parts = (
        scope,
        request.target.name,
        request.goals.model_dump_json(),
        request.hypothesis.strategy + request.hypothesis.because,
        "".join(item.model_dump_json() for item in request.plan.decisions),
        *history,
        request.diagnosis.model_dump_json() if request.diagnosis else "",
        str(request.round),
    )
    return sha256_text("\n".join(parts))
