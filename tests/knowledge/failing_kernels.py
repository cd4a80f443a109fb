"""What does Triton print for each mistake of the fixes? Prints one JSON object.

A kernel is named after its fix, with the variant after two underscores. It is cross-compiled and
its message is kept: none is meant to compile, and no GPU is needed. Usage: `failing_kernels.py`.
"""

# mypy: allow-untyped-defs, allow-untyped-calls, disallow-untyped-decorators=False

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.runtime.errors import OutOfResources

FLOATS = {"x": "*fp32", "out": "*fp32"}
WITH_SIZE = {**FLOATS, "n": "i32"}
PLAIN_GLOBAL = 3


@dataclass(frozen=True)
class Mistake:
    """A kernel that must not compile, with what it is compiled for."""

    kernel: Callable[..., object]
    signature: Mapping[str, str]
    arch: int
    options: Mapping[str, int]


MISTAKES: dict[str, Mistake] = {}


def mistake(
    signature: Mapping[str, str], arch: int = 90, options: Mapping[str, int] | None = None
) -> Callable[[Callable[..., object]], Callable[..., object]]:
    def add(function: Callable[..., object]) -> Callable[..., object]:
        kernel = triton.jit(function)
        MISTAKES[function.__name__] = Mistake(kernel, signature, arch, options or {})
        return function

    return add


def message(error: BaseException) -> str:
    """The messages of an error and of its causes, outermost first."""
    parts = [f"{type(error).__name__}: {error}"]
    if error.__cause__ is not None:
        parts.append(message(error.__cause__))
    return "\n".join(parts)


def compile_message(item: Mistake) -> str:
    """What compiling `item` raises; "" where it compiles."""
    source = ASTSource(item.kernel, dict(item.signature), {})
    target = GPUTarget("cuda", item.arch, 32)
    try:
        triton.compile(source, target=target, options=dict(item.options))
    except Exception as error:  # noqa: BLE001 - what it says is what is asked for
        return message(error)
    return ""


def host_message(call: Callable[[], object]) -> str:
    """What a call on the host raises; "" where it raises nothing."""
    try:
        call()
    except Exception as error:  # noqa: BLE001 - what it says is what is asked for
        return message(error)
    return ""


def _plain(a):
    return a * 2


@triton.jit
def _either(n, v):
    if n > 0:
        return v
    return n


@triton.jit
def _add_one(x):
    tl.store(x, tl.load(x) + 1)


HOST = {
    "jit_called_from_host__kernel": lambda: _add_one(None),
    "jit_called_from_host__function": lambda: tl.arange(0, 4),
}
LAUNCH = {
    "shared_memory_limit": str(OutOfResources(524288, 232448, "shared memory")),
    "register_limit__threads": str(OutOfResources(1024, 512, "threads")),
}
"""Raised at a launch on a device; its text needs none."""


def main() -> None:
    report = {name: compile_message(item) for name, item in MISTAKES.items()}
    report |= {name: host_message(call) for name, call in HOST.items()}
    print(json.dumps(report | LAUNCH))


@mistake(FLOATS)
def broadcast_shape__lengths(x, out):
    a = tl.load(x + tl.arange(0, 64))
    b = tl.load(x + tl.arange(0, 128))
    tl.store(out + tl.arange(0, 64), a + b)


@mistake(FLOATS)
def broadcast_shape__broadcast_to(x, out):
    a = tl.load(x + tl.arange(0, 32))
    tl.store(out + tl.arange(0, 64), tl.broadcast_to(a, (64,)))


@mistake(FLOATS)
def broadcast_shape__store(x, out):
    i = tl.arange(0, 64)
    tl.store(out + i, tl.load(x + i)[:, None])


@mistake(FLOATS)
def broadcast_shape__reshape(x, out):
    a = tl.load(x + tl.arange(0, 64))
    tl.store(out + tl.arange(0, 32), tl.reshape(a, (32,)))


@mistake(FLOATS)
def arange_power_of_two__range(x, out):
    i = tl.arange(0, 100)
    tl.store(out + i, tl.load(x + i))


@mistake(FLOATS)
def arange_power_of_two__zeros(x, out):
    tl.store(out, tl.sum(tl.zeros((48,), tl.float32)))


@mistake(WITH_SIZE)
def arange_not_constexpr__range(x, out, n):
    i = tl.arange(0, n)
    tl.store(out + i, tl.load(x + i))


@mistake(WITH_SIZE)
def arange_not_constexpr__shape(x, out, n):
    tl.store(out + tl.arange(0, 64), tl.zeros((n,), tl.float32))


@mistake(WITH_SIZE)
def arange_not_constexpr__static_range(x, out, n):
    for i in tl.static_range(n):
        tl.store(out + i, 1.0)


