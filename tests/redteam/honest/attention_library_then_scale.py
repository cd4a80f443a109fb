"""PyTorch's attention under the open policy, and a kernel that changes nothing but the storage.

problem: h_g_attention_bf16
policy: any
needs: gpu
"""

import torch
import triton
import triton.language as tl
from torch import nn
from torch.nn import functional as F


@triton.jit
def copy_kernel(x_ptr, y_ptr, total, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + place, mask=place < total, other=0.0)
    tl.store(y_ptr + place, x, mask=place < total)


class ModelNew(nn.Module):
    def forward(self, q, k, v):
        found = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        laid = found.contiguous()
        out = torch.empty(laid.shape, dtype=laid.dtype, device=laid.device)
        total = out.numel()
        copy_kernel[(triton.cdiv(total, 4096),)](laid, out, total, BLOCK=4096)
        return out
