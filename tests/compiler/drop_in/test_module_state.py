"""A drop-in reads weights as they are at each call: laid out anew, tied, cast, under autocast."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
from torch import nn

from agentkernel.compiler.drop_in.module_state import autocast_changes
from agentkernel.swap.kernel import execute_module
from agentkernel.tools.judge.policy.check import check_policy
from agentkernel.tools.problem.capture import capture
from agentkernel.tools.problem.loading import problem_from_module
from tests.compiler.families import OfOne, Wrapped
from tests.compiler.forms import written
from tests.compiler.sandboxed_drop_in import Sandboxed

GOLDEN = Path(__file__).parents[2] / "golden" / "kernels"
x, picture, numbers = torch.randn(7, 33), torch.randn(2, 5, 9, 9), torch.randint(9, (4, 6))


class Chain(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(33, 33), nn.Linear(33, 33)

    def forward(self, a: torch.Tensor) -> torch.Tensor:
        return self.second(torch.relu(self.first(a)))


def turned(module: nn.Module) -> None:
    """The same values in another layout."""
    for value in module.parameters():
        own = value.data
        if own.ndim == 4:
            value.data = own.to(memory_format=torch.channels_last)
        elif own.ndim == 2:
            value.data = own.t().contiguous().t()
        else:
            value.data = torch.stack([own, -own], 1)[:, 0]
        assert value.numel() == 1 or not value.is_contiguous()


def tied(module: nn.Module) -> None:
    module.first.weight = module.second.weight


@pytest.mark.quick(2)
@pytest.mark.parametrize(
    ("module", "given", "change"),
    [
        (Wrapped(nn.LayerNorm(33)), x, turned),
        (Wrapped(nn.Linear(33, 20)), x, turned),
        (Wrapped(nn.Conv2d(5, 8, 3)), picture, turned),
        (Wrapped(nn.Embedding(9, 16)), numbers, turned),
        (Chain(), x, tied),
    ],
)
def test_a_changed_weight_gives_the_originals_result(
    box: Sandboxed, module: nn.Module, given: torch.Tensor, change: object
) -> None:
    text = written(module, (given,), "persistent")
    assert check_policy(text, "mixed") is None
    changed = copy.deepcopy(module).requires_grad_(False)
    change(changed)  # type: ignore[operator]
    (found,) = box.call(text, changed, (given,))
    torch.testing.assert_close(found, changed(given), atol=1e-4, rtol=1e-4)


def test_a_weight_of_another_dtype_is_refused(box: Sandboxed) -> None:
    module = Wrapped(nn.Embedding(9, 16))
    text = written(module, (numbers,), "persistent")
    assert not box.refusal(text, module, (numbers,))
    told = box.refusal(text, copy.deepcopy(module).half(), (numbers,))
    assert "weight is no longer float32[9, 16]; this drop-in was verified for" in told


def test_a_weight_of_another_shape_is_refused() -> None:
    made = execute_module((GOLDEN / "layernorm.py").read_text(), "golden_layernorm_shapes")
    model = made.ModelNew(8192)
    model.ln.bias.data = torch.zeros(8191)
    with pytest.raises(ValueError, match=r"ln\.bias is no longer float32\[8192\]; this drop-in"):
        model(torch.randn(2, 8192))


def test_each_tensor_of_the_module_is_read_once_a_call() -> None:
    text = (GOLDEN / "linear_gelu.py").read_text()
    assert text.count("self.proj.weight") == text.count("self.proj.bias") == 1


@pytest.mark.parametrize(
    ("module", "given", "changes"),
    [
        (nn.Linear(33, 20), x, True),
        (nn.LayerNorm(33), x, False),
        (nn.LayerNorm(33).bfloat16(), x.bfloat16(), True),
        (nn.Linear(33, 20).bfloat16(), x.bfloat16(), True),
        (OfOne(lambda a: torch.rsqrt(a.square().mean(-1, keepdim=True)) * a), x, False),
        (OfOne(lambda a: a.softmax(-1)), x, False),
        (OfOne(lambda a: a.softmax(-1)), x.half(), True),
        (OfOne(lambda a: torch.relu(a) + 1), x.half(), False),
    ],
)
def test_autocast_matters_where_a_dtype_is_another(
    module: nn.Module, given: torch.Tensor, changes: bool
) -> None:
    captured = capture(problem_from_module(module, (given,)))
    assert autocast_changes(captured) == changes
    assert not torch.is_autocast_enabled("cuda")


def test_a_call_under_autocast_is_refused_in_one_line() -> None:
    made = execute_module((GOLDEN / "linear_gelu.py").read_text(), "golden_linear_gelu_autocast")
    model = made.ModelNew(4096)
    with torch.autocast("cpu"), pytest.raises(ValueError, match=r"under torch\.autocast") as told:
        model(torch.randn(2, 4096))
    assert "\n" not in str(told.value)
