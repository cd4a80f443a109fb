"""KernelBench's own rule is answered beside the verdict, which it leaves alone."""

from __future__ import annotations

import pytest

from agentkernel.domain.verdict import RunFailed
from agentkernel.tools.judge.cases.selection import plan_cases
from agentkernel.tools.judge.findings import Findings, _kernelbench
from agentkernel.tools.judge.kernelbench import SEEDS, allclose_cases
from agentkernel.tools.judge.settings import JudgeSettings
from tests.tools.judge.sources import problem_of

PADDED = problem_of("2 * x", "torch.rand(SIZE)")
KERNEL = """import torch
import triton
import triton.language as tl
from torch import nn

@triton.jit
def double(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n)
    tl.store(out_ptr + i, 2 * x, mask=i < n)

class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        out = torch.empty_like(x)
        double[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), BLOCK=1024)
        return out
"""
SMALL = PADDED.replace("SIZE", "37, 41")
LOOSE = KERNEL.replace("2 * x,", "2 * x + 2e-5,")
FAR = KERNEL.replace("2 * x,", "2 * x + 5e-3,")
RAISES = KERNEL.replace("x = x.contiguous()", "raise ValueError('no')")
OUTSIDE = KERNEL.replace("mask=i < n)\n\nclass", "mask=i < n + 1)\n\nclass")


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    ("source", "gate", "kernelbench"),
    [
        pytest.param(KERNEL, "accepted", True, id="right"),
        pytest.param(LOOSE, "correctness", True, id="too far for the strict rule alone"),
        pytest.param(FAR, "correctness", False, id="too far for both"),
        pytest.param(RAISES, "run", False, id="raises"),
        pytest.param(OUTSIDE, "run", False, id="refused for something else"),
        pytest.param("import os\n" + KERNEL, "policy", False, id="never run"),
    ],
)
def test_beside_the_verdict(judged, source, gate, kernelbench):
    verdict = judged(SMALL, source, kernelbench=True)
    assert (verdict.gate, verdict.kernelbench) == (gate, kernelbench), verdict.failure
    plain = judged(SMALL, source)
    assert (plain.gate, plain.accepted, plain.kernelbench) == (gate, verdict.accepted, None)


@pytest.mark.slow
def test_large_inputs_are_scaled_down_as_in_other_cases(judged):
    verdict = judged(PADDED.replace("SIZE", "4096, 4096"), KERNEL, kernelbench=True)
    assert (verdict.accepted, verdict.kernelbench) == (True, True)


def test_other_forms_are_not_close(judged):
    narrow = KERNEL.replace("torch.empty_like(x)", "torch.empty_like(x, dtype=torch.float16)")
    assert judged(SMALL, narrow, kernelbench=True).gate == "meta"
    assert judged(SMALL, narrow, kernelbench=True).kernelbench is False


@pytest.mark.slow
def test_a_module_with_weights(judged, sources):
    verdict = judged(sources.NORM_PROBLEM, sources.NORM, kernelbench=True)
    assert (verdict.accepted, verdict.kernelbench) == (True, True)


def test_a_refusal_that_comes_later_counts_too():
    """On a GPU the interpreter looks for stray accesses after all else."""
    asked, found = JudgeSettings(seed=0, kernelbench=True), Findings(kernelbench=True)
    stray = RunFailed(reason="out_of_bounds", log="", case="")
    assert _kernelbench(asked, found, None) is True
    assert _kernelbench(asked, found, stray) is False
    assert _kernelbench(JudgeSettings(seed=0), found, None) is None


def test_five_seeds_at_each_declared_shape(prepared):
    loaded, captured = prepared(SMALL)
    plan = plan_cases(loaded, captured, JudgeSettings(seed=0, device="cuda"))
    cases = allclose_cases(plan, seed=3)
    assert len({case.seed for case in cases}) == len(cases) == SEEDS
    assert {(case.shape.origin, case.distribution) for case in cases} == {("declared", "own")}
    assert {case.shape.inputs for case in cases} == set(loaded.problem.shape_sets)
