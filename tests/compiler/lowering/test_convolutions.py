"""Convolutions on channels-last memory, and depthwise ones as sums of shifted reads."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

from agentkernel.compiler.convolutions.step import ConvolutionStep
from agentkernel.compiler.drop_in.constructor import emit_constructor
from agentkernel.compiler.fusion import LibraryStep, Region
from agentkernel.compiler.partitions import partitions
from agentkernel.compiler.pipeline import Compiled, compile_graph
from agentkernel.compiler.products.step import ProductStep
from agentkernel.compiler.providers import Setting, provider_of
from agentkernel.compiler.segments import segments_of
from agentkernel.domain.candidate import NoTemplate
from agentkernel.tools.problem.capture import capture
from agentkernel.tools.problem.loading import problem_from_module
from agentkernel.tools.targets import find_target
from tests.compiler.forms import assert_accepted, compiled_graph, small
from tests.compiler.sandboxed_drop_in import Sandboxed
from tests.goldens import same_as_golden

GOLDEN = Path(__file__).parents[2] / "golden" / "kernels"


class Block(nn.Module):
    """Two convolutions with norms, a residual, and a transposed one behind them."""

    def __init__(self, channels: int, kernel: int) -> None:
        super().__init__()
        self.one = nn.Conv2d(channels, channels, kernel, padding=kernel // 2)
        self.norm = nn.BatchNorm2d(channels)
        self.two = nn.Conv2d(channels, channels, 1, bias=False)
        self.up = nn.ConvTranspose2d(channels, channels + 1, 2, stride=2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.two(self.norm(self.one(x)).relu())
        return self.up((y + x).tanh()).sigmoid()


class Volume(nn.Module):
    """A convolution over a volume, and a mean over it."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv3d(3, 5, 3, padding="same")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.conv(x).relu().mean((2, 3, 4))


def channels_last(module: nn.Module, x: torch.Tensor) -> Compiled:
    """The way to divide the module in which convolutions are channels-last."""
    loaded = problem_from_module(module.eval(), (x,))
    choices = partitions(loaded, capture(loaded), "mixed")
    text = ["permute(0, " in item.write(small(item, "looped")).text for item in choices]
    return choices[text.index(True)]


@given(
    channels=st.sampled_from([1, 3, 8, 17]),
    kernel=st.sampled_from([1, 3]),
    height=st.sampled_from([1, 5, 9]),
    width=st.sampled_from([2, 7, 16]),
)
@settings(max_examples=4, deadline=None, suppress_health_check=list(HealthCheck))
def test_the_layout_changes_no_value(
    box: Sandboxed, channels: int, kernel: int, height: int, width: int
) -> None:
    module, x = Block(channels, kernel).eval(), torch.randn(2, channels, height, width)
    compiled = channels_last(module, x)
    box.check(compiled.write(small(compiled, "looped")).text, module, (x,))


def test_only_what_comes_in_and_goes_out_is_rearranged() -> None:
    module, x = Block(8, 3).eval(), torch.randn(2, 8, 6, 10)
    regions = [
        step for step in channels_last(module, x).partition.steps if isinstance(step, Region)
    ]
    titles = [region.stores[0].node.name for region in regions]
    assert titles == ["x_last", "relu_last", "tanh_last", "sigmoid"]


@pytest.mark.quick(1)
def test_a_volume_ends_in_a_reduction_over_it(box: Sandboxed) -> None:
    module, x = Volume().eval(), torch.randn(2, 3, 4, 5, 6)
    compiled = channels_last(module, x)
    box.check(compiled.write(small(compiled, "looped")).text, module, (x,))


