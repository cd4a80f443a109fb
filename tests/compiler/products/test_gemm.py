"""Emitted matrix products in the interpreter, and their default schedules on a GPU."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from agentkernel.compiler.kernel_helpers import helper_sources
from agentkernel.compiler.products.gemm import emit_gemm
from agentkernel.compiler.products.schedules import (
    MAX_SCHEDULES,
    GemmFacts,
    GemmSchedule,
    gemm_schedules,
    sampled_gemm_schedules,
)
from agentkernel.compiler.products.spec import GemmSpec
from agentkernel.tools.targets import load_targets
from tests.compiler.cross_compile import POINTERS, Cost, compiled_cost, imported

HERE = Path(__file__).parent
GOLDEN = HERE.parents[1] / "golden" / "compiler"
BIAS = (
    "bias = tl.load(bias_ptr + cols, mask=col_mask, other=0.0)",
    "acc = tl.maximum(acc + bias[None, :].to(tl.float32), 0.0)",
)


def spec_of(dtype: str = "float32", **changes: object) -> GemmSpec:
    spec = GemmSpec(
        name="linear", a="x", b="weight", out="out", m="m", n="n", k="k", dtype=dtype,
        epilogue=BIAS, extras=(("bias_ptr", "bias"),),
    )  # fmt: skip
    return GemmSpec(**{**vars(spec), **changes})


def cost_of(spec: GemmSpec, schedule: GemmSchedule, arch: int = 90, name: str = "") -> Cost:
    """That of the product itself, or of another kernel by its `name`."""
    text = emit_gemm(spec, schedule)
    split = schedule["SPLIT_K"] > 1
    name = name or (f"{spec.name}_partial" if split else spec.name)
    assert name in text.kernels
    kernel = getattr(imported("\n\n\n".join([*helper_sources(text.helpers), text.source])), name)
    signature: dict[str, str] = {}
    constants: dict[str, object] = {}
    for parameter in kernel.arg_names:
        if parameter.isupper() and parameter not in ("M", "N", "K"):
            signature[parameter] = "constexpr"
            constants[parameter] = schedule.get(parameter, parameter != "SHORT")
        else:
            pointer = "*fp32" if split and parameter == "out_ptr" else POINTERS[spec.dtype]
            pointer = "*fp16" if parameter.endswith("_planes_ptr") else pointer
            signature[parameter] = pointer if parameter.endswith("_ptr") else "i32"
    options = {name: schedule[name] for name in ("num_warps", "num_stages")}
    return compiled_cost(kernel, signature, constants, options, arch)


@pytest.mark.parametrize("layouts", [("k", "k"), ("k", "n"), ("m", "k")])
def test_two_programs_that_split_share_an_sm(layouts: tuple[str, str]) -> None:
    """One whose loads wait while it divides reaches 2.8 TB/s on an H200, two 4.0."""
    spec = replace(
        spec_of("float32", epilogue=(), extras=()), a_layout=layouts[0], b_layout=layouts[1]
    )
    schedule = dict.fromkeys(("BLOCK_M", "BLOCK_N"), 128) | {"BLOCK_K": 64, "GROUP_M": 8}
    schedule |= {"SPLIT_K": 1, "num_warps": 8, "num_stages": 3, "PLANES": 1}
    cost = cost_of(spec, schedule, name="linear_split")
    assert cost.registers <= 128
    assert cost.stack_bytes == 0


def test_products_in_the_interpreter() -> None:
    environment = os.environ | {"OMP_NUM_THREADS": "1", "TRITON_INTERPRET": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "tests.compiler.products.interpreted_products"],
        cwd=HERE.parents[2], capture_output=True, text=True, env=environment, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_the_default_schedule_runs_on_hopper(dtype: str) -> None:
    facts = GemmFacts(4096, 4096, 4096, dtype=dtype)
    schedule = gemm_schedules(facts, load_targets()["h200"])[0]
    cost = cost_of(spec_of(dtype), schedule)
    assert "wgmma.mma_async" in cost.ptx
    assert cost.stack_bytes == 0 or dtype != "float32"
    assert cost.shared_bytes <= 227 * 1024


def test_strict_fp32_adds_partial_sums_outside_the_tensor_core() -> None:
    found = gemm_schedules(GemmFacts(4096, 4096, 4096), load_targets()["h200"])
    schedule = next(item for item in found if "PLANES" not in item)
    assert (schedule["BLOCK_M"], schedule["BLOCK_N"], schedule["BLOCK_K"]) == (128, 128, 64)
    strict = cost_of(spec_of(), schedule).ptx
    loose = cost_of(spec_of(precision="tf32"), schedule).ptx
    assert strict.count("wgmma.mma_async") == 3 * loose.count("wgmma.mma_async")
    assert strict.count("add.f32") >= 64


def test_an_n_major_weight_is_turned_first_where_that_pays() -> None:
    hopper = load_targets()["h200"]
    found = gemm_schedules(GemmFacts(4096, 4096, 4096, b_layout="n"), hopper)
    large = [schedule for schedule in found if "PLANES" not in schedule]
    assert large[0]["TRANSPOSE_B"] == 1
    assert not any("TRANSPOSE_B" in schedule for schedule in found if "PLANES" in schedule)
    text = emit_gemm(spec_of(b_layout="n"), large[0])
    assert text.kernels == ("linear_transpose", "linear")
    small = gemm_schedules(GemmFacts(64, 4096, 4096, b_layout="n"), hopper)
    assert all("TRANSPOSE_B" not in schedule for schedule in small)


def test_idle_multiprocessors_lead_to_a_split() -> None:
    hopper = load_targets()["h200"]
    first = gemm_schedules(GemmFacts(256, 256, 65536), hopper)[0]
    assert first["SPLIT_K"] > 1
    assert first["PLANES"] == 2
    assert emit_gemm(spec_of(), first).kernels == ("linear_partial", "linear_reduce")
    assert gemm_schedules(GemmFacts(8192, 8192, 8192), hopper)[0]["SPLIT_K"] == 1


@pytest.mark.parametrize("target", sorted(load_targets()))
@pytest.mark.parametrize(
    "facts",
    [
        GemmFacts(4096, 4096, 4096),
        GemmFacts(1, 1000, 2048, dtype="float16"),
        GemmFacts(100, 30, 77, batch=12, precision="tf32"),
        GemmFacts(48, 512, 4096, dtype="bfloat16"),
    ],
)
def test_every_schedule_is_plausible(facts: GemmFacts, target: str) -> None:
    gpu = load_targets()[target]
    found = gemm_schedules(facts, gpu)
    assert 1 <= len(found) <= 10
    for schedule in found:
        buffers = schedule["num_stages"] - 1 or 1
        rim = schedule["BLOCK_M"] + schedule["BLOCK_N"]
        size = 4 if facts.dtype == "float32" else 2
        used = rim * schedule["BLOCK_K"] * buffers * size
        assert used <= gpu.shared_kb_per_block.value * 1024
        assert emit_gemm(spec_of(facts.dtype), schedule).launch


@pytest.mark.parametrize("b_layout", ["k", "n"])
@pytest.mark.parametrize(("planes", "kind", "products"), [(1, "f16", 3), (2, "bf16", 6)])
@pytest.mark.parametrize("depth", [32, 64])
def test_planes_and_parts_multiply_in_16_bits_and_spill_nothing(
    planes: int, kind: str, products: int, depth: int, b_layout: str
) -> None:
    schedule = {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": depth, "GROUP_M": 8}
    schedule |= {"SPLIT_K": 1, "num_warps": 8, "num_stages": 3, "PLANES": planes}
    cost = cost_of(spec_of(b_layout=b_layout), schedule)
    assert cost.stack_bytes == 0
    assert cost.ptx.count(f".f32.{kind}.{kind}") == products * depth // 16
    assert cost.ptx.count(".f32.tf32.tf32") == 3 * 2


@pytest.mark.parametrize("b_layout", ["k", "n"])
def test_programs_that_stay_spill_nothing(b_layout: str) -> None:
    hopper = load_targets()["h200"]
    facts = GemmFacts(8192, 6144, 4096, dtype="bfloat16", b_layout=b_layout)
    found = [item for item in gemm_schedules(facts, hopper) if "PERSIST" in item]
    assert [item["PERSIST"] for item in found] == [132] * 6
    assert [item.get("DESCRIPTORS", 0) for item in found] == [2] * 3 + [0] * 3
    assert found[0] == gemm_schedules(facts, hopper)[0]
    for schedule in found:
        spec = spec_of("bfloat16", b_layout=b_layout)
        cost = cost_of(spec, schedule | {"PROGRAMS": 132})
        assert cost.stack_bytes == 0
        assert cost.shared_bytes <= 227 * 1024
        described = "DESCRIPTORS" in schedule
        assert "min(132, " in emit_gemm(spec, schedule).launch[described]
        assert ("cp.async.bulk.tensor" in cost.ptx) == described
        assert ("cp.async.cg" in cost.ptx) != described
    drawn = sampled_gemm_schedules(facts, hopper, 64)
    assert any("PERSIST" in item for item in drawn)
    assert not any("PERSIST" in item for item in drawn if item["SPLIT_K"] > 1)
    assert not any("PERSIST" in item for item in gemm_schedules(facts, load_targets()["l40s"]))


def test_descriptors_need_fewer_instructions_than_addresses() -> None:
    """Loads by TMA and by pointers in one text: a launch of rows that begin elsewhere takes what
    the kernel without descriptors is."""
    spec = spec_of("bfloat16", epilogue=(), extras=())
    schedule = dict(zip(("BLOCK_M", "BLOCK_N", "BLOCK_K"), (128, 256, 64), strict=True))
    schedule |= {"GROUP_M": 8, "SPLIT_K": 1, "num_warps": 8, "num_stages": 3}
    schedule |= {"PERSIST": 132, "PROGRAMS": 132}
    plain = cost_of(spec, schedule)
    loads, both = (cost_of(spec, schedule | {"DESCRIPTORS": kind}) for kind in (1, 2))
    apart = cost_of(spec, schedule | {"DESCRIPTORS": 2, "DESCRIBED": False, "DESCRIBED_OUT": False})
    assert apart.instructions == plain.instructions
    assert loads.instructions < 0.8 * plain.instructions
    assert both.registers < plain.registers
    assert loads.ptx.count("cp.async.bulk.tensor") == 2 * 3
    assert both.ptx.count("cp.async.bulk.tensor") > 2 * 3


@pytest.mark.parametrize("layouts", [("k", "k"), ("k", "n"), ("m", "k")])
@pytest.mark.parametrize(("target", "multiplies"), [
    ("h200", "wgmma.mma_async"), ("b200", "tcgen05.mma"), ("rtx5090", "mma.sync"),
])  # fmt: skip
def test_descriptors_fit_every_card_that_has_them(
    target: str, multiplies: str, layouts: tuple[str, str]
) -> None:
    gpu = load_targets()[target]
    facts = GemmFacts(8192, 8192, 4096, 1, "bfloat16", "strict", *layouts)
    found = [item for item in gemm_schedules(facts, gpu) if "DESCRIPTORS" in item]
    assert len(found) == 3
    for schedule in {str(item | {"GROUP_M": 8}): item for item in found}.values():
        spec = spec_of("bfloat16", a_layout=layouts[0], b_layout=layouts[1])
        cost = cost_of(spec, schedule | {"PROGRAMS": schedule["PERSIST"]}, int(gpu.arch))
        assert multiplies in cost.ptx
        assert cost.stack_bytes == 0
        assert cost.shared_bytes <= gpu.shared_kb_per_block.value * 1024


@pytest.mark.parametrize(
    ("facts", "target"),
    [
        (GemmFacts(8192, 8192, 4096, dtype="bfloat16"), "a100-80"),
        (GemmFacts(8192, 8192, 4096, dtype="bfloat16"), "l40s"),
        (GemmFacts(8192, 8192, 4096, dtype="bfloat16"), "mi300x"),
        (GemmFacts(8192, 8192, 4096), "h200"),
        (GemmFacts(8192, 8192, 4095, dtype="bfloat16", aligned=False), "h200"),
        (GemmFacts(512, 512, 512, batch=64, dtype="bfloat16"), "h200"),
        (GemmFacts(8192, 64, 4096, dtype="bfloat16"), "h200"),
    ],
)
def test_descriptors_are_for_what_tma_serves(facts: GemmFacts, target: str) -> None:
    gpu = load_targets()[target]
    drawn = sampled_gemm_schedules(facts, gpu, 64)
    assert not any("DESCRIPTORS" in item for item in [*gemm_schedules(facts, gpu), *drawn])


def test_drawn_descriptors_stay_and_fit() -> None:
    hopper = load_targets()["h200"]
    facts = GemmFacts(8192, 8192, 4096, dtype="bfloat16")
    drawn = sampled_gemm_schedules(facts, hopper, 256)
    assert {item.get("DESCRIPTORS", 0) for item in drawn} == {0, 1, 2}
    assert all("PERSIST" in item for item in drawn if "DESCRIPTORS" in item)
    for item in [item for item in drawn if item.get("DESCRIPTORS") == 2][:4]:
        cost = cost_of(spec_of("bfloat16"), item | {"PROGRAMS": 132})
        assert cost.shared_bytes <= hopper.shared_kb_per_block.value * 1024


def test_what_no_descriptor_stores_goes_by_pointers() -> None:
    schedule = gemm_schedules(GemmFacts(4096, 4096, 4096, dtype="float16"), load_targets()["h200"])
    spec = spec_of("float16", out_is_float=False)
    text = emit_gemm(spec, schedule[0])
    assert "a_box" in text.source
    assert "out_box" not in text.source
    batched = emit_gemm(spec_of("float16", batch_dims=1), schedule[0])
    assert "_box" not in batched.source
    assert "scratch" not in batched.helpers


@pytest.mark.parametrize(
    ("facts", "planes"),
    [
        (GemmFacts(4096, 4096, 4096), {1, 2}),
        (GemmFacts(512, 512, 512, batch=64), {1, 2}),
        (GemmFacts(128, 128, 262144), {2}),
        (GemmFacts(64, 4096, 4096), {2}),
        (GemmFacts(4096, 4096, 4096, precision="tf32"), set()),
        (GemmFacts(4096, 4096, 4096, dtype="float16"), set()),
        (GemmFacts(32, 4096, 4096), set()),
    ],
)
def test_planes_are_for_strict_fp32_products_that_are_large(
    facts: GemmFacts, planes: set[int]
) -> None:
    hopper, ada = load_targets()["h200"], load_targets()["l40s"]
    found = [schedule.get("PLANES", 0) for schedule in gemm_schedules(facts, hopper)]
    assert set(found) - {0} == planes
    assert bool(found[0]) == bool(planes)
    drawn = sampled_gemm_schedules(facts, hopper, 64)
    assert {schedule.get("PLANES", 0) for schedule in drawn} == {0} | planes
    assert not any("PLANES" in schedule for schedule in gemm_schedules(facts, ada))


def test_gates_have_their_places_for_what_they_can_take() -> None:
    """Parts that none of theirs takes left eight schedules of ten."""
    found = gemm_schedules(GemmFacts(4096, 4096, 4096, sums=2), load_targets()["h200"])
    assert len(found) == MAX_SCHEDULES
    assert all(item.get("PLANES") != 2 for item in found)


def test_a_deep_product_takes_all_of_a_large_tile() -> None:
    """What adds the slices counts by its bytes: by their number, tiles of 64 seemed best."""
    found = gemm_schedules(GemmFacts(128, 128, 262144, b_layout="n"), load_targets()["h200"])
    parts = [item for item in found if item.get("PLANES") == 2]
    assert [(item["BLOCK_M"], item["BLOCK_N"], item["SPLIT_K"]) for item in parts[:2]] == [
        (128, 128, 128)
    ] * 2


@pytest.mark.parametrize("k", [1000, 1023, 4096])
def test_parts_of_any_depth_spill_nothing(k: int) -> None:
    """With the mask that a K of no whole steps takes, a step of 64 spilled 500 bytes a thread."""
    found = gemm_schedules(GemmFacts(4096, 1024, k), load_targets()["h200"])
    parts = [item for item in found if item.get("PLANES") == 2]
    assert parts
    assert all((item["BLOCK_K"] == 64) <= (k % 64 == 0) for item in parts)
    for item in parts[:2]:
        item["EVEN_K"] = k % item["BLOCK_K"] == 0
        assert cost_of(spec_of(), item).stack_bytes == 0


def test_amd_multiplies_fp32_natively() -> None:
    schedule = gemm_schedules(GemmFacts(512, 512, 512), load_targets()["mi300x"])[0]
    assert 'input_precision="ieee"' in emit_gemm(spec_of(vendor="amd"), schedule).source


def test_the_emitted_text() -> None:
    schedules = gemm_schedules(GemmFacts(4096, 4096, 4096), load_targets()["h200"])
    plain = next(item for item in schedules if "PLANES" not in item)
    inline = schedules[0] | {"PLANES": 2}
    narrow = gemm_schedules(GemmFacts(8192, 8192, 4096, dtype="float16"), load_targets()["h200"])
    named = {"linear": plain, "linear_planes": schedules[0], "linear_planes_in_the_loop": inline}
    named["linear_descriptors"] = narrow[0]
    for name, schedule in named.items():
        text = emit_gemm(spec_of("float16" if "DESCRIPTORS" in schedule else "float32"), schedule)
        found = f"{text.source}\n\n\n" + "\n".join(text.launch) + "\n"
        golden = GOLDEN / f"{name}.py.txt"
        if os.environ.get("AGENTKERNEL_RECORD"):
            golden.write_text(found)
        assert found == golden.read_text(), "see the emitted text, then update the golden file"


def test_a_hinted_tile_leads() -> None:
    hopper = load_targets()["h200"]
    hints = {"gemm.fp32.tile": "128x64x32", "gemm.fp32.num_warps": "4", "row.num_warps": "2"}
    first = gemm_schedules(GemmFacts(4096, 4096, 4096), hopper, hints.get)[0]
    named = ("BLOCK_M", "BLOCK_N", "BLOCK_K", "num_warps", "num_stages")
    assert tuple(first[name] for name in named) == (128, 64, 32, 4, 3)
    plain = gemm_schedules(GemmFacts(4096, 4096, 4096, dtype="bfloat16"), hopper)
    assert gemm_schedules(GemmFacts(4096, 4096, 4096, dtype="bfloat16"), hopper, hints.get) == plain
    assert gemm_schedules(GemmFacts(4096, 4096, 4096), hopper, lambda _: "auto")[0] != first


def test_sizes_that_a_weight_fixes_are_constants() -> None:
    schedule = gemm_schedules(GemmFacts(4096, 4096, 4096), load_targets()["h200"])[0]
    text = emit_gemm(replace(spec_of(), n="4096", k="4100"), schedule)
    assert "N: tl.constexpr" in text.source
    launch = "\n".join(text.launch)
    assert "N=4096, K=4100, EVEN_K=False" in launch
