"""ATen to IR: importing this package fills the table of lowerings."""

from agentkernel.compiler.lowering import (
    data_movement,
    index_maps,
    losses,
    pointwise,
    pooling,
    products,
    reductions,
    scans,
)
from agentkernel.compiler.lowering.registry import LOWERINGS, LoweredGraph, lower

__all__ = [
    "LOWERINGS",
    "LoweredGraph",
    "data_movement",
    "index_maps",
    "losses",
    "lower",
    "pointwise",
    "pooling",
    "products",
    "reductions",
    "scans",
]
