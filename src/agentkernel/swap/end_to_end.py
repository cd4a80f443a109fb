"""The outputs of a whole model with kernels in it, compared with its fp64 reference."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, cast

import torch
from torch import nn
from torch.utils._pytree import TreeSpec, tree_flatten, tree_unflatten

from agentkernel.domain.base import Frozen
from agentkernel.domain.errors import one_line
from agentkernel.domain.nightly import Form
from agentkernel.domain.region import Kernel
from agentkernel.domain.verdict import Mismatch
from agentkernel.runtime import gpu_lock
from agentkernel.swap.swap import Applied, CallCounts, apply, counts
from agentkernel.tools.judge.comparison.compare import OutputValues, compare_output
from agentkernel.tools.judge.comparison.errors import Leeway
from agentkernel.tools.judge.reference.oracle import Answer, PerturbedOracle, call_reference

SEEDS = (0, 1, 2)
Flat = Callable[[object], Sequence[torch.Tensor]]
Unflatten = Callable[[list[object]], Any]


class Call(Protocol):
    """What one forward is called with."""

    @property
    def args(self) -> tuple[Any, ...]: ...

    @property
    def kwargs(self) -> Mapping[str, Any]: ...


class ModelSource(Protocol):
    """A model that can be built, with the same weights each time, and fed."""

    def build(self, device: str = "cpu") -> nn.Module: ...

    def make_call(self, device: str = "cpu", seed: int = 0) -> Call: ...


class EndToEndVerdict(Frozen):
    """Norm-wise errors against fp64, the largest over outputs and seeds: `worst_error` with the
    kernels in, `eager_error` without; None where nothing was compared. `kernel_calls` ran a kernel,
    `fallbacks` the original."""

    accepted: bool
    worst_error: float | None
    eager_error: float | None
    reason: str
    kernel_calls: int = 0
    fallbacks: int = 0
    provable: bool = True
    """Whether another choice of kernels could be accepted: the model itself can be judged."""


class FlatModel(nn.Module):
    """A model as the judge's reference takes it: tensors in by position, tensors out in order."""

    def __init__(self, model: Callable[..., object], tree: TreeSpec, flat: Flat) -> None:
        super().__init__()
        self.model = model
        # A function is not copied with the module; a tree's copy warns.
        self._unflatten: Unflatten = lambda leaves: tree_unflatten(leaves, tree)
        self._flat = flat

    def forward(self, *leaves: object) -> tuple[torch.Tensor, ...]:
        """The flattened outputs of one call."""
        args, kwargs = self._unflatten(list(leaves))
        return tuple(self._flat(self.model(*args, **kwargs)))


def flat_tensors(output: object) -> tuple[torch.Tensor, ...]:
    """The tensors of nested tuples, lists, dicts and whatever else is registered with pytree."""
    leaves, _ = tree_flatten(output)
    return tuple(leaf for leaf in leaves if isinstance(leaf, torch.Tensor))


@dataclass(frozen=True)
class ReferenceCall:
    """One seed's call: its inputs as `leaves` of `tree`, and the right answer."""

    leaves: list[object]
    tree: TreeSpec
    answer: Answer


class Oracle:
    """The right answers of one model on one device. Each is made when it is first asked for, and
    stands for every choice of kernels that is checked."""

    def __init__(
        self, loaded: ModelSource, device: str = "cpu", *, flat: Flat = flat_tensors
    ) -> None:
        self.loaded = loaded
        self.device = device
        self.flat = flat
        self._model: nn.Module | None = None
        self._asked: dict[int, ReferenceCall | str] = {}

    def asked(self, seed: int) -> ReferenceCall | str:
        """The call with this seed; why nothing can be proven by it."""
        if seed not in self._asked:
            self._asked[seed] = self._answer(seed)
        found = self._asked[seed]
        if isinstance(found, str):
            return found
        # What an ulp does is drawn anew for each check: kept, the draws would fill the memory.
        perturbed = PerturbedOracle(self._flat_model(found.tree), found.leaves, training=False)
        return replace(found, answer=replace(found.answer, perturbed=perturbed))

    def _answer(self, seed: int) -> ReferenceCall | str:
        call = self.loaded.make_call(self.device, seed)
        leaves, tree = tree_flatten((tuple(call.args), dict(call.kwargs)))
        try:
            answer = call_reference(self._flat_model(tree), leaves)
        except torch.OutOfMemoryError:
            return "the model in fp64 does not fit in memory beside itself"
        # Its state is a whole model, and is not compared.
        slim = replace(answer, state_after={}, state_oracle={}, inputs_after=[])
        return _unusable(answer) or ReferenceCall(leaves, tree, slim)

    def _flat_model(self, tree: TreeSpec) -> FlatModel:
        if self._model is None:
            self._model = self.loaded.build(self.device)
        return FlatModel(self._model, tree, self.flat)


