"""Modules are judged at gigabyte sizes, within the memory that the plan names."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch

from agentkernel.domain.verdict import Verdict
from agentkernel.tools.judge.judge import judge
from agentkernel.tools.judge.memory import FreeMemory, plan_memory
from agentkernel.tools.judge.settings import JudgeSettings
from agentkernel.tools.problem.capture import capture
from agentkernel.tools.problem.loading import LoadedProblem, load_problem

pytestmark = pytest.mark.gpu

GB = 10**9
SHAPE = (1024, 786_432)
"""3.2 GB in fp32."""
SOURCE = """
import torch, triton
import triton.language as tl
from torch import nn

@triton.jit
def kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n)
    tl.store(y_ptr + i, VALUE, mask=i < n)

class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        kernel[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)
        return y
"""
RIGHT = "tl.where(x < 0, 0.0, x) * 3"
LAST = "tl.where(i == 805306367, 1.0, tl.where(x < 0, 0.0, x) * 3)"
"""Wrong in the last element of the declared shape alone."""


PROBLEM = """
import torch
from torch import nn

class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x) * 3
"""


@pytest.fixture(scope="module")
def problem(tmp_path_factory: pytest.TempPathFactory) -> LoadedProblem:
    path = tmp_path_factory.mktemp("large") / "large.py"
    path.write_text(PROBLEM)
    return load_problem(f"{path}:Model", [f"x=f32{list(SHAPE)}".replace(" ", "")])


@contextmanager
def least_free() -> Iterator[list[int]]:
    """The least device memory that was free meanwhile, seen a hundred times a second."""
    seen = [torch.cuda.mem_get_info()[0]]
    done = threading.Event()

    def look() -> None:
        while not done.is_set():
            seen[0] = min(seen[0], torch.cuda.mem_get_info()[0])
            time.sleep(0.01)

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield seen
    finally:
        done.set()
        thread.join()


def judged(problem: LoadedProblem, value: str, free: int) -> Verdict:
    settings = JudgeSettings(seed=0, device="cuda", device_bytes=free)
    return judge(problem, capture(problem), SOURCE.replace("VALUE", value), settings)


@pytest.mark.parametrize("free", [24 * GB, 12 * GB])
def test_a_right_kernel_passes_within_the_plan(problem: LoadedProblem, free: int) -> None:
    plan = plan_memory(capture(problem), problem.problem.shape_sets[0], FreeMemory(free))
    assert plan.route == "slices"
    torch.cuda.empty_cache()
    before = torch.cuda.mem_get_info()[0]
    with least_free() as seen:
        verdict = judged(problem, RIGHT, free)
    assert verdict.accepted, verdict.failure
    assert any("fp64 in slices" in note for note in verdict.notes), verdict.notes
    assert before - seen[0] <= 1.1 * free


def test_one_wrong_element_of_a_gigabyte_is_found(problem: LoadedProblem) -> None:
    verdict = judged(problem, LAST, 24 * GB)
    assert verdict.gate == "correctness"
    assert verdict.failure is not None
    assert getattr(verdict.failure, "first_index", None) == (1023, 786_431)
