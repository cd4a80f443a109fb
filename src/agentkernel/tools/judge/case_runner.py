"""One case of a candidate: fresh inputs in, outputs in the parent's buffers, then comparison."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, cast

import torch

from agentkernel.domain.base import sha256_text
from agentkernel.domain.errors import ProblemError, one_line
from agentkernel.domain.problem import ScalarSpec, ShapeSet
from agentkernel.domain.verdict import (
    ExecutionFailed,
    Failure,
    InputsChanged,
    LoadFailed,
    RunFailed,
)
from agentkernel.runtime.machine import release_cached_memory
from agentkernel.storage.source_text import read_literal
from agentkernel.tools.judge.cases.edge_inputs import casts_to_integers
from agentkernel.tools.judge.cases.layouts import whole
from agentkernel.tools.judge.cases.plan import WORDS, Case, FollowUp, NotApplicable
from agentkernel.tools.judge.cases.shapes import CaseShape, capture_covers
from agentkernel.tools.judge.comparison.compare import (
    CaseOutcome,
    check_outputs,
    check_state,
    same_bits,
)
from agentkernel.tools.judge.comparison.state import HiddenState, find_hidden
from agentkernel.tools.judge.execution.graph_operators import graph_operators
from agentkernel.tools.judge.execution.launches import ROUNDED
from agentkernel.tools.judge.large_case import CaseBuffers, LargeCase
from agentkernel.tools.judge.memory import (
    CaseMemory,
    MeasuredMemory,
    MemoryPlan,
    free_memory_on,
    free_memory_reader,
    plan_memory,
)
from agentkernel.tools.judge.memory_count import NOT_COUNTED
from agentkernel.tools.judge.observations import Observations
from agentkernel.tools.judge.pace import Pace
from agentkernel.tools.judge.policy.families import GraphOperators
from agentkernel.tools.judge.reference.oracle_inputs import (
    OracleInputs,
    ReferenceCase,
    held_bytes,
)
from agentkernel.tools.judge.replies import (
    compare_roles,
    compare_states,
    is_refusal,
    load_failure,
    run_failure,
)
from agentkernel.tools.judge.settings import JudgeSettings, rule_of
from agentkernel.tools.judge.worker import parameter_roles
from agentkernel.tools.problem.loading import LoadedProblem
from agentkernel.tools.sandbox.protocol import JSON, WorkerFailed
from agentkernel.tools.sandbox.session import Worker
from agentkernel.tools.sandbox.tensors import TensorRef

if TYPE_CHECKING:
    from torch import nn

    from agentkernel.tools.problem.capture import Captured

OPS = "agentkernel.tools.judge.worker"
SECOND_BYTES = 256 << 20
"""Weights and buffers of so many bytes at most lie there twice, for a second module."""
FOLLOW_UP_BYTES = 4 << 30
"""Outputs past this size are asked for once."""
KEPT = 8
"""Where memory ran out, so many parts are kept back, one by one, for what no plan counts."""
RELEASED = 8
"""After so many calls their outputs are let go of."""
REMEMBERED_BYTES = {"cpu": 256 << 20, "cuda": 64 << 20}
"""Of weights, inputs and outputs; what else is kept with an answer is a few times its outputs."""
MOST_REMEMBERED = 8
LOSSY = "lossy-product"
THROW_AWAY_SEED = 20_231


class CaseRunner:
    """One candidate in one worker. `repeatable` gets False where the same call gave other bits;
    `observed` gathers what its calls show together; `refused` has the numbers of those that it
    refused to record gradients of, `asked` what the original's graph calls at the sizes of each.
    `pace` is told how long its calls take. `inference`: calls are made, and their inputs come,
    under torch.inference_mode(). `eager_only`: values are compared with eager's alone."""

    def __init__(
        self,
        worker: Worker,
        loaded: LoadedProblem,
        captured: Captured,
        settings: JudgeSettings,
        notes: list[str],
        pace: Pace | None = None,
        eager_only: bool = False,
    ) -> None:
        self._captured = captured
        self._operators: dict[str, GraphOperators] = {}
        self.asked: list[GraphOperators] = []
        self._room = free_memory_on(settings.device, settings.device_bytes)
        self._free = free_memory_reader(settings.device)
        self._before = self._free() if self._free else 0
        self._plans: dict[str, MemoryPlan] = {}
        self._held: dict[str, MeasuredMemory] = {}
        self.worker = worker
        self.loaded = loaded
        self.settings = settings
        self.oracle_inputs = OracleInputs(loaded, captured, settings, notes, eager_only)
        self._states: list[dict[str, TensorRef]] = [{}]
        self.inference = False
        self._turn = 0
        self._hidden: dict[bool, HiddenState] = {}
        self._looked_at: set[str] = set()
        self.repeatable: bool | None = None
        self.observed = Observations()
        self.refused: set[int] = set()
        self._calls = 0
        self._remembered: dict[Case, ReferenceCase] | None = None
        self._pace = Pace() if pace is None else pace

    def build(self, source: str) -> Failure | None:
        """Build `ModelNew`: the same seed must give the same weights, names, shapes and dtypes."""
        self.oracle_inputs.read(source)
        live = self.loaded.live is not None
        expected = self.loaded.build(seed=THROW_AWAY_SEED, device=self.settings.device)
        wanted = {name: value.detach() for name, value in expected.state_dict().items()}
        initial = {
            name: self.worker.share(torch.zeros_like(value)) for name, value in wanted.items()
        }
        reply = self._call(
            "build",
            {
                "source": source,
                "init_args": self.loaded.init_args,
                "init_kwargs": self.loaded.init_kwargs,
                "arguments": self.loaded.problem.arguments,
                "seed": THROW_AWAY_SEED,
                "leftovers": int(sha256_text(f"{self.settings.seed} leftovers")[:12], 16),
                "initial": initial,
                "unnamed_dot_allowed": self.settings.precision == "tf32",
                "casts_as_here": casts_to_integers(self._captured),
            },
        )
        if isinstance(reply, WorkerFailed):
            return load_failure(reply)
        found = {name: self.worker.shared(ref) for name, ref in initial.items()}
        problem = compare_states(wanted, found, reply.get("state"), check_values=not live)
        self.worker.release(list(initial.values()))
        problem = problem or compare_roles(parameter_roles(expected), reply.get("parameters"))
        return LoadFailed(log=problem) if problem else self._adopt()

    def _adopt(self) -> LoadFailed | None:
        state = self.oracle_inputs.base.state_dict()
        self._states[0] = self._shared(state)
        reply = self._call("adopt", {"state": self._state})
        return LoadFailed(log=reply.log) if isinstance(reply, WorkerFailed) else None

    def _shared(self, state: Mapping[str, torch.Tensor]) -> dict[str, TensorRef]:
        return {name: self.worker.share(value.detach()) for name, value in state.items()}

    @property
    def _state(self) -> dict[str, TensorRef]:
        """What lies behind the weights and buffers of the module whose turn it is."""
        return self._states[self._turn]

    @property
    def turns(self) -> bool | None:
        """Whether a second module is asked too; None where it would be the first one again."""
        size = sum(ref.nbytes for ref in self._states[0].values())
        return size <= SECOND_BYTES if size else None

    def _turn_to(self, case: Case) -> dict[str, object] | None:
        """Make it the turn of the module that `case` asks for: the first one, or a second one of
        the same class. What the worker is to be told; None where nothing changes."""
        before, self._turn = self._turn, int(case.module == "second")
        new = self._turn == len(self._states)
        if new:
            self._states.append(self._shared(self.oracle_inputs.base.state_dict()))
        built, replaced = case.module == "rebuilt", case.module == "replaced"
        if self._turn == before and not (built or replaced):
            return None
        if replaced and not new:
            # In memory of their own: what was kept of the old ones holds the old values.
            self.worker.release(list(self._state.values()))
            self._states[self._turn] = self._shared(self.oracle_inputs.base.state_dict())
        state = self._state if new or replaced else None
        told: dict[str, object] = {"from": before, "to": self._turn, "state": state}
        return told | {"built": built, "replaced": replaced}

    def run(self, case: Case, follow_ups: bool = False) -> CaseOutcome | NotApplicable:
        """Ask, compare, and look whether anything was written to that should not have been; with
        `follow_ups` the case's further calls on the same memory too."""
        plan = self.plan(case.shape)
        if plan is not None and plan.route != "whole":
            return self._run_large(case, plan)
        try:
            if plan is None:
                return self._run_whole(case, follow_ups)
            with self.held(case.shape, plan).stage(plan.peak.name):
                return self._run_whole(case, follow_ups and plan.again)
        except torch.OutOfMemoryError as error:
            figures = "" if plan is None else f"; {plan.label}"
            reason = f"{one_line(error, 120)}{figures}"
        forgotten = self._forget()
        release_cached_memory(self.settings.device)
        if forgotten or (plan is not None and self._tighter(case.shape, plan)):
            return self.run(case, follow_ups)
        return NotApplicable(reason, out_of_memory=True)

    def _run_whole(self, case: Case, follow_ups: bool) -> CaseOutcome | NotApplicable:
        reference_case = self._reference(case)
        if isinstance(reference_case, NotApplicable):
            return reference_case
        leaves = reference_case.answer.leaves
        if case.shape.origin == "odd" and not capture_covers(
            self._captured, case.shape.inputs, leaves
        ):
            return NotApplicable("outside of what the captured graph covers")
        follow_ups = follow_ups and bool(case.follow_ups) and _bytes(leaves) <= FOLLOW_UP_BYTES
        memory = CaseMemory(self.worker, reference_case, recalls=follow_ups)
        try:
            outcome = self._ask_as_far(case, reference_case, memory)
            for follow_up in case.follow_ups if follow_ups else ():
                if outcome.failure is not None:
                    break
                following = self.oracle_inputs.follow(case, reference_case, follow_up)
                if following is not None:
                    outcome = self._follow_up(case, follow_up, following, memory, outcome)
                    reference_case = following
            return outcome
        finally:
            memory.release()

    @contextlib.contextmanager
    def remembering(self) -> Iterator[None]:
        """Inside, the reference is asked once for cases that are asked again and again, as where
        one kernel after the other does nothing, and where its answer is small."""
        self._remembered = {}
        try:
            yield
        finally:
            self._remembered = None

    def _forget(self) -> bool:
        """Let go of what is remembered; whether there was anything."""
        held = bool(self._remembered)
        if self._remembered:
            self._remembered.clear()
        return held

    def _reference(self, case: Case) -> ReferenceCase | NotApplicable:
        known = self._remembered
        if known is not None and case in known:
            return known[case]
        found = self.oracle_inputs.ask(case)
        if isinstance(found, NotApplicable) and found.out_of_memory and self._forget():
            release_cached_memory(self.settings.device)
            found = self.oracle_inputs.ask(case)
        if known is not None and isinstance(found, ReferenceCase):
            # The module, and its weights as the call left them.
            size = 2 * held_bytes(found.model) + _bytes(found.inputs) + _bytes(found.answer.leaves)
            most = REMEMBERED_BYTES[self.settings.device]
            few = self.settings.device_bytes is None and size <= most
            if few and len(known) < MOST_REMEMBERED:
                known[case] = found
        return found

    def plan(self, shape: CaseShape) -> MemoryPlan | None:
        """How a case of this shape is judged; None where memory is not short, or where it is not
        known what the call holds."""
        if self._room is None:
            return None
        if shape.label not in self._plans:
            with contextlib.suppress(*NOT_COUNTED):
                self._plans[shape.label] = plan_memory(
                    self._captured, shape.inputs, self._room, self._meta
                )
        return self._plans.get(shape.label)

    def _tighter(self, shape: CaseShape, plan: MemoryPlan) -> bool:
        """Plan anew, with more kept back, where memory ran out: False where nothing changes."""
        found = plan
        while found.route != "none" and found.placing == plan.placing:
            reserve = found.room.reserve + plan.room.free // KEPT
            room = dataclasses.replace(plan.room, reserve=reserve)
            found = plan_memory(self._captured, shape.inputs, room, self._meta)
        if found.route == "none":
            return False
        self._plans[shape.label] = found
        self._held.pop(shape.label, None)
        return True

    def held(self, shape: CaseShape, plan: MemoryPlan) -> MeasuredMemory:
        """What the cases of this shape hold of the device, against the plan."""
        if shape.label not in self._held:
            self._held[shape.label] = MeasuredMemory(plan, self._free, self._before)
        return self._held[shape.label]

    def memory_notes(self) -> list[str]:
        """For each shape worth it, what its stages held at most beside what the plan says."""
        told = ((label, held.text) for label, held in self._held.items())
        return [f"device memory at {label}: {text}" for label, text in told if text]

    def operators(self, shape: CaseShape) -> GraphOperators:
        """What the original's graph calls at this shape, where the policy asks for it."""
        if self.settings.policy != "mixed":
            return GraphOperators()
        if shape.label not in self._operators:
            self._operators[shape.label] = graph_operators(self._captured, shape.inputs)
        return self._operators[shape.label]

    def fits(self, shape: CaseShape) -> bool:
        """Whether a case of this shape is judged with whole tensors in fp64."""
        plan = self.plan(shape)
        return plan is None or plan.route == "whole"

    def differentiates(self, shape: CaseShape) -> bool:
        """Whether there is room for the gradients of all sides at this shape."""
        plan = self.plan(shape)
        return plan is None or plan.differentiates

    @functools.cached_property
    def _meta(self) -> nn.Module | None:
        """The original on the meta device; None where its constructor does not run there."""
        try:
            return self.loaded.build(seed=0, device="meta")
        except (ProblemError, NotImplementedError, RuntimeError):
            return None

    def _run_large(self, case: Case, plan: MemoryPlan) -> CaseOutcome | NotApplicable:
        large = LargeCase(
            self.worker,
            self.oracle_inputs,
            self._captured,
            self.settings,
            self.call,
            self.held(case.shape, plan),
        )
        outcome = large.run(case, self.seen_state)
        if isinstance(outcome, NotApplicable) or outcome.refused is None:
            return outcome
        failure = run_failure(outcome.refused, case.label)
        if outcome.refused.error == "OutOfMemoryError" and isinstance(failure, RunFailed):
            if self._tighter(case.shape, plan):
                self._call("rest", {})
                return self.run(case)
            log = f"{failure.log}\nthe original's call fits: {plan.label}"
            failure = failure.evolve(reason="memory", log=log)
        return dataclasses.replace(outcome, failure=failure)

    def _follow_up(
        self,
        case: Case,
        follow_up: FollowUp,
        reference_case: ReferenceCase,
        memory: CaseMemory,
        before: CaseOutcome,
    ) -> CaseOutcome:
        """One more call; what the call before returned must not change with it."""
        kept = memory.results()
        again = self._ask_as_far(case.followed_up(follow_up), reference_case, memory, recall=True)
        outcome = dataclasses.replace(
            before, results=(*before.results, *again.results), failure=again.failure
        )
        if outcome.failure is not None:
            return outcome
        if not any(reference_case.answer.aliases) and not _alike(kept, memory.recalled()):
            log = "an output of the call before changed when forward was called again"
            failed = RunFailed(reason="raised", log=log, case=case.followed_up(follow_up).label)
            return dataclasses.replace(outcome, failure=failed)
        if follow_up.change == "again":
            self.repeatable = _alike(kept, memory.results()) and self.repeatable is not False
        return outcome

    def _ask_as_far(
        self, case: Case, reference_case: ReferenceCase, memory: CaseMemory, recall: bool = False
    ) -> CaseOutcome:
        """`ask_candidate`; what the candidate refuses with gradients on, on tensors of a kind that
        makes no difference, or in training mode where that is the same to the original, once more
        without: it may record none, or be good for eval mode alone."""
        outcome = self.ask_candidate(case, reference_case, memory, recall)
        no = outcome.refused
        same = case.training and case.after == WORDS["training"]
        if not (case.gradients or case.kind or same) or no is None or not is_refusal(no):
            return outcome
        self.refused.add(self._calls - 1)
        training = case.training and not same
        plain = dataclasses.replace(case, gradients=False, kind="", training=training)
        return self.ask_candidate(plain, reference_case, memory, recall)

    def ask_candidate(
        self, case: Case, reference_case: ReferenceCase, memory: CaseMemory, recall: bool = False
    ) -> CaseOutcome:
        """`call`, and what is wrong with its outputs."""
        wrong = self._check_initial(case, reference_case)
        if wrong is not None:
            return CaseOutcome((), (), wrong)
        reply = self.call(case, reference_case, memory, recall)
        if isinstance(reply, WorkerFailed):
            return CaseOutcome((), (), run_failure(reply, case.label), reply)
        return self.compare(case, reference_case, reply, memory)

    def compare(
        self, case: Case, reference_case: ReferenceCase, reply: dict[str, JSON], memory: CaseMemory
    ) -> CaseOutcome:
        """What is wrong with the outputs, inputs and weights that a call has left."""
        precision = self.settings.precision
        self.observed.note_values(reference_case.answer.leaves)
        self.observed.note_writes(case, reference_case, reply)
        outcome = check_outputs(case, reference_case.answer, reply, memory.found(), precision)
        if outcome.failure is not None:
            return outcome
        if outcome.outside:
            log = outcome.outside
            return outcome.failed(RunFailed(reason="out_of_bounds", log=log, case=case.label))
        self.observed.races += outcome.races
        renamed = [name for name in outcome.launches if not name.isidentifier()]
        if renamed:
            text = f"a kernel gave itself the name {renamed[0]}"
            return outcome.failed(ExecutionFailed(rule="global-state", text=text, case=case.label))
        lossy = self._lossy(case, outcome, reference_case.answer.leaves)
        if lossy is not None:
            return outcome.failed(lossy)
        changed = self.changed(case, reference_case, memory)
        hidden, after = self._hidden_state(case, reference_case), reference_case.answer.after
        if changed is None and hidden is not None:
            exact = reference_case.answer.exact_after
            changed = hidden.check(
                case.label, after or reference_case.model, exact, reply, precision
            )
        return outcome if changed is None else outcome.failed(changed)

    def _lossy(
        self, case: Case, outcome: CaseOutcome, leaves: Sequence[object]
    ) -> ExecutionFailed | None:
        """A product that loses precision by its types, which no error need show: fp32 operands
        rounded where a result is fp32 and PyTorch's flags do not permit it, or a narrow sum."""
        rule = rule_of(self.settings.rule)
        if self.settings.precision != "strict" or not rule.products:
            return None
        wide = (torch.float32, torch.float64)
        narrow = not any(isinstance(x, torch.Tensor) and x.dtype in wide for x in leaves)
        for text in outcome.products:
            if ROUNDED not in text or not (narrow or self.oracle_inputs.permitted):
                return ExecutionFailed(rule=LOSSY, text=text, case=case.label)
        return None

    def call(
        self,
        case: Case,
        reference_case: ReferenceCase,
        memory: CaseMemory | CaseBuffers,
        recall: bool = False,
    ) -> dict[str, JSON] | WorkerFailed:
        """One call with `reference_case`'s inputs and weights, from `memory`, where its outputs
        are."""
        self._calls += 1
        self.asked.append(self.operators(case.shape))
        memory.write(reference_case)
        moved = self._prepare(case, reference_case.model)
        if isinstance(moved, WorkerFailed):
            return moved
        payload = memory.payload(recall) | {
            "order": case.order,
            "training": case.training,
            "gradients": case.gradients,
            "kind": case.kind,
            "inference": self.inference,
            "release": self._calls % RELEASED == 0 and _keeps_nothing(reference_case),
            "moved": moved,
            "draws": case.draws,
            "default": case.default,
        }
        hidden = self._hidden_state(case, reference_case)
        payload |= {} if hidden is None else hidden.payload(reference_case)
        began = time.monotonic()
        reply = self._call("run", payload)
        if not isinstance(reply, WorkerFailed):
            self._pace.note(case.shape, time.monotonic() - began)
        return reply

    def _prepare(self, case: Case, model: nn.Module) -> bool | WorkerFailed:
        """Make it the turn of the module that `case` asks for, in the state of `model`: whether
        somebody has written to its weights since the call before."""
        turn = self._turn_to(case)
        moved = self._write_state(model)
        if turn is not None:
            reply = self._call("turn", turn)
            if isinstance(reply, WorkerFailed):
                return reply
            moved &= turn["state"] is None and not (turn["built"] or turn["replaced"])
        return moved

    def disturb(self, inputs: ShapeSet) -> None:
        """Calls that hardly any module takes: with tensors without dimensions in the places of
        `inputs`, then with nothing in them. Whatever comes of them is no answer."""
        kinds = [None if isinstance(x, ScalarSpec) else x.dtype for x in inputs.inputs]
        scalars = [
            read_literal(x.literal) if isinstance(x, ScalarSpec) else None for x in inputs.inputs
        ]
        self._call("disturb", {"kinds": kinds, "scalars": scalars})

    def ask_method(self, case: Case, model: nn.Module, name: str) -> dict[str, JSON] | WorkerFailed:
        """Call the method `name`, with nothing, from the state of `model`."""
        prepared = self._prepare(case, model)
        if isinstance(prepared, WorkerFailed):
            return prepared
        return self._call("method", {"name": name})

    def differentiate(
        self,
        case: Case,
        reference_case: ReferenceCase,
        memory: CaseMemory,
        more: Mapping[str, object],
    ) -> dict[str, JSON] | WorkerFailed:
        """Gradients of one call on `reference_case`, into the buffers that `more` names."""
        memory.write(reference_case)
        prepared = self._prepare(case, reference_case.model)
        if isinstance(prepared, WorkerFailed):
            return prepared
        payload = memory.payload(recall=False) | dict(more)
        payload |= {"order": case.order, "training": case.training, "draws": case.draws}
        hidden = self._hidden_state(case, reference_case)
        payload |= {} if hidden is None else hidden.payload(reference_case)
        return self._call("differentiate", payload)

    def _hidden_state(self, case: Case, reference_case: ReferenceCase) -> HiddenState | None:
        """The state that no state dict shows, from the first call on that moves any, in eval or in
        training mode."""
        mode = case.training
        if mode not in self._hidden and reference_case.answer.after is not None:
            plain = dataclasses.replace(case, distribution="normal", layout="contiguous")
            known = set(self._state)
            buffers = [name for name in self._captured.mutated_buffers if name not in known]
            names = find_hidden(self.oracle_inputs, plain, () if mode else buffers)
            self._hidden[mode] = HiddenState(self.worker, names)
        found = self._hidden.get(mode)
        return found if found is not None and found.names else None

    def _check_initial(self, case: Case, reference_case: ReferenceCase) -> Failure | None:
        """Once: the constructor of the candidate must leave the same hidden state."""
        hidden = self._hidden_state(case, reference_case)
        fresh = set(() if hidden is None else hidden.names) - self._looked_at
        if not fresh or self.loaded.live is not None:
            return None
        self._looked_at |= fresh
        expected = self.loaded.build(seed=THROW_AWAY_SEED, device=self.settings.device)
        initial = HiddenState(self.worker, sorted(fresh))
        reply = self._call("look", initial.room_for(expected))
        if isinstance(reply, WorkerFailed):
            return run_failure(reply, case.label)
        label, precision = "as the constructor leaves it", self.settings.precision
        failure = initial.check(label, expected, None, reply, precision)
        initial.release()
        return failure

    def _write_state(self, model: nn.Module) -> bool:
        """Bring the shared weights to those of `model`; True where that changed any."""
        changed = False
        for name, value in model.state_dict().items():
            shared = self.worker.shared(self._state[name])
            if not same_bits(shared, value):
                shared.copy_(value)
                changed = True
        return changed

    def changed(
        self, case: Case, reference_case: ReferenceCase, memory: CaseMemory
    ) -> Failure | None:
        """What is wrong with the inputs and the state dict that a call has left."""
        answer = reference_case.answer
        names = [spec.name for spec in case.shape.inputs.inputs]
        for position, flat in memory.storages():
            after = cast("torch.Tensor", answer.inputs_after[position])
            if same_bits(flat, whole(after)):
                continue
            close = position in answer.wrote_inputs and torch_close(flat, whole(after))
            if not close:
                return InputsChanged(case=case.label, name=names[position])
        return check_state(case, answer, self.seen_state(), self.settings.precision)

    def seen_state(self) -> dict[str, torch.Tensor]:
        """Weights and buffers of the module whose turn it is, as the worker has them."""
        return {name: self.worker.shared(ref) for name, ref in self._state.items()}

    def _call(self, op: str, payload: Mapping[str, object]) -> dict[str, JSON] | WorkerFailed:
        return self.worker.call(f"{OPS}:{op}", payload, self.settings.time_limit_s)


def _keeps_nothing(reference_case: ReferenceCase) -> bool:
    """Whether the original holds no output after its call, in its state or as an alias."""
    return reference_case.answer.after is None and not any(reference_case.answer.aliases)


def _bytes(leaves: Sequence[object]) -> int:
    return sum(int(getattr(leaf, "nbytes", 0)) for leaf in leaves)


def torch_close(value: torch.Tensor, after: torch.Tensor) -> bool:
    """Close to what the reference wrote."""
    if not value.dtype.is_floating_point:
        return False
    return bool(torch.allclose(value, after, rtol=1e-3, atol=1e-5, equal_nan=True))


def _alike(one: Sequence[torch.Tensor | None], other: Sequence[torch.Tensor | None]) -> bool:
    pairs = zip(one, other, strict=True)
    return all(a is None or b is None or same_bits(a, b) for a, b in pairs)
