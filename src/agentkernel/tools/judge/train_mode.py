"""Training mode: the candidate computes what the original computes there, or raises.

Batch statistics and the buffers that they update are compared. A candidate that raises is good
for eval mode only; one that silently computes something else is refused. Random modules are
compared by the distribution of their outputs.
"""

from __future__ import annotations

import copy
import dataclasses
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import torch

from agentkernel.domain.verdict import EVAL_ONLY, Failure, Mismatch
from agentkernel.tools.judge.case_runner import CaseRunner
from agentkernel.tools.judge.cases.layouts import copied
from agentkernel.tools.judge.cases.plan import SEED_STEP, Case, NotApplicable
from agentkernel.tools.judge.cases.shapes import CaseShape
from agentkernel.tools.judge.cases.values import Distribution
from agentkernel.tools.judge.comparison.compare import REFUSED, describe
from agentkernel.tools.judge.memory import CaseMemory
from agentkernel.tools.judge.reference.oracle_inputs import ReferenceCase
from agentkernel.tools.judge.replies import is_refusal
from agentkernel.tools.sandbox.protocol import WorkerFailed

if TYPE_CHECKING:
    from torch import nn

AGAIN: tuple[Distribution, ...] = ("large", "normal")
RANDOM = 1e-2
"""Norm-wise: less is rounding that changes from call to call."""
CALLS = 12
SEEDS = (4711, 4711, 815)
"""Of torch's generator, for three calls after those: two that must draw the same, one that must
not."""
FAR = 4.0
"""Deviations past so many times their spread count as this many: few calls know it."""
TOGETHER, LOOSE = 1.5, 1e-3
"""The largest of many correlations may be so many times that of as many of the original's calls."""
SIGMAS = 6.0
"""A statistic of the candidate may be so many standard errors from the original's."""


@dataclass(frozen=True)
class TrainModeResult:
    """What the candidate does in training mode. `failure` is None where that is fine."""

    failure: Failure | None = None
    eval_only: bool = False
    note: str = ""


def judge_training(
    runner: CaseRunner, case: Case, wide: CaseShape | None = None
) -> TrainModeResult:
    """Judge one call in training mode, or several, at the shape `wide`, where the original is
    random there: of few elements nobody can say how they go together."""
    if not runner.fits(case.shape):
        return _judge_large(runner, case)
    plain = runner.oracle_inputs.ask(dataclasses.replace(case, training=False))
    if isinstance(plain, NotApplicable):
        return TrainModeResult()
    try:
        random = is_random(plain.model, plain.inputs)
    except Exception as error:  # noqa: BLE001 - the user's module may raise anything
        return TrainModeResult(
            note=f"training mode not judged: the reference raised {error!r}"[:200]
        )
    del plain  # at large sizes there is no room for both answers
    reference_case = runner.oracle_inputs.ask(case)
    if isinstance(reference_case, NotApplicable):
        return TrainModeResult(note=f"training mode not judged: {reference_case.reason}")
    memory = CaseMemory(runner.worker, reference_case)
    try:
        outcome = runner.ask_candidate(case, reference_case, memory)
        if outcome.refused is not None and is_refusal(outcome.refused):
            return _eval_only(outcome.refused)
        if not random and outcome.failure is not None:
            return TrainModeResult(failure=outcome.failure)
        if outcome.failure is not None and not isinstance(outcome.failure, Mismatch):
            return TrainModeResult(failure=outcome.failure)
        if random and _same_state(reference_case):
            changed = runner.changed(case, reference_case, memory)
            if changed is not None:
                return TrainModeResult(failure=changed)
        if random and (wide is None or wide == case.shape):
            return _judge_random(runner, case, reference_case, memory)
    finally:
        memory.release()
    del reference_case
    if not random:
        return _judge_again(runner, case)
    case = dataclasses.replace(case, shape=wide or case.shape)
    reference_case = runner.oracle_inputs.ask(case)
    if isinstance(reference_case, NotApplicable):
        return TrainModeResult(note=f"training mode not judged: {reference_case.reason}")
    memory = CaseMemory(runner.worker, reference_case)
    try:
        return _judge_random(runner, case, reference_case, memory)
    finally:
        memory.release()


