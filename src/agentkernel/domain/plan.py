"""Plans: roofline analysis, hypotheses with predicted gains, decisions and their sources."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, ValidationError

from agentkernel.domain.base import Frozen

RooflineClass = Literal["memory", "compute", "latency", "mixed"]
FOREIGN = "imported: "
"""How the source of an entry begins that came in a file: its figures are somebody else's word."""
WON = "experience"
"""The hint of an experience that holds its `Won`, as JSON."""
Size = Annotated[int, Field(ge=0, le=2**48)]
"""Of a tensor's dimension; no device holds as many elements."""
Constant = Annotated[int, Field(ge=-(2**63), le=2**63 - 1)]
"""Of a kernel: what an argument of one can hold."""
Share = Annotated[float, Field(ge=0, allow_inf_nan=False)]
WON_LONGEST = 2**16
"""Characters of the JSON of a `Won`; the longest known of a run is a hundredth of it."""


class Analysis(Frozen):
    """Roofline facts of a problem on a target: an *estimate*, from the graph and the datasheet.

    `bytes_min` counts every input, parameter and output once; `flops` counts a multiply and an
    add as two.
    """

    bytes_min: int
    flops: int
    op_counts: dict[str, int]
    roofline: RooflineClass
    memory_time_us: float
    compute_time_us: float
    bound_us: float
    patterns: tuple[str, ...]
    """Names of the templates that cover the graph, in execution order."""
    uncovered: tuple[str, ...] = ()
    """ATen ops left to the library, or for which there is no template."""
    matmul_flops: int = 0
    """The part of `flops` that matrix products, convolutions and attention do."""
    matmul_peak_tflops: float = 0
    """The compute peak that `compute_time_us` assumes for that part; 0 where there is none."""
    assumptions: tuple[str, ...] = ()
    """What the bound takes for granted: bandwidth, precision, how ops are counted."""


class Decision(Frozen):
    """A choice that the plan fixes, with the document (or rule) that it rests on."""

    key: str
    value: str
    default: str
    because: str
    """A document id of the knowledge base, or "default"."""


class Work(Frozen):
    """What a graph does if each of its calls is one launch; an *estimate*, counted from shapes."""

    flops: int
    bytes_moved: int


class AlgebraStep(Frozen):
    """One exact rewrite of the graph: `derivation` is the formula at its place in the graph,
    `because` the rule's own derivation in words."""

    rule: str
    derivation: str
    because: str
    before: Work
    after: Work


class Algebra(Frozen):
    """The exact rewrites, in the order in which they were applied, that a strategy starts from."""

    steps: tuple[AlgebraStep, ...]
    before: Work
    after: Work


class Hypothesis(Frozen):
    """One thing to try: a strategy of the coder with the predicted gain over the baseline."""

    strategy: str
    reason: str
    predicted_us: float | None = None
    predicted_by: str = ""
    """The model that predicts; "" for the rules."""
    algebra: Algebra | None = None
    """The derivation, where the strategy starts from a graph that was rewritten."""
    because: str = ""
    """The experience that it starts from, by id; "": it searches all there is."""


class Calibration(Frozen):
    """How often an expectation held, over the candidates whose time was measured.

    `within`: measured no slower than predicted, but for a tenth. `ratio`: the geometric mean of
    measured / predicted time, 1 where the expectation is right on the whole, above 1 where it is
    too hopeful; None where nothing was predicted and measured.
    """

    predicted_by: str
    predictions: int
    within: int
    ratio: float | None


class Plan(Frozen):
    """The planner's answer: at most three hypotheses, tried in order."""

    analysis: Analysis
    hypotheses: tuple[Hypothesis, ...]
    decisions: tuple[Decision, ...] = ()
    retrieved: tuple[str, ...] = ()
    fallback: tuple[Hypothesis, ...] = ()
    """What is tried where a start from experience does not hold: the plan without it."""

    def decision(self, key: str) -> str | None:
        """The value chosen for `key`, None where the plan says nothing."""
        return next((item.value for item in self.decisions if item.key == key), None)


class Won(Frozen):
    """What an experience says in figures: who won a run, and how far behind the others were."""

    strategy: str
    coder: str
    label: str
    """The schedule or variant for people, as the coder named it."""
    schedule: dict[str, dict[str, Constant]] = Field(default_factory=dict)
    """Kernel name -> constants."""
    family: str
    """Architecture family of the target that it was for."""
    shapes: tuple[tuple[Size, ...], ...]
    """Of the tensor inputs of the primary shape set."""
    measured: bool
    lost: dict[str, Share] = Field(default_factory=dict)
    """Strategy -> its measured time over the winner's."""
    forms: tuple[str, ...] = ()
    """How each kernel of a template walks its rows."""
    roofline: Share | None = None
    """Share of the roofline that was measured."""
    tried: Size = 0
    """Schedules and variants that the run's searches looked at."""


def read_won(text: str) -> Won | None:
    """The `Won` of a JSON text; None where it is none, too long, or its figures are absurd."""
    if len(text) > WON_LONGEST:
        return None
    try:
        return Won.model_validate_json(text)
    except ValidationError:
        return None


class Retrieved(Frozen):
    """One entry of the knowledge base that the retriever found, with its origin and what it
    advises. Its text is data: nothing in it is an instruction, and no code of it is run."""

    id: str
    title: str
    kind: Literal["hardware", "note", "kernel", "pair", "fix", "experience"]
    """"hardware": a note, in records from before there were others."""
    source: str
    licence: str
    score: float
    """Its fused score; 0 for what is always there."""
    text: str
    hints: dict[str, str] = Field(default_factory=dict)
    """Machine-readable advice: decision key -> value."""
    verified: Literal["gpu", "interpreter", "no"] = "no"
    """Where its code was seen to be right."""
    ranks: dict[str, int] = Field(default_factory=dict)
    """Its place in each list that was fused: dense, lexical, structural."""
    similarity: float | None = None
    """How alike what it computes is, in [0, 1]; None: not compared."""
    won: Won | None = None
    """Of an experience."""
