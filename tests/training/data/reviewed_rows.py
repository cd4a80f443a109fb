"""Which made-up kernels could a teacher be asked about, and what does it answer?"""

from __future__ import annotations

import json
from collections.abc import Callable

from agentkernel.domain.base import sha256_text
from agentkernel.training.data.generator import make_problem
from agentkernel.training.settings import JudgedKernel
from tests.training.data.judged_rows import kernel, right, wrong

REVIEW = """ANALYSIS
Bound by memory: kernel number {number} reads the row twice.

OPTIMIZATIONS
1. Keep the row in registers.

ESTIMATED_SPEEDUP
1.4x
"""


def profiled(seed: int, tile: int, us: float, **more: object) -> JudgedKernel:
    """A right kernel of module `seed`, with the lines of a profile."""
    facts = {"inputs": "x float32[3, 5]", "bound by": "memory", "time": f"{us} us, estimated"}
    text = kernel(100 + seed, tile)
    values: dict[str, object] = {"estimated_us": us, "facts": facts}
    return right(make_problem(seed).text, text, **(values | more))


def reviewed_rows(count: int) -> list[JudgedKernel]:
    """Of each module a fast kernel, a slow one and a broken one."""
    rows: list[JudgedKernel] = []
    for seed in range(count):
        fast, slow = profiled(seed, 64, 2.0), profiled(seed, 128, 3.0)
        broken = fast.kernel.replace(", mask=col < n_cols, other=0.0", "")
        rows += [fast, slow, wrong(fast.problem, broken, fast.kernel)]
    return rows


def slow_ones(count: int) -> set[str]:
    """The hashes of the slow kernels among `reviewed_rows`."""
    return {sha256_text(kernel(100 + seed, 128)) for seed in range(count)}


def number_in(request: dict[str, object]) -> int:
    """The module whose kernel a request is about."""
    return int(json.dumps(request).partition("def sum_")[2].partition("_kernel")[0]) - 100


def by_number(answer: Callable[[int], str]) -> Callable[[dict[str, object]], str]:
    """A script that answers by the module asked about."""
    return lambda request: answer(number_in(request))


def review(number: int) -> str:
    """An answer with all sections."""
    return REVIEW.format(number=number)
