"""How is a candidate put through one case? Fresh inputs in, outputs in the parent's buffers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from agentkernel.domain.verdict import (
    CompileFailed,
    Failure,
    InputsChanged,
    LoadFailed,
    RunFailed,
)
from agentkernel.tools.judge.cases import Case
from agentkernel.tools.judge.envelope import covered
from agentkernel.tools.judge.finding import Outcome, check_outputs
from agentkernel.tools.judge.settings import JudgeSettings
from agentkernel.tools.judge.values import Sampler, randomise_state, scales, strided, tensors_of
from agentkernel.tools.problems import LoadedProblem
from agentkernel.tools.sandbox.protocol import JSON
from agentkernel.tools.sandbox.session import Worker, WorkerFailed
from agentkernel.tools.sandbox.tensors import TensorRef

if TYPE_CHECKING:
    import torch
    from torch import nn

    from agentkernel.tools.capture import Captured
    from agentkernel.tools.judge.reference import Answer

OPS = "agentkernel.tools.judge.child"
COMPILE_ERRORS = (
    "CompilationError",
    "UnsupportedLanguageConstruct",
    "CompileTimeAssertionFailure",
    "PTXASError",
    "OutOfResources",
    "MissingPrecision",
)
THROW_AWAY_SEED = 20_231


@dataclass(frozen=True)
class NotApplicable:
    """The reference itself does not take this case."""

    reason: str

    @property
    def raised(self) -> bool:
        """True where the reference raised, not where its values make no sense."""
        return self.reason.startswith("the reference raised")

    @property
    def out_of_memory(self) -> bool:
        """True where smaller shapes may do."""
        return self.reason.startswith("out of memory")


@dataclass(frozen=True)
class Question:
    """Inputs that the reference takes, with its answer."""

    inputs: list[object]
    answer: Answer


class Trial:
    """One candidate in one worker."""

    def __init__(
        self,
        worker: Worker,
        loaded: LoadedProblem,
        captured: Captured,
        settings: JudgeSettings,
        notes: list[str],
    ) -> None:
        self._captured = captured
        self.halves = False
        self._worker = worker
        self._loaded = loaded
        self._settings = settings
        self._notes = notes
        self._sampler = Sampler(loaded, settings.device, settings.seed)
        self._base = loaded.build(seed=settings.seed, device=settings.device)
        self._state: dict[str, TensorRef] = {}

    @property
    def trains_differently(self) -> str:
        """Kinds of the reference's layers that compute something else in training; "" for none."""
        from torch.nn.modules.batchnorm import _NormBase
        from torch.nn.modules.dropout import _DropoutNd

        kinds = (_NormBase, _DropoutNd)
        found = {type(item).__name__ for item in self._base.modules() if isinstance(item, kinds)}
        return ", ".join(sorted(found))

    def build(self, source: str) -> Failure | None:
        """Build `ModelNew`: the same seed must give the same weights, names, shapes and dtypes."""
        import torch

        live = self._loaded.live is not None
        expected = self._loaded.build(seed=THROW_AWAY_SEED, device=self._settings.device)
        wanted = {name: value.detach() for name, value in expected.state_dict().items()}
        initial = {
            name: self._worker.share(torch.zeros_like(value)) for name, value in wanted.items()
        }
        reply = self._call(
            "build",
            {
                "source": source,
                "init_args": self._loaded.init_args,
                "init_kwargs": self._loaded.init_kwargs,
                "seed": THROW_AWAY_SEED,
                "initial": initial,
                "unnamed_dot_allowed": self._settings.precision == "tf32",
            },
        )
        if isinstance(reply, WorkerFailed):
            return _load_failure(reply)
        found = {name: self._worker.shared(ref) for name, ref in initial.items()}
        problem = compare_states(wanted, found, reply.get("state"), check_values=not live)
        self._worker.release(list(initial.values()))
        return LoadFailed(log=problem) if problem else self._adopt()

    def _adopt(self) -> LoadFailed | None:
        state = self._base.state_dict()
        self._state = {
            name: self._worker.share(value.detach().clone()) for name, value in state.items()
        }
        reply = self._call("adopt", {"state": self._state})
        return LoadFailed(log=reply.log) if isinstance(reply, WorkerFailed) else None

    def run(self, case: Case) -> Outcome | NotApplicable:
        """Ask, compare, and look whether anything was written to that should not have been."""
        model = self._model(case.seed)
        question = self._ask_reference(model, case)
        if isinstance(question, NotApplicable):
            return question
        leaves = question.answer.leaves
        if case.shape.origin == "odd" and not covered(self._captured, case.shape.inputs, leaves):
            return NotApplicable("outside of what the captured graph covers")
        for name, value in model.state_dict().items():
            self._worker.shared(self._state[name]).copy_(value)
        refs = [self._worker.share(value) for _, value in tensors_of(question.inputs)]
        buffers = [_buffer(leaf) for leaf in question.answer.leaves]
        outputs = [None if item is None else self._worker.share(item) for item in buffers]
        try:
            return self._ask_candidate(case, question, refs, outputs)
        finally:
            self._worker.release([*refs, *[ref for ref in outputs if ref is not None]])

    def _ask_candidate(
        self,
        case: Case,
        question: Question,
        refs: Sequence[TensorRef],
        outputs: Sequence[TensorRef | None],
    ) -> Outcome:
        left = iter(refs)
        positions = {i for i, _ in tensors_of(question.inputs)}
        inputs = [next(left) if i in positions else v for i, v in enumerate(question.inputs)]
        reply = self._call("run", {"inputs": inputs, "outputs": outputs, "order": case.order})
        if isinstance(reply, WorkerFailed):
            return Outcome((), (), _run_failure(reply, case.label))
        found = [None if ref is None else self._worker.shared(ref) for ref in outputs]
        outcome = check_outputs(case, question.answer, reply, found, self._settings.precision)
        if outcome.failure is not None:
            return outcome
        changed = self._changed(case, question, refs)
        return outcome if changed is None else outcome.failed(changed)

    def _changed(
        self, case: Case, question: Question, refs: Sequence[TensorRef]
    ) -> InputsChanged | None:
        names = [spec.name for spec in case.shape.inputs.inputs]
        for (position, before), ref in zip(tensors_of(question.inputs), refs, strict=True):
            after = cast("torch.Tensor", question.answer.inputs_after[position])
            pristine = question.answer.inputs_before[position]
            if not _as_expected(self._worker.shared(ref), after, pristine):
                return InputsChanged(case=case.label, name=names[position])
            del before
        for name, ref in self._state.items():
            after = question.answer.state_after[name]
            if not _as_expected(self._worker.shared(ref), after, None):
                return InputsChanged(case=case.label, name=name)
        return None

    def _model(self, seed: int) -> nn.Module:
        import copy

        model = copy.deepcopy(self._base)
        randomise_state(model, seed)
        return model

    def _ask_reference(self, model: nn.Module, case: Case) -> Question | NotApplicable:
        """The first scale and range of integers with which the reference gives finite values."""
        reason = "the reference gives no finite values"
        distributions = [case.distribution]
        if case.distribution == "normal":
            distributions.append("own")
        for distribution in distributions:
            for scale in scales(distribution, case.shape.inputs):
                for cap in (None, _smallest_size(case) - 1, 1, 0):
                    result = self._try_reference(model, case, distribution, scale, cap)
                    if isinstance(result, Question):
                        return result
                    reason = result.reason
                    if not result.raised or not _has_integers(case):
                        break
        return NotApplicable(reason)

    def _try_reference(
        self, model: nn.Module, case: Case, distribution: str, scale: float, cap: int | None
    ) -> Question | _Refused:
        import torch

        from agentkernel.tools.judge.reference import call_reference

        try:
            inputs = self._sampler.draw(
                case.shape.inputs,
                case.shape.index,
                distribution,  # type: ignore[arg-type]
                case.seed,
                scale,
                cap,
            )
            if case.layout == "strided":
                inputs = strided(inputs)
            if self._may_overrun(case):
                rehearse(model, inputs)
            answer = call_reference(model, inputs)
        except torch.OutOfMemoryError as error:
            torch.cuda.empty_cache()
            return _Refused(f"out of memory: {_one_line(error)}", raised=False)
        except Exception as error:  # noqa: BLE001 - the user's module may raise anything
            return _Refused(f"the reference raised {type(error).__name__}: {_one_line(error)}")
        if answer.note is not None:
            self._notes.append(answer.note)
        share = _finite_share(answer.leaves)
        if share < (0.5 if distribution in ("normal", "own", "zeros", "ones") else 1.0):
            return _Refused(
                f"{1 - share:.0%} of the reference's values are not finite", raised=False
            )
        return Question(inputs, answer)

    def _may_overrun(self, case: Case) -> bool:
        """True where integers drawn for the declared sizes may be indices past smaller ones: on a
        GPU that ends the whole process, so the CPU tries them first."""
        small = case.shape.origin != "declared"
        return self._settings.device == "cuda" and small and _has_integers(case)

    def _call(self, op: str, payload: Mapping[str, object]) -> dict[str, JSON] | WorkerFailed:
        return self._worker.call(f"{OPS}:{op}", payload, self._settings.time_limit_s)


