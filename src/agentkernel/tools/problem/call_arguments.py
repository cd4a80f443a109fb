"""Arguments of a submodule's call, bound by position, described without their values, flattened.

A call is the same for a keyword and for its position. A description is dtype, shape and strides
(`float32[2,8]:8,1`) or a scalar's literal. A submodule whose calls take or return nested data
is wrapped in a module of flat inputs and outputs.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agentkernel.domain.errors import ProblemError
from agentkernel.domain.problem import DataStructure
from agentkernel.domain.profile import OpCost
from agentkernel.tools.problem.arguments import flat_class, identifiers
from agentkernel.tools.problem.structures import (
    FlatData,
    TensorPlace,
    UnsupportedData,
    flatten_data,
    unflatten_data,
    values_of,
)

if TYPE_CHECKING:
    import torch
    from torch import nn


@dataclass(frozen=True)
class UnboundCall:
    """A call that no region stands for, and why, in one line."""

    reason: str


@dataclass(frozen=True)
class BoundCall:
    """A call's arguments as its region's problem takes them: `inputs`, by position.

    Where all arguments are tensors and scalars by position, those are the inputs, and `structure`
    is None. Else the inputs are the tensors alone, and `structure` says how they lie in the pair of
    positional arguments and keywords. `names` are the inputs', `returns` is how the tensors lie in
    what the call returned (None for a tensor, or a flat tuple or list).
    """

    inputs: tuple[object, ...]
    names: tuple[str, ...]
    structure: DataStructure | None = None
    returns: DataStructure | None = None

    @property
    def nested(self) -> bool:
        """Whether the problem's arguments or outputs are others than the submodule's own."""
        return self.structure is not None or self.returns is not None


@dataclass(frozen=True)
class _Given:
    """Positional arguments up to the last one given, gaps filled with defaults, and keywords."""

    positional: tuple[object, ...]
    names: tuple[str, ...]
    keywords: dict[str, object]


def bind_call(
    module: nn.Module, args: Sequence[object], kwargs: Mapping[str, object]
) -> BoundCall | UnboundCall:
    """The call's arguments, the same for a keyword and for its position.

    A keyword that `forward` has no name for counts as not given where it is None, and one that has
    no position where it is the default. Arguments are tensors, numbers, strings, None, and tuples,
    lists and dicts of them; at least one is a tensor, and none is empty.
    """
    given = _given(module, args, kwargs)
    if isinstance(given, UnboundCall):
        return given
    flat: list[FlatData] = []
    for name, value in [
        *zip(given.names, given.positional, strict=True),
        *given.keywords.items(),
    ]:
        apart = flatten_data(value, name)
        reason = _refused(apart)
        if isinstance(apart, UnsupportedData) or reason is not None:
            return UnboundCall(reason or "")
        flat.append(apart)
    places = [place for apart in flat for place in apart.places]
    if not places:
        return UnboundCall("it takes no tensor")
    if not given.keywords and all(item.structure.kind in ("tensor", "literal") for item in flat):
        return BoundCall(given.positional, identifiers(given.names))
    if "forward" in vars(module):
        return UnboundCall("its arguments are nested, and this instance has a forward of its own")
    return _nested(given, flat, places)


def _nested(given: _Given, flat: Sequence[FlatData], places: Sequence[TensorPlace]) -> BoundCall:
    items = tuple(apart.structure for apart in flat)
    by_position, by_name = items[: len(given.positional)], items[len(given.positional) :]
    keys = tuple(map(repr, given.keywords))
    structure = DataStructure(
        "tuple",
        items=(
            DataStructure("tuple", items=by_position),
            DataStructure("dict", keys=keys, items=by_name),
        ),
    )
    return BoundCall(
        tuple(place.tensor for place in places),
        identifiers([place.path for place in places]),
        structure,
    )


def _given(
    module: nn.Module, args: Sequence[object], kwargs: Mapping[str, object]
) -> _Given | UnboundCall:
    signature = inspect.signature(module.forward)
    try:
        bound = signature.bind(*args, **kwargs)
    except TypeError as error:
        return UnboundCall(f"its arguments do not bind to forward: {error}")
    given = set(bound.arguments)
    bound.apply_defaults()
    positional: list[object] = []
    names: list[str] = []
    keywords: dict[str, object] = {}
    last = 0
    for name, parameter in signature.parameters.items():
        value = bound.arguments[name]
        if parameter.kind == parameter.VAR_KEYWORD:
            keywords.update({key: item for key, item in value.items() if item is not None})
        elif parameter.kind == parameter.KEYWORD_ONLY:
            if name in given and value is not parameter.default:
                keywords[name] = value
        elif parameter.kind == parameter.VAR_POSITIONAL:
            positional += value
            names += [f"{name}[{index}]" for index in range(len(value))]
            last = len(positional) if value else last
        else:
            positional.append(value)
            names.append(name)
            last = len(positional) if name in given else last
    return _Given(
        tuple(positional[:last]),
        tuple(names[:last]),
        {key: keywords[key] for key in sorted(keywords)},
    )


def _refused(found: FlatData | UnsupportedData) -> str | None:
    """Why no kernel takes this argument; None where one may."""
    import torch

    if isinstance(found, UnsupportedData):
        return f"argument {found.path!r} is {found.what}, no tensor or plain data"
    for place in found.places:
        if place.tensor.layout != torch.strided:
            return f"argument {place.path!r} is a sparse tensor"
        if 0 in place.tensor.shape:
            return f"argument {place.path!r} has no elements: {list(place.tensor.shape)}"
    return None


def describe_call(bound: BoundCall) -> tuple[str, ...]:
    """One text an input, as `describe` has it, and behind them the structure where there is one."""
    structure = () if bound.structure is None else (bound.structure.text,)
    return (*describe(bound.inputs), *structure)


def label_call(bound: BoundCall) -> str:
    """The arguments for people: `float32[2, 8], (float32[8], None), mask=bool[8]`."""
    if bound.structure is None:
        return label(bound.inputs)
    inputs = iter(bound.inputs)
    positional, keywords = bound.structure.items
    words = [_shown(item, inputs) for item in positional.items]
    for key, item in zip(keywords.keys, keywords.items, strict=True):
        words.append(f"{key[1:-1]}={_shown(item, inputs)}")
    return ", ".join(words)


def _shown(structure: DataStructure, inputs: Iterator[object]) -> str:
    if structure.kind == "tensor":
        return label([next(inputs)])
    if structure.kind == "literal":
        return structure.literal
    inner = [_shown(item, inputs) for item in structure.items]
    if structure.kind == "dict":
        pairs = zip(structure.keys, inner, strict=True)
        return f"{{{', '.join(f'{key}: {item}' for key, item in pairs)}}}"
    text = ", ".join(inner)
    return f"[{text}]" if structure.kind == "list" else f"({text})"


def describe(values: Sequence[object]) -> tuple[str, ...]:
    """One text an argument: `float32[2,8]:8,1` (dtype, shape, strides), or a scalar's literal.

    The stride of a dimension of size 1 addresses nothing and is written as 1.
    """
    import torch

    return tuple(
        describe_tensor(value) if isinstance(value, torch.Tensor) else repr(value)
        for value in values
    )


def describe_tensor(value: torch.Tensor) -> str:
    """Dtype, shape and strides of a tensor with plain sizes: `float32[2,8]:8,1`."""
    return layout(value.dtype, tuple(value.shape), value.stride())


def layout(dtype: torch.dtype, shape: Sequence[object], strides: Sequence[object]) -> str:
    """`float32[2,8]:8,1` of these."""
    steps = [1 if size == 1 else step for size, step in zip(shape, strides, strict=True)]
    name = str(dtype).removeprefix("torch.")
    return f"{name}[{','.join(map(str, shape))}]:{','.join(map(str, steps))}"


def label(values: Sequence[object]) -> str:
    """The arguments for people: `float32[2, 8], None`."""
    import torch

    return ", ".join(
        f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
        if isinstance(value, torch.Tensor)
        else repr(value)
        for value in values
    )


def without_values(value: object) -> object:
    """A tensor's dtype, shape and strides on meta; anything else as it is."""
    import torch

    if not isinstance(value, torch.Tensor):
        return value
    return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="meta")


