"""One case at a size for which whole copies in fp64 have no room.

Inputs exist once, in the memory that the candidate sees; eager's output waits beside them or on
the host. The reference in fp64 is made in slices, or whole before the candidate runs and kept on
the host, or not at all; it is compared piece by piece. Checksums over the bits of the inputs
show any write to them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._pytree import tree_flatten

from agentkernel.domain.errors import one_line
from agentkernel.domain.problem import ScalarSpec, ShapeSet
from agentkernel.domain.verdict import Failure, InputsChanged, Mismatch, RunFailed
from agentkernel.runtime.machine import release_cached_memory
from agentkernel.tools.judge.cases.plan import Case, NotApplicable
from agentkernel.tools.judge.cases.values import pieces, scales
from agentkernel.tools.judge.comparison.compare import (
    ALIKE,
    CONSTANT,
    PERMITTED,
    STEPS,
    CaseOutcome,
    Comparison,
    OutputValues,
    case_result,
    check_form,
    check_state,
    compare_output,
    explain_mismatch,
    loads_outside,
    reply_strings,
)
from agentkernel.tools.judge.comparison.errors import Leeway
from agentkernel.tools.judge.execution.process_state import Checksum
from agentkernel.tools.judge.memory import MeasuredMemory, poison_buffer, release_shared
from agentkernel.tools.judge.reference.oracle import (
    Answer,
    PerturbedOracle,
    aliases_of,
    as_float64,
    in_float64,
)
from agentkernel.tools.judge.reference.oracle_inputs import (
    OracleInputs,
    ReferenceCase,
    is_finite_enough,
    raised,
)
from agentkernel.tools.judge.reference.output_pieces import (
    Piece,
    SlicedReference,
    SlicesDisagree,
    most_unlike,
)
from agentkernel.tools.judge.reference.sliced import (
    as_double,
)
from agentkernel.tools.judge.settings import JudgeSettings, rule_of
from agentkernel.tools.problem.structures import value_of
from agentkernel.tools.sandbox.protocol import JSON, WorkerFailed
from agentkernel.tools.sandbox.session import Worker
from agentkernel.tools.sandbox.tensors import TensorRef

if TYPE_CHECKING:
    from torch import nn

    from agentkernel.tools.problem.capture import Captured

Reply = dict[str, JSON] | WorkerFailed
State = Callable[[], dict[str, torch.Tensor]]
Ask = Callable[[Case, ReferenceCase, "CaseBuffers"], Reply]
"""One call of the candidate on the memory of `CaseBuffers`."""


OPS = "agentkernel.tools.judge.worker"


class CaseBuffers:
    """The inputs of one case, in memory that the worker sees, and room for its outputs."""

    def __init__(self, worker: Worker, inputs: ShapeSet, device: str) -> None:
        self._worker = worker
        self._device = device
        self._outputs: list[TensorRef | None] = []
        self._given: list[object] = []
        for spec in inputs.inputs:
            if isinstance(spec, ScalarSpec):
                self._given.append(value_of(spec.literal))
            else:
                dtype: torch.dtype = getattr(torch, spec.dtype)
                self._given.append(worker.share_room(spec.shape, dtype, device))
        self._sums = Checksum()

    def values(self) -> list[object]:
        """The inputs as forward takes them; tensors are the shared memory itself."""
        return [self._worker.shared(x) if isinstance(x, TensorRef) else x for x in self._given]

    def sums(self) -> list[int]:
        """One number for each tensor input, of all its bits."""
        tensors = [item for item in self.values() if isinstance(item, torch.Tensor)]
        return [self._sums.of(item) for item in tensors]

    def sums_of(self, model: nn.Module) -> list[int]:
        """The same of weights and buffers."""
        return [self._sums.of(item) for item in model.state_dict().values()]

    def make_outputs(self, leaves: Sequence[object], on_host: bool) -> None:
        """Room for outputs like `leaves`, full of NaN (or a sentinel)."""
        device = "cpu" if on_host else self._device
        self._outputs = [
            self._worker.share_room(tuple(leaf.shape), leaf.dtype, device)
            if isinstance(leaf, torch.Tensor)
            else None
            for leaf in leaves
        ]

    def write(self, reference_case: ReferenceCase) -> None:
        """Inputs are there already; outputs start as what nobody wrote."""
        for ref in self._outputs:
            if ref is not None:
                poison_buffer(self._worker.shared(ref))

    def payload(self, recall: bool) -> dict[str, object]:
        """What the worker is told of it."""
        views = [None] * len(self._given)
        return {"inputs": self._given, "views": views, "outputs": self._outputs, "recall": []}

    def found(self) -> list[torch.Tensor | None]:
        """The candidate's outputs."""
        return [None if ref is None else self._worker.shared(ref) for ref in self._outputs]

    def release(self) -> None:
        """Let go of all of it."""
        refs = [item for item in (*self._given, *self._outputs) if isinstance(item, TensorRef)]
        release_shared(self._worker, refs)


