"""The eps that a norm adds where none is given is the one of this torch."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn import functional as F

from agentkernel.compiler.lowering.reductions import _epsilon


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_the_default_eps_of_an_rms_norm_is_that_of_this_torch(dtype: torch.dtype) -> None:
    x = torch.full((1, 8), 2.0**-7, dtype=dtype)
    want = 2.0**-7 / math.sqrt(2.0**-14 + _epsilon(dtype))
    assert float(F.rms_norm(x, (8,))[0, 0]) == pytest.approx(want, rel=8e-3)
