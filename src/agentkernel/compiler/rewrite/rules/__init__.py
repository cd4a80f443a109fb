"""The table of rewrite rules, in the order in which they are tried.

What only removes comes first, then what makes later rules fit (constants and functions move past
reductions), then what moves reductions through products and convolutions, then what trades. The
docstring of each rule's module has a section a rule: its derivation, its conditions, and what
becomes of NaN, infinities and rounding.
"""

from agentkernel.compiler.rewrite.draft import Rule
from agentkernel.compiler.rewrite.rules import (
    contractions,
    past_reductions,
    pooling,
    simplify,
)

RULES: tuple[Rule, ...] = (
    simplify.EQUAL_NODES,
    simplify.SINGLE_ELEMENTS,
    simplify.DEAD_CLAMPS,
    contractions.DIAGONAL_PRODUCTS,
    past_reductions.SOFTMAX_SHIFT,
    past_reductions.NORM_SHIFT,
    past_reductions.MONOTONE,
    pooling.POOL_COMPOSITION,
    past_reductions.SCALED_SUMS,
    pooling.POOLED_FIRST,
    contractions.PRODUCT_SUMS,
    contractions.CONVOLUTION_SUMS,
    pooling.POOLED_CONVOLUTIONS,
    simplify.COMMON_FACTORS,
    simplify.SMALL_SIDE_SCALES,
)

__all__ = ["RULES"]
