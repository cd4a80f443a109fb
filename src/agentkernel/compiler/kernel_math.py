"""Elementary functions in fp32 as Triton text, in as few instructions as their accuracy allows.

On an H200 exp, expm1, log1p and tanh are right to 2 ulp, Softplus to 3, sigmoid and SiLU to 4, Mish
to 5, also at infinities and NaN; the tails of GELU are off by what rounding their exponent costs,
where PyTorch's own cancel. Norm-wise all are as exact as PyTorch's. Results below 2**-119 may be
zero. Those named `coarse_` are for results that are rounded to 16 bits, and are off by less than
1/16 of an ulp of these. Polynomials are minimax fits of the relative error.
"""

from __future__ import annotations

Helpers = dict[str, tuple[str, tuple[str, ...]]]

EXP = '''\
@triton.jit
def exp(x):
    """e**x in fp32 to about one ulp: 2**whole * 2**rest.

    The clamp bounds `whole` alone and is free on a GPU. Adding 1.5 * 2**23 rounds to the nearest
    integer and leaves it in the lowest bits, from where it moves into the exponent.
    """
    shifted = tl.fma(tl.clamp(tl.fma(x, 0.005724980030208826, 0.5), 0.0, 1.0), 252.0, 12582913.0)
    rest = tl.fma(x, 1.4426950216293335, 12583039.0 - shifted)
    rest = tl.fma(x, 1.925963033500011e-8, rest)
    power = (shifted.to(tl.int32, bitcast=True) << 23).to(tl.float32, bitcast=True)
    return tl.exp2(rest) * power'''

COARSE_EXP = '''\
@triton.jit
def coarse_exp(x):
    """e**x for 16 bits."""
    return tl.exp2(x * 1.4426950408889634)'''

EXPM1 = '''\
@triton.jit
def expm1(x):
    """e**x - 1: 2**whole * (e**rest - 1) + (2**whole - 1), halved so that 2**128 fits. The sign is
    that of x, for zero too."""
    x = tl.maximum(x, -87.0, propagate_nan=tl.PropagateNan.ALL)
    scaled = tl.clamp(tl.fma(x, 0.005724980030208826, 0.49206349206349204), 0.0, 1.0)
    shifted = tl.fma(scaled, 252.0, 12582914.0)
    whole = shifted - 12583038.0
    rest = tl.fma(whole, -0.693145751953125, x)
    rest = tl.fma(whole, -1.4286068202862268e-6, rest)
    grown = tl.fma(rest, 1.38825216e-3, 8.36651901e-3)
    grown = tl.fma(grown, rest, 4.16671998e-2)
    grown = tl.fma(grown, rest, 0.166665436)
    grown = tl.fma(grown, rest, 0.499999982)
    grown = tl.fma(rest * rest, grown, rest)
    half = (shifted.to(tl.int32, bitcast=True) << 23).to(tl.float32, bitcast=True)
    found = tl.fma(half, grown, half - 0.5)
    sign = x.to(tl.int32, bitcast=True) & -2147483648
    return ((found + found).to(tl.int32, bitcast=True) | sign).to(tl.float32, bitcast=True)'''

LOG1P = '''\
@triton.jit
def log1p(x):
    """log(1 + x): 1 + x is 2**whole * (1 + rest) with rest from -1/4 to 1/2. The sign is that of
    x, for zero too."""
    total = 1.0 + x
    whole = (total.to(tl.int32, bitcast=True) - 0x3F400000) & -8388608
    scale = (0x40800000 - whole).to(tl.float32, bitcast=True)
    rest = tl.fma(x * 0.25, scale, tl.fma(scale, 0.25, -1.0))
    near = tl.fma(rest, 0.0541324709, -0.120673671)
    near = tl.fma(near, rest, 0.149839158)
    near = tl.fma(near, rest, -0.168228116)
    near = tl.fma(near, rest, 0.199770773)
    near = tl.fma(near, rest, -0.249934423)
    near = tl.fma(near, rest, 0.333335486)
    near = tl.fma(near, rest, -0.500000606)
    near = tl.fma(rest * rest, near, rest)
    found = tl.fma(whole.to(tl.float32), 8.262958294867817e-8, near)
    # Of 0 and of what is below: as the logarithm.
    found = tl.where(total > 0.0, found, total - tl.rsqrt(total))
    sign = x.to(tl.int32, bitcast=True) & -2147483648
    return (found.to(tl.int32, bitcast=True) | sign).to(tl.float32, bitcast=True)'''

LOG1P_OF_UNIT = '''\
@triton.jit
def log1p_of_unit(x):
    """log(1 + x) for x from 0 to 1."""
    near = tl.fma(x, -3.31846963e-3, 2.02045718e-2)
    near = tl.fma(near, x, -5.76644198e-2)
    near = tl.fma(near, x, 0.106805531)
    near = tl.fma(near, x, -0.153553949)
    near = tl.fma(near, x, 0.196954001)
    near = tl.fma(near, x, -0.249585873)
    near = tl.fma(near, x, 0.333305113)
    near = tl.fma(near, x, -0.499999328)
    return tl.fma(x * x, near, x)'''

COARSE_LOG1P_OF_UNIT = '''\
@triton.jit
def coarse_log1p_of_unit(x):
    """log(1 + x) for x from 0 to 1, for 16 bits."""
    near = tl.fma(x, -2.47345057e-2, 0.103592552)
    near = tl.fma(near, x, -0.212404132)
    near = tl.fma(near, x, 0.326226058)
    near = tl.fma(near, x, -0.499539471)
    return tl.fma(x * x, near, x)'''

