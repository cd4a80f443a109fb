"""Elementary functions of emitted kernels against fp64 in Triton's interpreter; run as a script."""

from __future__ import annotations

import math
import os

os.environ["TRITON_INTERPRET"] = "1"

from collections.abc import Callable

import numpy as np
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from agentkernel.compiler.kernel_math import MATH
from agentkernel.tools.judge.interpreter.hooks import install_hooks
from tests.compiler.cross_compile import imported

Function = Callable[[torch.Tensor], torch.Tensor]
BLOCK = 1 << 16
KERNEL = '''

@triton.jit
def {name}_kernel(x_ptr, output_ptr, BLOCK: tl.constexpr):
    """One block."""
    offset = tl.arange(0, BLOCK)
    tl.store(output_ptr + offset, {name}(tl.load(x_ptr + offset)))
'''
SPECIALS = (0.0, -0.0, 1.0, -1.0, 1e-40, -1e-40, 88.72, 88.73, -87.4, -104.0, 3e38, -3e38,
            float("inf"), float("-inf"), float("nan"))  # fmt: skip


def _softplus(x: torch.Tensor) -> torch.Tensor:
    return torch.logaddexp(x, torch.zeros_like(x))


EXACT: dict[str, Function] = {
    "exp": torch.exp, "expm1": torch.expm1, "log1p": torch.log1p, "log1p_of_unit": torch.log1p,
    "tanh": torch.tanh, "sigmoid": torch.sigmoid, "silu": lambda x: x * torch.sigmoid(x),
    "softplus": _softplus, "log_sigmoid": lambda x: -_softplus(-x),
    "mish": lambda x: x * torch.tanh(_softplus(x)),
    "gelu": lambda x: 0.5 * x * torch.erfc(-x * math.sqrt(0.5)),
    "gelu_tanh": lambda x: x * torch.sigmoid(1.5957691216057308 * x * (1 + 0.044715 * x * x)),
}  # fmt: skip
ULPS = {"exp": 1.6, "expm1": 1.7, "log1p": 2.1, "log1p_of_unit": 1.5, "tanh": 2.0,
        "sigmoid": 2.5, "silu": 3.0, "softplus": 2.5, "log_sigmoid": 2.5, "mish": 4.0,
        "gelu": 7.0, "gelu_tanh": 3.5}  # fmt: skip
"""Largest error where special functions are right to half an ulp, as in the interpreter."""
COARSE_ULPS = 2.0**24 / 2**15.5
SMALLEST = 2.0**-119
"""Smaller results may be taken for zero: a quotient past 2**126 is."""
GROWTH: dict[str, Function] = {
    "gelu": lambda x: x * x,
    "gelu_tanh": lambda x: 3.2 * x.abs() * (1 + 0.044715 * x * x),
}
"""Exponents that are rounded once: the error of a tail is that of the exponent."""


def _ulp(x: torch.Tensor) -> torch.Tensor:
    """Of fp32 at each place, in fp64."""
    return torch.ldexp(torch.ones_like(x), torch.frexp(x)[1] - 24).clamp(min=2.0**-149)


def check(module: object, name: str, x: torch.Tensor) -> None:
    """`x`: fp32 of any values. Raises where a result is off by more than is allowed."""
    plain = name.removeprefix("coarse_")
    if plain == "log1p_of_unit":
        x = torch.where(x.abs() <= 1.0, x.abs(), 0.5)
    found = torch.empty_like(x)
    getattr(module, f"{name}_kernel")[(1,)](x, found, BLOCK=x.numel())
    wide = x.double()
    exact = EXACT[plain](wide)
    wanted = exact.float()
    assert torch.equal(found.isnan(), wanted.isnan()), name
    known = ~wanted.isnan()
    rounded = wanted.isinf() & (found.abs() > 3.4e38)
    assert torch.equal(found[known & wanted.isinf() & ~rounded],
                       wanted[known & wanted.isinf() & ~rounded]), name  # fmt: skip
    zero = x == 0
    assert torch.equal(found[zero].signbit(), wanted[zero].signbit()), f"{name} of zero"
    held = known & wanted.isfinite()
    if not held.any():
        return
    error, unit = (found.double() - exact).abs()[held], _ulp(exact[held])
    ulps = ULPS[plain] + GROWTH.get(plain, torch.zeros_like)(wide[held])
    if plain != name:
        ulps = torch.maximum(ulps, torch.full_like(ulps, COARSE_ULPS))
    share = error / (ulps * unit + SMALLEST)
    place = int(share.argmax())
    assert float(share[place]) <= 1.0, (
        f"{name}({float(x[held][place])!r}): {float(error[place] / unit[place])} ulp"
    )


def every_exponent() -> torch.Tensor:
    """Both signs and every exponent, 128 significands of each; the specials in place of a few."""
    bits = torch.arange(BLOCK, dtype=torch.int64) << 16
    low = torch.randint(0, 1 << 16, (BLOCK,), generator=torch.Generator().manual_seed(0))
    values = (bits + low).to(torch.int32).view(torch.float32).clone()
    values[: len(SPECIALS)] = torch.tensor(SPECIALS)
    return values


def round_once(name: str) -> None:
    """Let NumPy's function of fp32 be right to half an ulp: how far it is off else depends on the
    processor (exp2 by 0.98 ulp where NumPy finds AVX512_SPR)."""
    original = getattr(np, name)

    def rounded(x: np.ndarray) -> np.ndarray:
        return (
            original(x.astype(np.float64)).astype(x.dtype) if x.dtype == np.float32 else original(x)
        )

    setattr(np, name, rounded)


def main() -> None:
    """Check each function at every exponent, on the range that people use, and at drawn values."""
    install_hooks()
    for name in ("exp", "exp2", "log", "log2"):
        round_once(name)
    sources = "\n\n\n".join(text for text, _ in MATH.values())
    module = imported(sources + "".join(KERNEL.format(name=name) for name in MATH))
    dense = torch.linspace(-20.0, 20.0, BLOCK)
    for name in MATH:
        check(module, name, every_exponent())
        check(module, name, dense)

    @settings(max_examples=60, deadline=None, database=None, phases=[Phase.generate])
    @given(
        values=st.lists(st.floats(width=32), min_size=16, max_size=16),
        name=st.sampled_from(sorted(MATH)),
    )
    def drawn(values: list[float], name: str) -> None:
        check(module, name, torch.tensor(values))

    drawn()


if __name__ == "__main__":
    main()
