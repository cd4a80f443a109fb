"""Judged kernels, training rows, and the settings of a training.

Settings are a packaged configuration (`configs/training/NAME.yaml`) or a YAML file, with `-c
section.key=value` on top. All numbers are finite.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Annotated, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

from agentkernel.domain.base import Frozen, sha256_text
from agentkernel.domain.errors import SettingError, expected_of, one_line
from agentkernel.domain.exchange import Message
from agentkernel.domain.verdict import Policy, Verdict
from agentkernel.storage.configuration import parse_override, read_yaml, require_known

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
Say = Callable[[str], None]
"""Hears a line of what is done."""
Show = Callable[[int, int | None, str], None]
"""Hears how much is done, of how much where that is known, and a few words."""
TASKS: tuple[Task, ...] = ("write", "optimise", "repair")
SHARES: dict[Task, float] = {"write": 0.4, "optimise": 0.3, "repair": 0.3}


class JudgedKernel(Frozen):
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


Seed = Annotated[int, Field(ge=0, lt=2**32)]
"""What numpy takes for one as well."""


class FiniteSettings(Frozen):
    """What a user sets: all numbers are finite."""

    model_config = ConfigDict(allow_inf_nan=False)


class DataSettings(FiniteSettings):
    """How rows are chosen. `shares` of the three tasks; `held_out` modules, of structures that no
    row of the training part has; a row longer than `most_characters` is left out."""

    shares: dict[Task, Annotated[float, Field(ge=0)]] = SHARES
    held_out: int = Field(default=200, ge=1)
    licences: tuple[str, ...] = ("Apache-2.0", "MIT", "BSD-2-Clause", "BSD-3-Clause", "ISC")
    most_characters: int = Field(default=24_000, ge=1)
    seed: Seed = 0


class NewModel(FiniteSettings):
    """A model that is made from nothing, of the Llama kind; `vocabulary` of its own tokenizer."""

    vocabulary: int = Field(default=8192, ge=300)
    hidden: int = Field(default=384, ge=1)
    layers: int = Field(default=8, ge=1)
    heads: int = Field(default=6, ge=1)
    intermediate: int = Field(default=1024, ge=1)
    window: int = Field(default=4096, ge=2)

    @field_validator("heads")
    @classmethod
    def _divide_evenly(cls, heads: int, info: ValidationInfo) -> int:
        hidden = info.data.get("hidden")
        if hidden is not None and hidden % (2 * heads):
            raise PydanticCustomError(
                "heads",
                "A hidden size of {hidden} does not fall into {heads} heads of an even size. "
                "Expected a multiple of twice new.heads. Next: another new.hidden or new.heads",
                {"hidden": hidden, "heads": heads},
            )
        return heads


class Lora(FiniteSettings):
    """Which matrices get an adapter, and of which rank."""

    rank: int = Field(default=16, ge=1)
    alpha: int = Field(default=32, ge=1)
    dropout: float = Field(default=0.0, ge=0, lt=1)
    modules: tuple[str, ...] | str = "all-linear"

    @field_validator("modules")
    @classmethod
    def _name_some(cls, modules: tuple[str, ...] | str) -> tuple[str, ...] | str:
        if not modules or "" in tuple(modules):
            raise PydanticCustomError(
                "modules", "Expected names of matrices, such as [q_proj, v_proj], or all-linear"
            )
        return modules


HALVED = "halved"
"""The strategy of a kernel that is cut in two, to be slow: nobody is taught to write one."""


class SftSettings(FiniteSettings):
    """Supervised fine-tuning: the loss is that of completions alone. `replay` is the share of rows
    that comes from older data, against forgetting; `tasks` an ablation's choice. `most_minutes` is
    for all calls together: the learning rate comes to its end with them where they are fewer than
    the steps take. `compile` compiles a model's layers on a GPU: the first steps take a minute
    longer, and the others are shorter. `batch` is one process's; with several GPUs `shard` says
    whether each holds a part of weights, gradients and optimizer states ("full") or all of them
    ("none"): "auto" is by the model's size."""

    method: Literal["full", "lora", "qlora"] = "full"
    lora: Lora = Lora()
    epochs: float = Field(default=1.0, gt=0)
    most_steps: int | None = Field(default=None, ge=1)
    most_minutes: float | None = Field(default=None, gt=0)
    batch: int = Field(default=8, ge=1)
    accumulate: int = Field(default=1, ge=1)
    window: int = Field(default=4096, ge=2)
    packing: bool = True
    learning_rate: float = Field(default=3e-4, gt=0)
    warmup_share: float = Field(default=0.03, ge=0, le=1)
    weight_decay: float = Field(default=0.1, ge=0)
    dropout: float = Field(default=0.0, ge=0, lt=1)
    bf16: bool = True
    compile: bool = False
    shard: Literal["auto", "none", "full"] = "auto"
    replay: float = Field(default=0.0, ge=0, lt=1)
    save_steps: int = Field(default=200, ge=1)
    evaluate_problems: int = Field(default=32, ge=0)
    tasks: tuple[Task, ...] = Field(default=TASKS, min_length=1)
    seed: Seed = 0


