"""Resolution of the target GPU, and whether this machine can measure for it."""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from functools import cache
from importlib import resources

import yaml

from agentkernel.domain.certificate import Versions
from agentkernel.domain.errors import UnknownTarget
from agentkernel.domain.target import Sourced, Target
from agentkernel.runtime.machine import (
    DeviceProperties,
    LocalGpu,
    device_properties,
    installed_versions,
    local_gpu,
)

DEFAULT_TARGET = "h100-sxm"
DEVICE_NAMES = {
    "h100-sxm": r"H100 (80GB HBM3|SXM)",
    "h100-pcie": r"H100 PCIe",
    "h200": r"H200(?! NVL)",
    "a100-40": r"A100-SXM4-40GB",
    "a100-80": r"A100-SXM4-80GB",
    "l4": r"L4$",
    "l40s": r"L40S",
    "rtx4090": r"RTX 4090$",
    "rtx5090": r"RTX 5090$",
    "b200": r"B200",
    "mi300x": r"MI300X",
}
"""Target name -> pattern of the name that the driver gives to that very model."""
TENSOR_FLOPS_PER_SM_CLOCK = {
    "80": 2048,
    "86": 1024,
    "89": 1024,
    "90": 4096,
    "100": 8192,
    "120": 1024,
}
"""Dense bf16 FLOP an SM and clock with fp32 accumulation, from the vendor's architecture papers."""
FP32_CORES_PER_SM = {"80": 64}


@dataclass(frozen=True)
class ResolvedTarget:
    """A target with what the machine that measures can do for it.

    `local` is that machine's GPU. `measurable`: it has the target's compute capability.
    `measured_target` is then that GPU's own description (the target itself where they are the same
    model). `host` names the machine, and `versions` what is installed there, where that is not
    this one.
    """

    target: Target
    local: LocalGpu | None
    note: str
    measurable: bool
    measured_target: Target | None = None
    host: str | None = None
    versions: Versions | None = None


def versions_of(resolved: ResolvedTarget) -> Versions:
    """What is installed where it is judged and measured."""
    return resolved.versions or installed_versions()


@cache
def load_targets() -> dict[str, Target]:
    """Every packaged target by name, in alphabetical order."""
    folder = resources.files("agentkernel.configs") / "targets"
    files = sorted(item for item in folder.iterdir() if item.name.endswith(".yaml"))  # type: ignore[type-var]
    loaded = [Target.model_validate(yaml.safe_load(item.read_text())) for item in files]
    return {target.name: target for target in loaded}


def find_target(name: str | None) -> ResolvedTarget:
    """The target called `name` (or its alias, or "local"), None meaning the local GPU, else h100.

    Raises UnknownTarget with the nearest name.
    """
    gpu = local_gpu()
    if name is not None and name.strip().lower() != "local":
        return resolve(target_by_name(name), gpu)
    if gpu is None and name is not None:
        raise UnknownTarget(
            "Target 'local' needs a GPU that NVML or torch can see, and there is none. "
            f"Expected one of: {', '.join(load_targets())}. Next: pass --target h100."
        )
    if gpu is None:
        note = f"no local GPU: target is {DEFAULT_TARGET}, all times are estimated"
        return ResolvedTarget(load_targets()[DEFAULT_TARGET], None, note, measurable=False)
    return resolve(describe(gpu), gpu)


def resolve(target: Target, gpu: LocalGpu | None) -> ResolvedTarget:
    """Say what `gpu` can measure for `target`."""
    if gpu is None:
        note = f"no local GPU: times for {target.name} are estimated"
        return ResolvedTarget(target, None, note, measurable=False)
    if gpu.arch != target.arch:
        note = (
            f"{gpu.name} has architecture {gpu.arch}, {target.name} has {target.arch}: "
            f"times for {target.name} are estimated"
        )
        return ResolvedTarget(target, gpu, note, measurable=False)
    own = target if _is_model(target.name, gpu) else describe(gpu)
    if own.name == target.name:
        return ResolvedTarget(target, gpu, f"measured on {gpu.name}", True, own)
    note = f"measured on {own.name} (same architecture), estimated for {target.name}"
    return ResolvedTarget(target, gpu, note, True, own)


