"""Emitted attention in the interpreter, and what its default schedules cost on a GPU."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from agentkernel.compiler.attention import (
    AttentionFacts,
    AttentionSpec,
    attention_schedules,
    emit_attention,
)
from agentkernel.compiler.kernel_helpers import helper_sources
from agentkernel.compiler.products.schedules import GemmSchedule
from agentkernel.tools.targets import load_targets
from tests.compiler.cross_compile import POINTERS, Cost, compiled_cost, imported

ROOT = Path(__file__).parents[2]


def spec_of(dtype: str, width: int, **changes: object) -> AttentionSpec:
    spec = AttentionSpec(
        name="attention", q="q", k="k", v="v", out="out", scale="0.125", dtype=dtype,
        head_dim=width, value_dim=width,
    )  # fmt: skip
    return AttentionSpec(**{**vars(spec), **changes})


def cost_of(spec: AttentionSpec, schedule: GemmSchedule) -> Cost:
    text = emit_attention(spec, schedule)
    pieces = "\n\n\n".join([*helper_sources(text.helpers), text.source])
    kernel = imported(pieces).attention
    known: dict[str, object] = {
        "D": spec.head_dim, "E": spec.value_dim, "BLOCK_D": spec.head_dim,
        "BLOCK_E": spec.value_dim, "EVEN_S": True, **schedule,
    }  # fmt: skip
    signature: dict[str, str] = {}
    for parameter in kernel.arg_names:
        if parameter in known:
            signature[parameter] = "constexpr"
        elif parameter == "mask_ptr":
            signature[parameter] = "*i1" if spec.mask_kind == "bool" else POINTERS[spec.dtype]
        elif parameter.endswith("_ptr"):
            signature[parameter] = POINTERS[spec.dtype]
        else:
            signature[parameter] = "fp32" if parameter == "scale" else "i32"
    constants = {name: known[name] for name, kind in signature.items() if kind == "constexpr"}
    options = {name: schedule[name] for name in ("num_warps", "num_stages")}
    return compiled_cost(kernel, signature, constants, options)


def test_attention_in_the_interpreter() -> None:
    environment = os.environ | {"OMP_NUM_THREADS": "1", "TRITON_INTERPRET": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "tests.compiler.interpreted_attention"], cwd=ROOT,
        capture_output=True, text=True, env=environment, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.mark.parametrize(
    ("dtype", "width", "causal", "mask", "kind"),
    [
        ("bfloat16", 64, False, None, "add"),
        ("float16", 128, True, None, "add"),
        ("float32", 64, False, None, "add"),
        ("float16", 64, False, "mask", "bool"),
    ],
)
def test_the_default_schedule_runs_on_hopper(
    dtype: str, width: int, causal: bool, mask: str | None, kind: str
) -> None:
    facts = AttentionFacts(64, 2048, 2048, width, width, dtype, mask is not None)
    schedule = attention_schedules(facts, load_targets()["h200"])[0]
    spec = spec_of(dtype, width, causal=causal, mask=mask, mask_kind=kind)
    cost = cost_of(spec, schedule)
    assert "wgmma.mma_async" in cost.ptx
    assert cost.stack_bytes == 0
    assert cost.shared_bytes <= 227 * 1024


@pytest.mark.parametrize("target", sorted(load_targets()))
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("width", [16, 80, 256])
def test_some_schedule_fits_everywhere(target: str, dtype: str, width: int) -> None:
    facts = AttentionFacts(4, 512, 512, width, width, dtype)
    found = attention_schedules(facts, load_targets()[target])
    assert found
    assert all(emit_attention(spec_of(dtype, width), schedule).launch for schedule in found)


def test_few_queries_take_small_tiles_first() -> None:
    hopper = load_targets()["h200"]
    many = attention_schedules(AttentionFacts(256, 4096, 4096, 64, 64, "bfloat16"), hopper)
    few = attention_schedules(AttentionFacts(2, 512, 4096, 64, 64, "bfloat16"), hopper)
    assert few[0]["BLOCK_T"] < many[0]["BLOCK_T"]
