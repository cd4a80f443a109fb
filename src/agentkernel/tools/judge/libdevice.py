"""CUDA's library of mathematical functions for Triton's interpreter, which has none of it.

Values are worked out in fp64 and rounded once; the library itself is off by a few units in the last
place at most. What has no form here is refused by name.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch
import triton.language.extra.libdevice as common
from triton.language.extra.cuda import libdevice as cuda
from triton.runtime import interpreter

from agentkernel.tools.judge.watch import InterpreterRefused, watch

Function = Callable[..., torch.Tensor]


class Handle(Protocol):
    """A value of the interpreter's."""

    data: npt.NDArray[np.generic]


ARITHMETIC: Mapping[str, Function] = {
    "add_rn": torch.add, "div_rn": torch.div, "fdim": lambda x, y: (x - y).clamp(min=0.0),
    "fma": lambda x, y, z: x * y + z, "fma_rn": lambda x, y, z: x * y + z, "fmod": torch.fmod,
    "hypot": torch.hypot, "mul_rn": torch.mul, "rcp_rn": torch.reciprocal,
    "remainder": lambda x, y: x - torch.round(x / y) * y, "rsqrt": torch.rsqrt,
    "rsqrt_rn": torch.rsqrt, "sqrt": torch.sqrt, "sqrt_rn": torch.sqrt, "sub_rn": torch.sub,
    "cbrt": lambda x: torch.copysign(x.abs() ** (1 / 3), x), "pow": torch.pow,
}  # fmt: skip
PARTS: Mapping[str, Function] = {
    "abs": torch.abs, "ceil": torch.ceil, "copysign": torch.copysign, "finitef": torch.isfinite,
    "floor": torch.floor, "isfinited": torch.isfinite, "isinf": torch.isinf,
    "isnan": torch.isnan, "llrint": torch.round, "nearbyint": torch.round, "rint": torch.round,
    "round": lambda x: torch.copysign((x.abs() + 0.5).floor(), x), "signbit": torch.signbit,
    "trunc": torch.trunc,
}  # fmt: skip
"""What takes numbers apart, or rounds them to integers."""
TRANSCENDENTAL: Mapping[str, Function] = {
    **{name: getattr(torch, name) for name in (
        "acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cos", "cosh", "erf", "erfc",
        "erfinv", "exp", "exp2", "expm1", "lgamma", "log", "log10", "log1p", "log2", "sin",
        "sinh", "tan", "tanh")},
    "cospi": lambda x: torch.cos(torch.pi * x), "sinpi": lambda x: torch.sin(torch.pi * x),
    "cyl_bessel_i0": torch.special.i0, "cyl_bessel_i1": torch.special.i1,
    "erfcinv": lambda x: torch.erfinv(1.0 - x), "erfcx": torch.special.erfcx,
    "exp10": lambda x: torch.pow(10.0, x), "j0": torch.special.bessel_j0,
    "j1": torch.special.bessel_j1, "normcdf": torch.special.ndtr, "normcdfinv": torch.special.ndtri,
    "tgamma": lambda x: torch.exp(torch.lgamma(x)), "y0": torch.special.bessel_y0,
    "y1": torch.special.bessel_y1,
}  # fmt: skip
FUNCTIONS = {**ARITHMETIC, **PARTS, **TRANSCENDENTAL}


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
            raise watch.refuse(InterpreterRefused(f"libdevice.{name} cannot be interpreted"))
        called[:] = [FUNCTIONS[name]]
        return function(*args, _semantic=interpreter.interpreter_semantic)

    return call


def _elementwise(function: Function, args: Sequence[Handle], kind: object) -> object:
    """`function` at every place, as values of `kind`."""
    given = [torch.from_numpy(np.array(item.data)) for item in args]
    wide = [item.double() if item.is_floating_point() else item for item in given]
    data = function(*wide).numpy().astype(interpreter._get_np_dtype(kind))
    return interpreter.TensorHandle(data, kind)
