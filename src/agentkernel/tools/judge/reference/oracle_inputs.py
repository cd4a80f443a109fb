"""Inputs that the reference takes, its answer to them, and follow-up calls with changes."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import torch

from agentkernel.domain.errors import one_line
from agentkernel.domain.verdict import NOT_FINITE
from agentkernel.tools.judge.cases.edge_inputs import (
    constants_of,
    ignore_index_values,
    index_inputs,
    literals_of,
    row_structure,
    wide_inputs,
    with_edge,
)
from agentkernel.tools.judge.cases.layouts import arranged, copied, in_order
from agentkernel.tools.judge.cases.module_state import SMALL, randomise_state
from agentkernel.tools.judge.cases.patterns import DOMAINS, Domain, moved_into_domain
from agentkernel.tools.judge.cases.plan import Case, Change, FollowUp, NotApplicable
from agentkernel.tools.judge.cases.values import (
    Distribution,
    Sampler,
    SpecialValues,
    scales,
    tensors_of,
)
from agentkernel.tools.judge.comparison.compare import OutputValues, compare_output, same_bits
from agentkernel.tools.judge.comparison.errors import specials
from agentkernel.tools.judge.comparison.state import keeps_state
from agentkernel.tools.judge.execution.tracer import differs, random_state
from agentkernel.tools.judge.reference.kernels_differ import KernelsDiffer, varies
from agentkernel.tools.judge.reference.oracle import (
    POWERS,
    Answer,
    call_reference,
    is_vector,
    spread_vector_weights,
    subtracted_weights,
    with_nan_weight,
    with_shifted_weights,
    with_weight_values,
)
from agentkernel.tools.judge.reference.population import Population
from agentkernel.tools.judge.reference.rehearsal import (
    USUAL,
    checks_values,
    counts_places,
    indexes_elements,
    rehearse,
)
from agentkernel.tools.judge.settings import JudgeSettings, rule_of
from agentkernel.tools.matmul_precision import convolutions_round, products_round
from agentkernel.tools.problem.example_call import declared_orders
from agentkernel.tools.problem.loading import LoadedProblem

if TYPE_CHECKING:
    from torch import nn

    from agentkernel.tools.problem.capture import Captured

SPECIALS = ("nan", "inf")
HALF_FINITE = ("normal", "own", "zeros", "ones", "constant")
ANY_FINITE = (*SPECIALS, "rows")
"""Those of which it may make any number of NaN and infinities: they have to lie where it has them.
"""
"""Distributions of which the reference may make NaN or infinities of up to half its outputs."""
SIGNS = {"uniform": 1, "spiked": -1}
"""Distributions of which parameters have any sign and size, and on which side those of a single
element are."""
WIDE_WEIGHTS = "sorted"
"""The distribution of which vectors of weights have sizes from very small to very large."""
WEIGHT_VALUES_SCALE = 3.0
"""The scale of uniform values with which elements of the state are among them too."""
DOMAIN_DISTRIBUTIONS = (
    "uniform",
    "large",
    "tiny",
    "sparse",
    "sorted",
    "shifted",
    "spiked",
    "peaked",
)
"""Distributions that are asked within the domain of a module that is not defined everywhere."""
FEW = 5
STEPS = (3.0, 3e2, 3e4)
"""Sizes that a changed element may get: the first that shows in the reference's output."""
FOLLOW_UP_SEED_STEP = 15_485_863
MODELS_KEPT = 4
MODEL_BYTES = {"cpu": 256 << 20, "cuda": 64 << 20}
"""Models of so many bytes of weights at most are kept for other cases: on a GPU so few that no plan
of its memory has to count them."""
TF32_STEP = 2.0**-11


@dataclass(frozen=True)
class ReferenceCase:
    """Inputs that the reference takes, with the module that took them and its answer."""

    inputs: list[object]
    model: nn.Module
    answer: Answer