def rehearse(model: nn.Module, inputs: Sequence[object]) -> None:
    """Run a copy of `model` on the CPU. Raises what it raises, an index out of range among it."""
    import copy

    import torch

    given = [item.cpu() if isinstance(item, torch.Tensor) else item for item in inputs]
    with torch.no_grad():
        copy.deepcopy(model).cpu()(*given)


@dataclass(frozen=True)
class _Refused:
    reason: str
    raised: bool = True


def compare_states(
    wanted: Mapping[str, torch.Tensor],
    found: Mapping[str, torch.Tensor],
    described: JSON,
    *,
    check_values: bool,
) -> str | None:
    """What is wrong with the candidate's state dict; None where nothing is."""
    import torch

    theirs = described if isinstance(described, dict) else {}
    missing = [name for name in wanted if name not in theirs]
    extra = [name for name in theirs if name not in wanted]
    if missing or extra:
        return f"state_dict differs: missing {missing[:5]}, unexpected {extra[:5]}"
    for name, value in wanted.items():
        meta = [str(value.dtype).removeprefix("torch."), list(value.shape)]
        if theirs[name] != meta:
            return f"{name} is {theirs[name]}; expected {meta}"
        if check_values and not torch.equal(found[name], value):
            return (
                f"{name}: the same seed gives other initial values than the original's constructor"
            )
    return None


