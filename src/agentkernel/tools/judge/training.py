"""What does a candidate do in training mode, where the original may compute something else?

It may compute what the original computes, batch statistics and the buffers that they update
included; it may raise, and is then good for eval mode only; silently something else is refused.
Random modules are compared by the distribution of their outputs.
"""

from __future__ import annotations

import copy
import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from agentkernel.domain.verdict import Failure, Mismatch
from agentkernel.tools.judge.cases import Case
from agentkernel.tools.judge.compare import REFUSED, describe
from agentkernel.tools.judge.memory import Memory
from agentkernel.tools.judge.question import NotApplicable, Question
from agentkernel.tools.judge.trial import Trial, is_refusal
from agentkernel.tools.sandbox.session import WorkerFailed

if TYPE_CHECKING:
    import torch
    from torch import nn

RANDOM = 1e-2
"""Norm-wise: less is rounding that changes from call to call."""
CALLS = 12
SIGMAS = 6.0
"""A statistic of the candidate may be so many standard errors from the original's."""


@dataclass(frozen=True)
class Training:
    """What the candidate does in training mode. `failure` is None where that is fine."""

    failure: Failure | None = None
    eval_only: bool = False
    note: str = ""


def judge_training(trial: Trial, case: Case) -> Training:
    """Judge one call in training mode, or several where the original is random there."""
    if not trial.fits(case.shape):
        return _judge_large(trial, case)
    plain = trial.asker.ask(dataclasses.replace(case, training=False))
    if isinstance(plain, NotApplicable):
        return Training()
    try:
        random = is_random(plain.model, plain.inputs)
    except Exception as error:  # noqa: BLE001 - the user's module may raise anything
        return Training(note=f"training mode not judged: the reference raised {error!r}"[:200])
    question = trial.asker.ask(case)
    if isinstance(question, NotApplicable):
        return Training(note=f"training mode not judged: {question.reason}")
    memory = Memory(trial.worker, question)
    try:
        outcome = trial.ask_candidate(case, question, memory)
        if outcome.refused is not None and is_refusal(outcome.refused):
            return _eval_only(outcome.refused)
        if not random:
            return Training(failure=outcome.failure)
        if outcome.failure is not None and not isinstance(outcome.failure, Mismatch):
            return Training(failure=outcome.failure)
        return _judge_random(trial, case, question, memory)
    finally:
        memory.release()


def _judge_large(trial: Trial, case: Case) -> Training:
    """Where there is no smaller shape: beside eager in training mode."""
    outcome = trial.run(case)
    if isinstance(outcome, NotApplicable):
        return Training(note=f"training mode not judged: {outcome.reason}")
    if outcome.refused is not None and is_refusal(outcome.refused):
        return _eval_only(outcome.refused)
    return Training(failure=outcome.failure)


def _eval_only(refused: WorkerFailed) -> Training:
    words = " ".join(refused.log.strip().splitlines()[-1:])[:120]
    return Training(eval_only=True, note=f"eval mode only: in training it raises {words}")


def is_random(model: nn.Module, inputs: Sequence[object]) -> bool:
    """True where two calls of the reference in training mode differ by more than rounding."""
    one = _outputs(model, inputs, training=True, seed=1)
    other = _outputs(model, inputs, training=True, seed=2)
    return _distance(one, other) > RANDOM


def _outputs(
    model: nn.Module, inputs: Sequence[object], training: bool, seed: int
) -> list[torch.Tensor]:
    """Outputs and state after one call of a copy, the global random numbers left as they were."""
    import torch
    from torch.utils._pytree import tree_flatten

    from agentkernel.tools.judge.layouts import copied

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


def _judge_random(trial: Trial, case: Case, question: Question, memory: Memory) -> Training:
    """Means, sizes and shares of zeros over several calls, the candidate's against the original's;
    two calls must not give the same."""
    import torch

    ours: list[list[torch.Tensor]] = []
    for _ in range(CALLS):
        outcome = trial.ask_candidate(case, question, memory)
        if outcome.failure is not None and not isinstance(outcome.failure, Mismatch):
            return Training(failure=outcome.failure)
        ours.append([x.double() for x in memory.results() if x is not None])
    count = len(ours[0])
    theirs = [
        [x.double() for x in _outputs(question.model, question.inputs, True, seed)[:count]]
        for seed in range(100, 100 + CALLS)
    ]
    for index in range(count):
        mine, other = [call[index] for call in ours], [call[index] for call in theirs]
        frozen = torch.equal(mine[0], mine[1]) and not torch.equal(other[0], other[1])
        if frozen or not same_distribution(mine, other):
            label = f"{case.label}: not the original's distribution"
            leaf = cast("torch.Tensor", question.answer.leaves[index])
            oracle = other[0]
            found = mine[0].to(leaf.dtype)
            return Training(failure=describe(label, index, found, leaf, oracle, REFUSED))
    return Training(note="training mode is random: judged by the distribution of its outputs")


def same_distribution(mine: Sequence[torch.Tensor], other: Sequence[torch.Tensor]) -> bool:
    """Statistics of several calls each agree within their own spread: mean, mean square, share of
    zeros, and the mean of every element taken over the calls."""
    import torch

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
