"""Which record ties problem, candidate, verdict, profile, versions and hashes together?"""

from __future__ import annotations

from typing import Literal

from agentkernel.domain.base import Frozen
from agentkernel.domain.plan import Plan
from agentkernel.domain.problem import Problem
from agentkernel.domain.profile import Profile
from agentkernel.domain.verdict import Verdict

Status = Literal["met", "improved", "verified", "kept_original", "kept_compiled", "failed"]


class Versions(Frozen):
    """What the result was made with."""

    agentkernel: str
    python: str
    torch: str
    triton: str
    platform: str
    cuda: str | None = None
    driver: str | None = None


class Certificate(Frozen):
    """One result. Hashes are SHA-256 in hex; `basis` never mixes measured with estimated."""

    format: Literal[1] = 1
    run: str
    created: str
    status: Status
    reason: str
    basis: Literal["measured", "estimated"]
    problem: Problem
    problem_sha256: str
    candidate_source: str | None
    candidate_sha256: str | None
    target: str
    plan: Plan | None
    verdict: Verdict | None
    profile: Profile | None
    versions: Versions
    judge_sha256: str
