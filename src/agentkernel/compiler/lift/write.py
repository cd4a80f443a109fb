"""From TorchInductor's code to one readable file that needs torch and triton alone."""

from __future__ import annotations

import ast
import itertools
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import torch

from agentkernel.compiler.drop_in.constructor import ConstructorText, emit_constructor
from agentkernel.compiler.drop_in.envelope import Envelope, envelope
from agentkernel.compiler.drop_in.gradients import GradientText, gradient_text
from agentkernel.compiler.drop_in.head import import_block, module_docstring, verified_text
from agentkernel.compiler.drop_in.limits import Limits, eval_only_once
from agentkernel.compiler.drop_in.output_layouts import layout_text, output_layouts
from agentkernel.compiler.drop_in.returned import returned_classes, returned_text
from agentkernel.compiler.drop_in.signature import Signature, signature_of
from agentkernel.compiler.drop_in.wrapper import (
    DropInSource,
    constant_text,
    return_text,
    written_back,
)
from agentkernel.compiler.emit import Names
from agentkernel.compiler.ir import UnsupportedOp
from agentkernel.compiler.layout_text import forward_lines
from agentkernel.compiler.lift.code import InductorCode, NotLifted
from agentkernel.compiler.lift.forward import Forward
from agentkernel.compiler.lift.options import chosen_options, options_of
from agentkernel.compiler.lift.steps import Return, Unliftable, Wrapper, read_wrapper
from agentkernel.compiler.lift.tensors import ForwardTensor, same_layout, with_strides
from agentkernel.compiler.lift.vocabulary import LIBDEVICE_IMPORT
from agentkernel.compiler.lifted_helpers import lifted_helper_sources
from agentkernel.compiler.sizes import symbols_of
from agentkernel.domain.candidate import NoTemplate
from agentkernel.tools.problem.capture import Captured
from agentkernel.tools.problem.problems import LoadedProblem
from agentkernel.tools.problem.specialise import UnknownSize, specialise


def lift(
    code: InductorCode,
    loaded: LoadedProblem,
    captured: Captured,
    choices: Mapping[str, int] | None = None,
    *,
    differs_in_training: bool | None = None,
) -> DropInSource | NotLifted:
    """The drop-in that does what `code` does; NotLifted, with the reason, where no file can.

    `captured` is the graph that `code` was generated for, its sizes free or not. `choices` picks,
    for a name that the wrapper launches, one of `options_of(code)`; the first where it says
    nothing. `differs_in_training` is what `limits.eval_only` says of the module, None where nobody
    asked: then it is traced twice more, once a graph.
    """
    try:
        returned_text(captured.output_tree, itertools.repeat("_"))
    except UnsupportedOp as error:
        return NotLifted(reason=error.reason)
    constructor = emit_constructor(loaded, returned_classes(captured.output_tree))
    if isinstance(constructor, NoTemplate):
        return NotLifted(reason=constructor.reason)
    if constructor.foreign_imports:
        return NotLifted(reason=f"the constructor imports {', '.join(constructor.foreign_imports)}")
    if len(loaded.problem.shape_sets) > 1:
        return NotLifted(reason="the code holds for one set of shapes, and the problem has several")
    try:
        if differs_in_training is None:
            differs_in_training = eval_only_once(loaded, captured)
        limits = Limits({}, (), differs_in_training)
        return _write(code, loaded, captured, constructor, choices or {}, limits)
    except (Unliftable, UnknownSize) as error:
        return NotLifted(reason=str(error))


