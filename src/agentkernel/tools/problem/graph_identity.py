"""Identity of a captured graph: its canonical text, its signature, and differences of two graphs.

Two submodules have the same signature where they compute the same graph on the same shapes.
"""

from __future__ import annotations

import copy
import hashlib
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from agentkernel.domain.certificate import ModuleGraph
from agentkernel.domain.errors import ProblemError
from agentkernel.tools.problem.call_arguments import (
    BoundCall,
    describe,
    flat_module,
    layout,
)
from agentkernel.tools.problem.capture import Captured, capture
from agentkernel.tools.problem.loading import LoadedProblem, problem_from_module
from agentkernel.tools.roofline.model import sizes_of
from agentkernel.tools.roofline.op_cost import is_free, op_name

if TYPE_CHECKING:
    import torch
    from torch import nn
    from torch.fx import GraphModule, Node


DIGITS = 16


@dataclass(frozen=True)
class GraphSignature:
    """A captured graph's identity.

    `signature`: the first 16 hex digits of the SHA-256 of `text`. `parameters`: the state_dict
    names in the order in which the graph uses them, then those it does not use. `ops`: what does
    device work, each once, in order.
    """

    signature: str
    text: str
    parameters: tuple[str, ...]
    ops: tuple[str, ...]


def sign_graph(captured: Captured, module: nn.Module, bound: BoundCall) -> GraphSignature:
    """Name the graph that `module` runs on `bound` (its tensors' values do not count).

    Part of the name are ops with their overloads, constants, the order of operands, shapes, dtypes
    and strides at the sizes of the call, and how arguments and outputs are nested, if they are.
    Names and values of parameters and inputs are not; values of tensors outside of the state_dict
    are, for a kernel has them written into it.
    """
    writer = _Writer(captured, module)
    lines = [f"input {index}: {text}" for index, text in enumerate(describe(bound.inputs))]
    if bound.structure is not None:
        lines.append(f"arguments: {bound.structure.text}")
    lines += writer.graph_lines()
    if bound.returns is not None:
        lines.append(f"returned as: {bound.returns.text}")
    lines += writer.parameter_lines()
    text = "\n".join(lines)
    digest = hashlib.sha256(text.encode()).hexdigest()
    return GraphSignature(digest[:DIGITS], text, writer.parameters, _device_ops(captured))


def random_op(captured: Captured) -> str | None:
    """The first op that draws random numbers when it runs, None where there is none."""
    import torch

    for node in captured.graph.graph.nodes:
        tags = getattr(node.target, "tags", ())
        if torch.Tag.nondeterministic_seeded in tags and not _draws_nothing(node):
            return op_name(node.target)
    return None


def _draws_nothing(node: Node) -> bool:
    """A dropout that is off: attention's probability is 0, or the module is in eval mode."""
    named = _named_arguments(node)
    off = [named[key] in (0, 0.0, False) for key in ("dropout_p", "train") if key in named]
    return any(off)


def _named_arguments(node: Node) -> dict[str, object]:
    schema = getattr(node.target, "_schema", None)
    if schema is None:
        return dict(node.kwargs)
    defaults = {item.name: item.default_value for item in schema.arguments}
    given = {item.name: value for item, value in zip(schema.arguments, node.args, strict=False)}
    return {**defaults, **given, **node.kwargs}


def _device_ops(captured: Captured) -> tuple[str, ...]:
    names = (
        op_name(node.target)
        for node in captured.graph.graph.nodes
        if node.op == "call_function" and not is_free(node.target)
    )
    return tuple(dict.fromkeys(names))


def graph_text(captured: Captured, module: nn.Module, size_of: Callable[[object], object]) -> str:
    """The canonical text of the graph with each size as `size_of` has it, inputs' sizes too."""
    writer = _Writer(captured, module, size_of)
    return "\n".join([*writer.input_lines(), *writer.graph_lines(), *writer.parameter_lines()])


