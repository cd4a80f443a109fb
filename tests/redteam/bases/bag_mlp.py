import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def bias_relu_kernel(y_ptr, b_ptr, total, N, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = place < total
    y = tl.load(y_ptr + place, mask=inside, other=0.0)
    b = tl.load(b_ptr + place % N, mask=inside, other=0.0)
    tl.store(y_ptr + place, tl.maximum(y + b, 0.0, propagate_nan=tl.PropagateNan.ALL), mask=inside)


def bags(places, weight):
    count, each = places.numel(), places.shape[1]
    starts = torch.ops.aten.arange.start_step(0, count, each, device=places.device)
    found = torch.ops.aten.embedding_bag.padding_idx(
        weight, places.reshape(-1), starts, False, 1, False, None, False, None
    )
    return found[0]


class ModelNew(nn.Module):
    def __init__(self, words, inner, outer):
        super().__init__()
        self.bag = nn.EmbeddingBag(words, inner, mode="mean")
        self.fc = nn.Linear(inner, outer)

    def forward(self, places):
        y = torch.mm(bags(places, self.bag.weight), self.fc.weight.t()).contiguous()
        total = y.numel()
        if total:
            grid = (triton.cdiv(total, 1024),)
            bias_relu_kernel[grid](y, self.fc.bias, total, y.shape[-1], BLOCK=1024)
        return y
