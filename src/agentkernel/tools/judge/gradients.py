"""Gradients of a candidate that records them, compared with those of the original in fp64.

A source that declares an autograd function says that it keeps gradients. Calls are
differentiated in the candidate's process in several ways (one backward pass each), for random
gradients of its outputs. Gradients of inputs and parameters may be as far from fp64 as four
times eager's, or a few roundings. The outputs of such a call are compared, and the call is
traced, like any other.
"""

from __future__ import annotations

import dataclasses
import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import torch

from agentkernel.domain.errors import one_line
from agentkernel.domain.verdict import Failure, Mismatch, Policy, RunFailed
from agentkernel.storage.source_text import parse_source
from agentkernel.tools.judge.case_runner import CaseRunner
from agentkernel.tools.judge.cases.plan import Case, NotApplicable
from agentkernel.tools.judge.execution.proof import Trace, check_trace, drain_trace
from agentkernel.tools.judge.memory import CaseMemory
from agentkernel.tools.judge.policy.kernel_source import backward_only
from agentkernel.tools.judge.reference.expected_gradients import (
    Ends,
    ExpectedGradients,
    Gradients,
    expected_gradients,
)
from agentkernel.tools.judge.reference.oracle_inputs import ReferenceCase
from agentkernel.tools.judge.replies import is_refusal
from agentkernel.tools.judge.train_mode import is_random
from agentkernel.tools.judge.worker.gradients import (
    BackwardPass,
    Form,
    Round,
    differentiable,
    gradients,
    record_forward,
)
from agentkernel.tools.sandbox.protocol import WorkerFailed

if TYPE_CHECKING:
    from agentkernel.tools.sandbox.session import Worker
from agentkernel.tools.sandbox.tensors import TensorRef

FACTOR = 4.0
"""Of eager's own error."""
PERMITTED = 2.0
"""Of the step to which PyTorch's flags let convolutions round: cuDNN chooses by sizes and layouts
whether it does, in eager and in what calls it as eager does. Seen: 1.5 (H200); what was rounded to
bf16 is off by 2.3."""
ROUNDINGS, NARROW_ROUNDINGS = 64.0, 4.0
"""Of the gradient's dtype, where eager is exact; the fewer of one of at most 16 bits, whose sums
are carried in fp32."""
OUT_OF_MEMORY = "OutOfMemoryError"


SIZES: dict[str, float] = {"small": 1e-8, "large": 1e8}
HALF_SIZES: dict[str, float] = {"small": 2.0**-9, "large": 2.0**4}
"""Of given gradients; in fp16, which has few."""
SWALLOWED = 0.1
"""Of the places where eager and fp64 have no number, so large a share may have one: 0 times an
infinity is 0 to some."""
BIASED = 2.0
"""Roundings of 16 bits that all elements may share."""
SPARSE = 64
"""One given gradient of so many is an infinity, where some are, and another one NaN."""
DIRECTIONS, STEP, DRAWS = 4, 1e-4, 1871
"""A random module is moved along so many directions, by such a share of each tensor's size, under
this seed of torch's generator."""
OFF, NOISY = 0.05, 0.3
"""By so much its derivative may be off from differences; where those of the original are off by
the latter, nobody can say."""
SIGMAS = 6.0
FEW = 256
"""Of fewer elements that count nobody can say whether they share an error."""
GIVEN: dict[Round, str] = {
    "plain": "",
    "small": "small ones given",
    "large": "large ones given",
    "infinite": "infinities given",
    "one": "of one output",
    "rest": "of the other outputs",
    "changed": "inputs and weights changed before the backward pass",
}


SMALL = (
    BackwardPass(beside="first"),
    BackwardPass(
        "strided", "inputs", "last", rounds=("plain", "small", "changed"), values="sparse"
    ),
    BackwardPass("expanded", "parameters", training=True, rounds=("plain", "large")),
    BackwardPass(twice=True),
    BackwardPass(rounds=("one", "rest", "infinite"), values="large", layout="sliced", scalars=True),
)
"""At the smallest shape; the first pass is the one that a candidate refuses which records none.
Zeros are where a derivative jumps, and large values where one overflows."""
WIDE = (BackwardPass("transposed", values="spiked", layout="swapped"),)
"""At the largest shape of the plan, with weights of both signs."""
LONG = BackwardPass()
"""Past the numbers of the file."""


