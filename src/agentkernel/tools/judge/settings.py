"""Settings of the judge, versions of the precision rule, its fingerprint and its worker.

A certificate names the version of the rule by which it was judged, so that it can be judged
again as it was. The fingerprint is a hash over the files of the judge and of the sandbox.
"""

from __future__ import annotations

import functools
import hashlib
import secrets
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import Field

from agentkernel.domain.base import Frozen
from agentkernel.domain.verdict import Policy, Precision
from agentkernel.runtime import gpu_lock
from agentkernel.tools.sandbox.isolation import Limits
from agentkernel.tools.sandbox.session import Worker, open_worker, prefork_worker


@dataclass(frozen=True)
class Rule:
    """What one version of the rule asks and allows.

    `honest`: the errors of honest evaluations count beside eager's. `pointed_at`: an index that
    differs is judged by the value that it points at. `shifted`: inputs with a mean far above their
    spread are among the cases. `products`: operand and accumulator types of products are read.
    """

    version: int
    honest: bool
    pointed_at: bool
    shifted: bool
    products: bool


RULES = {
    1: Rule(1, honest=False, pointed_at=False, shifted=False, products=False),
    2: Rule(2, honest=True, pointed_at=True, shifted=True, products=True),
}
"""1: twice eager's error and a floor in ulp. 2: docs/judge.md, "The precision rule"."""
NEWEST = RULES[2]


def rule_of(version: int) -> Rule:
    """The rule of that version; the newest for one that is not known here."""
    return RULES.get(version, NEWEST)


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


@functools.cache
def judge_sha256() -> str:
    """SHA-256 in hex over names and contents of every file of the judge and the sandbox."""
    digest = hashlib.sha256()
    judge = Path(__file__).parent
    for folder in (judge, judge.parent / "sandbox"):
        for path in sorted(folder.rglob("*.py")):
            digest.update(f"{path.relative_to(judge.parent).as_posix()}\0".encode())
            digest.update(path.read_bytes())
            digest.update(b"\0")
    return digest.hexdigest()


def open_judge_worker(settings: JudgeSettings) -> Worker:
    """A worker on the settings' device; on the CPU it interprets. Raises SandboxUnavailable."""
    return open_worker(
        device=settings.device,
        interpret=settings.device == "cpu",
        limits=Limits(memory_bytes=settings.memory_bytes),
        allow_unsandboxed=settings.allow_unsandboxed,
    )


def prefork_judge_workers(settings: JudgeSettings, count: int = 1) -> None:
    """Start `count` of them in the background, so that nobody waits."""
    prefork_worker(
        device=settings.device,
        interpret=settings.device == "cpu",
        limits=Limits(memory_bytes=settings.memory_bytes),
        allow_unsandboxed=settings.allow_unsandboxed,
        count=count,
    )


def on_device(settings: JudgeSettings) -> AbstractContextManager[None]:
    """Around what uses the GPU: nobody times meanwhile."""
    return gpu_lock.shared() if settings.device == "cuda" else nullcontext()


@contextmanager
def threads(count: int) -> Iterator[None]:
    """torch's operators on the CPU in so many threads. A judgement keeps to one, as the candidate's
    process does: what is judged there is small, and threads that wait for others spin. Of four
    processes with two threads each on two processors a convolution took twenty times as long as
    with one."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
