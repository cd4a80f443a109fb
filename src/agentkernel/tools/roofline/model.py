"""Roofline bounds of a problem, and estimated times of a candidate and of eager PyTorch."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agentkernel.domain.plan import Analysis, RooflineClass
from agentkernel.domain.profile import CompileReport, Estimate, KernelResources, OpCost
from agentkernel.domain.target import Target
from agentkernel.domain.verdict import Precision
from agentkernel.tools.roofline.op_cost import (
    LOOKUPS,
    SizeOf,
    is_free,
    op_cost,
    op_name,
    stored_bytes,
)

if TYPE_CHECKING:
    import torch
    from torch.fx import Node

    from agentkernel.tools.problem.capture import Captured

COPY_SHARE = 4300 / 4800
"""Measured copy over datasheet bandwidth on an H200: stands in where nobody measured a copy."""
LAUNCH_US = 2.0
"""Device time that a launch costs beyond its work: start, tail and drain of the grid (assumed)."""
LIBRARY_SHARE = 51 / 67
"""What cuBLAS reaches of the fp32 peak on an H200 (375 of 494 in TF32, 790 of 989 in bf16)."""
CONVOLUTION_SHARE = 187 / 494
"""The most that cuDNN's kernels reached of TF32's peak on channels-first pictures on an H200: 401
us for 75 GFLOP, 3 x 3 taps, 64 to 128 channels, 32 pictures of 128 x 128."""
FEW_CHANNELS = 16
"""Fewer in a group and cuDNN's convolutions have no tensor core, and turn no picture."""
FEW_CHANNELS_SHARE, DEPTHWISE_SHARE = 24 / 67, 2.5 / 67
"""Of the fp32 units' peak, on an H200: of 3 channels 24.6 TFLOP/s with 7 x 7 taps and 22.7 with
16 x 16; depthwise 3.0 with 7 x 7 taps and 1.9 with 3 x 3."""
KERNEL_SHARE = 174 / 330
"""What a product of ours reaches of the peak of three fp16 products on an H200 (4096 cubed; 91 of
165 as three TF32 products)."""
STEP_US = 19.0
"""One step of cuDNN's LSTM: 48 of 32 sequences and 512 units take 910 us in TF32 on an H200."""
LATENCY_BOUND_US = 5.0
"""Below this, launches rather than bytes or operations decide."""
MIXED_RATIO = 1.5
"""Memory and compute time within this factor of each other count as mixed."""
EAGER_EXTRA_PASSES = {
    "aten.cross_entropy_loss": 1,
    "aten.group_norm": 1,
    "aten.native_group_norm": 1,
    "aten.instance_norm": 1,
}
"""Ops that eager runs as one kernel more, with one more pass over the input."""
ABOVE_ESTIMATE = {"layer_norm": 220 / 127, "softmax": 255 / 64, "cross_entropy": 823 / 379}
"""Eager's measured time over its estimate on an H200, the largest found: LayerNorm of 8192 x 8192
in fp32, softmax in bf16 (278 / 127 in fp32), cross-entropy in fp32."""


@dataclass(frozen=True)
class Peak:
    """A compute peak in TFLOP/s with the reason why it applies."""

    tflops: float
    because: str


def analyse(captured: Captured, target: Target, precision: Precision = "strict") -> Analysis:
    """Bytes, operations and the roofline bound of one call, at the sizes it was captured with.

    `patterns` is left empty: which template covers what is the coder's to say.
    """
    costs = graph_costs(captured)
    bytes_min = minimum_bytes(captured)
    matmul = [cost for cost in costs if is_matmul(cost)]
    memory_us = bytes_min / (bandwidth(target) * 1e3)
    compute_us = sum(flop_time_us(cost, target, precision) for cost in costs)
    matmul_flops = sum(cost.flops for cost in matmul)
    matmul_us = sum(flop_time_us(cost, target, precision) for cost in matmul)
    bound_us = max(memory_us, compute_us)
    return Analysis(
        bytes_min=bytes_min,
        flops=sum(cost.flops for cost in costs),
        op_counts=dict(Counter(cost.op for cost in costs)),
        roofline=classify(memory_us, compute_us),
        memory_time_us=memory_us,
        compute_time_us=compute_us,
        bound_us=bound_us,
        patterns=(),
        matmul_flops=matmul_flops,
        matmul_peak_tflops=matmul_flops / matmul_us / 1e6 if matmul_us else 0.0,
        assumptions=(bandwidth_note(target), *_peak_notes(matmul, target, precision), *COUNTING),
    )


