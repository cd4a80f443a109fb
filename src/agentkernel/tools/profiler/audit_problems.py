"""Which problems does the audit measure, and how is one made slower by a known share?"""

from __future__ import annotations

from typing import NamedTuple

POINTWISE = """
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return torch.sigmoid(x)


def get_inputs():
    return [torch.randn({rows}, {columns})]
"""
SOFTMAX = POINTWISE.replace("torch.sigmoid(x)", "torch.softmax(x, dim=-1)")
LAYERNORM = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.norm = nn.LayerNorm(columns)

    def forward(self, x):
        return self.norm(x)


def get_inputs():
    return [torch.randn({rows}, {columns})]


def get_init_inputs():
    return [{columns}]
"""
LINEAR = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.linear = nn.Linear(columns, columns)

    def forward(self, x):
        return torch.relu(self.linear(x))


def get_inputs():
    return [torch.randn({rows}, {columns})]


def get_init_inputs():
    return [{columns}]
"""


class AuditProblem(NamedTuple):
    """A problem file's text, and its size for the tests on the CPU."""

    name: str
    text: str
    rows: int
    columns: int
    long: bool = True
    """Past 100 us: a slowdown of 3% is more than the launch of what makes it."""

    def source(self, shrink: int = 1) -> str:
        """The problem file, with every size divided by `shrink`."""
        return self.text.format(rows=self.rows // shrink, columns=self.columns // shrink)

    def candidate(self) -> str:
        """The reference under the candidate's name: what an A/A measurement submits."""
        return self.source().partition("def get_inputs")[0].replace("Model(", "ModelNew(")

    def slower(self, nbytes: int) -> str:
        """The same, which also reads and writes `nbytes` in each call."""
        waste = (
            "        if not hasattr(self, 'waste'):\n"
            f"            self.waste = torch.ones({max(nbytes // 8, 1)}, device=x.device)\n"
            "        self.waste.mul_(1.0)\n"
        )
        return self.candidate().replace("        return", f"{waste}        return", 1)


PROBLEMS = (
    AuditProblem("pointwise-40MB", POINTWISE, 5120, 2048, long=False),
    AuditProblem("softmax-64MB", SOFTMAX, 4096, 4096, long=False),
    AuditProblem("layernorm-256MB", LAYERNORM, 8192, 8192),
    AuditProblem("linear-2048", LINEAR, 2048, 2048),
    AuditProblem("linear-4096", LINEAR, 6144, 4096),
)
"""About 23 us, 55 us, 0.22 ms, 0.35 ms and 4 ms in eager mode on an H200."""
LAUNCH_US = 2.0
"""What an extra small kernel takes by itself on an H200."""


def waste_bytes(call_us: float, share: float, copy_gb_per_s: float) -> int | None:
    """Bytes of an extra pass that makes a call longer by `share`; None where its launch alone does
    more than that."""
    extra_us = call_us * share - LAUNCH_US
    return None if extra_us <= 0 else int(extra_us * copy_gb_per_s * 1e3)
