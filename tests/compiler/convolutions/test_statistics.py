"""Statistics of what a convolution makes, gathered in its tiles for the norm behind it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import triton.language as tl
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn

from agentkernel.compiler.convolutions.statistics import PART, StatisticsStep
from agentkernel.compiler.drop_in.constructor import emit_constructor
from agentkernel.compiler.isolated_step import isolated
from agentkernel.compiler.partitions import partitions
from agentkernel.compiler.pipeline import Compiled, compile_graph
from agentkernel.compiler.providers import Setting, provider_of
from agentkernel.compiler.segments import segments_of
from agentkernel.domain.candidate import NoTemplate
from agentkernel.tools.problem.capture import capture
from agentkernel.tools.problem.loading import problem_from_module
from agentkernel.tools.targets import load_targets
from tests.compiler.convolutions.test_reducing import Chain
from tests.compiler.cross_compile import POINTERS, compiled_cost, imported
from tests.compiler.forms import assert_accepted, small
from tests.compiler.sandboxed_drop_in import Sandboxed
from tests.goldens import same_as_golden

GOLDEN = Path(__file__).parents[2] / "golden" / "kernels"
NORMS = {
    "groups": lambda channels: nn.GroupNorm(channels // 4, channels),
    "one group": lambda channels: nn.GroupNorm(1, channels),
    "pictures": lambda channels: nn.InstanceNorm3d(channels, affine=True),
    "batch": lambda channels: nn.BatchNorm3d(channels, track_running_stats=False),
}


def gathered(module: nn.Module, x: torch.Tensor) -> Compiled:
    """The module with its convolutions as kernels that gather statistics."""
    loaded = problem_from_module(module, (x,))
    constructor = emit_constructor(loaded)
    assert not isinstance(constructor, NoTemplate)
    found = compile_graph(loaded, capture(loaded), constructor)
    return found.convolution_statistics().own_convolutions()


def statistics_of(compiled: Compiled) -> list[StatisticsStep]:
    return [step for step in compiled.partition.steps if isinstance(step, StatisticsStep)]


@st.composite
def normed(draw: st.DrawFn) -> tuple[nn.Module, torch.Tensor]:
    """A convolution, a norm of one kind or another, and an activation; pictures of which the last
    part may be nearly empty."""
    rank, channels = draw(st.integers(1, 3)), draw(st.sampled_from([4, 8, 20]))
    sizes = draw(st.sampled_from({1: [(512,), (641,)], 2: [(32, 16), (23, 25)], 3: [(8, 8, 8),
                 (9, 9, 7)]}[rank]))  # fmt: skip
    torch.manual_seed(draw(st.integers(0, 99)))
    norm = NORMS[draw(st.sampled_from(sorted(NORMS)))](channels)
    if not isinstance(norm, nn.GroupNorm):
        name = type(norm).__name__.replace("3d", f"{rank}d")
        given_ = {"affine": True} if "Instance" in name else {"track_running_stats": False}
        norm = getattr(nn, name)(channels, **given_)
    kernel = draw(st.sampled_from([1, 3]))
    conv = getattr(nn, f"Conv{rank}d")(3, channels, kernel, padding=kernel // 2)
    x = torch.randn(draw(st.sampled_from([1, 3])), 3, *sizes) + draw(st.sampled_from([0.0, 50.0]))
    return nn.Sequential(conv, norm, nn.SiLU()).eval(), x


@given(drawn=normed())
@settings(max_examples=5, deadline=None, suppress_health_check=list(HealthCheck))
def test_norms_of_parts_are_as_good_as_eager(
    box: Sandboxed, drawn: tuple[nn.Module, torch.Tensor]
) -> None:
    module, x = drawn
    compiled = gathered(module, x)
    assert len(statistics_of(compiled)) == 1
    box.check(compiled.write(small(compiled, "looped")).text, module, (x,))


def test_two_convolutions_in_a_row(box: Sandboxed) -> None:
    layers = [
        layer
        for inside in (3, 4)
        for layer in (nn.Conv2d(inside, 4, 3, padding=1), nn.GroupNorm(2, 4), nn.ReLU())
    ]
    module, x = nn.Sequential(*layers).eval(), torch.randn(2, 3, 24, 25)
    compiled = gathered(module, x)
    assert len(statistics_of(compiled)) == 2
    box.check(compiled.write(small(compiled, "looped")).text, module, (x,))


def test_in_half_precision_the_stored_numbers_are_gathered(box: Sandboxed) -> None:
    module = nn.Sequential(nn.Conv2d(4, 8, 3), nn.GroupNorm(2, 8)).eval().half()
    x = torch.randn(2, 4, 26, 27).half()
    compiled = gathered(module, x)
    assert statistics_of(compiled)
    box.check(compiled.write(small(compiled, "looped")).text, module, (x,))


def test_the_judge_accepts_it() -> None:
    module = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.GroupNorm(2, 8), nn.SiLU()).eval()
    compiled = gathered(module, torch.randn(1, 3, 23, 23))
    text = compiled.write(small(compiled, "looped")).text
    assert_accepted(compiled.loaded, compiled.captured, text)
    same_as_golden(GOLDEN / "convolution_statistics.py", text, "a convolution's statistics")


@pytest.mark.parametrize(
    "module",
    [
        Chain(nn.Conv2d(3, 8, 3), lambda x: x.var(dim=(2, 3))),
        Chain(nn.Conv2d(3, 8, 3), lambda x: x - x.var(dim=(1, 2), keepdim=True)),
        Chain(nn.Conv2d(3, 8, 3), lambda x: (x.relu(), nn.functional.instance_norm(x.relu()))),
        Chain(nn.Conv2d(4, 8, 3, groups=2), nn.functional.instance_norm),
        Chain(nn.Conv2d(3, 8, 3, stride=4), nn.functional.instance_norm),
    ],
    ids=["the result is not read", "part of a picture", "of another value", "groups", "few places"],
)
def test_what_else_is_reduced_is_not(module: nn.Module) -> None:
    channels = module.layer.in_channels
    compiled = gathered(module.eval(), torch.randn(2, channels, 40, 40))
    assert statistics_of(compiled) == []


def choices(sizes: tuple[int, ...], dtype: torch.dtype = torch.float32) -> list[list[str]]:
    """The kernels of the ways to divide a convolution, a norm and an activation."""
    layers = (nn.Conv2d(32, 64, 3, padding=1), nn.GroupNorm(8, 64), nn.SiLU())
    module = nn.Sequential(*layers).eval().to(dtype)
    loaded = problem_from_module(module, (torch.empty(sizes, dtype=dtype),))
    found = partitions(loaded, capture(loaded), "mixed")
    return [[item.pattern for item in segments_of(choice)] for choice in found]


def test_large_pictures_are_read_once() -> None:
    found = choices((16, 32, 256, 256))
    assert found[0] == ["convolution_statistics", "reduction", "pointwise"]
    assert found[1] == ["convolution", "norm"]


def test_pictures_that_registers_hold_are_read_once_anyway() -> None:
    found = choices((16, 32, 32, 32))
    assert found[0] == ["convolution", "norm"]


def test_it_is_timed_alone() -> None:
    module = nn.Sequential(nn.Conv2d(3, 8, 3), nn.GroupNorm(2, 8)).eval()
    compiled = gathered(module, torch.randn(2, 3, 34, 34))
    (step,) = statistics_of(compiled)
    alone = isolated(compiled, step)
    assert alone is not None
    assert alone.matrix_work is not None
    assert alone.matrix_work.cost.flops == 2 * 2 * 8 * 32 * 32 * 27
    assert [output.node.name for output in alone.outputs] == ["conv2d", "means", "squares"]


def model(dtype: str) -> Compiled:
    layers = (nn.Conv2d(64, 128, 3, padding=1), nn.GroupNorm(32, 128), nn.SiLU())
    module = nn.Sequential(*layers).eval().to(getattr(torch, dtype))
    return gathered(module, torch.empty(4, 64, 112, 112, dtype=getattr(torch, dtype)))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_every_card_has_a_tile_of_one_part(dtype: str) -> None:
    compiled = model(dtype)
    (step,) = statistics_of(compiled)
    for target in load_targets().values():
        setting = Setting(compiled.symbols, target, "strict", lambda _: None)
        found = provider_of(step).schedules(step, setting)
        assert found, target.name
        assert all(item["BLOCK_N"] == PART and item["APART"] for item in found)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_its_first_schedules_spill_nothing_on_hopper(dtype: str) -> None:
    compiled = model(dtype)
    (step,) = statistics_of(compiled)
    setting = Setting(compiled.symbols, load_targets()["h200"], "strict", lambda _: None)
    for schedule in provider_of(step).schedules(step, setting)[:2]:
        alone = isolated(compiled, step)
        assert alone is not None
        kernel = imported(alone.write(schedule).text, head="").convolution_statistics_kernel
        sizes = {f"{side}_{dim}": 112 for side in ("IN", "OUT") for dim in range(2)}
        constants = {"TF32": True, "INDEX": tl.int32, **sizes, **schedule}
        wide = ("means_ptr", "squares_ptr")
        signature = {
            name: "constexpr" if name in constants
            else "*fp32" if name in wide else POINTERS[dtype] if name.endswith("_ptr") else "i32"
            for name in kernel.arg_names
        }  # fmt: skip
        given_ = {name: constants[name] for name, kind in signature.items() if kind == "constexpr"}
        options = {name: schedule[name] for name in ("num_warps", "num_stages")}
        cost = compiled_cost(kernel, signature, given_, options)
        assert "wgmma.mma_async" in cost.ptx
        assert cost.stack_bytes == 0
