"""A forward's arguments as one flat list of inputs, and modules that are called on that list."""

from __future__ import annotations

import inspect
import itertools
import keyword
import re
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

from agentkernel.domain.errors import ProblemError
from agentkernel.domain.problem import DataStructure, ScalarSpec, TensorSpec
from agentkernel.tools.problem.structures import DEEPEST, KINDS, PLAIN, unflatten_data, values_of

if TYPE_CHECKING:
    from torch import nn

_numbers = itertools.count()
GIVE_IT = {
    "--input": 'add it with --input "name=dtype[shape]", or --kwargs for what is no tensor',
    "get_inputs()": "give it in get_inputs() or get_kwargs()",
    "example_inputs": "give it in example_inputs or example_kwargs",
}
"""What to do about a missing argument, by what gave the others."""


@dataclass(frozen=True)
class FlatCall:
    """A call's inputs from left to right, and what each is called: `x`, `state[0]`, `alpha`.

    `structure` says how they lie in the pair of positional arguments and keywords; None where they
    are the positional arguments.
    """

    inputs: tuple[object, ...]
    names: tuple[str, ...]
    structure: DataStructure | None = None


@dataclass
class _Walk:
    """The inputs that were found on the way through nested arguments."""

    inputs: list[object] = field(default_factory=list)
    names: list[str] = field(default_factory=list)

    def structure(self, value: object, path: str, depth: int = 0) -> DataStructure:
        """How the inputs lie in `value`. Raises ProblemError for what is no plain data."""
        if _is_input(value):
            self.inputs.append(value)
            self.names.append(path)
            return DataStructure("tensor")
        kind = KINDS.get(type(value))
        if kind is None or depth > DEEPEST:
            raise ProblemError(
                f"Input {path!r} is a {type(value).__name__}. Expected a tensor, a number, a "
                "string or None, or tuples, lists and dicts of them. Next: pass its tensors "
                "one by one."
            )
        if isinstance(value, dict):
            odd = next((key for key in value if type(key) not in PLAIN), None)
            if odd is not None:
                raise ProblemError(
                    f"Input {path!r} is a dict with a key of class {type(odd).__name__}. "
                    "Expected strings or numbers as keys. Next: use those."
                )
            keys = tuple(map(repr, value))
            held = zip(keys, value.values(), strict=True)
            items = [self.structure(item, f"{path}[{key}]", depth + 1) for key, item in held]
            return DataStructure("dict", keys=keys, items=tuple(items))
        return DataStructure(kind, items=tuple(
            self.structure(item, f"{path}[{index}]", depth + 1)
            for index, item in enumerate(cast("Sequence[object]", value))
        ))  # fmt: skip


def _is_input(value: object) -> bool:
    import torch

    return isinstance(value, torch.Tensor | TensorSpec | ScalarSpec) or type(value) in PLAIN


def flatten_call(
    forward: Callable[..., object],
    args: Sequence[object],
    kwargs: Mapping[str, object],
    where: str,
) -> FlatCall:
    """The call of `forward` (a plain function, `self` its first parameter) on these arguments.

    A keyword for a parameter that has a position counts as given there, with defaults in the gaps.
    `where` names what gave the arguments. Raises ProblemError where they do not bind, or hold what
    is neither tensor nor plain data.
    """
    signature = inspect.signature(forward)
    try:
        bound = signature.bind(None, *args, **kwargs)
    except TypeError as error:
        raise ProblemError(_unbound(signature, args, kwargs, where, str(error))) from error
    positional, named = _ordered(signature, bound)
    walk = _Walk()
    items = tuple(walk.structure(value, name) for name, value in positional)
    others = tuple(walk.structure(value, name) for name, value in named.items())
    if not named and all(item.kind == "tensor" for item in items):
        return FlatCall(tuple(walk.inputs), tuple(walk.names))
    keys = tuple(map(repr, named))
    structure = DataStructure(
        "tuple",
        items=(DataStructure("tuple", items=items), DataStructure("dict", keys=keys, items=others)),
    )
    return FlatCall(tuple(walk.inputs), tuple(walk.names), structure)


