"""Interpreted kernels get what CUDA's library of functions gives."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from tests.compiler.sandboxed_drop_in import Sandboxed, sandboxed

SOURCE = """\
import torch
import triton
import triton.language as tl
from torch import nn
from triton.language.extra import libdevice


@triton.jit
def kernel(x_ptr, y_ptr, output_ptr, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n, other=1.0)
    y = tl.load(y_ptr + at, mask=at < n, other=1.0)
    tl.store(output_ptr + at, {call}, mask=at < n)


class ModelNew(nn.Module):
    def forward(self, x, y):
        output = torch.empty_like(x)
        kernel[(1,)](x, y, output, x.numel(), BLOCK=32)
        return output
"""


class Copysign(nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.copysign(x, y) + torch.atan2(x, y)


def _called(box: Sandboxed, call: str, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    x = torch.linspace(-3.0, 3.0, 30, dtype=dtype)
    y = x.flip(0).contiguous()
    (found,) = box.call(SOURCE.replace("{call}", call), Copysign(), (x, y))
    return found, Copysign()(x, y)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_the_library_can_be_interpreted(dtype: torch.dtype) -> None:
    with sandboxed() as box:
        found, wanted = _called(box, "libdevice.copysign(x, y) + libdevice.atan2(x, y)", dtype)
        assert torch.allclose(found, wanted, rtol=1e-6 if dtype == torch.float32 else 1e-14)


def test_what_has_no_form_is_refused_by_name() -> None:
    with sandboxed() as box, pytest.raises(AssertionError, match=r"libdevice\.norm3d cannot be"):
        _called(box, "libdevice.norm3d(x, y, x)", torch.float32)


class Seen(nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x


def test_a_fast_quotient_past_what_has_a_reciprocal_is_zero() -> None:
    x = torch.tensor([3.0, 3.0, -3.0, 3.0, float("inf"), 0.0])
    y = torch.tensor([7.0, 2.0**127, 2.0**127, float("inf"), 2.0**127, 0.0])
    with sandboxed() as box:
        (found,) = box.call(
            SOURCE.replace("{call}", "libdevice.fast_dividef(x, y)"), Seen(), (x, y)
        )
    wanted = torch.tensor([3.0 / 7.0, 0.0, -0.0, 0.0, float("nan"), float("nan")])
    assert torch.equal(found.isnan(), wanted.isnan())
    assert torch.equal(found[:4], wanted[:4])


def test_a_fused_product_and_sum_is_rounded_once() -> None:
    x = torch.tensor([1.0 + 2.0**-12, 3.0])
    y = torch.tensor([1.0 - 2.0**-12, 1.0])
    with sandboxed() as box:
        (found,) = box.call(SOURCE.replace("{call}", "tl.fma(x, y, -1.0)"), Seen(), (x, y))
    assert found.tolist() == [-(2.0**-24), 2.0]
