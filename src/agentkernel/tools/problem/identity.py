"""The canonical graph of a whole problem or module, and how two of them differ."""

from __future__ import annotations

import copy
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from agentkernel.domain.certificate import ModuleGraph
from agentkernel.domain.errors import ProblemError
from agentkernel.domain.problem import ScalarSpec
from agentkernel.storage.source_text import read_literal
from agentkernel.tools.problem.capture import Captured, capture
from agentkernel.tools.problem.flat import flat_module
from agentkernel.tools.problem.problems import LoadedProblem, problem_from_module
from agentkernel.tools.problem.regions_arguments import BoundCall, without_values
from agentkernel.tools.problem.signature import GraphSignature, sign_graph

if TYPE_CHECKING:
    from torch import nn

CALL = re.compile(r"^n\d+ = (?P<target>[\w.:]+)\((?P<arguments>.*)\) -> (?P<result>.*)$")
STATE = re.compile(r"^(?:p\d+|unused): (?P<form>.*)$")
SHOWN = 60
"""Characters of a value that a difference shows."""


def problem_graph(loaded: LoadedProblem, captured: Captured) -> ModuleGraph:
    """What `loaded`, whose graph is `captured`, computes on its first shape set.

    Raises ProblemError where the graph holds something that has no canonical form.
    """
    names = tuple(spec.name for spec in loaded.problem.shape_sets[0].inputs)
    bound = BoundCall(_inputs(loaded), names)
    if loaded.live is not None:
        return _graph(captured, loaded.live, bound)
    try:
        return _graph(captured, loaded.build(seed=0, device="meta"), bound)
    except (ProblemError, NotImplementedError):  # a constant's value is part of the text
        return _graph(captured, loaded.build(seed=0), bound)


def signed_modules(module: nn.Module, bound: BoundCall) -> tuple[GraphSignature, GraphSignature]:
    """What `module` computes on the tensors of `bound`: as a flat problem, and as a region.

    The module itself is neither called nor changed. Raises ProblemError where it has no graph.
    """
    captured = _captured(module, bound)
    return sign_graph(captured, module, BoundCall(bound.inputs, bound.names)), sign_graph(
        captured, module, bound
    )


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


def _graph(captured: Captured, module: nn.Module, bound: BoundCall) -> ModuleGraph:
    import torch

    signed = sign_graph(captured, module, bound)
    state = module.state_dict(keep_vars=True)
    return ModuleGraph(
        signature=signed.signature,
        text=signed.text,
        parameters=signed.parameters,
        parameter_strides=tuple(tuple(state[name].stride()) for name in signed.parameters),
        input_strides=tuple(
            tuple(x.stride()) if isinstance(x, torch.Tensor) else None for x in bound.inputs
        ),
    )


def _inputs(loaded: LoadedProblem) -> tuple[object, ...]:
    """The first call's inputs without their values."""
    import torch

    if loaded.live_inputs:
        return tuple(map(without_values, loaded.live_inputs))
    return tuple(
        read_literal(spec.literal)
        if isinstance(spec, ScalarSpec)
        else torch.empty(spec.shape, dtype=getattr(torch, spec.dtype), device="meta")
        for spec in loaded.problem.shape_sets[0].inputs
    )


def _captured(module: nn.Module, bound: BoundCall) -> Captured:
    """The graph of a copy: without memory where its forward reads no tensor's value."""
    try:
        return _trace(_hollow(module), bound)
    except (ProblemError, NotImplementedError, RuntimeError):
        return _trace(copy.deepcopy(module).to("cpu"), bound)


def _trace(own: nn.Module, bound: BoundCall) -> Captured:
    return capture(problem_from_module(flat_module(own, bound), bound.inputs))


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


__all__ = ["graph_difference", "problem_graph", "signed_modules", "state_forms"]
