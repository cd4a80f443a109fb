"""Gradients of a candidate that records them, held against those of the original in fp64.

A file that declares an autograd function says that it keeps gradients. Calls are differentiated in
the candidate's process in several ways (`Pass`), for random gradients of its outputs; those of
inputs and parameters may be as far from fp64 as four times eager's, or a few roundings. The outputs
of such a call are compared, and the call is watched, like any other.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

from agentkernel.domain.rules import Policy
from agentkernel.domain.verdict import Failure, Mismatch, RunFailed
from agentkernel.errors import one_line
from agentkernel.source_text import parse_source
from agentkernel.tools.judge.cases import Case
from agentkernel.tools.judge.execution import Testimony, ask, weigh
from agentkernel.tools.judge.kernel_text import backward_only
from agentkernel.tools.judge.layouts import Layout
from agentkernel.tools.judge.memory import Memory
from agentkernel.tools.judge.question import NotApplicable, Question
from agentkernel.tools.judge.reference import doubled, doubled_value
from agentkernel.tools.judge.training import is_random
from agentkernel.tools.judge.trial import Trial, is_refusal
from agentkernel.tools.judge.values import Distribution
from agentkernel.tools.sandbox.session import WorkerFailed

if TYPE_CHECKING:
    import torch
    from torch import nn

    from agentkernel.tools.sandbox.tensors import TensorRef

FACTOR = 4.0
"""Of eager's own error."""
ROUNDINGS, NARROW_ROUNDINGS = 64.0, 4.0
"""Of the gradient's dtype, where eager is exact; the fewer of one of at most 16 bits, whose sums
are carried in fp32."""
OUT_OF_MEMORY = "OutOfMemoryError"
Gradients = Mapping[str, "torch.Tensor"]


Form = Literal["plain", "strided", "expanded", "transposed"]
Beside = Literal["", "first", "last"]
Wanted = Literal["all", "inputs", "parameters"]


class Pass(NamedTuple):
    """One way to differentiate a call: how the gradients of its outputs lie in memory (`ends`),
    what requires a gradient (`wanted`), whether a second call comes before its backward pass and is
    differentiated `beside` it, first or last; in `training` mode; the gradients themselves
    differentiated (`twice`); the backward pass taken `again` over the same graph, whose gradients
    count; the `values` of the inputs and their `layout`."""

    ends: Form = "plain"
    wanted: Wanted = "all"
    beside: Beside = ""
    training: bool = False
    twice: bool = False
    again: bool = False
    values: Distribution = "normal"
    layout: Layout = "contiguous"

    @property
    def label(self) -> str:
        """For people."""
        words = [f"{self.ends} gradients"] if self.ends != "plain" else []
        words += [f"of the {self.wanted} alone"] if self.wanted != "all" else []
        words += ["two calls before the backward passes"] if self.beside else []
        words += ["training mode"] if self.training else []
        words += ["differentiated twice"] if self.twice else []
        words += ["a second backward pass"] if self.again else []
        return ", ".join(words)


SMALL = (
    Pass(beside="first"),
    Pass("strided", "inputs", "last", again=True, values="sparse"),
    Pass("expanded", "parameters", training=True),
    Pass(twice=True),
    Pass(values="large", layout="sliced"),
)
"""At the smallest shape; the first pass is the one that a candidate refuses which records none.
Zeros are where a derivative jumps, and large values where one overflows."""
WIDE = (Pass("transposed", layout="swapped"),)
"""At the largest shape of the plan."""


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


def judge_gradients(
    trial: Trial, case: Case, source: str, way: Pass = SMALL[0], policy: Policy = "any"
) -> Judged:
    """Differentiate one call of the candidate, and of the reference in its dtype and in fp64."""
    import torch

    if not declares_gradients(source):
        return Judged()
    case = dataclasses.replace(
        case, training=way.training, distribution=way.values, layout=way.layout
    )
    question = trial.asker.ask(case)
    if isinstance(question, NotApplicable):
        return Judged(note=f"gradients not judged: {question.reason}")
    if not any(item.requires_grad for item in question.model.parameters()):
        way = way._replace(wanted="all")
    try:
        if way.training and is_random(question.model, question.inputs):
            return Judged()
        ends = _ends(question, case.seed, way.ends)
        eager = _gradients(question.model, question.inputs, ends, way)
        exact = _gradients(
            doubled(question.model),
            [doubled_value(item) for item in question.inputs],
            [None if item is None else item.double() for item in ends],
            way,
        )
    except Exception as error:  # noqa: BLE001 - the user's module, or an operator without fp64
        return Judged(note=f"gradients not judged: the reference raised {one_line(error, 120)}")
    if not exact:
        return Judged(note="gradients not judged: none reaches an input or a parameter")
    try:
        return _compared(trial, case, question, ends, eager, exact, way, policy)
    except torch.OutOfMemoryError as error:
        torch.cuda.empty_cache()
        return Judged(note=f"gradients not judged at {case.shape.label}: {one_line(error, 120)}")


