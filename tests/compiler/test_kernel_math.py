"""Elementary functions of emitted kernels: their errors, and their instructions on Hopper."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from pathlib import Path

import pytest

from agentkernel.compiler.kernel_helpers import LIFTED_HELPERS, helper_sources
from tests.compiler.cross_compile import Cost, compiled_cost, imported

ROOT = Path(__file__).parents[2]
ELEMENTS = 4
"""Of a thread: 512 in a block of 4 warps."""
KERNEL = '''

@triton.jit
def kernel(x_ptr, output_ptr, BLOCK: tl.constexpr):
    """One block of a pointwise function."""
    offset = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offset).to(tl.float32)
    tl.store(output_ptr + offset, ({value}).to(tl.{dtype}))
'''
MOST = {
    "exp": 9, "expm1": 18.5, "log1p": 23.5, "log1p_of_unit": 11, "tanh": 18.5, "sigmoid": 17.5,
    "silu": 17.5, "softplus": 22.5, "log_sigmoid": 22.5, "mish": 22.5, "gelu": 26.5,
    "gelu_tanh": 11,
}  # fmt: skip
"""SASS instructions an element, beside those of a copy."""
COARSE = {
    "coarse_exp": 4, "coarse_log1p_of_unit": 8.5, "coarse_sigmoid": 10.5, "coarse_silu": 10.5,
    "coarse_softplus": 13.5, "coarse_log_sigmoid": 13.5, "coarse_mish": 17.5, "coarse_gelu": 16.5,
    "gelu_tanh": 12.5, "tanh": 20,
}  # fmt: skip
"""The same of fp16, with what the conversions take."""


@functools.cache
def _cost(name: str, value: str, dtype: str) -> Cost:
    sources = helper_sources([name] if name in LIFTED_HELPERS else [], LIFTED_HELPERS)
    text = "\n\n\n".join(sources) + KERNEL.format(value=value, dtype=dtype)
    pointer = {"float32": "*fp32", "float16": "*fp16"}[dtype]
    signature = {"x_ptr": pointer, "output_ptr": pointer, "BLOCK": "constexpr"}
    return compiled_cost(imported(text).kernel, signature, {"BLOCK": 128 * ELEMENTS}, {})


def test_the_functions_are_exact_in_the_interpreter() -> None:
    environment = os.environ | {"OMP_NUM_THREADS": "1", "TRITON_INTERPRET": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "tests.compiler.interpreted_math"], cwd=ROOT,
        capture_output=True, text=True, env=environment, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.mark.parametrize(
    ("name", "dtype", "most"),
    [(name, "float32", most) for name, most in MOST.items()]
    + [(name, "float16", most) for name, most in COARSE.items()],
)
def test_a_function_takes_few_instructions(name: str, dtype: str, most: float) -> None:
    copy, cost = _cost("", "x", dtype), _cost(name, f"{name}(x)", dtype)
    assert (cost.instructions - copy.instructions) / ELEMENTS <= most
    assert cost.stack_bytes == 0
    assert cost.registers <= 32
