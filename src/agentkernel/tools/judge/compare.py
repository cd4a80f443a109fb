"""How far off is an output, how far may it be, and where are the wrong elements?

strict: at most twice eager's own error against the fp64 oracle, with a floor of 4 ulp of the output
dtype. Two measures: norm-wise, ||out - oracle|| / ||oracle||, and the 99.9% quantile over the
elements of |out - oracle| / max(RMS(oracle), |oracle|): zeros do not make small outputs pass, and
no element is asked to be closer than its own format can be. The looser classes only raise the
floor: tf32 to 1e-3 norm-wise and 5e-3 per element, bf16 to 8e-3 and 4e-2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agentkernel.domain.verdict import Mismatch, Precision

if TYPE_CHECKING:
    import torch

ULPS = 4
EAGER_FACTOR = 2.0
QUANTILE = 0.999
LOOSE: dict[Precision, tuple[float, float]] = {"tf32": (1e-3, 5e-3), "bf16": (8e-3, 4e-2)}
QUANTILE_SAMPLE = 1 << 22


@dataclass(frozen=True)
class Errors:
    """Norm-wise and per-element error of one output; infinite where the NaN pattern differs."""

    norm: float
    element: float


@dataclass(frozen=True)
class Comparison:
    """One output of one case. `mismatch` is None where it passes."""

    found: Errors
    eager: Errors
    allowed: Errors
    mismatch: Mismatch | None


def compare_output(
    case: str,
    index: int,
    found: torch.Tensor,
    eager: torch.Tensor,
    oracle: torch.Tensor | None,
    precision: Precision,
    no_oracle: bool,
) -> Comparison:
    """Judge one output tensor; `oracle` is None for integers and booleans, which must be equal."""
    if oracle is None:
        return _compare_exact(case, index, found, eager)
    ours = errors(found, oracle, eager)
    theirs = errors(eager, oracle, eager)
    allowed = allowance(theirs, eager.dtype, precision, no_oracle)
    passed = ours.norm <= allowed.norm and ours.element <= allowed.element
    mismatch = None if passed else describe(case, index, found, eager, oracle, ours, allowed)
    return Comparison(ours, theirs, allowed, mismatch)


def allowance(
    eager: Errors, dtype: torch.dtype, precision: Precision, no_oracle: bool = False
) -> Errors:
    """The largest errors that pass. Without an oracle the floor is 64 ulp: eager's own error is
    unknown then."""
    import torch

    ulp = torch.finfo(dtype).eps
    floor = ulp * (64 if no_oracle else ULPS)
    norm, element = LOOSE.get(precision, (0.0, 0.0))
    return Errors(
        max(EAGER_FACTOR * eager.norm, floor, norm),
        max(EAGER_FACTOR * eager.element, floor, element),
    )


def errors(value: torch.Tensor, oracle: torch.Tensor, eager: torch.Tensor) -> Errors:
    """Both measures over the elements where eager is finite; elsewhere the pattern must agree."""
    import torch

    if value.numel() == 0:
        return Errors(0.0, 0.0)
    finite = torch.isfinite(eager)
    if not _same_specials(value, eager, finite):
        return Errors(math.inf, math.inf)
    difference = torch.where(finite, value.double() - oracle, 0.0).abs_()
    truth = torch.where(finite, oracle, 0.0)
    smallest = torch.finfo(eager.dtype).tiny
    norm = max(float(truth.norm()), smallest)
    rms = max(norm / math.sqrt(truth.numel()), smallest)
    return Errors(
        float(difference.norm()) / norm, quantile(difference / truth.abs().clamp(min=rms))
    )


def quantile(values: torch.Tensor) -> float:
    """The 99.9% quantile; of large tensors, that of an evenly strided sample."""
    import torch

    flat = values.reshape(-1)
    if flat.numel() > QUANTILE_SAMPLE:
        flat = flat[:: flat.numel() // QUANTILE_SAMPLE + 1]
    rank = min(flat.numel(), math.ceil(QUANTILE * flat.numel()))
    return float(torch.kthvalue(flat, rank).values)


def _same_specials(value: torch.Tensor, eager: torch.Tensor, finite: torch.Tensor) -> bool:
    import torch

    if not bool(torch.equal(torch.isfinite(value), finite)):
        return False
    odd = ~finite
    mine, theirs = value[odd], eager[odd]
    return bool(((mine == theirs) | (mine.isnan() & theirs.isnan())).all())


def _compare_exact(case: str, index: int, found: torch.Tensor, eager: torch.Tensor) -> Comparison:
    import torch

    zero = Errors(0.0, 0.0)
    if torch.equal(found, eager):
        return Comparison(zero, zero, zero, None)
    infinite = Errors(math.inf, math.inf)
    mismatch = describe(case, index, found, eager, eager.double(), infinite, zero)
    return Comparison(infinite, zero, zero, mismatch)


def describe(
    case: str,
    index: int,
    found: torch.Tensor,
    eager: torch.Tensor,
    oracle: torch.Tensor,
    ours: Errors,
    allowed: Errors,
) -> Mismatch:
    """The full finding: the first wrong element, how many there are, and their pattern."""
    import torch

    value = found.double()
    rms = float(torch.nan_to_num(oracle, 0.0, 0.0, 0.0).square().mean().sqrt())
    bound = max(allowed.element, allowed.norm) * max(rms, torch.finfo(torch.float32).tiny)
    agrees = (value - oracle).abs() <= bound * (oracle.abs() / max(rms, 1e-300)).clamp(min=1.0)
    same = (value == eager) | (value.isnan() & eager.isnan())
    wrong = ~(agrees | same)
    if not bool(wrong.any()):
        wrong = (value - oracle).abs() > bound / 8
    flat = int(wrong.reshape(-1).to(torch.uint8).argmax())
    where = tuple(int(i) for i in torch.unravel_index(torch.tensor(flat), found.shape))
    return Mismatch(
        case=case,
        output=index,
        norm_error=ours.norm,
        norm_allowed=allowed.norm,
        element_error=ours.element,
        element_allowed=allowed.element,
        first_index=where,
        expected=float(oracle.reshape(-1)[flat]),
        found=float(value.reshape(-1)[flat]),
        wrong_share=float(wrong.double().mean()),
        pattern=place_pattern(wrong, value, eager),
    )


def place_pattern(wrong: torch.Tensor, value: torch.Tensor, eager: torch.Tensor) -> str:
    """Where the wrong elements lie: all, nan, one row, tail, every k-th, scattered."""
    share = float(wrong.double().mean())
    if bool((value.isnan() & ~eager.isnan()).any()):
        return "nan"
    if share > 0.9:
        return "all"
    for dim in range(wrong.ndim):
        others = [other for other in range(wrong.ndim) if other != dim]
        lines = wrong.any(dim=others) if others else wrong
        hits = lines.nonzero().reshape(-1)
        if hits.numel() == 1 and wrong.ndim > 1 and lines.numel() > 1:
            return "one row"
        steps = hits.diff()
        last = 0 < hits.numel() < lines.numel() and int(hits[-1]) == lines.numel() - 1
        if last and bool((steps == 1).all()):
            return "tail"
        if hits.numel() > 2 and bool((steps == steps[0]).all()) and int(steps[0]) > 1:
            return f"every {int(steps[0])}-th"
    return "scattered"
