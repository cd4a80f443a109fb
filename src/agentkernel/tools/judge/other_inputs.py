"""Inputs and conditions beyond the declared ones: the candidate is right there, or raises.

Covered are other sizes (neighbours of the declared ones, zero, past the tiles and numbers of the
source), other values of scalar arguments, indices below zero and past the end, one tensor for
two inputs, another default dtype, calls after calls that raised, and the other methods of the
original. A wrong answer at such inputs is refused, because its user would not see the
difference.
"""

from __future__ import annotations

import copy
import dataclasses
import inspect
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import torch

from agentkernel.domain.verdict import Failure, RunFailed
from agentkernel.runtime.machine import release_cached_memory
from agentkernel.tools.judge.case_runner import CaseRunner
from agentkernel.tools.judge.cases.edge_inputs import Edge, with_edge
from agentkernel.tools.judge.cases.layouts import copied
from agentkernel.tools.judge.cases.plan import Case, NotApplicable
from agentkernel.tools.judge.cases.shapes import (
    capture_covers,
)
from agentkernel.tools.judge.cases.values import tensors_of
from agentkernel.tools.judge.comparison.compare import CaseOutcome, OutputValues, compare_output
from agentkernel.tools.judge.memory import CaseMemory
from agentkernel.tools.judge.reference.oracle import leaves_of
from agentkernel.tools.judge.reference.oracle_inputs import ReferenceCase
from agentkernel.tools.judge.replies import is_not_built, is_refusal
from agentkernel.tools.sandbox.protocol import WorkerFailed

if TYPE_CHECKING:
    from torch import nn

    from agentkernel.tools.problem.capture import Captured


class OtherInputsResult(NamedTuple):
    """`failure`: a wrong answer, or a worse end than raising. `tried`: calls that were asked, of
    which it `refused` so many."""

    failure: Failure | None
    tried: int
    refused: int = 0


def judge_other_shapes(
    runner: CaseRunner, captured: Captured | None, cases: Sequence[Case]
) -> OtherInputsResult:
    """Ask the candidate of `runner` at sizes that the `captured` graph, its sizes free, covers;
    None asks in every case that the reference takes. Of a case's echoes those are asked that change
    neither inputs nor weights."""
    tried = refused = 0
    for case in cases:
        reference_case = runner.oracle_inputs.ask(case)
        if isinstance(reference_case, NotApplicable):
            continue
        leaves = reference_case.answer.leaves
        if captured is not None and not capture_covers(captured, case.shape.inputs, leaves):
            continue
        for follow_up in (None, *case.follow_ups):
            if (
                follow_up is not None
                and runner.oracle_inputs.follow(case, reference_case, follow_up)
                is not reference_case
            ):
                continue
            asked = case if follow_up is None else case.followed_up(follow_up)
            found = judge_reference_case(runner, asked, reference_case, built=captured is not None)
            tried += found.tried
            refused += found.refused
            if found.failure is not None:
                return OtherInputsResult(found.failure, tried, refused)
    return OtherInputsResult(None, tried, refused)


def judge_reference_case(
    runner: CaseRunner, case: Case, reference_case: ReferenceCase, *, built: bool = False
) -> OtherInputsResult:
    """Ask one. Where no kernel came of the source it is refused too, unless it must be `built`;
    where memory runs out it was not tried."""
    try:
        outcome = _asked(runner, case, reference_case)
    except torch.OutOfMemoryError:
        release_cached_memory(runner.settings.device)
        return OtherInputsResult(None, 0)
    no = outcome.refused
    if no is not None and (is_refusal(no) or (not built and is_not_built(no))):
        return OtherInputsResult(None, 1, 1)
    return OtherInputsResult(outcome.failure, 1)


def _asked(runner: CaseRunner, case: Case, reference_case: ReferenceCase) -> CaseOutcome:
    memory = CaseMemory(runner.worker, reference_case)
    try:
        return runner.ask_candidate(case, reference_case, memory)
    finally:
        memory.release()


