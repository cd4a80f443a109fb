"""Convolutions as kernels of our own: right in the interpreter, compiled for cards, and chosen."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import triton.language as tl
from torch import nn

from agentkernel.compiler.convolutions.schedules import (
    ConvolutionFacts,
    by_sums,
    convolution_schedules,
    copied,
)
from agentkernel.compiler.convolutions.spec import ConvolutionSpec, Geometry
from agentkernel.compiler.convolutions.step import ConvolutionStep, emit_convolution
from agentkernel.compiler.fusion import LibraryStep
from agentkernel.compiler.kernel_helpers import helper_sources
from agentkernel.compiler.partitions import partitions
from agentkernel.compiler.pipeline import Compiled
from agentkernel.tools.problem.capture import capture
from agentkernel.tools.problem.loading import load_problem
from agentkernel.tools.targets import load_targets
from tests.compiler.cross_compile import POINTERS, Cost, compiled_cost, imported
from tests.compiler.forms import compiled_graph, small
from tests.compiler.sandboxed_drop_in import Sandboxed

ROOT = Path(__file__).parents[3]


@pytest.mark.quick(40)
def test_convolutions_in_the_interpreter() -> None:
    environment = os.environ | {"OMP_NUM_THREADS": "1", "TRITON_INTERPRET": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "tests.compiler.convolutions.interpreted_convolutions"],
        cwd=ROOT, capture_output=True, text=True, env=environment, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]


DENSE = Geometry((3, 3), (1, 1), (1, 1), (1, 1), (1, 1), 1, 64, 128)
STEM = Geometry((7, 7), (2, 2), (3, 3), (3, 3), (1, 1), 1, 3, 64)
DEPTHWISE = Geometry((7, 7), (1, 1), (3, 3), (3, 3), (1, 1), 192, 1, 1)
UPWARDS = Geometry((4, 4), (2, 2), (1, 1), (1, 1), (1, 1), 1, 128, 64, transposed=True)
SPREAD = Geometry((3, 5), (2, 3), (1, 2), (1, 2), (2, 1), 4, 32, 16, transposed=True)
PATCHES = Geometry((16, 16), (16, 16), (0, 0), (0, 0), (1, 1), 1, 3, 768)
SMALL = Geometry((4, 4), (4, 4), (0, 0), (0, 0), (1, 1), 1, 3, 96)
POINT = Geometry((1, 1), (1, 1), (0, 0), (0, 0), (1, 1), 1, 256, 128)


def facts_of(shape: Geometry, dtype: str = "float32") -> ConvolutionFacts:
    return ConvolutionFacts(shape, 32, (112,) * shape.rank, (112,) * shape.rank, dtype)


def cost_of(
    shape: Geometry, schedule: dict[str, int], dtype: str = "float32", arch: int = 90
) -> Cost:
    sizes = {f"{side}_{dim}": 112 for side in ("IN", "OUT") for dim in range(shape.rank)}
    texts = tuple(f"x.shape[{2 + dim}]" for dim in range(shape.rank))
    spec = ConvolutionSpec("conv", shape, dtype, "x", "w", "", "out", "x.shape[0]", texts, texts)
    text = emit_convolution(spec, schedule)
    kernel = imported("\n\n\n".join([*helper_sources(text.helpers), text.source])).conv
    constants: dict[str, object] = {"TF32": True, "INDEX": tl.int32}
    constants |= {**sizes, **schedule}
    signature = {
        name: "constexpr" if name.isupper() or re.fullmatch(r"(IN|OUT)_\d", name)
        else POINTERS[dtype] if name.endswith("_ptr") else "i32"
        for name in kernel.arg_names
    }  # fmt: skip
    given = {name: constants[name] for name, kind in signature.items() if kind == "constexpr"}
    options = {"num_warps": schedule["num_warps"], "num_stages": schedule.get("num_stages", 3)}
    return compiled_cost(kernel, signature, given, options, arch)


@pytest.mark.parametrize("shape", [DENSE, STEM, POINT, UPWARDS, PATCHES])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_first_schedule_multiplies_on_hoppers_tensor_cores(shape: Geometry, dtype: str) -> None:
    schedule = convolution_schedules(facts_of(shape, dtype), load_targets()["h200"], 0)[0]
    cost = cost_of(shape, schedule, dtype)
    assert "wgmma.mma_async" in cost.ptx
    assert cost.stack_bytes == 0
    assert cost.shared_bytes <= 227 * 1024


def test_a_packed_picture_is_read_sixteen_bytes_at_a_time() -> None:
    schedule = {"READ": 2, "BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 32, "num_warps": 8,
                "num_stages": 3}  # fmt: skip
    ptx = cost_of(DENSE, schedule).ptx
    widths = set(re.findall(r"cp\.async\.c[ga]\.shared\.global \[.*?\], 0x(\w+)", ptx))
    assert widths == {"10"} or set(re.findall(r"cp\.async\S+ .*?, 0x(\w+)", ptx)) == {"10"}


@pytest.mark.parametrize("shape", [PATCHES, SMALL])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_patches_are_read_as_they_lie_without_a_copy(shape: Geometry, dtype: str) -> None:
    """By the first schedule, in loads of as many neighbours as a patch has, up to 16 bytes."""
    facts = ConvolutionFacts(shape, 32, (112, 112), (112, 112), dtype)
    schedule = convolution_schedules(facts, load_targets()["h200"], 0)[0]
    assert schedule["READ"] == 1
    cost = cost_of(shape, schedule, dtype)
    assert cost.stack_bytes == 0
    widths = {int(item, 16) for item in re.findall(r"cp\.async\S+ .*?, 0x(\w+)", cost.ptx)}
    wide = min(16, shape.kernel[-1] * (4 if dtype == "float32" else 2))
    assert min(widths) == wide
    assert "ld.global" not in cost.ptx


@pytest.mark.parametrize("arch", [80, 89, 100, 120])
@pytest.mark.parametrize("shape", [DENSE, DEPTHWISE, UPWARDS])
def test_the_first_schedule_compiles_for_other_cards(shape: Geometry, arch: int) -> None:
    names = {80: "a100-80", 89: "l40s", 100: "b200", 120: "rtx5090"}
    target = load_targets()[names[arch]]
    schedule = convolution_schedules(facts_of(shape), target, 0)[0]
    assert cost_of(shape, schedule, arch=arch).instructions > 0


def test_every_drawn_schedule_is_another_and_fits() -> None:
    target = load_targets()["h200"]
    for shape in (DENSE, STEM, DEPTHWISE, UPWARDS, POINT):
        found = convolution_schedules(facts_of(shape), target, 40)
        assert 6 <= len(found) == len({str(sorted(item.items())) for item in found})
        assert all(item["num_warps"] in (1, 2, 4, 8) for item in found)


FAR = Geometry((8, 8), (8, 8), (0, 0), (0, 0), (1, 1), 1, 64, 64, transposed=True)


@pytest.mark.parametrize("shape", [DENSE, STEM, DEPTHWISE, UPWARDS, SPREAD, POINT, FAR])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_every_card_has_a_schedule(shape: Geometry, dtype: str) -> None:
    for target in load_targets().values():
        found = convolution_schedules(facts_of(shape, dtype), target, 0)
        assert found, target.name
        exact = target.vendor == "amd" and not by_sums(shape)
        assert all(bool(item.get("IEEE")) is exact for item in found)


def test_a_copy_many_times_as_large_is_not_made() -> None:
    wide = Geometry((3, 3), (1, 1), (36, 36), (36, 36), (36, 36), 1, 64, 64)
    facts = ConvolutionFacts(wide, 2, (33, 33), (33, 33), "float32")
    assert copied(facts) > 10
    found = convolution_schedules(facts, load_targets()["h200"], 40)
    assert {item["READ"] for item in found} == {0}
    single = Geometry((4, 4), (2, 2), (1, 1), (1, 1), (1, 1), 8, 1, 1, transposed=True)
    found = convolution_schedules(facts_of(single, "bfloat16"), load_targets()["h200"], 40)
    assert {item["READ"] for item in found} == {0}


@pytest.mark.parametrize("read", [0, 1, 2])
def test_places_and_channels_are_counted_in_64_bits_where_they_have_to_be(read: int) -> None:
    """A picture of 2**24 places and 256 channels is past 2**32 elements."""
    texts = ("4096", "4096")
    spec = ConvolutionSpec("conv", POINT, "float32", "x", "weight", "", "out", "n", texts, texts)
    schedule = {"READ": read, "BLOCK_M": 16, "BLOCK_N": 32, "BLOCK_K": 16, "num_warps": 4,
                "num_stages": 2}  # fmt: skip
    text = emit_convolution(spec, schedule).source
    assert "place < tl.cast(batches, INDEX) * N" in text
    assert read == 2 or ".to(INDEX) * PLANE" in text


def test_the_grid_of_a_long_depthwise_one_has_one_axis() -> None:
    """CUDA's second axis ends at 65535 blocks."""
    long = Geometry((31,), (1,), (15,), (15,), (1,), 4, 1, 1)
    spec = ConvolutionSpec("conv", long, "float32", "x", "weight", "", "out", "n", ("s",), ("s",))
    text = emit_convolution(spec, {"ROWS": 1, "BLOCK_C": 2, "BLOCK_X": 64, "num_warps": 4})
    assert text.launch[0].endswith(" * triton.cdiv(s, 64),)](")