def _ordered(
    signature: inspect.Signature, bound: inspect.BoundArguments
) -> tuple[list[tuple[str, object]], dict[str, object]]:
    """Positional arguments with their names up to the last one given, then keywords."""
    positional: list[tuple[str, object]] = []
    named: dict[str, object] = {}
    given = dict(bound.arguments)
    parameters = list(signature.parameters.items())[1:]
    places = [name for name, item in parameters if _has_place(item)]
    last = max((at for at, name in enumerate(places) if name in given), default=-1)
    for name, parameter in parameters:
        if _has_place(parameter):
            at = places.index(name)
            if at > last:
                continue
            if name in given and len(positional) == at:
                positional.append((name, given[name]))
            elif name in given:
                named[name] = given[name]
            elif type(parameter.default) in PLAIN and len(positional) == at:
                positional.append((name, parameter.default))
        elif parameter.kind is parameter.VAR_POSITIONAL:
            values = cast("tuple[object, ...]", given.get(name, ()))
            start = len(positional)
            positional += [(f"input_{start + i}", item) for i, item in enumerate(values)]
        elif parameter.kind is parameter.VAR_KEYWORD:
            named.update(cast("dict[str, object]", given.get(name, {})))
        elif name in given:
            named[name] = given[name]
    return positional, named


def _has_place(parameter: inspect.Parameter) -> bool:
    return parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)


def _unbound(
    signature: inspect.Signature,
    args: Sequence[object],
    kwargs: Mapping[str, object],
    where: str,
    why: str,
) -> str:
    """The one line for arguments that do not bind."""
    text = str(signature.replace(parameters=list(signature.parameters.values())[1:]))
    given = [f"{len(args)} by position"] if args or not kwargs else []
    given += [f"{', '.join(kwargs)} by name"] if kwargs else []
    next_step = (
        GIVE_IT[where] if "missing" in why else "compare the inputs with forward's parameters"
    )
    return (
        f"What {where} gives does not fit forward{text}: {why}. "
        f"Expected its arguments; given: {' and '.join(given)}. Next: {next_step}."
    )


def identifiers(paths: Sequence[str]) -> tuple[str, ...]:
    """An identifier for each place, no two the same: `masks['full'][0]` -> `masks_full_0`."""
    found: dict[str, None] = {}
    for path in paths:
        name = "_".join(re.findall(r"[A-Za-z0-9_]+", path))
        if not name.isidentifier() or keyword.iskeyword(name):
            name = f"input_{name}"
        while name in found:
            name += "_"
        found[name] = None
    return tuple(found)


def called_flat(
    module: nn.Module, structure: DataStructure | None, names: Sequence[str] = ()
) -> nn.Module:
    """`module` itself, from now on called on the flat list of inputs; its state_dict is the same.

    Nothing changes where `structure` is None. Raises ProblemError for an instance whose forward is
    not its class's.
    """
    import torch

    if structure is None:
        return module
    if "forward" in vars(module) or isinstance(module, torch.jit.ScriptModule):
        raise ProblemError(
            f"{type(module).__name__} is an instance with a forward of its own, and its arguments "
            "are nested or given by name. Expected the forward of its class. "
            "Next: wrap it in a module whose forward calls it."
        )
    original, values = type(module), values_of(structure)

    def call(self: nn.Module, given: Sequence[object]) -> object:
        args, kwargs = unflatten_data(structure, given, values)
        return original.forward(self, *args, **kwargs)

    known = list(names) or [f"input_{index}" for index in range(structure.tensors)]
    module.__class__ = flat_class(original, identifiers(known), call)
    return module


def flat_class(
    original: type[nn.Module],
    names: Sequence[str],
    call: Callable[[nn.Module, Sequence[object]], object],
    more: Mapping[str, object] | None = None,
) -> type[nn.Module]:
    """A subclass of `original`, under its name, whose forward takes the inputs `names` and returns
    `call(self, inputs)`; `more` are other attributes. cloudpickle takes it by value.

    A call in the form of `original`, as a module makes it that calls its own forward once more,
    goes to that one.
    """

    def forward(self: nn.Module, *inputs: object, **named: object) -> object:
        nested = any(isinstance(item, dict | list | tuple) for item in (*inputs, *named.values()))
        other = len(inputs) + len(named) != len(names) or any(item not in names for item in named)
        if nested or other:
            return original.forward(self, *inputs, **named)
        return call(self, (*inputs, *(named[name] for name in names[len(inputs) :])))

    # Dynamo keeps at most eight graphs for one code object, whatever function has it.
    forward.__code__ = forward.__code__.replace(co_name=f"forward_{next(_numbers)}")
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    parameters = [inspect.Parameter(name, kind) for name in ("self", *names)]
    setattr(forward, "__signature__", inspect.Signature(parameters))  # noqa: B010 - no declared field
    made = types.new_class(original.__name__, (original,), {}, lambda own: own.update(
        {
            "__module__": original.__module__,
            "__qualname__": original.__qualname__,
            "__doc__": original.__doc__,
            "forward": forward,
            **(more or {}),
        }
    ))  # fmt: skip
    return cast("type[nn.Module]", made)


__all__ = ["FlatCall", "called_flat", "flat_class", "flatten_call", "identifiers"]
