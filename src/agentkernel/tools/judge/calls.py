"""Other calls of forward: by name, with longer lists, arguments that are left out, other words."""

from __future__ import annotations

import dataclasses
import inspect
import random
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from agentkernel.domain.problem import InputSpec, ScalarSpec, ShapeSet, TensorSpec
from agentkernel.domain.structure import DataStructure
from agentkernel.storage.source_text import read_literal
from agentkernel.tools.judge.cases.cases import Case
from agentkernel.tools.judge.variants import (
    Variant,
    few_elements,
    other_values,
    outputs_differ,
    plain_module,
    plain_outputs,
    variant,
)
from agentkernel.tools.problem.problems import LoadedProblem
from agentkernel.tools.problem.structures import PLAIN

MOST_CALL_WORDS = 3
"""Of words so many are asked whose answers differ."""


class CallForm(NamedTuple):
    """How forward is called: what is given by position, then by name, and which parameters with a
    default are left out."""

    placed: tuple[DataStructure, ...]
    named: dict[str, DataStructure]
    names: tuple[str, ...]
    """Those of what is given by position, as far as a caller may use them."""
    left_out: dict[str, object]


def other_calls(loaded: LoadedProblem, case: Case, device: str, seed: int) -> list[Variant]:
    """`case` with each input by its name; with one tensor more in each list of tensors; with each
    argument that the example leaves out, or gives as None, and with other words, where the original
    takes that and it shows."""
    taken = call_form(loaded)
    if taken is None:
        return []
    found = list(_by_name(loaded, case, taken))
    inputs = case.shape.inputs
    longer = list(_lists(loaded, case))
    open_ended = taken.left_out or longer or any(_word(spec) for spec in inputs.inputs)
    if not open_ended or not few_elements(loaded, device):
        return found
    module, chance = plain_module(loaded), random.Random(seed)
    plain = plain_outputs(module, variant(loaded, case, inputs, ""))
    if plain is None:
        return found
    found += [one for one in longer if plain_outputs(module, one) is not None]
    known = [plain]
    for tries, most in _tries(loaded, case, taken, chance):
        shown = 0
        for tried in tries:
            told = plain_outputs(module, tried)
            if told is not None and all(outputs_differ(told, one) for one in known):
                known.append(told)
                found.append(tried)
                shown += 1
            if shown == most:
                break
    return found


def _lists(loaded: LoadedProblem, case: Case) -> Iterator[Variant]:
    """With the last tensor of a list of tensors twice in it."""
    structure, specs = loaded.problem.arguments, case.shape.inputs.inputs
    if structure is None:
        return
    for path, last in _ends(structure):
        grown = _grown(structure, path)
        problem = loaded.problem.model_copy(update={"arguments": grown})
        longer = ShapeSet(inputs=(*specs[: last + 1], specs[last], *specs[last + 1 :]))
        changed = dataclasses.replace(loaded, problem=problem)
        yield variant(changed, case, longer, "one more in a list")


def _ends(
    structure: DataStructure, start: int = 0, path: tuple[int, ...] = ()
) -> Iterator[tuple[tuple[int, ...], int]]:
    """Of each list of tensors the way to it, and which input its last one is."""
    tensors = structure.items and all(item.kind == "tensor" for item in structure.items)
    if structure.kind == "list" and tensors:
        yield path, start + len(structure.items) - 1
    for place, item in enumerate(structure.items):
        yield from _ends(item, start, (*path, place))
        start += item.tensors


def _grown(structure: DataStructure, path: tuple[int, ...]) -> DataStructure:
    items = structure.items
    if not path:
        return dataclasses.replace(structure, items=(*items, items[-1]))
    place, *rest = path
    inner = _grown(items[place], tuple(rest))
    return dataclasses.replace(structure, items=(*items[:place], inner, *items[place + 1 :]))