HEAD = "import torch\nfrom torch import nn\n\n\n"


def own(tmp_path: Path, body: str, made: str, x: str) -> list[Compiled]:
    """The partitions of a module whose layers are `made` and whose forward returns `body`."""
    text = (
        f"{HEAD}class Model(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        f"        {made}\n\n    def forward(self, x):\n        return {body}\n\n\n"
        f"def get_inputs():\n    return [{x}]\n\n\ndef get_init_inputs():\n    return []\n"
    )
    path = tmp_path / "problem.py"
    path.write_text(text)
    loaded = load_problem(str(path))
    return partitions(loaded, capture(loaded), "mixed")


def steps_of(found: list[Compiled]) -> list[object]:
    return list(found[0].partition.steps)


def test_a_pointwise_chain_is_the_epilogue(tmp_path: Path) -> None:
    made = "self.conv, self.norm = nn.Conv2d(8, 24, 3, padding=1), nn.BatchNorm2d(24)"
    body = "torch.relu(self.norm(self.conv(x))) * 2"
    (step,) = steps_of(own(tmp_path, body, made, "torch.randn(2, 8, 14, 15)"))
    assert isinstance(step, ConvolutionStep)
    assert step.epilogue is not None


def test_a_reduction_behind_it_has_a_kernel_of_its_own(tmp_path: Path) -> None:
    made = "self.conv = nn.Conv2d(8, 24, 3)"
    body = "self.conv(x).mean(dim=(2, 3))"
    found = steps_of(own(tmp_path, body, made, "torch.randn(2, 8, 14, 15)"))
    assert any(isinstance(step, ConvolutionStep) and step.epilogue is None for step in found)


