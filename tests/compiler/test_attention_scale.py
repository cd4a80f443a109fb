"""Attention stays in fp32 where TorchInductor hands it its scale in fp64."""

from __future__ import annotations

import linecache
import re
import sys
import types
from pathlib import Path
from typing import Any

import pytest

GOLDEN = Path(__file__).parents[2] / "tests" / "golden" / "kernels" / "attention.py"
CONSTANTS = {"EVEN_S": True, "D": 64, "E": 64, "BLOCK_D": 64, "BLOCK_E": 64}
TILES = {"BLOCK_T": 64, "BLOCK_S": 64}
SIZES = ("HEADS", "K_GROUP", "V_GROUP", "T", "S")


@pytest.fixture(scope="module")
def kernel() -> Any:
    text, name = GOLDEN.read_text(), "golden_attention_scale"
    linecache.cache[f"<{name}>"] = (len(text), None, text.splitlines(True), f"<{name}>")
    module = types.ModuleType(name)
    sys.modules[name] = module
    exec(compile(text, f"<{name}>", "exec"), module.__dict__)
    return module.attention_kernel


@pytest.mark.parametrize("scale", ["fp32", "fp64"])
def test_only_the_scale_itself_is_ever_fp64(kernel: Any, scale: str) -> None:
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    signature = dict.fromkeys(kernel.arg_names, "i32")
    signature |= {name: "*fp16" for name in kernel.arg_names if name.endswith("_ptr")}
    signature |= dict.fromkeys((*CONSTANTS, *TILES), "constexpr")
    signature["scale"] = scale
    source = ASTSource(kernel, signature, CONSTANTS | TILES)
    options = {"num_warps": 4, "enable_fp_fusion": True}
    made = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options)
    wide = re.findall(r"\.f64\b", made.asm["ptx"])
    assert len(wide) <= (0 if scale == "fp32" else 4)
