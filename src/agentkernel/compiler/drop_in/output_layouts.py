"""The outputs' layouts where the inputs lie in the usual order, though the example's do not.

Eager's outputs follow the layout of the inputs. A drop-in is written for the example's, such as
channels-last, and turns its outputs where it is given contiguous inputs instead.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import torch

from agentkernel.compiler.emit import Names
from agentkernel.domain.problem import ScalarSpec
from agentkernel.tools.judge.cases.layouts import dense_order, in_order
from agentkernel.tools.judge.cases.shapes import scaled
from agentkernel.tools.problem.attributes import preserve_attributes
from agentkernel.tools.problem.capture import Captured, declared_orders, example_call, quiet
from agentkernel.tools.problem.problems import LoadedProblem, default_value

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
    variables = dict(zip(places, outputs, strict=True))
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