def flat_module(module: nn.Module, bound: BoundCall) -> nn.Module:
    """`module` for calls on `bound.inputs`, by position, that return a tensor or a flat tuple.

    The same object where it is that already; else one of a class made for this call, which shares
    all tensors and children, and whose state_dict has the same names.
    """
    if not bound.nested:
        return module
    own = object.__new__(_flat_class(type(module), bound))
    own.__dict__.update(vars(module))
    return own


def returned(output: object) -> FlatData | None:
    """What a call returned, taken apart; None for what is no nested data of tensors and None."""
    apart = flatten_data(output, nodes=True)
    if not isinstance(apart, FlatData) or not apart.places or not _tensors_only(apart.structure):
        return None
    return apart


def is_flat(structure: DataStructure) -> bool:
    """Whether a problem can return this as it is: a tensor, or a tuple or list of some and None."""
    return structure.kind == "tensor" or (
        structure.kind in ("tuple", "list")
        and all(item.kind in ("tensor", "literal") for item in structure.items)
    )


def _tensors_only(structure: DataStructure) -> bool:
    if structure.kind == "literal":
        return structure.literal == "None"
    return all(map(_tensors_only, structure.items))


def _flat_class(original: type[nn.Module], bound: BoundCall) -> type[nn.Module]:
    """The subclass of `original` for this call. Its name stays; cloudpickle takes it by value."""
    structure = bound.structure
    values = {} if structure is None else values_of(structure)

    def call(self: nn.Module, given: Sequence[object]) -> object:
        if structure is None:
            found = original.forward(self, *given)
        else:
            args, kwargs = unflatten_data(structure, given, values)
            found = original.forward(self, *args, **kwargs)
        if bound.returns is None:
            return found
        apart = returned(found)
        if apart is None:
            raise ProblemError(
                f"{original.__name__} returned a {type(found).__name__}. Expected tensors in "
                "tuples, lists and dicts. Next: cut the model again."
            )
        return apart.tensors if len(apart.places) > 1 else apart.tensors[0]

    return flat_class(original, bound.names, call, {"extra_repr": _repr_of(original, bound)})


def _repr_of(original: type[nn.Module], bound: BoundCall) -> object:
    """The structure is part of what the module is: problems of two structures are two."""
    words = [item.text for item in (bound.structure, bound.returns) if item is not None]

    def extra_repr(self: nn.Module) -> str:
        return ", ".join([word for word in (original.extra_repr(self), *words) if word])

    return extra_repr


@dataclass(frozen=True)
class SubmoduleCall:
    """Calls of the submodule at `path` on arguments of one description.

    The inputs of `bound` have no values. `trace` is a digest of the ops that ran, their constants,
    shapes and operands, parameters by their names in the submodule: equal digests of one class
    compute the same. `costs` are those of the ops of one call. `refused` says why no region can
    stand here.
    """

    path: str
    bound: BoundCall
    specs: tuple[str, ...]
    trace: str
    costs: tuple[OpCost, ...]
    calls: int = 1
    refused: str | None = None

    @property
    def arguments(self) -> tuple[object, ...]:
        """What the region's problem takes."""
        return self.bound.inputs
