"""What does Triton's interpreter forgive that a GPU does not? Made up for here, in the worker.

Operands of a dot are rounded as its precision asks; an fp32 dot must name it. bf16 is computed in
fp32 and rounded to nearest even; narrow sums round at every level. Every address is checked against
the tensors of the launch: a store outside is refused, a load outside gives NaN. Programs can run in
another order. Works with the interpreters of Triton 3.6 and 3.9.
"""

from __future__ import annotations

import functools
import random
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, cast

import numpy as np
import numpy.typing as npt
import triton.language as tl
from triton.runtime import interpreter

Array = npt.NDArray[np.generic]
Order = Literal["ascending", "reversed", "shuffled"]
TF32_MASK = np.uint32(0xFFFFE000)
INT_SENTINEL = 0x5A
CONVERTED = (
    "binary_op",
    "unary_op",
)
CASTS = ("create_si_to_fp", "create_ui_to_fp", "create_fp_to_si", "create_fp_to_ui")
CASTS += ("create_fp_ext", "create_fp_trunc", "create_fp_to_fp")


class InterpreterRefused(Exception):
    """Something that the interpreter would wave through and a GPU would not."""


class MissingPrecision(InterpreterRefused):
    """An fp32 dot without input_precision: tf32 on a GPU, exact in the interpreter."""


class OutOfBounds(InterpreterRefused):
    """A store to memory of no tensor of the launch."""


@dataclass
class Watch:
    """What the hooks know of the current launch, and have seen since `reset`."""

    order: Order = "ascending"
    unnamed_dot_allowed: bool = False
    starts: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    kernel: str = ""
    launches: list[str] = field(default_factory=list)
    refusal: InterpreterRefused | None = None
    loads_outside: list[str] = field(default_factory=list)
    permutation: list[int] | None = None

    def reset(self, order: Order) -> None:
        """Before a call of the candidate."""
        self.order = order
        self.launches.clear()
        self.loads_outside.clear()
        self.refusal = None

    def refuse(self, error: InterpreterRefused) -> InterpreterRefused:
        """Remember the first refusal: the interpreter wraps exceptions on their way out."""
        self.refusal = self.refusal or error
        return error


watch = Watch()


@functools.cache
def harden() -> Watch:
    """Install every hook, once a process."""
    _hook_launches()
    _hook_order()
    _hook_memory()
    _hook_dot()
    _hook_bfloat16()
    _hook_reductions()
    return watch


def _builder() -> type:
    return cast(type, interpreter.InterpreterBuilder)


def _hook_launches() -> None:
    run = interpreter.InterpretedFunction.run
    convert = interpreter._implicit_cvt

    def watched_run(self: object, *args: object, **kwargs: object) -> object:
        if not kwargs.get("warmup"):
            watch.kernel = str(self.fn.__name__)  # type: ignore[attr-defined]
            watch.launches.append(watch.kernel)
            watch.starts, watch.ends = [], []
        return run(self, *args, **kwargs)

    def watched_convert(argument: object) -> object:
        if hasattr(argument, "data_ptr"):
            storage = interpreter._unwrap_tensor(argument).untyped_storage()
            watch.starts.append(storage.data_ptr())
            watch.ends.append(storage.data_ptr() + storage.nbytes())
        return convert(argument)

    interpreter.InterpretedFunction.run = watched_run
    interpreter._implicit_cvt = watched_convert


def _hook_order() -> None:
    set_dim, set_idx = _builder().set_grid_dim, _builder().set_grid_idx  # type: ignore[attr-defined]

    def set_grid_dim(self: object, nx: int, ny: int, nz: int) -> None:
        set_dim(self, nx, ny, nz)
        watch.permutation = _permutation(nx * ny * nz, watch.order)

    def set_grid_idx(self: object, x: int, y: int, z: int) -> None:
        if watch.permutation is not None:
            _, ny, nz = self.grid_dim  # type: ignore[attr-defined]
            index = watch.permutation[(x * ny + y) * nz + z]
            x, y, z = index // (ny * nz), index // nz % ny, index % nz
        set_idx(self, x, y, z)

    _builder().set_grid_dim = set_grid_dim  # type: ignore[attr-defined]
    _builder().set_grid_idx = set_grid_idx  # type: ignore[attr-defined]


def _permutation(count: int, order: Order) -> list[int] | None:
    if order == "ascending":
        return None
    indices = list(range(count))[::-1]
    if order == "shuffled":
        random.Random(count).shuffle(indices)
    return indices


