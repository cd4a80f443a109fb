"""Target GPUs and their limits, each constant with its source."""

from __future__ import annotations

from typing import Literal

from agentkernel.domain.base import Frozen


class Sourced(Frozen):
    """A constant with where it comes from (vendor document or measurement) and when."""

    value: float
    source: str
    date: str


class Target(Frozen):
    """A GPU. Peaks are dense. `peak_tflops` keys: fp64, fp32, tf32, fp16, bf16, fp8, int8."""

    name: str
    aliases: tuple[str, ...] = ()
    title: str
    vendor: Literal["nvidia", "amd"]
    arch: str
    """Triton's architecture: "90" for sm_90, "gfx942" for CDNA3."""
    warp_size: int
    sm_count: Sourced
    clock_mhz: Sourced
    dram_gb: Sourced
    dram_gb_per_s: Sourced
    copy_gb_per_s: Sourced | None = None
    """Measured device-to-device copy, read + write counted; None where nobody measured it."""
    l2_mb: Sourced
    shared_kb_per_sm: Sourced
    shared_kb_per_block: Sourced
    registers_per_sm: Sourced
    threads_per_sm: Sourced
    blocks_per_sm: Sourced
    tdp_w: Sourced
    peak_tflops: dict[str, Sourced]

    @property
    def has_wgmma(self) -> bool:
        """Hopper's wgmma or data-centre Blackwell's tcgen05: operands stay in shared memory."""
        return self.vendor == "nvidia" and self.arch in ("90", "100")

    @property
    def capability(self) -> tuple[int, int] | None:
        """CUDA compute capability, None for AMD."""
        return (int(self.arch[:-1]), int(self.arch[-1])) if self.vendor == "nvidia" else None
