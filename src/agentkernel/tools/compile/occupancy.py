"""How many warps of a kernel fit on one SM, and what keeps more from fitting?"""

from __future__ import annotations

import math
from dataclasses import dataclass

from agentkernel.domain.target import Target

REGISTER_UNIT = 256
"""Registers are given to a warp in units of 256 (CUDA Occupancy Calculator, capability 3.0 on)."""
WARP_UNIT = 4
"""Warps are spread over the four partitions of an SM (CUDA Occupancy Calculator)."""
SHARED_UNIT = 128
"""Shared memory is given in units of 128 bytes (CUDA Occupancy Calculator, capability 8.0 on)."""
RESERVED_SHARED = 1024
"""Bytes of shared memory a block that the system keeps (CUDA C++ Programming Guide, 8.0 on)."""
AMD_SIMDS = 4
AMD_VECTOR_UNIT = 8
AMD_VECTOR_REGISTERS = 512
"""Registers of a lane on one SIMD, given in units of 8 (CDNA 3 ISA reference guide)."""
AMD_SHARED_UNIT = 512
OVER_LIMIT = "out of resources"
"""How the error of a kernel begins that compiled but cannot be launched."""


@dataclass(frozen=True)
class Occupancy:
    """`share` of the SM's warps, 0 to 1; `limit` is what runs out first."""

    share: float
    blocks_per_sm: int
    limit: str


def occupancy(target: Target, *, registers: int, shared_bytes: int, num_warps: int) -> Occupancy:
    """Resident warps of a kernel over the most that an SM of `target` holds.

    `registers` a thread, `shared_bytes` a block without what the system reserves, `num_warps` a
    block. The formula is that of NVIDIA's CUDA Occupancy Calculator; for CDNA 3 the wave limits of
    AMD's ISA guide.
    """
    most = int(target.threads_per_sm.value) // target.warp_size
    limits = {
        "warps": most // num_warps,
        "blocks": int(target.blocks_per_sm.value),
        "registers": _by_registers(target, registers, num_warps),
        "shared": _by_shared(target, shared_bytes),
    }
    limit = min(limits, key=lambda key: limits[key])
    blocks = max(0, limits[limit])
    return Occupancy(min(1.0, blocks * num_warps / most), blocks, limit)


def _by_registers(target: Target, registers: int, num_warps: int) -> int:
    if target.vendor == "amd":
        unit = _round_up(max(1, registers), AMD_VECTOR_UNIT)
        waves_a_simd = AMD_VECTOR_REGISTERS // unit
        return waves_a_simd * AMD_SIMDS // num_warps
    a_warp = _round_up(max(1, registers) * target.warp_size, REGISTER_UNIT)
    a_partition = int(target.registers_per_sm.value) // WARP_UNIT
    warps = a_partition // a_warp * WARP_UNIT
    return (
        warps // _round_up(num_warps, WARP_UNIT) if num_warps >= WARP_UNIT else warps // num_warps
    )


def _by_shared(target: Target, shared_bytes: int) -> int:
    available = int(target.shared_kb_per_sm.value * 1024)
    if target.vendor == "amd":
        return available // _round_up(shared_bytes, AMD_SHARED_UNIT) if shared_bytes else 1 << 16
    return available // _round_up(shared_bytes + RESERVED_SHARED, SHARED_UNIT)


def _round_up(value: int, unit: int) -> int:
    return math.ceil(value / unit) * unit
