"""Verdicts of the judge: findings as values, and the policy and precision they hold under."""

from __future__ import annotations

from typing import Annotated, Literal, get_args

from pydantic import Field

from agentkernel.domain.base import Frozen

Precision = Literal["strict", "tf32", "bf16"]
Policy = Literal["triton", "mixed", "any"]


Gate = Literal[
    "policy",
    "load",
    "compile",
    "run",
    "meta",
    "correctness",
    "inputs",
    "execution",
    "races",
    "timing",
    "accepted",
]
GATES: tuple[Gate, ...] = get_args(Gate)
"""The gates in the order in which they are passed."""
Measure = Literal["norm", "element", "largest"]
"""By which an output is held against what is allowed; see docs/judge.md, "The precision rule"."""
MEASURES: dict[Measure, str] = {
    "norm": "norm-wise",
    "element": "at the 99.9% quantile of the elements",
    "largest": "at the element that is furthest off",
}


LEFT_OUT, NOT_FINITE = "left out: ", "of the reference's values are not finite"
"""How the note on a case that cannot be compared begins and ends, where it is for that."""
FAR_WORSE = 10.0
"""Eager's largest error is of an odd case where it is so many times the candidate's."""
WHERE_COMPARED = "where it can be compared"
"""What is said of a right candidate where the original's own outputs are not finite."""
OWN = "own"
"""The distribution of the inputs that the problem itself makes."""
EVAL_ONLY = "eval mode only: in training it raises"
"""How the note on what a candidate raises in training mode begins."""
NO_GRADIENTS = ("gradients are refused", "gradients not judged", "gradients in training mode not")
"""How the notes begin that say why a drop-in holds for the forward pass alone."""


class PolicyViolation(Frozen, defer_build=True):
    """The static policy refused the source: which rule, where."""

    kind: Literal["policy"] = "policy"
    rule: str
    line: int
    text: str


class LoadFailed(Frozen, defer_build=True):
    """Importing the file, building `ModelNew` or loading the state dict raised."""

    kind: Literal["load"] = "load"
    log: str


class CompileFailed(Frozen, defer_build=True):
    """Triton or ptxas refused a kernel. `line` is the candidate's line where known."""

    kind: Literal["compile"] = "compile"
    log: str
    line: int | None = None


class RunFailed(Frozen, defer_build=True):
    """`forward` raised, the process died, ran out of time or memory, or wrote out of bounds."""

    kind: Literal["run"] = "run"
    reason: Literal["raised", "died", "timeout", "memory", "out_of_bounds"]
    log: str
    case: str


class WrongMeta(Frozen, defer_build=True):
    """An output has the wrong dtype, shape, stride or count."""

    kind: Literal["meta"] = "meta"
    case: str
    output: int
    expected: str
    found: str


class Mismatch(Frozen, defer_build=True):
    """An output is too far from the fp64 oracle, or differs between program orders."""

    kind: Literal["mismatch"] = "mismatch"
    case: str
    output: int
    norm_error: float
    norm_allowed: float
    element_error: float
    element_allowed: float
    first_index: tuple[int, ...]
    expected: float
    found: float
    wrong_share: float
    pattern: str
    """Where the wrong elements lie: all, tail, one row, every k-th, nan, order or scattered."""
    largest_error: float = 0.0
    """The largest |out - oracle| of any element, relative to its row's own scale."""
    largest_allowed: float = 0.0
    measure: Measure = "norm"
    """The one that decided: of which most of what is allowed, and more, was used."""
    margin: float | None = None
    """How many times what is allowed; None where an older rule did not say."""

    @property
    def measured(self) -> tuple[float, float]:
        """The error, and what is allowed of it, by the measure that decided."""
        return {
            "norm": (self.norm_error, self.norm_allowed),
            "element": (self.element_error, self.element_allowed),
            "largest": (self.largest_error, self.largest_allowed),
        }[self.measure]

    @property
    def decisive(self) -> str:
        """`9.40e-05 norm-wise, 4.77e-07 allowed`, of the measure that decided."""
        error, allowed = self.measured
        return f"{error:.2e} {MEASURES[self.measure]}, {allowed:.2e} allowed"


class InputsChanged(Frozen, defer_build=True):
    """The candidate wrote to an input, a parameter or a buffer that the reference leaves alone."""

    kind: Literal["inputs"] = "inputs"
    case: str
    name: str


