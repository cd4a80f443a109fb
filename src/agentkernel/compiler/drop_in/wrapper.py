"""The whole text of a drop-in: imports, kernels, `ModelNew`, and the forward that launches them."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import torch

from agentkernel.compiler.drop_in.constructor import ConstructorText
from agentkernel.compiler.drop_in.envelope import (
    Envelope,
    envelope,
    import_block,
    limits_of,
    module_docstring,
    verified_text,
)
from agentkernel.compiler.drop_in.forward import Forward
from agentkernel.compiler.drop_in.gradients import GradientText, gradient_text, literal_text
from agentkernel.compiler.drop_in.interface import (
    Signature,
    layout_text,
    output_layouts,
    returned_text,
    signature_of,
)
from agentkernel.compiler.drop_in.module_state import state_text
from agentkernel.compiler.emit import Names
from agentkernel.compiler.expressions import symbols_of
from agentkernel.compiler.fusion import Output, Partition
from agentkernel.compiler.ir import Node, UnsupportedOp
from agentkernel.compiler.kernel_helpers import helper_sources, library_imports
from agentkernel.compiler.providers import AnySchedule, provider_of
from agentkernel.domain.verdict import Precision
from agentkernel.tools.problem.capture import Captured
from agentkernel.tools.problem.loading import LoadedProblem


@dataclass(frozen=True)
class DropInSource:
    """A finished drop-in: its text, kernel names, and the constants of each kernel."""

    text: str
    kernels: tuple[str, ...]
    schedule: dict[str, dict[str, int]]


def write(
    loaded: LoadedProblem,
    captured: Captured,
    constructor: ConstructorText,
    inputs: Mapping[str, Node],
    partition: Partition,
    schedules: Mapping[object, AnySchedule],
    precision: Precision,
) -> DropInSource:
    """The drop-in for `partition`, each step under its entry of `schedules`."""
    forward = Forward(loaded, captured, constructor, Names(set(constructor.names)))
    forward.precision = precision
    expected = forward.names.unique("VERIFIED")
    signature = _arguments(forward, expected)
    limits = limits_of(loaded, captured)
    checked = envelope(loaded, captured, limits, forward.symbols, forward.placeholders, expected)
    state = state_text(
        captured, forward.names, forward.placeholders, constructor.expressions, expected
    )
    forward.state.update(state.names)
    forward.lines += [*signature.lines, *checked.arguments, *state.lines]
    gradients = gradient_text(
        loaded, captured, forward.names, partial(_read, forward), partial(return_text, captured)
    )
    forward.lines += gradients.lines
    start = len(forward.lines)
    _begin(forward, inputs)
    forward.lines += checked.sizes
    _empty(forward, checked.empty, partition.outputs)
    for step in partition.steps:
        provider_of(step).write(step, schedules.get(step, {}), forward, partition.outputs)
    results = [forward.buffers[output.node] for output in partition.outputs]
    count = len(results) - len(captured.written)
    returned = _with_numbers(forward, results[:count])
    layouts = layout_text(
        output_layouts(loaded, captured), captured, forward.names, forward.placeholders, returned
    )
    forward.lines[start:start] = layouts.first
    forward.lines += layouts.last
    forward.lines += written_back(captured, constructor, forward.given, results[count:])
    forward.lines.append(return_text(captured, returned, forward.given, _sizes(forward)))
    return _assemble(forward, checked, expected, gradients)


def _arguments(forward: Forward, constant: str) -> Signature:
    """Name the arguments and the free sizes."""
    captured = forward.captured
    count = len(captured.user_inputs)
    signature = signature_of(forward.loaded, forward.names, count, constant)
    forward.arguments += signature.parameters
    forward.placeholders.update(zip(captured.user_inputs, signature.inputs, strict=True))
    forward.symbols = symbols_of(captured, forward.placeholders)
    return signature


def _begin(forward: Forward, inputs: Mapping[str, Node]) -> None:
    """Make inputs and the module's tensors contiguous, read the free sizes."""
    captured = forward.captured
    forward.device = next(
        (f"{forward.placeholders[name]}.device" for name in inputs if name in forward.placeholders),
        "",
    )
    for placeholder, node in inputs.items():
        if placeholder in forward.placeholders:
            name = forward.placeholders[placeholder]
            forward.buffers[node] = name
            forward.given[placeholder] = name
            if node.shape and _used(captured, placeholder):
                shared = any(base == placeholder for base, _ in captured.views.values())
                if placeholder in captured.mutated_inputs or shared:
                    forward.given[placeholder] = forward.names.unique(f"{name}_given")
                    forward.lines.append(f"{forward.given[placeholder]} = {name}")
                forward.lines.append(f"{name} = {name}.contiguous()")
        elif _used(captured, placeholder):
            expression = _read(forward, placeholder)
            path = captured.parameters.get(placeholder) or captured.constants[placeholder]
            if node.shape and placeholder in forward.state:
                forward.lines.append(f"{expression} = {expression}.contiguous()")
            if path in captured.literals:
                expression = forward.names.unique("constant")
                made = constant_text(captured.literals[path], forward.device)
                forward.lines.append(f"{expression} = {made}")
            forward.buffers[node] = expression
            forward.device = forward.device or f"{expression}.device"
    for symbol, reading in forward.symbols.readings.items():
        name = forward.symbols.readings[symbol].replace(".shape[", "_dim").rstrip("]")
        forward.lines.append(f"{name} = {reading}")


def _read(forward: Forward, placeholder: str) -> str:
    """The Python that reads an input as it came, or a parameter, buffer or constant."""
    if placeholder in forward.placeholders:
        return forward.placeholders[placeholder]
    if placeholder in forward.state:
        return forward.state[placeholder]
    captured = forward.captured
    path = captured.parameters.get(placeholder) or captured.constants[placeholder]
    return forward.constructor.expressions.get(path, f"self.{path}")


