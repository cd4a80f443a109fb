"""Arithmetic of Triton's interpreter as on a GPU: rounded values and CUDA's libdevice.

Operands of a dot are rounded as its precision says, and an fp32 dot must name it. bf16 is
computed in fp32 and rounded to nearest even; sums in a narrow type round at every level.

The interpreter has none of CUDA's library of mathematical functions. Here its values are
computed in fp64 by NumPy, which no log of torch's operators sees, and rounded once; CUDA's own
library is off by a few units in the last place. A function that has no form here is refused by
name.
"""

from __future__ import annotations

import functools
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, cast

import numpy as np
import numpy.typing as npt
import triton.language as tl
import triton.language.extra.libdevice as common
from triton.language.extra.cuda import libdevice as cuda
from triton.runtime import interpreter

from agentkernel.tools.judge.execution.launches import (
    ROUNDED,
    InterpreterRefused,
    MissingPrecision,
    candidate_line,
    launch_state,
)

Array = npt.NDArray[np.generic]
TF32_MASK = np.uint32(0xFFFFE000)
EVERY_FITS = 128.0
"""Smaller numbers fit every signed type."""
CASTS = (
    "create_si_to_fp",
    "create_ui_to_fp",
    "create_fp_to_si",
    "create_fp_to_ui",
    "create_fp_ext",
    "create_fp_trunc",
    "create_fp_to_fp",
)


def install_gpu_rounding() -> None:
    """Install the hooks on arithmetic, casts, dots and sums."""
    _hook_dot()
    _hook_fma()
    _hook_bfloat16()
    _hook_comparisons()
    _hook_reductions()
    _hook_integers()


def builder_class() -> type:
    """The interpreter's instruction builder, which the hooks are set on."""
    return cast(type, interpreter.InterpreterBuilder)


def _hook_dot() -> None:
    dot = tl.core.dot

    def checked_dot(
        input: object,  # noqa: A002 - Triton's own name
        other: object,
        acc: object = None,
        input_precision: object = None,
        allow_tf32: object = None,
        *args: object,
        **kwargs: object,
    ) -> object:
        unnamed = input_precision is None and allow_tf32 is None
        if unnamed and not launch_state.unnamed_dot_allowed and input.dtype.is_fp32():  # type: ignore[attr-defined]
            raise launch_state.refuse(
                MissingPrecision(
                    f"kernel {launch_state.kernel} line {candidate_line()}: fp32 tl.dot does not "
                    "name its input_precision; on a GPU that is tf32. "
                    'Say "ieee", "tf32x3" or "tf32".'
                )
            )
        return dot(input, other, acc, input_precision, allow_tf32, *args, **kwargs)

    setattr(checked_dot, tl.core.TRITON_BUILTIN, True)
    tl.core.dot = checked_dot
    tl.dot = checked_dot
    original = builder_class().create_dot  # type: ignore[attr-defined]

    def create_dot(
        self: object, a: object, b: object, d: object, precision: object, imprecise: object
    ) -> object:
        kind = a.dtype.scalar  # type: ignore[attr-defined]
        note_product(str(kind), str(d.dtype.scalar), str(precision).rpartition(".")[2])  # type: ignore[attr-defined]
        if not kind.is_floating() or kind.primitive_bitwidth in (8, 64):
            return original(self, a, b, d, precision, imprecise)
        name = str(precision).rpartition(".")[2] if kind.is_fp32() else "IEEE"
        product = rounded_product(to_f32(a), to_f32(b), name.upper())
        data = d.data  # type: ignore[attr-defined]
        return interpreter.TensorHandle((product + data).astype(data.dtype), d.dtype.scalar)  # type: ignore[attr-defined]

    builder_class().create_dot = create_dot  # type: ignore[attr-defined]


def note_product(operand: str, accumulator: str, precision: str) -> None:
    """Keep a product whose types say that it loses precision: an accumulator of 16 bits, or fp32
    operands of which only 10 or 16 bits are multiplied."""
    where = f"kernel {launch_state.kernel} line {candidate_line()}"
    if accumulator in ("fp16", "bf16"):
        launch_state.products.add(f"{where}: a product of {operand} is added up in {accumulator}")
    elif operand == "fp32" and precision.upper() in ("TF32", "BF16X3"):
        launch_state.products.add(f"{where}: {ROUNDED} {precision.lower()}")


