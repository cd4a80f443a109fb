"""Pooling behind a convolution in its tile: right, stored once, and where it fits."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from agentkernel.agents.tuning import with_stand_ins
from agentkernel.compiler.convolutions.step import ConvolutionStep
from agentkernel.compiler.fusion import Region
from tests.compiler.convolutions.test_reducing import Chain, steps_of
from tests.compiler.forms import small
from tests.compiler.sandboxed_drop_in import Sandboxed

Tensor = torch.Tensor
End = Callable[[Tensor], Tensor]

ENDS: dict[str, tuple[nn.Module, End, tuple[int, ...]]] = {
    "largest": (nn.Conv2d(3, 5, 3), lambda x: F.max_pool2d(x, 2), (2, 3, 12, 10)),
    "odd picture": (nn.Conv2d(3, 5, 3), lambda x: F.max_pool2d(F.silu(x) - 1, 2), (2, 3, 13, 9)),
    "mean": (
        nn.Conv2d(4, 18, 3, padding=1),
        lambda x: torch.sigmoid(F.avg_pool2d(x, 4)),
        (1, 4, 9, 14),
    ),
    "one dimension": (nn.Conv1d(4, 6, 5, stride=2), lambda x: F.max_pool1d(x, 4) * 2, (3, 4, 51)),
    "three": (nn.Conv3d(2, 4, 3), lambda x: F.relu(F.max_pool3d(x, 2)), (1, 2, 7, 6, 9)),
    "groups": (nn.Conv2d(4, 6, 3, groups=2), lambda x: F.max_pool2d(x, 2), (2, 4, 8, 8)),
    "rectangles": (nn.Conv2d(3, 4, 1), lambda x: F.avg_pool2d(x, (2, 8)), (2, 3, 7, 17)),
}  # fmt: skip


def checked(box: Sandboxed, module: nn.Module, *inputs: Tensor) -> str:
    """The drop-in's text, which has one step and gives what the module does."""
    compiled, (step,) = steps_of(module, *inputs)
    assert isinstance(step, ConvolutionStep)
    assert step.window is not None
    text = compiled.write(small(compiled, "looped")).text
    box.check(text, module, inputs)
    return text


@pytest.mark.parametrize("name", ENDS)
def test_windows_are_reduced_in_the_tile(box: Sandboxed, name: str) -> None:
    layer, end, sizes = ENDS[name]
    text = checked(box, Chain(layer, end).eval(), torch.randn(sizes))
    assert "_of_windows(" in text


class Beside(nn.Module):
    """Pooling with what is read beside it: of each element before, of each window after."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 6, 3, padding=1)
        self.norm = nn.BatchNorm2d(6)
        self.scale = nn.Parameter(torch.randn(6, 1, 1))

    def forward(self, x: Tensor, residual: Tensor, pooled: Tensor) -> Tensor:
        value = F.relu(self.norm(self.conv(x)) + residual)
        return F.max_pool2d(value, 2) * self.scale + pooled


def test_it_reads_what_lies_beside_places_and_windows(box: Sandboxed) -> None:
    inputs = torch.randn(2, 3, 7, 10), torch.randn(2, 6, 7, 10), torch.randn(2, 6, 3, 5)
    checked(box, Beside().eval(), *inputs)


def test_nan_is_the_largest(box: Sandboxed) -> None:
    module = Chain(nn.Conv2d(3, 2, 1), lambda x: F.max_pool2d(x, 2)).eval()
    x = torch.randn(1, 3, 6, 6)
    x[0, 0, 2, 3] = float("nan")
    checked(box, module, x)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_narrow_types(box: Sandboxed, dtype: torch.dtype) -> None:
    module = Chain(nn.Conv2d(4, 8, 3), lambda x: F.avg_pool2d(F.gelu(x), 2)).eval().to(dtype)
    checked(box, module, torch.randn(2, 4, 8, 7).to(dtype))


@pytest.mark.parametrize(
    "module",
    [
        Chain(nn.Conv2d(3, 8, 3), lambda x: F.max_pool2d(x, 3)),
        Chain(nn.Conv2d(3, 8, 3), lambda x: F.max_pool2d(x, 3, stride=2, padding=1)),
        Chain(nn.Conv2d(3, 8, 3), lambda x: F.max_pool2d(x, 8)),
        Chain(nn.ConvTranspose2d(3, 8, 4, stride=2), lambda x: F.max_pool2d(x, 2)),
        Chain(nn.Conv2d(8, 8, 3, groups=8), lambda x: F.max_pool2d(x, 2)),
        Chain(nn.Conv2d(3, 8, 3), lambda x: x.sum() + F.max_pool2d(x, 2)),
        Chain(nn.Conv2d(3, 8, 3), lambda x: F.max_pool2d(x[:, :5], 2)),
        Chain(nn.Conv2d(3, 8, 3), lambda x: F.max_pool2d(x[:, :1], 2)),
        Chain(nn.Conv2d(3, 8, 3), lambda x: F.max_pool2d(x[:1], 2)),
    ],
    ids=[
        "of 9",
        "overlap",
        "of 64",
        "transposed",
        "depthwise",
        "read twice",
        "some channels",
        "one channel",
        "one picture",
    ],
)
def test_what_no_tile_holds_has_a_kernel_of_its_own(module: nn.Module) -> None:
    channels = next(iter(module.children())).in_channels  # type: ignore[union-attr]
    _, steps = steps_of(module.eval(), torch.randn(2, channels, 20, 20))  # type: ignore[call-overload]
    assert len(steps) > 1
    assert not any(isinstance(item, ConvolutionStep) and item.window for item in steps)


@pytest.mark.parametrize("kind", ["windows", "channels"])
def test_the_same_in_two_kernels_is_a_rival(kind: str) -> None:
    end = {"windows": lambda x: F.max_pool2d(F.relu(x), 2), "channels": lambda x: x.softmax(1)}[
        kind
    ]
    compiled, (step,) = steps_of(Chain(nn.Conv2d(3, 8, 3), end).eval(), torch.randn(2, 3, 8, 8))
    own, library = with_stand_ins(compiled, libraries=True).stand_ins[step]
    assert [type(item) for item in own] == [ConvolutionStep, Region]
    assert own[0].result in own[1].reads
    assert len(library) == (3 if kind == "windows" else 2)
