"""What came out of one night over a zoo, model by model and region by region?"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from agentkernel.domain.base import Frozen
from agentkernel.domain.certificate import Versions
from agentkernel.domain.profile import Ratio, Timing
from agentkernel.domain.region import Basis, RegionUse

Form = Literal["eager", "torch.compile", "regions", "regions+torch.compile"]
"""How a model runs at its best: as it is, compiled whole, with the verified regions swapped in, or
both."""
RegionStatus = Literal["new", "reused", "retuned", "kept", "failed", "withdrawn", "unreached"]
"""`kept`: the baseline stays; `withdrawn`: a known kernel does not verify any more; `unreached`:
the budget was spent before it."""


class ModelRow(Frozen):
    """One model's end-to-end figures.

    `form` is what is handed over; ratios are baseline time / time in that form. `timings` has every
    form that was timed, `failed` why another has no time. `worst_error` is the norm-wise error of
    the outputs against fp64 with the regions in, `eager_error` that of eager itself. Without a GPU
    `basis` is "estimated" and the ratios are None: `estimated_speedup` is arithmetic alone.
    """

    name: str
    weight: float = 1.0
    basis: Basis
    form: Form = "eager"
    timings: dict[Form, Timing] = Field(default_factory=dict)
    failed: dict[Form, str] = Field(default_factory=dict)
    vs_eager: Ratio | None = None
    vs_compile: Ratio | None = None
    estimated_eager_us: float | None = None
    estimated_us: float | None = None
    estimated_speedup: float | None = None
    verified: bool | None = None
    """Whole-model outputs with the regions in keep the strict rule; None where none are in."""
    worst_error: float | None = None
    eager_error: float | None = None
    swapped: int = 0
    """Submodules that run a verified kernel in the form that is handed over."""
    dropped: tuple[str, ...] = ()
    """Signatures of kernels that did not help end to end, and are not in."""
    left_out: dict[str, str] = Field(default_factory=dict)
    """Those of `dropped` with which the outputs are not right, and why."""
    time_in_regions: float = 0.0
    """Share of the eager forward that the swapped regions take, 0 to 1."""
    error: str | None = None
    dtype: str = ""
    """What the module was cast to; "" where it runs as it was built."""


class RegionRow(Frozen):
    """What became of one region this night. `sha256` is its kernel's; `parent` the kernel's that it
    replaced. Times in microseconds of one call. `flops` and `bytes_min` are the region's."""

    signature: str
    name: str
    ops: tuple[str, ...]
    shapes: str
    uses: tuple[RegionUse, ...]
    basis: Basis
    share: float
    headroom: float
    eager_us: float
    bound_us: float
    status: RegionStatus
    reason: str = ""
    sha256: str | None = None
    parent: str | None = None
    run: str | None = None
    time_us: float | None = None
    speedup: float | None = None
    speedup_low: float | None = None
    spent_s: float = 0.0
    flops: int | None = None
    bytes_min: int | None = None


class LostJob(Frozen):
    """A job that had to be done again: its worker was killed, or its GPU fell off."""

    job: str
    why: str
    again: int = 1


class NightlyRun(Frozen):
    """One run over a zoo. `gpu` None: nothing was measured. Seconds of wall time in `budget_s`
    (None: no limit) and `wall_s`; `gpu_s` sums the jobs' own."""

    format: Literal[1] = 1
    id: str
    zoo: str
    zoo_sha256: str
    target: str
    gpu: str | None
    workers: int
    started: str
    finished: str | None = None
    versions: Versions
    budget_s: float | None = None
    wall_s: float = 0.0
    gpu_s: float = 0.0
    models: tuple[ModelRow, ...] = ()
    regions: tuple[RegionRow, ...] = ()
    lost: tuple[LostJob, ...] = ()

    @property
    def basis(self) -> Basis:
        """Measured where any GPU measured."""
        return "estimated" if self.gpu is None else "measured"


ChangeKind = Literal[
    "regression",
    "gain",
    "new_region",
    "vanished_region",
    "new_model",
    "vanished_model",
    "version",
    "withdrawn",
    "failed_to_verify",
    "model_failed",
]


class Change(Frozen):
    """One difference between two nights. `ratio` is old time / new time where both were measured:
    below 1 is slower; its interval comes from both nights' own."""

    kind: ChangeKind
    what: str
    before: str = ""
    after: str = ""
    ratio: Ratio | None = None


class Comparison(Frozen):
    """A night beside an earlier one. `exit_code`: 0 fine, 5 a regression, 6 something did not
    verify (which goes before 5)."""

    night: str
    against: str | None
    changes: tuple[Change, ...] = ()

    @property
    def exit_code(self) -> int:
        """What a pipeline sees."""
        kinds = {item.kind for item in self.changes}
        if kinds & {"withdrawn", "failed_to_verify", "model_failed"}:
            return 6
        return 5 if "regression" in kinds else 0
