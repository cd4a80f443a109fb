import pytest
import torch
import torch.nn.functional as F
from torch import nn

from agentkernel.domain.profile import CompileReport, KernelResources, OpCost
from agentkernel.tools.problem.capture import capture
from agentkernel.tools.problem.loading import problem_from_module
from agentkernel.tools.roofline.model import (
    KERNEL_SHARE,
    LAUNCH_US,
    LIBRARY_SHARE,
    analyse,
    bandwidth,
    busy_share,
    classify,
    estimate,
    estimate_eager,
    graph_costs,
    library_call_us,
    matmul_peak,
    minimum_bytes,
    wave_share,
)
from agentkernel.tools.targets import load_targets

H200, H100, MI300X = (load_targets()[name] for name in ("h200", "h100-sxm", "mi300x"))
RTX4090 = load_targets()["rtx4090"]


def captured(module, *inputs):
    return capture(problem_from_module(module, inputs))


class LinearGelu(nn.Module):
    def __init__(self, bias=True):
        super().__init__()
        self.linear = nn.Linear(2048, 1024, bias=bias)

    def forward(self, x):
        return F.gelu(self.linear(x))


class Lookup(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(50_000, 64)

    def forward(self, index, x, ignored):
        return self.table(index), x, (x + 1).sum(1)


def kernel(**changes):
    values = {
        "name": "k",
        "grid": (1320, 1, 1),
        "num_warps": 8,
        "num_stages": 3,
        "registers": 32,
        "spill_bytes": 0,
        "shared_bytes": 0,
        "occupancy": 1.0,
        "tensor_core": None,
        "constants": {},
        "compile_s": 0.1,
        "bytes_touched": 4_300_000,
    }
    return KernelResources.model_validate(values | changes)


def test_linear_and_gelu_against_closed_forms():
    found = analyse(captured(LinearGelu(), torch.empty(4096, 2048, device="meta")), H200)
    product = 2 * 4096 * 1024 * 2048 + 4096 * 1024
    assert (found.matmul_flops, found.flops) == (product, product + 4096 * 1024)
    assert found.bytes_min == 4 * (4096 * 2048 + 1024 * 2048 + 1024 + 4096 * 1024)
    assert found.matmul_peak_tflops == pytest.approx(989.5 / 3)
    assert found.compute_time_us == pytest.approx(product / (989.5 / 3 * 1e6), rel=0.01)
    assert found.memory_time_us == pytest.approx(found.bytes_min / 4.3e6)
    assert found.roofline == "compute"
    assert found.bound_us == found.compute_time_us
    assert (found.op_counts, found.patterns) == ({"aten.linear": 1, "aten.gelu": 1}, ())
    assert any("fp16 planes" in note for note in found.assumptions)


def test_layernorm_is_bound_by_memory():
    module = nn.LayerNorm(8192)
    found = analyse(captured(module, torch.empty(8192, 8192, device="meta")), H200)
    assert (found.bytes_min, found.roofline) == (4 * (2 * 8192 * 8192 + 2 * 8192), "memory")
    assert found.bound_us == pytest.approx(124.87, abs=0.01)


def test_small_problems_are_bound_by_latency():
    found = analyse(captured(nn.ReLU(), torch.empty(64, 64, device="meta")), H200)
    assert found.roofline == "latency"


def test_unused_inputs_and_unread_rows_do_not_count():
    rows = torch.empty(128, 256, device="meta")
    graph = captured(Lookup(), torch.zeros(32, dtype=torch.long), rows, rows.clone())
    assert minimum_bytes(graph) == 32 * 8 + 2 * (32 * 64 * 4) + 4 * (128 * 256 + 128)


def test_symbolic_sizes_are_the_shape_sets():
    graph = captured(nn.ReLU(), torch.empty(37, 129, device="meta"))
    assert graph.free_dims
    (cost,) = graph_costs(graph)
    assert cost.flops == 37 * 129
    assert isinstance(cost.bytes_moved, int)


@pytest.mark.parametrize(
    ("target", "dtype", "precision", "convolution", "tflops"),
    [
        (H200, "float32", "strict", False, 989.5 / 3),
        (H200, "float32", "strict", True, 494.5),
        (H200, "float32", "tf32", False, 494.5),
        (H200, "float32", "bf16", False, 989.5),
        (H200, "float32", "eager", False, 67),
        (H200, "float32", "eager", True, 494.5),
        (H200, "bfloat16", "strict", False, 989.5),
        (H200, "float64", "strict", False, 34),
        (RTX4090, "float32", "strict", False, 82.6),
        (MI300X, "float32", "strict", False, 1307.4 / 6),
    ],
)
def test_the_compute_peak_knows_precision(target, dtype, precision, convolution, tflops):
    found = matmul_peak(target, dtype, precision, convolution=convolution)
    assert found.tflops == pytest.approx(tflops)
    assert found.because


def test_bandwidth_is_measured_or_scaled_from_the_datasheet():
    assert bandwidth(H200) == 4300
    assert bandwidth(H100) == pytest.approx(3350 * 4300 / 4800)


@pytest.mark.parametrize(
    ("memory", "compute", "expected"),
    [(1, 2, "latency"), (100, 20, "memory"), (20, 100, "compute"), (100, 90, "mixed")],
)
def test_classes(memory, compute, expected):
    assert classify(memory, compute) == expected


def test_a_memory_bound_launch_takes_its_bytes_over_the_bandwidth():
    graph = captured(nn.ReLU(), torch.empty(512, 1024, device="meta"))
    report = CompileReport(target="h200", kernels=(kernel(), kernel()))
    found = estimate(report, analyse(graph, H200), H200)
    assert (found.time_us, found.bytes_moved) == (pytest.approx(2 * (1.0 + LAUNCH_US)), 8_600_000)
    assert any("launch" in note for note in found.assumptions)
    doubled = estimate(report, analyse(graph, H200), H200, traffic=(8_600_000, 8_600_000))
    assert doubled.time_us == pytest.approx(2 * (2.0 + LAUNCH_US))


def test_a_dropout_that_drops_nothing_is_no_launch_of_eagers():
    """Eager hands its input on; the graph has a copy there."""

    class Dropped(nn.Module):
        def __init__(self, drop):
            super().__init__()
            self.drop = drop

        def forward(self, x):
            return torch.relu(self.drop(x).clone() + 1)

    x = torch.empty(64, 64)
    found = [
        estimate_eager(captured(Dropped(drop).eval(), x), H200).time_us
        for drop in (nn.Identity(), nn.Dropout(0.1), nn.Dropout1d(0.1))
    ]
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize(("unit", "rate"), [("wgmma.f16", 1), ("wgmma", 2), ("wgmma.bf16", 2)])
def test_matrix_work_goes_to_the_launch_with_tensor_cores(unit, rate):
    graph = captured(LinearGelu(), torch.empty(4096, 2048, device="meta"))
    analysis = analyse(graph, H200)
    small = kernel(bytes_touched=4300, grid=(1056, 1, 1))
    product = kernel(tensor_core=unit, grid=(1056, 1, 1), bytes_touched=4300)
    found = estimate(CompileReport(target="h200", kernels=(small, product)), analysis, H200)
    matrix_us = analysis.matmul_flops / (989.5 / 3 / rate * KERNEL_SHARE * 1e6)
    assert found.time_us == pytest.approx(matrix_us + 2 * LAUNCH_US, rel=0.01)
    assert found.bound == "compute"


def test_library_ops_take_their_own_time_and_leave_less_to_the_kernels():
    graph = captured(LinearGelu(bias=False), torch.empty(4096, 2048, device="meta"))
    analysis = analyse(graph, H200)
    flops = 2 * 4096 * 1024 * 2048
    library = OpCost(op="aten.mm", dtype="float32", bytes_moved=1000, flops=flops, kind="matmul")
    report = CompileReport(
        target="h200", kernels=(kernel(),), library_ops=("aten.mm",), library_costs=(library,)
    )
    found = estimate(report, analysis, H200)
    expected = flops / (67 * LIBRARY_SHARE * 1e6) + 1.0 + 2 * LAUNCH_US
    assert found.time_us == pytest.approx(expected, rel=0.01)


def test_eager_runs_one_kernel_an_op():
    graph = captured(LinearGelu(), torch.empty(4096, 2048, device="meta"))
    found = estimate_eager(graph, H200)
    product = (2 * 4096 * 1024 * 2048 + 4096 * 1024) / (67 * LIBRARY_SHARE * 1e6)
    gelu = 2 * 4 * 4096 * 1024 / 4.3e6
    assert found.time_us == pytest.approx(product + gelu + 2 * LAUNCH_US, rel=0.001)


def test_eager_takes_tf32_where_a_candidate_may():
    graph = captured(LinearGelu(), torch.empty(4096, 2048, device="meta"))
    strict, loose = estimate_eager(graph, H200), estimate_eager(graph, H200, "tf32")
    saved = (2 * 4096 * 1024 * 2048 + 4096 * 1024) / 1e6 / LIBRARY_SHARE
    tf32 = H200.peak_tflops["tf32"].value
    assert strict.time_us - loose.time_us == pytest.approx(saved / 67 - saved / tf32, rel=0.01)
    assert estimate_eager(graph, H200, "bf16").time_us == loose.time_us


def test_small_grids_fill_part_of_the_gpu():
    half = kernel(grid=(66, 1, 1))
    assert busy_share(half, H200) == wave_share(half, H200) == pytest.approx(0.5)
    assert busy_share(kernel(grid=(132, 1, 1)), H200) == 1.0
    assert wave_share(kernel(grid=(132, 1, 1)), H200) == 1.0
    # 8 resident blocks on each of 132 SMs: 1056 a wave, so 1320 are 1.25 waves in the time of 2.
    assert wave_share(kernel(grid=(1320, 1, 1)), H200) == pytest.approx(1.25 / 2)
    assert busy_share(kernel(grid=(1320, 1, 1)), H200) == 1.0


def test_a_librarys_convolution_moves_its_picture_three_times() -> None:
    graph = captured(nn.Conv2d(32, 32, 1), torch.empty(64, 32, 128, 128))
    (cost,) = graph_costs(graph)
    moved_us = cost.bytes_moved / (bandwidth(H200) * 1e3)
    assert estimate_eager(graph, H200).time_us == pytest.approx(3 * moved_us + LAUNCH_US)
    assert estimate_eager(graph, H200).bytes_moved == cost.bytes_moved


@pytest.mark.parametrize(
    ("conv", "sizes", "measured_us"),
    [
        (nn.Conv2d(3, 768, 16, stride=16), (128, 3, 224, 224), 1304),
        (nn.Conv2d(3, 64, 7, stride=2, padding=3), (64, 3, 224, 224), 613),
        (nn.Conv2d(192, 192, 7, padding=3, groups=192), (32, 192, 56, 56), 635),
        (nn.Conv2d(64, 64, 3, padding=1, groups=64), (16, 64, 512, 512), 2532),
        (nn.Conv2d(64, 128, 3, padding=1), (32, 64, 128, 128), 695),
    ],
    ids=["patches", "stem", "depthwise 7 x 7", "depthwise 3 x 3", "dense"],
)
def test_a_librarys_convolution_takes_about_what_was_measured(
    conv: nn.Conv2d, sizes: tuple[int, ...], measured_us: float
) -> None:
    """Eager fp32 calls on an H200: without tensor cores where few channels come into a group."""
    (cost,) = graph_costs(captured(conv, torch.empty(sizes, device="meta")))
    assert library_call_us(cost, H200) == pytest.approx(measured_us, rel=0.4)
