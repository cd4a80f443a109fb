"""The reference module in its dtype and in fp64, and the weights under which it is called.

Weights that few modules have and every module may have are covered: of any size, NaN, or equal
to elements of an input.
"""

from __future__ import annotations

import contextlib
import copy
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from agentkernel.domain.errors import one_line
from agentkernel.tools.judge.cases.layouts import copied
from agentkernel.tools.judge.cases.noise import uniform
from agentkernel.tools.judge.comparison.compare import same_bits
from agentkernel.tools.judge.comparison.state import keeps_state
from agentkernel.tools.judge.reference.masked_nan import without_masked_keys, without_unused_nan

if TYPE_CHECKING:
    from torch import nn
    from torch.fx import Node
    from torch.utils._pytree import TreeSpec

    from agentkernel.tools.judge.reference.population import Population
    from agentkernel.tools.problem.capture import Captured


@dataclass(frozen=True)
class Answer:
    """One call of the reference. `leaves` are eager's outputs in order, `oracle` the fp64 ones
    (None for what is no floating tensor), `aliases` which of them lie in an input's, a parameter's
    or a buffer's storage; `*_after` show what the reference left behind, `wrote_*` what of it
    differs from before, `state_oracle` the fp64 values of the floating state that it wrote to."""

    leaves: list[object]
    spec: TreeSpec
    oracle: list[torch.Tensor | None]
    aliases: tuple[bool, ...]
    inputs_after: list[object]
    wrote_inputs: frozenset[int]
    state_after: dict[str, torch.Tensor]
    wrote_state: frozenset[str]
    state_oracle: dict[str, torch.Tensor]
    perturbed: PerturbedOracle
    exact: list[torch.Tensor | None]
    """The fp64 run's integers and booleans; None for all else."""
    strides_elsewhere: Callable[[], list[list[int] | None]]
    """The outputs' strides on the meta device, None for what is no tensor or does not run there."""
    note: str | None = None
    no_oracle: bool = False
    population: Population | None = None
    """Its honest evaluations; None where the rule does not ask for them."""
    rounding: float = 0.0
    """Relative step to which eager's own products round their operands; 0 for the dtype's ulp."""
    together: tuple[int, ...] = ()
    """For each output the first one in the same memory; () where that is not known."""
    touched: frozenset[str] = frozenset()
    """Inputs ("input 0") and state that it wrote to, also where they are as they were."""
    after: nn.Module | None = None
    """The module as the call left it, where that is not as it was; `exact_after`: in fp64."""
    exact_after: nn.Module | None = None


class PerturbedOracle:
    """The fp64 outputs after the inputs and weights have moved by up to an ulp; each draw once."""

    def __init__(self, model: nn.Module, inputs: Sequence[object], training: bool) -> None:
        self._model = model
        self._inputs = list(inputs)
        self._training = training
        self._draws: dict[tuple[int, float], list[object] | None] = {}

    def output(self, index: int, seed: int, least: float) -> torch.Tensor | None:
        """Output `index` of draw `seed`, with steps of at least `least`, relative."""
        if (seed, least) not in self._draws:
            self._draws[seed, least] = self._draw(seed, least)
        leaves = self._draws[seed, least]
        value = None if leaves is None else leaves[index]
        return value.double() if isinstance(value, torch.Tensor) else None

    def _draw(self, seed: int, least: float) -> list[object] | None:
        from torch.utils._pytree import tree_flatten

        numbers = itertools.count(1009 * seed)
        with torch.no_grad():
            double = as_float64(self._model).train(self._training)
            narrow = self._model.state_dict()
            for name, value in double.state_dict().items():
                value.copy_(moved_by_ulp(value, narrow[name].dtype, least, next(numbers)))
            given = [
                moved_by_ulp(cast("torch.Tensor", wide), item.dtype, least, next(numbers))
                if isinstance(item, torch.Tensor)
                else item
                for item, wide in ((item, value_as_float64(item)) for item in self._inputs)
            ]
            try:
                with in_float64():
                    leaves, _ = tree_flatten(double(*given))
            except (RuntimeError, TypeError):
                return None
        return list(leaves)


def moved_by_ulp(value: torch.Tensor, dtype: torch.dtype, least: float, seed: int) -> torch.Tensor:
    """`value` times 1 + up to an ulp of `dtype` either way; integers as they are."""
    if not dtype.is_floating_point:
        return value
    step = max(torch.finfo(dtype).eps, least)
    generator = torch.Generator(device=value.device).manual_seed(seed)
    noise = uniform(value.shape, generator, torch.float64)
    return value * noise.mul_(2 * step).add_(1 - step)


