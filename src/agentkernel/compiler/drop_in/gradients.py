"""Gradients of a drop-in: kernels forward, the module's formula backward.

The formula is the captured graph as a plain torch function that autograd can differentiate.
"""

from __future__ import annotations

import keyword
import math
import operator
import re
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import torch
from torch import fx, nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from agentkernel.compiler.drop_in.envelope import quoted_text
from agentkernel.compiler.drop_in.interface import returned_paths
from agentkernel.compiler.emit import Names
from agentkernel.compiler.expressions import wrap_line
from agentkernel.domain.problem import DataStructure, ScalarSpec
from agentkernel.tools.problem.capture import Captured, quiet
from agentkernel.tools.problem.composite_operators import DROPOUT, TRAIN, is_recurrent
from agentkernel.tools.problem.example_call import example_call
from agentkernel.tools.problem.graph_identity import random_op
from agentkernel.tools.problem.loading import LoadedProblem

INFIX = {
    operator.add: "+",
    operator.sub: "-",
    operator.mul: "*",
    operator.floordiv: "//",
    operator.truediv: "/",
    operator.mod: "%",
    operator.pow: "**",
}
"""Arithmetic on sizes."""
NAMED = {
    "__and__": "bitwise_and",
    "__or__": "bitwise_or",
    "__xor__": "bitwise_xor",
    "__lshift__": "bitwise_left_shift",
    "__rshift__": "bitwise_right_shift",
}
"""Operators that a file may not name, as the same ones under another name: `aten.__and__`."""
FUNCTION = "formula"
PLAIN = (bool, int, float, str, torch.dtype, torch.layout, torch.memory_format)
UNTRACED = ("_set_grad_enabled", "set_grad_enabled", "inference_mode")
"""Switches of the grad mode, which the captured graph does not have."""


@dataclass(frozen=True)
class Formula:
    """`text` defines `formula(...)`, which takes the tensors `names` and returns the graph's
    outputs in a tuple; `placeholders` are the graph's own words for `names`: all inputs, and what
    else is read."""

    text: str
    names: tuple[str, ...]
    placeholders: tuple[str, ...]


class _Unwritable(Exception):
    """Why the graph is no torch code whose gradients are the module's."""


_KNOWN: WeakKeyDictionary[fx.GraphModule, Formula | str] = WeakKeyDictionary()


def formula_of(loaded: LoadedProblem, captured: Captured) -> Formula | str:
    """The formula of `captured`, the graph of `loaded`; or why there is none.

    It is run once without storage: it must differentiate, and reach the parameters and inputs that
    the module's own autograd reaches.
    """
    if captured.graph not in _KNOWN:
        try:
            with quiet():
                _KNOWN[captured.graph] = _checked(loaded, captured)
        except _Unwritable as error:
            _KNOWN[captured.graph] = str(error)
    return _KNOWN[captured.graph]


def _checked(loaded: LoadedProblem, captured: Captured) -> Formula:
    if captured.mutated_inputs:
        raise _Unwritable("forward changes its inputs in place")
    named = {node.name: node.meta.get("val") for node in captured.graph.graph.nodes}
    if not all(isinstance(named[name], torch.Tensor) for name in captured.outputs if name):
        raise _Unwritable("a number is among its outputs")
    drawn = random_op(captured)
    if drawn is not None:
        raise _Unwritable(f"{drawn} draws random numbers")
    formula = _Writer(captured).formula()
    try:
        module, inputs = example_call(loaded)
        expected = _reached_by_module(module, inputs)
        found = _reached_by_formula(formula, captured, module, inputs)
    except _Unwritable:
        raise
    except Exception as error:  # whatever an operator raises that has no derivative
        raise _Unwritable("an operator of it could not be differentiated") from error
    if expected != found:
        raise _Unwritable("the captured graph has other gradients than the module")
    return formula


def literal_text(text: str, device: str) -> str:
    """A tensor that forward makes of numbers, made on `device`."""
    return f"{text.removesuffix(')')}, device={device})"


