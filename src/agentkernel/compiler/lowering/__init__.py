"""ATen to IR: importing this package fills the table of lowerings."""

from agentkernel.compiler.lowering import (
    gathers,
    losses,
    moves,
    norms,
    pointwise,
    pools,
    products,
    reductions,
    views,
)
from agentkernel.compiler.lowering.registry import LOWERINGS, LoweredGraph, lower

__all__ = [
    "LOWERINGS",
    "LoweredGraph",
    "gathers",
    "losses",
    "lower",
    "moves",
    "norms",
    "pointwise",
    "pools",
    "products",
    "reductions",
    "views",
]
