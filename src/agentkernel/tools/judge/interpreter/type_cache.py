"""Cached types and checked compiler hints of Triton's interpreter.

The interpreter works out types, shapes and NumPy's names for them anew for every operation of
every program: most of an interpreted kernel's time. Here each is computed once, by Triton's own
functions, and looked up afterwards. No value goes through the cache, and what is not plainly one
of its cases goes Triton's own way.

`tl.multiple_of`, `tl.max_contiguous` and `tl.max_constancy` change nothing in the interpreter;
the compiler widens loads and stores by them, so that a false one is wrong on a GPU alone. They
are compared with the values themselves, by the rules of Triton's documentation of the three.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import triton
import triton.language as tl
from triton.language.semantic import TritonSemantic
from triton.runtime import interpreter

VERSIONS = ("3.6.", "3.9.")
"""The functions replaced here say the same in these; in others nothing is replaced."""


SCALARS: dict[str, Any] = {
    kind.name: kind
    for kind in vars(tl).values()
    if isinstance(kind, tl.dtype) and type(kind) is tl.dtype
}
"""triton.language's own types by name: Triton asks of some whether they are these very objects."""


def cache_types() -> None:
    """Install the lookups, where this Triton is one that they were read from."""
    if triton.__version__.startswith(VERSIONS):
        _scalar_types()
        _block_types()
        _tensors()
        _numpy_types()
        _arithmetic_types()


def _name(kind: Any) -> str | None:
    """The name of one of Triton's scalar types, which says all of it, or of a pointer's to one;
    None of others."""
    if type(kind) is tl.dtype:
        name = str(kind.name)
        return name if SCALARS.get(name) is kind else None
    if type(kind) is tl.pointer_type:
        element = _name(kind.element_ty)
        if element is not None and type(kind.element_ty) is tl.dtype:
            return f"{element}*{kind.address_space}{kind.const}"
    return None


def _alike(shape: Any) -> Any:
    """A tuple of its own with the same sizes: what is written into one shape is in no other."""
    fresh = object.__new__(tl.tuple)
    fresh.values, fresh.type = [*shape.values], shape.type
    return fresh


def _block_types() -> None:
    made: dict[object, dict[str, Any]] = {}
    make = tl.block_type.__init__

    def init(self: Any, element_ty: Any, shape: Any) -> None:
        name = _name(element_ty) if type(shape) in (list, tuple, tl.tuple) else None
        sizes = (*shape,) if name is not None else ()
        if name is None or not all(type(size) is int for size in sizes):
            make(self, element_ty, shape)
            return
        known = made.get((name, sizes))
        if known is None:
            make(self, element_ty, shape)
            made[name, sizes] = self.__dict__ | {"shape": _alike(self.shape)}
        else:
            self.__dict__.update(known)
            self.shape = _alike(self.shape)

    tl.block_type.__init__ = init
    to_ir = tl.block_type.to_ir

    def itself(self: Any, builder: Any) -> Any:
        kind = self.element_ty
        if type(kind) is tl.dtype and builder is own and kind.to_ir(builder) is kind:
            return self
        return to_ir(self, builder)

    own = interpreter.interpreter_builder
    tl.block_type.to_ir = itself


def _scalar_types() -> None:
    equal = tl.dtype.__eq__

    def same(self: Any, other: Any) -> Any:
        if type(self) is type(other) is tl.dtype:
            return self.name == other.name
        return equal(self, other)

    tl.dtype.__eq__ = same


def _tensors() -> None:
    make = tl.tensor.__init__
    made: dict[object, tuple[Any, Any]] = {}

    def init(self: Any, handle: Any, kind: Any) -> None:
        name = kind.name if type(kind) is tl.block_type else _name(kind)
        known = made.get(name)
        if known is None:
            make(self, handle, kind)
            # A block's name says its sizes as they were spelt: True is another than 1.
            if name is not None and type(self.shape) is tl.tuple:
                made[name] = _alike(self.shape), self.numel
            return
        self.handle = handle
        self.type = kind
        self.dtype = kind.scalar
        self.shape, self.numel = _alike(known[0]), known[1]

    tl.tensor.__init__ = init


def _numpy_types() -> None:
    find = interpreter._get_np_dtype
    found: dict[object, Any] = {}

    def lookup(kind: Any) -> Any:
        if type(kind) not in (tl.dtype, tl.pointer_type, tl.block_type):
            return find(kind)
        name = _name(kind.scalar)
        known = found.get(name)
        if known is None:
            known = find(kind)
            if name is not None:
                found[name] = known
        return known

    interpreter._get_np_dtype = lookup


