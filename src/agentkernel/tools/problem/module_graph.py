"""What a certificate keeps of a module's graph: its text at the declared sizes, and its free sizes.

Tracing takes every free size for 2 or more; another graph may hold for 1. Two modules of the same
signature for free sizes compute the same at all sizes for which the graph of either holds.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import sympy

from agentkernel.domain.certificate import FreeSizes, ModuleGraph
from agentkernel.domain.errors import ProblemError
from agentkernel.domain.problem import ScalarSpec, ShapeSet, TensorSpec
from agentkernel.storage.source_text import read_literal
from agentkernel.tools.problem.call_arguments import BoundCall, without_values
from agentkernel.tools.problem.capture import Captured, capture
from agentkernel.tools.problem.graph_identity import DIGITS, graph_text, sign_graph
from agentkernel.tools.problem.loading import LoadedProblem
from agentkernel.tools.roofline.model import sizes_of

if TYPE_CHECKING:
    from torch import nn


def problem_graph(loaded: LoadedProblem, captured: Captured) -> ModuleGraph:
    """What `loaded`, whose graph is `captured`, computes on its first shape set.

    Raises ProblemError where the graph holds something that has no canonical form.
    """
    names = tuple(spec.name for spec in loaded.problem.shape_sets[0].inputs)
    bound = BoundCall(_inputs(loaded), names)
    if loaded.live is not None:
        return _graph(loaded, captured, loaded.live, bound)
    try:
        return _graph(loaded, captured, loaded.build(seed=0, device="meta"), bound)
    except (ProblemError, NotImplementedError):  # a constant's value is part of the text
        return _graph(loaded, captured, loaded.build(seed=0), bound)


def _graph(
    loaded: LoadedProblem, captured: Captured, module: nn.Module, bound: BoundCall
) -> ModuleGraph:
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
        free=free_sizes(loaded, captured, module),
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


class UnnamedSize(Exception):
    """A size that the inputs' sizes do not give."""


def free_sizes(loaded: LoadedProblem, captured: Captured, module: nn.Module) -> FreeSizes | None:
    """The free sizes of `captured`, the graph of `loaded`, in the words of a certificate; `module`
    holds its tensors. None where it has none, or a size depends on data."""
    signature = free_signature(captured, module)
    if signature is None:
        return None
    names = size_names(captured)
    ones = (
        name for symbol, name in names.items() if holds_for_one(loaded, captured, module, symbol)
    )
    return FreeSizes(signature=signature, ones=tuple(ones))


def size_names(captured: Captured) -> dict[str, str]:
    """The graph's own symbols -> `s0`, `s1`..., in the order of the inputs."""
    symbols = dict.fromkeys(item.symbol for item in captured.free_dims)
    return {symbol: f"s{place}" for place, symbol in enumerate(symbols)}


def free_signature(captured: Captured, module: nn.Module) -> str | None:
    """`FreeSizes.signature` of this graph; None as there."""
    if not captured.free_dims:
        return None
    try:
        assumed = sorted(map(str, assumptions(captured)))
        text = "\n".join([graph_text(captured, module, naming(captured)), *assumed])
    except UnnamedSize:
        return None
    return hashlib.sha256(text.encode()).hexdigest()[:DIGITS]


def assumptions(captured: Captured) -> tuple[sympy.Basic, ...]:
    """What tracing took for granted of the free sizes, by the names of `size_names`. Raises
    UnnamedSize."""
    known, named = size_names(captured), naming(captured)
    guards = list(captured.guards)
    while (
        pair := next(filter(None, (_given(guard, known) for guard in guards)), None)
    ) is not None:
        guards = [guard.xreplace(dict([pair])) for guard in guards]
    found = map(named, guards)
    return tuple(item for item in dict.fromkeys(found) if item != sympy.true)


def _given(guard: sympy.Basic, known: Mapping[str, str]) -> tuple[sympy.Basic, sympy.Basic] | None:
    """A symbol that is no free size, and what the free sizes give for it, as far as `guard` says
    so."""
    for one, other in (guard.args, guard.args[::-1]) if isinstance(guard, sympy.Eq) else ():
        inner = {str(symbol) for symbol in other.free_symbols}
        if one.is_symbol and str(one) not in known and inner <= set(known):
            return one, other
    return None


def naming(captured: Captured) -> Callable[[object], object]:
    """What writes a size, or what is assumed of some, with the names of `size_names`. It raises
    UnnamedSize."""
    known = {
        symbol: sympy.Symbol(name, positive=True, integer=True)
        for symbol, name in size_names(captured).items()
    }

    def named(size: object) -> object:
        expression = getattr(getattr(size, "node", None), "expr", size)
        free = getattr(expression, "free_symbols", ())
        if not all(str(symbol) in known for symbol in free):
            raise UnnamedSize
        if not free:
            return expression
        return expression.xreplace({symbol: known[str(symbol)] for symbol in free})  # type: ignore[attr-defined]

    return named


def holds_for_one(
    loaded: LoadedProblem, captured: Captured, module: nn.Module, symbol: str
) -> bool:
    """Whether the graph is the same where this size is 1 and the others are as declared."""
    sizes = {item.symbol: item.size for item in captured.free_dims} | {symbol: 1}
    if not captured.admits(sizes):
        return False
    here = replace(
        captured,
        free_dims=tuple(replace(item, size=sizes[item.symbol]) for item in captured.free_dims),
    )
    try:
        other = capture(resized(loaded, captured, sizes))
        return graph_text(here, module, sizes_of(here)) == graph_text(
            other, module, sizes_of(other)
        )
    except (ProblemError, ZeroDivisionError):  # of an assumption that has no value at this size
        return False


def resized(loaded: LoadedProblem, captured: Captured, sizes: Mapping[str, int]) -> LoadedProblem:
    """`loaded` on its first shape set alone, with these values of the free symbols."""
    specs = list(loaded.problem.shape_sets[0].inputs)
    for item in captured.free_dims:
        spec = specs[item.input_index]
        assert isinstance(spec, TensorSpec)
        shape = list(spec.shape)
        shape[item.dim] = sizes[item.symbol]
        specs[item.input_index] = spec.evolve(shape=tuple(shape))
    sets = (ShapeSet(inputs=tuple(specs)),)
    return replace(loaded, problem=loaded.problem.evolve(shape_sets=sets), live_inputs=())