@dataclass(frozen=True)
class GradientResult:
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
    runner: CaseRunner,
    case: Case,
    source: str,
    way: BackwardPass = SMALL[0],
    policy: Policy = "any",
) -> GradientResult:
    """Differentiate one call of the candidate, and of the reference in its dtype and in fp64."""
    if not declares_gradients(source):
        return GradientResult()
    missing = f"{'second derivatives' if way.twice else 'gradients'} not judged"
    case = dataclasses.replace(
        case, training=way.training, distribution=way.values, layout=way.layout
    )
    reference_case = runner.oracle_inputs.ask(case)
    if isinstance(reference_case, NotApplicable):
        return GradientResult(note=f"{missing}: {reference_case.reason}")
    if not any(item.requires_grad for item in reference_case.model.parameters()):
        way = way._replace(wanted="all")
    try:
        if way.training and is_random(reference_case.model, reference_case.inputs):
            return _by_differences(runner, case, reference_case, policy)
        rounds = _rounds(reference_case, case.seed, way)
        expected = expected_gradients(reference_case, rounds, way, runner.oracle_inputs.elementwise)
    except Exception as error:  # noqa: BLE001 - the user's module, or an operator without fp64
        return GradientResult(note=f"{missing}: the reference raised {one_line(error, 120)}")
    if not any(expected.exact.values()):
        return GradientResult(note=f"{missing}: none reaches an input or a parameter")
    try:
        return _compared(runner, case, reference_case, rounds, expected, way, policy)
    except torch.OutOfMemoryError as error:
        torch.cuda.empty_cache()
        return GradientResult(note=f"{missing} at {case.shape.label}: {one_line(error, 120)}")


def _rounds(reference_case: ReferenceCase, seed: int, way: BackwardPass) -> dict[Round, Ends]:
    """What is given in each of the rounds; that of a module of one output, or in which nothing is
    given anew, is left out."""
    known = [
        place for place, item in enumerate(reference_case.answer.leaves) if differentiable(item)
    ]
    one = random.Random(seed).choice(known) if known else -1
    found: dict[Round, Ends] = {}
    for name in way.rounds:
        if name == "changed" or (name == "rest" and len(known) < 2):
            continue
        ends = _ends(reference_case, seed, way.ends, name)
        if name in ("one", "rest") and len(known) > 1:
            ends = [
                item if (at == one) == (name == "one") else None for at, item in enumerate(ends)
            ]
        found[name] = ends
    return found


def _ends(
    reference_case: ReferenceCase, seed: int, form: Form, name: Round = "plain"
) -> list[torch.Tensor | None]:
    """A random gradient for each floating output, which lies in memory as `form` says, of the size
    of the round `name`: an expanded one is a number, as that of a sum."""
    found: list[torch.Tensor | None] = []
    for index, leaf in enumerate(reference_case.answer.leaves):
        if not differentiable(leaf):
            found.append(None)
            continue
        assert isinstance(leaf, torch.Tensor)
        generator = torch.Generator().manual_seed(seed + index)
        shape = () if form == "expanded" else leaf.shape
        drawn = torch.randn(shape, generator=generator)
        sizes = HALF_SIZES if leaf.dtype == torch.float16 else SIZES
        drawn *= (1 + random.Random(seed).random()) * sizes[name] if name in sizes else 1.0
        if name == "infinite":
            _strew(drawn, generator)
        drawn = drawn.to(device=leaf.device, dtype=leaf.dtype)
        found.append(_laid_out(drawn, leaf.shape, form))
    return found


