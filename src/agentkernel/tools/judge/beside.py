"""What surrounds a call, or comes beside it: calls that raise, another default dtype, one tensor
for two inputs, the other methods of the original. The candidate must be right there, or raise."""

from __future__ import annotations

import copy
import dataclasses
import inspect
from typing import TYPE_CHECKING

from agentkernel.domain.verdict import Failure
from agentkernel.tools.judge.cases.cases import Case
from agentkernel.tools.judge.cases.layouts import copied
from agentkernel.tools.judge.cases.values import tensors_of
from agentkernel.tools.judge.comparison.compare import compare_output
from agentkernel.tools.judge.elsewhere import Elsewhere, judge_question
from agentkernel.tools.judge.memory import Memory
from agentkernel.tools.judge.reference.question import NotApplicable, Question
from agentkernel.tools.judge.reference.reference import leaves_of
from agentkernel.tools.judge.trial import Trial
from agentkernel.tools.sandbox.session import WorkerFailed

if TYPE_CHECKING:
    import torch
    from torch import nn

MOST_METHODS = 8
DEFAULT = "bfloat16"
AFTER_ERRORS = "after calls that raised"


def as_served(trial: Trial, case: Case) -> Elsewhere:
    """`case` under torch.inference_mode(), after calls that hardly any module takes and, where the
    original does not look at it, under another default dtype. Who refuses the last is asked once
    more without it."""
    question = trial.asker.ask(case)
    if isinstance(question, NotApplicable):
        return Elsewhere(None, 0)
    if trial.settings.device == "cpu":
        # On a GPU such a call may end the process, by an address that is none.
        trial.disturb(case.shape.inputs)
        case = dataclasses.replace(case, after=AFTER_ERRORS)
    default = DEFAULT if _ignores_default(question) else ""
    trial.inference = True
    found = judge_question(trial, dataclasses.replace(case, default=default), question)
    if found.refused and default and trial.worker.alive:
        found = judge_question(trial, case, question)
    trial.inference = False
    return found


def _ignores_default(question: Question) -> bool:
    """Whether the original gives the same under either default dtype."""
    import torch

    before = torch.get_default_dtype()
    given = [copied(x) if isinstance(x, torch.Tensor) else x for x in question.inputs]
    torch.set_default_dtype(getattr(torch, DEFAULT))
    try:
        found = leaves_of(question.model, given)
    finally:
        torch.set_default_dtype(before)
    pairs = zip(found or (), question.answer.leaves, strict=False)
    return found is not None and all(_same(one, other) for one, other in pairs)


def _same(one: object, other: object) -> bool:
    import torch

    if not isinstance(one, torch.Tensor) or not isinstance(other, torch.Tensor):
        return type(one) is type(other)
    return one.dtype == other.dtype and torch.equal(one, other)


def judge_one_tensor(trial: Trial, case: Case) -> Failure | None:
    """Where the original writes to an input, the same tensor for it and for another of its form."""
    import torch

    question = trial.asker.ask(case)
    if isinstance(question, NotApplicable) or not question.answer.wrote_inputs:
        return None
    given = dict(tensors_of(question.inputs))
    for first in sorted(question.answer.wrote_inputs):
        for second, value in given.items():
            like = given[first]
            if second == first or (value.shape, value.dtype) != (like.shape, like.dtype):
                continue
            inputs = list(question.inputs)
            inputs[second] = inputs[first]
            ours = list(inputs)
            ours[first] = ours[second] = copied(given[first])
            leaves = leaves_of(question.model, ours)
            if leaves is None:
                continue
            asked = dataclasses.replace(question, inputs=inputs)
            memory = Memory(trial.worker, asked)
            memory.join(second, first)
            named = dataclasses.replace(case, variant=f"inputs {first} and {second} one tensor")
            try:
                reply = trial.call(named, asked, memory)
                found = [*memory.found(), dict(memory.storages())[first].view(like.shape)]
            finally:
                memory.release()
            if isinstance(reply, WorkerFailed):
                continue
            for index, leaf in enumerate((*leaves, ours[first])):
                theirs = found[index]
                if isinstance(leaf, torch.Tensor) and theirs is not None:
                    failure = _compare(named.label, index, theirs, leaf, trial)
                    if failure is not None:
                        return failure
    return None


def _compare(
    label: str, index: int, found: torch.Tensor, leaf: torch.Tensor, trial: Trial
) -> Failure | None:
    oracle = leaf.double() if leaf.is_floating_point() else None
    precision = trial.settings.precision
    return compare_output(label, index, found, leaf, oracle, precision, True).mismatch


def judge_methods(trial: Trial, case: Case) -> Failure | None:
    """Methods of the original beside forward that ask for nothing and move its state."""
    for name in other_methods(type(trial.asker.base)):
        before = trial.asker.model(case.seed, 1, 0)
        after = copy.deepcopy(before)
        if not _moves(after, name, before):
            continue
        failure = _as_theirs(trial, case, before, after, name)
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
    import torch

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
    trial: Trial, case: Case, before: nn.Module, after: nn.Module, name: str
) -> Failure | None:
    """Whether the candidate's method leaves the state that the original's does."""
    if isinstance(trial.ask_method(case, before, name), WorkerFailed):
        return None
    theirs = trial.seen_state()
    label = f"{case.label}, after {name}()"
    for key, value in after.state_dict().items():
        failure = _compare(f"{label}, {key}", 0, theirs[key], value, trial)
        if failure is not None:
            return failure
    return None
