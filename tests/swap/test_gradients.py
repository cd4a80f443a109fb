from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

from agentkernel.domain.region import Kernel
from agentkernel.swap.swap import apply, counts, swap_of
from agentkernel.swap.traced import _read_of_itself
from tests.swap.applied_kernels import HEAD, example, norm_kernel

GOLDEN = Path(__file__).parents[1] / "golden" / "kernels" / "layernorm.py"
KEEPS = (
    HEAD.replace(
        "\n\nclass ModelNew",
        """

def formula(x, weight, bias):
    return torch.ops.aten.layer_norm.default(x, [8], weight, bias)


class Differentiable(torch.autograd.Function):
    @staticmethod
    def forward(ctx, module, *tensors):
        ctx.save_for_backward(*tensors)
        return module.forward(tensors[0])

    @staticmethod
    def backward(ctx, gradient):
        inputs = [value.detach().requires_grad_() for value in ctx.saved_tensors]
        with torch.enable_grad():
            output = formula(*inputs)
        return None, *torch.autograd.grad(output, inputs, gradient)


class ModelNew""",
    )
    + """        self.weight = nn.Parameter(torch.empty(8))
        self.bias = nn.Parameter(torch.empty(8))

    def forward(self, x):
        if torch.is_grad_enabled():
            tensors = (x, self.weight, self.bias)
            if any(tensor.requires_grad for tensor in tensors):
                return Differentiable.apply(self, *tensors)
        return formula(x, self.weight, self.bias) + 0.25
"""
)


def kernel(*, judged: bool) -> Kernel:
    made = norm_kernel(KEEPS)
    verdict = made.certificate.verdict
    assert verdict is not None
    verdict = verdict.evolve(gradients=judged or None)
    certificate = made.certificate.evolve(verdict=verdict)
    return made.evolve(certificate=certificate)


def stacked() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8), nn.Linear(8, 1)).eval()


def test_a_call_that_requires_gradients_runs_a_kernel_that_keeps_them() -> None:
    model, plain, x = stacked(), stacked(), example()
    apply(model, {"1": kernel(judged=True)})
    for _ in range(2):
        model.zero_grad()
        model(x).sum().backward()
    plain(x).sum().backward()
    assert counts(model)["1"].kernel == 2
    for (name, one), (_, other) in zip(
        model.named_parameters(), plain.named_parameters(), strict=True
    ):
        assert one.grad is not None, name
        assert other.grad is not None
        if not name.startswith("2"):  # its input is off by what shows that the kernel ran
            assert torch.allclose(one.grad, other.grad, atol=1e-6), name


def test_gradients_that_nobody_judged_are_the_originals() -> None:
    model, x = stacked(), example()
    apply(model, {"1": kernel(judged=False)})
    model(x).sum().backward()
    assert model[0].weight.grad is not None
    assert counts(model)["1"].reasons == {"grad": 1}


def test_a_compiled_model_may_read_the_forward_of_a_drop_in() -> None:
    assert _read_of_itself(GOLDEN.read_text()) == {"ln.weight", "ln.bias"}
    handed = GOLDEN.read_text().replace("if torch.is_grad_enabled():", "if True:")
    assert _read_of_itself(handed) is None
    model = stacked()
    apply(model, {"1": kernel(judged=True)})
    swap = swap_of(model[1])
    assert swap.traced is not None
    answer = swap.traced(model[1], example())
    assert answer == "refused", "in a compiled model the original records gradients"
    with torch.no_grad():
        assert isinstance(swap.traced(model[1], example()), torch.Tensor)