COUNTING = (
    "each input, parameter and output moves once",
    "one operation an element for pointwise ops and reductions, a transcendental counted as 1",
)


def estimate(
    report: CompileReport, analysis: Analysis, target: Target, traffic: Sequence[int] = ()
) -> Estimate:
    """Time of a candidate: for each launch the slower of its bytes and its operations.

    Bytes are those of `report` (or `traffic`, one figure a launch). The problem's matrix operations
    are split over the launches that use tensor cores, the rest over all launches, by bytes; library
    ops bring their own. A grid smaller than the GPU gets the share of it that it fills, and a last,
    partial wave takes its operations as long as a full one.
    """
    moved = list(traffic) or list(report.traffic)
    launches = list(zip(report.kernels, moved, strict=True))
    matmul, other = _own_flops(report, analysis)
    matrix_bytes = sum(size for kernel, size in launches if kernel.tensor_core) or sum(moved)
    parts: list[tuple[float, float]] = []
    for kernel, size in launches:
        uses_matrix = bool(kernel.tensor_core) or not any(k.tensor_core for k in report.kernels)
        share = size / matrix_bytes if uses_matrix and matrix_bytes else 0.0
        matrix_peak = _matrix_peak(kernel, analysis, target) * KERNEL_SHARE or math.inf
        compute_us = matmul * share / (matrix_peak * 1e6)
        own = size / sum(moved) if sum(moved) else 0.0
        compute_us += other * own / (vector_peak(target).tflops * 1e6)
        memory_us = size / (bandwidth(target) * 1e3)
        busy, wave = busy_share(kernel, target), wave_share(kernel, target)
        parts.append((memory_us / busy, compute_us / wave))
    parts += [
        (_memory_us(cost, target), _library_us(cost, target)) for cost in report.library_costs
    ]
    library_bytes = sum(cost.bytes_moved for cost in report.library_costs)
    return _estimate(parts, target, sum(moved) + library_bytes, analysis.flops)


def _matrix_peak(kernel: KernelResources, analysis: Analysis, target: Target) -> float:
    """TFLOP/s that apply to a kernel: a strict fp32 product whose operands are not split into fp16
    planes is three TF32 products or six of bf16, at half their rate."""
    peak = analysis.matmul_peak_tflops
    strict = target.has_wgmma and peak <= target.peak_tflops["fp16"].value / 3 + 1
    return peak / 2 if strict and kernel.tensor_core in ("wgmma", "wgmma.bf16") else peak


def least_estimate_us(analysis: Analysis) -> float:
    """The least time in microseconds that `estimate` gives anything that does all of the problem:
    one launch that moves the least bytes and fills the GPU, products at a library's share."""
    peak_us = analysis.matmul_flops / (analysis.matmul_peak_tflops * 1e6 or math.inf)
    compute_us = analysis.compute_time_us - peak_us + peak_us / LIBRARY_SHARE
    return max(analysis.memory_time_us, compute_us) + LAUNCH_US


def estimate_eager(captured: Captured, target: Target, precision: Precision = "strict") -> Estimate:
    """Time of eager PyTorch: one library kernel an op, each on the same roofline.

    fp32 products run in IEEE fp32 and fp32 convolutions in TF32, as PyTorch's defaults have it;
    where `precision` allows more than strict rounding, PyTorch's products take TF32 as well.
    """
    allowed = "eager" if precision == "strict" else "tf32"
    costs = graph_costs(captured)
    parts: list[tuple[float, float]] = []
    moved = 0
    for cost in costs:
        extra = EAGER_EXTRA_PASSES.get(cost.op, 0)
        moved += cost.bytes_moved * (2 + extra) // 2
        memory_us = _memory_us(cost, target) * (2 + extra) / 2
        parts.append((memory_us, _library_us(cost, target, allowed)))
        parts += [(0.0, 0.0)] * extra
    return _estimate(parts, target, moved, sum(cost.flops for cost in costs))