def _hook_memory() -> None:
    builder = _builder()
    load, store = builder.create_masked_load, builder.create_masked_store  # type: ignore[attr-defined]
    rmw, cas = builder.create_atomic_rmw, builder.create_atomic_cas  # type: ignore[attr-defined]

    def masked_load(
        self: object, ptrs: object, mask: object, other: object, *a: object, **k: object
    ) -> object:
        inside = _inside(ptrs, mask)
        if inside is None:
            return load(self, ptrs, mask, other, *a, **k)
        watch.loads_outside.append(f"{watch.kernel} line {_line()}")
        legal = interpreter.TensorHandle(inside & _mask(ptrs, mask), tl.int1)
        result = load(self, ptrs, legal, other, *a, **k)
        return _poison(result, _mask(ptrs, mask) & ~inside)

    def masked_store(self: object, ptrs: object, value: object, mask: object, *a: object) -> object:
        _require_inside(ptrs, mask, "store")
        return store(self, ptrs, value, mask, *a)

    def atomic_rmw(
        self: object, op: object, ptr: object, val: object, mask: object, *a: object
    ) -> object:
        _require_inside(ptr, mask, "atomic")
        if _is_bf16(val):
            raise watch.refuse(InterpreterRefused("atomics on bfloat16 cannot be interpreted"))
        return rmw(self, op, ptr, val, mask, *a)

    def atomic_cas(self: object, ptr: object, *a: object) -> object:
        _require_inside(ptr, None, "atomic")
        return cas(self, ptr, *a)

    builder.create_masked_load = masked_load  # type: ignore[attr-defined]
    builder.create_masked_store = masked_store  # type: ignore[attr-defined]
    builder.create_atomic_rmw = atomic_rmw  # type: ignore[attr-defined]
    builder.create_atomic_cas = atomic_cas  # type: ignore[attr-defined]


def _mask(ptrs: object, mask: object) -> npt.NDArray[np.bool_]:
    data = ptrs.data  # type: ignore[attr-defined]
    if mask is None:
        return np.ones(data.shape, dtype=bool)
    return np.broadcast_to(np.asarray(mask.data, dtype=bool), data.shape)  # type: ignore[attr-defined]


def _inside(ptrs: object, mask: object) -> npt.NDArray[np.bool_] | None:
    """Which addresses lie in a tensor of the launch; None where all that are asked for do."""
    addresses = np.asarray(ptrs.data)  # type: ignore[attr-defined]
    wanted = addresses[_mask(ptrs, mask)]
    if wanted.size == 0:
        return None
    size = max(1, ptrs.get_element_ty().primitive_bitwidth // 8)  # type: ignore[attr-defined]
    low, high = int(wanted.min()), int(wanted.max()) + size
    for start, end in zip(watch.starts, watch.ends, strict=True):
        if start <= low and high <= end:
            return None
    inside = np.zeros(addresses.shape, dtype=bool)
    for start, end in zip(watch.starts, watch.ends, strict=True):
        if end - size >= start:
            inside |= (addresses >= np.uint64(start)) & (addresses <= np.uint64(end - size))
    return None if bool(inside[_mask(ptrs, mask)].all()) else inside


def _require_inside(ptrs: object, mask: object, what: str) -> None:
    if _inside(ptrs, mask) is not None:
        raise watch.refuse(
            OutOfBounds(f"kernel {watch.kernel} line {_line()}: {what} outside of every tensor")
        )


def _poison(handle: object, where: npt.NDArray[np.bool_]) -> object:
    data = np.array(handle.data)  # type: ignore[attr-defined]
    if _is_bf16(handle):
        data[where] = 0x7FC0
    else:
        data[where] = np.nan if data.dtype.kind == "f" else INT_SENTINEL
    return interpreter.TensorHandle(data, handle.dtype)  # type: ignore[attr-defined]


def _line() -> int:
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_filename.endswith("candidate.py"):
            return frame.f_lineno
        frame = frame.f_back  # type: ignore[assignment]
    return 0


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
                    f"kernel {watch.kernel} line {_line()}: tl.dot on float32 does not name its "
                    'input_precision; on a GPU that is tf32. Say "ieee", "tf32x3" or "tf32".'
                )
            )
        return dot(input, other, acc, input_precision, allow_tf32, *args, **kwargs)

    setattr(checked_dot, tl.core.TRITON_BUILTIN, True)
    tl.core.dot = checked_dot
    tl.dot = checked_dot
    original = _builder().create_dot  # type: ignore[attr-defined]

    def create_dot(
        self: object, a: object, b: object, d: object, precision: object, imprecise: object
    ) -> object:
        kind = a.dtype.scalar  # type: ignore[attr-defined]
        if not kind.is_floating() or kind.primitive_bitwidth in (8, 64):
            return original(self, a, b, d, precision, imprecise)
        name = str(precision).rpartition(".")[2] if kind.is_fp32() else "IEEE"
        product = rounded_product(to_f32(a), to_f32(b), name.upper())
        data = d.data  # type: ignore[attr-defined]
        return interpreter.TensorHandle((product + data).astype(data.dtype), d.dtype.scalar)  # type: ignore[attr-defined]

    _builder().create_dot = create_dot  # type: ignore[attr-defined]


