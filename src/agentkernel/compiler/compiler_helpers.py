"""Which small Triton functions do kernels call, where the built-in ones are too coarse?"""

from __future__ import annotations

from collections.abc import Iterable

Helpers = dict[str, tuple[str, tuple[str, ...]]]

EXP = '''\
@triton.jit
def exp(x):
    """e**x in fp32 to about one ulp: 2**whole * e**rest, ln 2 in two parts (Cody and Waite).

    Adding 1.5 * 2**23 rounds to the nearest integer and leaves it in the lowest bits, from where
    it moves into the exponent of 2**whole: one special function (exp2) a call.
    """
    shifted = tl.clamp(x * 1.4426950408889634, -126.0, 127.0) + 12582912.0
    whole = shifted - 12582912.0
    rest = (x - whole * 0.693359375) + whole * 2.12194440054690583e-4
    power = ((shifted.to(tl.int32, bitcast=True) << 23) + 0x3F800000).to(tl.float32, bitcast=True)
    return tl.exp2(rest * 1.4426950408889634) * power'''

EXPM1 = '''\
@triton.jit
def expm1(x):
    """e**x - 1 without cancellation near 0 (Kahan's quotient)."""
    grown = exp(x)
    near = (grown - 1.0) * x / tl.log(grown)
    exact = tl.where(grown == 1.0, x, near)
    return tl.where((x < -17.0) | (x > 88.0), grown - 1.0, exact)'''

LOG1P = '''\
@triton.jit
def log1p(x):
    """log(1 + x) without cancellation near 0 (Kahan's quotient)."""
    grown = 1.0 + x
    near = tl.log(grown) * (x / (grown - 1.0))
    return tl.where(grown == 1.0, x, tl.where(tl.abs(x) < 1.0, near, tl.log(grown)))'''

SIGMOID = '''\
@triton.jit
def sigmoid(x):
    """1 / (1 + e**-x)."""
    return 1.0 / (1.0 + exp(-x))'''

TANH = '''\
@triton.jit
def tanh(x):
    """Hyperbolic tangent: an odd polynomial near 0, elsewhere 1 - 2 / (e**2|x| + 1).

    Both are of |x|; the sign, that of zero too, is put back as a bit.
    """
    size = tl.abs(x)
    square = x * x
    small = -5.70498872745e-3 * square + 2.06390887954e-2
    small = small * square - 5.37397155531e-2
    small = small * square + 1.33314422036e-1
    small = small * square - 3.33332819422e-1
    small = size + size * square * small
    found = tl.where(size < 0.625, small, 1.0 - 2.0 / (exp(2.0 * size) + 1.0))
    sign = x.to(tl.int32, bitcast=True) & -2147483648
    return (found.to(tl.int32, bitcast=True) | sign).to(tl.float32, bitcast=True)'''

MAXIMUM = '''\
@triton.jit
def maximum(x, y):
    """The larger of two; NaN where either is NaN."""
    return tl.maximum(x, y, propagate_nan=tl.PropagateNan.ALL)'''

MINIMUM = '''\
@triton.jit
def minimum(x, y):
    """The smaller of two; NaN where either is NaN."""
    return tl.minimum(x, y, propagate_nan=tl.PropagateNan.ALL)'''

MULTIPLY = '''\
@triton.jit
def multiply(x, y):
    """The combining function of a product."""
    return x * y'''

ROW_MAX = '''\
@triton.jit
def max_along(x, axis: tl.constexpr, keep_dims: tl.constexpr):
    """Maximum along an axis; NaN where any element is NaN."""
    found = tl.max(tl.where(x != x, 1, 0), axis=axis, keep_dims=keep_dims)
    return tl.where(found == 1, float("nan"), tl.max(x, axis=axis, keep_dims=keep_dims))'''

ROW_MIN = '''\
@triton.jit
def min_along(x, axis: tl.constexpr, keep_dims: tl.constexpr):
    """Minimum along an axis; NaN where any element is NaN."""
    found = tl.max(tl.where(x != x, 1, 0), axis=axis, keep_dims=keep_dims)
    return tl.where(found == 1, float("nan"), tl.min(x, axis=axis, keep_dims=keep_dims))'''

ABOVE = '''\
@triton.jit
def above(x, y):
    """x > y; or x is NaN and y is not."""
    return (x > y) | ((x != x) & (y == y))'''

BELOW = '''\
@triton.jit
def below(x, y):
    """x < y; or x is NaN and y is not."""
    return (x < y) | ((x != x) & (y == y))'''

PLACE_OF_MAX = '''\
@triton.jit
def place_of_max(x, place, axis: tl.constexpr, keep_dims: tl.constexpr):
    """The first place of the maximum along an axis; of the first NaN where there is one."""
    found = tl.max(tl.where(x != x, 1, 0), axis=axis, keep_dims=True)
    best = tl.max(x, axis=axis, keep_dims=True)
    wanted = tl.where(found == 1, x != x, x == best)
    return tl.min(tl.where(wanted, place, 2147483647), axis=axis, keep_dims=keep_dims)'''

PLACE_OF_MIN = '''\
@triton.jit
def place_of_min(x, place, axis: tl.constexpr, keep_dims: tl.constexpr):
    """The first place of the minimum along an axis; of the first NaN where there is one."""
    found = tl.max(tl.where(x != x, 1, 0), axis=axis, keep_dims=True)
    best = tl.min(x, axis=axis, keep_dims=True)
    wanted = tl.where(found == 1, x != x, x == best)
    return tl.min(tl.where(wanted, place, 2147483647), axis=axis, keep_dims=keep_dims)'''

HELPERS: Helpers = {
    "exp": (EXP, ()),
    "expm1": (EXPM1, ("exp",)),
    "log1p": (LOG1P, ()),
    "sigmoid": (SIGMOID, ("exp",)),
    "tanh": (TANH, ("exp",)),
    "maximum": (MAXIMUM, ()),
    "minimum": (MINIMUM, ()),
    "multiply": (MULTIPLY, ()),
    "max_along": (ROW_MAX, ()),
    "min_along": (ROW_MIN, ()),
    "above": (ABOVE, ()),
    "below": (BELOW, ()),
    "place_of_max": (PLACE_OF_MAX, ()),
    "place_of_min": (PLACE_OF_MIN, ()),
}
"""Name -> (source, names of helpers that it calls)."""


def helper_sources(names: Iterable[str], helpers: Helpers = HELPERS) -> list[str]:
    """Sources of the named helpers and of what they call, callees first."""
    wanted: set[str] = set()

    def want(name: str) -> None:
        wanted.add(name)
        for other in helpers[name][1]:
            want(other)

    for name in names:
        want(name)
    return [source for name, (source, _) in helpers.items() if name in wanted]
