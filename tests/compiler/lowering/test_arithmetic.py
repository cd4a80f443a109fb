"""Rounding, quotients, powers and the functions of CUDA's library are eager's."""

from __future__ import annotations

import pytest
import torch
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from torch import nn

from agentkernel.tools.problem.loading import problem_from_module
from tests.compiler.first_drafts import drafted
from tests.compiler.forms import written
from tests.compiler.lowering.cases import FLOATS, FORMS, SIZES, Call, check_case, no_library_call
from tests.compiler.sandboxed_drop_in import Sandboxed

CALLS: dict[str, tuple[Call, str]] = {
    "rounded": (lambda x: (x * 3).round(), "a b"),
    "decimals": (lambda x: x.round(decimals=2), "a b"),
    "fraction": (lambda x: x.frac() + (x * 3).trunc(), "a b"),
    "remainder": (lambda x, y: x.remainder(y) + x.fmod(0.75), "a b,a b"),
    "of integers": (lambda x: torch.stack([x // -3, x % -3, x.fmod(2), -x // 2]), "ia b"),
    "quotients": (lambda x, y: torch.div(x, y, rounding_mode="floor"), "a b,b"),
    "truncated": (lambda x: torch.div(x, 0.3, rounding_mode="trunc"), "a b"),
    "angle": (lambda x, y: torch.atan2(x, y) + torch.hypot(x, y), "a b,b"),
    "inverse": (lambda x: x.tanh().asin() + x.tanh().atanh() + x.atan() + x.asinh(), "a b"),
    "special": (lambda x: x.erfc() + x.sinh() + (x.abs() + 1).log10(), "a b"),
    "power": (lambda x, y: x.abs() ** y + x**12 + x**0, "a b,a b"),
    "extrema": (lambda x, y: torch.fmax(x.log(), y) + torch.fmin(x.log(), y), "a b,a b"),
    "chains": (lambda x: torch.stack([x * 0.3 * 7.0, x / 3 / 0.7, x * 3 / 1.1, x / 9 * -2]), "a b"),
    "signs": (lambda x, y: x.copysign(y), "a b,a b"),
}  # fmt: skip


@pytest.mark.quick(1)
@pytest.mark.parametrize("name", CALLS)
def test_it_is_a_kernel_of_our_own(name: str) -> None:
    assert no_library_call(*CALLS[name])


@settings(
    max_examples=15,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
)
@given(name=st.sampled_from(sorted(CALLS)), sizes=SIZES, dtype=FLOATS, form=FORMS)
def test_it_computes_what_eager_does(
    box: Sandboxed, name: str, sizes: tuple[int, int, int], dtype: torch.dtype, form: str
) -> None:
    check_case(box, CALLS[name], sizes, dtype, form)


@pytest.mark.quick(2)
@pytest.mark.parametrize("exponent", [0.25, 0.75, 1.25, 1.5, 2.5, 0.3])
def test_powers_by_roots_are_as_exact_as_others(box: Sandboxed, exponent: float) -> None:
    """Over all of fp32's range, and as eager has them at its ends."""
    spread = torch.rand(3, 683, generator=torch.Generator().manual_seed(3)) * 240 - 120
    x = torch.exp2(spread / max(exponent, 1.0))
    module = Function(lambda x: x.pow(exponent)).eval()
    text = written(module, (x,), "single")
    assert ("float64" in text) == (exponent == 0.3)
    for each in (x, x.log2()):
        box.check(text, module, (each,))
    ends = torch.tensor([[0.0, torch.inf, -torch.inf, torch.nan, -2.0, 1e-42, 1.0]])
    (ours,) = box.call(text, module, (ends,))
    torch.testing.assert_close(ours, module(ends), equal_nan=True, rtol=1e-6, atol=0.0)


class Function(nn.Module):
    """A function of one tensor."""

    def __init__(self, form: Call) -> None:
        super().__init__()
        self.form = form

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.form(x)


@pytest.mark.parametrize(
    ("form", "count"),
    [
        (lambda x: x * 0.5 * 3.0 / 4.0 * 1.5, 1),
        (lambda x: x / 3.0 / 7.0, 1),
        (lambda x: (x * 0.5).relu() * 3.0, 2),
        (lambda x: (lambda y: y * 3.0 + y)(x * 0.5), 2),
        (lambda x: x * 1e30 * 1e-30, 2),
        (lambda x: x.half() * 0.5 * 3.0, 2),
    ],
)
def test_a_chain_of_factors_is_one(form: Call, count: int) -> None:
    source = drafted(problem_from_module(Function(form), (torch.randn(24, 36),)), "fused")
    found = source[source.index("tl.load(") : source.index("def formula")]
    assert found.count(" * ") + found.count(" / ") == count, found
