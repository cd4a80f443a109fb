"""CUDA's library of mathematical functions for Triton's interpreter, which has none of it.

Values are worked out in fp64, by NumPy, which no log of torch's operators sees, and rounded once;
the library is off by a few units in the last place. What has no form here is refused by name.
"""

from __future__ import annotations

import functools
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt
import triton.language.extra.libdevice as common
from triton.language.extra.cuda import libdevice as cuda
from triton.runtime import interpreter

from agentkernel.tools.judge.execution.watch import InterpreterRefused, launch_state

Array = npt.NDArray[np.generic]
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