def call_form(loaded: LoadedProblem) -> CallForm | None:
    """What the example gives; None where forward says nothing of its parameters."""
    try:
        signature = inspect.signature(loaded.module_class.forward)
    except (TypeError, ValueError):
        return None
    parameters = list(signature.parameters.values())[1:]
    structure = loaded.problem.arguments
    placed = tuple(DataStructure("tensor") for _ in loaded.problem.shape_sets[0].inputs)
    named: dict[str, DataStructure] = {}
    if structure is not None:
        placed, by_name = structure.items[0].items, structure.items[1]
        named = {
            str(read_literal(key)): item
            for key, item in zip(by_name.keys, by_name.items, strict=True)
        }
    names = [item.name for item in parameters if item.kind is item.POSITIONAL_OR_KEYWORD]
    free = names if len(names) >= len(placed) == len(parameters[: len(placed)]) else []
    given = {item.name for item in parameters[: len(placed)]} | set(named)
    left_out = {
        item.name: item.default
        for item in parameters
        if item.name not in given
        and item.kind in (item.POSITIONAL_OR_KEYWORD, item.KEYWORD_ONLY)
        and type(item.default) in PLAIN
    }
    return CallForm(placed, named, tuple(free[: len(placed)]), left_out)


def _by_name(loaded: LoadedProblem, case: Case, taken: CallForm) -> Iterator[Variant]:
    if len(taken.names) > 1:
        by_name = {**dict(zip(taken.names, taken.placed, strict=True)), **taken.named}
        changed = _called(loaded, (), by_name)
        yield variant(changed, case, case.shape.inputs, "called with names")


def _called(
    loaded: LoadedProblem, placed: Sequence[DataStructure], named: dict[str, DataStructure]
) -> LoadedProblem:
    by_name = DataStructure("dict", keys=tuple(map(repr, named)), items=tuple(named.values()))
    pair = DataStructure("tuple", items=(DataStructure("tuple", items=tuple(placed)), by_name))
    problem = loaded.problem.model_copy(update={"arguments": pair})
    return dataclasses.replace(loaded, problem=problem)


def _tries(
    loaded: LoadedProblem, case: Case, taken: CallForm, chance: random.Random
) -> Iterator[tuple[Iterator[Variant], int]]:
    """For each argument other values, and how many of them are asked."""
    inputs, source = case.shape.inputs, loaded.problem.source
    for name, default in taken.left_out.items():
        named = {**taken.named, name: DataStructure("tensor")}
        changed = _called(loaded, taken.placed, named)
        yield (
            (
                variant(changed, case, ShapeSet(inputs=(*inputs.inputs, spec)), _told(spec))
                for spec in _specs(name, default, inputs, chance, source)
            ),
            MOST_CALL_WORDS if isinstance(default, str) else 1,
        )
    for place, spec in enumerate(inputs.inputs):
        if not _word(spec):
            continue
        assert isinstance(spec, ScalarSpec)
        value = read_literal(spec.literal)
        yield (
            (
                variant(loaded, case, _put(inputs, place, other), _told(other))
                for other in _specs(spec.name, value, inputs, chance, source)
            ),
            MOST_CALL_WORDS if isinstance(value, str) else 1,
        )


def _word(spec: InputSpec) -> bool:
    """Whether it is a word or None: numbers and flags are asked anyway."""
    value = read_literal(spec.literal) if isinstance(spec, ScalarSpec) else 0
    return value is None or isinstance(value, str)


def _put(inputs: ShapeSet, place: int, spec: InputSpec) -> ShapeSet:
    return ShapeSet(inputs=(*inputs.inputs[:place], spec, *inputs.inputs[place + 1 :]))


def _told(spec: InputSpec) -> str:
    return f"called with {spec.label}"


def _specs(
    name: str, value: object, inputs: ShapeSet, chance: random.Random, source: str
) -> Iterator[InputSpec]:
    """What may stand for `value`: for None tensors first, of the forms of the inputs, masks where
    the name says so."""
    if value is None:
        shapes = [spec.shape for spec in inputs.tensors]
        forms = [form for shape in shapes for form in (shape, shape[-1:], shape[:-1], shape[-2:])]
        floats = [spec.dtype for spec in inputs.tensors if "float" in spec.dtype]
        kinds = [*floats[:1], "bool"]
        for kind in reversed(kinds) if "mask" in name else kinds:
            for form in dict.fromkeys(forms):
                yield TensorSpec.model_validate({"name": name, "dtype": kind, "shape": form})
    for other in other_values(value, chance, source):
        yield ScalarSpec(name=name, literal=repr(other))
