"""Reductions and scans by functions of the file's own, as the hardened interpreter evaluates them.

A process of its own: the hooks stay for good. One line of JSON.
"""

from __future__ import annotations

import json
import os

os.environ["TRITON_INTERPRET"] = "1"

import torch
import triton
import triton.language as tl

from agentkernel.tools.judge.interpreter.hooks import install_hooks


@triton.jit
def larger(a, i, b, j):
    take = (a > b) | ((a == b) & (i < j))
    return tl.where(take, a, b), tl.where(take, i, j)


@triton.jit
def branches(a, b):
    if a > b:
        return a
    return b


@triton.jit
def line(a, b, c, d):
    return a * c, b * c + d


@triton.jit
def halves(a, b):
    return 0.5 * a + b


@triton.jit
def kernel(
    x_ptr, place_ptr, top_ptr, run_ptr, back_ptr, wrong_ptr, M: tl.constexpr, N: tl.constexpr
):
    rows, cols = tl.arange(0, M), tl.arange(0, N)
    at = rows[:, None] * N + cols[None, :]
    x = tl.load(x_ptr + at)
    _, place = tl.reduce((x, cols[None, :].broadcast_to(M, N)), 1, larger)
    tl.store(place_ptr + rows, place)
    tl.store(top_ptr + rows, tl.reduce(x.to(tl.bfloat16), 1, branches).to(tl.float32))
    a = tl.zeros_like(x) + 0.5
    tl.store(run_ptr + at, tl.associative_scan((a, x), 1, line)[1])
    tl.store(back_ptr + at, tl.associative_scan((a, x), 1, line, reverse=True)[1])
    tl.store(wrong_ptr + at, tl.associative_scan(x, 1, halves))


install_hooks()
x = torch.randn(4, 16, generator=torch.Generator().manual_seed(3))
run, back = x.clone(), x.clone()
for t in range(1, 16):
    run[:, t] += 0.5 * run[:, t - 1]
    back[:, 15 - t] += 0.5 * back[:, 16 - t]
place = torch.zeros(4, dtype=torch.int32)
top, found, found_back, wrong = torch.zeros(4), *(torch.zeros_like(x) for _ in range(3))
kernel[(1,)](x, place, top, found, found_back, wrong, 4, 16)
print(
    json.dumps(
        {
            "place": bool((place == x.argmax(1)).all()),
            "top": bool((top == x.bfloat16().float().amax(1)).all()),
            "run": bool(torch.allclose(found, run, atol=1e-6)),
            "back": bool(torch.allclose(found_back, back, atol=1e-6)),
            "not associative": bool(torch.allclose(wrong, run, atol=1e-6)),
        }
    )
)
