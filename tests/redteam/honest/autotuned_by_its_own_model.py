"""An autotuner with a model of times, a stopwatch and a choice of its own.

problem: relu
needs: cpu
"""

import torch
import triton
import triton.language as tl
from torch import nn

CONFIGS = [triton.Config({"BLOCK": block}) for block in (512, 1024, 2048)]


def times(total, BLOCK, **named):
    return triton.cdiv(total, BLOCK) + BLOCK / 1024


def fitting(configs, named, **more):
    return [item for item in configs if item.kwargs["BLOCK"] <= 1024]


def stopwatch(call, quantiles):
    call()
    return [1.0] * len(quantiles)


@triton.autotune(
    configs=CONFIGS,
    key=["total"],
    prune_configs_by={"perf_model": times, "top_k": 1, "early_config_prune": fitting},
    do_bench=stopwatch,
)
@triton.jit
def relu_kernel(x_ptr, y_ptr, total, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < total)
    tl.store(y_ptr + i, tl.where(x < 0, 0.0, x), mask=i < total)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        total = x.numel()
        if total:
            relu_kernel[lambda meta: (triton.cdiv(total, meta["BLOCK"]),)](x, y, total)
        return y