class _Writer:
    """Prints one graph; names of placeholders are those of inputs and parameters."""

    def __init__(self, captured: Captured) -> None:
        self._captured = captured
        self._names: dict[str, str] = {}
        self._taken = {"aten", "ctx", "module", "outputs", "torch", FUNCTION}
        self._lines: list[str] = []
        self._device = ""

    def formula(self) -> Formula:
        """The whole function. Raises _Unwritable."""
        nodes = list(self._captured.graph.graph.nodes)
        live = _live(self._captured)
        users = self._captured.user_inputs
        tensors = [
            node
            for node in nodes
            if node.op == "placeholder"
            and (node in live or node.name in users)
            and isinstance(node.meta.get("val"), torch.Tensor)
        ]
        made = {node: text for node in tensors if (text := self._literal(node)) is not None}
        tensors = [node for node in tensors if node not in made]
        tensors.sort(key=lambda node: node.name not in users)
        if not tensors:
            raise _Unwritable("it computes with no tensor that goes in")
        for node in tensors:
            self._names[node.name] = self._unique(self._wanted(node.name))
        self._device = f"{self._names[tensors[0].name]}.device"
        for node, text in made.items():
            self._names[node.name] = self._unique("constant")
            line = f"{self._names[node.name]} = {literal_text(text, self._device)}"
            self._lines += wrap_line(line, "    ")
        for node in nodes:
            if node in live and node.op != "placeholder":
                self._line(node)
        results = [self._names[name] for name in self._captured.outputs if name is not None]
        names = tuple(self._names[node.name] for node in tensors)
        body = [
            '    """What the module computes, in plain torch: the backward pass alone runs it."""',
            "    aten = torch.ops.aten",
            *self._lines,
            *wrap_line(f"return {tuple_text(results)}", "    "),
        ]
        head = wrap_line(f"def {FUNCTION}({', '.join(names)}):", "")
        return Formula("\n".join([*head, *body]), names, tuple(node.name for node in tensors))

    def _literal(self, node: fx.Node) -> str | None:
        """How forward makes this placeholder, where it is a tensor of numbers."""
        return self._captured.literals.get(self._captured.constants.get(node.name, ""))

    def _wanted(self, placeholder: str) -> str:
        captured = self._captured
        known = {**captured.parameters, **captured.constants}
        return known.get(placeholder, placeholder)

    def _unique(self, wanted: str) -> str:
        name = re.sub(r"\W", "_", wanted).strip("_") or "value"
        if name[0].isdigit() or keyword.iskeyword(name):
            name = f"v_{name}"
        stem, count = name, 0
        while name in self._taken:
            count += 1
            name = f"{stem}_{count}"
        self._taken.add(name)
        return name

    def _line(self, node: fx.Node) -> None:
        if node.op != "call_function":
            raise _Unwritable("it runs one of several graphs")
        text = self._size(node)
        if text is not None:
            self._names[node.name] = text
            return
        name = self._unique(node.name)
        self._lines += wrap_line(f"{name} = {self._call(node)}", "    ")
        self._names[node.name] = name

    def _size(self, node: fx.Node) -> str | None:
        """Arithmetic on sizes, which stands where it is used; None for what computes tensors."""
        target = node.target
        if target is torch.ops.aten.sym_size.int:
            return f"{self._value(node.args[0])}.shape[{node.args[1]}]"
        if target is torch.ops.aten.sym_numel.default:
            return f"{self._value(node.args[0])}.numel()"
        if target is operator.neg:
            return f"(-{self._value(node.args[0])})"
        for function, sign in INFIX.items():
            if target is function:
                one, other = map(self._value, node.args)
                return f"({one} {sign} {other})"
        return None

    def _call(self, node: fx.Node) -> str:
        if node.target is operator.getitem:
            return f"{self._value(node.args[0])}[{self._value(node.args[1])}]"
        words = str(node.target).split(".")
        if not isinstance(node.target, torch._ops.OpOverload) or words[0] != "aten":
            raise _Unwritable(f"it calls {getattr(node.target, '__name__', node.target)}")
        if words[1] in NAMED:
            shifted_by_number = words[1].endswith("shift__") and words[2] == "Scalar"
            words[1:] = [NAMED[words[1]], "Tensor_Scalar" if shifted_by_number else words[2]]
        given = [self._value(item) for item in node.args]
        if is_recurrent(node) and node.args[DROPOUT] == 0:
            given[TRAIN] = "True"  # cuDNN has gradients of it in this mode alone
        given += [f"{key}={self._value(item)}" for key, item in node.kwargs.items()]
        return f"{'.'.join(words)}({', '.join(given)})"

    def _value(self, value: object) -> str:
        if isinstance(value, fx.Node):
            if value.name not in self._names:
                raise _Unwritable(f"its graph reads {value.name!r}, which is no tensor")
            return self._names[value.name]
        if isinstance(value, list | tuple):
            inner = ", ".join(self._value(item) for item in value)
            return f"[{inner}]"
        if isinstance(value, torch.device):
            return self._device
        if isinstance(value, float) and not math.isfinite(value):
            return f'float("{value}")'
        if value is None or isinstance(value, PLAIN):
            return repr(value)
        raise _Unwritable(f"an argument of its graph is a {type(value).__name__}")


def tuple_text(items: Sequence[str]) -> str:
    """`(a, b)`, and `(a,)` of one."""
    return f"({items[0]},)" if len(items) == 1 else f"({', '.join(items)})"


def _live(captured: Captured) -> set[fx.Node]:
    """What the returned tensors depend on."""
    named = {node.name: node for node in captured.graph.graph.nodes}
    wanted = [named[name] for name in captured.outputs if name is not None]
    live: set[fx.Node] = set()
    while wanted:
        node = wanted.pop()
        if node not in live:
            live.add(node)
            wanted += node.all_input_nodes
    return live


def _differentiable(value: torch.Tensor) -> bool:
    return value.dtype.is_floating_point or value.dtype.is_complex