class KeepFloat64(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Explicit casts of fp64 values to narrower floats do nothing, and what is made of integers or
    of nothing (positions as floats, zeros) is made in fp64: the oracle stays in fp64, and its
    products meet operands of one dtype."""

    def __torch_dispatch__(  # type: ignore[no-untyped-def] # torch's own signature
        self, func, types, args=(), kwargs=None
    ):
        """Run `func`, with a narrowing target dtype replaced by fp64."""
        from torch.utils._pytree import tree_leaves

        kwargs = dict(kwargs or {})
        dtype = kwargs.get("dtype")
        if func is torch.ops.aten._to_copy.default and dtype is not None:
            source = args[0]
            if source.dtype == torch.float64 and dtype.is_floating_point:
                kwargs["dtype"] = torch.float64
        grouped = getattr(torch.ops.aten, "_grouped_mm", None)
        if grouped is not None and func is grouped.default and args[0].dtype == torch.float64:
            return _grouped(*args, **kwargs)
        found = func(*args, **kwargs)
        if not isinstance(found, torch.Tensor) or not found.is_floating_point():
            return found
        if found.dtype == torch.float64:
            return found
        given = [item for item in tree_leaves((args, kwargs)) if isinstance(item, torch.Tensor)]
        if any(item.is_floating_point() or item.is_complex() for item in given):
            return found
        return found.double()


def _grouped(
    rows: torch.Tensor,
    weights: torch.Tensor,
    ends: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    out_dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """`torch._grouped_mm` by its definition, for fp64, which it does not take: rows [m, k] in
    groups that end at `ends` [g], each times its own weights [g, k, n]."""
    if ends is None or rows.dim() != 2 or weights.dim() != 3:
        raise RuntimeError("grouped products are known in fp64 for rows in groups only")
    found = rows.new_zeros(len(rows), weights.shape[-1])
    start = 0
    for group, end in enumerate(ends.tolist()):
        found[start:end] = torch.mm(rows[start:end], weights[group])
        start = end
    return found if bias is None else found + bias


@contextlib.contextmanager
def in_float64() -> Iterator[None]:
    """What runs inside stays in fp64, attention by its definition: torch's fused kernels do not
    agree on a row that sees nothing but NaN (NaN, or 0 on the CPU)."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    with sdpa_kernel(SDPBackend.MATH), KeepFloat64():  # type: ignore[no-untyped-call]
        yield


def call_reference(
    model: nn.Module,
    inputs: Sequence[object],
    training: bool = False,
    elementwise: bool = False,
    eager_only: bool = False,
) -> Answer:
    """Run `model` (left as it is) on copies of `inputs`, eagerly and, unless `eager_only`, in fp64.
    Of an `elementwise` one every NaN is its own: none comes of an element that it does not depend
    on."""
    from torch.utils._pytree import tree_flatten

    with torch.no_grad():
        eager = copy.deepcopy(model).train(training)
        given = _copies(inputs)
        versions = _versions(given, eager)
        raw, spec = tree_flatten(eager(*given))
        touched = [n for n, count in _versions(given, eager).items() if versions.get(n) != count]
        aliases = aliases_of(raw, [*given, *eager.state_dict().values()])
        leaves = [leaf.clone() if isinstance(leaf, torch.Tensor) else leaf for leaf in raw]
        state = {name: value.detach() for name, value in eager.state_dict().items()}
        wrote = frozenset(n for n, v in model.state_dict().items() if not _same(v, state[n]))
        if eager_only:
            exact = _outputs(leaves, leaves, None, "the original was not asked in fp64")
        else:
            exact = _oracle(model, inputs, leaves, training, elementwise)
        kept = bool(wrote) or keeps_state(model, eager)
    return Answer(
        leaves=leaves,
        spec=spec,
        oracle=exact.values,
        aliases=aliases,
        inputs_after=given,
        wrote_inputs=frozenset(i for i, value in enumerate(inputs) if not _same(value, given[i])),
        state_after=state,
        wrote_state=wrote,
        state_oracle={name: exact.state[name].double() for name in wrote if name in exact.state},
        perturbed=PerturbedOracle(model, inputs, training),
        exact=exact.integers,
        strides_elsewhere=lambda: _meta_strides(model, inputs, training, len(leaves)),
        note=exact.note,
        no_oracle=exact.missing,
        together=together_in(raw),
        touched=frozenset(touched),
        after=eager if kept else None,
        exact_after=exact.model if kept else None,
    )


def _versions(inputs: Sequence[object], model: nn.Module) -> dict[str, int]:
    """How often each input and each entry of the state dict was written to."""
    named = {f"input {index}": item for index, item in enumerate(inputs)} | model.state_dict()
    return {name: x._version for name, x in named.items() if isinstance(x, torch.Tensor)}


def leaves_of(model: nn.Module, inputs: Sequence[object]) -> list[object] | None:
    """Eager's outputs, of a copy of `model`; it may write to `inputs`. None where it raises."""
    from torch.utils._pytree import tree_leaves

    try:
        with torch.no_grad():
            return tree_leaves(copy.deepcopy(model)(*inputs))
    except Exception:  # noqa: BLE001 - the user's module may raise anything
        return None


def aliases_of(leaves: Sequence[object], others: Sequence[object]) -> tuple[bool, ...]:
    """Which of `leaves` lie in the storage of one of `others`."""
    taken = {x.untyped_storage().data_ptr() for x in others if isinstance(x, torch.Tensor)}
    return tuple(
        isinstance(leaf, torch.Tensor)
        and leaf.numel() > 0
        and leaf.untyped_storage().data_ptr() in taken
        for leaf in leaves
    )


def together_in(leaves: Sequence[object]) -> tuple[int, ...]:
    """For each of `leaves` the number of the first one in the same memory."""
    first: dict[int, int] = {}
    return tuple(
        first.setdefault(leaf.untyped_storage().data_ptr(), index)
        if isinstance(leaf, torch.Tensor) and leaf.numel()
        else index
        for index, leaf in enumerate(leaves)
    )


def _same(one: object, other: object) -> bool:
    """Bit for bit; NaN is NaN."""
    if not isinstance(one, torch.Tensor) or not isinstance(other, torch.Tensor):
        return True
    return one.shape == other.shape and same_bits(one, other)


@dataclass(frozen=True)
class Float64Outputs:
    """The fp64 outputs; `missing` where the module does not run in fp64 and eager stands in."""

    values: list[torch.Tensor | None]
    note: str | None
    missing: bool
    integers: list[torch.Tensor | None]
    state: dict[str, torch.Tensor]
    model: nn.Module | None


def _oracle(
    model: nn.Module,
    inputs: Sequence[object],
    leaves: Sequence[object],
    training: bool,
    elementwise: bool,
) -> Float64Outputs:
    try:
        exact, double = _in_fp64(model, inputs, training)
        for look in () if elementwise else (without_unused_nan, without_masked_keys):
            exact = look(exact, leaves, inputs, lambda given: _in_fp64(model, given, training)[0])
    except (RuntimeError, TypeError) as error:
        if isinstance(error, torch.OutOfMemoryError):
            raise
        why = f"no fp64 oracle ({one_line(error, 160)}): eager itself is the reference"
        return _outputs(leaves, leaves, None, why)
    return _outputs(leaves, exact, double, None)


def _outputs(
    leaves: Sequence[object], exact: Sequence[object], double: nn.Module | None, note: str | None
) -> Float64Outputs:
    """`exact` as the oracle of `leaves`; without `double`, which made them, nothing is."""
    missing = double is None
    found: list[torch.Tensor | None] = []
    for leaf, value in zip(leaves, exact, strict=True):
        if isinstance(leaf, torch.Tensor) and leaf.dtype.is_floating_point:
            wide = cast("torch.Tensor", value)
            if wide.dtype != torch.float64 and note is None:
                note = f"the oracle comes out as {wide.dtype}, not fp64"
            found.append(wide.double())
        else:
            found.append(None)
    integers = [
        value if oracle is None and _alike(leaf, value) else None
        for leaf, value, oracle in zip(leaves, exact, found, strict=True)
    ]
    state = {} if double is None else double.state_dict()
    return Float64Outputs(
        found,
        note,
        missing,
        cast("list[torch.Tensor | None]", integers),
        {name: value for name, value in state.items() if value.dtype.is_floating_point},
        double,
    )


def _alike(leaf: object, value: object) -> bool:
    if not isinstance(leaf, torch.Tensor) or not isinstance(value, torch.Tensor):
        return False
    return leaf.dtype == value.dtype and leaf.shape == value.shape


def _meta_strides(
    model: nn.Module, inputs: Sequence[object], training: bool, count: int
) -> list[list[int] | None]:
    from torch.utils._pytree import tree_flatten

    given = [item.to("meta") if isinstance(item, torch.Tensor) else item for item in inputs]
    try:
        with torch.no_grad():
            leaves, _ = tree_flatten(copy.deepcopy(model).to("meta").train(training)(*given))
    except (RuntimeError, TypeError):
        return [None] * count
    strides = [list(x.stride()) if isinstance(x, torch.Tensor) else None for x in leaves]
    return strides if len(strides) == count else [None] * count


def _in_fp64(
    model: nn.Module, inputs: Sequence[object], training: bool
) -> tuple[list[object], nn.Module]:
    """Outputs of a copy in fp64, and the copy."""
    from torch.utils._pytree import tree_flatten

    double = as_float64(model).train(training)
    with in_float64():
        exact, _ = tree_flatten(double(*[value_as_float64(value) for value in inputs]))
    return list(exact), double


def as_float64(model: nn.Module) -> nn.Module:
    """A copy in fp64, plain tensor attributes included."""
    double = copy.deepcopy(model).double()
    for module in double.modules():
        for name, value in list(vars(module).items()):
            if isinstance(value, torch.Tensor) and value.dtype.is_floating_point:
                setattr(module, name, value.double())
    return double


def value_as_float64(value: object) -> object:
    """A floating tensor in fp64, any other one copied, anything else as it is."""
    if not isinstance(value, torch.Tensor):
        return value
    return value.double() if value.dtype.is_floating_point else value.clone()


def _copies(values: Sequence[object]) -> list[object]:
    """Copies that lie in memory as the values do: what refuses them refuses the copies."""
    return [copied(value) if isinstance(value, torch.Tensor) else value for value in values]


POWERS = (6.0, 3.0)
"""Vectors have sizes from 10 to the minus that to 10 to the plus that, the first that the original
takes."""
WEIGHT_VALUE_SHARE = 0.125
"""Of an input so many elements are elements of the state, and so many of its rows rows of it."""
MOST_WEIGHT_VALUES = 1 << 12
MOST_NAN_WEIGHTS = 3
"""So many parameters are tried until one shows as NaN."""
STEP = 1e3
THROUGH = {
    "alias", "clone", "detach", "expand", "permute", "reshape", "select", "slice", "squeeze",
    "_to_copy", "to", "transpose", "unsqueeze", "_unsafe_view", "view",
}  # fmt: skip
"""Operators that hand on values as they are."""
SUBTRACTING = ("sub", "rsub", "cdist", "_cdist_forward", "pairwise_distance")


def is_vector(value: torch.Tensor) -> bool:
    """Whether it holds floats along one dimension."""
    return value.is_floating_point() and sum(size > 1 for size in value.shape) == 1


def spread_vector_weights(model: nn.Module, seed: int, power: float) -> None:
    """Give the elements of parameters of one dimension any size and sign, in place."""
    for position, value in enumerate(model.parameters()):
        if not is_vector(value):
            continue
        generator = torch.Generator(device=value.device).manual_seed(seed * 1013 + position)
        share, chance = (
            torch.rand(value.shape, generator=generator, device=value.device) for _ in range(2)
        )
        size = torch.pow(10.0, power * (2 * share - 1))
        value.data.copy_(torch.where(chance < 0.5, -size, size))


def with_nan_weight(
    model: nn.Module, inputs: Sequence[object], before: Sequence[object], seed: int
) -> nn.Module | None:
    """A copy of `model` of which one element of one parameter, a drawn one, is NaN, where that
    shows beside the outputs `before`. What is NaN and does not move with that element, as zero
    times it does not, is an accident of the original's algorithm: None then."""
    names = [n for n, v in model.named_parameters() if v.is_floating_point() and v.numel()]
    generator = torch.Generator().manual_seed(seed)
    for pick in torch.randperm(len(names), generator=generator)[:MOST_NAN_WEIGHTS].tolist():
        changed = copy.deepcopy(model)
        flat = changed.get_parameter(names[pick]).data
        draw = torch.randint(flat.numel(), (), generator=generator)
        place = tuple(int(x) for x in torch.unravel_index(draw, flat.shape))
        found = []
        for new in (STEP, -STEP, math.nan):
            flat[place] = new
            given = [x.clone() if isinstance(x, torch.Tensor) else x for x in inputs]
            found.append(leaves_of(changed, given))
        if None not in found and _spoils(before, found):  # type: ignore[arg-type]
            return changed
    return None


def _spoils(before: Sequence[object], found: Sequence[Sequence[object]]) -> bool:
    """Whether some outputs are NaN in the last of `found`, and those alone that are not as they
    were in one of the others either."""
    shown = False
    for old, *others, new in zip(before, *found, strict=True):
        if not isinstance(old, torch.Tensor) or not isinstance(new, torch.Tensor):
            continue
        tensors = [cast("torch.Tensor", other) for other in others]
        if any(other.shape != old.shape for other in (*tensors, new)):
            return False
        nan = new.isnan() & ~old.isnan()
        still = nan.clone()
        for other in tensors:
            still &= other == old
        if bool(still.any()):
            return False
        shown |= bool(nan.any())
    return shown


def with_weight_values(inputs: Sequence[object], model: nn.Module, seed: int) -> list[object]:
    """`inputs` of which some elements are elements of the state of `model`, and some rows rows of
    matrices of their length: what lies on an edge, and what equals a code."""
    state = [x.detach() for x in model.state_dict().values() if x.is_floating_point() and x.numel()]
    if not state:
        return list(inputs)
    found: list[object] = []
    for position, value in enumerate(inputs):
        if (
            not isinstance(value, torch.Tensor)
            or not value.is_floating_point()
            or not value.numel()
        ):
            found.append(value)
            continue
        generator = torch.Generator(device=value.device).manual_seed(seed * 1019 + position)
        found.append(_met(value, state, generator))
    return found


def _met(
    value: torch.Tensor, state: Sequence[torch.Tensor], generator: torch.Generator
) -> torch.Tensor:
    device = value.device
    flat = torch.cat([x.flatten()[:MOST_WEIGHT_VALUES].to(value.dtype) for x in state])
    flat = flat[flat.isfinite()]
    if not len(flat):
        return value
    picks = torch.randint(len(flat), value.shape, generator=generator, device=device)
    chance = torch.rand(value.shape, generator=generator, device=device)
    mixed = torch.where(chance < WEIGHT_VALUE_SHARE, flat[picks], value)
    rows = [x.reshape(-1, x.shape[-1]) for x in state if x.ndim > 1]
    rows = [x for x in rows if value.ndim > 1 and x.shape[1] == value.shape[-1]]
    if rows:
        table = torch.cat([x[:MOST_WEIGHT_VALUES].to(value.dtype) for x in rows])
        lines = mixed.view(-1, mixed.shape[-1])
        count = max(1, int(WEIGHT_VALUE_SHARE * len(lines)))
        where = torch.randperm(len(lines), generator=generator, device=device)[:count]
        which = torch.randint(len(table), (count,), generator=generator, device=device)
        lines[where] = table[which]
    return mixed


def subtracted_weights(captured: Captured) -> tuple[str, ...]:
    """Names of the entries of the state from which an input is subtracted: of what lies close
    together and far from zero a square's expansion keeps nothing."""
    names = captured.parameters
    inputs = set(captured.user_inputs)
    found: list[str] = []
    for node in captured.graph.graph.nodes:
        word = str(node.target).removeprefix("aten.").partition(".")[0]
        if node.op != "call_function" or word not in SUBTRACTING:
            continue
        sources = [_source(item).name for item in node.all_input_nodes]
        if any(source in inputs for source in sources):
            found += [names[source] for source in sources if source in names]
    return tuple(dict.fromkeys(found))


def _source(node: Node) -> Node:
    """Where the values of `node` come from, past what only gives them another form."""
    while node.op == "call_function" and node.all_input_nodes:
        if str(node.target).removeprefix("aten.").partition(".")[0] not in THROUGH:
            break
        node = node.all_input_nodes[0]
    return node


def with_shifted_weights(model: nn.Module, names: Sequence[str], mean: float) -> nn.Module:
    """A copy of `model` with `mean` added to the entries `names` of its state."""
    found = copy.deepcopy(model)
    state = found.state_dict()
    with torch.no_grad():
        for name in names:
            if state[name].is_floating_point():
                state[name].add_(mean)
    return found