def _load_failure(reply: WorkerFailed) -> Failure:
    if reply.error in COMPILE_ERRORS:
        return CompileFailed(log=reply.log, line=reply.line)
    prefix = "" if reply.reason == "raised" else f"{reply.reason}: "
    return LoadFailed(log=prefix + reply.log)


def _run_failure(reply: WorkerFailed, case: str) -> Failure:
    if reply.error in COMPILE_ERRORS:
        return CompileFailed(log=reply.log, line=reply.line)
    if reply.error == "OutOfBounds":
        return RunFailed(reason="out_of_bounds", log=reply.log, case=case)
    return RunFailed(reason=reply.reason, log=reply.log, case=case)


def _buffer(leaf: object) -> torch.Tensor | None:
    """A buffer like `leaf`, filled with NaN (or a sentinel) so that what nobody wrote shows."""
    import torch

    if not isinstance(leaf, torch.Tensor):
        return None
    buffer = torch.empty_like(leaf, memory_format=torch.contiguous_format)
    return buffer.fill_(torch.nan if leaf.dtype.is_floating_point else 1)


def _as_expected(value: torch.Tensor, after: torch.Tensor, before: object) -> bool:
    """Bitwise as the reference left it; where the reference wrote to it, close to that."""
    import torch

    same = (value == after) | (value.isnan() & after.isnan())
    if bool(same.all()):
        return True
    if not isinstance(before, torch.Tensor) or torch.equal(before, after):
        return False
    return bool(torch.allclose(value, after, rtol=1e-3, atol=1e-5, equal_nan=True))


def _finite_share(leaves: Sequence[object]) -> float:
    import torch

    floats = [x for x in leaves if isinstance(x, torch.Tensor) and x.dtype.is_floating_point]
    total = sum(item.numel() for item in floats)
    return sum(int(item.isfinite().sum()) for item in floats) / total if total else 1.0


def _smallest_size(case: Case) -> int:
    sizes = [size for spec in case.shape.inputs.tensors for size in spec.shape if size > 1]
    return min(sizes, default=2)


def _has_integers(case: Case) -> bool:
    return any("int" in spec.dtype for spec in case.shape.inputs.tensors)


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:200]
