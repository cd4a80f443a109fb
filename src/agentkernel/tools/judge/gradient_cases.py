"""Gradients of a judgement: the sizes and the ways in which they are asked."""

from __future__ import annotations

import dataclasses
import random
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from agentkernel.domain.verdict import Failure, RunFailed
from agentkernel.storage.source_text import parse_source
from agentkernel.tools.judge.case_runner import CaseRunner
from agentkernel.tools.judge.cases.plan import Case
from agentkernel.tools.judge.cases.selection import INTERPRETED_ODD_ELEMENTS, with_other_scalars
from agentkernel.tools.judge.cases.shapes import CaseShape, count_elements, past_tile, replace_sizes
from agentkernel.tools.judge.execution.proof import check_trace, drain_trace
from agentkernel.tools.judge.findings import Findings
from agentkernel.tools.judge.gradients import (
    LONG,
    SMALL,
    WIDE,
    GradientResult,
    declares_gradients,
    judge_gradients,
)
from agentkernel.tools.judge.policy.kernel_source import large_numbers
from agentkernel.tools.judge.settings import JudgeSettings, on_device
from agentkernel.tools.judge.worker.gradients import BackwardPass
from agentkernel.tools.problem.loading import LoadedProblem

if TYPE_CHECKING:
    from agentkernel.tools.problem.capture import Captured


GRADIENT_ELEMENTS = 1 << 12
LONGEST = 1 << 14
"""Up to so large a number of a file gradients are asked past it."""
WIDE_ELEMENTS, WIDE_S = 1 << 14, 30.0
"""The wide pass has at most so many elements as would take so long at the rate of the first one, of
which most is not the kernels' own time, and may always have the former."""


def judge_all_gradients(
    runner: CaseRunner,
    plan: Sequence[Case],
    source: str,
    settings: JudgeSettings,
    findings: Findings,
    captured: Captured,
) -> Failure | None:
    """Of a file that declares a backward pass, at the smallest shape of `GRADIENT_ELEMENTS` (the
    declared one may leave no room for what a backward pass keeps) in several ways, at the largest
    one that fits, and past the file's own numbers. Between two of them others may time."""
    if not declares_gradients(source):
        return None
    wrong = _check_calls_before(runner, settings)
    if wrong is not None:
        return wrong
    required = [case.shape for case in plan if case.required]
    shapes = [case.shape for case in plan if case.shape.elements >= GRADIENT_ELEMENTS]
    small, sure = (min(found, key=lambda x: x.elements) for found in (shapes or required, required))
    for shape in dict.fromkeys((small, sure)):
        began = time.monotonic()
        judged = _differentiated(runner, shape, SMALL[0], source, settings, findings)
        if judged.asked:
            small = shape
            break
    findings.gradients = judged.kept
    rate = shape.elements / max(time.monotonic() - began, 1e-3)
    room = max(WIDE_ELEMENTS, int(rate * WIDE_S))
    wide = _much_wider(runner.loaded, captured, min(INTERPRETED_ODD_ELEMENTS, room))
    wide = wide or max(required, key=lambda x: x.elements)
    wide = wide if runner.differentiates(wide) else sure
    ways = [*((small, way) for way in SMALL[1:]), *((wide, way) for way in WIDE)]
    if judged.kept:
        long = _past_numbers(runner.loaded, captured, source, [small, wide])
        ways += [(long, LONG)] if long is not None and runner.differentiates(long) else []
    for shape, way in ways:
        if judged.failure is not None or not findings.gradients:
            break
        if not (way.training and findings.eval_only):
            judged = _differentiated(runner, shape, way, source, settings, findings)
    return judged.failure


def _check_calls_before(runner: CaseRunner, settings: JudgeSettings) -> Failure | None:
    """Of the calls since the trace was last read, in training mode for the most part, each against
    what the original calls at its own sizes: those that are differentiated have others."""
    with on_device(settings):
        seen = drain_trace(runner.worker, settings)
    if isinstance(seen, RunFailed):
        return seen
    asked = runner.asked[len(runner.asked) - len(seen.calls) :]
    labels = ["before gradients were asked"] * len(seen.calls)
    return check_trace(seen, settings.policy, labels, asked)


def _past_numbers(
    loaded: LoadedProblem, captured: Captured, source: str, asked: Sequence[CaseShape]
) -> CaseShape | None:
    """A set of which the last free size is past the numbers of the file, which may bound what its
    backward pass does; None where that is asked anyway, or takes too many elements."""
    numbers = large_numbers(parse_source(source), 1, LONGEST)
    first = loaded.problem.shape_sets[0]
    most = INTERPRETED_ODD_ELEMENTS
    return past_tile(first, captured, most, numbers[-1], asked) if numbers else None


def _much_wider(loaded: LoadedProblem, captured: Captured, most: int) -> CaseShape | None:
    """The declared sizes but for one, the last that is free to grow to `most` elements; None where
    none is."""
    first = loaded.problem.shape_sets[0]
    declared = {item.symbol: item.size for item in captured.free_dims}
    more = most // max(1, count_elements(first))
    for name in reversed(declared) if more > 1 else ():
        sizes = declared | {name: more * declared[name]}
        grown = replace_sizes(first, captured.free_dims, sizes)
        if captured.admits(sizes) and count_elements(grown) <= most:
            return CaseShape(grown, "odd", 0)
    return None


def _differentiated(
    runner: CaseRunner,
    shape: CaseShape,
    way: BackwardPass,
    source: str,
    settings: JudgeSettings,
    findings: Findings,
) -> GradientResult:
    case = Case(shape, "normal", settings.seed + 8, gradients=True)
    others = list(with_other_scalars(shape.inputs)) if way.scalars else []
    if others:
        drawn = random.Random(settings.seed).choice(others)
        other = dataclasses.replace(case, shape=dataclasses.replace(shape, inputs=drawn))
        with on_device(settings):
            judged = judge_gradients(runner, other, source, way, settings.policy)
        if judged.kept or judged.failure is not None:
            return judged
    with on_device(settings):
        judged = judge_gradients(runner, case, source, way._replace(scalars=False), settings.policy)
    findings.notes += [judged.note] if judged.note else []
    return judged