def test_a_transposed_one_of_stride_1_is_a_plain_one(tmp_path: Path) -> None:
    made = "self.conv = nn.ConvTranspose2d(8, 24, 3, padding=1, dilation=2)"
    (step,) = steps_of(own(tmp_path, "self.conv(x)", made, "torch.randn(2, 8, 14, 15)"))
    assert isinstance(step, ConvolutionStep)
    assert step.geometry.turned
    assert not step.geometry.transposed
    assert step.geometry.padding == (3, 3)


def test_a_transposed_one_may_have_a_stride_and_a_dilation(tmp_path: Path) -> None:
    made = "self.conv = nn.ConvTranspose1d(8, 24, 3, stride=2, dilation=2)"
    (step,) = steps_of(own(tmp_path, "torch.sin(self.conv(x))", made, "torch.randn(2, 8, 14)"))
    assert isinstance(step, ConvolutionStep)
    assert step.geometry.transposed
    assert step.epilogue is not None


@pytest.mark.parametrize(
    ("made", "x"),
    [
        ("self.conv = nn.ConvTranspose1d(8, 24, 3, padding=3)", "torch.randn(2, 8, 14)"),
        ("self.conv = nn.Conv1d(8, 24, 3, dtype=torch.float64)",
         "torch.randn(2, 8, 14, dtype=torch.float64)"),
    ],
)  # fmt: skip
def test_what_no_kernel_does_stays_with_the_library(tmp_path: Path, made: str, x: str) -> None:
    found = steps_of(own(tmp_path, "torch.sin(self.conv(x))", made, x))
    assert any(isinstance(step, LibraryStep) for step in found)
    assert not any(isinstance(step, ConvolutionStep) for step in found)


