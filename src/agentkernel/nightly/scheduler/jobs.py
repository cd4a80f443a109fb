"""Jobs of a nightly run, their answers and identities, and what the run is asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, Protocol, TypeAlias

from pydantic import Field, TypeAdapter

from agentkernel.domain.base import Frozen, sha256_text
from agentkernel.domain.nightly import ModelRow, RegionStatus, Zoo, ZooModel
from agentkernel.domain.region import Kernel, KernelKey, ModelCut, Region, RegionUse
from agentkernel.domain.settings import Settings
from agentkernel.nightly.regions import (
    WorkOrder,
    budget_of,
    draft_seconds,
    least_share,
    merge_cuts,
)

if TYPE_CHECKING:
    from agentkernel.nightly.regions import WaitingRegions


class ZooPart(Frozen):
    """One model of a zoo, which a worker can build: `zoo` holds this model alone."""

    zoo: Zoo
    sha256: str
    """Of the model: what would change it."""

    @property
    def model(self) -> ZooModel:
        """The one model."""
        return self.zoo.models[0]


class CutJob(Frozen):
    """Cut a model into regions."""

    kind: Literal["cut"] = "cut"
    night: str
    part: ZooPart
    target: str | None

    @property
    def name(self) -> str:
        """As a report says it."""
        return f"cut {self.part.model.name}"

    @property
    def key(self) -> str:
        """Identity: the night and what the cut depends on."""
        return _key(self.kind, self.night, self.part.sha256, self.target)


class KernelJob(Frozen):
    """Judge the `known` kernel of a region again, or draft one where there is none.

    `use`, in the model `part`, stands for all uses of the region. `turn` counts the jobs of a
    region: a draft may follow a kernel that does not verify any more. `parent`: the kernel's that
    a draft replaces. `again`: how often its run goes on that an earlier part of the budget ended;
    `budget_s` are seconds more then.
    """

    kind: Literal["kernel"] = "kernel"
    night: str
    part: ZooPart
    region: Region
    use: RegionUse
    key_of_kernel: KernelKey
    known: Kernel | None = None
    parent: str | None = None
    turn: int = 1
    again: int = 0
    settings: Settings
    budget_s: float | None = None
    runs: str

    @property
    def name(self) -> str:
        """As a report says it."""
        word = "draft" if self.known is None else "verify"
        return f"{word} {self.region.name} {self.region.signature[:8]}"

    @property
    def key(self) -> str:
        """Identity: what it starts from is left out, which a kill may have changed meanwhile."""
        key = kernel_job_key(self.night, self.key_of_kernel, self.settings, self.turn)
        return f"{key}-{self.again}" if self.again else key


class EndToEndJob(Frozen):
    """Put the kernels into a model, check its outputs and time its forms.

    `kernels` and `parameters` are by the submodule's path; the kernel at "" stands for the whole
    model, `no_whole` says why there is none. Where there are none at all, `cut_short` says what the
    time limit ended. A `target` of None is the local GPU.
    """

    kind: Literal["whole"] = "whole"
    night: str
    part: ZooPart
    target: str | None
    cut: ModelCut

    kernels: dict[str, Kernel] = Field(default_factory=dict)
    parameters: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    no_whole: str = ""
    cut_short: str = ""

    @property
    def name(self) -> str:
        """As a report says it."""
        return f"whole {self.part.model.name}"

    @property
    def key(self) -> str:
        """Identity: the model and the kernels in it."""
        swapped = sorted((path, kernel.sha256) for path, kernel in self.kernels.items())
        return _key(self.kind, self.night, self.part.sha256, self.target, swapped)


Job: TypeAlias = CutJob | KernelJob | EndToEndJob


class CutDone(Frozen):
    """`gpu`: the one that timed it; None where the cut is estimated."""

    kind: Literal["cut"] = "cut"
    cut: ModelCut
    gpu: str | None = None
    seconds: float = 0.0


class KernelDone(Frozen):
    """What became of a region: `kernel` for "new", "retuned" and "reused". `limited`: the budget
    ended the search, so that more time might find more."""

    kind: Literal["kernel"] = "kernel"
    status: RegionStatus
    reason: str = ""
    kernel: Kernel | None = None
    run: str | None = None
    limited: bool = False
    resumable: bool = False
    """The budget ended its run without a kernel; the run can go on."""
    seconds: float = 0.0


class EndToEndDone(Frozen):
    """A model's row."""

    kind: Literal["whole"] = "whole"
    row: ModelRow
    seconds: float = 0.0


