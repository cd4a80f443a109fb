"""The part of a drop-in that keeps gradients: kernels forward, the module's formula backward."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch

from agentkernel.compiler.drop_in.formula import FUNCTION, Formula, formula_of, tuple_text
from agentkernel.compiler.drop_in.head import quoted_text
from agentkernel.compiler.drop_in.returned import returned_paths
from agentkernel.compiler.emit import Names
from agentkernel.compiler.layout_text import wrap_line
from agentkernel.domain.problem import ScalarSpec
from agentkernel.domain.structure import DataStructure
from agentkernel.tools.problem.capture import Captured
from agentkernel.tools.problem.problems import LoadedProblem

INDENT = "        "
WIDTH = 72
KEPT = "Gradients: the kernels run forward, the backward pass differentiates `{}`."
REFUSED = "Forward only: calls that require gradients are refused."
CLASS = '''class {name}(torch.autograd.Function):
    """The kernels forward; backward differentiates `{formula}` at the saved inputs."""

    @staticmethod
{head}
{save}
{run}

    @staticmethod
    def backward(ctx, *gradients):
        if torch.is_grad_enabled():
            raise RuntimeError("no second derivatives: use the original module for those")
        needed = ctx.needs_input_grad[1:]
        values = zip(ctx.saved_tensors, needed, strict=True)
        inputs = [value.detach().requires_grad_(need) for value, need in values]
        with torch.enable_grad():
            outputs = {formula}(*inputs)
        ends = [
            (output, gradient)
            for output, gradient in zip(outputs, gradients, strict=True)
            if gradient is not None and output.requires_grad
        ]
        found = torch.autograd.grad(
            [output for output, _ in ends],
            [value for value in inputs if value.requires_grad],
            [gradient for _, gradient in ends],
            allow_unused=True,
        )
        left = iter(found)
        return None, *(next(left) if need else None for need in needed)'''
"""`needs_input_grad` has an entry for the module first, which has no gradient."""


@dataclass(frozen=True)
class GradientText:
    """`section` is top-level code ("" where gradients are refused), `lines` come in forward after
    the inputs were checked, `note` goes into the file's docstring."""

    section: str
    lines: tuple[str, ...]
    note: str


def gradient_text(
    loaded: LoadedProblem,
    captured: Captured,
    names: Names,
    expression: Callable[[str], str],
    returned: Callable[[Sequence[str]], str],
) -> GradientText:
    """The gradients of the drop-in for `captured`, whose module-level names are `names`.

    `expression` gives the Python that reads a placeholder in forward, `returned` the statement that
    returns given outputs. Where no formula can be written, calls that require gradients are
    refused.
    """
    formula = formula_of(loaded, captured)
    paths = _output_paths(captured)
    if isinstance(formula, str):
        return _refusing(captured, formula, expression)
    function, kind = names.unique(FUNCTION), names.unique("Differentiable")
    text = formula.text.replace(f"def {FUNCTION}(", f"def {function}(", 1)
    section = f"{text}\n\n\n{_class(loaded, captured, formula, paths, (function, kind))}"
    call = f"{kind}.apply(self, *tensors)"
    result = [f"return {call}"]
    if paths != [""]:
        kept = [f"outputs[{index}]" for index in range(len(paths))]
        result = [f"outputs = {call}", returned(kept)]
    lines = _lines([expression(item) for item in formula.placeholders], result)
    return GradientText(section, lines, KEPT.format(function))


def _lines(tensors: Sequence[str], result: Sequence[str]) -> tuple[str, ...]:
    """In forward: `result` where a gradient is recorded of one of `tensors`."""
    return (
        "if torch.is_grad_enabled():",
        *_inside(f"tensors = {tuple_text(tensors)}", 4),
        "    if any(tensor.requires_grad for tensor in tensors):",
        *(part for line in result for part in _inside(line, 8)),
    )


def _inside(line: str, indent: int) -> list[str]:
    """A line of forward's body, which is indented later, broken where it is long."""
    return [part.removeprefix(INDENT) for part in wrap_line(line, INDENT + " " * indent)]


def _refusing(captured: Captured, reason: str, expression: Callable[[str], str]) -> GradientText:
    values = {node.name: node.meta.get("val") for node in captured.graph.graph.nodes}
    known = [*captured.user_inputs, *captured.parameters]
    floats = [
        expression(name)
        for name in known
        if isinstance(value := values.get(name), torch.Tensor) and value.is_floating_point()
    ]
    if not floats:
        return GradientText("", (), REFUSED)
    words = f"no gradients are recorded here ({reason}); use torch.no_grad() or the original module"
    parts = textwrap.wrap(words, WIDTH)
    quoted = [quoted_text(f"{part} ") for part in parts[:-1]] + [quoted_text(parts[-1])]
    result = ["raise RuntimeError(", *(f"    {part}" for part in quoted), ")"]
    return GradientText("", _lines(floats, result), REFUSED)


def _class(
    loaded: LoadedProblem,
    captured: Captured,
    formula: Formula,
    paths: Sequence[str],
    called: tuple[str, str],
) -> str:
    """The autograd function of the names `called`: the formula's and its own."""
    own = dict(zip(formula.placeholders, formula.names, strict=True))
    specs = loaded.problem.shape_sets[0].inputs
    given = [
        spec.literal if isinstance(spec, ScalarSpec) else own[name]
        for name, spec in zip(captured.user_inputs, specs, strict=True)
    ]
    saved = [
        f"{name}.clone()" if captured.parameters.get(item) in captured.mutated_buffers else name
        for item, name in own.items()
    ]
    call = f"module.forward({', '.join(_arguments(loaded.problem.arguments, given))})"
    run = wrap_line(f"return {call}", INDENT)
    if paths != [""]:
        run = wrap_line(f"outputs = {call}", INDENT)
        results = tuple_text([f"outputs{path}" for path in paths])
        run += wrap_line(f"return {results}", INDENT)
    return CLASS.format(
        name=called[1],
        formula=called[0],
        head="\n".join(wrap_line(f"def forward(ctx, module, {', '.join(own.values())}):", "    ")),
        save="\n".join(wrap_line(f"ctx.save_for_backward({', '.join(saved)})", INDENT)),
        run="\n".join(run),
    )


def _arguments(structure: DataStructure | None, given: Sequence[str]) -> list[str]:
    """A call's arguments of these inputs, as `structure` nests them and names them."""
    if structure is None:
        return list(given)
    inputs = iter(given)
    positional, named = structure.items
    found = [_nested(item, inputs) for item in positional.items]
    return found + [
        f"{key[1:-1]}={_nested(item, inputs)}"
        for key, item in zip(named.keys, named.items, strict=True)
    ]


def _nested(structure: DataStructure, inputs: Iterator[str]) -> str:
    if structure.kind == "tensor":
        return next(inputs)
    items = [_nested(item, inputs) for item in structure.items]
    if structure.kind == "dict":
        pairs = zip(structure.keys, items, strict=True)
        return f"{{{', '.join(f'{key}: {item}' for key, item in pairs)}}}"
    if structure.kind == "list":
        return f"[{', '.join(items)}]"
    return tuple_text(items) if structure.kind == "tuple" else structure.literal


def _output_paths(captured: Captured) -> list[str]:
    """What follows what forward returns, to reach each tensor: `[0]["y"]`; "" for a tensor
    alone."""
    paths = returned_paths(captured.output_tree)
    return [path for path, name in zip(paths, captured.outputs, strict=True) if name is not None]
