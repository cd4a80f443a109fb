"""The interface of a drop-in: forward's signature, nested arguments, and what it returns.

Returned structures are tuples, lists, dicts, named tuples and dataclasses. Eager's outputs follow
the layout of the inputs: a drop-in is written for the example's, such as channels-last, and turns
its outputs where it is given contiguous inputs instead.
"""

from __future__ import annotations

import ast
import collections
import inspect
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, is_dataclass
from typing import TYPE_CHECKING, cast
from weakref import WeakKeyDictionary

import torch

from agentkernel.compiler.drop_in.envelope import differs, refusal
from agentkernel.compiler.emit import Names, identifier
from agentkernel.compiler.ir import UnsupportedOp
from agentkernel.domain.problem import DataStructure, InputSpec, ScalarSpec
from agentkernel.tools.judge.cases.layouts import dense_order, in_order
from agentkernel.tools.judge.cases.shapes import scaled
from agentkernel.tools.problem.attributes import preserve_attributes
from agentkernel.tools.problem.capture import Captured, quiet
from agentkernel.tools.problem.example_call import declared_orders, example_call
from agentkernel.tools.problem.inputs import default_value
from agentkernel.tools.problem.loading import LoadedProblem
from agentkernel.tools.problem.structures import PLAIN, class_label

if TYPE_CHECKING:
    from torch.utils._pytree import TreeSpec


Order = tuple[int, ...]
SMALL_ELEMENTS = 1 << 18
"""Elements of the inputs of a call whose layouts are looked at."""


@dataclass(frozen=True)
class OutputLayouts:
    """`inputs` are the placeholders that do not lie in the usual order; where they do, the output
    at each place of `orders` has its dimensions in memory in this order."""

    inputs: tuple[str, ...]
    orders: Mapping[int, Order]


@dataclass(frozen=True)
class LayoutText:
    """The lines that read how the inputs lie, before anything copies them, and those that turn the
    outputs before they are returned."""

    first: tuple[str, ...] = ()
    last: tuple[str, ...] = ()


NONE = OutputLayouts((), {})
_FOUND: WeakKeyDictionary[torch.fx.GraphModule, OutputLayouts] = WeakKeyDictionary()


def output_layouts(loaded: LoadedProblem, captured: Captured) -> OutputLayouts:
    """What changes of the outputs' layouts where every input is contiguous."""
    if captured.graph not in _FOUND:
        _FOUND[captured.graph] = _output_layouts(loaded, captured)
    return _FOUND[captured.graph]


def _output_layouts(loaded: LoadedProblem, captured: Captured) -> OutputLayouts:
    turned = [order is not None for order in declared_orders(loaded, 0)]
    if not any(turned):
        return NONE
    found = _both(_small_call, loaded, captured, turned)
    if found is None:
        found = _both(lambda *_: example_call(loaded), loaded, captured, turned)
    if found is None:
        return NONE
    declared, other = found
    orders = {}
    for place, (name, one, two) in enumerate(zip(captured.outputs, declared, other, strict=True)):
        if name is None or not isinstance(one, torch.Tensor) or not isinstance(two, torch.Tensor):
            continue
        order = dense_order(two) or tuple(range(two.ndim))
        dense = two.permute(order).is_contiguous()
        if dense and one.shape == two.shape and not _alike(one, two):
            orders[place] = order
    names = tuple(name for name, here in zip(captured.user_inputs, turned, strict=True) if here)
    return OutputLayouts(names, orders) if orders else NONE


def layout_text(
    found: OutputLayouts,
    captured: Captured,
    names: Names,
    arguments: Mapping[str, str],
    outputs: Sequence[str],
) -> LayoutText:
    """`arguments`: placeholder -> variable; `outputs`: the variables of what is computed of the
    outputs, in order."""
    named = (place for place, name in enumerate(captured.outputs) if name is not None)
    places = [place for place in named if place not in captured.views]
    variables = dict(zip(places, outputs, strict=False))
    same = captured.returned_inputs or (None,) * len(captured.outputs)
    turned = [
        f"    {variables[place]} = {in_order_text(variables[place], order)}"
        for place, order in found.orders.items()
        if place in variables and same[place] is None and variables[place].isidentifier()
    ]
    if not turned:
        return LayoutText()
    flag = names.unique("usual_layout")
    condition = " and ".join(f"{arguments[name]}.is_contiguous()" for name in found.inputs)
    return LayoutText((f"{flag} = {condition}",), (f"if {flag}:", *turned))