def slowest_eager_us(captured: Captured, target: Target, precision: Precision = "strict") -> float:
    """Eager's estimated time where each operator takes as many times its estimate as it did where
    it was measured: the upper end of what an estimate can say."""
    allowed = "eager" if precision == "strict" else "tf32"
    total = 0.0
    for cost in graph_costs(captured):
        passes = 1 + EAGER_EXTRA_PASSES.get(cost.op, 0) / 2
        memory_us = passes * _memory_us(cost, target)
        own_us = max(memory_us, _library_us(cost, target, allowed)) + LAUNCH_US
        total += own_us * _above_estimate(cost)
    return max(total, estimate_eager(captured, target, precision).time_us)


def _above_estimate(cost: OpCost) -> float:
    name = cost.op.removeprefix("aten.").partition(".")[0].strip("_")
    return next((most for word, most in ABOVE_ESTIMATE.items() if word in name), 1.0)


def bandwidth(target: Target) -> float:
    """GB/s that a kernel can reach: the measured copy, else the datasheet's times COPY_SHARE."""
    if target.copy_gb_per_s is not None:
        return target.copy_gb_per_s.value
    return target.dram_gb_per_s.value * COPY_SHARE


def bandwidth_note(target: Target) -> str:
    """Where `bandwidth` comes from, for people."""
    if target.copy_gb_per_s is not None:
        return f"bandwidth {bandwidth(target):.0f} GB/s: copy measured on this model"
    return (
        f"bandwidth {bandwidth(target):.0f} GB/s: datasheet x {COPY_SHARE:.3f}, "
        "the share that a copy reaches on an H200"
    )


def classify(memory_us: float, compute_us: float) -> RooflineClass:
    """What bounds a call whose bytes and operations would take these times alone."""
    if max(memory_us, compute_us) < LATENCY_BOUND_US:
        return "latency"
    if compute_us > memory_us * MIXED_RATIO:
        return "compute"
    return "memory" if memory_us > compute_us * MIXED_RATIO else "mixed"


def matmul_peak(
    target: Target, dtype: str, precision: Precision | str, *, convolution: bool = False
) -> Peak:
    """The peak that a product of `dtype` operands can claim under `precision`.

    "eager" is PyTorch's default: fp32 products in IEEE fp32, fp32 convolutions in TF32.
    """
    peaks = {key: item.value for key, item in target.peak_tflops.items()}
    fp32 = peaks["fp32"]
    if dtype in ("float16", "bfloat16"):
        key = "fp16" if dtype == "float16" else "bf16"
        return Peak(peaks[key], f"{key} tensor cores")
    if dtype == "float64":
        return Peak(peaks.get("fp64", fp32 / 64), "fp64")
    if dtype in ("int8", "uint8"):
        return Peak(peaks.get("int8", fp32), "int8")
    if dtype != "float32" or "tf32" not in peaks:
        return Peak(fp32, "fp32 units")
    if precision == "bf16":
        return Peak(peaks["bf16"], "bf16 tensor cores, as asked for")
    if precision == "tf32" or convolution:
        reason = "as asked for" if precision == "tf32" else "as eager's convolutions"
        return Peak(peaks["tf32"], f"TF32 tensor cores, {reason}")
    if precision == "eager":
        return Peak(fp32, "IEEE fp32 units, as eager's products")
    split, name = (peaks["tf32"] / 3, "tf32x3, a third of TF32")
    if target.vendor == "amd":
        split, name = (peaks["bf16"] / 6, "bf16x6, a sixth of bf16")
    elif target.has_wgmma:
        split, name = (peaks["fp16"] / 3, "three products of fp16 planes, a third of fp16")
    return (
        Peak(split, name) if split > fp32 else Peak(fp32, "IEEE fp32 units, above split products")
    )


def vector_peak(target: Target, dtype: str = "float32") -> Peak:
    """The peak of pointwise work: the fp32 units, or the fp64 ones."""
    key = "fp64" if dtype == "float64" and "fp64" in target.peak_tflops else "fp32"
    return Peak(target.peak_tflops[key].value, f"{key} units")


