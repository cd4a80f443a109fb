"""Gradients of a candidate that records them, held against those of the original in fp64.

A file that declares an autograd function says that it keeps gradients. One call at the smallest
shape is differentiated in the candidate's process, for random gradients of its outputs; those of
inputs and parameters may be as far from fp64 as four times eager's, or a few roundings.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agentkernel.domain.verdict import Failure, Mismatch, RunFailed
from agentkernel.errors import one_line
from agentkernel.source_text import parse_source
from agentkernel.tools.judge.cases import Case
from agentkernel.tools.judge.kernel_text import backward_only
from agentkernel.tools.judge.memory import Memory
from agentkernel.tools.judge.question import NotApplicable, Question
from agentkernel.tools.judge.reference import doubled, doubled_value
from agentkernel.tools.judge.trial import Trial, is_refusal
from agentkernel.tools.sandbox.session import WorkerFailed

if TYPE_CHECKING:
    import torch
    from torch import nn

FACTOR = 4.0
"""Of eager's own error."""
ROUNDINGS = 64.0
"""Of the gradient's dtype, where eager is exact."""
OUT_OF_MEMORY = "OutOfMemoryError"
Gradients = Mapping[str, "torch.Tensor"]


@dataclass(frozen=True)
class Judged:
    """`kept`: the gradients are the original's; False where the candidate refuses the call, None
    where nothing was asked. `failure`: they are others."""

    failure: Failure | None = None
    kept: bool | None = None
    note: str = ""

    @property
    def asked(self) -> bool:
        """Whether the candidate came to be asked."""
        return self.kept is not None or self.failure is not None


def declares_gradients(source: str) -> bool:
    """Whether `source` has an autograd function with a backward pass."""
    try:
        return bool(backward_only(parse_source(source)))
    except SyntaxError:  # nobody read it first: --no-static
        return False


def judge_gradients(trial: Trial, case: Case, source: str) -> Judged:
    """Differentiate one call of the candidate, and of the reference in its dtype and in fp64."""
    if not declares_gradients(source):
        return Judged()
    question = trial.asker.ask(case)
    if isinstance(question, NotApplicable):
        return Judged(note=f"gradients not judged: {question.reason}")
    try:
        ends = _ends(question, case.seed)
        eager = _gradients(question.model, question.inputs, ends)
        exact = _gradients(
            doubled(question.model),
            [doubled_value(item) for item in question.inputs],
            [None if item is None else item.double() for item in ends],
        )
    except Exception as error:  # noqa: BLE001 - the user's module, or an operator without fp64
        return Judged(note=f"gradients not judged: the reference raised {one_line(error, 120)}")
    if not exact:
        return Judged(note="gradients not judged: none reaches an input or a parameter")
    return _compared(trial, case, question, ends, eager, exact)


def differentiable(value: object) -> bool:
    """Whether a gradient can be recorded of it."""
    import torch

    return isinstance(value, torch.Tensor) and (
        value.dtype.is_floating_point or value.dtype.is_complex
    )


def differentiate(
    model: Callable[..., object],
    named: Mapping[str, torch.Tensor],
    inputs: Sequence[object],
    ends: Sequence[torch.Tensor | None],
) -> dict[str, torch.Tensor]:
    """Gradients of the outputs' products with `ends`, by the name of input or parameter (`named`);
    those that no output depends on are left out."""
    import torch
    from torch.utils._pytree import tree_leaves

    given = [
        item.detach().requires_grad_() if differentiable(item) else item  # type: ignore[attr-defined]
        for item in inputs
    ]
    leaves = {
        f"input {index}": item
        for index, item in enumerate(given)
        if isinstance(item, torch.Tensor) and item.requires_grad
    }
    leaves |= {name: value for name, value in named.items() if value.requires_grad}
    with torch.enable_grad():
        outputs = tree_leaves(model(*given))
    pairs = [
        (output, end)
        for output, end in zip(outputs, ends, strict=True)
        if end is not None and output.requires_grad
    ]
    if not pairs or not leaves:
        return {}
    found = torch.autograd.grad(
        [output for output, _ in pairs],
        list(leaves.values()),
        [end for _, end in pairs],
        allow_unused=True,
    )
    return {name: value for name, value in zip(leaves, found, strict=True) if value is not None}


