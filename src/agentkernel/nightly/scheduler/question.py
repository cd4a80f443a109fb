"""What is a night asked to do, and whom does it ask on the way?"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from agentkernel.domain.base import Frozen
from agentkernel.domain.region import Kernel, KernelKey, ModelCut, Region
from agentkernel.domain.settings import Settings
from agentkernel.nightly.scheduler.jobs import ZooPart

if TYPE_CHECKING:
    from agentkernel.nightly.regions import WaitingRegions


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
