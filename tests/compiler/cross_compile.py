"""Emitted text as a module, and what its kernels cost compiled for a GPU that is not here."""

from __future__ import annotations

import atexit
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
import types
from dataclasses import dataclass
from pathlib import Path

os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

POINTERS = {"float32": "*fp32", "float16": "*fp16", "bfloat16": "*bf16"}
HEAD = (
    "import torch\nimport triton\nimport triton.language as tl\n"
    "from triton.language.extra import libdevice\n\n\n"
)


@dataclass(frozen=True)
class Cost:
    """Registers a thread, stack bytes (spills), shared bytes and SASS instructions of a kernel;
    its PTX."""

    registers: int
    stack_bytes: int
    shared_bytes: int
    instructions: int
    ptx: str


def imported(text: str, head: str = HEAD) -> types.ModuleType:
    """Triton reads kernels from a file, which stays until the process ends."""
    folder = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    name = f"emitted_{folder.name}"
    path = folder / f"{name}.py"
    path.write_text(head + text)
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def compiled_cost(
    kernel: object,
    signature: dict[str, str],
    constants: dict[str, object],
    options: dict[str, int],
    arch: int = 90,
    *,
    odd: bool = False,
) -> Cost:
    """Compile with every pointer and, unless they are `odd`, every size divisible by 16, as for the
    usual shapes."""
    sized = tuple(
        kind for kind in signature.values() if kind == "constexpr" or (odd and kind[0] != "*")
    )
    aligned = [index for index, kind in enumerate(signature.values()) if kind not in sized]
    source = ASTSource(
        kernel,
        signature,
        constexprs=constants,
        attrs={(index,): [["tt.divisibility", 16]] for index in aligned},
    )
    built = triton.compile(source, target=GPUTarget("cuda", arch, 32), options=options)
    path = built.metadata_group[f"{built.metadata.name}.cubin"]
    usage = re.search(r"REG:(\d+) STACK:(\d+)", _told("cuobjdump", "--dump-resource-usage", path))
    assert usage is not None, path
    lines = re.findall(r"/\*[0-9a-f]{4,}\*/\s+(?!NOP|\s)", _told("nvdisasm", "-c", path))
    shared = int(built.metadata.shared)
    return Cost(int(usage[1]), int(usage[2]), shared, len(lines), built.asm["ptx"])


def _told(tool: str, *arguments: str) -> str:
    """What one of the CUDA tools that come with Triton prints."""
    path = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / tool
    done = subprocess.run([path, *arguments], capture_output=True, text=True, check=True)
    return done.stdout
