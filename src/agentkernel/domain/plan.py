"""What does the planner expect to gain, how, and on whose word?"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from agentkernel.domain.base import Frozen

RooflineClass = Literal["memory", "compute", "latency", "mixed"]


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

    def decision(self, key: str) -> str | None:
        """The value chosen for `key`, None where the plan says nothing."""
        return next((item.value for item in self.decisions if item.key == key), None)


class Retrieved(Frozen):
    """One document that the retriever found, with its origin and what it advises."""

    id: str
    title: str
    kind: Literal["hardware", "kernel"]
    source: str
    licence: str
    score: float
    text: str
    hints: dict[str, str] = Field(default_factory=dict)
    """Machine-readable advice: decision key -> value."""