class JobFailed(Frozen):
    """No answer, and why in one line."""

    kind: Literal["failed"] = "failed"
    error: str
    seconds: float = 0.0


Answer: TypeAlias = CutDone | KernelDone | EndToEndDone | JobFailed
_JOBS: TypeAdapter[Job] = TypeAdapter(Annotated[Job, Field(discriminator="kind")])
_ANSWERS: TypeAdapter[Answer] = TypeAdapter(Annotated[Answer, Field(discriminator="kind")])


def read_answer(text: str) -> Answer:
    """An answer from its JSON."""
    return _ANSWERS.validate_json(text)


def read_job(text: str) -> Job:
    """A job from its JSON."""
    return _JOBS.validate_json(text)


def kernel_job_key(night: str, key: KernelKey, settings: Settings, turn: int) -> str:
    """Identity of a region's job: where its runs lie and how long they may take is no part."""
    return _key("kernel", night, key.model_dump_json(), relevant_settings(settings), turn)


def relevant_settings(settings: Settings) -> str:
    """What the settings ask of a region, without where its runs lie and how long they may take. A
    setting at its class's default is left out: one that is new changes no identity."""
    budget = settings.budget.evolve(time_s=None)
    plain = settings.evolve(runs="", budget=budget)
    return plain.model_dump_json(exclude_defaults=True)


def _key(*words: object) -> str:
    return sha256_text("\n".join(map(str, words)))[:32]


class KernelStore(Protocol):
    """What is asked of the library."""

    def find(self, key: KernelKey) -> Kernel | None: ...
    def has(self, key: KernelKey) -> bool: ...
    def kernels(self, *, signature: str | None = None) -> tuple[Kernel, ...]: ...
    def put(self, kernel: Kernel, *, live: Path | None = None, night: str = "") -> None: ...
    def withdraw(self, sha256: str, why: str) -> object: ...
    def verified(self, sha256: str, when: str) -> object: ...
    def job(self, key: str) -> str | None: ...
    def save_job(self, key: str, kind: str, value_json: str) -> None: ...


class RegionOrder(Protocol):
    """The regions to work on, the best first; each answer changes it."""

    @property
    def regions(self) -> tuple[Region, ...]:
        """All that is not answered."""
        ...

    def answered(self, signature: str, found: bool) -> tuple[Region, ...]:
        """Take a region out; what comes in for it, or has other uses now."""


@dataclass(frozen=True)
class Ranking:
    """How regions become an order of work, and what each may cost beside the rest."""

    merge: Callable[[Sequence[ModelCut], Mapping[str, float]], tuple[Region, ...]]
    order: Callable[[Sequence[Region]], RegionOrder]
    budget: Callable[[Region, WaitingRegions, float], float]
    seconds: Callable[[Region, bool], float] = draft_seconds
    """What a draft of a region takes where nobody knows it: in the interpreter, or on a GPU."""


class NightRequest(Frozen):
    """What a night is to do. `settings.runs` holds the runs of its drafts.

    `budget_s`: wall seconds of all of it, of which `reserve` (a share) is kept for the models'
    end-to-end figures; None: no limit. `gpu`: the one that measures, None where none does.
    `torch` and `triton` are versions, as in a KernelKey.
    """

    night: str
    parts: tuple[ZooPart, ...]
    target: str
    settings: Settings
    gpu: str | None
    torch: str
    triton: str
    workers: int = 1
    budget_s: float | None = None
    reserve: float = 0.15

    def key_of(self, region: Region, gpu: str | None) -> KernelKey:
        """What a kernel for `region` holds for; `gpu`: the one that measures."""
        return KernelKey(
            signature=region.signature,
            gpu=gpu if gpu is not None else f"estimated:{self.target}",
            torch=self.torch,
            triton=self.triton,
            precision=self.settings.goals.precision,
        )


def default_ranking(models: int) -> Ranking:
    """By the share of the time and the headroom, as the regions of so many models were cut."""
    order = partial(WorkOrder, least_share=least_share(models))
    return Ranking(merge_cuts, order, budget_of)