TANH = '''\
@triton.jit
def tanh(x):
    """Hyperbolic tangent: an odd polynomial near 0, elsewhere 1 - 2 / (e**2|x| + 1). Both are of
    |x|; the sign, that of zero too, is put back as a bit."""
    size = tl.abs(x)
    square = x * x
    small = tl.fma(square, 1.6437579e-2, -5.26718123e-2)
    small = tl.fma(small, square, 0.13320725)
    small = tl.fma(small, square, -0.333329466)
    small = tl.fma(small * square, size, size)
    grown = tl.exp2(size * 2.8853900817779268) + 1.0
    large = tl.fma(1.0 / grown, -2.0, 1.0)
    found = tl.where(size < 0.55, small, large)
    sign = x.to(tl.int32, bitcast=True) & -2147483648
    return (found.to(tl.int32, bitcast=True) | sign).to(tl.float32, bitcast=True)'''

SIGMOID = '''\
@triton.jit
def {coarse}sigmoid(x):
    """1 / (1 + e**-x){words}."""
    return 1.0 / (1.0 + {coarse}exp(-x))'''

SILU = '''\
@triton.jit
def {coarse}silu(x):
    """x / (1 + e**-x){words}."""
    return x / (1.0 + {coarse}exp(-x))'''

SOFTPLUS = '''\
@triton.jit
def {coarse}softplus(x):
    """log(1 + e**x){words}: the larger of x and 0, and the rest of a number that fits."""
    return tl.maximum(x, 0.0) + {coarse}log1p_of_unit({coarse}exp(-tl.abs(x)))'''

LOG_SIGMOID = '''\
@triton.jit
def {coarse}log_sigmoid(x):
    """log(1 / (1 + e**-x)){words}."""
    return tl.minimum(x, 0.0) - {coarse}log1p_of_unit({coarse}exp(-tl.abs(x)))'''

MISH = '''\
@triton.jit
def {coarse}mish(x):
    """x * tanh(log(1 + e**x)){words}: x * q / (q + 2) with q = (1 + e**x)**2 - 1.

    Past 20 the quotient is 1.
    """
    power = {coarse}exp(tl.minimum(x, 20.0))
    grown = tl.fma(power, power, power + power)
    return x * (grown / (grown + 2.0))'''

GELU = '''\
@triton.jit
def gelu(x):
    """x * P(X < x) of a normal X. P(X > |x|) is e**(-x**2 / 2) times a polynomial of
    1 / (1 + |x| * 0.35), the form of 7.1.26 in Abramowitz and Stegun."""
    near = 1.0 / tl.fma(tl.abs(x), 0.35, 1.0)
    tail = tl.fma(near, -0.0291088878, 0.14378801)
    tail = tl.fma(tail, near, -0.255326832)
    tail = tl.fma(tail, near, 0.158721509)
    tail = tl.fma(tail, near, -0.0227904025)
    tail = tl.fma(tail, near, 0.105369051)
    tail = tl.fma(tail, near, 0.119869125)
    tail = tl.fma(tail, near, 0.1398567)
    tail = tl.fma(tail, near, 0.139621712)
    tail = near * tail * tl.exp2(x * -0.7213475204444817 * x)
    return x * tl.where(x < 0.0, tail, 1.0 - tail)'''

COARSE_GELU = '''\
@triton.jit
def coarse_gelu(x):
    """x * P(X < x) of a normal X for 16 bits. P(X > |x|) is 2 to the power of a polynomial, and 0
    past 14.5."""
    size = tl.minimum(tl.abs(x), 14.5)
    power = tl.fma(size, 8.01795398e-11, -7.21154239e-09)
    power = tl.fma(power, size, 2.88730073e-07)
    power = tl.fma(power, size, -6.81207618e-06)
    power = tl.fma(power, size, 0.000105877108)
    power = tl.fma(power, size, -0.00115165282)
    power = tl.fma(power, size, 0.00913779445)
    power = tl.fma(power, size, -0.0549424809)
    power = tl.fma(power, size, -0.457716725)
    power = tl.fma(power, size, -1.15146352)
    tail = tl.exp2(tl.fma(power, size, -0.999985727))
    return x * tl.where(x < 0.0, tail, 1.0 - tail)'''

GELU_TANH = '''\
@triton.jit
def gelu_tanh(x):
    """GELU in its tanh form, as x * sigmoid of twice the tanh's argument."""
    power = tl.exp2(x * tl.fma(x * x, -0.10294323958002350, -2.302208198144325))
    return x / (1.0 + power)'''

WORDS = " for 16 bits"


def _both(name: str, text: str, calls: tuple[str, ...]) -> Helpers:
    """A function in fp32, and its coarse form, which calls coarse forms."""
    return {
        name: (text.format(coarse="", words=""), calls),
        f"coarse_{name}": (
            text.format(coarse="coarse_", words=WORDS),
            tuple(f"coarse_{item}" for item in calls),
        ),
    }


MATH: Helpers = {
    "exp": (EXP, ()),
    "coarse_exp": (COARSE_EXP, ()),
    "expm1": (EXPM1, ()),
    "log1p": (LOG1P, ()),
    "log1p_of_unit": (LOG1P_OF_UNIT, ()),
    "coarse_log1p_of_unit": (COARSE_LOG1P_OF_UNIT, ()),
    "tanh": (TANH, ()),
    **_both("sigmoid", SIGMOID, ("exp",)),
    **_both("silu", SILU, ("exp",)),
    **_both("softplus", SOFTPLUS, ("exp", "log1p_of_unit")),
    **_both("log_sigmoid", LOG_SIGMOID, ("exp", "log1p_of_unit")),
    **_both("mish", MISH, ("exp",)),
    "gelu": (GELU, ()),
    "coarse_gelu": (COARSE_GELU, ()),
    "gelu_tanh": (GELU_TANH, ()),
}
"""Name -> (source, names of helpers that it calls), callees first."""