def _strew(values: torch.Tensor, generator: torch.Generator) -> None:
    """Put an infinity, its negative and NaN in places of their own, and a few more of each."""
    flat = values.view(-1)
    count = max(1, flat.numel() // SPARSE)
    for value in (math.inf, -math.inf, math.nan):
        flat[torch.randint(max(1, flat.numel()), (count,), generator=generator)] = value


def _laid_out(drawn: torch.Tensor, shape: torch.Size, form: Form) -> torch.Tensor:
    if form == "expanded":
        return drawn.expand(shape)
    if form == "transposed" and len(shape) > 1:
        return drawn.mT.contiguous().mT
    if form != "plain" and len(shape):
        wide = drawn.new_full((*shape[:-1], 2 * shape[-1]), math.nan)
        return wide[..., ::2].copy_(drawn)
    return drawn


def _by_differences(
    runner: CaseRunner, case: Case, reference_case: ReferenceCase, policy: Policy
) -> GradientResult:
    """Gradients of a call that draws random numbers, held against differences of its outputs under
    the same draws: nobody else knows them."""
    case = dataclasses.replace(case, training=True, gradients=True, draws=DRAWS)
    ends = _ends(reference_case, case.seed, "plain")
    pairs = [_moved(reference_case, case.seed + k) for k in range(DIRECTIONS)]
    eager = _drawn(reference_case, ends).gradients
    usual = _off(eager, pairs, [[_drawn(x, ends).outputs for x in pair] for pair in pairs], ends)
    if not usual <= NOISY:
        return GradientResult(note="gradients in training mode not judged: differences say nothing")
    memory = CaseMemory(runner.worker, reference_case)
    shared: list[TensorRef] = []
    label = f"{case.label}: gradients beside differences under the same draws"
    try:
        given = [None if item is None else runner.worker.share(item) for item in ends]
        rooms = {name: runner.worker.share(value * 0.0) for name, value in eager.items()}
        shared += [item for item in (*given, *rooms.values()) if item is not None]
        way = BackwardPass(training=True)._asdict()
        more = {"ends": {"plain": given}, "gradients": {"plain": rooms}, "way": way}
        reply = runner.differentiate(case, reference_case, memory, more)
        calls: list[list[list[torch.Tensor | None]]] = []
        for pair in pairs:
            calls.append([])
            for moved in pair:
                if not isinstance(reply, WorkerFailed):
                    reply = runner.call(case, moved, memory)
                    calls[-1].append(memory.results())
        seen = drain_trace(runner.worker, runner.settings) if runner.worker.alive else None
        if isinstance(reply, WorkerFailed):
            log = " ".join(reply.log.strip().splitlines()[-1:])[:160]
            if is_refusal(reply):
                return GradientResult(
                    kept=False, note=f"gradients are refused (training mode): {log}"
                )
            return GradientResult(RunFailed(reason=reply.reason, log=reply.log, case=label))
        if isinstance(seen, Trace):
            watched = check_trace(seen, policy, [label], [runner.operators(case.shape)])
            if watched is not None:
                return GradientResult(watched)
        found = {name: runner.worker.shared(ref) for name, ref in rooms.items()}
        off, allowed = _off(found, pairs, calls, ends), max(OFF, FACTOR * usual)
        if not off <= allowed:
            name, value = next(iter(found.items()))
            far = (value - eager[name]).abs().double()
            right = eager[name].double()
            return GradientResult(_refused(label, 0, value, right, far, off, allowed))
    finally:
        runner.worker.release(shared)
        memory.release()
    return GradientResult(kept=True)


def _refused_way(way: BackwardPass) -> str:
    """What was asked before was not refused."""
    if way.twice:
        return "gradients are right; gradients of gradients are refused"
    return "gradients are refused" + (f" ({way.label})" if way != SMALL[0] else "")


def _moved(reference_case: ReferenceCase, seed: int) -> tuple[ReferenceCase, ReferenceCase]:
    """The question with all that is differentiated moved a little, forth and back."""
    import copy

    def move(values: Sequence[torch.Tensor], by: float) -> list[torch.Tensor]:
        generator = torch.Generator().manual_seed(seed)
        found = []
        for item in values:
            signs = torch.randint(2, item.shape, generator=generator) * 2 - 1
            size = float(item.square().mean().sqrt()) or 1.0
            found.append(item + (by * size * signs).to(device=item.device, dtype=item.dtype))
        return found

    pair = []
    for by in (STEP, -STEP):
        model = copy.deepcopy(reference_case.model)
        wanted = [item for item in model.parameters() if item.requires_grad]
        floats = [
            x for x in reference_case.inputs if isinstance(x, torch.Tensor) and differentiable(x)
        ]
        with torch.no_grad():
            new = move([*floats, *wanted], by)
            for item, value in zip(wanted, new[len(floats) :], strict=True):
                item.copy_(value)
        left = iter(new)
        inputs = [next(left) if differentiable(item) else item for item in reference_case.inputs]
        pair.append(dataclasses.replace(reference_case, inputs=inputs, model=model))
    return pair[0], pair[1]


class SeededOutputs(NamedTuple):
    """Outputs of the original under the seed, and its gradients."""

    outputs: list[torch.Tensor | None]
    gradients: dict[str, torch.Tensor]


def _drawn(reference_case: ReferenceCase, ends: Ends) -> SeededOutputs:
    import copy

    from torch.utils._pytree import tree_leaves

    own = copy.deepcopy(reference_case.model).train()
    devices = list(range(torch.cuda.device_count())) if torch.cuda.is_available() else []
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(DRAWS)
        recorded = record_forward(own, dict(own.named_parameters()), reference_case.inputs)
    leaves = tree_leaves(recorded.result)
    outputs = [item.detach() if isinstance(item, torch.Tensor) else None for item in leaves]
    return SeededOutputs(outputs, gradients(recorded, leaves, ends))


def _off(
    found: Gradients,
    pairs: Sequence[tuple[ReferenceCase, ReferenceCase]],
    calls: Sequence[Sequence[Sequence[torch.Tensor | None]]],
    ends: Ends,
) -> float:
    """How far the derivatives along each direction are from the differences of `calls`, which are
    the outputs of each question of `pairs`; as a share of what differences of such size have by
    chance. Both are root mean squares."""
    errors, sizes = 0.0, 0.0
    for (forth, back), (up, down) in zip(pairs, calls, strict=True):
        derivative = 0.0
        values = [_named_leaves(item) for item in (forth, back)]
        for name, gradient in found.items():
            step = values[0][name].double() - values[1][name].double()
            derivative += float((gradient.double() * step).sum())
        parts = [
            (end.double() * (one.double() - other.double())).flatten()
            for end, one, other in zip(ends, up, down, strict=True)
            if end is not None and one is not None and other is not None
        ]
        differences = torch.cat(parts)
        errors += (float(differences.sum()) - derivative) ** 2
        sizes += float(differences.square().sum())
    return math.sqrt(errors / sizes) if sizes > 0 else math.inf


def _named_leaves(reference_case: ReferenceCase) -> dict[str, torch.Tensor]:
    """Inputs and parameters by the names that `record_forward` gives them."""
    named = {
        f"input {place}": item
        for place, item in enumerate(reference_case.inputs)
        if isinstance(item, torch.Tensor)
    }
    return named | {name: item.detach() for name, item in reference_case.model.named_parameters()}


def _compared(
    runner: CaseRunner,
    case: Case,
    reference_case: ReferenceCase,
    rounds: Mapping[Round, Ends],
    expected: ExpectedGradients,
    way: BackwardPass,
    policy: Policy,
) -> GradientResult:
    memory = CaseMemory(runner.worker, reference_case)
    shared: dict[str, list[TensorRef | None]] = {}
    rooms: dict[Round, dict[str, TensorRef]] = {}
    label = f"{', '.join(filter(None, (case.label, way.label)))}: the gradient"
    try:
        for name, ends in rounds.items():
            shared[name] = []
            shared[name].extend(None if x is None else runner.worker.share(x) for x in ends)
        for name, wanted in expected.eager.items():
            rooms[name] = {}
            for leaf, value in wanted.items():
                rooms[name][leaf] = runner.worker.share(torch.zeros_like(value))
        # A second call would leave its mark on what the module keeps, too.
        alone = way._replace(beside="") if reference_case.answer.after is not None else way
        more = {"ends": shared, "gradients": rooms, "way": alone._asdict()}
        reply = runner.differentiate(case, reference_case, memory, more)
        seen = drain_trace(runner.worker, runner.settings) if runner.worker.alive else None
        if isinstance(reply, WorkerFailed):
            log = " ".join(reply.log.strip().splitlines()[-1:])[:160]
            if is_refusal(reply):
                return GradientResult(kept=False, note=f"{_refused_way(way)} ({log})")
            if reply.error == OUT_OF_MEMORY:
                return GradientResult(
                    note="gradients not judged: no room for them beside the original's"
                )
            return GradientResult(RunFailed(reason=reply.reason, log=reply.log, case=label))
        outcome = runner.compare(case, reference_case, reply, memory)
        if outcome.failure is not None:
            return GradientResult(outcome.failure)
        if isinstance(seen, Trace):
            watched = check_trace(seen, policy, [label], [runner.operators(case.shape)])
            if watched is not None:
                return GradientResult(watched)
        asked = dict(rooms)
        if reply.get("refuses_changes") is True:
            asked.pop("changed", None)
        where = ", ".join(filter(None, (case.label, way.label)))
        rounding = runner.oracle_inputs.rounding
        wrong = _wrong_gradient(where, runner.worker, asked, expected, rounding)
        if wrong is not None:
            return GradientResult(wrong)
    finally:
        held = [item for ends in shared.values() for item in ends if item is not None]
        held += [ref for room in rooms.values() for ref in room.values()]
        runner.worker.release(held)
        memory.release()
    return GradientResult(kept=True)


def _wrong_gradient(
    label: str,
    worker: Worker,
    asked: Mapping[Round, Mapping[str, TensorRef]],
    expected: ExpectedGradients,
    rounding: float,
) -> Mismatch | None:
    """The first gradient of the candidate that is another than the reference's. `rounding`: the
    step to which PyTorch's flags let the operands of products be rounded, 0 where to none."""
    for name, room in asked.items():
        where = ", ".join(filter(None, (label, GIVEN[name])))
        for index, (leaf, ref) in enumerate(room.items()):
            title, found = f"{where}: the gradient of {leaf}", worker.shared(ref)
            eager, exact = expected.eager[name][leaf], expected.exact[name].get(leaf)
            if name == "infinite":
                finite = expected.finite.get(leaf)
                wrong = _swallowed(title, index, found, eager, exact, finite, rounding)
            else:
                wrong = _mismatch(title, index, found, eager, exact, rounding)
            if wrong is not None:
                return wrong
    return None


def _mismatch(
    label: str,
    index: int,
    found: torch.Tensor,
    eager: torch.Tensor,
    exact: torch.Tensor | None,
    rounding: float = 0.0,
) -> Mismatch | None:
    right = torch.zeros_like(found).double() if exact is None else exact
    # Where eager has no number either, nothing is asked: zeros stand there.
    known = right.isfinite() & eager.isfinite()
    off, eagers = found.double() - right, eager.double() - right
    if not bool(known.all()):
        right, off, eagers = (torch.where(known, item, 0.0) for item in (right, off, eagers))
    size = max(float(right.norm()), torch.finfo(found.dtype).tiny)
    error = float(off.norm()) / size
    allowed = FACTOR * float(eagers.norm()) / size
    roundings = NARROW_ROUNDINGS if found.element_size() <= 2 else ROUNDINGS
    allowed = max(allowed, roundings * torch.finfo(found.dtype).eps, PERMITTED * rounding)
    if not error <= allowed:
        far = torch.where(off.isnan(), math.inf, off.abs())
        return _refused(label, index, found, right, far, error, allowed)
    if found.element_size() > 2:
        return None
    bias = _bias(right, off, eagers, found.dtype)
    if bias.found <= bias.allowed:
        return None
    title = f"{label}, on one side"
    return _refused(title, index, found, right, off.abs(), bias.found, bias.allowed)


class Bias(NamedTuple):
    """By what share all elements are too large or too small together, and how much is allowed."""

    found: float
    allowed: float


def _bias(right: torch.Tensor, off: torch.Tensor, eagers: torch.Tensor, dtype: torch.dtype) -> Bias:
    """What errors `off` the `right` values have in common: rounding has no side but where all
    elements share a rounded number. `eagers` are eager's errors."""
    squares = right.square()
    total = float(squares.sum())
    many = total * total / max(float(squares.square().sum()), torch.finfo(torch.float64).tiny)
    if many < FEW:
        return Bias(0.0, 0.0)
    bias, eager = (abs(float((item * right).sum())) / total for item in (off, eagers))
    chance = SIGMAS * float(off.norm()) / math.sqrt(total * many)
    shared = BIASED * torch.finfo(dtype).eps / 2
    return Bias(bias, max(shared, FACTOR * eager) + chance)


def _swallowed(
    label: str,
    index: int,
    found: torch.Tensor,
    eager: torch.Tensor,
    exact: torch.Tensor | None,
    finite: torch.Tensor | None = None,
    rounding: float = 0.0,
) -> Mismatch | None:
    """Where infinities and NaN were given: those of the original have to come out, too. Where it
    has one that the fp64 gradient `exact` does not depend on, a number has to be that of `exact`:
    as near as eager's `finite` one is."""
    right = torch.zeros_like(found).double() if exact is None else exact
    if finite is not None:
        spared = ~eager.isfinite() & found.isfinite()
        numbers = torch.where(spared, right, math.nan)
        wrong = _mismatch(label, index, found, finite, numbers, rounding)
        if wrong is not None:
            return wrong
    beyond = ~(right.isfinite() | eager.isfinite())
    lost = beyond & found.isfinite()
    share = float(lost.sum()) / max(1, int(beyond.sum()))
    if share <= SWALLOWED:
        return None
    return _refused(label, index, found, right, lost.double(), share, SWALLOWED)


def _refused(
    label: str,
    index: int,
    found: torch.Tensor,
    right: torch.Tensor,
    far: torch.Tensor,
    error: float,
    allowed: float,
) -> Mismatch:
    """`far`: by how much each element is off."""
    worst = int(far.flatten().argmax()) if far.numel() else 0
    return Mismatch(
        case=label,
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
