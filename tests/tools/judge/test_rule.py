"""The precision rule as a candidate meets it: versions, products by their types, the margin."""

import pytest

from agentkernel.domain.verdict import ExecutionFailed, Mismatch, Verdict
from agentkernel.tools.judge.cases.selection import plan_cases
from agentkernel.tools.judge.execution.launches import launch_state
from agentkernel.tools.judge.interpreter.arithmetic import note_product
from agentkernel.tools.judge.reference.oracle_inputs import OracleInputs
from agentkernel.tools.judge.settings import JudgeSettings
from tests.tools.judge.sources import problem_of

NORM = problem_of("self.n(x)", "torch.randn(30, 83)", state="self.n = nn.LayerNorm(83)")
KERNEL = """
import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def norm(x_ptr, w_ptr, b_ptr, y_ptr, n, B: tl.constexpr):
    r = tl.program_id(0)
    c = tl.arange(0, B)
    m = c < n
    x = tl.load(x_ptr + r * n + c, mask=m, other=0.0)
    mean = tl.sum(x, 0) / n
    off = tl.where(m, x - mean, 0.0)
    variance = VARIANCE
    y = (x - mean) / tl.sqrt(variance + 1e-5)
    y = y * tl.load(w_ptr + c, mask=m, other=0.0) + tl.load(b_ptr + c, mask=m, other=0.0)
    tl.store(y_ptr + r * n + c, y, mask=m)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.n = nn.LayerNorm(83)

    def forward(self, x):
        x = x.contiguous()
        n = x.shape[-1]
        y = torch.empty_like(x)
        norm[(x.numel() // n,)](x, self.n.weight, self.n.bias, y, n, B=triton.next_power_of_2(n))
        return y
"""
TWO_PASSES = KERNEL.replace("VARIANCE", "tl.sum(off * off, 0) / n")
ONE_PASS = KERNEL.replace("VARIANCE", "tl.sum(x * x, 0) / n - mean * mean")
PRODUCT = problem_of(
    "a @ b", ", ".join(["torch.randn(16, 16, dtype=torch.float16)"] * 2), takes="a, b"
)
DOT = """
import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def product(a_ptr, b_ptr, c_ptr, m, n, k, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    j = tl.program_id(1) * B + tl.arange(0, B)
    total = tl.zeros((B, B), dtype=tl.float32)
    for start in range(0, k, B):
        s = start + tl.arange(0, B)
        a = tl.load(a_ptr + i[:, None] * k + s, mask=(i[:, None] < m) & (s < k), other=0.0)
        b = tl.load(b_ptr + s[:, None] * n + j, mask=(s[:, None] < k) & (j < n), other=0.0)
        total += tl.dot(a, b, OPTIONS)
    mask = (i[:, None] < m) & (j < n)
    tl.store(c_ptr + i[:, None] * n + j, total.to(c_ptr.dtype.element_ty), mask=mask)


class ModelNew(nn.Module):
    def forward(self, a, b):
        a, b = a.contiguous(), b.contiguous()
        c = a.new_empty(a.shape[0], b.shape[1])
        grid = (triton.cdiv(a.shape[0], 16), triton.cdiv(b.shape[1], 16))
        product[grid](a, b, c, a.shape[0], b.shape[1], a.shape[1], B=16)
        return c
"""


def test_one_pass_variance_is_seen_where_the_mean_is_far_above_the_spread(judged):
    verdict = judged(NORM, ONE_PASS)
    assert isinstance(verdict.failure, Mismatch)
    assert verdict.failure.case.startswith("shifted")
    assert verdict.rule == 2


def test_the_first_rule_asks_for_no_shifted_values(prepared):
    loaded, captured = prepared(NORM)
    kinds = [
        {
            case.distribution
            for case in plan_cases(loaded, captured, JudgeSettings(seed=0, rule=rule))
        }
        for rule in (1, 2)
    ]
    assert kinds[1] - kinds[0] == {"shifted"}
    oracle_inputs = OracleInputs(loaded, captured, JudgeSettings(seed=0, rule=1), [])
    case = next(x for x in plan_cases(loaded, captured, JudgeSettings(seed=0, rule=1)) if x.primary)
    assert oracle_inputs.ask(case).answer.population is None


@pytest.mark.slow
def test_two_passes_pass_and_the_margin_is_said(judged):
    verdict = judged(NORM, TWO_PASSES)
    assert verdict.accepted
    assert 0 < verdict.margin <= 1
    assert Verdict.model_validate_json(verdict.model_dump_json()).margin == verdict.margin


def test_a_narrow_accumulator_is_read_where_no_error_shows_it(judged):
    found = judged(PRODUCT, DOT.replace("OPTIONS", "out_dtype=tl.float16"))
    assert isinstance(found.failure, ExecutionFailed)
    assert found.failure.rule == "lossy-product"
    assert "added up in fp16" in found.failure.text


@pytest.mark.slow
def test_a_wide_accumulator_passes(judged):
    assert judged(PRODUCT, DOT.replace("OPTIONS", "out_dtype=tl.float32")).accepted


@pytest.mark.parametrize(
    ("operand", "accumulator", "precision", "words"),
    [
        ("fp16", "fp16", "IEEE", "added up in fp16"),
        ("fp32", "fp32", "TF32", "rounded to tf32"),
        ("fp32", "fp32", "BF16x3", "rounded to bf16x3"),
        ("fp32", "fp32", "TF32x3", ""),
        ("fp32", "fp32", "IEEE", ""),
        ("bf16", "fp32", "TF32", ""),
    ],
)
def test_products_are_read_by_their_types(operand, accumulator, precision, words):
    launch_state.reset("ascending")
    note_product(operand, accumulator, precision)
    assert len(launch_state.products) == bool(words)
    assert words in "".join(launch_state.products)


def test_an_old_record_is_under_the_first_rule():
    old = {"candidate": "a", "problem": "b", "accepted": True, "interpreted": True}
    verdict = Verdict.model_validate({**old, "device": "cpu", "gate": "accepted"})
    assert (verdict.rule, verdict.margin) == (1, None)