def is_matmul(cost: OpCost) -> bool:
    """True for ops that run on matrix units."""
    return cost.kind in ("matmul", "convolution", "attention")


def flop_time_us(cost: OpCost, target: Target, precision: Precision | str) -> float:
    """Time of an op's operations at the peak that applies to it."""
    if not is_matmul(cost):
        return cost.flops / (vector_peak(target, cost.dtype).tflops * 1e6)
    convolution = cost.kind == "convolution"
    peak = matmul_peak(target, cost.dtype, precision, convolution=convolution)
    return cost.flops / (peak.tflops * 1e6)


def busy_share(kernel: KernelResources, target: Target) -> float:
    """Share of the SMs that have a block at all; bandwidth is taken to scale with it."""
    blocks = math.prod(kernel.grid)
    return min(1.0, blocks / target.sm_count.value) if blocks else 1.0


def wave_share(kernel: KernelResources, target: Target) -> float:
    """Share of the GPU's operations that a grid can use: idle SMs, and the last, partial wave."""
    warps = int(target.threads_per_sm.value) // target.warp_size
    resident = max(1, round((kernel.occupancy or 1.0) * warps / kernel.num_warps))
    waves = math.prod(kernel.grid) / (target.sm_count.value * resident)
    return waves / math.ceil(waves) if waves > 1 else busy_share(kernel, target)


def graph_costs(captured: Captured) -> tuple[OpCost, ...]:
    """The cost of each op of the graph that does device work, in order."""
    size_of = sizes_of(captured)
    costs: list[OpCost] = []
    for node in captured.graph.graph.nodes:
        if node.op != "call_function" or is_free(node.target) or not _has_tensor(node):
            continue
        if _hands_on(node):
            continue
        args = [_value(item) for item in node.args]
        costs.append(op_cost(node.target, args, node.meta["val"], size_of))
    return tuple(costs)


def _hands_on(node: Node) -> bool:
    """Whether it is a dropout that drops nothing: eager returns its input, of which the export
    makes a copy."""
    line = str(node.meta.get("stack_trace", "")).strip().rpartition("\n")[2]
    return op_name(node.target) == "aten.clone" and "dropout" in line


def minimum_bytes(captured: Captured) -> int:
    """Inputs, parameters and buffers that are used, and outputs, each once.

    A table that is only looked up counts with what is read of it.
    """
    size_of = sizes_of(captured)
    total = 0
    nodes = {node.name: node for node in captured.graph.graph.nodes}
    for node in captured.graph.graph.nodes:
        if node.op == "placeholder" and node.users and _has_tensor(node):
            total += _read_bytes(node, size_of)
    for name in dict.fromkeys(item for item in captured.outputs if item is not None):
        if name in nodes and nodes[name].op != "placeholder":
            total += sum(stored_bytes(item, size_of) for item in _tensors(nodes[name].meta["val"]))
    return total


def sizes_of(captured: Captured) -> SizeOf:
    """Symbolic sizes to elements, at the sizes of the shape set that was captured."""
    sizes = {item.symbol: item.size for item in captured.free_dims}

    def size_of(size: object) -> int:
        expression = getattr(getattr(size, "node", None), "expr", None)
        if expression is None:
            return int(size)  # type: ignore[call-overload, no-any-return]
        known: Mapping[object, int] = {
            symbol: sizes[str(symbol)] for symbol in expression.free_symbols if str(symbol) in sizes
        }
        value = expression.subs(known)
        # A size that depends on data has no hint: it is counted as one.
        return int(value) if value.is_number else int(size.node.hint or 1)  # type: ignore[attr-defined]

    return size_of


def _read_bytes(node: Node, size_of: SizeOf) -> int:
    whole = sum(stored_bytes(item, size_of) for item in _tensors(node.meta["val"]))
    if not all(op_name(user.target).startswith(LOOKUPS) for user in node.users):
        return whole
    if not all(user.args and user.args[0] is node for user in node.users):
        return whole
    read = [
        stored_bytes(item, size_of) for user in node.users for item in _tensors(user.meta["val"])
    ]
    return min(whole, sum(read))


