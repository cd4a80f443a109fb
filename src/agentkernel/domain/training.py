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
SHARES: dict[Task, float] = {"write": 0.4, "optimise": 0.3, "repair": 0.3}


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
    facts: dict[str, str] = Field(default_factory=dict)
    """What whoever made the row knew: "inputs" (the first call's), "class" (unless Model),
    "bytes", "operations" and "roofline" (its time; all of one call), and the lines of a
    profile (`SpeedEvidence.facts`) where there was one."""

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


class DataSettings(Frozen):
    """How rows are chosen. `shares` of the three tasks; `held_out` modules, of structures that no
    row of the training part has; a row longer than `most_characters` is left out."""

    shares: dict[Task, float] = SHARES
    held_out: int = Field(default=200, ge=1)
    licences: tuple[str, ...] = ("Apache-2.0", "MIT", "BSD-2-Clause", "BSD-3-Clause", "ISC")
    most_characters: int = Field(default=24_000, ge=1)
    seed: int = 0


class NewModel(Frozen):
    """A model that is made from nothing, of the Llama kind; `vocabulary` of its own tokenizer."""

    vocabulary: int = Field(default=8192, ge=300)
    hidden: int = 384
    layers: int = 8
    heads: int = 6
    intermediate: int = 1024
    window: int = 4096


class Lora(Frozen):
    """Which matrices get an adapter, and of which rank."""

    rank: int = 16
    alpha: int = 32
    dropout: float = 0.0
    modules: tuple[str, ...] | str = "all-linear"


class SftSettings(Frozen):
    """Supervised fine-tuning: the loss is that of completions alone. `replay` is the share of rows
    that comes from older data, against forgetting; `tasks` an ablation's choice. `most_minutes` is
    for all calls together: the learning rate comes to its end with them where they are fewer than
    the steps take. `compile` compiles a model's layers on a GPU: the first steps take a minute
    longer, and the others are shorter. `batch` is one process's; with several GPUs `shard` says
    whether each holds a part of weights, gradients and optimizer states ("full") or all of them
    ("none"): "auto" is by the model's size."""

    method: Literal["full", "lora", "qlora"] = "full"
    lora: Lora = Lora()
    epochs: float = 1.0
    most_steps: int | None = None
    most_minutes: float | None = Field(default=None, gt=0)
    batch: int = Field(default=8, ge=1)
    accumulate: int = Field(default=1, ge=1)
    window: int = 4096
    packing: bool = True
    learning_rate: float = 3e-4
    warmup_share: float = 0.03
    weight_decay: float = 0.1
    bf16: bool = True
    compile: bool = False
    shard: Literal["auto", "none", "full"] = "auto"
    replay: float = Field(default=0.0, ge=0, lt=1)
    save_steps: int = Field(default=200, ge=1)
    evaluate_problems: int = Field(default=32, ge=0)
    tasks: tuple[Task, ...] = TASKS
    seed: int = 0


class RlSettings(Frozen):
    """Reinforcement on the judge, several turns a problem.

    The reward of a turn is `correct` for a right kernel + `speed` x min(speedup, `most_speedup`) /
    `most_speedup` + `own_share` x the share of its time in its own kernels; `hack` for what the
    judge calls a cheat. Reward-to-go is discounted by `discount` a turn; a turn's advantage is its
    own less the mean of the other rollouts' at that turn (TRLOO, arXiv 2602.05885).
    """

    steps: int = Field(default=100, ge=1)
    problems: int = Field(default=8, ge=1)
    rollouts: int = Field(default=8, ge=2)
    turns: int = Field(default=3, ge=1)
    discount: float = Field(default=0.4, ge=0, le=1)
    correct: float = 0.3
    speed: float = 1.0
    most_speedup: float = 3.0
    own_share: float = 0.2
    hack: float = -1.0
    no_file: float = -0.2
    learning_rate: float = 1e-5
    clip: float = 0.2
    clip_high: float = 0.28
    temperature: float = 0.9
    top_p: float = 1.0
    most_tokens: int = 1500
    batch: int = Field(default=8, ge=1)
    keep_at_most: float = Field(default=0.5, gt=0, le=1)
    """Profiling-based rejection sampling: of the turns that are right, the share that is kept,
    those whose own kernels take most of the time first."""
    most_minutes: float | None = Field(default=None, gt=0)
    save_steps: int = Field(default=10, ge=1)
    bf16: bool = True
    seed: int = 0


class SamplingSettings(Frozen):
    """How the finished model is asked: what its folder says to `--coder local:PATH`."""

    temperature: float = 0.8
    top_p: float = 0.95
    most_tokens: int = 1500


class TrainingSettings(Frozen):
    """configs/training/NAME.yaml: one model, all steps. `model` is a folder or a hub's name; None
    where `new` says what is made from nothing."""

    name: str
    model: str | None = None
    new: NewModel | None = None
    data: DataSettings = DataSettings()
    sft: SftSettings = SftSettings()
    rl: RlSettings = RlSettings()
    sampling: SamplingSettings = SamplingSettings()
