"""Implicit product over channels-last copies that a kernel makes of input and weight on every call.

problem: h_g_conv_bf16
needs: gpu
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def exp_near(x):
    """e**x to about two ulp: the whole power of two apart, the rest through ln 2 in two parts."""
    whole = tl.floor(x * 1.4426950408889634)
    rest = (x - whole * 0.693145751953125) - whole * 1.42860682030941723e-6
    value = tl.exp2(rest * 1.4426950408889634) * tl.exp2(whole)
    value = tl.where(x < -103.0, 0.0, value)
    return tl.where(x > 88.7, float("inf"), value)


@triton.jit
def channels_last_kernel(x_ptr, y_ptr, channels, area, BC: tl.constexpr, BA: tl.constexpr):
    image = tl.program_id(2).to(tl.int64) * channels * area
    c = tl.program_id(0) * BC + tl.arange(0, BC)
    a = tl.program_id(1) * BA + tl.arange(0, BA)
    inside = (c < channels)[:, None] & (a < area)[None, :]
    x = tl.load(x_ptr + image + c[:, None] * area + a[None, :], mask=inside, other=0.0)
    tl.store(y_ptr + image + a[None, :] * channels + c[:, None], x, mask=inside)


@triton.jit
def conv_kernel(
    x_ptr,
    w_ptr,
    y_ptr,
    cin,
    cout,
    H,
    W,
    places,
    BP: tl.constexpr,
    BO: tl.constexpr,
    BK: tl.constexpr,
):
    p = tl.program_id(0) * BP + tl.arange(0, BP)
    o = tl.program_id(1) * BO + tl.arange(0, BO)
    image, row, col = p // (H * W), p // W % H, p % W
    acc = tl.zeros((BP, BO), dtype=tl.float32)
    for tap in range(9):
        y = row + tap // 3 - 1
        x = col + tap % 3 - 1
        live = (p < places) & (y >= 0) & (y < H) & (x >= 0) & (x < W)
        source = ((image * H + y) * W + x).to(tl.int64) * cin
        for start in range(0, cin, BK):
            k = start + tl.arange(0, BK)
            a_in = live[:, None] & (k < cin)[None, :]
            a = tl.load(x_ptr + source[:, None] + k[None, :], mask=a_in, other=0.0)
            b_in = (k < cin)[:, None] & (o < cout)[None, :]
            b = tl.load(w_ptr + (o[None, :] * 9 + tap) * cin + k[:, None], mask=b_in, other=0.0)
            acc = tl.dot(a, b, acc)
    acc = acc.to(tl.bfloat16).to(tl.float32)
    acc = acc / (1.0 + exp_near(-acc))
    place = (image * cout * H * W + row * W + col)[:, None] + o[None, :] * H * W
    inside = (p < places)[:, None] & (o < cout)[None, :]
    tl.store(y_ptr + place, acc.to(tl.bfloat16), mask=inside)


def channels_last(x):
    turned = torch.empty_like(x)
    outer, channels, height, width = x.shape
    area = height * width
    grid = (triton.cdiv(channels, 32), triton.cdiv(area, 64), outer)
    channels_last_kernel[grid](x, turned, channels, area, BC=32, BA=64)
    return turned


class ModelNew(nn.Module):
    def __init__(self, cin, cout):
        super().__init__()
        self.conv = nn.Conv2d(cin, cout, 3, padding=1, bias=False, dtype=torch.bfloat16)

    def forward(self, x):
        x = channels_last(x.contiguous())
        weight = channels_last(self.conv.weight.detach())
        batch, cin, H, W = x.shape
        cout = weight.shape[0]
        y = torch.empty((batch, cout, H, W), dtype=x.dtype, device=x.device)
        places = batch * H * W
        grid = (triton.cdiv(places, 128), triton.cdiv(cout, 64))
        conv_kernel[grid](x, weight, y, cin, cout, H, W, places, BP=128, BO=64, BK=32)
        return y
