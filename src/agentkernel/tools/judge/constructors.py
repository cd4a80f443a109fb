"""Modules that the constructor makes of other arguments: the candidate must be right, or raise.

A constructor that takes a size makes a wider module from the same file, whose kernel may have been
written for the declared width alone: one tile along it, a mask that is never needed. One that takes
a number, a flag or a word may have it written into the kernel.
"""

from __future__ import annotations

import dataclasses
import inspect
import random
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, cast

from agentkernel.domain.problem import ShapeSet, TensorSpec
from agentkernel.tools.judge.cases.cases import Case
from agentkernel.tools.judge.variants import (
    LEAST,
    Variant,
    few_elements,
    other_values,
    outputs_differ,
    plain_module,
    plain_outputs,
    variant,
)
from agentkernel.tools.problem.problems import LoadedProblem

if TYPE_CHECKING:
    from agentkernel.tools.problem.capture import Captured

MOST = 12
"""So many arguments are changed, each by itself; which ones of more, the seed says."""
PLAIN_ARGUMENTS = (bool, int, float, str, type(None))
PLACED = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


@dataclasses.dataclass(frozen=True)
class Argument:
    """A plain value that the constructor takes, by its place or its name; `item`: of a tuple or
    list that it takes."""

    place: int | str
    name: str
    value: object
    item: int | None = None


def constructor_variants(
    loaded: LoadedProblem, captured: Captured, case: Case, device: str, seed: int
) -> list[Variant]:
    """For each argument of the constructor, those at their defaults too, a module in which it alone
    is another, where the original takes that and it shows: `case` at the inputs that go with it."""
    if loaded.live is not None or not few_elements(loaded, device):
        return []
    plain = plain_outputs(plain_module(loaded), variant(loaded, case, case.shape.inputs, ""))
    chance = random.Random(seed)
    found = constructor_arguments(loaded)
    if len(found) > MOST:
        found = chance.sample(found, MOST)
    free = {(item.input_index, item.dim) for item in captured.free_dims}
    told = (_first(_tries(loaded, case, one, free, chance), plain, device) for one in found)
    return [item for item in told if item is not None]


def constructor_arguments(loaded: LoadedProblem) -> list[Argument]:
    """What may be another: plain values, those at their defaults too, and those in tuples and
    lists."""
    parameters = list(inspect.signature(loaded.module_class.__init__).parameters.values())[1:]
    placed = [item.name for item in parameters if item.kind in PLACED]
    names = [*placed, *(f"*{index}" for index in range(len(loaded.init_args)))]
    given: list[tuple[int | str, str, object]] = [
        (place, names[place], value) for place, value in enumerate(loaded.init_args)
    ]
    given += [(name, name, value) for name, value in loaded.init_kwargs.items()]
    known = {name for _, name, _ in given}
    given += [
        (item.name, item.name, item.default)
        for item in parameters
        if item.default is not item.empty and item.name not in known
    ]
    found: list[Argument] = []
    for place, name, value in given:
        if type(value) in (tuple, list):
            items = enumerate(cast("Sequence[object]", value))
            found += [
                Argument(place, name, one, i) for i, one in items if type(one) in PLAIN_ARGUMENTS
            ]
        elif type(value) in PLAIN_ARGUMENTS:
            found.append(Argument(place, name, value))
    return found


def _first(tries: Iterator[Variant], plain: list[object] | None, device: str) -> Variant | None:
    """The first that the original takes and that makes a difference."""
    for tried in tries:
        if not few_elements(tried.loaded, device):
            continue
        found = plain_outputs(plain_module(tried.loaded), tried)
        if found is not None and (plain is None or outputs_differ(found, plain)):
            return tried
    return None


def _tries(
    loaded: LoadedProblem,
    case: Case,
    one: Argument,
    free: set[tuple[int, int]],
    chance: random.Random,
) -> Iterator[Variant]:
    """With other values of `one`: at inputs that are larger where the graph fixes the same size,
    at the same ones, and with every size that is equal."""
    inputs = case.shape.inputs
    for value in other_values(one.value, chance, loaded.problem.source):
        changed = _with(loaded, one, value)
        part = "" if one.item is None else f"[{one.item}]"
        told = f"built with {one.name}{part}={value!r}"
        if type(one.value) is not int or one.value < LEAST:
            yield variant(changed, case, inputs, told)
            continue
        assert isinstance(value, int)
        sized = _sized(inputs, free, one.value, value)
        if sized != inputs:
            yield variant(changed, case, sized, told)
        yield variant(changed, case, inputs, told)
        every = _throughout(loaded, one.value, value)
        if (every.init_args, every.init_kwargs) != (loaded.init_args, loaded.init_kwargs):
            yield variant(every, case, sized, f"{told}, and all that are equal")


def _with(loaded: LoadedProblem, one: Argument, value: object) -> LoadedProblem:
    """The problem with `value` for one argument."""
    if one.item is not None:
        held = _held(loaded, one.place)
        items = [*held[: one.item], value, *held[one.item + 1 :]]
        value = tuple(items) if isinstance(held, tuple) else items
    if isinstance(one.place, str):
        named = {**loaded.init_kwargs, one.place: value}
        return dataclasses.replace(loaded, init_kwargs=named)
    args = loaded.init_args
    changed = (*args[: one.place], value, *args[one.place + 1 :])
    return dataclasses.replace(loaded, init_args=changed)


def _held(loaded: LoadedProblem, place: int | str) -> Sequence[object]:
    if isinstance(place, int):
        found = loaded.init_args[place]
    elif place in loaded.init_kwargs:
        found = loaded.init_kwargs[place]
    else:
        found = inspect.signature(loaded.module_class.__init__).parameters[place].default
    return cast("Sequence[object]", found)


def _throughout(loaded: LoadedProblem, size: int, new: int) -> LoadedProblem:
    """The problem with `new` for `size` wherever the constructor is given it."""

    def swapped(value: object) -> object:
        return new if type(value) is int and value == size else value

    return dataclasses.replace(
        loaded,
        init_args=tuple(swapped(item) for item in loaded.init_args),
        init_kwargs={key: swapped(item) for key, item in loaded.init_kwargs.items()},
    )


def _sized(inputs: ShapeSet, free: set[tuple[int, int]], size: int, new: int) -> ShapeSet:
    """Inputs with `new` for `size` wherever the graph fixes it."""
    specs = tuple(
        spec.model_copy(
            update={
                "shape": tuple(
                    new if found == size and (index, dim) not in free else found
                    for dim, found in enumerate(spec.shape)
                )
            }
        )
        if isinstance(spec, TensorSpec)
        else spec
        for index, spec in enumerate(inputs.inputs)
    )
    return ShapeSet(inputs=specs)