class OracleInputs:
    """Draws inputs and asks the reference. `base` is the module with its initial values.
    `eager_only`: the reference is asked in its own dtype alone."""

    def __init__(
        self,
        loaded: LoadedProblem,
        captured: Captured,
        settings: JudgeSettings,
        notes: list[str],
        eager_only: bool = False,
    ) -> None:
        self.base = loaded.build(seed=settings.seed, device=settings.device)
        self.device = settings.device
        self._settings = settings
        self._notes = notes
        self._eager_only = eager_only
        self._looks_up = indexes_elements(captured)
        self._counts_places = counts_places(captured)
        self._varies = varies(captured)
        self._checks_values = checks_values(captured)
        self._indices = index_inputs(captured)
        self._loaded = loaded
        self._orders: dict[int, list[tuple[int, ...] | None]] = {}
        self.rounding = rounding(captured, settings.device)
        self.permitted = permitted(captured)
        ignored = ignore_index_values(captured)
        rows = row_structure(captured)
        self.elementwise = rows.pointwise
        self._near = subtracted_weights(captured)
        kinds = self.base.state_dict().values()
        self._floats = any(value.is_floating_point() for value in kinds)
        self._vectors = any(is_vector(value) for value in self.base.parameters())
        self._models: dict[tuple[int, int, int | None, float], nn.Module] = {}
        most = MODEL_BYTES[settings.device] if settings.device_bytes is None else 0
        self._few_weights = held_bytes(self.base) <= most
        self._sampler = Sampler(
            loaded,
            settings.device,
            settings.seed,
            SpecialValues(ignored, constants_of(captured), wide_inputs(captured), rows),
        )

    def read(self, source: str) -> None:
        """Draw the numbers that a candidate's text names, too."""
        self._sampler.add_constants(literals_of(source))

    def model(
        self, seed: int, sign: int = 0, least: int | None = None, power: float = 0.0
    ) -> nn.Module:
        """The reference with parameters and buffers off their initial values; with a `sign`, those
        of any sign and size, with a `least` buffers that are the same everywhere too, with a
        `power` vectors of sizes from 10 to the minus that to 10 to the plus that."""
        model = copy.deepcopy(self.base)
        randomise_state(model, seed, sign, least)
        if power:
            spread_vector_weights(model, seed, power)
        return model

    def _known_model(
        self, seed: int, sign: int = 0, least: int | None = None, power: float = 0.0
    ) -> nn.Module:
        """As `model`, for callers that leave it as it is: several cases of one seed have the same.
        The last few are kept where they are small."""
        key = (seed, sign, least, power)
        found = self._models.pop(key, None)
        if found is None:
            found = self.model(seed, sign, least, power)
        if self._few_weights:
            self._models[key] = found
            while len(self._models) > MODELS_KEPT:
                del self._models[next(iter(self._models))]
        return found

    def ask(self, case: Case) -> ReferenceCase | NotApplicable:
        """The first scale and range of integers with which the reference gives finite values."""
        sign = SIGNS.get(case.distribution, 0) if self.base.state_dict() else 0
        # A module that takes a root or a logarithm of its weights gives no numbers with a sign, one
        # that looks up by a buffer none with other integers there.
        bold = dict.fromkeys((0 if self._looks_up else -SMALL, 0, None))
        for least in bold if sign else ():
            result = self._ask(self._known_model(case.seed, sign, least), case)
            if isinstance(result, ReferenceCase):
                return result
        for power in POWERS if case.distribution == WIDE_WEIGHTS and self._vectors else ():
            result = self._ask(self._known_model(case.seed, power=power), case)
            if isinstance(result, ReferenceCase):
                return result
        return self._ask(self._known_model(case.seed), case)

    def _ask(self, model: nn.Module, case: Case) -> ReferenceCase | NotApplicable:
        why = NotApplicable("the reference gives no finite values")
        tries: list[tuple[Distribution, Domain]] = [(case.distribution, "")]
        if case.distribution == "normal":
            tries.append(("own", ""))
        elif case.distribution in DOMAIN_DISTRIBUTIONS:
            tries += [(case.distribution, domain) for domain in DOMAINS]
        for distribution, domain in tries:
            if domain and why.raised and _has_integers(case):
                break
            sizes = scales(distribution, case.shape.inputs)
            if distribution == "uniform" and self._floats and not domain:
                sizes = (WEIGHT_VALUES_SCALE, *sizes)
            for scale in sizes:
                for cap in (None, _smallest_size(case) - 1, 1, 0):
                    found = self._try(model, case, distribution, scale, cap, domain)
                    if isinstance(found, ReferenceCase):
                        return found
                    why = found
                    if not why.raised or not _has_integers(case):
                        break
        return why

    def note(self, text: str) -> None:
        """Something that the verdict is to say."""
        self._notes.append(text)

    def prepare(self, case: Case) -> None:
        """Make the sample that integers and the problem's own distribution are drawn from, before
        memory is short."""
        if _has_integers(case) or case.distribution == "own":
            self._sampler.own(case.shape.index)

    def fill(
        self, rooms: Sequence[object], case: Case, distribution: Distribution, scale: float
    ) -> None:
        """Draw the case's inputs into `rooms`, which have their form."""
        shape = case.shape
        self._sampler.fill(rooms, shape.inputs, shape.index, distribution, case.seed, scale)

    def follow(
        self, case: Case, before: ReferenceCase, follow_up: FollowUp
    ) -> ReferenceCase | None:
        """`before` with `follow_up`'s change made to it; None where no change tried shows in the
        reference's output."""
        if follow_up.change == "again":
            return before
        if follow_up.change == "nan":
            return self._with_nan(case, before)
        if follow_up.change == "training":
            return before if _same_in_training(before, self.device) else None
        for inputs, model in self._changes(case, before, follow_up.change):
            answer = self.answer(case, model, inputs)
            if not isinstance(answer, Answer) or not _finite(answer, case.distribution):
                continue
            if follow_up.change == "next" or answers_differ(before.answer, answer, self._settings):
                return ReferenceCase(inputs, model, answer)
        return None

    def _with_nan(self, case: Case, before: ReferenceCase) -> ReferenceCase | None:
        """One element of a parameter is NaN, where that shows, and only in what depends on it."""
        if case.training or (self.device == "cuda" and self._looks_up):
            return None
        model = with_nan_weight(before.model, before.inputs, before.answer.leaves, case.seed)
        answer = None if model is None else self.answer(case, model, before.inputs)
        if model is None or not isinstance(answer, Answer):
            return None
        return ReferenceCase(before.inputs, model, answer)

    def _changes(
        self, case: Case, before: ReferenceCase, change: Change
    ) -> Iterator[tuple[list[object], nn.Module]]:
        seed = case.seed + FOLLOW_UP_SEED_STEP
        if change == "weights":
            yield before.inputs, self._known_model(seed)
        elif change == "next":
            if before.answer.after is not None:
                yield self._draw(dataclasses.replace(case, seed=seed), 1.0), before.answer.after
        elif change == "values":
            for scale in scales(case.distribution, case.shape.inputs):
                yield self._draw(dataclasses.replace(case, seed=seed), scale), before.model
        else:
            for attempt, sign in enumerate((-1, 1)):
                for step in STEPS:
                    inputs = [
                        copied(item) if hasattr(item, "shape") else item  # type: ignore[arg-type]
                        for item in before.inputs
                    ]
                    edit(inputs, change, sign * step, seed + attempt)
                    yield inputs, before.model

    def _draw(
        self,
        case: Case,
        scale: float,
        cap: int | None = None,
        domain: Domain = "",
        model: nn.Module | None = None,
    ) -> list[object]:
        shape, distribution, seed = case.shape, case.distribution, case.seed
        values = self._sampler.draw(shape.inputs, shape.index, distribution, seed, scale, cap)
        values = [moved_into_domain(value, domain) for value in values]
        if model is not None and distribution == "uniform" and scale >= WEIGHT_VALUES_SCALE:
            values = with_weight_values(values, model, seed)
        if case.edge:
            values = with_edge(values, case.edge, self._indices, seed)
        if case.layout != "contiguous":
            return arranged(values, case.layout, seed)
        return [
            value if order is None else in_order(cast("torch.Tensor", value), order)
            for value, order in zip(values, self._declared_orders(shape.index), strict=True)
        ]

    def _declared_orders(self, index: int) -> list[tuple[int, ...] | None]:
        """The memory format of each input of declared set `index`, as the problem makes it."""
        if index not in self._orders:
            self._orders[index] = declared_orders(self._loaded, index)
        return self._orders[index]

    def _try(
        self,
        model: nn.Module,
        case: Case,
        distribution: Distribution,
        scale: float,
        cap: int | None,
        domain: Domain = "",
    ) -> ReferenceCase | NotApplicable:
        try:
            if distribution == "shifted" and self._near:
                model = with_shifted_weights(model, self._near, scale)
            asked = dataclasses.replace(case, distribution=distribution)
            inputs = self._draw(asked, scale, cap, domain, model)
        except torch.OutOfMemoryError as error:
            return _out_of_memory(error)
        except Exception as error:  # noqa: BLE001 - the user's get_inputs may raise anything
            return raised(error)
        answer = self.answer(case, model, inputs)
        if not isinstance(answer, Answer):
            return answer
        if answer.note is not None:
            self._notes.append(answer.note)
        empty = any(0 in spec.shape for spec in case.shape.inputs.tensors)  # a mean of nothing
        try:
            if not (case.edge or empty) and not _finite(answer, distribution):
                share = 1 - _finite_share(answer)
                return NotApplicable(f"{share:.0%} {NOT_FINITE}")
        except torch.OutOfMemoryError as error:
            return _out_of_memory(error)
        return ReferenceCase(inputs, model, answer)

    def answer(
        self, case: Case, model: nn.Module, inputs: Sequence[object]
    ) -> Answer | NotApplicable:
        """What `model` makes of `inputs`, or why it makes nothing of them."""
        try:
            if self._may_overrun(case):
                # What is no integer becomes another one on a CPU than on a GPU.
                rehearse(model, inputs, case.training, here=not self._is_counted(case))
            with KernelsDiffer() if self._varies else nullcontext() as looked:
                answer = call_reference(
                    model, inputs, case.training, self.elementwise, self._eager_only
                )
            if looked is not None and looked.why:
                return NotApplicable(looked.why)
            known = None
            if rule_of(self._settings.rule).honest and not answer.no_oracle:
                known = Population(model, inputs, case.training, self.permitted)
            return dataclasses.replace(answer, rounding=self.rounding, population=known)
        except torch.OutOfMemoryError as error:
            return _out_of_memory(error)
        except Exception as error:  # noqa: BLE001 - the user's module may raise anything
            return raised(error)

    def _may_overrun(self, case: Case) -> bool:
        """True where a GPU's reference may end the whole process, by an index past a smaller table
        or one that it counts together, or by an assertion that NaN fails: the CPU tries those
        first."""
        small = case.shape.origin != "declared"
        indexed = self._looks_up or _has_integers(case)
        checked = self._checks_values and case.distribution in SPECIALS
        unusual = bool(case.edge) or self._is_counted(case) or (small and (indexed or checked))
        return self._settings.device == "cuda" and unusual

    def _is_counted(self, case: Case) -> bool:
        """Whether it looks up by what it makes of unusual values."""
        return self._counts_places and case.distribution not in USUAL