def differentiable(value: object) -> bool:
    """Whether a gradient can be recorded of it."""
    import torch

    return isinstance(value, torch.Tensor) and (
        value.dtype.is_floating_point or value.dtype.is_complex
    )


@dataclass(frozen=True)
class Recorded:
    """A call whose gradients are recorded: its result as it was returned, and what they are
    wanted of, by the name of input or parameter."""

    result: object
    leaves: Mapping[str, torch.Tensor]


def record(
    model: Callable[..., object],
    named: Mapping[str, torch.Tensor],
    inputs: Sequence[object],
    wanted: Wanted = "all",
    call: Callable[[Callable[[], object]], object] = lambda work: work(),
) -> Recorded:
    """Call `model` on `inputs`; the parameters are `named`. What is not `wanted` requires no
    gradient meanwhile. `call` runs the call itself."""
    import torch

    given = [
        item.detach().requires_grad_(wanted != "parameters") if differentiable(item) else item  # type: ignore[attr-defined]
        for item in inputs
    ]
    leaves = {
        f"input {index}": item
        for index, item in enumerate(given)
        if isinstance(item, torch.Tensor) and item.requires_grad
    }
    frozen = [item for item in named.values() if item.requires_grad and wanted == "inputs"]
    for item in frozen:
        item.requires_grad_(False)
    try:
        leaves |= {name: value for name, value in named.items() if value.requires_grad}
        with torch.enable_grad():
            result = call(lambda: model(*given))
    finally:
        for item in frozen:
            item.requires_grad_(True)
    return Recorded(result, leaves)


def gradients(
    recorded: Recorded,
    outputs: Sequence[object],
    ends: Sequence[torch.Tensor | None],
    way: Pass,
) -> dict[str, torch.Tensor]:
    """Gradients of the products of `outputs` with `ends`, by the name of input or parameter; those
    that no output depends on are left out. Differentiated twice, the gradients, and the `ends`, of
    the sum of the squares of these gradients."""
    import torch

    pairs = [
        (output, end.detach().requires_grad_(way.twice))
        for output, end in zip(outputs, ends, strict=True)
        if end is not None and isinstance(output, torch.Tensor) and output.requires_grad
    ]
    leaves = dict(recorded.leaves)
    if not pairs or not leaves:
        return {}
    for last in (False, True) if way.again else (True,):
        found = torch.autograd.grad(
            [output for output, _ in pairs],
            list(leaves.values()),
            [end for _, end in pairs],
            allow_unused=True,
            retain_graph=way.twice or not last,
            create_graph=way.twice,
        )
    if not way.twice:
        return _named(leaves, found)
    total = sum((item.square().sum() for item in found if item is not None), torch.zeros(()))
    return _named(leaves, torch.autograd.grad(total, list(leaves.values()), allow_unused=True))


def _named(
    leaves: Mapping[str, torch.Tensor], found: Sequence[torch.Tensor | None]
) -> dict[str, torch.Tensor]:
    pairs = zip(leaves, found, strict=True)
    return {name: value for name, value in pairs if value is not None}


def rolled(inputs: Sequence[object]) -> list[object]:
    """The same values in other places, for a second call, which takes what the first takes."""
    return [
        item.detach().flatten().roll(1).view(item.shape) if differentiable(item) else item  # type: ignore[attr-defined]
        for item in inputs
    ]


def _gradients(
    model: nn.Module,
    inputs: Sequence[object],
    ends: Sequence[torch.Tensor | None],
    way: Pass,
) -> dict[str, torch.Tensor]:
    import copy

    from torch.utils._pytree import tree_leaves

    own = copy.deepcopy(model).train(way.training)
    recorded = record(own, dict(own.named_parameters()), inputs, way.wanted)
    return gradients(recorded, tree_leaves(recorded.result), ends, way)


