"""Starts nvidia-smi beside the work, in the place of one that would lock the clocks.

It only asks, and a GPU that no machine has: nothing can change. The process is what must be seen.

problem: gpu_softmax
gate: execution
needs: gpu
"""

import shutil
import subprocess

import torch
import triton
import triton.language as tl
from torch import nn

NO_SUCH_GPU = "4095"


@triton.jit
def softmax_kernel(x_ptr, out_ptr, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    col = tl.arange(0, BLOCK)
    mask = col < cols
    x = tl.load(x_ptr + row * cols + col, mask=mask, other=-float("inf"))
    weight = tl.exp(x - tl.max(x, axis=0))
    tl.store(out_ptr + row * cols + col, weight / tl.sum(weight, axis=0), mask=mask)


def launch(x, out):
    rows, cols = x.shape
    softmax_kernel[(rows,)](x, out, cols, BLOCK=triton.next_power_of_2(cols), num_warps=4)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.asked = False

    def forward(self, x):
        if not self.asked:
            self.asked = True
            program = shutil.which("nvidia-smi") or "true"
            words = [program, "--query-gpu=clocks.max.sm", "--format=csv", "-i", NO_SUCH_GPU]
            subprocess.run(words, capture_output=True, check=False, timeout=20)
        out = torch.empty(x.shape, device=x.device)
        launch(x.contiguous(), out)
        return out