def held_bytes(model: nn.Module) -> int:
    """Of parameters and of all buffers, which a copy of the module holds once more."""
    return sum(value.nbytes for value in (*model.parameters(), *model.buffers()))


def rounding(captured: Captured, device: str) -> float:
    """The step to which PyTorch's own flags let convolutions and products of fp32 round on a GPU:
    TF32's 11 bits, where there are such and a flag allows it; else 0."""
    return TF32_STEP if device == "cuda" and permitted(captured) else 0.0


def permitted(captured: Captured) -> frozenset[str]:
    """The kinds of fp32 products in the graph, "conv" and "mm", that PyTorch's flags let round to
    TF32 on a GPU."""
    flags = {"conv": convolutions_round(), "mm": products_round()}
    words = {"conv": ("aten.conv", "convolution"), "mm": ("mm", "linear", "matmul")}
    calls = (node for node in captured.graph.graph.nodes if node.op == "call_function")
    wide = {
        str(node.target)
        for node in calls
        if getattr(node.meta.get("val"), "dtype", 0) == torch.float32
    }
    return frozenset(
        kind
        for kind, allowed in flags.items()
        if allowed and any(word in name for name in wide for word in words[kind])
    )


def _same_in_training(before: ReferenceCase, device: str) -> bool:
    """Whether a call in training mode gives the same bits, leaves everything as it was and draws no
    random numbers: dropout of zeros gives zeros."""
    from torch.utils._pytree import tree_leaves

    answer = before.answer
    if answer.after is not None or answer.wrote_state or answer.wrote_inputs:
        return False
    model = copy.deepcopy(before.model).train()
    given = [copied(item) if isinstance(item, torch.Tensor) else item for item in before.inputs]
    generators = random_state(device)
    try:
        with torch.no_grad():
            leaves = tree_leaves(model(*given))
    except Exception:  # noqa: BLE001 - the user's module may raise anything
        return False
    if differs(generators, random_state(device)):
        return False
    pairs = [*zip(leaves, answer.leaves, strict=True)]
    pairs += zip(given, before.inputs, strict=True)
    kept, now = before.model.state_dict(), model.train(before.model.training).state_dict()
    pairs += [(now[name], value) for name, value in kept.items()]
    same = all(_equal(one, other) for one, other in pairs)
    return same and not keeps_state(before.model, model)


