"""Rewritten graphs against their originals, NaN and infinities included."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from hypothesis import Phase, settings
from torch import fx, nn

from agentkernel.compiler.rewrite import Rewritten, rewrite
from agentkernel.tools.problem.capture import Captured, capture
from agentkernel.tools.problem.loading import problem_from_module

Tensor = torch.Tensor
CLOSE = 1e-9
"""Leeway in fp64, relative to the largest output."""
PROPERTY = settings(max_examples=6, deadline=None, derandomize=True, phases=[Phase.generate])


@dataclass(frozen=True)
class Checked:
    """A module's graph before and after, both with the same answers on random data."""

    module: nn.Module
    captured: Captured
    rewritten: Rewritten

    @property
    def rules(self) -> list[str]:
        """The rules that were applied, in order."""
        return [step.rule for step in self.rewritten.steps]

    @property
    def ops(self) -> list[str]:
        """The calls of the new graph, e.g. `aten.mm.default`."""
        return ops_of(self.rewritten.captured)

    @property
    def flop_ratio(self) -> float:
        """Operations before over operations after."""
        return self.rewritten.before.flops / max(1, self.rewritten.after.flops)


def ops_of(captured: Captured) -> list[str]:
    """The calls of a graph, in order."""
    return [str(n.target) for n in captured.graph.graph.nodes if n.op == "call_function"]


def checked(
    module: nn.Module,
    inputs: Sequence[Tensor],
    *,
    training: bool = False,
    infinities: bool = True,
    specials: bool = True,
    seeds: int = 2,
) -> Checked:
    """Capture, rewrite, and compare both graphs in fp64: random weights and inputs, then inputs
    with NaN and infinities. Raises AssertionError where they differ."""
    captured = capture(problem_from_module(module, tuple(inputs)), training=training)
    before = captured.graph.code
    result = rewrite(captured, infinities=infinities)
    assert captured.graph.code == before, "the original graph was edited"
    sizes = {item.symbol: item.size for item in captured.free_dims}
    for grown in (sizes, {name: 3 * size for name, size in sizes.items()}):
        assert result.captured.admits(grown) or not captured.admits(grown), "a size was fixed"
    for seed in range(seeds):
        _redraw(module, seed)
        given = drawn(inputs, seed)
        same(run(captured, module, given), run(result.captured, module, given))
        if specials and infinities:
            holed = [_holed(value, seed) for value in given]
            same(run(captured, module, holed), run(result.captured, module, holed))
    return Checked(module, captured, result)


def _redraw(module: nn.Module, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, value in module.state_dict().items():
            if value.dtype.is_floating_point:
                value.normal_(generator=generator)
                if name.endswith("var"):
                    value.abs_().add_(0.5)


def drawn(inputs: Sequence[Tensor], seed: int) -> list[Tensor]:
    """Inputs of the same shapes from a normal distribution."""
    generator = torch.Generator().manual_seed(seed + 100)
    return [torch.randn(value.shape, generator=generator, dtype=torch.float64) for value in inputs]


def _holed(value: Tensor, seed: int) -> Tensor:
    """A few elements NaN or infinite, most rows left alone."""
    generator = torch.Generator().manual_seed(seed + 200)
    result = value.clone().reshape(-1)
    for special in (math.inf, -math.inf, math.nan)[seed:]:
        at = int(torch.randint(len(result), (1,), generator=generator))
        result[at] = special
    return result.reshape(value.shape)


class _OnCpu(fx.Interpreter):
    """Runs a graph that was captured on meta in fp32, in fp64 where `wide`."""

    wide = False

    def call_function(self, target: object, args: object, kwargs: dict[str, object]) -> object:
        if "device" in kwargs:
            kwargs = {**kwargs, "device": torch.device("cpu")}
        if self.wide and kwargs.get("dtype") == torch.float32:
            kwargs = {**kwargs, "dtype": torch.float64}
        return super().call_function(target, args, kwargs)


def run(
    captured: Captured,
    module: nn.Module,
    inputs: Sequence[object],
    dtype: torch.dtype = torch.float64,
) -> list[object]:
    """All that the graph returns, on the CPU, in `dtype`."""
    state = module.state_dict()
    users = dict(zip(captured.user_inputs, inputs, strict=True))
    values: list[object] = []
    for node in captured.graph.graph.nodes:
        if node.op != "placeholder":
            continue
        if node.name in users:
            value: object = users[node.name]
        elif node.name in captured.parameters:
            value = state[captured.parameters[node.name]]
        else:
            value = getattr(module, captured.constants[node.name])
        floats = isinstance(value, Tensor) and value.dtype.is_floating_point
        values.append(value.to(dtype) if floats else value)
    interpreter = _OnCpu(captured.graph)
    interpreter.wide = dtype == torch.float64
    with torch.no_grad():
        return list(interpreter.run(*values))


def same(expected: Sequence[object], found: Sequence[object], close: float = CLOSE) -> None:
    """Assert equal outputs: specials in the same places, numbers close to each other."""
    assert len(expected) == len(found)
    for one, two in zip(expected, found, strict=True):
        if not isinstance(one, Tensor):
            assert one == two
            continue
        assert isinstance(two, Tensor)
        assert (one.shape, one.dtype) == (two.shape, two.dtype)
        finite = one.isfinite() if one.dtype.is_floating_point else torch.ones_like(one, dtype=bool)
        torch.testing.assert_close(one[~finite], two[~finite], equal_nan=True, rtol=0, atol=0)
        scale = float(one[finite].abs().max()) if bool(finite.any()) else 0.0
        gap = float((one[finite] - two[finite]).abs().max()) if bool(finite.any()) else 0.0
        assert gap <= close * max(scale, 1.0), (gap, scale)
