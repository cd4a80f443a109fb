"""The whole text of a drop-in: imports, kernels, `ModelNew`, and the forward that launches them."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import torch

from agentkernel.compiler.attention import AttentionStep, emit_attention_step
from agentkernel.compiler.axes import Store, contiguous_strides
from agentkernel.compiler.drop_in.constructor import ConstructorText
from agentkernel.compiler.drop_in.envelope import (
    Envelope,
    envelope,
    import_block,
    limits_of,
    module_docstring,
    verified_text,
)
from agentkernel.compiler.drop_in.gradients import GradientText, gradient_text, literal_text
from agentkernel.compiler.drop_in.interface import (
    Signature,
    layout_text,
    output_layouts,
    returned_text,
    signature_of,
)
from agentkernel.compiler.emit import Names, Schedule, identifier
from agentkernel.compiler.expressions import Symbols, library_call, symbols_of
from agentkernel.compiler.fusion import LibraryStep, Output, Partition, Region
from agentkernel.compiler.ir import Node, Shape, UnsupportedOp, same
from agentkernel.compiler.kernel import KernelCode, KernelRequest, emit_kernel
from agentkernel.compiler.kernel_helpers import helper_sources
from agentkernel.compiler.products.step import ProductStep, emit_product_step
from agentkernel.domain.verdict import Precision
from agentkernel.tools.problem.capture import Captured
from agentkernel.tools.problem.loading import LoadedProblem

AnySchedule = Schedule | dict[str, int]


@dataclass(frozen=True)
class DropInSource:
    """A finished drop-in: its text, kernel names, and the constants of each kernel."""

    text: str
    kernels: tuple[str, ...]
    schedule: dict[str, dict[str, int]]


@dataclass
class Forward:
    """The forward in the making: lines, and the wrapper's variable for every stored value."""

    loaded: LoadedProblem
    captured: Captured
    constructor: ConstructorText
    names: Names
    arguments: list[str] = field(default_factory=list)
    placeholders: dict[str, str] = field(default_factory=dict)
    given: dict[str, str] = field(default_factory=dict)
    """Placeholder -> the variable of an input that forward changes, as it was given."""
    buffers: dict[Node, str] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)
    pieces: list[str] = field(default_factory=list)
    kernels: list[str] = field(default_factory=list)
    helpers: set[str] = field(default_factory=set)
    schedule: dict[str, dict[str, int]] = field(default_factory=dict)
    symbols: Symbols = field(default_factory=lambda: Symbols({}, {}))
    device: str = ""
    precision: Precision = "strict"


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
    forward.lines += [*signature.lines, *checked.arguments]
    gradients = gradient_text(
        loaded, captured, forward.names, partial(_read, forward), partial(return_text, captured)
    )
    forward.lines += gradients.lines
    start = len(forward.lines)
    _begin(forward, inputs)
    forward.lines += checked.sizes
    _empty(forward, checked.empty, partition.outputs)
    for step in partition.steps:
        if isinstance(step, Region):
            schedule = schedules[step]
            assert isinstance(schedule, Schedule)
            _region(forward, step, schedule, partition.outputs)
        elif isinstance(step, ProductStep | AttentionStep):
            tile = schedules[step]
            assert isinstance(tile, dict)
            _product_step(forward, step, tile, partition.outputs)
        else:
            _library(forward, step)
    results = [forward.buffers[output.node] for output in partition.outputs]
    count = len(results) - len(captured.written)
    returned = _with_numbers(forward, results[:count])
    layouts = layout_text(
        output_layouts(loaded, captured), captured, forward.names, forward.placeholders, returned
    )
    forward.lines[start:start] = layouts.first
    forward.lines += layouts.last
    forward.lines += written_back(captured, constructor, forward.given, results[count:])
    forward.lines.append(return_text(captured, returned, forward.given))
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
    """Name parameters, make inputs contiguous, read the free sizes."""
    captured = forward.captured
    values = {node.name: node.meta.get("val") for node in captured.graph.graph.nodes}
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
            value = values[placeholder]
            if isinstance(value, torch.Tensor) and not value.is_contiguous():
                expression = f"{expression}.contiguous()"
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
    captured = forward.captured
    path = captured.parameters.get(placeholder) or captured.constants[placeholder]
    return forward.constructor.expressions.get(path, f"self.{path}")


def constant_text(text: str, device: str) -> str:
    """A tensor that forward makes of numbers, made on `device`. Raises Uncovered where the call
    has none."""
    if not device:
        raise UnsupportedOp("constant", "nothing says on which device to make a tensor")
    return literal_text(text, device)


def _empty(forward: Forward, condition: str, outputs: Sequence[Output]) -> None:
    """Return empty outputs where `condition` holds: no kernel walks rows without elements."""
    if condition:
        line = len(forward.lines)
        made = [_empty_tensor(forward, item.node, item.strides) for item in outputs]
        made = _with_numbers(forward, made)
        given = forward.given if forward.captured.views else None
        forward.lines.append(return_text(forward.captured, made, given))
        text = "\n".join(_short_return(forward.lines.pop(), made))
        forward.lines[line:] = [
            f"if {condition}:", *textwrap.indent(text, "    ").splitlines()
        ]  # fmt: skip


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


