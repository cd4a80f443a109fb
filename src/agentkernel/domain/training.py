"""What is a small model taught with, and where does each row of it come from?"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from agentkernel.domain.base import Frozen, sha256_text
from agentkernel.domain.exchange import Message
from agentkernel.domain.verdict import Policy, Verdict

Task = Literal["write", "optimise", "repair"]
"""Problem -> reasoning -> kernel; kernel -> bottlenecks -> optimisations -> faster kernel; broken
kernel and its verdict -> diagnosis -> repair."""
Source = Literal["generated", "kernelbook", "knowledge", "runs", "teacher"]
"""Modules that were made for the purpose; rows of KernelBook; the knowledge base's pairs; the
candidates of earlier runs; what a larger model wrote or reviewed."""
Label = Literal["gpu", "interpreter", "refused", "not-judged"]
"""Where the judge accepted a kernel, or that it refused it, or that nobody asked it."""
Bound = Literal["memory", "compute", "mixed"]
"""What the module's roofline says that it waits for."""
Split = Literal["train", "held-out"]
TASKS: tuple[Task, ...] = ("write", "optimise", "repair")


class Judged(Frozen):
    """A kernel for a problem, with what the judge found: the raw material of all three tasks.

    `parent` is the SHA-256 of the kernel that it was made from (a broken one of a right one, a
    schedule of another), `change` says in one line what differs. `time_us` is measured on `gpu`,
    `estimated_us` is not.
    """

    problem: str
    """The problem's text, in the KernelBench convention."""
    kernel: str
    coder: str
    source: Source
    licence: str
    label: Label
    policy: Policy = "triton"
    strategy: str = ""
    parent: str | None = None
    change: str = ""
    verdict: Verdict | None = None
    bound: Bound | None = None
    target: str | None = None
    time_us: float | None = None
    eager_us: float | None = None
    gpu: str | None = None
    estimated_us: float | None = None
    structure: str = ""
    """Which operators in which order, without names, sizes and constants: what is split by."""

    @property
    def problem_sha256(self) -> str:
        """Identity of the problem's text."""
        return sha256_text(self.problem)

    @property
    def sha256(self) -> str:
        """Identity of the kernel's text."""
        return sha256_text(self.kernel)


class TrainingRow(Frozen):
    """One conversation: `messages` are given, `completion` is what is learned.

    `kernel` is the file in the completion, `label` what the judge said of that file: only
    "gpu" and "interpreter" rows teach what to write; a row that is not judged says so.
    """

    task: Task
    messages: tuple[Message, ...] = Field(min_length=1)
    completion: str = Field(min_length=1)
    source: Source
    licence: str
    label: Label
    problem_sha256: str
    kernel_sha256: str
    structure: str
    split: Split
    bound: Bound | None = None
    target: str | None = None
    reasoning_by: Literal["facts", "teacher", "none"] = "none"
    speedup: float | None = Field(default=None, gt=0)
    """Time before / time after of an "optimise" row, both measured on one GPU; else None."""

    @property
    def id(self) -> str:
        """Content hash of what is given and what is learned."""
        return sha256_text("\0".join((*(item.text for item in self.messages), self.completion)))
