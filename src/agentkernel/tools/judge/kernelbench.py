"""KernelBench's own rule: close to eager by torch.allclose, over five seeds.

Inputs are the problem's own, weights the initial ones, shapes the declared ones (scaled down in
the interpreter as other cases are), in eval mode. Source: Ouyang et al., arXiv 2502.10517. The
result is reported beside the verdict and decides nothing.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

import torch

from agentkernel.domain.errors import one_line
from agentkernel.tools.judge.case_runner import CaseRunner
from agentkernel.tools.judge.cases.layouts import copied
from agentkernel.tools.judge.cases.plan import SEED_STEP, Case, NotApplicable
from agentkernel.tools.judge.cases.shapes import CaseShape
from agentkernel.tools.judge.memory import CaseMemory
from agentkernel.tools.judge.reference.oracle import Answer, PerturbedOracle
from agentkernel.tools.judge.reference.oracle_inputs import ReferenceCase
from agentkernel.tools.problem.loading import LoadedProblem
from agentkernel.tools.sandbox.protocol import WorkerFailed

if TYPE_CHECKING:
    from torch import nn

    from agentkernel.tools.sandbox.protocol import JSON

SEEDS = 5
TOLERANCE = 1e-4
"""Relative and absolute."""


def allclose_cases(plan: Sequence[Case], seed: int) -> list[Case]:
    """Five seeds at each declared shape that the plan of a judgement has."""
    shapes: dict[str, CaseShape] = {
        case.shape.label: case.shape for case in plan if case.shape.origin != "odd"
    }
    return [
        Case(shape, "own", seed + number * SEED_STEP)
        for shape in shapes.values()
        for number in range(SEEDS)
    ]


def passes_allclose(
    runner: CaseRunner, loaded: LoadedProblem, case: Case, notes: list[str]
) -> bool | None:
    """True where the candidate is close in `case`. None, with a note, where the reference itself
    does not take it: that is not the candidate's fault."""
    reference_case = _question(runner, loaded, case)
    if isinstance(reference_case, NotApplicable):
        notes.append(f"KernelBench's rule not asked: {reference_case.reason}")
        return None
    try:
        memory = CaseMemory(runner.worker, reference_case)
    except torch.OutOfMemoryError as error:
        torch.cuda.empty_cache()
        notes.append(f"KernelBench's rule not asked: {one_line(error, 200)}")
        return None
    try:
        reply = runner.call(case, reference_case, memory)
        return not isinstance(reply, WorkerFailed) and _close(reference_case, memory, reply)
    finally:
        memory.release()


def _question(
    runner: CaseRunner, loaded: LoadedProblem, case: Case
) -> ReferenceCase | NotApplicable:
    """Inputs, and eager's answer to them; a scaled shape's inputs are drawn from the problem's."""
    shape = case.shape
    try:
        if shape.origin == "declared":
            device = runner.oracle_inputs.device
            inputs = list(loaded.make_inputs(shape.index, seed=case.seed, device=device))
        else:
            drawn = runner.oracle_inputs.ask(case)
            if isinstance(drawn, NotApplicable):
                return drawn
            inputs = drawn.inputs
        return ReferenceCase(
            inputs, runner.oracle_inputs.base, _eager(runner.oracle_inputs.base, inputs)
        )
    except torch.OutOfMemoryError as error:
        torch.cuda.empty_cache()
        return NotApplicable(f"out of memory: {one_line(error, 200)}", out_of_memory=True)
    except Exception as error:  # noqa: BLE001 - the user's module may raise anything
        return NotApplicable(f"the reference raised {one_line(error, 200)}", raised=True)


def _eager(model: nn.Module, inputs: Sequence[object]) -> Answer:
    """Eager's outputs alone: this rule knows no oracle."""
    from torch.utils._pytree import tree_flatten

    given = [copied(item) if isinstance(item, torch.Tensor) else item for item in inputs]
    with torch.no_grad():
        leaves, spec = tree_flatten(copy.deepcopy(model).eval()(*given))
    nothing: list[torch.Tensor | None] = [None] * len(leaves)
    return Answer(
        leaves=[item.clone() if isinstance(item, torch.Tensor) else item for item in leaves],
        spec=spec,
        oracle=nothing,
        aliases=(),
        inputs_after=given,
        wrote_inputs=frozenset(),
        state_after={},
        wrote_state=frozenset(),
        state_oracle={},
        perturbed=PerturbedOracle(model, inputs, training=False),
        exact=nothing,
        strides_elsewhere=lambda: [None] * len(leaves),
        no_oracle=True,
    )


def _close(reference_case: ReferenceCase, memory: CaseMemory, reply: dict[str, JSON]) -> bool:
    """Every output has eager's shape and dtype, and its values but for the tolerance."""
    outputs = reply.get("outputs")
    leaves = reference_case.answer.leaves
    if not isinstance(outputs, list) or len(outputs) != len(leaves):
        return False
    for leaf, described, value in zip(leaves, outputs, memory.found(), strict=True):
        theirs = described if isinstance(described, dict) else {}
        if not isinstance(leaf, torch.Tensor):
            if theirs.get("literal") != repr(leaf):
                return False
            continue
        dtype = str(leaf.dtype).removeprefix("torch.")
        if theirs.get("shape") != list(leaf.shape) or theirs.get("dtype") != dtype:
            return False
        if not torch.allclose(cast("torch.Tensor", value), leaf, rtol=TOLERANCE, atol=TOLERANCE):
            return False
    return True
