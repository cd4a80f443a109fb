"""Reductions over all places of a convolution's result: right, never stored, and where they fit."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from agentkernel.compiler.convolutions import places
from agentkernel.compiler.convolutions.schedules import convolution_schedules
from agentkernel.compiler.convolutions.step import ConvolutionStep, convolution_facts
from agentkernel.tools.targets import load_targets
from tests.compiler.convolutions.test_reducing import Chain, steps_of
from tests.compiler.emitted_ttir import ttir_of
from tests.compiler.forms import small
from tests.compiler.sandboxed_drop_in import Sandboxed

Tensor = torch.Tensor
End = Callable[[Tensor], Tensor]

ENDS: dict[str, tuple[nn.Module, End, tuple[int, ...]]] = {
    "mean": (nn.Conv2d(3, 5, 3), lambda x: F.gelu(x).mean(dim=(2, 3)), (2, 3, 26, 25)),
    "largest": (nn.Conv1d(4, 18, 3), lambda x: x.amax(dim=2) * 2 - 1, (2, 4, 515)),
    "least": (nn.Conv3d(2, 3, 3), lambda x: torch.sigmoid(x).amin((2, 3, 4)), (1, 2, 11, 10, 11)),
    "adaptive": (
        nn.Conv2d(2, 20, 3, stride=2),
        lambda x: F.adaptive_avg_pool2d(F.relu(x), 1),
        (1, 2, 50, 49),
    ),
    "sum of one channel": (nn.Conv2d(2, 1, 1), lambda x: x.sum(dim=(2, 3)), (3, 2, 23, 23)),
}


class Beside(nn.Module):
    """With what is read beside it: of each element, each channel, each picture and each place."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 6, 3, padding=1)
        self.norm = nn.BatchNorm2d(6)
        self.scale = nn.Parameter(torch.randn(6))

    def forward(self, x: Tensor, residual: Tensor, gain: Tensor, mask: Tensor) -> Tensor:
        value = F.relu(self.norm(self.conv(x)) + residual) * mask
        return value.mean(dim=(2, 3)) * self.scale + gain


def checked(box: Sandboxed, module: nn.Module, *inputs: Tensor) -> str:
    """The drop-in's text, which has one step and gives what the module does."""
    compiled, (step,) = steps_of(module, *inputs)
    assert isinstance(step, ConvolutionStep)
    assert step.reduced == "places"
    text = compiled.write(small(compiled, "looped")).text
    box.check(text, module, inputs)
    return text


@pytest.mark.parametrize("name", ENDS)
def test_places_are_reduced_in_their_tiles(box: Sandboxed, name: str) -> None:
    layer, end, sizes = ENDS[name]
    assert "_of_pictures[" in checked(box, Chain(layer, end).eval(), torch.randn(sizes))


def test_it_reads_what_lies_beside_elements_channels_and_pictures(box: Sandboxed) -> None:
    inputs = [torch.randn(2, 3, 24, 25), torch.randn(2, 6, 24, 25), torch.randn(2, 6)]
    checked(box, Beside().eval(), *inputs, torch.rand(24, 25))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_narrow_types(box: Sandboxed, dtype: torch.dtype) -> None:
    module = Chain(nn.Conv2d(4, 8, 3), lambda x: x.mean(dim=(2, 3))).eval().to(dtype)
    checked(box, module, torch.randn(2, 4, 26, 26).to(dtype))


def test_nan_is_the_largest(box: Sandboxed) -> None:
    module = Chain(nn.Conv2d(3, 2, 1), lambda x: x.amax(dim=(2, 3))).eval()
    x = torch.randn(2, 3, 24, 24)
    x[0, 0, 2, 3] = float("nan")
    checked(box, module, x)


@pytest.mark.parametrize("name", ["mean", "largest", "least"])
def test_parts_of_a_large_picture_are_read_in_turns(
    box: Sandboxed, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(places, "MOST_PARTS", 4)
    layer, end, sizes = ENDS[name]
    assert ", 4)," in checked(box, Chain(layer, end).eval(), torch.randn(sizes))


def test_a_picture_of_many_tiles_compiles() -> None:
    module = Chain(nn.Conv2d(2, 2, 1), lambda x: x.amax(dim=(2, 3))).eval()
    compiled, (step,) = steps_of(module, torch.randn(1, 2, 24, 24))
    assert isinstance(step, ConvolutionStep)
    assert step.reduced == "places"
    text = compiled.write(small(compiled, "looped")).text
    assert ttir_of(text, [torch.empty(1, 2, 3000, 3000, device="meta")])


@pytest.mark.parametrize(
    "module",
    [
        Chain(nn.ConvTranspose2d(3, 8, 4, stride=2), lambda x: x.mean(dim=(2, 3))),
        Chain(nn.Conv2d(3, 9, 3, groups=3), lambda x: x.mean(dim=(2, 3))),
        Chain(nn.Conv2d(3, 8, 3), lambda x: x.var(dim=(2, 3))),
        Chain(nn.Conv2d(3, 8, 3), lambda x: x / x.mean(dim=(2, 3), keepdim=True)),
        Chain(nn.Conv2d(3, 8, 3), lambda x: torch.logsumexp(x, dim=(2, 3))),
        Chain(nn.Conv2d(3, 8, 3), lambda x: (x.long() * 30001).amax(dim=(2, 3))),
        Chain(nn.Conv2d(3, 8, 3), lambda x: x.double().mean(dim=(2, 3))),
    ],
    ids=["transposed", "groups", "moments", "stored again", "two sums", "integers", "doubles"],
)
def test_what_tiles_do_not_leave_has_a_kernel_of_its_own(module: nn.Module) -> None:
    _, steps = steps_of(module.eval(), torch.randn(2, 3, 30, 30))
    assert len(steps) > 1


def test_every_schedule_ends_with_a_picture() -> None:
    module = Chain(nn.Conv2d(16, 24, 3), lambda x: x.mean(dim=(2, 3))).eval()
    compiled, (step,) = steps_of(module, torch.randn(2, 16, 40, 40))
    assert isinstance(step, ConvolutionStep)
    facts = convolution_facts(step, compiled.symbols)
    for target in load_targets().values():
        found = convolution_schedules(facts, target, 20)
        assert found, target.name
        assert all(item["APART"] == 1 for item in found)