def rounded_product(
    a: npt.NDArray[np.float32], b: npt.NDArray[np.float32], precision: str
) -> npt.NDArray[np.float32]:
    """a @ b in fp32 with operands as `precision` leaves them.

    TF32 truncates to 10 mantissa bits, as Hopper's wgmma does with raw fp32 operands; TF32X3 is
    fp32-accurate; BF16X3 and BF16X6 sum products of bf16 parts, smallest first.
    """
    product: npt.NDArray[np.float32]
    if precision == "TF32":
        product = np.matmul(_truncate(a), _truncate(b))
        return product
    if precision in ("BF16X3", "BF16X6"):
        pairs = [(1, 0), (0, 1), (0, 0)]
        if precision == "BF16X6":
            pairs = [(2, 0), (1, 1), (0, 2), *pairs]
        left, right = _bf16_parts(a), _bf16_parts(b)
        product = np.sum([left[i] @ right[j] for i, j in pairs], axis=0, dtype=np.float32)
        return product
    product = np.matmul(a, b)
    return product


def _truncate(data: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    return (np.ascontiguousarray(data).view(np.uint32) & TF32_MASK).view(np.float32)


def _bf16_parts(data: npt.NDArray[np.float32]) -> list[npt.NDArray[np.float32]]:
    parts = []
    for _ in range(3):
        part = bf16_to_f32(f32_to_bf16(data))
        parts.append(part)
        data = data - part
    return parts


def bf16_to_f32(bits: Array) -> npt.NDArray[np.float32]:
    """Bit patterns (uint16) to values."""
    return (np.ascontiguousarray(bits).astype(np.uint32) << np.uint32(16)).view(np.float32)


def f32_to_bf16(data: Array) -> npt.NDArray[np.uint16]:
    """Values to bit patterns (uint16), to nearest even; NaN stays NaN."""
    values = np.ascontiguousarray(data, dtype=np.float32)
    bits = values.view(np.uint32)
    bias = ((bits >> np.uint32(16)) & np.uint32(1)) + np.uint32(0x7FFF)
    rounded = ((bits.astype(np.uint64) + bias) >> np.uint64(16)).astype(np.uint16)
    return np.where(np.isnan(values), np.uint16(0x7FC0), rounded).reshape(np.shape(data))


def to_f32(handle: object) -> npt.NDArray[np.float32]:
    """A handle's values in fp32."""
    data = np.asarray(handle.data)  # type: ignore[attr-defined]
    return bf16_to_f32(data).reshape(data.shape) if is_bf16(handle) else data.astype(np.float32)


def is_bf16(handle: object) -> bool:
    """True for a handle whose elements are bf16 bit patterns."""
    kind: object = getattr(handle, "dtype", None)
    if type(kind) is not tl.dtype:
        kind = getattr(kind, "scalar", None)
    return isinstance(kind, tl.dtype) and bool(kind.name == "bf16")


def _wide(handle: object) -> object:
    return interpreter.TensorHandle(to_f32(handle), tl.float32) if is_bf16(handle) else handle


def _narrow(handle: object) -> object:
    data = np.asarray(handle.data)  # type: ignore[attr-defined]
    bits = data if data.dtype == bool else f32_to_bf16(data)
    return interpreter.TensorHandle(bits, tl.bfloat16)


def _hook_fma() -> None:
    """Rounded once, as `tl.fma` is on a GPU: Triton 3.6 interprets it as a product and a sum. The
    product of two fp32 numbers fits fp64."""
    builder = builder_class()
    method = builder.create_fma  # type: ignore[attr-defined]

    def create_fma(self: object, x: object, y: object, z: object) -> object:
        parts = [np.asarray(item.data) for item in (x, y, z)]  # type: ignore[attr-defined]
        if any(part.dtype != np.float32 for part in parts):
            return method(self, x, y, z)
        wide = [part.astype(np.float64) for part in parts]
        with np.errstate(all="ignore"):
            data = (wide[0] * wide[1] + wide[2]).astype(np.float32)
        return interpreter.TensorHandle(data, z.dtype.scalar)  # type: ignore[attr-defined]

    builder.create_fma = create_fma  # type: ignore[attr-defined]


def _is_fp8(kind: object) -> bool:
    return bool(kind.primitive_bitwidth == 8 and kind.is_floating())  # type: ignore[attr-defined]


def _hook_bfloat16() -> None:
    builder = builder_class()

    def converted(method: Callable[..., object]) -> Callable[..., object]:
        def run(self: object, *args: object, **kwargs: object) -> object:
            for item in args:
                if is_bf16(item):
                    return _narrow(method(self, *[_wide(item) for item in args], **kwargs))
            return method(self, *args, **kwargs)

        return run

    for name in ("binary_op", "unary_op", "create_fma"):
        setattr(builder, name, converted(getattr(builder, name)))
    ternary = builder.ternary_op  # type: ignore[attr-defined]

    def ternary_op(self: object, a: object, b: object, c: object, op: object) -> object:
        return (
            ternary(self, a, b, c, op) if op is np.where else converted(ternary)(self, a, b, c, op)
        )

    builder.ternary_op = ternary_op  # type: ignore[attr-defined]
    builder.create_rsqrt = converted(builder.create_rsqrt)  # type: ignore[attr-defined]
    for name in CASTS:
        setattr(builder, name, _exact_cast(getattr(builder, name)))
    builder.get_bf16 = lambda self, value: interpreter.TensorHandle(  # type: ignore[attr-defined]
        f32_to_bf16(np.array([value], dtype=np.float32)), tl.bfloat16
    )


def _hook_comparisons() -> None:
    """Triton gives the result of a comparison the type of its operands, and a scalar one that is
    spread over a block becomes integers, which are no mask."""
    builder = builder_class()
    compute = builder.binary_op  # type: ignore[attr-defined]

    def binary_op(self: object, lhs: object, rhs: object, op: object) -> object:
        result = compute(self, lhs, rhs, op)
        if result.data.dtype == np.bool_:
            result.dtype = tl.int1
        return result

    builder.binary_op = binary_op  # type: ignore[attr-defined]


def _hook_integers() -> None:
    """Floats become integers as PTX's cvt.rzi makes them (PTX ISA, "cvt"): NaN is 0, and what does
    not fit the nearest that does. Where the original makes integers of floats itself, an answer for
    these is held against what this machine makes of them, and the hook stays out of the way."""
    builder = builder_class()
    for name in ("create_fp_to_si", "create_fp_to_ui"):
        setattr(builder, name, _saturated(getattr(builder, name)))


def _saturated(method: Callable[..., object]) -> Callable[..., object]:
    def run(self: object, src: object, kind: object, *args: object) -> object:
        data = to_f32(src) if is_bf16(src) else src.data  # type: ignore[attr-defined]
        target = np.dtype(interpreter._get_np_dtype(kind.scalar))  # type: ignore[attr-defined]
        with np.errstate(invalid="ignore"):
            plain = data.dtype.kind != "f" or bool(np.all(np.abs(data) < EVERY_FITS))
            if (
                launch_state.casts_as_here
                or target.kind not in "iu"
                or (plain and target.kind == "i")
            ):
                return method(self, src, kind, *args)
            # The narrowest conversion is to 16 bits; of its result a byte is the lower half.
            limits = np.iinfo(target if target.itemsize > 1 else np.dtype(f"{target.kind}2"))
            wide = np.trunc(np.nan_to_num(data.astype(np.float64), posinf=np.inf, neginf=-np.inf))
            fits = (wide >= limits.min) & (wide < float(limits.max))
            found = np.where(fits, wide, 0).astype(limits.dtype)
            found = np.where(wide >= float(limits.max), limits.max, found)
            found = np.where(wide < limits.min, limits.min, found).astype(target)
        return interpreter.TensorHandle(found, kind.scalar)  # type: ignore[attr-defined]

    return run


def _exact_cast(method: Callable[..., object]) -> Callable[..., object]:
    """A conversion that rounds to nearest even into bf16 and reads bf16 as what it means."""

    def run(self: object, src: object, kind: object, *args: object) -> object:
        target = kind.scalar  # type: ignore[attr-defined]
        fp8 = _is_fp8(target) or _is_fp8(src.dtype.scalar)  # type: ignore[attr-defined]
        if fp8 or not (is_bf16(src) or target == tl.bfloat16):
            return method(self, src, kind, *args)
        if target == tl.bfloat16:
            return interpreter.TensorHandle(f32_to_bf16(to_f32(src)), target)
        data = to_f32(src).astype(interpreter._get_np_dtype(target))
        return interpreter.TensorHandle(data, target)

    return run


def _hook_reductions() -> None:
    _hook_not_a_number()
    reduce_sum, cumsum = interpreter.ReduceOps.sum, interpreter.ScanOps.cumsum

    def narrow_sum(self: object, value: object) -> object:
        handle = value.handle  # type: ignore[attr-defined]
        if handle.dtype.scalar not in (tl.float16, tl.bfloat16):
            return reduce_sum(self, value)
        data = _tree_sum(handle, self.axis, bool(self.keep_dims))  # type: ignore[attr-defined]
        result = f32_to_bf16(data) if is_bf16(handle) else data
        return self.to_tensor(result, value.dtype)  # type: ignore[attr-defined]

    def checked_cumsum(self: object, value: object) -> object:
        if is_bf16(value.handle):  # type: ignore[attr-defined]
            raise launch_state.refuse(
                InterpreterRefused("a bfloat16 scan cannot be interpreted; cast to float32 first")
            )
        return cumsum(self, value)

    interpreter.ReduceOps.sum = narrow_sum
    interpreter.ScanOps.cumsum = checked_cumsum
    interpreter.ReduceOps.generic_reduce = _reduced_as_a_tree
    interpreter.ScanOps.generic_scan = _scanned_as_a_tree


Arrays = list[Array]


def _reduced_as_a_tree(self: object, values: Sequence[tl.tensor]) -> list[object]:
    """Pairs of neighbours, then pairs of these: as a GPU does, where left to right would take a
    step for associative that is not."""
    axis: int | None = self.axis  # type: ignore[attr-defined]
    kinds = [value.dtype for value in values]
    shape = values[0].handle.data.shape
    along = (
        [v.handle.data.reshape(-1) for v in values]
        if axis is None
        else [np.moveaxis(v.handle.data, axis, -1) for v in values]
    )
    while along[0].shape[-1] > 1:
        left, right = [x[..., ::2] for x in along], [x[..., 1::2] for x in along]
        along = _combined(self, left, right, kinds)
    found = [x[..., 0] for x in along]
    if self.keep_dims:  # type: ignore[attr-defined]
        ones = [1] * len(shape)
        found = [x.reshape(ones) if axis is None else np.expand_dims(x, axis) for x in found]
    return [_packed(self, x, kind) for x, kind in zip(found, kinds, strict=True)]


def _scanned_as_a_tree(self: object, values: Sequence[tl.tensor]) -> list[object]:
    """Each place with the one before it, then with the one two before it, four, eight."""
    axis: int = self.axis  # type: ignore[attr-defined]
    kinds = [value.dtype for value in values]
    along = [np.moveaxis(value.handle.data, axis, -1) for value in values]
    count, step = along[0].shape[-1], 1
    while step < count:
        # The first places have none before them; a block has to keep its size, a power of two.
        first = [x[..., :step] for x in along]
        left = [np.concatenate((x[..., :step], x[..., :-step]), axis=-1) for x in along]
        later = [x[..., step:] for x in _combined(self, left, along, kinds)]
        along = [np.concatenate(both, axis=-1) for both in zip(first, later, strict=True)]
        step *= 2
    found = [np.moveaxis(x, -1, axis) for x in along]
    return [_packed(self, x, kind) for x, kind in zip(found, kinds, strict=True)]


def _packed(self: object, data: npt.NDArray[np.generic], kind: object) -> object:
    given = np.ascontiguousarray(data) if data.ndim else data.item()
    return self.to_tensor(given, kind)  # type: ignore[attr-defined]


def _combined(self: object, left: Arrays, right: Arrays, kinds: Sequence[object]) -> Arrays:
    """The step at all places at once; one by one, where it asks for a truth value."""
    truth = tl.tensor.__bool__
    tl.tensor.__bool__ = _no_truth
    try:
        return _step(self, left, right, kinds)
    except _TruthOfMany:
        tl.tensor.__bool__ = truth
        found = [np.empty_like(item) for item in left]
        for place in np.ndindex(left[0].shape):
            one, other = ([x[place].reshape(1) for x in side] for side in (left, right))
            for room, value in zip(found, _step(self, one, other, kinds), strict=True):
                room[place] = value.reshape(-1)[0]
        return found
    finally:
        tl.tensor.__bool__ = truth


class _TruthOfMany(Exception):
    """A step branches, and is to do so at each place by itself."""


def _no_truth(self: tl.tensor) -> bool:
    raise _TruthOfMany


def _step(self: object, left: Arrays, right: Arrays, kinds: Sequence[object]) -> Arrays:
    given = [
        _packed(self, x, kind)
        for side in (left, right)
        for x, kind in zip(side, kinds, strict=True)
    ]
    result = self.combine_fn.fn(*given)  # type: ignore[attr-defined]
    results = result if isinstance(result, tuple) else (result,)
    return [
        np.broadcast_to(x.handle.data if isinstance(x, tl.tensor) else x, old.shape).astype(
            old.dtype
        )
        for x, old in zip(results, left, strict=True)
    ]


def _hook_not_a_number() -> None:
    """A GPU's max and min let NaN go unless told to propagate it; so does a tree of comparisons."""
    builder = builder_class()
    builder.create_maxnumf = lambda self, a, b: self.binary_op(a, b, np.fmax)  # type: ignore[attr-defined]
    builder.create_minnumf = lambda self, a, b: self.binary_op(a, b, np.fmin)  # type: ignore[attr-defined]
    apply = interpreter.ReduceOps.apply_impl
    names = ("_argmax_combine_tie_break_left", "_argmax_combine_tie_break_fast")
    largest = [getattr(tl.standard, name) for name in names]
    smallest = [getattr(tl.standard, name.replace("max", "min")) for name in names]

    def without_nan(self: object, value: object) -> object:
        function = self.combine_fn  # type: ignore[attr-defined]
        if function not in (*largest, *smallest):
            return apply(self, value)
        top = function in largest
        handle = value[0].handle  # type: ignore[index]
        data = to_f32(handle) if is_bf16(handle) else handle.data
        if data.dtype.kind == "f":
            data = np.where(np.isnan(data), -np.inf if top else np.inf, data)
        pick, best = (np.argmax, np.max) if top else (np.argmin, np.min)
        axes = {"axis": self.axis, "keepdims": self.keep_dims}  # type: ignore[attr-defined]
        found = best(data, **axes)
        found = f32_to_bf16(found) if is_bf16(handle) else found.astype(handle.data.dtype)
        index = pick(data, **axes).astype(np.int32)
        return self.to_tensor(found, value[0].dtype), self.to_tensor(index, tl.int32)  # type: ignore[attr-defined, index]

    interpreter.ReduceOps.apply_impl = without_nan


def _tree_sum(handle: object, axis: int | None, keep_dims: bool) -> npt.NDArray[np.float32]:
    """A sum in the operand's own narrow type, rounded at every level of a binary tree."""
    data = to_f32(handle)
    shape = data.shape
    data = data.reshape(-1) if axis is None else np.moveaxis(data, axis, -1)
    while data.shape[-1] > 1:
        if data.shape[-1] % 2:
            data = np.concatenate([data, np.zeros((*data.shape[:-1], 1), np.float32)], axis=-1)
        data = data[..., 0::2] + data[..., 1::2]
        data = (
            bf16_to_f32(f32_to_bf16(data))
            if is_bf16(handle)
            else data.astype(np.float16).astype(np.float32)
        )
    data = data[..., 0]
    if not keep_dims:
        return data
    return data.reshape([1] * len(shape)) if axis is None else np.expand_dims(data, axis)


Function = Callable[..., Array]
NORMAL = statistics.NormalDist()


def _each(function: Callable[[float], float]) -> Function:
    """A function of one number at every place; NaN where it has no value."""

    def safe(value: float) -> float:
        try:
            return function(float(value))
        except (ValueError, statistics.StatisticsError):
            return math.nan
        except OverflowError:
            return math.inf

    return np.vectorize(safe, otypes=[np.float64])


def _erfinv(x: float) -> float:
    if abs(x) == 1.0:
        return math.copysign(math.inf, x)
    return NORMAL.inv_cdf((x + 1.0) / 2.0) / math.sqrt(2.0)


def _remainder(x: Array, y: Array) -> Array:
    found: Array = np.vectorize(math.remainder, otypes=[np.float64])(x, y)
    return found


FUNCTIONS: Mapping[str, Function] = {
    **{name: getattr(np, name) for name in (
        "abs", "acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cbrt", "ceil",
        "copysign", "cos", "cosh", "exp", "exp2", "expm1", "floor", "fmod", "hypot", "isinf",
        "isnan", "log", "log10", "log1p", "log2", "nextafter", "pow", "rint", "signbit", "sin",
        "sinh", "sqrt", "tan", "tanh", "trunc") if hasattr(np, name)},
    "add_rn": np.add, "div_rn": np.divide, "mul_rn": np.multiply, "sub_rn": np.subtract,
    "fma": lambda x, y, z: x * y + z, "fma_rn": lambda x, y, z: x * y + z,
    "fast_dividef": lambda x, y: np.where(np.abs(y) > 2.0**126, x / np.copysign(np.inf, y), x / y),
    "fdim": lambda x, y: np.where(x > y, x - y, np.where(x <= y, 0.0, x + y)),
    "remainder": _remainder, "sqrt_rn": np.sqrt, "rsqrt": lambda x: 1.0 / np.sqrt(x),
    "rsqrt_rn": lambda x: 1.0 / np.sqrt(x), "rcp_rn": lambda x: 1.0 / x,
    "finitef": np.isfinite, "isfinited": np.isfinite, "llrint": np.rint, "nearbyint": np.rint,
    "round": lambda x: np.copysign(np.floor(np.abs(x) + 0.5), x),
    "cospi": lambda x: np.cos(np.pi * x), "sinpi": lambda x: np.sin(np.pi * x),
    "exp10": lambda x: np.power(10.0, x), "cyl_bessel_i0": np.i0,
    "erf": _each(math.erf), "erfc": _each(math.erfc), "erfinv": _each(_erfinv),
    "erfcinv": _each(lambda x: _erfinv(1.0 - x)), "lgamma": _each(math.lgamma),
    "normcdf": _each(lambda x: math.erfc(-x / math.sqrt(2.0)) / 2.0),
    "tgamma": _each(math.gamma),
}  # fmt: skip


class Handle(Protocol):
    """A value of the interpreter's."""

    data: npt.NDArray[np.generic]


def add_libdevice() -> None:
    """Let kernels that are interpreted call the library, by either of its names."""
    called: list[Function] = []

    def elementwise(
        _: object, library: str, path: str, symbol: str, args: Sequence[Handle], kind: object,
        pure: bool,
    ) -> object:  # fmt: skip
        return _elementwise(called[-1], args, kind.scalar)  # type: ignore[attr-defined]

    interpreter.InterpreterBuilder.create_extern_elementwise = elementwise
    for name, function in list(vars(cuda).items()):
        if hasattr(common, name) and callable(function):
            for module in (cuda, common):
                setattr(module, name, _interpreted(name, function, called))


def _interpreted(
    name: str, function: Callable[..., object], called: list[Function]
) -> Callable[..., object]:
    """The library's function `name` as the interpreter calls it: Triton checks the types."""

    @functools.wraps(function)
    def call(*args: object, _semantic: object = None) -> object:
        if name not in FUNCTIONS:
            raise launch_state.refuse(InterpreterRefused(f"libdevice.{name} cannot be interpreted"))
        called[:] = [FUNCTIONS[name]]
        return function(*args, _semantic=interpreter.interpreter_semantic)

    return call


def _elementwise(function: Function, args: Sequence[Handle], kind: object) -> object:
    """`function` at every place, as values of `kind`."""
    wide = [item.data.astype(np.float64) if item.data.dtype.kind == "f" else item.data
            for item in args]  # fmt: skip
    with np.errstate(all="ignore"):
        data = np.asarray(function(*wide)).astype(interpreter._get_np_dtype(kind))
    return interpreter.TensorHandle(data, kind)