def in_order_text(name: str, order: Sequence[int]) -> str:
    """The expression of the same values with their dimensions in memory in this order."""
    plain = list(range(len(order)))
    if list(order) == plain:
        return f"{name}.contiguous()"
    back = sorted(plain, key=order.__getitem__)
    there, again = (", ".join(map(str, item)) for item in (order, back))
    return f"{name}.permute({there}).contiguous().permute({again})"


Call = Callable[[LoadedProblem, Captured], tuple[torch.nn.Module, Sequence[object]]]


def _both(
    call: Call, loaded: LoadedProblem, captured: Captured, turned: Sequence[bool]
) -> tuple[list[object], list[object]] | None:
    """The outputs of a call with the inputs as declared, and with all in the usual order; None
    where it does not run."""
    try:
        module, inputs = call(loaded, captured)
        usual = [
            item.contiguous() if isinstance(item, torch.Tensor) and here else item
            for item, here in zip(inputs, turned, strict=True)
        ]
        return _leaves(module, inputs), _leaves(module, usual)
    except Exception:  # noqa: BLE001 - forward does not run so, whatever it says
        return None


def _small_call(
    loaded: LoadedProblem, captured: Captured
) -> tuple[torch.nn.Module, Sequence[object]]:
    """A call that eager can make here: the meta kernels of some operators, such as
    reflection_pad2d, do not keep a memory format that the others keep."""
    first = loaded.problem.shape_sets[0]
    inputs: list[object] = []
    specs = scaled(first, captured, SMALL_ELEMENTS).inputs.inputs
    for spec, order in zip(specs, declared_orders(loaded, 0), strict=True):
        if isinstance(spec, ScalarSpec):
            inputs.append(default_value(spec, "cpu"))
            continue
        value = torch.zeros(spec.shape, dtype=getattr(torch, spec.dtype))
        inputs.append(value if order is None else in_order(value, order))
    return loaded.build(seed=0, device="cpu").eval(), inputs


def _leaves(module: torch.nn.Module, inputs: Sequence[object]) -> list[object]:
    with torch.no_grad(), quiet(), preserve_attributes(module):
        leaves: list[object] = torch.utils._pytree.tree_leaves(module(*inputs))
    return leaves


def _alike(one: torch.Tensor, two: torch.Tensor) -> bool:
    pairs = zip(one.shape, one.stride(), two.stride(), strict=True)
    return all(size == 1 or first == second for size, first, second in pairs)


def returned_classes(tree: TreeSpec) -> tuple[type, ...]:
    """The dataclasses and named tuples in `tree`, each once: a drop-in has to make them."""
    found = [] if tree.is_leaf() else [_class(tree)]
    for child in tree.children():
        found += returned_classes(child)
    return tuple(item for item in dict.fromkeys(found) if item is not None)


def returned_text(tree: TreeSpec, leaves: Iterator[str]) -> str:
    """The expression that makes `tree` of these leaves. Raises Uncovered for what no file can."""
    if tree.is_leaf():
        return next(leaves)
    kind, made = tree.type, _class(tree)
    inner = [returned_text(child, leaves) for child in tree.children()]
    if made is not None and is_dataclass(made):
        filled, empty = cast("tuple[list[str], list[str]]", tree.context)
        given = [f"{name}={item}" for name, item in zip(filled, inner, strict=True)]
        return f"{made.__name__}({', '.join([*given, *(f'{name}=None' for name in empty)])})"
    if made is not None:
        return f"{made.__name__}({', '.join(inner)})"
    if kind is dict:
        keys = cast("list[object]", tree.context)
        pairs = (f"{key!r}: {item}" for key, item in zip(keys, inner, strict=True))
        return f"{{{', '.join(pairs)}}}"
    if kind is list:
        return f"[{', '.join(inner)}]"
    if _is_torch(kind):
        return f"torch.return_types.{cast('type', kind).__name__}(({', '.join(inner)}))"
    if kind is torch.Size:
        return f"torch.Size([{', '.join(inner)}])"
    if kind is not tuple:
        name = class_label(cast("type", kind))
        raise UnsupportedOp(
            "output", f"it returns an object of {name}, which a drop-in cannot make"
        )
    return f"({', '.join(inner)}{',' if len(inner) == 1 else ''})"


def returned_paths(tree: TreeSpec, path: str = "") -> Iterator[str]:
    """What follows a returned value to reach each leaf: `[0].hidden["y"]`."""
    if tree.is_leaf():
        yield path
        return
    made = _class(tree)
    steps: list[str]
    if made is not None and is_dataclass(made):
        steps = [f".{name}" for name in cast("tuple[list[str], list[str]]", tree.context)[0]]
    elif tree.type is dict:
        steps = [f"[{key!r}]" for key in cast("list[object]", tree.context)]
    else:
        steps = [f"[{index}]" for index in range(len(tree.children()))]
    for step, child in zip(steps, tree.children(), strict=True):
        yield from returned_paths(child, path + step)


