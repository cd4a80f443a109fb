"""ATen to IR: importing this package fills the table of lowerings."""

from agentkernel.compiler.lowering import (
    adaptive_pooling,
    arithmetic,
    convolutions,
    data_movement,
    distances,
    einsum,
    index_maps,
    lookups,
    losses,
    pointwise,
    pooling,
    products,
    reductions,
    scans,
    scatters,
    selection,
)
from agentkernel.compiler.lowering.registry import LOWERINGS, LoweredGraph, lower

__all__ = [
    "LOWERINGS",
    "LoweredGraph",
    "adaptive_pooling",
    "arithmetic",
    "convolutions",
    "data_movement",
    "distances",
    "einsum",
    "index_maps",
    "lookups",
    "losses",
    "lower",
    "pointwise",
    "pooling",
    "products",
    "reductions",
    "scans",
    "scatters",
    "selection",
]