def _ends(question: Question, seed: int, form: Form) -> list[torch.Tensor | None]:
    """A random gradient for each floating output, which lies in memory as `form` says: an expanded
    one is a number, as that of a sum."""
    import torch

    found: list[torch.Tensor | None] = []
    for index, leaf in enumerate(question.answer.leaves):
        if not differentiable(leaf):
            found.append(None)
            continue
        assert isinstance(leaf, torch.Tensor)
        generator = torch.Generator().manual_seed(seed + index)
        shape = () if form == "expanded" else leaf.shape
        drawn = torch.randn(shape, generator=generator).to(device=leaf.device, dtype=leaf.dtype)
        found.append(_laid_out(drawn, leaf.shape, form))
    return found


def _laid_out(drawn: torch.Tensor, shape: torch.Size, form: Form) -> torch.Tensor:
    if form == "expanded":
        return drawn.expand(shape)
    if form == "transposed" and len(shape) > 1:
        return drawn.mT.contiguous().mT
    if form != "plain" and len(shape):
        wide = drawn.new_full((*shape[:-1], 2 * shape[-1]), math.nan)
        return wide[..., ::2].copy_(drawn)
    return drawn


def _compared(
    trial: Trial,
    case: Case,
    question: Question,
    ends: Sequence[torch.Tensor | None],
    eager: Gradients,
    exact: Gradients,
    way: Pass,
    policy: Policy,
) -> Judged:
    import torch

    memory = Memory(trial.worker, question)
    shared: list[TensorRef | None] = []
    rooms: dict[str, TensorRef] = {}
    label = f"{', '.join(filter(None, (case.label, way.label)))}: the gradient"
    try:
        shared.extend(None if item is None else trial.worker.share(item) for item in ends)
        for name, value in eager.items():
            rooms[name] = trial.worker.share(torch.zeros_like(value))
        # A second call would leave its mark on what the module keeps, too.
        alone = way._replace(beside="") if question.answer.after is not None else way
        more = {"ends": shared, "gradients": rooms, "way": alone._asdict()}
        reply = trial.differentiate(case, question, memory, more)
        seen = ask(trial.worker, trial.settings) if trial.worker.alive else None
        if isinstance(reply, WorkerFailed):
            log = " ".join(reply.log.strip().splitlines()[-1:])[:160]
            if is_refusal(reply):
                how = f" ({way.label})" if way != SMALL[0] else ""
                return Judged(kept=False, note=f"gradients are refused{how}: {log}")
            if reply.error == OUT_OF_MEMORY:
                return Judged(note="gradients not judged: no room for them beside the original's")
            return Judged(RunFailed(reason=reply.reason, log=reply.log, case=label))
        outcome = trial.compare(case, question, reply, memory)
        if outcome.failure is not None:
            return Judged(outcome.failure)
        if isinstance(seen, Testimony):
            watched = weigh(seen, policy, [label], trial.library)
            if watched is not None:
                return Judged(watched)
        for index, (name, ref) in enumerate(rooms.items()):
            wrong = _mismatch(label, index, name, trial.worker.shared(ref), eager, exact)
            if wrong is not None:
                return Judged(wrong)
    finally:
        held = [item for item in shared if item is not None]
        trial.worker.release([*held, *rooms.values()])
        memory.release()
    return Judged(kept=True)


def _mismatch(
    label: str,
    index: int,
    name: str,
    found: torch.Tensor,
    eager: Gradients,
    exact: Gradients,
) -> Mismatch | None:
    import torch

    right = exact[name] if name in exact else torch.zeros_like(found).double()
    # Where eager has no number either, nothing is asked.
    known = right.isfinite() & eager[name].isfinite()
    size = max(float(right[known].norm()), torch.finfo(found.dtype).tiny)
    error = float((found.double() - right)[known].norm()) / size
    allowed = FACTOR * float((eager[name].double() - right)[known].norm()) / size
    roundings = NARROW_ROUNDINGS if found.element_size() <= 2 else ROUNDINGS
    allowed = max(allowed, roundings * torch.finfo(found.dtype).eps)
    if error <= allowed:
        return None
    far = (found.double() - right).abs()
    far = torch.where(known, torch.where(far.isnan(), math.inf, far), 0.0).flatten()
    worst = int(far.argmax()) if far.numel() else 0
    return Mismatch(
        case=f"{label} of {name}",
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


__all__ = [
    "SMALL",
    "WIDE",
    "Judged",
    "Pass",
    "declares_gradients",
    "differentiable",
    "gradients",
    "judge_gradients",
    "record",
    "rolled",
]
