"""ATen to IR: importing this package fills the table of lowerings."""

from agentkernel.agents.coders.compiler.lowering import (
    losses,
    norms,
    pointwise,
    pools,
    products,
    reductions,
    views,
)
from agentkernel.agents.coders.compiler.lowering.registry import (
    LOWERINGS,
    LoweredGraph,
    lower,
)

__all__ = [
    "LOWERINGS",
    "LoweredGraph",
    "losses",
    "lower",
    "norms",
    "pointwise",
    "pools",
    "products",
    "reductions",
    "views",
]
