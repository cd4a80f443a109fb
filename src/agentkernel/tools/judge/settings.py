"""What may a caller of the judge choose?"""

from __future__ import annotations

import hashlib
import secrets
from typing import Literal

from pydantic import Field

from agentkernel.domain.base import Frozen
from agentkernel.domain.rules import Policy, Precision
from agentkernel.tools.judge.rule import NEWEST

SEED_BITS = 31


def fresh_seed() -> int:
    """A seed from the operating system, which nobody can have known while a candidate was written;
    the verdict names it."""
    return secrets.randbits(SEED_BITS)


def keyed_seed(key: str, candidate_sha256: str) -> int:
    """A seed of each candidate's own, which only somebody who knows the run's key can tell before,
    and which a run that was killed, or whose answers are replayed, draws again."""
    digest = hashlib.blake2b(candidate_sha256.encode(), key=key.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> (64 - SEED_BITS)


class JudgeSettings(Frozen):
    """`device` "cpu" means Triton's interpreter. `time_limit_s` bounds each call of the candidate,
    `budget_s` the whole of an interpreted judgement before cases past the required ones are left
    out (and the verdict's notes say so)."""

    precision: Precision = "strict"
    rule: int = NEWEST.version
    """The version of the precision rule; a certificate is judged again under the one it names."""
    policy: Policy = "triton"
    static: bool = True
    """Read the source before running it. Without, only what the candidate does can reject it."""
    declared_sizes: bool = False
    """The candidate is only said to hold for the declared sizes: it is judged at these, and at
    others it must raise or be right."""
    device: Literal["cpu", "cuda"] = "cpu"
    seed: int = Field(default_factory=fresh_seed)
    """Of all that is drawn: one of its own for each judgement, unless one is to be repeated."""
    seeds: int = 5
    time_limit_s: float = 120.0
    budget_s: float = 25.0
    memory_bytes: int = 12 << 30
    device_bytes: int | None = None
    """As if so much memory were free on the device; None means what is. On the CPU, where nothing
    is short otherwise, the judge then takes the routes of a device with so little."""
    allow_unsandboxed: bool = False
    kernelbench: bool = False
    """Ask KernelBench's own rule as well; see `allclose`. It never decides what is accepted."""