class RlSettings(FiniteSettings):
    """Reinforcement on the judge, several turns a problem.

    The reward of a turn is `correct` for a right kernel + `speed` x min(speedup, `most_speedup`) /
    `most_speedup` + `own_share` x the share of its time in its own kernels; `hack` for what the
    judge calls a cheat. Reward-to-go is discounted by `discount` a turn; a turn's advantage is its
    own less the mean of the other rollouts' at that turn (TRLOO, arXiv 2602.05885).
    """

    steps: int = Field(default=100, ge=1)
    problems: int = Field(default=8, ge=1)
    rollouts: int = Field(default=8, ge=2)
    oversample: int = Field(default=1, ge=1)
    """Modules that are tried for each of the `problems` that is judged: those whose first turns
    differ come first, as of first turns that say the same none is better than the others."""
    turns: int = Field(default=3, ge=1)
    discount: float = Field(default=0.4, ge=0, le=1)
    correct: float = Field(default=0.3, ge=0)
    speed: float = Field(default=1.0, ge=0)
    most_speedup: float = Field(default=3.0, gt=0)
    own_share: float = Field(default=0.2, ge=0)
    hack: float = Field(default=-1.0, le=0)
    no_file: float = Field(default=-0.2, le=0)
    learning_rate: float = Field(default=1e-5, gt=0)
    clip: float = Field(default=0.2, gt=0, lt=1)
    clip_high: float = Field(default=0.28, gt=0)
    temperature: float = Field(default=0.9, gt=0)
    top_p: float = Field(default=1.0, gt=0, le=1)
    most_tokens: int = Field(default=1500, ge=1)
    batch: int = Field(default=8, ge=1)
    spared: float = Field(default=0.0, ge=0, lt=1)
    """The share of the training modules that fine-tuning leaves to practice: one that a model knows
    by heart is right at every try, and nothing is learned of it."""
    keep_at_most: float = Field(default=0.5, gt=0, le=1)
    """Profiling-based rejection sampling: of the turns that are right, the share that is kept,
    those whose own kernels take most of the time first."""
    most_minutes: float | None = Field(default=None, gt=0)
    save_steps: int = Field(default=10, ge=1)
    bf16: bool = True
    seed: Seed = 0

    @property
    def tried(self) -> int:
        """Modules that a step tries."""
        return self.problems * self.oversample


class SamplingSettings(FiniteSettings):
    """How the finished model is asked: what its folder says to `--coder local:PATH`."""

    temperature: float = Field(default=0.8, ge=0)
    top_p: float = Field(default=0.95, gt=0, le=1)
    most_tokens: int = Field(default=1500, ge=1)


class TrainingSettings(FiniteSettings):
    """configs/training/NAME.yaml: one model, all steps. `model` is a folder or a hub's name; None
    where `new` says what is made from nothing."""

    name: str
    model: str | None = None
    new: NewModel | None = None
    data: DataSettings = DataSettings()
    sft: SftSettings = SftSettings()
    rl: RlSettings = RlSettings()
    sampling: SamplingSettings = SamplingSettings()


PACKAGED = ("tiny", "small", "qwen2.5-coder-3b", "llama-3.1-8b")
"""Files of that name in configs/training/."""
PARTS: Mapping[str, type[BaseModel]] = {"new": NewModel, "sft.lora": Lora}
"""Sections that a file may leave out, and whose keys can be set all the same."""


def load_training(config: str, overrides: Sequence[str] = ()) -> TrainingSettings:
    """The settings of a packaged name or of a YAML file, with `section.key=value` put on top.

    Raises SettingError, which names the key and the nearest known one.
    """
    tree = _tree(config)
    known = tuple(known_keys())
    for item in overrides:
        key, value = parse_override(item, "sft.epochs=2")
        require_known(key, known, f"-c {item}")
        _put(tree, key, value)
    try:
        found = TrainingSettings.model_validate(tree)
    except ValidationError as error:
        raise SettingError(_explained(error, config)) from error
    if (found.model is None) == (found.new is None):
        raise SettingError(
            f"The training {config!r} names {'both' if found.model else 'neither'} a model and a "
            "new one. Expected 'model' (a folder or a name) or 'new' (sizes). Next: set one."
        )
    return found


def with_model(settings: TrainingSettings, model: str | None) -> TrainingSettings:
    """`settings` for the weights in `model`, where one is given: nothing is made new then."""
    return settings if model is None else settings.evolve(model=model, new=None)


def known_keys() -> Iterator[str]:
    """All dotted keys that can be set."""
    yield from _keys(TrainingSettings, "")


def _keys(model: type[BaseModel], prefix: str) -> Iterator[str]:
    for name, field in model.model_fields.items():
        key = f"{prefix}{name}"
        part = PARTS.get(key) or field.annotation
        if isinstance(part, type) and issubclass(part, BaseModel):
            yield from _keys(part, f"{key}.")
        else:
            yield key
    if model is NewModel:
        yield prefix.rstrip(".")


def _tree(config: str) -> dict[str, object]:
    try:
        if config in PACKAGED:
            folder = resources.files("agentkernel.configs").joinpath("training")
            tree = yaml.safe_load(folder.joinpath(f"{config}.yaml").read_text(encoding="utf-8"))
        elif config.endswith((".yaml", ".yml")):
            tree = read_yaml(Path(config))
        else:
            raise SettingError(
                f"Unknown training {config!r}. Known: {', '.join(PACKAGED)}. "
                "Next: one of these, or the path of a YAML file."
            )
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise SettingError(
            f"Cannot read the training {config!r}: {one_line(error)}. Expected YAML such as "
            "configs/training/small.yaml."
        ) from error
    if not isinstance(tree, dict):
        raise SettingError(
            f"The training {config!r} holds a {type(tree).__name__}. Expected keys and values such "
            "as configs/training/small.yaml."
        )
    return tree


def _put(tree: dict[str, object], key: str, value: object) -> None:
    *sections, last = key.split(".")
    for section in sections:
        below = tree.get(section)
        if not isinstance(below, dict):
            below = tree[section] = {}
        tree = below
    tree[last] = value


def _explained(error: ValidationError, config: str) -> str:
    first = error.errors(include_url=False)[0]
    key = ".".join(str(part) for part in first["loc"])
    wanted = expected_of(first["msg"])
    return f"Setting {key!r} of the training {config!r} is {first['input']!r}. {wanted}."
