"""Products of few terms against the precision rule, by the arithmetic that multiplies them.

python benchmarks/precision/short_products.py [--depths 2 4 8 ...] [--seeds 400]

Of a result that is mostly zeros (the strict upper triangle of [64, K] @ [K, N], N = K but no less
than 2 nor more than 15) the RMS is small beside the terms, and what is lost of them counts for
more. Emulated on the CPU (`plane_arithmetic.py`); docs/planes.md quotes the table.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from typing import NamedTuple

import torch
from plane_arithmetic import fp32_product, product, tf32_product

from agentkernel.tools.judge.comparison.compare import OutputValues, compare_output
from agentkernel.tools.judge.comparison.errors import Leeway
from agentkernel.tools.judge.reference.rounding_noise import RoundingNoise

ROWS = 64
ULPS = 8 * 2.0**-23
FORMS: Mapping[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "fp32": fp32_product, "tf32x3": tf32_product, "planes": product,
}  # fmt: skip
"""What multiplies a [rows, K] with b [cols, K]."""


class Judged(NamedTuple):
    """The largest error of an element over 8 ulp, and whether the precision rule refuses it."""

    share: float
    refused: bool


def judged(form: str, depth: int, seed: int) -> Judged:
    """One product of normal numbers, by one of FORMS."""
    generator = torch.Generator().manual_seed(seed)
    a = torch.randn(ROWS, depth, generator=generator)
    b = torch.randn(depth, min(max(depth, 2), 15), generator=generator)

    def honest(draw: int) -> torch.Tensor:
        with RoundingNoise(draw):
            return torch.triu(a @ b, 1)

    found = torch.triu(FORMS[form](a, b.T.contiguous()), 1)
    values = OutputValues(found, torch.triu(a @ b, 1), torch.triu(a.double() @ b.double(), 1))
    result = compare_output("case", 0, values, "strict", Leeway(honest=honest, columns=True))
    return Judged(result.found.element / ULPS, result.mismatch is not None)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--depths", type=int, nargs="+", default=[2, 4, 8, 12, 16, 24, 32, 48, 64])
    parser.add_argument("--seeds", type=int, default=400)
    flags = parser.parse_args()
    print("| K | " + " | ".join(f"{form}, median | largest | refused" for form in FORMS) + " |")
    print("|---" * (1 + 3 * len(FORMS)) + "|")
    for depth in flags.depths:
        cells = [str(depth)]
        for form in FORMS:
            found = [judged(form, depth, seed) for seed in range(flags.seeds)]
            shares = torch.tensor([item.share for item in found])
            refused = sum(item.refused for item in found) / len(found)
            cells += [f"{shares.median():.2f}", f"{shares.max():.1f}", f"{refused:.1%}"]
        print("| " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
