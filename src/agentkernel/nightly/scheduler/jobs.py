"""Which jobs is a night made of, what does each answer, and when is it the same job again?"""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from pydantic import Field, TypeAdapter

from agentkernel.domain.base import Frozen, sha256_text
from agentkernel.domain.night import ModelRow, RegionStatus
from agentkernel.domain.region import Kernel, KernelKey, ModelCut, Region, RegionUse
from agentkernel.domain.settings import Settings
from agentkernel.domain.zoo import Zoo, ZooModel


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
    a draft replaces.
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
        return kernel_job_key(self.night, self.key_of_kernel, self.settings, self.turn)


class EndToEndJob(Frozen):
    """Put the kernels into a model, check its outputs and time its forms.

    `kernels` and `parameters` are by the submodule's path. A `target` of None is the local GPU.
    """

    kind: Literal["whole"] = "whole"
    night: str
    part: ZooPart
    target: str | None
    cut: ModelCut

    kernels: dict[str, Kernel] = Field(default_factory=dict)
    parameters: dict[str, tuple[str, ...]] = Field(default_factory=dict)

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
    budget = settings.budget.model_copy(update={"time_s": None})
    plain = settings.model_copy(update={"runs": "", "budget": budget})
    return plain.model_dump_json(exclude_defaults=True)


def _key(*words: object) -> str:
    return sha256_text("\n".join(map(str, words)))[:32]
