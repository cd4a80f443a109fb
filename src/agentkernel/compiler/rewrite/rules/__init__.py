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
    equal_nodes.EQUAL_NODES,
    single_elements.SINGLE_ELEMENTS,
    dead_clamps.DEAD_CLAMPS,
    softmax_shift.SOFTMAX_SHIFT,
    norm_shift.NORM_SHIFT,
    monotone.MONOTONE,
    pool_composition.POOL_COMPOSITION,
    scaled_sums.SCALED_SUMS,
    pooled_first.POOLED_FIRST,
    product_sums.PRODUCT_SUMS,
    convolution_sums.CONVOLUTION_SUMS,
    pooled_convolutions.POOLED_CONVOLUTIONS,
    common_factors.COMMON_FACTORS,
    small_side_scales.SMALL_SIDE_SCALES,
)

__all__ = ["RULES"]
