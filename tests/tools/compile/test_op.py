import runpy
from pathlib import Path

import pytest
import torch

from agentkernel.domain.profile import CompileReport
from agentkernel.tools.compile.worker import compile_forward
from agentkernel.tools.sandbox.worker import WorkerState
from agentkernel.tools.targets import load_targets

SOURCES = runpy.run_path(str(Path(__file__).parent / "sources.py"))
ROWS = (torch.empty(4096, 8192, device="meta"),)
HALVES = (
    torch.empty(4096, 2048, device="meta", dtype=torch.bfloat16),
    torch.empty(1024, 2048, device="meta", dtype=torch.bfloat16),
)


@pytest.fixture
def compile_for(tmp_path):
    def run(source, target, inputs, init_args=()):
        payload = {
            "source": source,
            "target": load_targets()[target].model_dump_json(),
            "init_args": init_args,
            "init_kwargs": {},
            "inputs": inputs,
            "binaries": False,
        }
        reply = compile_forward(payload, WorkerState(tmp_path, "cpu", False))
        return CompileReport.model_validate_json(str(reply["report"]))

    return run


@pytest.mark.quick(2)
@pytest.mark.parametrize("target", ["h100-sxm", "a100-80", "l4", "b200", "rtx5090", "mi300x"])
def test_layernorm_gets_plausible_resources_on_every_architecture(compile_for, target):
    report = compile_for(SOURCES["LAYERNORM"], target, ROWS, (8192,))
    (kernel,) = report.kernels
    assert (kernel.grid, kernel.constants) == ((4096, 1, 1), {"BLOCK": 8192})
    assert 32 < kernel.registers < 128
    assert kernel.spill_bytes == 0
    assert 0 < kernel.shared_bytes < 4096
    assert 0.25 <= kernel.occupancy <= 1
    assert kernel.tensor_core is None
    assert report.fits
    assert not report.spills
    assert report.traffic == (4 * (2 * 4096 * 8192 + 2 * 8192),)


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    ("target", "unit", "shared_kb"),
    [
        ("h100-sxm", "wgmma.bf16", (64, 100)),
        ("a100-80", "mma", (64, 100)),
        ("b200", "tcgen05", (64, 140)),
        ("mi300x", "mfma", (16, 64)),
    ],
)
def test_a_product_uses_the_matrix_unit_and_its_tiles_lie_in_shared_memory(
    compile_for, target, unit, shared_kb
):
    (kernel,) = compile_for(SOURCES["GEMM"], target, HALVES).kernels
    assert kernel.grid == (32, 8, 1)
    assert kernel.tensor_core == unit
    assert shared_kb[0] * 1024 <= kernel.shared_bytes <= shared_kb[1] * 1024
    assert kernel.fits


def test_a_tile_past_the_shared_memory_limit_does_not_fit(compile_for):
    large = SOURCES["GEMM"].replace("BK=64", "BK=128").replace("num_stages=3", "num_stages=5")
    (kernel,) = compile_for(large, "h100-sxm", HALVES).kernels
    assert kernel.shared_bytes > 227 * 1024
    assert not kernel.fits
    assert "shared memory" in kernel.error
    assert kernel.registers is not None


def test_a_kernel_with_too_few_threads_for_its_row_is_seen_to_spill(compile_for):
    tight = SOURCES["LAYERNORM"].replace("num_warps=8", "num_warps=1")
    report = compile_for(tight, "h100-sxm", ROWS, (8192,))
    assert report.kernels[0].registers == 255
    assert report.kernels[0].spill_bytes > 100
    assert report.spills
    assert report.fits


def test_foreign_habits_work_without_a_gpu(compile_for):
    """Autotune, heuristics, device='cuda', device queries, library ops."""
    report = compile_for(SOURCES["FOREIGN"], "h200", (torch.empty(1024, 64, device="meta"),))
    assert [kernel.constants for kernel in report.kernels] == [{"BLOCK": 256, "EVEN": True}] * 2
    assert [kernel.num_warps for kernel in report.kernels] == [2, 2]
    assert (report.kernels[0].grid, report.library_ops) == ((256, 1, 1), ("aten.mm", "aten.relu"))
    fill, product, relu = report.library_costs
    assert (fill.op, fill.bytes_moved) == ("aten.zeros", 132 * 4)
    assert product.flops == 2 * 1024 * 64 * 64
    assert product.bytes_moved == 4 * (2 * 1024 * 64 + 64 * 64)
    assert relu.flops == 1024 * 64


def test_a_forward_that_reads_values_is_tried_on_real_zeros(compile_for):
    reading = SOURCES["LAYERNORM"].replace(
        "n = x.shape[-1]", "n = x.shape[-1] + int(self.norm.bias[0].item())"
    )
    small = (torch.empty(64, 8192, device="meta"),)
    (kernel,) = compile_for(reading, "h100-sxm", small, (8192,)).kernels
    assert (kernel.grid, kernel.bytes_touched) == ((64, 1, 1), 4 * (2 * 64 * 8192 + 2 * 8192))


def test_library_attention_counts_as_one_op(compile_for):
    source = """
from torch import nn
import torch.nn.functional as F

class ModelNew(nn.Module):
    def forward(self, q, k):
        return F.scaled_dot_product_attention(q, k, value=k, is_causal=True) + 1
"""
    heads = torch.empty(2, 4, 128, 32, device="meta", dtype=torch.bfloat16)
    report = compile_for(source, "h200", (heads, heads))
    assert report.library_ops == ("aten.scaled_dot_product_attention", "aten.add")
    assert report.library_costs[0].flops == 2 * (2 * 4) * 128 * 128 * (32 + 32) // 2
    assert report.kernels == ()


def test_torch_and_triton_are_themselves_again_afterwards(compile_for):
    from triton.runtime.driver import driver
    from triton.runtime.jit import JITFunction

    before = (JITFunction.run, torch.cuda.is_available, vars(driver)["_active"])
    compile_for(SOURCES["FOREIGN"], "h200", (torch.empty(1024, 64, device="meta"),))
    assert before == (JITFunction.run, torch.cuda.is_available, vars(driver)["_active"])
    assert "is_cuda" not in vars(torch.Tensor)
    assert torch.empty(1).device.type == "cpu"