def _judge_again(runner: CaseRunner, case: Case) -> TrainModeResult:
    """A second call, on large values and with other weights: what is kept from the first one
    shows. Where the original takes none, on other plain ones."""
    again = dataclasses.replace(case, seed=case.seed + SEED_STEP)
    for distribution in AGAIN:
        outcome = runner.run(dataclasses.replace(again, distribution=distribution))
        if not isinstance(outcome, NotApplicable):
            return TrainModeResult(failure=outcome.failure)
    return TrainModeResult()


def _judge_large(runner: CaseRunner, case: Case) -> TrainModeResult:
    """Where there is no smaller shape: beside eager in training mode."""
    outcome = runner.run(case)
    if isinstance(outcome, NotApplicable):
        return TrainModeResult(note=f"training mode not judged: {outcome.reason}")
    if outcome.refused is not None and is_refusal(outcome.refused):
        return _eval_only(outcome.refused)
    return TrainModeResult(failure=outcome.failure)


def _eval_only(refused: WorkerFailed) -> TrainModeResult:
    words = " ".join(refused.log.strip().splitlines()[-1:])[:120]
    return TrainModeResult(eval_only=True, note=f"{EVAL_ONLY} {words}")


def is_random(model: nn.Module, inputs: Sequence[object]) -> bool:
    """True where two calls of the reference in training mode differ by more than rounding."""
    one = _outputs(model, inputs, training=True, seed=1)
    other = _outputs(model, inputs, training=True, seed=2)
    return _distance(one, other) > RANDOM


def _same_state(reference_case: ReferenceCase) -> bool:
    """Whether what is drawn leaves no mark on the state dict."""
    count = sum(hasattr(leaf, "numel") for leaf in reference_case.answer.leaves)
    one, other = (
        _outputs(reference_case.model, reference_case.inputs, True, seed)[count:] for seed in (1, 2)
    )
    return _distance(one, other) <= RANDOM


def _outputs(
    model: nn.Module, inputs: Sequence[object], training: bool, seed: int
) -> list[torch.Tensor]:
    """Outputs and state after one call of a copy, the global random numbers left as they were."""
    from torch.utils._pytree import tree_flatten

    given = [copied(item) if isinstance(item, torch.Tensor) else item for item in inputs]
    clone = copy.deepcopy(model).train(training)
    devices = list(range(torch.cuda.device_count())) if torch.cuda.is_available() else []
    with torch.random.fork_rng(devices=devices), torch.no_grad():
        torch.manual_seed(seed)
        leaves, _ = tree_flatten(clone(*given))
    found = [*leaves, *clone.state_dict().values()]
    return [item for item in found if isinstance(item, torch.Tensor)]


def _distance(one: Sequence[torch.Tensor], other: Sequence[torch.Tensor]) -> float:
    """The largest norm-wise distance of two tensors in the same place."""
    largest = 0.0
    for a, b in zip(one, other, strict=True):
        if a.shape != b.shape:
            return math.inf
        size = max(float(a.double().norm()), 1e-30)
        largest = max(largest, float((a.double() - b.double()).norm()) / size)
    return largest


def _judge_random(
    runner: CaseRunner, case: Case, reference_case: ReferenceCase, memory: CaseMemory
) -> TrainModeResult:
    """Means, sizes and shares of zeros over several calls, and how elements of one call and of two
    go together, the candidate's against the original's."""
    every: list[list[torch.Tensor]] = []
    for draws in (*[None] * CALLS, *SEEDS):
        seeded_case = dataclasses.replace(case, draws=draws)
        outcome = runner.ask_candidate(seeded_case, reference_case, memory)
        if outcome.failure is not None and not isinstance(outcome.failure, Mismatch):
            return TrainModeResult(failure=outcome.failure)
        every.append([x.double() for x in memory.results() if x is not None])
    ours, seeded = every[:CALLS], every[CALLS:]
    count = len(ours[0])
    theirs = [
        [
            x.double()
            for x in _outputs(reference_case.model, reference_case.inputs, True, seed)[:count]
        ]
        for seed in range(100, 100 + 3 * CALLS)
    ]
    for index in range(count):
        mine, other = [call[index] for call in ours], [call[index] for call in theirs]
        known, held = other[CALLS:], other[:CALLS]
        wrong = "" if same_distribution(mine, held) else "not the original's distribution"
        wrong = wrong or _goes_together(mine, held, known) or _seeded([x[index] for x in seeded])
        if wrong:
            label = f"{case.label}: {wrong}"
            leaf = cast("torch.Tensor", reference_case.answer.leaves[index])
            found = mine[0].to(leaf.dtype)
            return TrainModeResult(failure=describe(label, index, found, leaf, other[0], REFUSED))
    return TrainModeResult(
        note="training mode is random: judged by the distribution of its outputs"
    )


