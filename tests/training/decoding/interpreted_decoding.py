"""Do the kernels of decoding compute in Triton's interpreter what torch does? Run as a script."""

from __future__ import annotations

import os

os.environ["TRITON_INTERPRET"] = "1"

import torch

from agentkernel.tools.judge.interpreter.hooks import install_hooks
from agentkernel.training.decoding.kernels import TritonOperations
from agentkernel.training.decoding.llama import TokenSampling, TorchOperations
from tests.training.decoding.decoding_checks import (
    DTYPES,
    TOLERANCE,
    attended,
    close,
    draws_alike,
    parts,
)

ours, plain = TritonOperations(), TorchOperations()


def norms() -> None:
    for dtype in DTYPES:
        for added in (True, False):
            residual, weight, more = parts(dtype, (5, 24), (24,), (5, 24))
            other = residual.clone()
            delta = more if added else None
            found = ours.add_norm(residual, delta, weight, 1e-5, torch.bfloat16)
            wanted = plain.add_norm(other, delta, weight, 1e-5, torch.bfloat16)
            close(found, wanted, TOLERANCE[torch.bfloat16])
            close(residual, other, TOLERANCE[dtype])


def gates() -> None:
    for dtype in DTYPES:
        (both,) = parts(dtype, (3, 80))
        gate, up = torch.split(both, 40, -1)
        close(ours.gated(gate, up), plain.gated(gate, up), TOLERANCE[dtype])


def attention() -> None:
    """Lengths from nothing to more than a block, slots in any order, heads that share keys."""
    for dtype in DTYPES:
        for heads, key_heads, size in ((2, 2, 16), (6, 2, 24), (1, 1, 64)):
            lengths = [0, 1, 37, 95, 64]
            found = attended(ours, dtype, heads, key_heads, size, lengths)
            wanted = attended(plain, dtype, heads, key_heads, size, lengths)
            for one, other in zip(found, wanted, strict=True):
                close(one, other, TOLERANCE[dtype])


def draws() -> None:
    for top_p in (1.0, 0.9, 0.3, 1e-6):
        for width in (7, 64, 200):
            draws_alike(ours, width, TokenSampling(0.7, top_p, 1), rows=24)


def nobody_likely() -> None:
    """One token has all; the last uniform number below 1 still finds it."""
    logits = torch.full((2, 5), float("-inf"))
    logits[0, 3] = logits[1, 0] = 2.0
    uniforms = torch.tensor([1 - 2**-24, 0.0])
    for top_p in (1.0, 0.5):
        assert ours.draw(logits, uniforms, TokenSampling(1.0, top_p, 1)).tolist() == [3, 0]
        assert plain.draw(logits, uniforms, TokenSampling(1.0, top_p, 1)).tolist() == [3, 0]


if __name__ == "__main__":
    install_hooks()
    torch.manual_seed(0)
    norms()
    gates()
    attention()
    draws()
    nobody_likely()