def describe(gpu: LocalGpu) -> Target:
    """The packaged target of `gpu`'s model, else one built from what driver and runtime say."""
    for target in load_targets().values():
        if target.arch == gpu.arch and _is_model(target.name, gpu):
            return target
    found = device_properties(gpu.index)
    if found is None:
        raise UnknownTarget(
            f"The local GPU {gpu.name!r} is no packaged target and the runtime is silent on it. "
            f"Expected one of: {', '.join(load_targets())}. Next: pass --target with the nearest."
        )
    return build_target(gpu, found)


def build_target(gpu: LocalGpu, found: DeviceProperties) -> Target:
    """A target from queries alone; peaks from SM count, clock and the architecture's rates."""
    runtime = "torch.cuda.get_device_properties"
    clock_mhz = gpu.max_sm_clock_mhz or found.clock_khz / 1000
    memory_mhz = gpu.max_memory_clock_mhz or found.memory_clock_khz / 1000
    bus_bits = gpu.memory_bus_bits or found.memory_bus_bits
    is_cuda = gpu.capability is not None
    return Target(
        name=re.sub(r"[^a-z0-9]+", "-", gpu.name.lower()).strip("-"),
        title=gpu.name,
        vendor="nvidia" if is_cuda else "amd",
        arch=gpu.arch,
        warp_size=found.warp_size or (32 if is_cuda else 64),
        sm_count=_sourced(found.sm_count, runtime),
        clock_mhz=_sourced(clock_mhz, f"{gpu.source}, maximum clock"),
        dram_gb=_sourced(gpu.memory_bytes / 2**30, gpu.source),
        dram_gb_per_s=_sourced(
            2 * memory_mhz * bus_bits / 8000, f"{gpu.source}: bus width x memory clock x 2"
        ),
        l2_mb=_sourced(found.l2_bytes / 2**20, runtime),
        shared_kb_per_sm=_sourced(found.shared_per_sm / 1024, runtime),
        shared_kb_per_block=_sourced(found.shared_per_block / 1024, runtime),
        registers_per_sm=_sourced(found.registers_per_sm, runtime),
        threads_per_sm=_sourced(found.threads_per_sm, runtime),
        blocks_per_sm=_sourced(_same_arch_blocks(gpu.arch), "a packaged target of its generation"),
        tdp_w=_sourced(gpu.power_limit_w or 0, f"{gpu.source}, default power limit"),
        peak_tflops=_peaks(gpu.arch, found.sm_count, clock_mhz),
    )


def _peaks(arch: str, sm_count: int, clock_mhz: float) -> dict[str, Sourced]:
    """Dense peaks in TFLOP/s: SMs x FLOP an SM and clock x clock; the older rate where unknown."""
    source = "SM count x maximum clock x rate of its architecture"
    scale = sm_count * clock_mhz / 1e6
    tensor = TENSOR_FLOPS_PER_SM_CLOCK.get(arch, 1024) * scale
    fp32 = 2 * FP32_CORES_PER_SM.get(arch, 128) * scale
    rates = {"fp32": fp32, "tf32": tensor / 2, "fp16": tensor, "bf16": tensor, "int8": 2 * tensor}
    return {key: _sourced(value, source) for key, value in rates.items()}


def _same_arch_blocks(arch: str) -> float:
    same = [item for item in load_targets().values() if item.arch == arch]
    return same[0].blocks_per_sm.value if same else 16


def _sourced(value: float, source: str) -> Sourced:
    return Sourced(value=value, source=source, date="now")


def _is_model(name: str, gpu: LocalGpu) -> bool:
    pattern = DEVICE_NAMES.get(name)
    return pattern is not None and re.search(rf"\b{pattern}", gpu.name) is not None


def target_by_name(name: str) -> Target:
    """A target of the table, by its name or an alias of it. Raises UnknownTarget."""
    targets = load_targets()
    wanted = re.sub(r"[\s_]+", "-", name.strip().lower())
    names = {alias: target for target in targets.values() for alias in target.aliases} | targets
    if wanted in names:
        return names[wanted]
    near = difflib.get_close_matches(wanted, [*names, "local"], n=1, cutoff=0.5)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    raise UnknownTarget(
        f"Unknown target {name!r}.{hint} Known: {', '.join(targets)}, local. "
        "See 'agentkernel targets'."
    )
