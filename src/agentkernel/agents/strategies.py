"""Strategies of the embedded compiler that are worth trying for a captured graph."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from agentkernel.agents.compiler_coder import (
    ALGEBRA,
    LIFTED,
    LIFTED_ALGEBRA,
    REASONS,
    CompilerCoder,
    simplified,
    variants,
)
from agentkernel.compiler.graph_listing import algebra_of
from agentkernel.compiler.ir import UnsupportedOp
from agentkernel.compiler.partitions import partitions, structure, writable
from agentkernel.compiler.pipeline import Compiled
from agentkernel.compiler.rewrite import DEAD
from agentkernel.domain.plan import Hypothesis
from agentkernel.tools.problem.capture import Captured
from agentkernel.tools.problem.loading import LoadedProblem
from agentkernel.tools.problem.specialise import UnknownSize, specialise
from agentkernel.tools.targets import find_target

INTERPRETED_ELEMENTS = 1_000_000
"""A graph with more elements in all its tensors is not judged in the interpreter at its own sizes
within minutes."""

SEGMENTS = "segments"
"""The strategy that takes every structure: who serves a segment is measured."""
SEGMENTS_REASON = "each segment by whoever is fastest at it alone: kernels of ours or the library"
PROBE_TARGET = "h200"
"""The file that shows whether a structure can be written is written for this one."""


def hypotheses(
    problem: LoadedProblem,
    captured: Captured,
    *,
    lifting: bool = False,
    measurable: bool = False,
) -> tuple[Hypothesis, ...]:
    """The structures worth trying, the likeliest first; the same graph gives the same answer.

    Each is one broad search over forms and schedules. Templates hold for other sizes too, so they
    come first; where they can be timed, one search chooses the structure segment by segment.
    `lifting`: TorchInductor can be asked. Its code is a rival where it can be `measurable`, and
    the only one to ask for where no template covers the graph.
    """
    rewritten, names = _algebraic(problem, captured), _structures(problem, captured)
    written = tuple(Hypothesis(strategy=name, reason=REASONS[name]) for name in names)
    if measurable and len(written) > 1:
        written = (Hypothesis(strategy=SEGMENTS, reason=SEGMENTS_REASON),)
    alone = not written and element_count(captured) <= INTERPRETED_ELEMENTS
    single = len(problem.problem.shape_sets) == 1
    if not (lifting and single and (measurable or alone)):
        return tuple(item for item in rewritten if item.strategy == ALGEBRA) + written
    return (*rewritten, *written, Hypothesis(strategy=LIFTED, reason=REASONS[LIFTED]))


def element_count(captured: Captured) -> float:
    """Elements of all tensors that the graph reads or makes, at the declared sizes; infinitely many
    where no declared size says how many."""
    try:
        values = [node.meta.get("val") for node in specialise(captured).graph.graph.nodes]
    except UnknownSize:
        return math.inf
    return sum(value.numel() for value in values if isinstance(value, torch.Tensor))


def _structures(problem: LoadedProblem, captured: Captured) -> list[str]:
    try:
        choices = partitions(problem, captured, "mixed")
    except UnsupportedOp:
        return []
    held: dict[str, bool] = {}
    for item in choices:
        held[structure(item)] = held.get(structure(item), True) and can_draft(item)
    return [name for name, whole in held.items() if whole]


def can_draft(compiled: Compiled) -> bool:
    """True where the first schedules give a file: some steps show only there that they have no
    form. Which ones do does not hang on the target."""
    if not writable(compiled):
        return False
    try:
        next(variants(compiled, lambda _: None, find_target(PROBE_TARGET).target, 1))
    except UnsupportedOp:
        return False
    return True


def _algebraic(problem: LoadedProblem, captured: Captured) -> tuple[Hypothesis, ...]:
    """The rewritten graph as hypotheses of its own, by templates where they cover it and lifted:
    the judge may refuse its rounding, and then the graph as it was written is next."""
    try:
        found = simplified(problem, captured)
    except UnsupportedOp:
        return ()
    lines = dict.fromkeys(step.derivation for step in found.steps if step.rule != DEAD)
    reason = "; ".join(lines)
    covered = bool(_structures(problem, found.captured))
    names = (ALGEBRA, LIFTED_ALGEBRA) if covered else (LIFTED_ALGEBRA,)
    algebra = algebra_of(found)
    return tuple(Hypothesis(strategy=name, reason=reason, algebra=algebra) for name in names)


def prefetch_inductor(
    coder: CompilerCoder,
    problem: LoadedProblem,
    captured: Captured,
    offered: Sequence[Hypothesis],
) -> None:
    """Let TorchInductor begin with what will be drafted from its code, rewritten graphs first; the
    coder drafts from this very graph."""
    coder.adopt(problem, captured)
    strategies = {item.strategy for item in offered}
    if coder.writer is not None and LIFTED_ALGEBRA in strategies:
        coder.writer.begin(simplified(problem, captured).captured)
    if coder.writer is not None and LIFTED in strategies:
        coder.writer.begin(captured)
