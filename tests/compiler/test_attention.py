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
from agentkernel.compiler.attention_splits import emit_any, split_schedules
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


PARTIAL = ("best_ptr", "total_ptr", "acc_ptr")


def cost_of(
    spec: AttentionSpec, schedule: GemmSchedule, kernel: str = "attention", **known: object
) -> Cost:
    text = emit_any(spec, schedule)
    pieces = "\n\n\n".join([*helper_sources(text.helpers), text.source])
    return _cost(getattr(imported(pieces), kernel), spec, schedule, known)


def _cost(
    kernel: object, spec: AttentionSpec, schedule: GemmSchedule, known: dict[str, object]
) -> Cost:
    known = {
        "D": spec.head_dim, "E": spec.value_dim, "BLOCK_D": spec.head_dim,
        "BLOCK_E": spec.value_dim, "EVEN_S": True, **schedule, **known,
    }  # fmt: skip
    signature: dict[str, str] = {}
    for parameter in kernel.arg_names:
        if parameter in known:
            signature[parameter] = "constexpr"
        elif parameter == "mask_ptr":
            signature[parameter] = "*i1" if spec.mask_kind == "bool" else POINTERS[spec.dtype]
        elif parameter in PARTIAL:
            signature[parameter] = "*fp32"
        elif parameter.endswith("_ptr"):
            signature[parameter] = POINTERS[spec.dtype]
        else:
            signature[parameter] = "fp32" if parameter == "scale" else "i32"
    constants = {name: known[name] for name, kind in signature.items() if kind == "constexpr"}
    options = {name: int(str(known[name])) for name in ("num_warps", "num_stages")}
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


@pytest.mark.parametrize("kind", ["add", "bool"])
def test_a_mask_of_odd_rows_leaves_room_for_large_tiles(kind: str) -> None:
    """Pointers to it that went through the loop took two registers an element, and spilled."""
    spec = spec_of("float16", 64, mask="mask", mask_kind=kind)
    for rows, warps in ((64, 4), (128, 8)):
        schedule = {"BLOCK_T": rows, "BLOCK_S": 64, "num_warps": warps, "num_stages": 2}
        cost = cost_of(spec, schedule, EVEN_S=False, stride_mask2=577, stride_mask3=1)
        assert cost.stack_bytes == 0
        assert cost.registers <= 176


@pytest.mark.parametrize("over", ["mask", "bias"])
def test_what_is_read_over_the_scores_is_read_before_the_product(over: str) -> None:
    """The layout that reaches a sum of a row first is kept: that of a load after the product made
    two of every exponential. And no tile of pointers moves on: under triton 3.6 it spilled."""
    spec = spec_of("float16", 64, **{over: over})
    schedule = {"BLOCK_T": 128, "BLOCK_S": 64, "num_warps": 8, "num_stages": 3}
    text = emit_attention(spec, schedule).source
    assert text.index(f"{over} = tl.load(") < text.index("tl.dot(q, k")
    assert f"tl.fma(tl.dot(q, k), scale, {over}.to(tl.float32))" in text
    assert "ptrs +=" not in text
    cost = cost_of(spec, schedule, EVEN_S=False, **{f"stride_{over}2": 577, f"stride_{over}3": 1})
    assert cost.ptx.count("ex2.approx") <= 32 + 4


@pytest.mark.parametrize(
    ("dtype", "width", "group", "mask"),
    [
        ("float16", 64, 1, None),
        ("bfloat16", 128, 8, "mask"),
        ("float32", 64, 4, None),
    ],
)
def test_split_keys_run_on_hopper(dtype: str, width: int, group: int, mask: str | None) -> None:
    facts = AttentionFacts(256, 1, 2047, width, width, dtype, mask is not None, group)
    spec = spec_of(dtype, width, mask=mask)
    schedules = split_schedules(facts, load_targets()["h200"])
    for schedule in [item for item in schedules if item["PROGRAMS"] == 528]:
        cost = cost_of(spec, schedule, EVEN_S=False)
        assert cost.stack_bytes == 0
        assert "cp.async" in cost.ptx
        # Two programs share an SM at least.
        assert cost.shared_bytes <= 227 * 1024 // 2
        assert cost.registers * schedule["num_warps"] * 32 <= 65536 // 2
    join = cost_of(spec, schedule, "attention_join", BLOCK_P=64, num_warps=4)
    assert join.stack_bytes == 0


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


def test_few_queries_split_the_keys_first() -> None:
    hopper = load_targets()["h200"]

    def splits(queries: int, **changes: object) -> int:
        facts = AttentionFacts(256, queries, 2047, 64, 64, "float16")
        return len(split_schedules(AttentionFacts(**{**vars(facts), **changes}), hopper))

    assert splits(1)
    assert splits(16, group=8)
    assert not splits(17)
    assert not splits(1, causal=True)
    assert not splits(1, group=0)
    (wide, *_) = split_schedules(AttentionFacts(64, 1, 2047, 64, 64, "float16", group=28), hopper)
    assert wide["BLOCK_T"] == 32
