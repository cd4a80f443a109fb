"""A script of its own: TRITON_INTERPRET must be set before triton is imported."""

from __future__ import annotations

import torch

from agentkernel.swap.swap import apply, counts, restore
from tests.swap.applied_kernels import TRITON, block, example, norm_kernel

if __name__ == "__main__":
    model, x = block(), example()
    want = model(x)
    apply(model, {"norm": norm_kernel(TRITON), "last": norm_kernel(TRITON)})
    found = model(x)
    calls = [(item.kernel, dict(item.reasons), item.off) for item in counts(model).values()]
    print(bool(torch.allclose(found, want, atol=1e-5)), calls, restore(model))