def _class(tree: TreeSpec) -> type | None:
    kind = tree.type
    if kind is collections.namedtuple:
        return cast("type", tree.context)
    if isinstance(kind, type) and is_dataclass(kind) and not issubclass(kind, dict):
        return kind
    return None


def _is_torch(kind: object) -> bool:
    """Named results, such as those of `max`: torch makes them of a tuple."""
    return getattr(kind, "__module__", "") == "torch.return_types"


LONGEST = 88


@dataclass(frozen=True)
class Signature:
    """`parameters` as they are written behind `self`, `inputs` the variable of each input from left
    to right, and `lines` that fill those and refuse what is nested otherwise or has no default."""

    parameters: tuple[str, ...]
    inputs: tuple[str, ...]
    lines: tuple[str, ...]


@dataclass(frozen=True)
class _Parameter:
    """A parameter of the original's forward; `default` is its source, None for none or no plain
    one."""

    name: str
    default: str | None
    optional: bool


def signature_of(loaded: LoadedProblem, names: Names, count: int, constant: str) -> Signature:
    """The original's signature: its names, its order, its plain defaults.

    `count` inputs go in; `constant` is the name of the text that ends every refusal. A parameter
    that the problem leaves out stays, and any value but its default is refused.
    """
    places, named = _parameters(loaded)
    arguments = loaded.problem.arguments
    if arguments is None:
        given, keywords = [DataStructure("tensor")] * count, {}
    else:
        by_position, by_name = arguments.items
        given = list(by_position.items)
        keys = [key[1:-1] for key in by_name.keys]
        keywords = dict(zip(keys, by_name.items, strict=True))
    said = {item.name for item in (*places, *named)} | set(keywords)
    specs = loaded.problem.shape_sets[0].inputs
    writer = _Writer(names, constant, said, specs)
    positional: list[tuple[str, str | None]] = []
    for index, item in enumerate(given):
        known = places[index] if index < len(places) else None
        wanted = known.name if known is not None else f"input_{index}"
        default = None if known is None else _kept_default(known, item)
        positional.append((writer.take(wanted, item, default), default))
    left = [item for item in places[len(given) :] if item.name not in keywords]
    kept = [item for item in left if item.default is not None]
    positional += [(writer.leave(item), item.default) for item in kept[: _leading(left)]]
    by_name_only = {item.name: item for item in named}
    texts: list[str] = []
    for key, item in keywords.items():
        default = _kept_default(by_name_only[key], item) if key in by_name_only else None
        texts.append(_text(writer.take_named(key, item, default), default))
    rest = [item for item in named if item.name not in keywords and item.default is not None]
    texts += [_text(writer.leave(item), item.default) for item in rest]
    star = ["*"] if texts else []
    return Signature(
        (*_in_order(positional), *star, *texts), tuple(writer.inputs), tuple(writer.all_lines())
    )


def _kept_default(parameter: _Parameter, given: DataStructure) -> str | None:
    """The default that stays for what is given: without one, no parameter before it has one either.
    Where something nested is given, None alone can be told from it."""
    return parameter.default if given.kind == "tensor" or parameter.default == "None" else None


def _leading(parameters: Sequence[_Parameter]) -> int:
    """How many of them have a plain default before the first that has none."""
    return next((at for at, item in enumerate(parameters) if item.default is None), len(parameters))


def _parameters(loaded: LoadedProblem) -> tuple[list[_Parameter], list[_Parameter]]:
    """Of the original's forward: those with a position, and those given by name alone."""
    found = list(inspect.signature(loaded.module_class.forward).parameters.values())[1:]
    places = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return (
        [_parameter(item) for item in found if item.kind in places],
        [_parameter(item) for item in found if item.kind is inspect.Parameter.KEYWORD_ONLY],
    )


def _parameter(item: inspect.Parameter) -> _Parameter:
    plain = type(item.default) in PLAIN
    return _Parameter(
        item.name, repr(item.default) if plain else None, item.default is not item.empty
    )


def _text(name: str, default: str | None) -> str:
    return name if default is None else f"{name}={default}"


def _in_order(positional: Sequence[tuple[str, str | None]]) -> Iterator[str]:
    """No default stands before a parameter without one."""
    last = max((at for at, (_, default) in enumerate(positional) if default is None), default=-1)
    for at, (name, default) in enumerate(positional):
        yield _text(name, default if at > last else None)