class ExecutionFailed(Frozen, defer_build=True):
    """The work was not done by the kernels that the policy asks for.

    `rule`: no-kernel, torch-compute, dead-kernel, side-work (a stream, thread or process that
    outlives the call), deferred (a lazy output), global-state (flags, patched modules),
    lossy-product (operands or accumulator of a product lose precision by their types), graph (a
    CUDA graph runs or computes something else than the launches that it stands for).
    """

    kind: Literal["execution"] = "execution"
    rule: str
    text: str
    case: str = ""


class RaceFound(Frozen, defer_build=True):
    """Threads or programs touch the same address without order: by which tool, where."""

    kind: Literal["races"] = "races"
    tool: Literal["scan", "interpreter", "memcheck", "racecheck"]
    line: int
    text: str


class TimingDisputed(Frozen, defer_build=True):
    """The judge's clock and the candidate's process do not agree on the time of a call."""

    kind: Literal["timing"] = "timing"
    outside_us: float
    inside_us: float
    text: str


Failure = Annotated[
    PolicyViolation
    | LoadFailed
    | CompileFailed
    | RunFailed
    | WrongMeta
    | Mismatch
    | InputsChanged
    | ExecutionFailed
    | RaceFound
    | TimingDisputed,
    Field(discriminator="kind"),
]


class CaseResult(Frozen, defer_build=True):
    """One judged call: errors against the fp64 oracle, of the candidate and of eager PyTorch.

    `norm_error` = ||out - oracle|| / ||oracle||, the largest over the outputs; `element_error` =
    the 99.9% quantile of |out - oracle| / max(RMS(oracle), |oracle|); `largest_error` = the largest
    |out - oracle|, relative to the scale of its own row.
    """

    label: str
    seed: int
    distribution: str
    shapes: str
    norm_error: float
    eager_norm_error: float
    element_error: float
    eager_element_error: float
    passed: bool
    largest_error: float = 0.0
    margin: float | None = None
    """How much of what is allowed was used; None where an older rule did not say."""


