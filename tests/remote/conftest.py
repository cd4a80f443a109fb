"""Fixtures of the tests with a real sshd."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.remote.sshd import PROGRAM, Sshd, sshd

MODULE = """
'''A module long enough to be sent by its hash, with a neighbour beside it that it imports.

The neighbour's file goes along, since the other machine has no such folder.
'''
import torch
from torch import nn
from neighbour import SLOPE

class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x) * SLOPE

def get_inputs():
    return [torch.randn(32, 128)]
"""
KERNEL = """
import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def scaled_relu(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    y = tl.where(x != x, x, tl.maximum(x, 0.0)) * 2.0
    tl.store(out_ptr + offsets, y, mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        out = torch.empty_like(x)
        n = x.numel()
        if n:
            scaled_relu[(triton.cdiv(n, 1024),)](x, out, n, BLOCK=1024)
        return out
"""


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    """An sshd whose key is known."""
    if PROGRAM is None:
        pytest.skip("sshd is not installed")
    with sshd(tmp_path_factory.mktemp("sshd")) as found:
        found.know()
        yield found


@pytest.fixture
def laptop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a module, its neighbour and a kernel; it is the current one."""
    for name, text in (
        ("scaled.py", MODULE),
        ("neighbour.py", "SLOPE = 2.0\n"),
        ("kernel.py", KERNEL),
    ):
        (tmp_path / name).write_text(textwrap.dedent(text).lstrip())
    monkeypatch.chdir(tmp_path)
    return tmp_path