EDGES: tuple[Edge, ...] = ("indices below zero", "indices past the end")
EXPECTED = (
    "Expected: it raises too, as by tl.device_assert in a kernel under @triton.jit(debug=True)"
)


def judge_indices(runner: CaseRunner, case: Case, positions: Sequence[int]) -> Failure | None:
    """Ask `case` with the inputs at `positions`, which are indices, out of their range. A GPU's
    worker does not outlive the second of these calls where the candidate is right."""
    plain = runner.oracle_inputs.ask(case)
    if isinstance(plain, NotApplicable):
        return None
    for edge in EDGES:
        asked = dataclasses.replace(case, edge=edge)
        inputs = with_edge(plain.inputs, edge, positions, case.seed)
        answer = runner.oracle_inputs.answer(asked, plain.model, inputs)
        failure = (
            _must_raise(runner, asked, dataclasses.replace(plain, inputs=inputs), answer)
            if isinstance(answer, NotApplicable)
            else _right_or_raises(runner, asked, ReferenceCase(inputs, plain.model, answer))
        )
        if failure is not None or not runner.worker.alive:
            return failure
    return None


def _right_or_raises(
    runner: CaseRunner, case: Case, reference_case: ReferenceCase
) -> Failure | None:
    outcome = _asked(runner, case, reference_case)
    refused = outcome.refused
    loud = refused is not None and call_raised(refused, runner.worker.device)
    return None if loud else outcome.failure


def _must_raise(
    runner: CaseRunner, case: Case, reference_case: ReferenceCase, why: NotApplicable
) -> RunFailed | None:
    memory = CaseMemory(runner.worker, reference_case)
    try:
        reply = runner.call(case, reference_case, memory)
    finally:
        memory.release()
    if isinstance(reply, WorkerFailed) and call_raised(reply, runner.worker.device):
        return None
    log = f"{why.reason}; the candidate returned values. {EXPECTED}"
    return RunFailed(reason="out_of_bounds", log=log, case=case.label)


def call_raised(reply: WorkerFailed, device: str) -> bool:
    """True where nobody can take the end of the call for an answer. A GPU's assertion may end the
    process."""
    return is_refusal(reply) or (device == "cuda" and reply.reason == "died")


MOST_METHODS = 8
DEFAULT = "bfloat16"
AFTER_ERRORS = "after calls that raised"


def judge_serving_conditions(runner: CaseRunner, case: Case) -> OtherInputsResult:
    """`case` under torch.inference_mode(), after calls that hardly any module takes and, where the
    original does not look at it, under another default dtype. Who refuses the last is asked once
    more without it."""
    reference_case = runner.oracle_inputs.ask(case)
    if isinstance(reference_case, NotApplicable):
        return OtherInputsResult(None, 0)
    if runner.settings.device == "cpu":
        # On a GPU such a call may end the process, by an address that is none.
        runner.disturb(case.shape.inputs)
        case = dataclasses.replace(case, after=AFTER_ERRORS)
    default = DEFAULT if _ignores_default(reference_case) else ""
    runner.inference = True
    found = judge_reference_case(runner, dataclasses.replace(case, default=default), reference_case)
    if found.refused and default and runner.worker.alive:
        found = judge_reference_case(runner, case, reference_case)
    runner.inference = False
    return found


def _ignores_default(reference_case: ReferenceCase) -> bool:
    """Whether the original gives the same under either default dtype."""
    before = torch.get_default_dtype()
    given = [copied(x) if isinstance(x, torch.Tensor) else x for x in reference_case.inputs]
    torch.set_default_dtype(getattr(torch, DEFAULT))
    try:
        found = leaves_of(reference_case.model, given)
    finally:
        torch.set_default_dtype(before)
    pairs = zip(found or (), reference_case.answer.leaves, strict=False)
    return found is not None and all(_same(one, other) for one, other in pairs)


def _same(one: object, other: object) -> bool:
    if not isinstance(one, torch.Tensor) or not isinstance(other, torch.Tensor):
        return type(one) is type(other)
    return one.dtype == other.dtype and torch.equal(one, other)


