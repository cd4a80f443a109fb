"""Expected times of products by the type of their operands."""

import pytest
import torch
from torch import nn

from agentkernel.compiler.providers import provider_of
from tests.compiler.forms import compiled_graph


@pytest.mark.parametrize(("dtype", "measured_us"), [(torch.float32, 1509), (torch.bfloat16, 190)])
def test_a_product_takes_about_what_was_measured(dtype: torch.dtype, measured_us: float) -> None:
    """4096 cubed on an H200: 91 TFLOP/s as three TF32 products, about 720 in bf16."""
    module = nn.Linear(4096, 4096, bias=False, dtype=dtype)
    compiled = compiled_graph(module, (torch.empty(4096, 4096, dtype=dtype),))
    (step,) = compiled.partition.steps
    assert provider_of(step).work_us(step, compiled.symbols) == pytest.approx(measured_us, rel=0.3)
