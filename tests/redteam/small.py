"""Which corpus do the red team's own tests use? A trick, an honest kernel, and more on request."""

from __future__ import annotations

from pathlib import Path

PROBLEM = """import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return x + 1


def get_inputs():
    return [torch.randn(64, 128)]
"""
CANDIDATE = '''"""{title}

{header}
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def plus_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + i, tl.load(x_ptr + i, mask=i < n) + {added}, mask=i < n)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        plus_kernel[(triton.cdiv(x.numel(), 8192),)](x, y, x.numel(), BLOCK=8192)
        return y
'''
HOSTILE = "problem: plus\ngate: correctness\nneeds: cpu"
HONEST = "problem: plus\nneeds: cpu"


def candidate(title: str, header: str, added: str) -> str:
    """A candidate's file that adds `added` to every element."""
    return CANDIDATE.format(title=title, header=header, added=added)


def small_corpus(folder: Path) -> Path:
    """`nearly` (hostile) is off by 0.5%, `plus` (honest) is right."""
    for name in ("hostile", "honest", "problems"):
        (folder / name).mkdir(parents=True)
    (folder / "problems" / "plus.py").write_text(PROBLEM)
    put(folder, "hostile", "nearly", candidate("Adds a little more.", HOSTILE, "1.005"))
    put(folder, "honest", "plus", candidate("Adds one.", HONEST, "1.0"))
    return folder


def put(folder: Path, kind: str, name: str, text: str, suffix: str = ".py") -> None:
    """One more candidate."""
    (folder / kind / f"{name}{suffix}").write_text(text)