class LargeCase:
    """One case by the route that `held` has the plan of, which looks at the device too. `ask` calls
    the candidate."""

    def __init__(
        self,
        worker: Worker,
        oracle_inputs: OracleInputs,
        captured: Captured,
        settings: JudgeSettings,
        ask: Ask,
        held: MeasuredMemory,
    ) -> None:
        self._worker = worker
        self._asker = oracle_inputs
        self._captured = captured
        self._settings = settings
        self._plan = held.plan
        self._ask = ask
        self._held = held
        self._graphed = True

    def run(self, case: Case, state: State) -> CaseOutcome | NotApplicable:
        """The candidate's outcome; `state` gives the weights as it shares them, which are another
        module's until the call."""
        if self._plan.route == "none":
            return self._too_large(self._plan.label)
        if case.layout != "contiguous":
            return NotApplicable(f"{case.layout} inputs are not asked at this size")
        try:
            try:
                self._asker.prepare(case)
            except torch.OutOfMemoryError:
                raise
            except Exception as error:  # noqa: BLE001 - the user's get_inputs may raise anything
                return raised(error)
            rooms = CaseBuffers(self._worker, case.shape.inputs, self._settings.device)
            try:
                return self._judged(case, rooms, state)
            finally:
                rooms.release()
        except (torch.OutOfMemoryError, MemoryError) as error:
            release_cached_memory(self._settings.device)
            return self._too_large(f"{one_line(error, 120)}; {self._plan.label}")
        except SlicesDisagree as error:
            self._asker.note(f"at {case.shape.label}: {error}; compared with eager instead")
            self._plan = dataclasses.replace(self._plan, route="eager", slicing=None)
            return self.run(case, state)

    def _too_large(self, reason: str) -> NotApplicable:
        return NotApplicable(reason, out_of_memory=True)

    def _judged(self, case: Case, rooms: CaseBuffers, state: State) -> CaseOutcome | NotApplicable:
        model = self._asker.model(case.seed).train(case.training)
        with self._held.stage("eager"):
            eager = self._first_answer(case, rooms, model)
        if isinstance(eager, NotApplicable):
            return eager
        sums = rooms.sums()
        # The captured graph is that of eval mode: it answers for training too where both modes
        # give the same bits.
        self._graphed = not case.training or eager.is_repeated(
            model.eval(), rooms.values(), bits=True
        )
        model.train(case.training)
        with self._held.stage("oracle"):
            kept = self._offloaded(case, model, rooms)
        rooms.make_outputs(eager.forms, self._plan.found_on_host)
        # An answer and the functions that hold it refer to each other.
        release_cached_memory(self._settings.device)
        answer = eager.answer(model, rooms.values(), case.training)
        reference_case = ReferenceCase(rooms.values(), model, answer)
        with self._held.stage("candidate"):
            reply = self._ask(case, reference_case, rooms)
        if isinstance(reply, WorkerFailed):
            return CaseOutcome((), (), None, reply)
        self._worker.call(f"{OPS}:rest", {}, self._settings.time_limit_s)
        with self._held.stage("compare"):
            outcome = self._compared(case, reference_case, rooms, eager, reply, kept)
        if outcome.failure is None and outcome.outside:
            log = outcome.outside
            return outcome.failed(RunFailed(reason="out_of_bounds", log=log, case=case.label))
        changed = self._changed(case, rooms, sums) or check_state(
            case, answer, state(), self._settings.precision
        )
        return outcome if changed is None else outcome.failed(changed)

    def _first_answer(
        self, case: Case, rooms: CaseBuffers, model: nn.Module
    ) -> EagerOutputs | NotApplicable:
        """Eager's outputs for the first distribution and scale that give finite values."""
        names = [case.distribution, *(["own"] if case.distribution == "normal" else [])]
        for name in names:
            for scale in scales(name, case.shape.inputs):  # type: ignore[arg-type]
                try:
                    self._asker.fill(rooms.values(), case, name, scale)  # type: ignore[arg-type]
                    before = (rooms.sums(), rooms.sums_of(model))
                    found = EagerOutputs.of(model, rooms.values(), self._plan.eager_on_host)
                except torch.OutOfMemoryError:
                    raise
                except Exception as error:  # noqa: BLE001 - the user's code may raise anything
                    return raised(error)
                if (rooms.sums(), rooms.sums_of(model)) != before:
                    return self._too_large(
                        "the reference writes to its inputs or its state, which is judged at "
                        "smaller sizes alone"
                    )
                if case.training and not found.is_repeated(model, rooms.values()):
                    return NotApplicable("training mode is random: not judged at this size")
                if is_finite_enough(found.finite_share(), case.distribution):
                    return found
        return NotApplicable("the reference gives no finite values")

    def _offloaded(self, case: Case, model: nn.Module, rooms: CaseBuffers) -> list[object] | None:
        """The whole answer in fp64, on the host, where that is the route."""
        if self._plan.route != "offload" or not self._graphed:
            return None
        double = as_float64(model)
        wide = [as_double(x, "", 0) if isinstance(x, torch.Tensor) else x for x in rooms.values()]
        with torch.no_grad(), in_float64():
            leaves, _ = tree_flatten(double(*wide))
        return [leaf.cpu() if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]

    def _compared(
        self,
        case: Case,
        reference_case: ReferenceCase,
        rooms: CaseBuffers,
        eager: EagerOutputs,
        reply: dict[str, JSON],
        kept: list[object] | None,
    ) -> CaseOutcome:
        launches = reply_strings(reply.get("launches"))
        wrong = check_form(case, reference_case.answer, reply)
        if wrong is not None:
            return CaseOutcome((), launches, wrong, outside=loads_outside(reply))
        compared: list[Comparison] = []
        mismatch: Mismatch | None = None
        for piece in self._pieces(reference_case.model, rooms, eager, kept):
            found = self._compare(case, piece)
            values = piece.values
            if values.oracle is not None and found.eager.norm > most_unlike(values.eager):
                raise SlicesDisagree(
                    f"fp64 and eager differ by {found.eager.norm:.1e} in output {piece.output}"
                )
            compared.append(found)
            if found.mismatch is not None:
                mismatch = _placed(found.mismatch, piece)
                break
        result = case_result(case, compared, mismatch is None)
        failure = explain_mismatch(mismatch, case, reply)
        permitted = next((item.permitted for item in compared if item.permitted), "")
        products = reply_strings(reply.get("products"))
        return CaseOutcome(
            (result,), launches, failure, None, permitted, products, loads_outside(reply)
        )

    def _compare(self, case: Case, piece: Piece) -> Comparison:
        leeway = Leeway(
            perturb=piece.perturb,
            honest=piece.honest,
            permitted=piece.permitted,
            permits=PERMITTED,
            further=piece.further,
            permitted_further=piece.permitted_further,
            columns=case.distribution in ALIKE and not case.after,
            constant=case.distribution in CONSTANT,
        )
        precision = self._settings.precision
        return compare_output(case.label, piece.output, piece.values, precision, leeway)

    def _pieces(
        self,
        model: nn.Module,
        rooms: CaseBuffers,
        eager: EagerOutputs,
        kept: list[object] | None,
    ) -> Iterator[Piece]:
        if self._plan.route == "slices" and self._graphed:
            rounds = self._asker.permitted
            honest = rule_of(self._settings.rule).honest
            reference = SlicedReference(
                self._captured, self._plan, model, rooms.values(), rounds, honest
            )
            step = max(STEPS[self._settings.precision], self._asker.rounding)
            yield from reference.pieces(eager.values, rooms.found(), step)
            return
        device = torch.device(self._settings.device)
        for index, (value, found) in enumerate(zip(eager.values, rooms.found(), strict=True)):
            if not isinstance(value, torch.Tensor) or found is None:
                continue
            whole = None if kept is None else cast("torch.Tensor", kept[index])
            for start, parts in _together(value, found, whole):
                mine, theirs, wide = (x if x is None else x.to(device) for x in parts)
                assert mine is not None
                assert theirs is not None
                floating = mine.is_floating_point()
                oracle = (mine if wide is None else wide).double() if floating else None
                exact = None if floating else wide
                offset = tuple(start * (dim == 0) for dim in range(mine.ndim))
                values = OutputValues(theirs, mine, oracle, exact, no_oracle=wide is None)
                yield Piece(index, values, offset)

    def _changed(self, case: Case, rooms: CaseBuffers, sums: Sequence[int]) -> Failure | None:
        names = [spec.name for spec in case.shape.inputs.tensors]
        for name, before, after in zip(names, sums, rooms.sums(), strict=True):
            if before != after:
                return InputsChanged(case=case.label, name=name)
        return None