class Namesakes(nn.Module):
    """Inputs with the names of a kernel's copies."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(4, 4, 3, padding=1)

    def forward(
        self, x: torch.Tensor, conv2d_kernel_weight: torch.Tensor,
        conv2d_kernel_picture: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
        return self.conv(x), self.conv(conv2d_kernel_picture).sum(1) + conv2d_kernel_weight


def test_copies_take_no_name_of_the_modules_own(box: Sandboxed) -> None:
    module = Namesakes().eval()
    inputs = tuple(torch.randn(2, 4, 7, 6) for _ in range(3))
    compiled = compiled_graph(module, (inputs[0], inputs[1][:, 0], inputs[2]))
    text = compiled.write(small(compiled, "looped")).text
    box.check(text, module, (inputs[0], inputs[1][:, 0], inputs[2]))


def test_a_longer_result_of_a_transposed_one_of_stride_1(box: Sandboxed) -> None:
    module = nn.ConvTranspose2d(3, 5, 3, dilation=2, output_padding=1).eval()
    compiled = compiled_graph(module, (torch.randn(2, 3, 6, 7),))
    text = compiled.write(small(compiled, "looped")).text
    box.check(text, module, (torch.randn(2, 3, 6, 7),))


@pytest.mark.gpu
@pytest.mark.parametrize("allowed", ["tf32", "ieee"])
@pytest.mark.parametrize("shape", [DENSE, STEM, POINT, UPWARDS, DEPTHWISE])
def test_every_first_schedule_is_as_near_to_fp64_as_cudnn(shape: Geometry, allowed: str) -> None:
    before = torch.backends.cudnn.conv.fp32_precision
    torch.backends.cudnn.conv.fp32_precision = allowed
    try:
        _compare(shape, 2.0 if allowed == "tf32" else 1.5)
    finally:
        torch.backends.cudnn.conv.fp32_precision = before


def _compare(shape: Geometry, most: float) -> None:
    kind = nn.ConvTranspose2d if shape.transposed else nn.Conv2d
    torch.manual_seed(0)
    model = kind(
        shape.inside * shape.groups, shape.outside * shape.groups, shape.kernel, shape.stride,
        shape.padding, groups=shape.groups,
    ).cuda()  # fmt: skip
    x = torch.randn(3, shape.inside * shape.groups, 61, 45, device="cuda")
    with torch.no_grad():
        eager, oracle = model(x), model.double()(x.double())
    model.float()
    texts = tuple(f"x.shape[{2 + dim}]" for dim in range(shape.rank))
    outs = tuple(f"out.shape[{2 + dim}]" for dim in range(shape.rank))
    spec = ConvolutionSpec(
        "conv", shape, "float32", "x", "weight", "bias", "out", "x.shape[0]", texts, outs
    )
    for schedule in convolution_schedules(facts_of(shape), load_targets()["h200"], 0):
        text = emit_convolution(spec, schedule)
        sources = "\n\n\n".join([*helper_sources(text.helpers), text.source])
        body = "\n".join(f"    {line}" for line in text.launch)
        module = imported(f"{sources}\n\n\ndef run(x, weight, bias, out):\n{body}\n")
        found = torch.full_like(eager, float("nan"), memory_format=torch.contiguous_format)
        module.run(x, model.weight.data, model.bias.data, found)
        error = (found - oracle).norm() / oracle.norm()
        # Where cuDNN does not round it is the flag's rounding that is allowed.
        theirs = max(float((eager - oracle).norm() / oracle.norm()), 3e-4 if most == 2.0 else 2e-7)
        assert error <= most * theirs, (schedule, float(error), theirs)