def check_end_to_end(
    oracle: Oracle,
    kernels: Mapping[str, Kernel],
    parameters: Mapping[str, tuple[str, ...]] | None = None,
    *,
    form: Form = "regions",
    seeds: Sequence[int] = SEEDS,
    put_in: Callable[..., Applied] = apply,
) -> EndToEndVerdict:
    """Compare the outputs of the oracle's model with the kernels in, by `put_in`, to those in fp64,
    under the judge's strict rule.

    `form` "regions+torch.compile" compiles the model with the kernels in; their calls are not
    counted then. Needs memory for three models and one in fp64; a model that does not run or fit in
    fp64 is not accepted: nothing else would prove it. Raises what `apply` raises.
    """
    with gpu_lock.shared():
        swapped = oracle.loaded.build(oracle.device)
        put_in(swapped, kernels, parameters)
        compiled = form == "regions+torch.compile"
        seen = _ErrorsSoFar()
        run = torch.compile(swapped) if compiled else swapped
        refusal, provable = "", True
        for seed in seeds:
            asked = oracle.asked(seed)
            if isinstance(asked, str):
                refusal, provable = asked, False
            else:
                refusal = _one_call(run, asked, seed, oracle.flat, seen)
            if refusal:
                break
    calls = counts(swapped).values()
    ran = sum(item.kernel for item in calls)
    if not refusal and kernels and not ran and not compiled:
        refusal = f"no kernel ran: {_reasons(calls)}"
    return EndToEndVerdict(
        accepted=not refusal,
        worst_error=max(seen.errors, default=None),
        eager_error=max(seen.eager, default=None),
        reason=refusal or f"within twice eager's error on {len(seeds)} seeds",
        kernel_calls=ran,
        fallbacks=sum(item.fallback for item in calls),
        provable=provable,
    )


@dataclass
class _ErrorsSoFar:
    """Norm-wise errors of the outputs so far, with the kernels in and without."""

    errors: list[float] = field(default_factory=list)
    eager: list[float] = field(default_factory=list)


def _one_call(
    swapped: Callable[..., object], asked: ReferenceCall, seed: int, flat: Flat, seen: _ErrorsSoFar
) -> str:
    """What is wrong with the outputs on one seed's inputs; "" where nothing is."""
    try:
        with torch.no_grad():
            found = FlatModel(swapped, asked.tree, flat)(*_copied(asked.leaves))
    except Exception as error:  # noqa: BLE001 - whatever a compiler raises: no proof
        return f"with the kernels in it raised {type(error).__name__}: {one_line(error, 200)}"
    return _compare(f"seed {seed}", asked.answer, found, seen)


def _unusable(answer: Answer) -> str:
    """Why this answer proves nothing; "" where it does."""
    if not any(isinstance(leaf, torch.Tensor) for leaf in answer.leaves):
        return "the model returns no tensor"
    if answer.no_oracle:
        return f"the model does not run in fp64: {answer.note}"
    known = (value for value in answer.oracle if value is not None)
    if not any(bool(torch.isfinite(value).any()) for value in known):
        return "the model returns no finite number: nothing was compared"
    return ""


def _compare(
    label: str,
    answer: Answer,
    found: Sequence[torch.Tensor],
    seen: _ErrorsSoFar,
) -> str:
    """Add the outputs' errors to `seen`; what is wrong, or ""."""
    if len(found) != len(answer.leaves):
        return f"{label}: {len(found)} outputs, expected {len(answer.leaves)}"
    for index, value in enumerate(found):
        own = cast("torch.Tensor", answer.leaves[index])
        if (value.dtype, value.shape, value.stride()) != (own.dtype, own.shape, own.stride()):
            return (
                f"{label}: output {index} is {value.dtype}{list(value.shape)} with strides "
                f"{list(value.stride())}, expected {own.dtype}{list(own.shape)} with "
                f"{list(own.stride())}"
            )
        oracle, exact = answer.oracle[index], answer.exact[index]
        values = OutputValues(value, own, oracle, exact, answer.no_oracle)
        result = compare_output(label, index, values, "strict", _leeway(answer, index))
        seen.errors.append(result.found.norm)
        seen.eager.append(result.eager.norm)
        if result.mismatch is not None:
            return _words(result.mismatch)
    return ""


def _leeway(answer: Answer, index: int) -> Leeway:
    """Single elements are excused by what an ulp of the inputs and weights does to the original."""
    return Leeway(perturb=lambda seed: answer.perturbed.output(index, seed, answer.rounding))


def _words(found: Mismatch) -> str:
    return f"{found.case}: output {found.output}: {found.decisive}; wrong: {found.pattern}"


def _copied(leaves: Sequence[object]) -> list[object]:
    return [leaf.clone() if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]


def _reasons(calls: Iterable[CallCounts]) -> str:
    total: Counter[str] = Counter()
    for item in calls:
        total.update(item.reasons)
    return ", ".join(f"{name} {number}x" for name, number in total.items()) or "none was called"
