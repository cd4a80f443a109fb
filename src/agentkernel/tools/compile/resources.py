"""What does a compiled kernel's binary say of its registers, local memory and tensor cores?"""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

USAGE = re.compile(r"REG:(?P<registers>\d+) STACK:(?P<stack>\d+) .*?LOCAL:(?P<local>\d+)")
TENSOR_CORE_PTX = (
    ("wgmma", re.compile(r"\bwgmma\.mma_async")),
    ("tcgen05", re.compile(r"\btcgen05\.mma")),
    ("mma", re.compile(r"\b(?:mma|wmma)\.(?:sync|mma)")),
)
CUOBJDUMP_TIMEOUT_S = 30


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
    text = _cuobjdump(file)
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


def _cuobjdump(file: Path) -> str:
    """Output of `cuobjdump --dump-resource-usage`, "" where Triton ships none."""
    import triton

    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    if not tool.exists():
        return ""
    done = subprocess.run(
        [str(tool), "--dump-resource-usage", str(file)],
        capture_output=True,
        text=True,
        timeout=CUOBJDUMP_TIMEOUT_S,
        check=False,
    )
    return done.stdout
