"""Other modules of the class and other calls of forward: the candidate is right, or raises.

A constructor that takes a size makes a wider module from the same source, whose kernel may have
been written for the declared width alone: one tile along it, a mask that is never needed. A
number, a flag or a word that the constructor takes may be written into the kernel. Forward is
also called by name, with longer lists, with left-out arguments and with other words.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import random
import re
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, NamedTuple

import torch

from agentkernel.domain.errors import ProblemError
from agentkernel.domain.problem import DataStructure, InputSpec, ScalarSpec, ShapeSet, TensorSpec
from agentkernel.domain.verdict import Failure
from agentkernel.runtime.stages import at
from agentkernel.storage.source_text import parse_source, read_literal
from agentkernel.tools.judge.case_runner import CaseRunner
from agentkernel.tools.judge.cases.plan import Case
from agentkernel.tools.judge.cases.shapes import CaseShape
from agentkernel.tools.judge.findings import Findings
from agentkernel.tools.judge.known_kernels import open_knowing
from agentkernel.tools.judge.other_inputs import judge_other_shapes
from agentkernel.tools.judge.settings import JudgeSettings, on_device
from agentkernel.tools.problem.given_objects import DEEPEST, Member, members, with_member
from agentkernel.tools.problem.inputs import default_value
from agentkernel.tools.problem.loading import LoadedProblem
from agentkernel.tools.problem.structures import PLAIN, unflatten_data, values_of
from agentkernel.tools.sandbox.session import Worker

if TYPE_CHECKING:
    from torch import nn

    from agentkernel.tools.problem.capture import Captured


ELEMENTS = {"cpu": 1 << 20, "cuda": 1 << 26}
"""Parameters and buffers of a module that is tried have so many elements at most."""
LEAST = 4
"""Smaller integers count something else than elements."""
FACTORS = (3, 2)
"""Three times a size is past the next power of two, and keeps what divides it."""
WORDS = ("sum", "mean", "none")
"""What a word that says how a result is put together may be, beside those of the file."""
MOST_WORDS = 6
LONGEST_WORD = 20


@dataclasses.dataclass(frozen=True)
class Variant:
    """Another module, or another way to call it, and a case for it."""

    loaded: LoadedProblem
    case: Case

    @property
    def inputs(self) -> ShapeSet:
        """Those of the case."""
        return self.case.shape.inputs


def variant(loaded: LoadedProblem, case: Case, inputs: ShapeSet, told: str) -> Variant:
    """`loaded` at `inputs`, with the values of `case`; `told` says to people what is other."""
    problem = loaded.problem.evolve(shape_sets=(inputs,))
    shape = CaseShape(inputs, "scaled", 0)
    return Variant(
        dataclasses.replace(loaded, problem=problem),
        dataclasses.replace(case, shape=shape, variant=told),
    )


def judge_variants(
    variants: Sequence[Variant],
    captured: Captured,
    source: str,
    settings: JudgeSettings,
    findings: Findings,
    first: Worker | None = None,
) -> Failure | None:
    """One after the other in a worker as long as it lives, `first` before a new one: the candidate
    refuses to be built, or to be called, or it is right."""
    left = list(variants)
    while left:
        opened = (
            nullcontext(first)
            if first is not None and first.alive
            else open_knowing(settings, findings.kernels)
        )
        with opened as worker, on_device(settings):
            runner: CaseRunner | None = None
            of: LoadedProblem | None = None
            while left and worker.alive:
                at(f"{len(variants) - len(left)} of {len(variants)} done")
                item = left.pop(0)
                if item.loaded is not of:
                    of = item.loaded
                    runner = _built(worker, of, captured, source, settings, findings.notes)
                if runner is None:
                    continue
                found = judge_other_shapes(runner, None, [item.case])
                if found.failure is not None:
                    return found.failure
    return None


def _built(
    worker: Worker,
    loaded: LoadedProblem,
    captured: Captured,
    source: str,
    settings: JudgeSettings,
    notes: list[str],
) -> CaseRunner | None:
    """The candidate as such a module; None where it, or the original, refuses to be built."""
    try:
        runner = CaseRunner(worker, loaded, captured, settings, notes)
    except ProblemError:
        return None
    return None if runner.build(source) is not None else runner


def other_values(value: object, chance: random.Random, source: str) -> list[object]:
    """Values that may stand for `value`, which is a number, a flag, a word or None, those first
    that tell most. Numbers are drawn, so that no file knows them."""
    if value is None:
        return [round(chance.uniform(0.3, 0.9), 3), chance.randint(2, 3), True]
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, str):
        return [word for word in known_words(source) if word != value]
    if isinstance(value, float):
        near = abs(value) * chance.uniform(1.3, 1.9) + chance.uniform(0.1, 0.3)
        return [round(near, 4), value / 2, round(-near, 4)]
    if not isinstance(value, int):
        return []
    if value >= LEAST:
        return [*(factor * value for factor in FACTORS), value // 2, value + 1]
    beside = [value + 1, value + 2, value - 1]
    chance.shuffle(beside)
    # None of something, last: a loop that steps by it does not end.
    return [number for number in beside if number * value > 0 or value == 0 <= number]


def known_words(source: str) -> list[str]:
    """Words that the text compares with or hands on, then what such words often are."""
    tree = parse_source(source)
    told = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    found = [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in told
    ]
    short = [word for word in found if word.isidentifier() and len(word) <= LONGEST_WORD]
    return list(dict.fromkeys((*WORDS, *short)))[: MOST_WORDS + len(WORDS)]


def few_elements(loaded: LoadedProblem, device: str) -> bool:
    """Whether the module can be built, and has so few elements that a further one is no matter."""
    try:
        module = loaded.build(seed=0, device="meta")
    except (ProblemError, NotImplementedError):
        return False
    count = sum(int(value.numel()) for value in module.state_dict().values())
    return count <= ELEMENTS[device]


def plain_module(loaded: LoadedProblem) -> nn.Module | None:
    """The original on the CPU, called as its class is; None where its constructor raises."""
    bare = loaded.problem.evolve(arguments=None)
    try:
        return dataclasses.replace(loaded, problem=bare).build(seed=0)
    except (ProblemError, NotImplementedError):
        return None


def plain_outputs(module: nn.Module | None, asked: Variant) -> list[object] | None:
    """The leaves of what `module` makes of plain inputs of the form of `asked`, the same in each
    call; None where it takes none such."""
    from torch.utils._pytree import tree_leaves

    if module is None:
        return None
    arguments = asked.loaded.problem.arguments
    torch.manual_seed(0)
    given = [default_value(spec, "cpu") for spec in asked.inputs.inputs]
    args, named = given, {}
    if arguments is not None:
        args, named = unflatten_data(arguments, given, values_of(arguments))
    try:
        with torch.no_grad():
            return tree_leaves(module(*args, **named))
    except Exception:  # noqa: BLE001 - the user's module may raise anything
        return None


def outputs_differ(found: Sequence[object], plain: Sequence[object]) -> bool:
    """Whether two answers are not the same: else what was changed is no matter."""

    def same(one: object, other: object) -> bool:
        if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
            return one.dtype == other.dtype and torch.equal(one, other)
        try:
            return type(one) is type(other) and bool(one == other)
        except Exception:  # noqa: BLE001 - leaves may be anybody's, and compare as they like
            return False

    return len(found) != len(plain) or not all(map(same, found, plain))


MOST = 12
"""So many arguments are changed, each by itself; which ones of more, the seed says."""
WORD = re.compile(r"\w+")
PLACED = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


@dataclasses.dataclass(frozen=True)
class Argument:
    """A plain value that the constructor takes, by its place or its name; `path`: where it lies in
    a tuple, a list or an object that it takes."""

    place: int | str
    name: str
    value: object
    path: tuple[Member, ...] = ()

    @property
    def label(self) -> str:
        """As the constructor reads it: `cfg.heads`."""
        return self.name + "".join(item.text for item in self.path)


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
        words = set(WORD.findall(loaded.problem.source))
        named = [one for one in found if not one.path or str(one.path[-1].key) in words]
        found = chance.sample(named, MOST) if len(named) > MOST else named
    free = {(item.input_index, item.dim) for item in captured.free_dims}
    told = (_first(_tries(loaded, case, one, free, chance), plain, device) for one in found)
    return [item for item in told if item is not None]


def constructor_arguments(loaded: LoadedProblem) -> list[Argument]:
    """What may be another: plain values, those at their defaults too, and those in tuples, lists,
    dicts and configurations."""
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
    return [one for item in given for one in _plain_parts(Argument(*item))]


def _plain_parts(one: Argument) -> Iterator[Argument]:
    """The argument where it is plain, else those of its fields and items that are, as far in as one
    looks. Modules and tensors that a constructor is given are none of these."""
    if type(one.value) in PLAIN:
        yield one
    elif len(one.path) <= DEEPEST and not isinstance(one.value, torch.nn.Module):
        for item in members(one.value):
            yield from _plain_parts(
                dataclasses.replace(one, value=item.value, path=(*one.path, item))
            )


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
        changed = _taken(loaded, one, value)
        if changed is None:
            continue
        told = f"built with {one.label}={value!r}"
        if type(one.value) is not int or one.value < LEAST:
            yield variant(changed, case, inputs, told)
            continue
        assert isinstance(value, int)
        sized = _sized(inputs, free, one.value, value)
        if sized != inputs:
            yield variant(changed, case, sized, told)
        yield variant(changed, case, inputs, told)
        every = _throughout(loaded, one.value, value)
        if every is not loaded:
            yield variant(every, case, sized, f"{told}, and all that are equal")


def _taken(loaded: LoadedProblem, one: Argument, value: object) -> LoadedProblem | None:
    """The problem with `value` for one argument; None where a configuration refuses it."""
    try:
        return _with(loaded, one, value)
    except Exception:  # noqa: BLE001 - the user's classes may raise anything
        return None


def _with(loaded: LoadedProblem, one: Argument, value: object) -> LoadedProblem:
    """The problem with `value` for one argument."""
    value = _replaced(_held(loaded, one.place), one.path, value)
    if isinstance(one.place, str):
        named = {**loaded.init_kwargs, one.place: value}
        return dataclasses.replace(loaded, init_kwargs=named)
    args = loaded.init_args
    changed = (*args[: one.place], value, *args[one.place + 1 :])
    return dataclasses.replace(loaded, init_args=changed)


def _replaced(held: object, path: Sequence[Member], value: object) -> object:
    """`held` with `value` at the end of `path`."""
    if not path:
        return value
    first, *rest = path
    inner = next(item.value for item in members(held) if item.text == first.text)
    return with_member(held, first, _replaced(inner, rest, value))


def _held(loaded: LoadedProblem, place: int | str) -> object:
    if isinstance(place, int):
        return loaded.init_args[place]
    if place in loaded.init_kwargs:
        return loaded.init_kwargs[place]
    return inspect.signature(loaded.module_class.__init__).parameters[place].default


def _throughout(loaded: LoadedProblem, size: int, new: int) -> LoadedProblem:
    """The problem with `new` for `size` wherever the constructor is given it."""

    for one in constructor_arguments(loaded):
        given = isinstance(one.place, int) or one.place in loaded.init_kwargs
        if given and type(one.value) is int and one.value == size:
            loaded = _taken(loaded, one, new) or loaded
    return loaded


def _sized(inputs: ShapeSet, free: set[tuple[int, int]], size: int, new: int) -> ShapeSet:
    """Inputs with `new` for `size` wherever the graph fixes it."""
    specs = tuple(
        spec.evolve(
            shape=tuple(
                new if found == size and (index, dim) not in free else found
                for dim, found in enumerate(spec.shape)
            )
        )
        if isinstance(spec, TensorSpec)
        else spec
        for index, spec in enumerate(inputs.inputs)
    )
    return ShapeSet(inputs=specs)


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
    for tries, most in _call_tries(loaded, case, taken, chance):
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
        problem = loaded.problem.evolve(arguments=grown)
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
    problem = loaded.problem.evolve(arguments=pair)
    return dataclasses.replace(loaded, problem=problem)


def _call_tries(
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