def _arithmetic_types() -> None:
    broadcast, compute = TritonSemantic.broadcast_impl_value, TritonSemantic.computation_type_impl
    computed: dict[object, Any] = {}

    def broadcast_impl_value(self: Any, lhs: Any, rhs: Any) -> Any:
        left, right = lhs.type, rhs.type
        if type(left) is tl.block_type and type(right) is tl.block_type:
            if left.shape.values == right.shape.values:
                return lhs, rhs
        elif type(left) is tl.block_type and SCALARS.get(right.name) is right:
            return lhs, spread(self, rhs, left)
        elif type(right) is tl.block_type and SCALARS.get(left.name) is left:
            return spread(self, lhs, right), rhs
        return broadcast(self, lhs, rhs)

    def spread(self: Any, scalar: Any, block: Any) -> Any:
        kind = tl.block_type(scalar.type, block.shape)
        handle = self.builder.create_splat(kind.to_ir(self.builder), scalar.handle)
        return self.tensor(handle, kind)

    def computation_type_impl(
        self: Any, a_ty: Any, a_is_scalar: bool, b_ty: Any, b_is_scalar: bool, div_or_mod: bool
    ) -> Any:
        key = (_name(a_ty), a_is_scalar, _name(b_ty), b_is_scalar, div_or_mod)
        known = computed.get(key)
        if known is None:
            known = compute(self, a_ty, a_is_scalar, b_ty, b_is_scalar, div_or_mod)
            if None not in key:
                computed[key] = known
        return known

    def binary_op_type_checking_impl(
        self: Any,
        lhs: Any,
        rhs: Any,
        allow_lhs_ptr: bool = False,
        allow_rhs_ptr: bool = False,
        arithmetic_check: bool = True,
        div_or_mod: bool = False,
    ) -> Any:
        if type(lhs) is tl.tensor and type(rhs) is tl.tensor:
            kind = lhs.dtype
            if type(kind) is tl.dtype and kind.name == rhs.dtype.name:
                kept = kind
                if arithmetic_check:
                    kept = computation_type_impl(self, kind, False, rhs.dtype, False, div_or_mod)
                if kept.name == kind.name:
                    return broadcast_impl_value(self, lhs, rhs)
        elif type(lhs) is tl.tensor and type(rhs) in (int, float) and of_number is not None:
            kind = lhs.dtype
            if type(kind) is tl.dtype and arithmetic_check:
                of_rhs = self.to_tensor_type(rhs)
                kept = computation_type_impl(self, kind, False, of_rhs, True, div_or_mod)
                if kept.name == kind.name:
                    return broadcast_impl_value(self, lhs, of_number(self, rhs, kept))
        return check(self, lhs, rhs, allow_lhs_ptr, allow_rhs_ptr, arithmetic_check, div_or_mod)

    check = TritonSemantic.binary_op_type_checking_impl
    # Triton 3.6 has no such part.
    of_number = getattr(TritonSemantic, "_cast_to_computation_type", None)
    TritonSemantic.binary_op_type_checking_impl = binary_op_type_checking_impl
    TritonSemantic.broadcast_impl_value = broadcast_impl_value
    TritonSemantic.computation_type_impl = computation_type_impl


KINDS = {
    "tt.divisibility": "multiple_of",
    "tt.contiguity": "max_contiguous",
    "tt.constancy": "max_constancy",
}
Values = npt.NDArray[np.generic]


def false_hint(kind: str, data: Values, values: Sequence[object], step: int) -> str | None:
    """The hint by name, where it is not so; None for one that holds and one that nobody knows.

    Args:
        kind: The attribute that the hint sets, `tt.divisibility` and the like.
        data: Integers, truth values or addresses, of any shape.
        values: The hint, one number for each dimension of `data`.
        step: What two neighbours differ by: 1, for addresses the bytes of an element.
    """
    if kind not in KINDS or data.dtype.kind not in "iub":
        return None
    lines = data.reshape(1) if data.ndim == 0 else data
    for axis, value in enumerate(values):
        if not isinstance(value, int) or value <= 1 or lines.size == 0:
            continue
        if not _holds(kind, np.moveaxis(lines, axis, -1).astype(np.int64), value, step):
            return f"{KINDS[kind]}({', '.join(map(str, values))})"
    return None


def _holds(kind: str, lines: npt.NDArray[np.int64], value: int, step: int) -> bool:
    """Along the last axis. A row's index that begins anew at 0, as after a modulo, breaks no run:
    Triton's own product of matrices says so of its last tile, whose lanes it masks."""
    differ = np.diff(lines, axis=-1)
    if kind == "tt.divisibility":
        starts = np.ones(lines.shape, dtype=bool)
        starts[..., 1:] = differ != step
        return not bool((lines[starts] % value).any())
    broken = differ != (step if kind == "tt.contiguity" else 0)
    if kind == "tt.contiguity":
        broken &= lines[..., 1:] != 0
    # Only breaks within a group of `value` count.
    return not bool(broken[..., np.arange(1, lines.shape[-1]) % value != 0].any())
