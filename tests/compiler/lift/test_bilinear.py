"""A bilinear layer, written out, is what torch computes."""

import pytest
import torch
from torch.nn import functional as F

from agentkernel.compiler.lift.inductor_codegen import written_out_bilinear


@pytest.mark.parametrize("rows", [(), (5,), (2, 3)])
@pytest.mark.parametrize("with_bias", [False, True])
def test_it_is_what_torch_computes(rows: tuple[int, ...], with_bias: bool) -> None:
    torch.manual_seed(0)
    left, right = torch.randn(*rows, 4).double(), torch.randn(*rows, 6).double()
    weight, bias = torch.randn(3, 4, 6).double(), torch.randn(3).double() if with_bias else None
    found = written_out_bilinear(left, right, weight, bias)
    assert found.shape == (*rows, 3)
    assert torch.allclose(found, F.bilinear(left, right, weight, bias), atol=1e-12)
