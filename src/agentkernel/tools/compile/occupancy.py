"""Occupancy of an SM by a kernel, and the registers and local memory of its binary."""

from __future__ import annotations

import math
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

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


USAGE = re.compile(r"REG:(?P<registers>\d+) STACK:(?P<stack>\d+) .*?LOCAL:(?P<local>\d+)")
TENSOR_CORE_PTX = (
    ("wgmma.f16", re.compile(r"\bwgmma\.mma_async[\w.]*\.f16\b")),
    ("wgmma.bf16", re.compile(r"\bwgmma\.mma_async[\w.]*\.bf16\b")),
    ("wgmma", re.compile(r"\bwgmma\.mma_async")),
    ("tcgen05", re.compile(r"\btcgen05\.mma")),
    ("mma", re.compile(r"\b(?:mma|wmma)\.(?:sync|mma)")),
)
TOOL_TIMEOUT_S = 30


@dataclass(frozen=True)
class BinaryFacts:
    """Registers and bytes of local memory (spills and stack) a thread, and matrix instructions."""

    registers: int | None
    spill_bytes: int | None
    tensor_core: str | None


def cubin_facts(cubin: bytes, ptx: str, scratch: Path) -> BinaryFacts:
    """Facts of an NVIDIA binary, by the `cuobjdump` that Triton ships."""
    file = scratch / "resource_usage.cubin"
    file.write_bytes(cubin)
    text = _by_tool("cuobjdump", "--dump-resource-usage", str(file))
    found = USAGE.search(text)
    tensor_core = next((name for name, pattern in TENSOR_CORE_PTX if pattern.search(ptx)), None)
    if found is None:
        return BinaryFacts(None, None, tensor_core)
    spills = int(found["stack"]) + int(found["local"])
    return BinaryFacts(int(found["registers"]), spills, tensor_core)


def amdgcn_facts(assembly: str) -> BinaryFacts:
    """Facts of an AMD kernel, from the metadata at the end of its assembly.

    Registers are vector plus accumulation registers, which share one file on CDNA 3.
    """
    vector = _field(assembly, r"\.vgpr_count:\s*(\d+)")
    scratch = _field(assembly, r"\.private_segment_fixed_size:\s*(\d+)")
    uses_mfma = re.search(r"\bv_s?mfmac?_", assembly) is not None
    return BinaryFacts(vector, scratch, "mfma" if uses_mfma else None)


def _field(text: str, pattern: str) -> int | None:
    found = re.search(pattern, text)
    return None if found is None else int(found[1])


def disassembled(cubin: bytes, scratch: Path) -> str:
    """The SASS of an NVIDIA binary, by the `nvdisasm` that Triton ships; "" where it ships none."""
    file = scratch / "disassembled.cubin"
    file.write_bytes(cubin)
    return _by_tool("nvdisasm", "--print-code", str(file))


def _by_tool(name: str, *words: str) -> str:
    """Output of one of the programs that come with Triton, "" where this one does not."""
    import triton

    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / name
    if not tool.exists():
        return ""
    done = subprocess.run(
        [str(tool), *words], capture_output=True, text=True, timeout=TOOL_TIMEOUT_S, check=False
    )
    return done.stdout