CALLED_SO = frozenset((
    "chunk", "col", "col_mask", "filter", "format", "hash", "id", "input", "map", "mask", "near",
    "near_mask", "next", "n_cols", "n_rows", "object", "row", "row_mask", "start", "type",
))  # fmt: skip
"""Names that `identifier` keeps from variables, and that a parameter may have all the same: what
forward calls by their names is none of these."""


def _callers_name(wanted: str, name: str) -> str:
    """The name of a parameter of which forward has the variable `name`: callers say `mask=`."""
    return wanted if wanted in CALLED_SO else name


class _Writer:
    """Names the parameters, and writes what takes them apart."""

    def __init__(
        self,
        names: Names,
        constant: str,
        parameters: Collection[str],
        specs: Sequence[InputSpec],
    ) -> None:
        """`parameters` of the original, whose names no other variable may have; `specs` of the
        inputs from left to right."""
        self._specs = specs
        self._names = names
        self._constant = constant
        self._parameters = parameters
        self.inputs: list[str] = []
        self._lines: list[str] = []
        self._left: list[tuple[str, str]] = []

    def take(self, wanted: str, structure: DataStructure, default: str | None) -> str:
        """The name of a parameter of this structure, whose inputs are noted."""
        name = self._variable(wanted, wanted)
        return self._take(_callers_name(wanted, name), name, wanted, structure, default)

    def take_named(self, key: str, structure: DataStructure, default: str | None) -> str:
        """The same for one that is given by name, which must be that name."""
        return self._take(key, self._variable(key, key), key, structure, default)

    def _variable(self, wanted: str, own: str = "") -> str:
        """A name that no parameter but `own` has."""
        found = self._names.unique(identifier(wanted))
        while found != own and found in self._parameters:
            found = self._names.unique(identifier(wanted))
        return found

    def _is_scalar(self) -> bool:
        """Whether the next input is none that a tensor stands for."""
        place = len(self.inputs)
        return place >= len(self._specs) or isinstance(self._specs[place], ScalarSpec)

    def _take(
        self, key: str, name: str, path: str, structure: DataStructure, default: str | None
    ) -> str:
        """`key` is what callers say, `name` what forward does."""
        if name != key:
            self._lines.append(f"{name} = {key}")
        if default == "None" and not (structure.kind == "tensor" and self._is_scalar()):
            self._lines += refusal([f"{name} is None"], f"{key} is None", self._constant)
        self._fill(name, path, structure)
        return key

    def leave(self, parameter: _Parameter) -> str:
        """The name of a parameter that must have its default."""
        variable = self._variable(parameter.name, parameter.name)
        name = _callers_name(parameter.name, variable)
        self._left.append((name, str(parameter.default)))
        return name

    def all_lines(self) -> list[str]:
        """Those that refuse what has no default, then those that take arguments apart."""
        unmet = [differs(name, ast.literal_eval(default)) for name, default in self._left]
        told = ", ".join(f"{name} is {{{name}}}" for name, _ in self._left)
        return [*refusal(unmet, told, self._constant), *self._lines]

    def _fill(self, name: str, path: str, structure: DataStructure) -> None:
        if structure.kind == "tensor":
            self.inputs.append(name)
            return
        if structure.kind == "dict":
            parts = [_double_quoted(key) for key in structure.keys]
            test, told = f"list({name}) != [{', '.join(parts)}]", f"keys {{list({name})}}"
        else:
            parts = [str(index) for index in range(len(structure.items))]
            test, told = f"len({name}) != {len(parts)}", f"{{len({name})}} items"
        self._lines += refusal([test], f"{name} has {told}", self._constant)
        inner = ["_".join([path, *re.findall(r"\w+", part)]) for part in parts]
        variables = [self._variable(item) for item in inner]
        self._lines += _unpacked(name, variables, parts, structure.kind == "dict")
        for variable, below, item in zip(variables, inner, structure.items, strict=True):
            self._fill(variable, below, item)


def _double_quoted(key: str) -> str:
    """A key's literal as formatters write it."""
    plain = key[1:-1]
    quoted = key[0] == "'" and key[-1] == "'" and '"' not in plain and "\\" not in plain
    return f'"{plain}"' if quoted else key


def _unpacked(name: str, variables: Sequence[str], parts: Sequence[str], keyed: bool) -> list[str]:
    """Assignments of what `name` holds, in one line where they fit."""
    if not variables:
        return []
    values = [f"{name}[{part}]" for part in parts]
    targets = f"{', '.join(variables)}{',' if len(variables) == 1 and not keyed else ''}"
    line = f"{targets} = {', '.join(values) if keyed else name}"
    if len(line) <= LONGEST:
        return [line]
    return [f"{variable} = {value}" for variable, value in zip(variables, values, strict=True)]