def _write(
    code: InductorCode,
    loaded: LoadedProblem,
    captured: Captured,
    constructor: ConstructorText,
    choices: Mapping[str, int],
    limits: Limits,
) -> DropInSource:
    fixed = specialise(captured)
    wrapper = read_wrapper(code.source)
    options = chosen_options(options_of(code, wrapper), choices)
    names = Names(set(constructor.names))
    expected = names.unique("VERIFIED")
    signature = signature_of(loaded, names, len(fixed.user_inputs), expected)
    arguments = dict(zip(fixed.user_inputs, signature.inputs, strict=True))
    symbols = symbols_of(fixed, arguments)
    checked = envelope(loaded, fixed, limits, symbols, arguments, expected)
    forward = Forward(wrapper, options, names, "")
    gradients = gradient_text(
        loaded,
        captured,
        names,
        lambda item: _read(item, fixed, constructor, arguments),
        partial(return_text, fixed),
    )
    lines = [*signature.lines, *checked.arguments, *gradients.lines]
    given = {item: names.unique(f"{arguments[item]}_given") for item in fixed.mutated_inputs}
    lines += [f"{name} = {arguments[item]}" for item, name in given.items()]
    start = len(lines)
    lines += _begin(forward, fixed, code, constructor, arguments)
    results = _results(wrapper, fixed)
    _name_outputs(forward, results, fixed)
    forward.run()
    new, returned = _returned(forward, results, fixed, given)
    layouts = layout_text(output_layouts(loaded, captured), fixed, names, arguments, returned)
    lines[start:start] = layouts.first
    lines += [*forward.lines, *layouts.last, *written_back(fixed, constructor, given, new)]
    lines += forward_lines(return_text(fixed, returned, given))
    file = _File(checked, expected, lines, gradients)
    return _assemble(loaded, signature, constructor, forward, file)


@dataclass(frozen=True)
class _File:
    """What stands around the kernels."""

    checked: Envelope
    expected: str
    lines: list[str]
    gradients: GradientText


def _read(
    placeholder: str, fixed: Captured, constructor: ConstructorText, arguments: Mapping[str, str]
) -> str:
    """The Python that reads an input as it came, or a parameter, buffer or constant."""
    if placeholder in arguments:
        return arguments[placeholder]
    path = {**fixed.constants, **fixed.parameters}[placeholder]
    return constructor.expressions.get(path, f"self.{path}")


def _begin(
    forward: Forward,
    fixed: Captured,
    code: InductorCode,
    constructor: ConstructorText,
    arguments: Mapping[str, str],
) -> list[str]:
    """Lines that bring the inputs into the layout that the code was written for."""
    tensors = _tensors(fixed)
    lines = []
    late: list[tuple[str, str, tuple[int, ...], tuple[int, ...]]] = []
    if len(forward.wrapper.arguments) != len(code.inputs):
        raise Unliftable(
            f"the wrapper takes {len(forward.wrapper.arguments)} tensors, not {len(code.inputs)}"
        )
    read = _names_read(code, forward.wrapper)
    for variable, placeholder in zip(forward.wrapper.arguments, code.inputs, strict=True):
        value = tensors[placeholder]
        shape, strides = tuple(value.shape), tuple(value.stride())
        if placeholder in arguments:
            text = arguments[placeholder]
            forward.device = forward.device or f"{text}.device"
            if shape and variable in read:
                stored = ForwardTensor(text, shape, strides, own=False)
                lines.append(f"{text} = {with_strides(stored, strides)}")
        else:
            path = {**fixed.constants, **fixed.parameters}[placeholder]
            text = _read(placeholder, fixed, constructor, arguments)
            if path in fixed.literals and variable in read:
                late.append((variable, path, shape, strides))
                continue
            if path.startswith("lifted_tensor") and variable in read:
                raise Unliftable("forward makes a tensor of numbers, too many to write out")
            if not value.is_contiguous() and variable in read:
                text = with_strides(ForwardTensor(text, shape, strides, own=False), strides)
        forward.values[variable] = ForwardTensor(text, shape, strides, own=False)
    if not forward.device:
        first = next(iter(forward.values.values()), None)
        if first is None:
            raise Unliftable("nothing that goes in says on which device to work")
        forward.device = f"{first.text}.device"
    for variable, path, shape, strides in late:
        name = forward.names.unique("constant")
        lines.append(f"{name} = {constant_text(fixed.literals[path], forward.device)}")
        forward.values[variable] = ForwardTensor(name, shape, strides, own=False)
    return lines