@mistake(FLOATS)
def dot_too_small(x, out):
    i = tl.arange(0, 16)
    j = tl.arange(0, 4)
    a = tl.load(x + i[:, None] * 4 + j[None, :])
    b = tl.load(x + j[:, None] * 16 + i[None, :])
    tl.store(out + i[:, None] * 16 + i[None, :], tl.dot(a, b))


@mistake({"x": "*fp32", "y": "*fp16", "out": "*fp32"})
def dot_dtype_mismatch__operands(x, y, out):
    i = tl.arange(0, 32)
    square = i[:, None] * 32 + i[None, :]
    tl.store(out + square, tl.dot(tl.load(x + square), tl.load(y + square)))


@mistake({"x": "*i32", "out": "*fp32"})
def dot_dtype_mismatch__int32(x, out):
    i = tl.arange(0, 32)
    square = i[:, None] * 32 + i[None, :]
    a = tl.load(x + square)
    tl.store(out + square, tl.dot(a, a))


@mistake({"x": "*bf16", "out": "*bf16"})
def dot_dtype_mismatch__bf16_result(x, out):
    i = tl.arange(0, 32)
    square = i[:, None] * 32 + i[None, :]
    a = tl.load(x + square)
    tl.store(out + square, tl.dot(a, a, out_dtype=tl.bfloat16))


@mistake(FLOATS)
def dot_reduction_dimension__inner(x, out):
    i = tl.arange(0, 32)
    j = tl.arange(0, 64)
    a = tl.load(x + i[:, None] * 64 + j[None, :])
    tl.store(out + i[:, None] * 64 + j[None, :], tl.dot(a, a))


@mistake(FLOATS)
def dot_reduction_dimension__vector(x, out):
    i = tl.arange(0, 32)
    a = tl.load(x + i)
    tl.store(out + i, tl.dot(a, a))


@mistake(FLOATS)
def dot_input_precision(x, out):
    i = tl.arange(0, 32)
    square = i[:, None] * 32 + i[None, :]
    a = tl.load(x + square)
    tl.store(out + square, tl.dot(a, a, input_precision="fp32"))


@mistake(WITH_SIZE)
def loop_carried_type__dtype(x, out, n):
    total = 0
    for i in range(n):
        total += tl.load(x + i)
    tl.store(out, total)


@mistake(WITH_SIZE)
def loop_carried_type__shape(x, out, n):
    i = tl.arange(0, 64)
    total = 0.0
    for j in range(n):
        total += tl.load(x + i + j)
    tl.store(out + i, total)


@mistake(WITH_SIZE)
def branch_type__blocks(x, out, n):
    if n > 0:  # noqa: SIM108 - the branch is the mistake
        a = tl.load(x)
    else:
        a = 1
    tl.store(out, a)


@mistake(WITH_SIZE)
def branch_type__returns(x, out, n):
    tl.store(out, _either(n, tl.load(x)))


@mistake(WITH_SIZE)
def undefined_after_branch(x, out, n):
    if n > 0:
        a = tl.load(x)
    tl.store(out, a)


@mistake(FLOATS)
def helper_not_jitted__function(x, out):
    tl.store(out, _plain(tl.load(x)))


@mistake(FLOATS)
def helper_not_jitted__lambda(x, out):
    double = lambda a: a * 2  # noqa: E731
    tl.store(out, double(tl.load(x)))


@mistake(FLOATS)
def unknown_tl_function__module(x, out):
    tl.store(out, tl.tanh(tl.load(x)))


@mistake(FLOATS)
def unknown_tl_function__method(x, out):
    tl.store(out, tl.load(x).float())


@mistake(FLOATS)
def list_comprehension__list(x, out):
    parts = [tl.load(x + i) for i in range(4)]
    tl.store(out, parts[0])


@mistake(FLOATS)
def list_comprehension__dict(x, out):
    parts = {"a": 1}
    tl.store(out, parts["a"])


@mistake(WITH_SIZE)
def break_continue__break(x, out, n):
    for i in range(n):
        if i > 3:
            break
        tl.store(out + i, i)


@mistake(WITH_SIZE)
def break_continue__continue(x, out, n):
    for i in range(n):
        if i > 3:
            continue
        tl.store(out + i, i)


@mistake(FLOATS)
def break_continue__try(x, out):
    try:
        tl.store(out, 1.0)
    except ValueError:
        tl.store(out, 0.0)


@mistake(WITH_SIZE)
def return_in_loop(x, out, n):
    for i in range(n):
        if i > 3:
            return
        tl.store(out + i, i)


@mistake(FLOATS)
def kernel_returns_value(x, out):
    return tl.load(x)


@mistake(FLOATS)
def parse_failure(x, out):
    v = tl.load(x + tl.arange(0, 64))
    while v > 0:
        v -= 1
    tl.store(out + tl.arange(0, 64), v)