class _Writer:
    """The canonical text of one graph; parameters are numbered in the order of use."""

    def __init__(
        self,
        captured: Captured,
        module: nn.Module,
        size_of: Callable[[object], object] | None = None,
    ) -> None:
        self._captured = captured
        self._module = module
        self._state: dict[str, torch.Tensor] = {
            name: value
            for name, value in module.state_dict(keep_vars=True).items()
            if hasattr(value, "stride")
        }
        self._size_of = size_of or sizes_of(captured)
        self._used: dict[str, str] = {}

    @property
    def parameters(self) -> tuple[str, ...]:
        """State_dict names, those that the graph uses first."""
        return (*self._used, *self._unused())

    def input_lines(self) -> list[str]:
        """Dtypes, shapes and strides of the inputs as the graph has them."""
        values = {node.name: node.meta.get("val") for node in self._captured.graph.graph.nodes}
        return [f"input: {self._text(values.get(name))}" for name in self._captured.user_inputs]

    def graph_lines(self) -> list[str]:
        """One line an op that an output depends on, and one for what is returned."""
        known = {name: f"i{index}" for index, name in enumerate(self._captured.user_inputs)}
        lines = self._lines(self._captured.graph, known)
        returned = [
            "None" if name is None else self._operand(name, known)
            for name in self._captured.outputs
        ]
        return [*lines, f"return {', '.join(returned)} as {self._captured.output_tree}"]

    def parameter_lines(self) -> list[str]:
        """Descriptions of the state, in the order of `parameters`; tied ones say so."""
        lines: list[str] = []
        first: dict[int, str] = {}
        for name in self.parameters:
            value = self._state[name]
            own = self._used.get(name, "unused")
            other = first.setdefault(id(value), own)
            tie = "" if other == own else f" is {other}"
            lines.append(f"{own}: {describe((value,))[0]}{tie}")
        return lines

    def _unused(self) -> list[str]:
        """What the graph does not use, sorted by what it is: the order of definition is no matter.

        A second name of a tensor is left out.
        """
        known = {id(self._state[name]) for name in self._used}
        rest: dict[int, str] = {}
        for name, value in self._state.items():
            if id(value) not in known:
                rest.setdefault(id(value), name)
        return sorted(rest.values(), key=lambda name: (describe((self._state[name],)), name))

    def _lines(self, graph: GraphModule, known: dict[str, str]) -> list[str]:
        """Lines of the live ops of `graph`; `known` maps its nodes to the names they go by."""
        live = _live(graph)
        lines: list[str] = []
        for node in graph.graph.nodes:
            if node.op == "get_attr":
                known[node.name] = self._attribute(getattr(graph, str(node.target)))
            elif node.op == "call_function" and node.name in live and not _is_size(node):
                text = self._call(node, known)
                known[node.name] = f"n{len(lines)}"
                lines.append(f"{known[node.name]} = {text} -> {self._text(node.meta.get('val'))}")
        return lines

    def _attribute(self, value: object) -> str:
        """A graph that an op runs, or a tensor that the graph holds."""
        import torch
        from torch.fx import GraphModule

        if isinstance(value, torch.Tensor):
            return digest_tensor(value)
        if not isinstance(value, GraphModule):
            raise ProblemError(
                f"The graph holds a {type(value).__name__}. Expected tensors and ops alone. "
                "Next: optimise its parts."
            )
        inner = [node for node in value.graph.nodes if node.op == "placeholder"]
        known = {node.name: f"a{index}" for index, node in enumerate(inner)}
        lines = self._lines(value, known)
        returned = next(node for node in value.graph.nodes if node.op == "output")
        lines.append(f"return {self._argument(returned.args, known)}")
        return f"graph:{hashlib.sha256(chr(10).join(lines).encode()).hexdigest()}"

    def _call(self, node: Node, known: dict[str, str]) -> str:
        items = [self._argument(item, known) for item in node.args]
        items += [f"{key}={self._argument(node.kwargs[key], known)}" for key in sorted(node.kwargs)]
        target = str(node.target) if hasattr(node.target, "_schema") else _plain_name(node.target)
        return f"{target}({', '.join(items)})"

    def _argument(self, value: object, known: Mapping[str, str]) -> str:
        import torch
        from torch.fx import Node

        if isinstance(value, Node):
            return (
                str(self._size_of(value.meta["val"]))
                if _is_size(value)
                else self._operand(value.name, known)
            )
        if isinstance(value, list | tuple):
            return f"[{', '.join(self._argument(item, known) for item in value)}]"
        if isinstance(value, torch.SymInt):
            return str(self._size_of(value))
        return "device" if isinstance(value, torch.device) else repr(value)

    def _operand(self, name: str, known: Mapping[str, str]) -> str:
        """What the node called `name` goes by; a parameter gets its number at its first use."""
        if name in known:
            return known[name]
        path = self._captured.parameters.get(name)
        if path in self._state:
            return self._used.setdefault(path, f"p{len(self._used)}")
        return digest_tensor(self._constant(path or self._captured.constants.get(name, name)))

    def _constant(self, path: str) -> torch.Tensor:
        import torch

        try:
            value = operator.attrgetter(path)(self._module)
        except AttributeError:
            value = None
        if not isinstance(value, torch.Tensor) or value.is_meta:
            raise ProblemError(
                f"Its forward makes the tensor {path!r} out of nothing. Expected constants that "
                "are attributes of the module. Next: register it as a buffer."
            )
        return value

    def _text(self, value: object) -> str:
        """A node's value by dtype, shape and strides at the sizes of the call."""
        import torch

        if isinstance(value, list | tuple):
            return f"[{', '.join(map(self._text, value))}]"
        if not isinstance(value, torch.Tensor):
            return type(value).__name__
        sizes = [self._size_of(item) for item in value.shape]
        return layout(value.dtype, sizes, [self._size_of(item) for item in value.stride()])


