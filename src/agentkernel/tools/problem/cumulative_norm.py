"""Batch norms with plain averages as running statistics, as a trace can follow them.

With `momentum=None` torch makes a Python number of `num_batches_tracked` in every call in
training mode, so that a graph would hold the number of one call. The same average without it,
after the forward of torch.nn.modules.batchnorm._BatchNorm: mean = now / count + (1 - 1 / count)
* mean.
"""

from __future__ import annotations

import types
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch
    from torch import nn
    from torch.nn.modules.batchnorm import _BatchNorm


@contextmanager
def traceable_averages(module: nn.Module) -> Iterator[None]:
    """Meanwhile, let such norms in `module` count and average in tensors alone."""
    from torch.nn.modules.batchnorm import BatchNorm1d, BatchNorm2d, BatchNorm3d

    kinds = (BatchNorm1d, BatchNorm2d, BatchNorm3d)
    found = [
        item
        for item in module.modules()
        if type(item) in kinds
        and "forward" not in vars(item)
        and item.momentum is None
        and item.num_batches_tracked is not None
    ]
    for item in found:
        item.forward = types.MethodType(_forward, item)
    try:
        yield
    finally:
        for item in found:
            vars(item).pop("forward", None)


def _forward(self: _BatchNorm, input: torch.Tensor) -> torch.Tensor:  # noqa: A002 - torch's name
    import torch
    from torch.nn import functional

    mean, variance, count = self.running_mean, self.running_var, self.num_batches_tracked
    if not self.training or mean is None or variance is None or count is None:
        found: torch.Tensor = type(self).forward(self, input)
        return found
    self._check_input_dim(input)  # type: ignore[no-untyped-call]
    count.add_(1)
    others = [dim for dim in range(input.dim()) if dim != 1]
    wide = input.detach().to(mean.dtype)
    first = wide
    for dim in others:
        first = first.narrow(dim, 0, 1)
    # Less the first of its values a channel of equal ones has a variance of exactly 0, as in torch.
    now_mean, now_variance = wide.mean(others), torch.var(wide - first, others, correction=1)
    share = 1.0 / count
    # As torch has it: nothing of the old average is left after the first batch.
    mean.copy_(share * now_mean + (1.0 - share) * mean)
    variance.copy_(share * now_variance + (1.0 - share) * variance)
    return functional.batch_norm(input, None, None, self.weight, self.bias, True, 0.0, self.eps)


__all__ = ["traceable_averages"]