def _seeded(calls: Sequence[torch.Tensor]) -> str:
    """What is wrong with calls under `SEEDS`; "" where nothing is."""
    one, again, other = ([call] for call in calls)
    if _distance(one, again) > RANDOM:
        return "the same seed of torch's generator gives other draws"
    same = _distance(one, other) <= RANDOM
    return "another seed of torch's generator gives the same draws" if same else ""


def _goes_together(
    mine: Sequence[torch.Tensor], held: Sequence[torch.Tensor], known: Sequence[torch.Tensor]
) -> str:
    """How `mine` tells itself from independent draws; "" where it does not. `held` are as many
    calls of the original, and `known` more of them, from which its means and spreads are."""
    every = torch.stack(list(known))
    mean, spread = every.mean(0).flatten(), every.std(0).flatten()
    if not bool((spread > 0).any()):
        return ""

    def drawn(calls: Sequence[torch.Tensor]) -> torch.Tensor:
        """What is random of each call: deviations in units of their spread, all of norm one."""
        off = (torch.stack(list(calls)).flatten(1) - mean) / spread.clamp(min=1e-300)
        off = torch.where(spread > 0, off, 0.0).clamp(-FAR, FAR)
        norm: torch.Tensor = off.norm(dim=1, keepdim=True)
        return off / norm.clamp(min=1e-300)

    if _repeats(mine) and not _repeats(held):
        return "two calls draw the same"
    usual = _inside(drawn(known))
    one, two = drawn(mine), drawn(held)
    inside = [float((_inside(calls) - usual).abs().max()) for calls in (one, two)]
    if inside[0] > TOGETHER * inside[1] + LOOSE:
        return "elements of one call go together as the original's do not"
    between = [_between(calls) for calls in (one, two)]
    if between[0] > TOGETHER * between[1] + LOOSE:
        return "what is drawn in one call is drawn in another, too, at the same places or others"
    return ""


def _repeats(calls: Sequence[torch.Tensor]) -> bool:
    return any(torch.equal(one, other) for one, other in itertools.combinations(calls, 2))


def _inside(calls: torch.Tensor) -> torch.Tensor:
    """The mean over the calls of how elements at each distance go together (two at the distance of
    none do so always)."""
    spectrum = torch.fft.rfft(calls)
    found: torch.Tensor = torch.fft.irfft(spectrum * spectrum.conj(), n=calls.shape[1]).mean(0)
    found[0] = 0.0
    return found


def _between(calls: torch.Tensor) -> float:
    """How much any two calls go together at any distance, also where one is read backwards."""
    spectrum = torch.fft.rfft(calls)
    largest = 0.0
    for place in range(1, len(calls)):
        rest, one = spectrum[place:], spectrum[place - 1]
        for other in (one, one.conj()):
            found = torch.fft.irfft(rest * other, n=calls.shape[1])
            largest = max(largest, float(found.abs().max()))
    return largest


def same_distribution(mine: Sequence[torch.Tensor], other: Sequence[torch.Tensor]) -> bool:
    """Statistics of several calls each agree within their own spread: mean, mean square, share of
    zeros, and the mean of every element taken over the calls."""
    if not all(bool(item.isfinite().all()) for item in mine):
        return False
    a, b = torch.stack(list(mine)), torch.stack(list(other))
    inner = list(range(1, a.ndim))
    for statistic in (lambda x: x, torch.square, lambda x: (x == 0).double()):
        one, two = statistic(a), statistic(b)
        if inner:
            one, two = one.mean(dim=inner), two.mean(dim=inner)
        spread = math.sqrt(float(one.var() + two.var()) / len(mine)) + 1e-3 * float(
            two.abs().mean()
        )
        if abs(float(one.mean() - two.mean())) > SIGMAS * spread + 1e-6:
            return False
    error = (a.mean(0) - b.mean(0)).abs()
    spread_each = ((a.var(0) + b.var(0)) / len(mine)).sqrt()
    loose = SIGMAS * spread_each + 3 * float(b.std()) / math.sqrt(len(mine))
    return float((error > loose).double().mean()) < 0.01
