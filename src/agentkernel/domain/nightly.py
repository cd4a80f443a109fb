"""Model zoos and the results of a nightly run over one, by model and by region."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from agentkernel.domain.base import Frozen
from agentkernel.domain.certificate import Versions
from agentkernel.domain.profile import Ratio, Timing
from agentkernel.domain.region import Basis, RegionUse

Form = Literal["eager", "torch.compile", "regions", "one-region", "regions+torch.compile"]
"""How a model runs at its best: as it is, compiled by torch, with the verified regions swapped in,
as one verified region, or compiled by torch with the regions in."""
RegionStatus = Literal["new", "reused", "retuned", "kept", "failed", "withdrawn", "unreached"]
"""`kept`: the baseline stays; `withdrawn`: a known kernel does not verify any more; `unreached`:
the budget was spent before it."""


class ModelRow(Frozen):
    """One model's end-to-end figures.

    `form` is what is handed over, `why` says why the whole as one region is, or is not; ratios are
    baseline time / time in that form. `timings` has every form that was timed, `failed` why another
    has no time. `worst_error` is the norm-wise error of the outputs against fp64 with the kernels
    in, `eager_error` that of eager itself. Without a GPU `basis` is "estimated" and the ratios are
    None: `estimated_speedup` is arithmetic alone. `shapes` are those of the inputs.
    """

    name: str
    weight: float = 1.0
    basis: Basis
    form: Form = "eager"
    why: str = ""
    timings: dict[Form, Timing] = Field(default_factory=dict)
    failed: dict[Form, str] = Field(default_factory=dict)
    vs_eager: Ratio | None = None
    vs_compile: Ratio | None = None
    estimated_eager_us: float | None = None
    estimated_us: float | None = None
    estimated_forms_us: dict[Form, float] = Field(default_factory=dict)
    """Of the forms with kernels that were compared."""
    estimated_speedup: float | None = None
    verified: bool | None = None
    """Whole-model outputs with the kernels in keep the strict rule; None where none are in."""
    worst_error: float | None = None
    eager_error: float | None = None
    swapped: int = 0
    """Submodules that run a verified kernel in the form that is handed over."""
    dropped: tuple[str, ...] = ()
    """Signatures of kernels that are not in: they did not help end to end, or the whole model as
    one region does more than they do, or they more than it."""
    left_out: dict[str, str] = Field(default_factory=dict)
    """Those of `dropped` with which the outputs are not right, and why."""
    time_in_regions: float = 0.0
    """Share of the eager forward that the swapped regions take, 0 to 1."""
    error: str | None = None
    dtype: str = ""
    """What the module was cast to; "" where it runs as it was built."""
    shapes: str = ""


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
    speedup_high: float | None = None
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
        if kinds & {"withdrawn", "failed_to_verify"}:
            return 6
        if "model_failed" in kinds:
            return 1
        return 5 if "regression" in kinds else 0


Plain: TypeAlias = str | int | float | bool | None
Argument: TypeAlias = Plain | list[Plain] | dict[str, Plain]
ModelDType = Literal["float32", "float16", "bfloat16"]
ModelName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,63}$")]
PART_OF = ":"
"""Between a zoo's name and those of the models that were chosen from it."""
MOST_SEED = 2**63 - 1
"""What torch.manual_seed takes, and SQLite keeps."""


class ZooModel(Frozen):
    """One model, in eval mode and without gradients.

    `model` names a class or a function that gives the module: `package.module:Name`, or
    `path/to/file.py:Name`, relative to the zoo's file. `init` are its keyword arguments. The inputs
    of a call are `inputs`, such as `x=f32[2,16,64]` (integers below 1000: `ids=i64[2,16]<1000`), or
    come from `make_inputs`, named as `model` is, which returns a tuple, or a dict of keyword
    arguments. `dtype`: the module and its floating inputs are cast to it.
    """

    name: ModelName
    model: str = Field(min_length=3)
    init: dict[str, Argument] = Field(default_factory=dict)
    inputs: tuple[str, ...] = ()
    make_inputs: str | None = None
    dtype: ModelDType | None = None
    weight: float = Field(default=1.0, gt=0, le=1e6)
    """Share of this model in the total, before it is multiplied by its time."""
    seed: int = Field(default=0, ge=0, le=MOST_SEED)


class Zoo(Frozen):
    """The models of one YAML file; `target` and `settings` (dotted keys) hold for all of them.

    `folder` is where relative paths begin. `name` is part of a folder's name; behind a colon it has
    the models that were chosen from the zoo of that name, which no file may say of itself.
    """

    name: str = Field(pattern=r"^\w[\w .-]{0,63}(:[a-z0-9._+-]+)?$")
    models: tuple[ZooModel, ...] = Field(min_length=1)
    target: str | None = None
    settings: dict[str, Plain] = Field(default_factory=dict)
    folder: str = ""