def judge_aliased_inputs(runner: CaseRunner, case: Case) -> Failure | None:
    """Where the original writes to an input, the same tensor for it and for another of its form."""
    reference_case = runner.oracle_inputs.ask(case)
    if isinstance(reference_case, NotApplicable) or not reference_case.answer.wrote_inputs:
        return None
    given = dict(tensors_of(reference_case.inputs))
    for first in sorted(reference_case.answer.wrote_inputs):
        for second, value in given.items():
            like = given[first]
            if second == first or (value.shape, value.dtype) != (like.shape, like.dtype):
                continue
            inputs = list(reference_case.inputs)
            inputs[second] = inputs[first]
            ours = list(inputs)
            ours[first] = ours[second] = copied(given[first])
            leaves = leaves_of(reference_case.model, ours)
            if leaves is None:
                continue
            asked = dataclasses.replace(reference_case, inputs=inputs)
            memory = CaseMemory(runner.worker, asked)
            memory.join(second, first)
            named = dataclasses.replace(case, variant=f"inputs {first} and {second} one tensor")
            try:
                reply = runner.call(named, asked, memory)
                found = [*memory.found(), dict(memory.storages())[first].view(like.shape)]
            finally:
                memory.release()
            if isinstance(reply, WorkerFailed):
                continue
            for index, leaf in enumerate((*leaves, ours[first])):
                theirs = found[index]
                if isinstance(leaf, torch.Tensor) and theirs is not None:
                    failure = _compare(named.label, index, theirs, leaf, runner)
                    if failure is not None:
                        return failure
    return None


def _compare(
    label: str, index: int, found: torch.Tensor, leaf: torch.Tensor, runner: CaseRunner
) -> Failure | None:
    oracle = leaf.double() if leaf.is_floating_point() else None
    values = OutputValues(found, leaf, oracle, no_oracle=True)
    return compare_output(label, index, values, runner.settings.precision).mismatch


def judge_other_methods(runner: CaseRunner, case: Case) -> Failure | None:
    """Methods of the original beside forward that ask for nothing and move its state."""
    for name in other_methods(type(runner.oracle_inputs.base)):
        before = runner.oracle_inputs.model(case.seed, 1, 0)
        after = copy.deepcopy(before)
        if not _moves(after, name, before):
            continue
        failure = _as_theirs(runner, case, before, after, name)
        if failure is not None:
            return failure
    return None


def other_methods(kind: type[nn.Module]) -> list[str]:
    """Public methods that `kind` has beside those of every module and forward, and that may be
    called with nothing."""
    from torch import nn

    found = []
    for name in dir(kind):
        method = inspect.getattr_static(kind, name)
        if name.startswith("_") or name == "forward" or hasattr(nn.Module, name):
            continue
        if inspect.isfunction(method) and _takes_nothing(method):
            found.append(name)
    return found[:MOST_METHODS]


def _takes_nothing(method: object) -> bool:
    parameters = list(inspect.signature(method).parameters.values())[1:]  # type: ignore[arg-type]
    more = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return all(item.default is not item.empty or item.kind in more for item in parameters)


def _moves(model: nn.Module, name: str, before: nn.Module) -> bool:
    """Call it: whether something of the state is another then."""
    try:
        with torch.no_grad():
            getattr(model, name)()
        after = model.state_dict()
    except Exception:  # noqa: BLE001 - the user's module may raise anything
        return False
    state = before.state_dict()
    same_form = all(n in after and after[n].shape == x.shape for n, x in state.items())
    return same_form and any(not torch.equal(after[n], x) for n, x in state.items())


def _as_theirs(
    runner: CaseRunner, case: Case, before: nn.Module, after: nn.Module, name: str
) -> Failure | None:
    """Whether the candidate's method leaves the state that the original's does."""
    if isinstance(runner.ask_method(case, before, name), WorkerFailed):
        return None
    theirs = runner.seen_state()
    label = f"{case.label}, after {name}()"
    for key, value in after.state_dict().items():
        failure = _compare(f"{label}, {key}", 0, theirs[key], value, runner)
        if failure is not None:
            return failure
    return None