class _Switches(TorchFunctionMode):
    """Notes what autograd sees and the graph does not: grad modes and `Tensor.data`."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = False

    def __torch_function__(
        self,
        func: object,
        types: object,
        args: Sequence[object] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        data = getattr(func, "__self__", None) is torch.Tensor.data
        self.seen |= data or getattr(func, "__name__", "") in UNTRACED
        return func(*args, **(kwargs or {}))  # type: ignore[operator]


def _reached_by_module(module: nn.Module, inputs: Sequence[object]) -> set[str]:
    """Inputs ("0", "1"...) and parameters that the module's own autograd reaches."""
    given = [_leaf(item) for item in inputs]
    leaves = {str(i): item for i, item in enumerate(given) if isinstance(item, torch.Tensor)}
    leaves |= dict(module.named_parameters())
    for value in module.parameters():
        value.requires_grad_(_differentiable(value))
    switches = _Switches()
    with torch.enable_grad(), switches:
        outputs = [item for item in tree_leaves(module(*given)) if isinstance(item, torch.Tensor)]
    if switches.seen:
        raise _Unwritable("forward switches the recording of gradients on or off")
    if any(isinstance(node, torch.autograd.function.BackwardCFunction) for node in _nodes(outputs)):
        raise _Unwritable("forward has a backward pass of its own")
    return _reached(outputs, leaves)


def _reached_by_formula(
    formula: Formula, captured: Captured, module: nn.Module, inputs: Sequence[object]
) -> set[str]:
    """As `_reached_by_module`, of the formula, which is differentiated."""
    namespace: dict[str, object] = {"torch": torch}
    exec(compile(formula.text, "<formula>", "exec"), namespace)
    given: list[torch.Tensor] = []
    leaves: dict[str, object] = {}
    for placeholder in formula.placeholders:
        name, value = _source(placeholder, captured, module, inputs)
        free = placeholder in captured.user_inputs or isinstance(value, nn.Parameter)
        given.append(value.detach().requires_grad_(free and _differentiable(value)))
        leaves[name] = given[-1]
    with torch.enable_grad():
        outputs = namespace[FUNCTION](*given)  # type: ignore[operator]
    recorded = [item for item in outputs if item.requires_grad]
    wanted = [item for item in given if item.requires_grad]
    if recorded and wanted:
        ones = [torch.ones_like(item) for item in recorded]
        torch.autograd.grad(recorded, wanted, ones, allow_unused=True, retain_graph=True)
    return _reached(outputs, leaves)


def _source(
    placeholder: str, captured: Captured, module: nn.Module, inputs: Sequence[object]
) -> tuple[str, torch.Tensor]:
    if placeholder in captured.user_inputs:
        index = captured.user_inputs.index(placeholder)
        value = inputs[index]
        assert isinstance(value, torch.Tensor)
        return str(index), value
    path = {**captured.constants, **captured.parameters}[placeholder]
    try:
        value = operator.attrgetter(path)(module)
    except AttributeError as error:
        raise _Unwritable(f"its forward makes the tensor {path!r}") from error
    assert isinstance(value, torch.Tensor)
    return path, value


def _leaf(value: object) -> object:
    if not isinstance(value, torch.Tensor):
        return value
    return value.detach().requires_grad_(_differentiable(value))


def _nodes(outputs: Sequence[torch.Tensor]) -> Iterator[object]:
    """Every node of the outputs' autograd graphs, once."""
    seen: set[object] = set()
    wanted: list[object] = [item.grad_fn for item in outputs]
    while wanted:
        node = wanted.pop()
        if node is not None and node not in seen:
            seen.add(node)
            wanted += [item for item, _ in node.next_functions]  # type: ignore[attr-defined]
            yield node


def _reached(outputs: Sequence[torch.Tensor], leaves: Mapping[str, object]) -> set[str]:
    names = {id(value): name for name, value in leaves.items()}
    found = {id(getattr(node, "variable", None)) for node in _nodes(outputs)}
    found |= {id(item) for item in outputs if item.is_leaf and item.requires_grad}
    return {names[item] for item in found if item in names}


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
    alone = _alone(captured)
    run = wrap_line(f"return {call}{alone[0]}", INDENT)
    if paths != [""]:
        run = wrap_line(f"outputs = {call}", INDENT)
        results = [f"outputs{path}{end}" for path, end in zip(paths, alone, strict=True)]
        run += wrap_line(f"return {tuple_text(results)}", INDENT)
    return CLASS.format(
        name=called[1],
        formula=called[0],
        head="\n".join(wrap_line(f"def forward(ctx, module, {', '.join(own.values())}):", "    ")),
        save="\n".join(wrap_line(f"ctx.save_for_backward({', '.join(saved)})", INDENT)),
        run="\n".join(run),
    )


def _alone(captured: Captured) -> list[str]:
    """For each output `.data` where it is the only view of a value: autograd lets nobody change in
    place what is a view where it leaves such a function, and eager does."""
    bases = [base for base, _ in captured.views.values()]
    ends: list[str] = []
    for place, name in enumerate(captured.outputs):
        base = captured.views.get(place, ("", ""))[0]
        only = base in captured.view_bases and bases.count(base) == 1
        ends += [] if name is None else [".data" if only else ""]
    return ends


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