def rounded_product(
    a: npt.NDArray[np.float32], b: npt.NDArray[np.float32], precision: str
) -> npt.NDArray[np.float32]:
    """a @ b in fp32 with operands as `precision` leaves them.

    TF32 truncates to 10 mantissa bits, as Hopper's wgmma does with raw fp32 operands; TF32X3 is
    fp32-accurate; BF16X3 and BF16X6 sum products of bf16 parts, smallest first.
    """
    if precision == "TF32":
        return np.matmul(_truncate(a), _truncate(b))
    if precision in ("BF16X3", "BF16X6"):
        pairs = [(1, 0), (0, 1), (0, 0)]
        if precision == "BF16X6":
            pairs = [(2, 0), (1, 1), (0, 2), *pairs]
        left, right = _bf16_parts(a), _bf16_parts(b)
        return np.sum([left[i] @ right[j] for i, j in pairs], axis=0, dtype=np.float32)
    return np.matmul(a, b)


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
    return bf16_to_f32(data).reshape(data.shape) if _is_bf16(handle) else data.astype(np.float32)


def _is_bf16(handle: object) -> bool:
    kind = getattr(handle, "dtype", None)
    return kind is not None and getattr(kind, "scalar", None) == tl.bfloat16


def _wide(handle: object) -> object:
    return interpreter.TensorHandle(to_f32(handle), tl.float32) if _is_bf16(handle) else handle


def _narrow(handle: object) -> object:
    data = np.asarray(handle.data)  # type: ignore[attr-defined]
    bits = data if data.dtype == bool else f32_to_bf16(data)
    return interpreter.TensorHandle(bits, tl.bfloat16)


def _hook_bfloat16() -> None:
    builder = _builder()

    def converted(method: Callable[..., object]) -> Callable[..., object]:
        def run(self: object, *args: object, **kwargs: object) -> object:
            if not any(_is_bf16(item) for item in args):
                return method(self, *args, **kwargs)
            return _narrow(method(self, *[_wide(item) for item in args], **kwargs))

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


def _exact_cast(method: Callable[..., object]) -> Callable[..., object]:
    """A conversion that rounds to nearest even into bf16 and reads bf16 as what it means."""

    def run(self: object, src: object, kind: object, *args: object) -> object:
        target = kind.scalar  # type: ignore[attr-defined]
        fp8 = any(
            item.primitive_bitwidth == 8 and item.is_floating()
            for item in (target, src.dtype.scalar)
        )  # type: ignore[attr-defined]
        if fp8 or not (_is_bf16(src) or target == tl.bfloat16):
            return method(self, src, kind, *args)
        if target == tl.bfloat16:
            return interpreter.TensorHandle(f32_to_bf16(to_f32(src)), target)
        data = to_f32(src).astype(interpreter._get_np_dtype(target))
        return interpreter.TensorHandle(data, target)

    return run


def _hook_reductions() -> None:
    reduce_sum, cumsum = interpreter.ReduceOps.sum, interpreter.ScanOps.cumsum

    def narrow_sum(self: object, value: object) -> object:
        handle = value.handle  # type: ignore[attr-defined]
        if handle.dtype.scalar not in (tl.float16, tl.bfloat16):
            return reduce_sum(self, value)
        data = _tree_sum(handle, self.axis, bool(self.keep_dims))  # type: ignore[attr-defined]
        if _is_bf16(handle):
            data = f32_to_bf16(data)
        return self.to_tensor(data, value.dtype)  # type: ignore[attr-defined]

    def checked_cumsum(self: object, value: object) -> object:
        if _is_bf16(value.handle):  # type: ignore[attr-defined]
            raise watch.refuse(
                InterpreterRefused("a bfloat16 scan cannot be interpreted; cast to float32 first")
            )
        return cumsum(self, value)

    interpreter.ReduceOps.sum = narrow_sum
    interpreter.ScanOps.cumsum = checked_cumsum


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
            if _is_bf16(handle)
            else data.astype(np.float16).astype(np.float32)
        )
    data = data[..., 0]
    if not keep_dims:
        return data
    return data.reshape([1] * len(shape)) if axis is None else np.expand_dims(data, axis)