def _live(graph: GraphModule) -> set[str]:
    """Names of the nodes that an output depends on."""
    live: set[str] = set()
    for node in reversed(graph.graph.nodes):
        if node.op == "output" or node.name in live:
            live |= {item.name for item in node.all_input_nodes}
    return live


def _is_size(node: Node) -> bool:
    """True for arithmetic on sizes, whose result stands as a number where it is used."""
    import torch

    return node.op == "call_function" and isinstance(node.meta.get("val"), int | torch.SymInt)


def _plain_name(function: object) -> str:
    """The name of a Python function in a graph, such as `getitem`, or of an op without a schema."""
    return str(getattr(function, "__name__", function))


def digest_tensor(value: torch.Tensor) -> str:
    """A constant by its description and its values."""
    import torch

    values = value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
    return f"constant:{describe((value,))[0]}:{hashlib.sha256(values).hexdigest()[:DIGITS]}"


CALL = re.compile(r"^n\d+ = (?P<target>[\w.:]+)\((?P<arguments>.*)\) -> (?P<result>.*)$")
STATE = re.compile(r"^(?:p\d+|unused): (?P<form>.*)$")
SHOWN = 60
"""Characters of a value that a difference shows."""


class SignedModule(NamedTuple):
    """What a module computes, as a flat problem and as a region; `graph` is that of the problem
    `loaded`, a copy of it."""

    flat: GraphSignature
    region: GraphSignature
    loaded: LoadedProblem
    graph: Captured


def signed_module(module: nn.Module, bound: BoundCall) -> SignedModule:
    """What `module` computes on the tensors of `bound`. The module itself is neither called nor
    changed. Raises ProblemError where it has no graph."""
    loaded, captured = _captured(module, bound)
    flat = sign_graph(captured, module, BoundCall(bound.inputs, bound.names))
    return SignedModule(flat, sign_graph(captured, module, bound), loaded, captured)


def graph_difference(found: GraphSignature, verified: ModuleGraph) -> str | None:
    """What `found` computes that was not verified, in a few words; None where they are equal."""
    if found.text == verified.text:
        return None
    ours, theirs = found.text.splitlines(), verified.text.splitlines()
    state = _state(found.parameters, ours), _state(verified.parameters, theirs)
    for one, other in zip(ours, theirs, strict=False):
        if one != other and (words := _operation(one, other)) is not None:
            return words
    for (name, one), (_, other) in zip(*state, strict=False):
        if one != other:
            return f"{name or 'a tensor'} is {_form(one)}, verified for {_form(other)}"
    count = [sum(CALL.match(line) is not None for line in lines) for lines in (ours, theirs)]
    if count[0] != count[1]:
        return f"it computes {count[0]} operations, verified for {count[1]}"
    return "its graph returns or ties its tensors otherwise"


def state_forms(text: str) -> tuple[str, ...]:
    """Dtypes, shapes and strides of the state in a graph's text, sorted, tied tensors once."""
    found = [match["form"] for line in text.splitlines() if (match := STATE.match(line))]
    return tuple(sorted(form for form in found if " is " not in form))