def shape_text(symbols: Symbols, shape: Shape) -> str:
    """A tuple of sizes in the wrapper."""
    sizes = [symbols.wrapper(size) for size in shape]
    return f"({', '.join(sizes)}{',' if len(sizes) == 1 else ''})"


def allocation(forward: Forward, name: str, node: Node, strides: Shape) -> str:
    """The line that makes a buffer with eager's dtype and strides."""
    return f"{name} = {_empty_tensor(forward, node, strides)}"


def _empty_tensor(forward: Forward, node: Node, strides: Shape) -> str:
    shape = shape_text(forward.symbols, node.shape)
    tail = f"device={forward.device}, dtype={node.dtype}"
    if all(map(same, strides, contiguous_strides(node.shape))):
        return f"torch.empty({shape}, {tail})"
    layout = shape_text(forward.symbols, strides)
    return f"torch.empty_strided({shape}, {layout}, {tail})"


def _region(
    forward: Forward, region: Region, schedule: Schedule, outputs: Sequence[Output]
) -> None:
    returned = {output.node for output in outputs}
    for store in region.stores:
        _allocate(forward, store, store.node in returned, len(outputs) == 1)
    name = forward.names.unique(f"{_title(region)}_kernel")
    request = KernelRequest(
        region, schedule, name, forward.buffers, forward.symbols, forward.device
    )
    _place(forward, emit_kernel(request))
    forward.schedule[name] = schedule.constants


def _allocate(forward: Forward, store: Store, returned: bool, single: bool) -> None:
    wanted = ("output" if single else f"{store.node.name}_output") if returned else store.node.name
    name = forward.names.unique(wanted)
    forward.buffers[store.node] = name
    forward.lines.append(allocation(forward, name, store.node, store.strides))


def _title(region: Region) -> str:
    """What a kernel is called: its operations' names, the telling ones first."""
    named = [store.node.name for store in region.stores]
    return "_".join(dict.fromkeys(identifier(name).lower() for name in named[:2])) or "kernel"


def _place(forward: Forward, code: KernelCode) -> None:
    forward.pieces.append(code.source)
    forward.kernels += code.kernels
    forward.helpers |= code.helpers
    forward.lines += code.allocations
    forward.lines += [line for text in code.launch for line in text.splitlines()]


def _product_step(
    forward: Forward, anchor: ProductStep | AttentionStep, schedule: dict[str, int],
    outputs: Sequence[Output],
) -> None:  # fmt: skip
    strides = contiguous_strides(anchor.result.shape)
    given = [output.strides for output in outputs if output.node is anchor.result]
    if given and isinstance(anchor, AttentionStep):
        strides = given[0]
    single = bool(given) and len(outputs) == 1
    name = forward.names.unique("output" if single else anchor.result.name)
    kernel = forward.names.unique(f"{identifier(anchor.result.name)}_kernel")
    rest = (schedule, kernel, name, forward.buffers, forward.symbols, forward.precision,
            forward.names)  # fmt: skip
    if isinstance(anchor, AttentionStep):
        code = emit_attention_step(anchor, *rest)
    else:
        code = emit_product_step(anchor, *rest)
    forward.lines.append(allocation(forward, name, anchor.result, strides))
    forward.buffers[anchor.result] = name
    _place(forward, code)
    forward.schedule[kernel] = dict(schedule)


def _library(forward: Forward, step: LibraryStep) -> None:
    name = forward.names.unique(step.node.name)
    call = library_call(step.node, forward.buffers, forward.symbols)
    if step.node.op.startswith("aten.conv"):
        # Its result lies as its input or its weight does, channels-last among others.
        call = f"{call}.contiguous()"
    forward.lines.append(f"{name} = {call}")
    forward.buffers[step.node] = name


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
    captured: Captured, outputs: Sequence[str], given: Mapping[str, str] | None = None
) -> str:
    """Return the outputs in the structure that the original has; an input that it changes and
    returns is that input, by its variable in `given`."""
    same = captured.returned_inputs or (None,) * len(captured.outputs)
    own = [item if item in captured.mutated_inputs else None for item in same]
    made_as = dict(zip(captured.computed, outputs, strict=False)) | dict(given or {})
    names = iter(outputs)
    leaves: list[str] = []
    for place, (name, item) in enumerate(zip(captured.outputs, own, strict=True)):
        if given is not None and place in captured.views:
            base, text = captured.views[place]
            leaves.append(f"{made_as[base]}{text}")
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
    sections = [
        "\n\n".join([module_docstring(forward.loaded, checked, gradients.note, constructor.copies),
                     import_block(constructor.imports), verified_text(expected, checked)]),
        *helper_sources(forward.helpers),
        *forward.pieces,
        *([constructor.helpers] if constructor.helpers else []),
        *([gradients.section] if gradients.section else []),
        model,
    ]  # fmt: skip
    return DropInSource("\n\n\n".join(sections) + "\n", tuple(forward.kernels), forward.schedule)
