"""The ways to cut one graph into kernels and library calls that are worth trying."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, TypeGuard

import torch
from torch import fx

from agentkernel.compiler.attention import find_steps
from agentkernel.compiler.attention_match import ATTENTION_OP
from agentkernel.compiler.convolutions.statistics import StatisticsStep
from agentkernel.compiler.convolutions.step import ConvolutionStep, geometry_of
from agentkernel.compiler.drop_in.constructor import ConstructorText, emit_constructor
from agentkernel.compiler.drop_in.envelope import adopt_limits, refused_set
from agentkernel.compiler.drop_in.interface import returned_classes, returned_text
from agentkernel.compiler.drop_in.views import with_output_views
from agentkernel.compiler.fusion import LibraryStep
from agentkernel.compiler.ir import UnsupportedOp
from agentkernel.compiler.lowering.convolutions import MOST_TAPS, MOVABLE, lies_apart
from agentkernel.compiler.pipeline import Compiled, at_declared_sizes, compile_graph
from agentkernel.compiler.products.joined import JoinedStep
from agentkernel.compiler.products.pairs import PairStep
from agentkernel.compiler.products.row_parts import RowPartsStep
from agentkernel.compiler.products.step import ProductStep
from agentkernel.compiler.providers import provider_of
from agentkernel.compiler.providers.library import FUNCTIONS, refusal
from agentkernel.compiler.providers.linear import LinearStep
from agentkernel.compiler.recurrence import RecurrenceStep
from agentkernel.compiler.rewrite.columns import with_columns_apart
from agentkernel.compiler.rewrite.places import with_places_together
from agentkernel.compiler.segments import Segment, segments_of
from agentkernel.domain.candidate import OF_CONSTRUCTOR, NoTemplate
from agentkernel.domain.verdict import Policy, Precision
from agentkernel.tools.problem.capture import Captured
from agentkernel.tools.problem.composite_operators import RECURRENT_CALLS
from agentkernel.tools.problem.loading import LoadedProblem


@dataclass(frozen=True)
class Coverage:
    """The segments of a graph: templates that cover it, in execution order, and ATen calls left to
    the library, or what stops the coder."""

    segments: tuple[Segment, ...] = ()
    obstacle: str = ""

    @property
    def patterns(self) -> tuple[str, ...]:
        """The templates."""
        return tuple(item.pattern for item in self.segments if item.own)

    @property
    def uncovered(self) -> tuple[str, ...]:
        """The calls, or the one obstacle."""
        calls = tuple(item.pattern for item in self.segments if not item.own)
        return (self.obstacle,) if self.obstacle else calls


def partitions(
    problem: LoadedProblem, captured: Captured, policy: Policy, precision: Precision = "strict"
) -> list[Compiled]:
    """The partitions worth trying: products as our own GEMM, or left to the library; attention as
    one kernel, then as it is written out. Where the graph with free sizes has none, those of the
    graph at its declared sizes. Raises UnsupportedOp where that has none either, or where the graph
    does not hold for one of several declared shape sets. Each graph is cut once."""
    # Kept on the value itself, as functools.cached_property does: a changed copy starts anew, and
    # nothing outlives the graph.
    known: dict[tuple[int, Policy, Precision], _Answer] = vars(captured).setdefault("_cuts", {})
    key = (id(problem), policy, precision)
    if key not in known:
        try:
            known[key] = _Answer(problem, tuple(_any_sizes(problem, captured, policy, precision)))
        except UnsupportedOp as error:
            known[key] = _Answer(problem, (), (error.op, error.reason))
    answer = known[key]
    if answer.refusal is not None:
        raise UnsupportedOp(*answer.refusal)
    return list(answer.found)


class _Answer(NamedTuple):
    """The partitions of a graph of `problem`, or the operator that has none and why."""

    problem: LoadedProblem
    found: tuple[Compiled, ...]
    refusal: tuple[str, str] | None = None


def _any_sizes(
    problem: LoadedProblem, captured: Captured, policy: Policy, precision: Precision
) -> list[Compiled]:
    """Those of free sizes; those of the declared ones where there are none, or where calls that
    known sizes would spare take much of the time."""
    if refused := refused_set(problem, captured):
        raise UnsupportedOp(refused, "give that set to a run of its own")
    settled = bool(captured.free_dims) and len(problem.problem.shape_sets) == 1
    try:
        found = _partitions(problem, captured, policy, precision)
    except UnsupportedOp:
        fixed = at_declared_sizes(captured) if settled else None
        if fixed is None:
            raise
        return _partitions(problem, fixed, policy, precision)
    fixed = at_declared_sizes(captured) if settled and _much_in_calls(found[0]) else None
    if fixed is None:
        return found
    try:
        known = _partitions(problem, fixed, policy, precision)
    except UnsupportedOp:
        return found
    return known if len(_plain_calls(known[0])) < len(_plain_calls(found[0])) else found


def _plain_calls(compiled: Compiled) -> list[LibraryStep]:
    """The library calls that are neither products, convolutions nor attention."""
    calls = [step for step in compiled.partition.steps if isinstance(step, LibraryStep)]
    usual = ("product", ATTENTION_OP, *FUNCTIONS)
    return [step for step in calls if step.node.op not in usual]


WORTH_FIXING_US = 4.0
"""Time in such calls for which sizes are not fixed: they are launches, whatever they do."""


def _much_in_calls(compiled: Compiled) -> bool:
    """Whether such calls take at least a quarter of the time, and more than launches."""
    calls = _plain_calls(compiled)
    calls_us = sum(provider_of(step).work_us(step, compiled.symbols) for step in calls)
    return calls_us > WORTH_FIXING_US and 4 * calls_us >= _estimated_us(compiled)


def _partitions(
    problem: LoadedProblem, captured: Captured, policy: Policy, precision: Precision
) -> list[Compiled]:
    returned_text(captured.output_tree, itertools.repeat("_"))
    captured = with_output_views(problem, captured)
    together = with_places_together(captured)
    if together is not captured:
        adopt_limits(problem, captured, together)
        captured = together
    constructor = emit_constructor(problem, returned_classes(captured.output_tree))
    if isinstance(constructor, NoTemplate):
        raise UnsupportedOp("constructor", constructor.reason)
    if constructor.obstacle:
        raise UnsupportedOp("constructor", constructor.obstacle)
    plain = compile_graph(problem, captured, constructor, precision)
    choices = _with_convolutions(plain, policy) + _with_products(plain, policy)
    apart = with_columns_apart(captured)
    if apart is not None:
        adopt_limits(problem, captured, apart)
        parts = compile_graph(problem, apart, constructor, precision)
        choices = _beside(choices, [*parts.own_products().joined_products()])
    if any(op.removeprefix("aten.") in MOVABLE for op in _library(plain)):
        last = compile_graph(
            problem, captured, constructor, precision, convolutions="channels_last"
        )
        choices += _with_products(last, policy)[:1]
    if any(map(_lies_apart, plain.partition.steps)):
        products = compile_graph(problem, captured, constructor, precision, convolutions="products")
        rivals = _with_products(products.own_convolutions(), policy)
        choices = _beside(choices, rivals)
    if any(map(written_out, plain.partition.steps)):
        sums = compile_graph(problem, captured, constructor, precision, convolutions="written_out")
        choices = (_with_convolutions(sums, policy) or _with_products(sums, policy)[:1]) + choices
    if any(op in RECURRENT_CALLS for op in _library(plain)):
        steps = compile_graph(problem, captured, constructor, precision, stepped=True)
        choices = _with_products(steps, policy)[:1] + choices
    if find_steps(plain.partition.steps):
        choices += _written_out(problem, captured, constructor, precision, policy)
    kept = [item for item in choices if allowed(item, policy)]
    if not kept:
        library = [*_library(choices[-1]), "graph"]
        reason = (
            "policy 'triton' allows no library call"
            if policy == "triton"
            else "nothing to fuse around library calls"
        )
        raise UnsupportedOp(library[0], reason)
    return kept


def _lies_apart(step: object) -> bool:
    """Whether a step is a convolution that has a form as a product."""
    call = step.node.attrs[0] if isinstance(step, LibraryStep) and step.node.attrs else None
    return isinstance(call, fx.Node) and lies_apart(call) is not None


CLOSE = 1.1
"""Ratio of estimates within which they do not tell which of two is faster."""


def _beside(choices: list[Compiled], rivals: list[Compiled]) -> list[Compiled]:
    """Rivals that are estimated to be faster than the first of `choices` before these, and those
    that may be so behind them."""
    us = {item: _estimated_us(item) for item in (choices[0], *rivals)}
    ordered, known = sorted(rivals, key=lambda item: us[item]), us[choices[0]]
    faster = [item for item in ordered if us[item] * CLOSE < known]
    level = [item for item in ordered if known <= us[item] * CLOSE and us[item] < known * CLOSE]
    return [*faster, *choices, *level]


def _estimated_us(compiled: Compiled) -> float:
    """About what all steps take, one after the other."""
    return sum(
        provider_of(step).work_us(step, compiled.symbols) for step in compiled.partition.steps
    )


def _with_convolutions(plain: Compiled, policy: Policy) -> list[Compiled]:
    """Convolutions as kernels of our own, where ours do one; those that gather the statistics of
    norms behind them before or beside the others, by the estimate."""
    own = plain.own_convolutions()
    if not any(isinstance(step, ConvolutionStep) for step in own.partition.steps):
        return []
    found = _with_products(own, policy)[:1]
    gathered = plain.convolution_statistics()
    if gathered is plain:
        return found
    return _beside(found, _with_products(gathered.own_convolutions(), policy)[:1])


def written_out(step: object) -> bool:
    """Whether a step is a convolution that has a form as a sum of shifted reads."""
    if not isinstance(step, LibraryStep):
        return False
    shape = geometry_of(step.node)
    return shape is not None and shape.is_depthwise and shape.taps <= MOST_TAPS


def _with_products(plain: Compiled, policy: Policy) -> list[Compiled]:
    """Own GEMM first for fp32, where it is as accurate and faster, and where it need not store a
    product; else the library's first for half. Last our own where products of one matrix share a
    launch."""
    products = [step.node for step in plain.partition.steps if _is_product(step)]
    if not products:
        return [plain]
    own, library = plain.own_products(), plain.library_products()
    first = all(node.dtype == torch.float32 for node in products)
    first |= any(isinstance(step, RowPartsStep) for step in own.partition.steps)
    choices = [own, library] if first or policy == "triton" else [library, own]
    return [*choices, *own.joined_products()]


def _written_out(
    problem: LoadedProblem, captured: Captured, constructor: ConstructorText,
    precision: Precision, policy: Policy,
) -> list[Compiled]:  # fmt: skip
    """The rival of fused attention: its products and its softmax apart, where they have a form."""
    try:
        plain = compile_graph(problem, captured, constructor, precision, attention=False)
    except UnsupportedOp:
        return []
    rivals = _with_products(plain, policy)[:1]
    return [item for item in rivals if writable(item)]


def allowed(compiled: Compiled, policy: Policy) -> bool:
    """Whether `policy` lets a drop-in have these steps: one kernel of ours at least, and under
    "triton" nothing else."""
    steps = compiled.partition.steps
    own = [provider_of(step).own for step in steps]
    return all(own) if policy == "triton" else any(own)


def _is_product(step: object) -> TypeGuard[LibraryStep]:
    return isinstance(step, LibraryStep) and step.node.op == "product"


def split_rival(best: Compiled, policy: Policy) -> Compiled | None:
    """A slow rival of `best`: right, with a value in memory between the halves of the graph. None
    where `policy` does not allow it. Raises UnsupportedOp."""
    plain = compile_graph(
        best.loaded, best.captured, best.constructor, best.precision, attention=False, halved=True
    )
    found = _with_products(plain, policy)[0]
    return found if allowed(found, policy) else None


def writable(compiled: Compiled) -> bool:
    """True where every step left to the library is a call that a drop-in may make."""
    calls = [step.node for step in compiled.partition.steps if isinstance(step, LibraryStep)]
    return all(refusal(node) is None for node in calls)


def structure(compiled: Compiled) -> str:
    """What tells the partitions of one graph apart: who multiplies its matrices."""
    steps = compiled.partition.steps
    if find_steps(steps):
        return "attention"
    if any(isinstance(step, ConvolutionStep | StatisticsStep) for step in steps):
        return "convolution"
    if any(isinstance(step, RecurrenceStep) for step in steps):
        return "recurrence"
    if any(isinstance(step, ProductStep | PairStep | JoinedStep | RowPartsStep) for step in steps):
        return "gemm"
    calls = any(_is_product(step) or isinstance(step, LinearStep) for step in steps)
    return "library" if calls else "fused"


def coverage(problem: LoadedProblem, captured: Captured) -> Coverage:
    """What the templates cover, and what stays with the library or stops the coder."""
    try:
        return Coverage(segments_of(partitions(problem, captured, "mixed")[0]))
    except UnsupportedOp as error:
        if error.op != "constructor":
            return Coverage(obstacle=error.op)
        words = OF_CONSTRUCTOR if problem.live is None else "this module: "
        return Coverage(obstacle=f"{words}{error.reason}")


def _library(compiled: Compiled) -> Iterator[str]:
    for step in compiled.partition.steps:
        if not provider_of(step).own:
            yield provider_of(step).pattern(step)