class Causal(nn.Module):
    """A causal depthwise convolution over tokens, as in state-space models."""

    def __init__(self, kernel: int) -> None:
        super().__init__()
        self.kernel = kernel
        self.conv = nn.Conv1d(6, 6, kernel, groups=6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        padded = F.pad(x.transpose(1, 2), (self.kernel - 1, 0))
        return F.silu(self.conv(padded)).transpose(1, 2)


@st.composite
def depthwise(draw: st.DrawFn) -> tuple[nn.Module, torch.Tensor]:
    """A depthwise convolution of at most nine taps between two operators, and an input."""
    rank = draw(st.integers(1, 3))
    kernel = draw(st.sampled_from({1: [(4,), (9,)], 2: [(3, 3), (1, 5)], 3: [(2, 2, 2)]}[rank]))
    options = {
        "stride": draw(st.sampled_from([1, 2])), "dilation": draw(st.sampled_from([1, 2])),
        "bias": draw(st.booleans()), "padding": draw(st.sampled_from([0, 1])),
    }  # fmt: skip
    if options["stride"] == 1 and draw(st.booleans()):
        options["padding"] = "same"
    torch.manual_seed(draw(st.integers(0, 99)))
    conv = getattr(nn, f"Conv{rank}d")(5, 5, kernel, groups=5, **options)
    sizes = (20,) if rank == 1 else (11, 13) if rank == 2 else (5, 6, 7)
    return nn.Sequential(nn.Tanh(), conv, nn.ReLU()), torch.randn(2, 5, *sizes)


@given(drawn=depthwise())
@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
def test_few_taps_are_one_kernel_with_what_stands_around_them(
    box: Sandboxed, drawn: tuple[nn.Module, torch.Tensor]
) -> None:
    module, x = drawn
    compiled = compiled_graph(module, (x,))
    assert len(compiled.partition.steps) == 1 or len(x.shape) == 4
    assert all(isinstance(step, Region) for step in compiled.partition.steps)
    box.check(compiled.write(small(compiled, "looped")).text, module, (x,))


@pytest.mark.parametrize("kernel", [3, 4])
def test_a_causal_one_reads_tokens_as_they_lie(box: Sandboxed, kernel: int) -> None:
    module, x = Causal(kernel).eval(), torch.randn(2, 80, 6)
    compiled = compiled_graph(module, (x,))
    (step,) = compiled.partition.steps
    setting = Setting(compiled.symbols, find_target("h200").target, "strict", lambda _: None)
    assert provider_of(step).schedules(step, setting)[0].form == "tile"
    box.check(compiled.write(small(compiled, "looped")).text, module, (x,))


def test_many_taps_have_a_kernel_of_their_own() -> None:
    found = compiled_graph(nn.Conv2d(5, 5, 5, groups=5), (torch.randn(2, 5, 9, 9),))
    assert isinstance(found.partition.steps[0], ConvolutionStep)


class Apart(nn.Module):
    """A convolution whose windows lie apart, with arithmetic before and behind it, and tokens."""

    def __init__(self, conv: nn.Module, tokens: bool) -> None:
        super().__init__()
        self.conv, self.tokens = conv, tokens

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.conv(x * 0.5)
        return F.relu(y.flatten(2).transpose(1, 2).contiguous() + 1 if self.tokens else y)


@st.composite
def apart(draw: st.DrawFn) -> tuple[nn.Module, torch.Tensor]:
    """A convolution with a kernel as large as its stride, or of one place, plain or transposed,
    and an input that its windows may not fill."""
    rank, up = draw(st.integers(1, 3)), draw(st.booleans())
    kernel = draw(st.sampled_from([(1, 1, 1), (2, 2, 2), (4, 4, 4), (2, 1, 3), (3, 5, 2)]))[:rank]
    points = set(kernel) == {1} and not up
    stride = (draw(st.sampled_from([1, 2, 3])),) * rank if points else kernel
    inside, outside = draw(st.sampled_from([1, 3, 8])), draw(st.sampled_from([1, 5, 16]))
    torch.manual_seed(draw(st.integers(0, 99)))
    make = getattr(nn, f"Conv{'Transpose' if up else ''}{rank}d")
    conv = make(inside, outside, kernel, stride=stride, bias=draw(st.booleans()))
    counts = (draw(st.sampled_from([1, 2, 5])), 3, 2)[:rank]
    rest = draw(st.sampled_from([0, 1]))
    sizes = [
        count if up else count * size + rest for count, size in zip(counts, kernel, strict=True)
    ]
    x = torch.randn(draw(st.sampled_from([1, 3])), inside, *sizes)
    return Apart(conv, draw(st.booleans())).eval(), x


def as_product(module: nn.Module, x: torch.Tensor) -> Compiled:
    """The module with its convolution as a product of our own."""
    loaded = problem_from_module(module, (x,))
    constructor = emit_constructor(loaded)
    assert not isinstance(constructor, NoTemplate)
    found = compile_graph(loaded, capture(loaded), constructor, convolutions="products")
    return found.own_products()


@given(drawn=apart())
@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
def test_windows_that_lie_apart_are_multiplied(
    box: Sandboxed, drawn: tuple[nn.Module, torch.Tensor]
) -> None:
    module, x = drawn
    compiled = as_product(module, x)
    assert not [step for step in compiled.partition.steps if isinstance(step, LibraryStep)]
    box.check(compiled.write(small(compiled, "looped")).text, module, (x,))


@pytest.mark.parametrize(
    "conv",
    [
        nn.Conv2d(4, 8, 2, stride=2, padding=1), nn.Conv2d(4, 8, 2, stride=2, groups=2),
        nn.Conv2d(4, 8, 3, stride=2), nn.Conv2d(4, 8, 2, stride=2, dilation=2),
        nn.Conv2d(4, 8, 2, stride=3), nn.ConvTranspose2d(4, 8, 2, stride=2, output_padding=1),
        nn.ConvTranspose2d(4, 8, 1, stride=2), nn.ConvTranspose2d(4, 8, 2, stride=2, padding=1),
    ],
    ids=str,
)  # fmt: skip
def test_windows_that_meet_or_leave_gaps_are_not(conv: nn.Module) -> None:
    compiled = as_product(nn.Sequential(conv).eval(), torch.randn(2, 4, 12, 12))
    assert not [step for step in compiled.partition.steps if isinstance(step, ProductStep)]


class Embedding(nn.Module):
    """Patches of a picture as tokens with positions, normalised."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 768, 16, stride=16, dtype=dtype)
        self.position = nn.Parameter(torch.empty(1, 196, 768, dtype=dtype))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.silu(self.conv(x).flatten(2).transpose(1, 2).contiguous() + self.position)


def steps_of(module: nn.Module, x: torch.Tensor) -> list[list[str]]:
    """The kernels of each way to divide the module."""
    loaded = problem_from_module(module.eval(), (x,))
    choices = partitions(loaded, capture(loaded), "mixed")
    return [[item.pattern for item in segments_of(choice)] for choice in choices]


def test_patches_in_half_precision_are_a_copy_and_a_product_with_all_that_follows() -> None:
    half = torch.float16
    found = steps_of(Embedding(half), torch.empty(128, 3, 224, 224, dtype=half))
    assert found[0] == ["pointwise", "gemm_epilogue"]
    assert ["convolution_epilogue"] in found or ["convolution", "pointwise"] in found


def test_in_single_precision_tf32_is_estimated_to_be_faster() -> None:
    found = steps_of(Embedding(torch.float32), torch.empty(128, 3, 224, 224))
    assert found[0][0] == "convolution"
    assert all("gemm" not in " ".join(item) for item in found)


def test_a_product_of_places_reads_the_picture_without_a_copy() -> None:
    module = nn.Conv2d(256, 512, 1, dtype=torch.float16)
    found = steps_of(module, torch.empty(32, 256, 56, 56, dtype=torch.float16))
    assert found[0] == ["gemm_epilogue"]


def test_the_judge_accepts_products_of_patches() -> None:
    module = Apart(nn.Conv2d(3, 16, 4, stride=4), tokens=True).eval()
    compiled = as_product(module, torch.randn(2, 3, 9, 8))
    text = compiled.write(small(compiled, "looped")).text
    assert_accepted(compiled.loaded, compiled.captured, text)
    same_as_golden(GOLDEN / "patches.py", text, "a product of patches")
