"""Made-up kernels with a judge's verdicts, and what a teacher is asked and answers about them."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterable
from pathlib import Path

from agentkernel.domain.base import sha256_text
from agentkernel.domain.verdict import Mismatch, Verdict
from agentkernel.knowledge.code_structure import structure_of_code
from agentkernel.training.data.generator import make_problem
from agentkernel.training.settings import JudgedKernel

KERNEL = """import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def sum_{n}_kernel(x_ptr, output_ptr, n_cols, BLOCK_N: tl.constexpr):
    col = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    x = tl.load(x_ptr + col, mask=col < n_cols, other=0.0)
    tl.store(output_ptr + col, x * {n}.0, mask=col < n_cols)


class ModelNew(nn.Module):
    def forward(self, x):
        output = torch.empty_like(x)
        sum_{n}_kernel[(triton.cdiv(x.numel(), {tile}),)](
            x, output, x.numel(), BLOCK_N={tile}, num_warps={warps},
        )
        return output
"""
REVIEW = """ANALYSIS
Bound by memory: kernel number {number} reads the row twice.

OPTIMIZATIONS
1. Keep the row in registers.

ESTIMATED_SPEEDUP
1.4x
"""
CHEAT = KERNEL.replace("return output\n", "return torch.relu(x)\n")


def kernel(number: int = 2, tile: int = 64, warps: int = 4, text: str = KERNEL) -> str:
    return text.format(n=number, tile=tile, warps=warps)


def unmasked(text: str) -> str:
    """The kernel with a mistake."""
    return text.replace(", mask=col < n_cols, other=0.0", "")


def verdict(text: str, *, accepted: bool = True, interpreted: bool = True) -> Verdict:
    failure = Mismatch(
        case="normal, seed 1, x float32[3, 5]",
        output=0,
        norm_error=1.5,
        norm_allowed=1e-6,
        element_error=3.0,
        element_allowed=1e-6,
        first_index=(0, 1),
        expected=1.0,
        found=2.0,
        wrong_share=0.5,
        pattern="all",
    )
    return Verdict(
        candidate=sha256_text(text),
        problem="0" * 64,
        accepted=accepted,
        interpreted=interpreted,
        device="triton interpreter",
        gate="accepted" if accepted else "correctness",
        failure=None if accepted else failure,
        launches=("sum_kernel",),
        policy="triton",
    )


def right(problem: str, text: str, **more: object) -> JudgedKernel:
    found = structure_of_code(problem)
    values: dict[str, object] = {
        "problem": problem,
        "kernel": text,
        "coder": "compiler",
        "source": "generated",
        "licence": "Apache-2.0",
        "label": "interpreter",
        "strategy": "fused",
        "verdict": verdict(text),
        "bound": "memory",
        "target": "h100",
        "structure": " ".join(found.ops) if found else "",
        "facts": {"inputs": "x float32[3, 5]", "bytes": "1200", "operations": "15"},
    }
    return JudgedKernel.model_validate(values | more)


def wrong(problem: str, text: str, parent: str, **more: object) -> JudgedKernel:
    values: dict[str, object] = {
        "label": "refused",
        "verdict": verdict(text, accepted=False),
        "parent": sha256_text(parent),
        "change": "a load has lost its mask",
    }
    return right(problem, text, **(values | more))


def family_rows(seed: int, *, timed: bool = True) -> list[JudgedKernel]:
    """Two right kernels of one made module, and one with a mistake."""
    problem = make_problem(seed).text
    fast, slow = kernel(2, 64), kernel(2, 128, 8)
    times = ({"estimated_us": 2.0}, {"estimated_us": 3.0}) if timed else ({}, {})
    return [
        right(problem, fast, **times[0]),
        right(problem, slow, parent=sha256_text(fast), change="other tiles", **times[1]),
        wrong(problem, unmasked(fast), fast),
    ]


def made_rows(count: int, *, timed: bool = True) -> list[JudgedKernel]:
    return [row for seed in range(count) for row in family_rows(seed, timed=timed)]


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
        rows += [fast, slow, wrong(fast.problem, unmasked(fast.kernel), fast.kernel)]
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


def write_rows(path: Path, rows: Iterable[JudgedKernel]) -> Path:
    text = "".join(row.model_dump_json() + "\n" for row in rows)
    path.write_bytes(gzip.compress(text.encode(), mtime=0))  # the same rows, the same bytes
    return path
