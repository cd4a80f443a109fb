"""A script of its own: agentkernel.interpret() comes before triton is imported."""

from __future__ import annotations

import agentkernel

agentkernel.interpret()

import torch  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from agentkernel.agents.compiler_coder import family  # noqa: E402
from agentkernel.compiler.partitions import partitions  # noqa: E402
from agentkernel.swap.kernel import execute_module  # noqa: E402
from agentkernel.tools.problem.capture import capture  # noqa: E402
from agentkernel.tools.problem.loading import problem_from_module  # noqa: E402
from agentkernel.tools.targets import find_target  # noqa: E402


class Product(nn.Module):
    """gelu(x @ w) in bf16."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(64, 32).bfloat16() / 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.gelu(x @ self.weight)


class Loss(nn.Module):
    """Cross-entropy with labels that are left out."""

    def forward(self, scores: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(scores, labels, ignore_index=-100)


COUNTERS = """
import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def counters_kernel(output_ptr, rows):
    for row in range(rows):
        tl.store(output_ptr + row.to(tl.int64), (row - 3) // 2)


class ModelNew(nn.Module):
    def forward(self, output):
        counters_kernel[(1,)](output, output.numel())
        return output
"""
"""What a GPU makes of it: division rounds to zero, and a counter is a number of Triton's."""


def drop_in(module: nn.Module, *inputs: torch.Tensor, own: str) -> nn.Module:
    """The first draft of the module with `own` in its text."""
    loaded = problem_from_module(module, inputs)
    choices = partitions(loaded, capture(loaded), "mixed")
    found = family(choices, "default", lambda _: None, find_target("h200").target)
    text = next(item.source.text for item in found if own in item.source.text)
    made: nn.Module = execute_module(text, f"drop_in_{type(module).__name__}").ModelNew().eval()
    made.load_state_dict(module.state_dict())
    return made


if __name__ == "__main__":
    torch.manual_seed(0)
    with torch.no_grad():
        counted = execute_module(COUNTERS, "counters").ModelNew()(torch.zeros(6, dtype=torch.int32))
        print(counted.tolist() == [-1, -1, 0, 0, 0, 1])
        module, x = Product().eval(), torch.randn(32, 64).bfloat16()
        print(float((drop_in(module, x, own="tl.dot(")(x) - module(x)).abs().max()) < 0.05)
        scores, labels = torch.randn(16, 20), torch.randint(0, 20, (16,))
        labels[3] = -100
        loss = drop_in(Loss().eval(), scores, labels, own="tl.device_assert")
        print(float((loss(scores, labels) - F.cross_entropy(scores, labels)).abs()) < 1e-5)
        for label in (20, -1, 10**9):
            labels[5] = label
            try:
                print(loss(scores, labels))
            except Exception as error:  # noqa: BLE001 - Triton's own
                print("index out of range" in str(error))