def _captured(module: nn.Module, bound: BoundCall) -> tuple[LoadedProblem, Captured]:
    """A copy as a problem, and its graph: without memory where forward reads no tensor's value."""
    try:
        return _trace(_hollow(module), bound)
    except (ProblemError, NotImplementedError, RuntimeError):
        return _trace(copy.deepcopy(module).to("cpu"), bound)


def _trace(own: nn.Module, bound: BoundCall) -> tuple[LoadedProblem, Captured]:
    loaded = problem_from_module(flat_module(own, bound), bound.inputs)
    return loaded, capture(loaded)


def _hollow(module: nn.Module) -> nn.Module:
    """A copy of `module` whose tensors are on meta, plain attributes too."""
    import torch
    from torch import nn

    memo: dict[int, object] = {}
    for item in module.modules():
        held = (*item._parameters.values(), *item._buffers.values(), *vars(item).values())
        for value in held:
            if type(value) is nn.Parameter:
                meta = value.detach().to("meta")
                memo[id(value)] = nn.Parameter(meta, requires_grad=value.requires_grad)
            elif isinstance(value, torch.Tensor):
                memo[id(value)] = value.detach().to("meta")
    return copy.deepcopy(module, memo)


def _operation(one: str, other: str) -> str | None:
    """How two lines of operations differ; None where the difference is one of operands' forms."""
    found, verified = CALL.match(one), CALL.match(other)
    if found is None or verified is None:
        return None
    name = _short(found["target"])
    if found["target"] != verified["target"]:
        return f"it computes {name} where {_short(verified['target'])} was verified"
    ours, theirs = _arguments(found["arguments"]), _arguments(verified["arguments"])
    for index, (mine, theirs_) in enumerate(zip(ours, theirs, strict=False)):
        if mine != theirs_:
            where = _argument_name(found["target"], index, mine)
            return f"{where} is {_value(mine)}, verified for {_value(theirs_)}"
    if len(ours) != len(theirs):
        more = (ours if len(ours) > len(theirs) else theirs)[min(len(ours), len(theirs)) :]
        verb = "has" if len(ours) > len(theirs) else "lacks"
        return f"{name} {verb} the argument {_value(more[0])}, which was verified otherwise"
    return None


def _arguments(text: str) -> list[str]:
    """`i0, [8], eps=1e-05` -> its parts, brackets and quotes kept whole."""
    parts, depth, quote, start = [], 0, "", 0
    for at, char in enumerate(text):
        if quote:
            quote = "" if char == quote else quote
        elif char in "'\"":
            quote = char
        elif char in "[(":
            depth += 1
        elif char in "])":
            depth -= 1
        elif char == "," and depth == 0:
            parts.append(text[start:at].strip())
            start = at + 1
    last = text[start:].strip()
    return [*parts, last] if last else parts


def _argument_name(target: str, index: int, text: str) -> str:
    """`eps`, as the operator's schema calls it."""
    import torch

    named = re.match(r"^(\w+)=", text)
    if named is not None:
        return named[1]
    try:
        _, name, overload = target.split(".")
        schema = getattr(getattr(torch.ops.aten, name), overload)._schema
        return str(schema.arguments[index].name)
    except (AttributeError, IndexError, ValueError, RuntimeError):
        return f"argument {index} of {_short(target)}"


def _short(target: str) -> str:
    """`aten.layer_norm.default` -> `layer_norm`."""
    words = target.split(".")
    return words[1] if len(words) == 3 else target


def _value(text: str) -> str:
    """An argument for people."""
    plain = re.sub(r"^\w+=", "", text)
    if plain.startswith("constant:"):
        words = plain.split(":")
        return f"a constant {words[1]} of values {words[-1][:8]}"
    if re.match(r"^[inpa]\d+$", plain):
        return f"operand {plain}"
    return plain if len(plain) <= SHOWN else f"{plain[: SHOWN - 3]}..."


def _state(names: Sequence[str], lines: Sequence[str]) -> list[tuple[str, str]]:
    """Parameters in the order of the text, with dtype, shape, strides and ties."""
    forms = [match["form"] for line in lines if (match := STATE.match(line)) is not None]
    return list(zip(names, forms, strict=False))


def _form(text: str) -> str:
    """`float32[8]:1 is p0` -> `float32[8] is p0`; strides alone are shown where they matter."""
    return re.sub(r":[\d,]*", "", text, count=1) or text