def _tensors(fixed: Captured) -> dict[str, torch.Tensor]:
    values = {node.name: node.meta.get("val") for node in fixed.graph.graph.nodes}
    return {name: value for name, value in values.items() if isinstance(value, torch.Tensor)}


def _names_read(code: InductorCode, wrapper: Wrapper) -> set[str]:
    """Arguments that a step reads: the others are only taken and freed."""
    read: set[str] = set()
    for step in wrapper.steps:
        for value in vars(step).values():
            items = value if isinstance(value, tuple) else (value,)
            for item in items:
                node = item[1] if isinstance(item, tuple) and len(item) == 2 else item
                if isinstance(node, ast.AST):
                    read |= {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
    return read


def _results(wrapper: Wrapper, fixed: Captured) -> Return:
    last = wrapper.steps[-1]
    written = len(fixed.mutated_buffers) + len(fixed.mutated_inputs)
    wanted = written + sum(name is not None for name in fixed.outputs)
    if not isinstance(last, Return) or len(last.values) < wanted:
        raise Unliftable("the wrapper returns something else than the graph")
    return last


def _name_outputs(forward: Forward, results: Return, fixed: Captured) -> None:
    """What is returned is called `output`."""
    kept = results.values[len(fixed.mutated_buffers) + len(fixed.mutated_inputs) :]
    for value in kept:
        names = [n.id for n in ast.walk(value) if isinstance(n, ast.Name)]
        for name in names:
            forward.wanted[name] = "output"


def _returned(
    forward: Forward, results: Return, fixed: Captured, given: Mapping[str, str]
) -> tuple[list[str], list[str]]:
    """The variables of what the module writes to buffers and inputs, and of what it returns."""
    values = list(results.values)
    new = [forward.text(values.pop(0)) for _ in fixed.written]
    same = fixed.returned_inputs or (None,) * len(fixed.outputs)
    texts = []
    tensors = _tensors(fixed)
    for name, item in zip(fixed.outputs, same, strict=True):
        if name is None:
            continue
        if name not in tensors:
            raise Unliftable("an output is a number")
        stored, wanted = forward.stored(values.pop(0)), tensors[name]
        if item is not None and item in given:
            texts.append(given[item])
            continue
        if not same_layout(tuple(wanted.shape), stored.strides, tuple(wanted.stride())):
            raise Unliftable(f"an output has strides {stored.strides}, not {wanted.stride()}")
        if not forward.made(stored) and stored.text.isidentifier():
            raise Unliftable("an output is an input as it came")
        texts.append(stored.text)
    return new, texts


def _assemble(
    loaded: LoadedProblem,
    signature: Signature,
    constructor: ConstructorText,
    forward: Forward,
    file: _File,
) -> DropInSource:
    if not forward.pieces:
        raise Unliftable("nothing is left to Triton: the library does it all")
    parameters = ", ".join(["self", *signature.parameters])
    body = textwrap.indent("\n".join(file.lines), "    ")
    method = textwrap.indent(f"def forward({parameters}):\n{body}", "    ")
    imports = [*constructor.imports, *([LIBDEVICE_IMPORT] if forward.libdevice else [])]
    model = "\n".join(
        [constructor.header, *([constructor.body, ""] if constructor.body else []), method]
    )
    told = module_docstring(loaded, file.checked, file.gradients.note, constructor.copies)
    sections = [
        "\n\n".join([told, import_block(imports), verified_text(file.expected, file.checked)]),
        *lifted_helper_sources(forward.helpers),
        *forward.pieces,
        *([constructor.helpers] if constructor.helpers else []),
        *([file.gradients.section] if file.gradients.section else []),
        model,
    ]  # fmt: skip
    text = "\n\n\n".join(sections) + "\n"
    return DropInSource(text, tuple(forward.kernels.values()), forward.schedule)