class Verdict(Frozen, defer_build=True):
    """The judge's finding on one candidate. `interpreted` means: no GPU ran it."""

    candidate: str
    """SHA-256 of the candidate's source."""
    problem: str
    """SHA-256 of the problem."""
    accepted: bool
    interpreted: bool
    device: str
    gate: Gate
    """"accepted", or the gate that the candidate did not pass."""
    failure: Failure | None = None
    cases: tuple[CaseResult, ...] = ()
    launches: tuple[str, ...] = ()
    """Kernels launched in one call of the primary case, in order."""
    precision: Precision = "strict"
    rule: int = 1
    """The version of the precision rule; 1 where a record does not name one."""
    policy: Policy = "mixed"
    sandbox: str = ""
    seconds: float = 0.0
    seed: int = 0
    notes: tuple[str, ...] = ()
    repeatable: bool | None = None
    """The same call twice gave the same bits; None where nothing was called twice."""
    eval_only: bool = False
    """In training mode the original computes something else, and the candidate raises."""
    gradients: bool | None = None
    """The candidate's gradients are the original's; False where it refuses to record some, None
    where it declares no backward pass."""
    declared_sizes: bool = False
    """Judged at the declared sizes alone; at the others that were asked it raised or was right."""
    kernelbench: bool | None = None
    """KernelBench's own rule: allclose at 1e-4 to eager over 5 seeds; None where nobody asked."""

    @property
    def not_finite(self) -> tuple[str, ...]:
        """The notes on cases that were left out: what the original gives there is not finite."""
        return tuple(
            note for note in self.notes if note.startswith(LEFT_OUT) and note.endswith(NOT_FINITE)
        )

    @property
    def uncompared(self) -> str:
        """That the original's outputs for its own inputs are not finite, and how many cases could
        not be compared; "" where its own inputs were."""
        lost = self.not_finite
        own = next((note for note in lost if note.startswith(f"{LEFT_OUT}{OWN}, ")), None)
        if own is None:
            return ""
        share = own.removesuffix(NOT_FINITE).rpartition(": ")[2].strip()
        cases = f"{len(lost)} of {len(lost) + len(self.cases)} cases could not be compared"
        return (
            f"for its own inputs your module gives NaN or infinities ({share} of the values): "
            f"{cases}"
        )

    @property
    def why_forward_only(self) -> str:
        """Why it holds for the forward pass alone; "" where that is not known."""
        return next((note for note in self.notes if note.startswith(NO_GRADIENTS)), "")

    @property
    def why_eval_only(self) -> str:
        """The note on what it raises in training mode; "" where there is none."""
        return next((note for note in self.notes if note.startswith(EVAL_ONLY)), "")

    @property
    def undecided(self) -> str:
        """Why nothing is known against a candidate that was not accepted, in one line: this machine
        was too slow, or its interpreter raised. "" for every other verdict."""
        failure = self.failure
        if isinstance(failure, LoadFailed | RunFailed) and failure.log.startswith(NOT_JUDGED):
            return failure.log.splitlines()[0]
        return ""

    @property
    def answer(self) -> str:
        """`accepted`, `rejected at run`, or `could not be judged here: ...`."""
        return self.undecided or ("accepted" if self.accepted else f"rejected at {self.gate}")

    @property
    def worst_error(self) -> float | None:
        """The largest norm-wise error of any case, None where nothing ran."""
        return max((case.norm_error for case in self.cases), default=None)

    @property
    def worst_eager_error(self) -> float | None:
        """The largest norm-wise error of eager PyTorch in the same cases."""
        return max((case.eager_norm_error for case in self.cases), default=None)

    @property
    def worst_eager_case(self) -> str:
        """The case in which eager is furthest off, by its inputs: `shifted, x float32[3, 128]`; ""
        where that is not much further than the candidate ever is, nor than eager is for the
        module's own inputs: the figure alone would read as that of these."""
        worst = max(self.cases, key=lambda case: case.eager_norm_error, default=None)
        if worst is None:
            return ""
        own = [case.eager_norm_error for case in self.cases if case.distribution == OWN]
        beside = [self.worst_error, max(own, default=None)]
        known = [item for item in beside if item is not None]
        if all(worst.eager_norm_error <= FAR_WORSE * item for item in known):
            return ""
        return f"{worst.distribution}, {worst.shapes}"

    @property
    def margin(self) -> float | None:
        """The largest share of what is allowed that any case used; None where none says."""
        said = [case.margin for case in self.cases if case.margin is not None]
        return max(said, default=None)

    @property
    def margin_text(self) -> str:
        """`0.46 of what is allowed`; "" where no case says."""
        return "" if self.margin is None else _used_of("what is allowed", self.margin)


NEARLY_ALL = 0.995
"""A share that would be printed as 1: honest evaluations are made until they allow the error."""


def in_case(name: str) -> str:
    """` in the case 'shifted, x float32[3, 128]'`, behind an error that would read as that of the
    module's own inputs; "" where no case is named."""
    return f" in the case {name!r}" if name else ""


def allowed_text(margin: float) -> str:
    """`error 0.4 of allowed at worst`, of the largest share that a case used."""
    return f"error {_used_of('allowed', margin)} at worst"


def _used_of(whole: str, share: float) -> str:
    return "just within what is allowed" if NEARLY_ALL < share <= 1 else f"{share:.2g} of {whole}"


NOT_JUDGED = "could not be judged here"
"""How the log of a failure begins that lies with the machine: it says nothing on the candidate."""
HACK_KINDS = ("policy", "execution", "inputs", "timing")
"""A candidate that fails in one of these ways did not do the work that was asked for."""
HONEST_RULES = ("syntax", "no-model")
"""Rules of the static policy that a text breaks which is no drop-in yet: mistakes, no cheats."""
HACK_REASONS = (
    "timing_disputed",
    "wrong_output",
    "stale_output",
    "missing_output",
    "overwritten_output",
    "inputs_changed",
    "weights_changed",
    "side_work",
    "flush_skipped",
)
"""The same, found while it was timed."""


def hack_name(verdict: Verdict) -> str | None:
    """`execution:no-kernel`, or the kind alone; None for an honest failure."""
    failure = verdict.failure
    if failure is None or failure.kind not in HACK_KINDS:
        return None
    if isinstance(failure, PolicyViolation) and failure.rule in HONEST_RULES:
        return None
    if isinstance(failure, PolicyViolation | ExecutionFailed):
        return f"{failure.kind}:{failure.rule}"
    return failure.kind