def _equal(one: object, other: object) -> bool:
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        return one.shape == other.shape and one.dtype == other.dtype and same_bits(one, other)
    return repr(one) == repr(other)


def edit(inputs: Sequence[object], change: Change, step: float, seed: int) -> None:
    """Change one element of one tensor, a few of every tensor, or swap two slices, in place."""
    tensors = [value for _, value in tensors_of(inputs) if value.numel() > 1]
    floats = [value for value in tensors if value.dtype.is_floating_point]
    generator = torch.Generator().manual_seed(seed)
    chosen = floats or tensors
    if change == "one" and chosen:
        pick = int(torch.randint(len(chosen), (1,), generator=generator))
        chosen = [chosen[pick]]
    for value in chosen:
        if change == "swap":
            _swap(value, generator)
        else:
            _replace(value, 1 if change == "one" else FEW, step, generator)


def _swap(value: torch.Tensor, generator: torch.Generator) -> None:
    dim = next(dim for dim, size in enumerate(value.shape) if size > 1)
    one, other = torch.randperm(value.shape[dim], generator=generator)[:2].tolist()
    kept = value.select(dim, one).clone()
    value.select(dim, one).copy_(value.select(dim, other).clone())
    value.select(dim, other).copy_(kept)


def _replace(value: torch.Tensor, count: int, step: float, generator: torch.Generator) -> None:
    """Floats get a new size (the other sign where `step` is negative); integers become like
    another element."""
    for _ in range(count):
        place = tuple(int(torch.randint(size, (1,), generator=generator)) for size in value.shape)
        if value.dtype.is_floating_point:
            new = value[place].abs().clamp(max=1.0) + 1.0
            value[place] = torch.where(value[place] < 0, -1, 1) * step * new
        else:
            others = value[value != value[place]]
            if others.numel():
                value[place] = others[int(torch.randint(others.numel(), (1,), generator=generator))]


