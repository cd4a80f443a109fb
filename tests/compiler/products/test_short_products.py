"""fp32 products of few terms are inside the precision rule, whatever multiplies longer ones."""

from __future__ import annotations

import pytest
from short_products import judged

from agentkernel.compiler.products.gemm import emit_gemm
from agentkernel.compiler.products.schedules import (
    SHORT_K,
    GemmFacts,
    GemmSchedule,
    gemm_schedules,
)
from agentkernel.compiler.products.triangles import Triangle
from agentkernel.tools.targets import load_targets
from tests.compiler.products.test_gemm import cost_of, spec_of

SCHEDULE = {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32, "GROUP_M": 8, "SPLIT_K": 1}
SCHEDULE |= {"num_warps": 4, "num_stages": 3}
SEEDS = 12
FORMS: dict[str, tuple[GemmSchedule, dict[str, object]]] = {
    "plain": ({}, {}),
    "turned": ({"TRANSPOSE_A": 1}, {"a_layout": "m"}),
    "slices of K": ({"SPLIT_K": 4}, {}),
    "planes": ({"PLANES": 1}, {}),
    "planes in the loop": ({"PLANES": 2}, {}),
    "batched": ({}, {"batch_dims": 1}),
    "batched planes": ({"PLANES": 1}, {"batch_dims": 2}),
    "a pair": ({"PLANES": 1}, {"gates": ("second",)}),
    "a triangle": ({}, {"triangles": (Triangle("out", False, 1),)}),
}


def is_short(form: str, k: int) -> bool:
    """Whether a launch of K terms multiplies in fp32 itself."""
    schedule, changes = FORMS[form]
    text = emit_gemm(spec_of(**changes), SCHEDULE | schedule)
    options = " ".join(text.launch).partition("SHORT=")[2].partition(",")[0]
    return bool(eval(options, {"k": k}))


@pytest.mark.parametrize("k", range(1, 41))
def test_what_a_launch_takes_is_inside_the_rule(k: int) -> None:
    """With parts alone six of these are refused."""
    forms = {"plain": "tf32x3", "planes": "planes"}
    for taken in {"fp32" if is_short(form, k) else parts for form, parts in forms.items()}:
        assert not [seed for seed in range(SEEDS) if judged(taken, k, seed).refused]


@pytest.mark.parametrize("form", FORMS)
def test_every_form_multiplies_few_terms_in_fp32(form: str) -> None:
    schedule, changes = FORMS[form]
    text = emit_gemm(spec_of(**changes), SCHEDULE | schedule)
    dots = [line for line in text.source.splitlines() if "tl.dot(" in line]
    assert dots
    assert all('input_precision="ieee" if SHORT else "tf32x3")' in line for line in dots)
    assert [k for k in range(1, 200) if is_short(form, k)] == list(range(1, SHORT_K + 1))
    # A pass that makes planes which nothing reads would be a dead kernel.
    skipped = [line for line in text.launch if line == f"if k > {SHORT_K}:"]
    assert len(skipped) == sum("_split[" in line for line in text.launch)
    if "PLANES" in schedule:
        assert "| SHORT:" in text.source
        assert ("if not SHORT:" in text.source) is (schedule["PLANES"] == 1)


def test_a_fixed_depth_is_decided_as_the_text_is_written() -> None:
    short, longer = (emit_gemm(spec_of(k=str(k)), SCHEDULE) for k in (SHORT_K, SHORT_K + 1))
    assert 'input_precision="ieee")' in short.source
    assert 'input_precision="tf32x3")' in longer.source
    assert "BLOCK_K=16," in " ".join(short.launch)
    assert "BLOCK_K=32," in " ".join(longer.launch)
    assert "SHORT" not in short.source + longer.source


@pytest.mark.parametrize(
    "changes", [{"dtype": "float16"}, {"precision": "tf32"}, {"vendor": "amd"}]
)
def test_what_is_not_multiplied_in_parts_has_one_way(changes: dict[str, object]) -> None:
    assert "SHORT" not in emit_gemm(spec_of(**changes), SCHEDULE).source


@pytest.mark.parametrize("planes", [0, 1, 2])
def test_the_short_way_fits_a_card_and_needs_no_tensor_core(planes: int) -> None:
    found = gemm_schedules(GemmFacts(4096, 4096, 4096), load_targets()["h200"])
    plain = next(item for item in found if "PLANES" not in item)
    chosen = plain | ({"PLANES": planes} if planes else {"BLOCK_K": 16})
    cost = cost_of(spec_of(), chosen | {"BLOCK_K": 16 * (2 if planes == 2 else 1), "SHORT": True})
    assert cost.stack_bytes == 0
    assert cost.shared_bytes <= 100 * 1024
    assert "tf32" not in cost.ptx
