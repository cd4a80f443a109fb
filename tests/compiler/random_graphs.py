"""Random small modules: pointwise chains, broadcasts, reductions and views, a few ops deep."""

from __future__ import annotations

from collections.abc import Callable

import torch
from hypothesis import strategies as st
from torch import nn

Tensor = torch.Tensor
UNARY: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": nn.functional.gelu,
    "silu": nn.functional.silu,
    "tanh": torch.tanh,
    "exp": lambda x: torch.exp(-x.abs()),
    "sigmoid": torch.sigmoid,
    "root": lambda x: (x.abs() + 0.5).sqrt(),
    "relu": torch.relu,
    "scale": lambda x: 1.5 * x - 0.25,
}
BINARY: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "add": torch.add,
    "mul": torch.mul,
    "maximum": torch.maximum,
    "where": lambda x, y: torch.where(x > y, x, 0.5 * y),
}
VIEWS: dict[str, Callable[[Tensor], Tensor]] = {
    "transpose": lambda x: x.transpose(0, 1),
    "flat": lambda x: x.reshape(-1, x.shape[-1]).reshape(x.shape),
    "half": lambda x: x[:, : x.shape[1] // 2],
    "row": lambda x: x[:1].expand(x.shape),
}
REDUCTIONS: dict[str, Callable[[Tensor, int], Tensor]] = {
    "sum": lambda x, dim: x.sum(dim, keepdim=True),
    "mean": lambda x, dim: x.mean(dim, keepdim=True),
    "amax": lambda x, dim: x.amax(dim, keepdim=True),
    "softmax": torch.softmax,
    "var": lambda x, dim: x.var(dim, keepdim=True),
    "logsumexp": lambda x, dim: torch.logsumexp(x, dim, keepdim=True),
}
Step = tuple[str, int, int, int]
"""Name, positions of its operands among the values so far, and a dimension."""


class RandomGraph(nn.Module):
    """Two inputs of one shape and a parameter over columns, then one value a step."""

    def __init__(self, columns: int, steps: list[Step]) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(-1.0, 1.0, columns))
        self.steps = steps

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        values = [x, y, x * self.weight]
        for name, first, second, dim in self.steps:
            left, right = values[first % len(values)], values[second % len(values)]
            values.append(_apply(name, left, right, dim))
        return values[-1]


def _apply(name: str, left: Tensor, right: Tensor, dim: int) -> Tensor:
    if name in UNARY:
        return UNARY[name](left)
    if name in VIEWS:
        return VIEWS[name](left) if left.shape[1] > 1 else left
    if name in REDUCTIONS:
        return REDUCTIONS[name](left, dim) if left.shape[dim] > 1 else left
    fits = all(a == b or 1 in (a, b) for a, b in zip(left.shape, right.shape, strict=True))
    return BINARY[name](left, right) if fits else BINARY[name](left, left)


@st.composite
def random_graphs(draw: st.DrawFn) -> tuple[RandomGraph, tuple[Tensor, Tensor]]:
    """A module and its inputs, at sizes off every tile."""
    rows, columns = draw(st.integers(3, 21)), draw(st.integers(4, 40))
    names = [*UNARY, *BINARY, *VIEWS, *REDUCTIONS]
    step = st.tuples(
        st.sampled_from(names), st.integers(0, 9), st.integers(0, 9), st.integers(0, 1)
    )
    steps = draw(st.lists(step, min_size=2, max_size=7))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 999)))
    inputs = tuple(torch.randn(rows, columns, generator=generator) for _ in range(2))
    return RandomGraph(columns, steps), inputs  # type: ignore[return-value]