@mistake(FLOATS)
def tensor_indexing__slice(x, out):
    a = tl.load(x + tl.arange(0, 64))
    tl.store(out + tl.arange(0, 32), a[0:32])


@mistake(FLOATS)
def tensor_indexing__element(x, out):
    a = tl.load(x + tl.arange(0, 64))
    tl.store(out, a[3])


@mistake(FLOATS)
def tensor_indexing__assignment(x, out):
    a = tl.load(x + tl.arange(0, 64))
    a[3] = 0.0
    tl.store(out + tl.arange(0, 64), a)


@mistake(FLOATS)
def block_as_condition(x, out):
    i = tl.arange(0, 64)
    a = tl.load(x + i)
    if a > 0:
        tl.store(out + i, a)


@mistake(FLOATS)
def constexpr_global(x, out):
    tl.store(out, PLAIN_GLOBAL)


@mistake(FLOATS)
def pointer_arithmetic__two_pointers(x, out):
    tl.store(out, tl.load(x + out))


@mistake(FLOATS)
def pointer_arithmetic__float_offset(x, out):
    tl.store(out, tl.load(x + 1.5))


@mistake({"x": "i64", "out": "*fp32"})
def pointer_arithmetic__integer(x, out):
    tl.store(out, tl.load(x))


@mistake(FLOATS)
def pointer_arithmetic__stored_address(x, out):
    i = tl.arange(0, 64)
    tl.store(out + i, x + i)


@mistake(WITH_SIZE)
def scalar_pointer_block__mask(x, out, n):
    tl.store(out, tl.load(x, mask=tl.arange(0, 64) < n))


@mistake(FLOATS)
def scalar_pointer_block__value(x, out):
    tl.store(out, tl.load(x + tl.arange(0, 64)))


@mistake(FLOATS)
def load_other_without_mask__other(x, out):
    i = tl.arange(0, 64)
    tl.store(out + i, tl.load(x + i, other=0.0))


@mistake(FLOATS)
def load_other_without_mask__integer(x, out):
    i = tl.arange(0, 64)
    tl.store(out + i, 1.0, mask=i)


@mistake(WITH_SIZE)
def integer_math__exp(x, out, n):
    tl.store(out, tl.exp(n))


@mistake({"x": "*u32", "out": "*fp32", "n": "i32"})
def integer_math__signedness(x, out, n):
    tl.store(out, tl.load(x) // n)


@mistake(FLOATS)
def block_too_large(x, out):
    i = tl.arange(0, 2048)
    square = i[:, None] * 2048 + i[None, :]
    tl.store(out + square, tl.load(x + square))


@mistake(FLOATS)
def bad_axis__reduction(x, out):
    tl.store(out, tl.sum(tl.load(x + tl.arange(0, 64)), axis=1))


@mistake(FLOATS)
def bad_axis__grid(x, out):
    tl.store(out, tl.program_id(3))


@mistake(FLOATS)
def unknown_argument(x, out):
    tl.store(out, tl.load(x), maks=True)


@mistake(FLOATS, options={"num_warps": 3})
def num_warps_power_of_two(x, out):
    tl.store(out, tl.load(x))


@mistake({"x": "*fp8e4nv", "out": "*fp32"}, arch=80)
def fp8_unsupported(x, out):
    i = tl.arange(0, 64)
    tl.store(out + i, tl.load(x + i).to(tl.float32))


@mistake({"x": "*fp16", "out": "*fp16"})
def atomic_dtype(x, out):
    tl.atomic_max(out, tl.load(x))


@mistake(FLOATS)
def static_assert(x, out):
    tl.static_assert(1 > 2, "a block must be even")
    tl.store(out, 1.0)


@mistake(FLOATS)
def tensor_descriptor__last_stride(x, out):
    box = tl.make_tensor_descriptor(x, [64, 64], [64, 2], [32, 32])
    tl.store(out, tl.sum(box.load([0, 0])))


@mistake(FLOATS)
def tensor_descriptor__narrow_box(x, out):
    box = tl.make_tensor_descriptor(x, [64, 64], [64, 1], [32, 2])
    tl.store(out, tl.sum(box.load([0, 0])))


@mistake(FLOATS)
def ptxas_error(x, out):
    assembly: tl.constexpr = "frob.f32 $0, $1;"
    y = tl.inline_asm_elementwise(assembly, "=f,f", [tl.load(x)], tl.float32, is_pure=True, pack=1)
    tl.store(out, y)


@mistake(FLOATS, options={"maxnreg": 32})
def register_limit__maxnreg(x, out):
    i = tl.arange(0, 128)
    square = i[:, None] * 128 + i[None, :]
    a = tl.load(x + square)
    tl.store(out + square, tl.dot(a, a))


if __name__ == "__main__":
    main()
