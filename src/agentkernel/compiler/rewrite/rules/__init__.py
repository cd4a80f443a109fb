"""Which rules are there, and in which order are they tried?

What only removes comes first, then what makes later rules fit (constants and functions move past
reductions), then what moves reductions through products and convolutions, then what trades.
"""

from agentkernel.compiler.rewrite.record import Rule
from agentkernel.compiler.rewrite.rules import (
    common_factors,
    convolution_sums,
    dead_clamps,
    equal_nodes,
    monotone,
    norm_shift,
    pool_composition,
    pooled_convolutions,
    pooled_first,
    product_sums,
    scaled_sums,
    single_elements,
    small_side_scales,
    softmax_shift,
)

RULES: tuple[Rule, ...] = (
    equal_nodes.RULE,
    single_elements.RULE,
    dead_clamps.RULE,
    softmax_shift.RULE,
    norm_shift.RULE,
    monotone.RULE,
    pool_composition.RULE,
    scaled_sums.RULE,
    pooled_first.RULE,
    product_sums.RULE,
    convolution_sums.RULE,
    pooled_convolutions.RULE,
    common_factors.RULE,
    small_side_scales.RULE,
)

__all__ = ["RULES"]