def constant_text(text: str, device: str) -> str:
    """A tensor that forward makes of numbers, made on `device`. Raises UnsupportedOp where the call
    has none."""
    if not device:
        raise UnsupportedOp("constant", "nothing says on which device to make a tensor")
    return literal_text(text, device)


def _empty(forward: Forward, condition: str, outputs: Sequence[Output]) -> None:
    """Return empty outputs where `condition` holds: no kernel walks rows without elements."""
    if condition:
        line = len(forward.lines)
        made = [forward.empty_text(item.node, item.strides) for item in outputs]
        made = _with_numbers(forward, made)
        named: list[str] = []
        for at in range(len(made) - len(forward.captured.view_bases), len(made)):
            name = forward.names.unique("whole")
            named.append(f"{name} = {made[at]}")
            made[at] = name
        given = forward.given if forward.captured.views else None
        forward.lines.append(return_text(forward.captured, made, given, _sizes(forward)))
        text = "\n".join([*named, *_short_return(forward.lines.pop(), made)])
        forward.lines[line:] = [
            f"if {condition}:", *textwrap.indent(text, "    ").splitlines()
        ]  # fmt: skip


def _sizes(forward: Forward) -> dict[str, str]:
    """The names of sizes in the text of views -> what the wrapper calls them."""
    texts = " ".join(text for _, text in forward.captured.views.values())
    values = {node.name: node.meta.get("val") for node in forward.captured.graph.graph.nodes}
    found = ((name, values[name]) for name in re.findall(r"\{(\w+)\}", texts))
    return {
        name: forward.symbols.wrapper(value.node.expr)
        for name, value in found
        if isinstance(value, torch.SymInt)
    }


def _with_numbers(forward: Forward, tensors: Sequence[str]) -> list[str]:
    """What is computed of the outputs, in order: tensors, and numbers that sizes give."""
    captured, left = forward.captured, iter(tensors)
    values = {node.name: node.meta.get("val") for node in captured.graph.graph.nodes}
    texts = []
    for name in captured.computed:
        value = values[name]
        if isinstance(value, torch.SymInt):
            texts.append(forward.symbols.wrapper(value.node.expr))
        else:
            texts.append(repr(value) if isinstance(value, int | float) else next(left))
    return texts


def _short_return(line: str, made: Sequence[str]) -> list[str]:
    """A return of fresh tensors, broken where it is long."""
    if len(line) <= 88:
        return [line]
    if line == f"return {made[0]}":
        call, _, rest = made[0].partition("(")
        return [f"return {call}(", f"    {rest.removesuffix(')')}", ")"]
    if line == f"return ({', '.join(made)})":
        return ["return (", *(f"    {item}," for item in made), ")"]
    return [line]


def _used(captured: Captured, placeholder: str) -> bool:
    return any(n.name == placeholder and n.users for n in captured.graph.graph.nodes)


def written_back(
    captured: Captured,
    constructor: ConstructorText,
    given: Mapping[str, str],
    values: Sequence[str],
) -> list[str]:
    """Lines that change the buffers and inputs which the original changes; `values` are the
    variables of `captured.written`."""
    buffers = [constructor.expressions.get(x, f"self.{x}") for x in captured.mutated_buffers]
    targets = [*buffers, *(given[item] for item in captured.mutated_inputs)]
    return [f"{to}.copy_({value})" for to, value in zip(targets, values, strict=True)]


def return_text(
    captured: Captured, outputs: Sequence[str], given: Mapping[str, str] | None = None,
    sizes: Mapping[str, str] | None = None,
) -> str:  # fmt: skip
    """Return the outputs in the structure that the original has; an input that it changes and
    returns is that input, by its variable in `given`. `sizes`: what the sizes in the text of views
    are called."""
    same = captured.returned_inputs or (None,) * len(captured.outputs)
    own = [item if item in captured.mutated_inputs else None for item in same]
    made_as = dict(zip(captured.computed, outputs, strict=False)) | dict(given or {})
    names = iter(outputs)
    leaves: list[str] = []
    for place, (name, item) in enumerate(zip(captured.outputs, own, strict=True)):
        if given is not None and place in captured.views:
            base, text = captured.views[place]
            leaves.append(f"{made_as[base]}{text.format_map(sizes or {})}")
            continue
        plain = captured.plain_outputs.get(place)
        made = repr(plain) if name is None else next(names)
        leaves.append(given[item] if item is not None and given else made)
    return f"return {returned_text(captured.output_tree, iter(leaves))}"


def _assemble(
    forward: Forward, checked: Envelope, expected: str, gradients: GradientText
) -> DropInSource:
    constructor = forward.constructor
    head = f"def forward(self, {', '.join(forward.arguments)}):"
    method = textwrap.indent("\n".join([head, *textwrap.indent(
        "\n".join(forward.lines), "    ").splitlines()]), "    ")  # fmt: skip
    model = "\n".join([constructor.header, *([constructor.body, ""] if constructor.body else []),
                       method])  # fmt: skip
    kernels = [*helper_sources(forward.helpers), *forward.pieces]
    imports = import_block(
        [*constructor.imports, *sorted(forward.imports), *library_imports(kernels)]
    )
    sections = [
        "\n\n".join([module_docstring(forward.loaded, checked, gradients.note, constructor.copies),
                     imports, verified_text(expected, checked)]),
        *kernels,
        *([constructor.helpers] if constructor.helpers else []),
        *([gradients.section] if gradients.section else []),
        model,
    ]  # fmt: skip
    return DropInSource("\n\n\n".join(sections) + "\n", tuple(forward.kernels), forward.schedule)