@dataclass(frozen=True)
class EagerOutputs:
    """Eager's outputs: `values` where they wait, `forms` as they came, without storage."""

    values: list[object]
    forms: list[object]
    spec: object
    aliases: tuple[bool, ...]

    @classmethod
    def of(cls, model: nn.Module, inputs: Sequence[object], on_host: bool) -> EagerOutputs:
        """One call. Outputs that lie in an input are read there."""
        with torch.no_grad():
            leaves, spec = tree_flatten(model(*inputs))
        aliases = aliases_of(leaves, [*inputs, *model.state_dict().values()])
        fakes = FakeTensorMode()
        forms = [_form(leaf, fakes) for leaf in leaves]
        values = [x.cpu() if on_host and isinstance(x, torch.Tensor) else x for x in leaves]
        return cls(values, forms, spec, aliases)

    def is_repeated(self, model: nn.Module, inputs: Sequence[object], bits: bool = False) -> bool:
        """Whether another call gives the same, but for rounding; `bits`: without that too."""
        again = EagerOutputs.of(model, inputs, on_host=False)
        rtol, atol = (0.0, 0.0) if bits else (1e-2, 1e-3)
        for one, other in zip(self.values, again.values, strict=True):
            if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
                close = (
                    torch.allclose(a.to(b.device), b, rtol=rtol, atol=atol, equal_nan=True)
                    for a, b in zip(pieces(one), pieces(other), strict=True)
                )
                if not all(close):
                    return False
        return True

    def finite_share(self) -> float:
        """Of the floating outputs' elements."""
        finite = total = 0
        for value in self.values:
            if isinstance(value, torch.Tensor) and value.is_floating_point():
                finite += sum(int(piece.isfinite().sum()) for piece in pieces(value))
                total += value.numel()
        return finite / total if total else 1.0

    def answer(self, model: nn.Module, inputs: Sequence[object], training: bool) -> Answer:
        """As the checks of form and state read it."""
        nothing: list[torch.Tensor | None] = [None] * len(self.forms)
        return Answer(
            leaves=self.forms,
            spec=self.spec,  # type: ignore[arg-type]
            oracle=nothing,
            aliases=self.aliases,
            inputs_after=list(inputs),
            wrote_inputs=frozenset(),
            state_after={name: value.detach() for name, value in model.state_dict().items()},
            wrote_state=frozenset(),
            state_oracle={},
            perturbed=PerturbedOracle(model, inputs, training),
            exact=nothing,
            strides_elsewhere=lambda: [None] * len(self.forms),
        )


def _together(
    value: torch.Tensor, found: torch.Tensor, whole: torch.Tensor | None
) -> Iterator[tuple[int, tuple[torch.Tensor | None, ...]]]:
    """The same pieces of each, with where they begin in the first dimension."""
    start = 0
    others = pieces(whole) if whole is not None else iter(lambda: None, 0)
    for mine, theirs, wide in zip(pieces(value), pieces(found), others, strict=False):
        yield start, (mine, theirs, wide)
        start += mine.shape[0] if mine.ndim else 0


def _placed(mismatch: Mismatch, piece: Piece) -> Mismatch:
    """The first wrong element, counted in the whole output."""
    first = mismatch.first_index
    first = (0,) * (len(piece.offset) - len(first)) + first
    where = tuple(a + b for a, b in zip(first, piece.offset, strict=True))
    return mismatch.evolve(first_index=where)


def _form(leaf: object, fakes: FakeTensorMode) -> object:
    if not isinstance(leaf, torch.Tensor):
        return leaf
    with fakes:
        return torch.empty_strided(leaf.shape, leaf.stride(), dtype=leaf.dtype, device=leaf.device)