def answers_differ(before: Answer, after: Answer, settings: JudgeSettings) -> bool:
    """Would the outputs of before, given again, be refused now?"""
    for index, old in enumerate(before.leaves):
        new = after.leaves[index]
        if not isinstance(old, torch.Tensor) or not isinstance(new, torch.Tensor):
            continue
        if old.shape != new.shape or old.dtype != new.dtype:
            return True
        values = OutputValues(old, new, after.oracle[index], no_oracle=after.no_oracle)
        result = compare_output("", index, values, settings.precision)
        if result.mismatch is not None:
            return True
    return False


def _finite(answer: Answer, distribution: str) -> bool:
    return distribution in ANY_FINITE or is_finite_enough(_finite_share(answer), distribution)


def is_finite_enough(share: float, distribution: str) -> bool:
    """Whether so large a share of numbers among the outputs makes a case of that distribution."""
    least = 0.0 if distribution in ANY_FINITE else 0.5 if distribution in HALF_FINITE else 1.0
    return share >= least


def _finite_share(answer: Answer) -> float:
    """The share of floating outputs that are compared as numbers."""
    finite = total = 0
    for leaf, oracle in zip(answer.leaves, answer.oracle, strict=True):
        if isinstance(leaf, torch.Tensor) and oracle is not None:
            finite += int(specials(leaf, oracle).compared.sum())
            total += leaf.numel()
    return finite / total if total else 1.0


def raised(error: BaseException) -> NotApplicable:
    """The case in which the user's own code raised."""
    words = f"the reference raised {type(error).__name__}: {one_line(error, 200)}"
    return NotApplicable(words, raised=True)


def _out_of_memory(error: BaseException) -> NotApplicable:
    torch.cuda.empty_cache()
    return NotApplicable(f"out of memory: {one_line(error, 200)}", out_of_memory=True)


def _smallest_size(case: Case) -> int:
    sizes = [size for spec in case.shape.inputs.tensors for size in spec.shape if size > 1]
    return min(sizes, default=2)


def _has_integers(case: Case) -> bool:
    return any("int" in spec.dtype for spec in case.shape.inputs.tensors)


__all__ = [
    "OracleInputs",
    "ReferenceCase",
    "answers_differ",
    "edit",
    "is_finite_enough",
    "raised",
]
