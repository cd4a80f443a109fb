"""A script of its own: TRITON_INTERPRET must be set before triton is imported."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import nn

from agentkernel.agents.compiler_coder import family
from agentkernel.compiler.partitions import partitions
from agentkernel.domain.region import Kernel
from agentkernel.swap.end_to_end import Oracle, check_end_to_end
from agentkernel.tools.problem.capture import capture
from agentkernel.tools.problem.loading import problem_from_module
from agentkernel.tools.targets import find_target
from tests.swap.applied_kernels import make_kernel


@dataclass
class Call:
    args: tuple[object, ...]
    kwargs: dict[str, object] = field(default_factory=dict)


class Pictures:
    """A model of one fp32 convolution, and its input."""

    def build(self, device: str = "cpu") -> nn.Module:
        torch.manual_seed(0)
        return nn.Sequential(nn.Conv2d(8, 16, 3, padding=1)).eval().requires_grad_(False).to(device)

    def make_call(self, device: str = "cpu", seed: int = 0) -> Call:
        given = torch.randn(2, 8, 8, 8, generator=torch.Generator().manual_seed(seed))
        return Call((given.to(device),))


def convolution() -> Kernel:
    """The first drop-in of the convolution."""
    module, inputs = Pictures().build()[0], Pictures().make_call().args  # type: ignore[index]
    loaded = problem_from_module(module, inputs)
    choices = partitions(loaded, capture(loaded), "mixed")
    target = find_target("h200").target
    text = family(choices, "default", lambda _: None, target)[0].source.text
    return make_kernel(text, module, *inputs)


if __name__ == "__main__":
    assert torch.backends.cudnn.conv.fp32_precision == "tf32"  # type: ignore[attr-defined]
    found = check_end_to_end(Oracle(Pictures()), {"0": convolution()})
    print(found.accepted, found.worst_error, found.reason, found.kernel_calls, found.fallbacks)
