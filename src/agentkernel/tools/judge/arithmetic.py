"""The interpreter's values, rounded as a GPU would round them.

Operands of a dot as its precision asks, and an fp32 dot must name it. bf16 is computed in fp32 and
rounded to nearest even; sums in a narrow type round at every level.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import numpy as np
import numpy.typing as npt
import triton.language as tl
from triton.runtime import interpreter

from agentkernel.tools.judge.watch import (
    ROUNDED,
    InterpreterRefused,
    MissingPrecision,
    candidate_line,
    watch,
)

Array = npt.NDArray[np.generic]
TF32_MASK = np.uint32(0xFFFFE000)
CASTS = (
    "create_si_to_fp",
    "create_ui_to_fp",
    "create_fp_to_si",
    "create_fp_to_ui",
    "create_fp_ext",
    "create_fp_trunc",
    "create_fp_to_fp",
)


def round_as_a_gpu() -> None:
    """Install the hooks on arithmetic, casts, dots and sums."""
    _hook_dot()
    _hook_bfloat16()
    _hook_comparisons()
    _hook_reductions()


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
        if unnamed and not watch.unnamed_dot_allowed and input.dtype.is_fp32():  # type: ignore[attr-defined]
            raise watch.refuse(
                MissingPrecision(
                    f"kernel {watch.kernel} line {candidate_line()}: fp32 tl.dot does not name "
                    'its input_precision; on a GPU that is tf32. Say "ieee", "tf32x3" or "tf32".'
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
    where = f"kernel {watch.kernel} line {candidate_line()}"
    if accumulator in ("fp16", "bf16"):
        watch.products.append(f"{where}: a product of {operand} is added up in {accumulator}")
    elif operand == "fp32" and precision.upper() in ("TF32", "BF16X3"):
        watch.products.append(f"{where}: {ROUNDED} {precision.lower()}")


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
            raise watch.refuse(
                InterpreterRefused("a bfloat16 scan cannot be interpreted; cast to float32 first")
            )
        return cumsum(self, value)

    interpreter.ReduceOps.sum = narrow_sum
    interpreter.ScanOps.cumsum = checked_cumsum


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
