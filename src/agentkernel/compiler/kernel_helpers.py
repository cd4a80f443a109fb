"""Small Triton functions that emitted and lifted kernels call.

The first set is for kernels of our own, the second stands for TorchInductor's run-time helpers;
both hold the elementary functions. Each is source text, copied into the files that need it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from agentkernel.compiler.kernel_math import MATH, Helpers

LIBDEVICE_IMPORT = "from triton.language.extra import libdevice"

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

PLANE_PLACE = '''\
@triton.jit
def plane_place(x):
    """The power of two by which x is divided so that its largest magnitude lies in [2**14, 2**15),
    and whether s s' of two such powers stays in fp32's range; a block of zeros has 0."""
    most = tl.max(tl.abs(x)).to(tl.int32, bitcast=True) >> 23
    place = tl.where(most == 0, 0, most - 141)
    return place, (place >= -59) & (place <= 31)'''

OVER_PLACE = '''\
@triton.jit
def over_place(largest, place):
    """Magnitudes over 2**place; 1 for 0."""
    found = largest * ((127 - place) << 23).to(tl.float32, bitcast=True)
    return tl.where(largest == 0.0, 1.0, found)'''

SPLIT_PLANES = '''\
@triton.jit
def split_planes(x, place):
    """x / 2**place in fp16, and 2048 times what that leaves of it."""
    x = x * ((127 - place) << 23).to(tl.float32, bitcast=True)
    high = x.to(tl.float16)
    low = ((x - high.to(tl.float32)) * 2048.0).to(tl.float16)
    return high, low'''

LEAST = 2.0**-20
"""What a number but 0 has at least when its block is scaled: 2**-34 of the largest."""
LEAST_ROW = 2.0**-13
"""What the largest of a row of A, or of a column of B, in a block has at least when it is scaled:
2**-36 s is then 2**-23 of it, as of any number that fp16 does not hold as subnormal."""

SPLIT_BLOCK = f'''\
@triton.jit
def split_block(
    source_ptr, planes_ptr, scale_ptr, block, blocks, rows, stride, inner_batches, outer_stride,
    inner_stride, depth, K_INSIDE: tl.constexpr,
):
    """A block of 128 x 128 of fp32 as scale * (planes[0] + planes[1] / 2048); the scale is -1
    where small numbers, or rows of them, would lose digits."""
    row_blocks, deep_blocks = tl.cdiv(rows, 128), tl.cdiv(depth, 128)
    batch = (block // (row_blocks * deep_blocks)).to(tl.int64)
    first_row = block // deep_blocks % row_blocks * 128
    first_k = block % deep_blocks * 128
    at = tl.arange(0, 128)
    inside = (first_row + at < rows)[:, None] & (first_k + at < depth)[None, :]
    source_ptr += batch // inner_batches * outer_stride + batch % inner_batches * inner_stride
    planes_ptr += batch * row_blocks * deep_blocks * 16384
    width = (deep_blocks if K_INSIDE else row_blocks) * 128
    # Places are counted from the block on, in 32 bits: with 64 bits for each of a thread's 64
    # numbers there would be no registers for a second program on an SM, whose loads go on while
    # this one divides. Of wider rows every block is marked: what is stored counts for nothing.
    fits = width <= 16777216
    step = tl.where(fits, width, 0)
    if K_INSIDE:
        source_ptr += tl.cast(first_row, tl.int64) * stride + first_k
        planes_ptr += tl.cast(first_row, tl.int64) * width + first_k
        sources = source_ptr + at.to(tl.int64)[:, None] * stride + at[None, :]
        places = at[:, None] * step + at[None, :]
    else:
        source_ptr += tl.cast(first_k, tl.int64) * stride + first_row
        planes_ptr += tl.cast(first_k, tl.int64) * width + first_row
        sources = source_ptr + at[:, None] + at.to(tl.int64)[None, :] * stride
        places = at[:, None] + at[None, :] * step
    x = tl.load(sources, mask=inside, other=0.0)
    largest = tl.max(tl.abs(x), axis=1)
    place, holds = plane_place(largest)
    holds &= fits
    least = tl.min(tl.where(x == 0.0, float("inf"), tl.abs(x)))
    holds &= over_place(least, place) >= {LEAST}
    holds &= tl.min(over_place(largest, place)) >= {LEAST_ROW}
    scale = ((127 + place) << 23).to(tl.float32, bitcast=True)
    tl.store(scale_ptr + block, tl.where(holds, scale, -1.0))
    high, low = split_planes(x, place)
    tl.store(planes_ptr + places, high)
    tl.store(planes_ptr + tl.cast(blocks, tl.int64) * 16384 + places, low)'''

PLANE_PRODUCT = '''\
@triton.jit
def plane_product(a_high, a_low, b_high, b_low):
    """a @ b of fp32 matrices in fp16 planes: a chain of three products, small terms first. Its sum
    is one step's: the tensor core truncates as it adds, which over all of K would be seen."""
    part = tl.dot(a_low, b_high)
    part = tl.dot(a_high, b_low, part) * 0.00048828125
    return tl.dot(a_high, b_high, part)'''

BF16_PARTS = '''\
@triton.jit
def bf16_parts(x):
    """x = high + mid + low of 8 bits each: high rounded, mid cut off, low what they leave."""
    high = (x.to(tl.int32, bitcast=True) + 0x8000) & -0x10000
    x -= high.to(tl.float32, bitcast=True)
    mid = x.to(tl.int32, bitcast=True) & -0x10000
    low = (x - mid.to(tl.float32, bitcast=True)).to(tl.int32, bitcast=True)
    return upper_half(high), upper_half(mid), upper_half(low)'''

UPPER_HALF = '''\
@triton.jit
def upper_half(bits):
    """The number of bf16 whose bits are the upper half of these."""
    return (bits >> 16).to(tl.int16).to(tl.bfloat16, bitcast=True)'''

PARTS_PRODUCT = '''\
@triton.jit
def parts_product(a_high, a_mid, a_low, b_high, b_mid, b_low):
    """a @ b of fp32 matrices in parts of bf16: a chain of six products, small terms first. Its sum
    is one step's: the tensor core truncates as it adds, which over all of K would be seen."""
    part = tl.dot(a_low, b_high)
    part = tl.dot(a_mid, b_mid, part)
    part = tl.dot(a_high, b_low, part)
    part = tl.dot(a_mid, b_high, part)
    part = tl.dot(a_high, b_mid, part)
    return tl.dot(a_high, b_high, part)'''

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

SELECTED = '''\
@triton.jit
def selected(x, mask, dim: tl.constexpr, keep_dims: tl.constexpr = False):
    """The only element along a dimension for which mask holds."""
    return tl.sum(tl.where(mask, x, 0), dim, keep_dims=keep_dims).to(x.dtype)'''

WITH_PLACE = '''\
@triton.jit
def {name}(x, place, other, other_place):
    """The {words} of two with its place; NaN goes first, of equal ones the first place."""
    better = (x {sign} other) | ((x != x) & (other == other))
    equal = (x == other) | ((x != x) & (other != other))
    better = better | (equal & (place < other_place))
    return tl.where(better, x, other), tl.where(better, place, other_place)'''

WITH_LAST_PLACE = '''\
@triton.jit
def last_{name}(x, place, other, other_place):
    """The {words} of two with its place; NaN goes first, of equal ones the last place."""
    kept = (x {sign} other) | ((x != x) & (other == other))
    equal = (x == other) | ((x != x) & (other != other))
    kept = kept | (equal & (place > other_place))
    return tl.where(kept, x, other), tl.where(kept, place, other_place)'''

SCRATCH = '''\
def scratch(size, alignment, _):
    """Memory on the current device, for the descriptors that a kernel makes."""
    return torch.empty(size, dtype=torch.int8, device="cuda")'''

DESCRIBED = '''\
def described(*matrices):
    """Whether TMA can read them: rows of 16-bit numbers, apart, that begin at multiples of 16
    bytes."""
    steps = [(x.stride(-2), x.shape[-1], x.storage_offset()) for x in matrices]
    return all(
        step >= length and step % 8 == 0 and first % 8 == 0 for step, length, first in steps
    )'''

LOG_ADD = '''\
@triton.jit
def log_add(top, total, other, other_total):
    """The maximum, and the sum of e**(x - maximum), of two parts together.

    One of the two keeps its scale, so there is one exponential; where that is coarse, it is small.
    """
    scale = tl.where(top == other, 1.0, tl.exp(-tl.abs(top - other)))
    below = top < other
    grown = tl.where(below, total * scale + other_total, total + other_total * scale)
    return tl.where(below, other, top), grown'''

TO_TF32 = '''\
@triton.jit
def to_tf32(x):
    """x with half a step of TF32 added to its digits: tensor cores cut off what lies below one."""
    bits = x.to(tl.int32, bitcast=True)
    return tl.where(x == x, bits + 4096, bits).to(tl.float32, bitcast=True)'''

HELPERS: Helpers = {
    **MATH,
    "larger_place": (WITH_PLACE.format(name="larger_place", words="larger", sign=">"), ()),
    "smaller_place": (WITH_PLACE.format(name="smaller_place", words="smaller", sign="<"), ()),
    "last_max": (WITH_LAST_PLACE.format(name="max", words="larger", sign=">"), ()),
    "last_min": (WITH_LAST_PLACE.format(name="min", words="smaller", sign="<"), ()),
    "log_add": (LOG_ADD, ()),
    "selected": (SELECTED, ()),
    "scratch": (SCRATCH, ()),
    "described": (DESCRIBED, ()),
    "plane_place": (PLANE_PLACE, ()),
    "to_tf32": (TO_TF32, ()),
    "over_place": (OVER_PLACE, ()),
    "split_planes": (SPLIT_PLANES, ()),
    "split_block": (SPLIT_BLOCK, ("plane_place", "over_place", "split_planes")),
    "plane_product": (PLANE_PRODUCT, ()),
    "upper_half": (UPPER_HALF, ()),
    "bf16_parts": (BF16_PARTS, ("upper_half",)),
    "parts_product": (PARTS_PRODUCT, ()),
    "maximum": (MAXIMUM, ()),
    "minimum": (MINIMUM, ()),
    "multiply": (MULTIPLY, ()),
    "max_along": (ROW_MAX, ()),
    "min_along": (ROW_MIN, ()),
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


def library_imports(sources: Sequence[str]) -> list[str]:
    """The import of CUDA's library of functions, where one of the sources calls it."""
    return [LIBDEVICE_IMPORT] if any("libdevice." in source for source in sources) else []


ANY = '''\
@triton.jit
def either(x, y):
    """The combining function of "any"."""
    return x | y'''

ALONG = '''\
@triton.jit
def {name}(x, axis: tl.constexpr):
    """{words} along an axis, which goes away."""
    return tl.reduce(x, axis, {combine})'''

PLACE_ALONG = '''\
@triton.jit
def {name}(x, place, axis: tl.constexpr):
    """The {words} along an axis, and its first place."""
    return tl.reduce((x, place), axis, {combine})'''

WELFORD_STEP = '''\
@triton.jit
def welford_step(x, mean, m2, count, first):
    """Running mean, sum of squared deviations and count with one more value (Welford 1962)."""
    if first:
        new_mean, new_m2, new_count = x, tl.zeros_like(m2), tl.full(count.shape, 1, count.dtype)
    else:
        delta = x - mean
        new_count = count + 1
        new_mean = mean + delta / new_count
        new_m2 = m2 + delta * (x - new_mean)
    return new_mean, new_m2, new_count'''

WELFORD_MERGE = '''\
@triton.jit
def welford_merge(mean, m2, count, other_mean, other_m2, other_count):
    """The moments of two parts together (Chan, Golub and LeVeque 1979)."""
    delta = tl.where(mean == other_mean, 0.0, other_mean - mean)
    new_count = count + other_count
    share = tl.where(new_count == 0.0, 0.0, other_count / new_count)
    return mean + delta * share, m2 + other_m2 + delta * delta * count * share, new_count'''

WELFORD_ALONG = '''\
@triton.jit
def welford_along(mean, m2, count, axis: tl.constexpr):
    """The moments of all parts along an axis."""
    return tl.reduce((mean, m2, count), axis, welford_merge)'''

SOFTMAX_STEP = '''\
@triton.jit
def softmax_step(largest, total, x):
    """Running maximum, and the sum of e**(x - maximum), with one more value each."""
    new_largest = maximum(largest, x)
    empty = new_largest == float("-inf")
    scale = tl.where(empty, 1.0, exp(largest - new_largest))
    return new_largest, total * scale + tl.where(empty, 1.0, exp(x - new_largest))'''

SOFTMAX_MERGE = '''\
@triton.jit
def softmax_merge(largest, total, other_largest, other_total):
    """The maximum, and the sum of e**(x - maximum), of two parts together."""
    whole = maximum(largest, other_largest)
    empty = whole == float("-inf")
    scale = tl.where(empty, 1.0, exp(largest - whole))
    other_scale = tl.where(empty, 1.0, exp(other_largest - whole))
    return whole, total * scale + other_total * other_scale'''

SOFTMAX_ALONG = '''\
@triton.jit
def softmax_along(largest, total, axis: tl.constexpr):
    """The maximum along an axis, and the sum of e**(x - maximum) over all parts."""
    whole = max_along(largest, axis)
    above = tl.expand_dims(whole, axis)
    delta = tl.where(above == float("-inf"), 0.0, largest - above)
    return whole, tl.sum(total * exp(delta), axis)'''

FLOOR_DIVIDE = '''\
@triton.jit
def floor_divide(a, b):
    """a / b rounded down, for integers."""
    quotient = a // b
    return tl.where((a % b != 0) & ((a < 0) != (b < 0)), quotient - 1, quotient)'''

FLOOR_REMAINDER = '''\
@triton.jit
def floor_remainder(a, b):
    """a - b * floor(a / b), for integers."""
    rest = a % b
    return tl.where((rest != 0) & ((a < 0) != (b < 0)), rest + b, rest)'''

IS_NEGATIVE = '''\
@triton.jit
def is_negative(x):
    """Whether the sign is set: for fp32 the bit, so that -0.0 counts."""
    if x.dtype == tl.float32:
        return x.to(tl.int32, bitcast=True) < 0
    else:
        return x < 0'''

IS_NAN = '''\
@triton.jit
def is_nan(x):
    """Whether x is no number."""
    return x != x'''

IS_INF = '''\
@triton.jit
def is_inf(x):
    """Whether x is infinite."""
    return tl.abs(x) == float("inf")'''

BUCKET_OF = '''\
@triton.jit
def bucket_of(
    x, boundaries_ptr, first, count, stride, steps: tl.constexpr, right: tl.constexpr,
    kind: tl.constexpr,
):
    """How many of `count` sorted boundaries are below x, with `right` also equal to it; NaN is
    past all of them. A binary search of `steps` halvings."""
    low = tl.zeros(x.shape, kind)
    high = low + count
    for _ in range(steps):
        middle = (low + high) // 2
        inside = middle < count
        boundary = tl.load(boundaries_ptr + (first + middle * stride), inside, other=0)
        if right:
            past = (x >= boundary) | (x != x)
        else:
            past = (x > boundary) | (x != x)
        low = tl.where(past & inside, middle + 1, low)
        high = tl.where(past, high, middle)
    return low'''

LIFTED_HELPERS: Helpers = {
    **MATH,
    **{name: HELPERS[name] for name in
       ("maximum", "minimum", "multiply", "larger_place", "smaller_place", "selected")},
    "either": (ANY, ()),
    "any_along": (ALONG.format(name="any_along", words="Whether any holds", combine="either"),
                  ("either",)),
    "max_along": (ALONG.format(name="max_along", words="Maximum", combine="maximum"),
                  ("maximum",)),
    "min_along": (ALONG.format(name="min_along", words="Minimum", combine="minimum"),
                  ("minimum",)),
    "product_along": (ALONG.format(name="product_along", words="Product", combine="multiply"),
                      ("multiply",)),
    "max_place_along": (PLACE_ALONG.format(name="max_place_along", words="maximum",
                                           combine="larger_place"), ("larger_place",)),
    "min_place_along": (PLACE_ALONG.format(name="min_place_along", words="minimum",
                                           combine="smaller_place"), ("smaller_place",)),
    "welford_step": (WELFORD_STEP, ()),
    "welford_merge": (WELFORD_MERGE, ()),
    "welford_along": (WELFORD_ALONG, ("welford_merge",)),
    "softmax_step": (SOFTMAX_STEP, ("maximum", "exp")),
    "softmax_merge": (SOFTMAX_MERGE, ("maximum", "exp")),
    "softmax_along": (SOFTMAX_ALONG, ("max_along", "exp")),
    "floor_divide": (FLOOR_DIVIDE, ()),
    "floor_remainder": (FLOOR_REMAINDER, ()),
    "is_negative": (IS_NEGATIVE, ()),
    "is_nan": (IS_NAN, ()),
    "is_inf": (IS_INF, ()),
    "bucket_of": (BUCKET_OF, ()),
}  # fmt: skip
"""Name -> (source, names of helpers that it calls), callees first."""

RENAMED = {
    "triton_helpers.any": "any_along",
    "triton_helpers.bucketize_binary_search": "bucket_of",
    "triton_helpers.div_floor_integer": "floor_divide",
    "triton_helpers.max2": "max_along",
    "triton_helpers.max_with_index": "max_place_along",
    "triton_helpers.maximum": "maximum",
    "triton_helpers.maximum_with_index": "larger_place",
    "triton_helpers.min2": "min_along",
    "triton_helpers.min_with_index": "min_place_along",
    "triton_helpers.minimum": "minimum",
    "triton_helpers.minimum_with_index": "smaller_place",
    "triton_helpers.online_softmax_combine": "softmax_step",
    "triton_helpers.online_softmax_combine_with_sum": "softmax_merge",
    "triton_helpers.online_softmax_reduce": "softmax_along",
    "triton_helpers.prod": "product_along",
    "triton_helpers.remainder_integer": "floor_remainder",
    "triton_helpers.select_one": "selected",
    "triton_helpers.welford": "welford_along",
    "triton_helpers.welford_combine": "welford_merge",
    "triton_helpers.welford_reduce": "welford_step",
    "libdevice.exp": "exp",
    "libdevice.expm1": "expm1",
    "libdevice.isinf": "is_inf",
    "libdevice.isnan": "is_nan",
    "libdevice.log1p": "log1p",
    "libdevice.tanh": "tanh",
    "tl_math.exp": "exp",
    "tl_math.tanh": "tanh",
    "tl.sigmoid": "sigmoid",
}
"""TorchInductor's name -> ours."""
FAST_MATH_LAST = ("softmax_step", "softmax_merge", "softmax_along")
"""Helpers of which TorchInductor's take a flag more, which says that exp may be coarse."""
BUILT_IN = {
    f"{space}.{name}": f"tl.{ours}"
    for space in ("libdevice", "tl_math")
    for name, ours in {
        "abs": "abs", "ceil": "ceil", "cos": "cos", "erf": "erf", "exp2": "exp2",
        "floor": "floor", "fma": "fma", "log": "log", "log2": "log2", "rsqrt": "rsqrt",
        "sin": "sin", "sqrt": "sqrt_rn",
    }.items()
}  # fmt: skip
"""TorchInductor's name -> Triton's own."""


def lifted_helper_sources(names: Iterable[str]) -> list[str]:
    """Sources of the named helpers and of what they call, callees first."""
    return helper_sources(names, LIFTED_HELPERS)