def _own_flops(report: CompileReport, analysis: Analysis) -> tuple[float, float]:
    """Matrix and other operations that are left to the kernels, library ops taken out."""
    library = sum(cost.flops for cost in report.library_costs if is_matmul(cost))
    rest = sum(cost.flops for cost in report.library_costs if not is_matmul(cost))
    matmul = max(0, analysis.matmul_flops - library)
    return matmul, max(0, analysis.flops - analysis.matmul_flops - rest)


def _estimate(
    parts: Sequence[tuple[float, float]], target: Target, moved: int, flops: int
) -> Estimate:
    memory = sum(item[0] for item in parts)
    compute = sum(item[1] for item in parts)
    launches = LAUNCH_US * len(parts)
    bound = max(("memory", memory), ("compute", compute), ("latency", launches), key=lambda x: x[1])
    return Estimate(
        target=target.name,
        time_us=sum(max(item) for item in parts) + launches,
        bytes_moved=moved,
        flops=flops,
        bound=bound[0],
        assumptions=(
            bandwidth_note(target),
            f"{LAUNCH_US:g} us a launch on the device, {len(parts)} launches",
            "each operand of a launch moves once; nothing stays in L2 between launches",
            f"matrix products reach {KERNEL_SHARE:.0%} of the peak in a kernel and "
            f"{LIBRARY_SHARE:.0%} in a library, convolutions {CONVOLUTION_SHARE:.0%} there, as "
            "measured on an H200",
        ),
    )


def library_call_us(cost: OpCost, target: Target) -> float:
    """Estimated time in microseconds of a library call under PyTorch's default precision."""
    return LAUNCH_US + max(_memory_us(cost, target), _library_us(cost, target))


def _library_us(cost: OpCost, target: Target, precision: str = "eager") -> float:
    """Time of a library op's operations: its share of the peak where it is a product, and what a
    recurrent layer's steps take one after the other."""
    if cost.steps:
        return max(cost.steps * STEP_US, flop_time_us(cost, target, precision))
    if _has_few_channels(cost):
        share = DEPTHWISE_SHARE if cost.channels == 0 else FEW_CHANNELS_SHARE
        return cost.flops / (vector_peak(target).tflops * 1e6) / share
    share = LIBRARY_SHARE if is_matmul(cost) else 1.0
    share = CONVOLUTION_SHARE if cost.kind == "convolution" else share
    return flop_time_us(cost, target, precision) / share + _turning_us(cost, target)


def _has_few_channels(cost: OpCost) -> bool:
    return cost.channels is not None and cost.channels < FEW_CHANNELS


def _memory_us(cost: OpCost, target: Target) -> float:
    return cost.bytes_moved / (bandwidth(target) * 1e3) + _turning_us(cost, target)


def _turning_us(cost: OpCost, target: Target) -> float:
    """Time in which cuDNN turns a channels-first picture channels-last, and the result back, by
    kernels of their own (84 and 203 us beside the 401 us of CONVOLUTION_SHARE)."""
    turned = cost.kind == "convolution" and not _has_few_channels(cost)
    return 2 * cost.bytes_moved / (bandwidth(target) * 1e3) if turned else 0.0


def _peak_notes(costs: Sequence[OpCost], target: Target, precision: Precision) -> tuple[str, ...]:
    notes: dict[str, None] = {}
    for cost in costs:
        convolution = cost.kind == "convolution"
        peak = matmul_peak(target, cost.dtype, precision, convolution=convolution)
        notes[f"{cost.kind} {cost.dtype} at {peak.tflops:.0f} TFLOP/s: {peak.because}"] = None
    return tuple(notes)


def _has_tensor(node: Node) -> bool:
    return "val" in node.meta and any(True for _ in _tensors(node.meta["val"]))


def _value(item: object) -> object:
    """An argument as its traced value: nodes become the tensors they stand for."""
    if isinstance(item, list | tuple):
        return [_value(part) for part in item]
    meta = getattr(item, "meta", None)
    return item if meta is None else meta.get("val")


def _tensors(value: object) -> Iterator[torch.Tensor]:
    import torch

    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _tensors(item)
