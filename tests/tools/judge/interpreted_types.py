"""All pairs of types through the interpreter's type checks, without and with what it remembers.

A process of its own: the lookups stay for good. One line of JSON a pass.
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Iterator

os.environ["TRITON_INTERPRET"] = "1"
warnings.simplefilter("ignore")

import numpy as np  # noqa: E402
import triton.language as tl  # noqa: E402
from triton.runtime import interpreter  # noqa: E402

from agentkernel.tools.judge.interpreter.type_cache import cache_types  # noqa: E402

SCALARS = ("int1", "int8", "uint8", "int32", "uint32", "int64", "float16", "bfloat16", "float32")
SHAPES: tuple[list[int], ...] = ([], [1], [4], [4, 1], [1, 4], [4, 4], [2, 2, 4])
NUMBERS = (0, 1, -1, 3.5, 2**40)
FLAGS = ((False, False, True, False), (False, False, True, True), (True, True, False, False))


def operands() -> Iterator[tuple[str, object]]:
    """A tensor of each type and shape, pointers, and plain numbers."""
    strange = tl.dtype("bf16")
    handle = interpreter.TensorHandle(np.ones([4], np.uint16), strange)
    yield "of its own type", tl.tensor(handle, tl.block_type(strange, [4]))
    spoiled = tl.tensor(handle, tl.block_type(strange, [4]))
    spoiled.shape.values[0] = tl.constexpr(7)
    spoiled.type.shape.values[0] = 7
    for shape in SHAPES:
        kinds = [getattr(tl, name) for name in SCALARS]
        pointers = [tl.pointer_type(tl.float32), tl.pointer_type(tl.float16, const=True)]
        for kind in (*kinds, *pointers):
            data = np.ones(shape or [1], dtype=interpreter._get_np_dtype(kind))
            whole = tl.block_type(kind, shape) if shape else kind
            yield f"{whole}", tl.tensor(interpreter.TensorHandle(data, kind), whole)
    for number in NUMBERS:
        yield repr(number), number


def told(value: object) -> str:
    """A tensor's type and everything that is derived from it."""
    if not isinstance(value, tl.tensor):
        return repr(value)
    kind = value.type
    ir = kind.to_ir(interpreter.interpreter_builder) if not value.dtype.is_ptr() else ""
    other = kind.with_element_ty(tl.int64) if kind.is_block() else ""
    sizes = [int(size) for size in value.shape]
    return (
        f"{kind} {value.dtype} {sizes} {int(value.numel)} {value.handle.data.shape} "
        f"{value.handle.data.dtype} {ir} {other} {kind == other} "
        f"{value.dtype is tl.bfloat16} {getattr(kind, 'numel', '')}"
    )


def walk() -> dict[str, str]:
    """Every operand alone, and every two of them under each set of flags."""
    semantic, found = interpreter.interpreter_semantic, {}
    every = list(operands())
    for name, value in every:
        found[name] = told(value)
    for left, lhs in every[::7]:
        for right, rhs in every:
            for flags in FLAGS:
                try:
                    pair = semantic.binary_op_type_checking_impl(lhs, rhs, *flags)
                    words = " | ".join(told(item) for item in pair)
                except Exception as error:  # noqa: BLE001 - which one is compared
                    words = f"error {type(error).__name__} {error}"
                found[f"{left} . {right} . {flags}"] = words
    return found


def inside() -> dict[str, str]:
    """The same in a launch, where the interpreter has put its own operators in place."""
    scope = interpreter._patch_lang(walk)
    try:
        return {f"launched: {name}": words for name, words in walk().items()}
    finally:
        scope.restore()


def main() -> None:
    """Plain, then remembered, then from memory."""
    print(json.dumps(walk() | inside()))
    cache_types()
    print(json.dumps(walk() | inside()))
    print(json.dumps(walk() | inside()))


if __name__ == "__main__":
    main()