def _gradients(
    model: nn.Module, inputs: Sequence[object], ends: Sequence[torch.Tensor | None]
) -> dict[str, torch.Tensor]:
    import copy

    own = copy.deepcopy(model).eval()
    return differentiate(own, dict(own.named_parameters()), inputs, ends)


def _ends(question: Question, seed: int) -> list[torch.Tensor | None]:
    """A random gradient for each floating output."""
    import torch

    found: list[torch.Tensor | None] = []
    for index, leaf in enumerate(question.answer.leaves):
        if not differentiable(leaf):
            found.append(None)
            continue
        assert isinstance(leaf, torch.Tensor)
        generator = torch.Generator().manual_seed(seed + index)
        drawn = torch.randn(leaf.shape, generator=generator)
        found.append(drawn.to(device=leaf.device, dtype=leaf.dtype))
    return found


def _compared(
    trial: Trial,
    case: Case,
    question: Question,
    ends: Sequence[torch.Tensor | None],
    eager: Gradients,
    exact: Gradients,
) -> Judged:
    import torch

    memory = Memory(trial.worker, question)
    shared = [None if item is None else trial.worker.share(item.clone()) for item in ends]
    rooms = {name: trial.worker.share(torch.zeros_like(value)) for name, value in eager.items()}
    try:
        reply = trial.differentiate(case, question, memory, {"ends": shared, "gradients": rooms})
        if isinstance(reply, WorkerFailed):
            log = " ".join(reply.log.strip().splitlines()[-1:])[:160]
            if is_refusal(reply):
                return Judged(kept=False, note=f"gradients are refused: {log}")
            if reply.error == OUT_OF_MEMORY:
                return Judged(note="gradients not judged: no room for them beside the original's")
            return Judged(RunFailed(reason=reply.reason, log=reply.log, case=_label(case)))
        for index, (name, ref) in enumerate(rooms.items()):
            wrong = _mismatch(case, index, name, trial.worker.shared(ref), eager, exact)
            if wrong is not None:
                return Judged(wrong)
    finally:
        held = [item for item in shared if item is not None]
        trial.worker.release([*held, *rooms.values()])
        memory.release()
    return Judged(kept=True)


def _mismatch(
    case: Case,
    index: int,
    name: str,
    found: torch.Tensor,
    eager: Gradients,
    exact: Gradients,
) -> Mismatch | None:
    import torch

    right = exact[name] if name in exact else torch.zeros_like(found).double()
    if not bool(right.isfinite().all()):
        return None
    size = max(float(right.norm()), torch.finfo(found.dtype).tiny)
    error = float((found.double() - right).norm()) / size
    allowed = FACTOR * float((eager[name].double() - right).norm()) / size
    allowed = max(allowed, ROUNDINGS * torch.finfo(found.dtype).eps)
    if error <= allowed:
        return None
    far = (found.double() - right).abs().flatten()
    worst = int(torch.where(far.isnan(), math.inf, far).argmax()) if far.numel() else 0
    return Mismatch(
        case=f"{_label(case)} of {name}",
        output=index,
        norm_error=error,
        norm_allowed=allowed,
        element_error=error,
        element_allowed=allowed,
        first_index=tuple(int(i) for i in torch.unravel_index(torch.tensor(worst), right.shape)),
        expected=float(right.flatten()[worst]),
        found=float(found.flatten()[worst]),
        wrong_share=1.0,
        pattern="all",
        margin=error / allowed,
    )


def _label(case: Case) -> str:
    return f"{case.label}: the gradient"


__all__ = ["Judged", "declares_gradients", "differentiable", "differentiate", "judge_gradients"]
