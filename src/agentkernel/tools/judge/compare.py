"""How far off is an output, how far may it be, and where are the wrong elements?

strict: at most twice eager's own error against the fp64 oracle, with a floor of 4 ulp of the output
dtype (8 an element of fp32). Two measures: norm-wise, ||out - oracle|| / ||oracle||, and the 99.9%
quantile over the elements of |out - oracle| / max(RMS(oracle), |oracle|): zeros do not make small
outputs pass, and no element is asked to be closer than its own format can be. The looser classes
only raise the floor: tf32 to 1e-3 norm-wise and 5e-3 per element, bf16 to 8e-3 and 4e-2. A third
look, in `worst`, is at the single elements that neither average sees.

NaN and infinities must lie where eager has them, wherever the oracle (rounded to the output's
dtype) has the same ones; where the two disagree nothing is compared.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agentkernel.domain.verdict import Mismatch, Precision
from agentkernel.tools.judge.worst import Largest, Leeway, find_largest, spread_of

if TYPE_CHECKING:
    import torch

ULPS = 4
ELEMENT_ULPS = 8
"""Of fp32 and fp64: what the 99.9% quantile comes to where some hundred products are added one
after the other (rms u sqrt(K / 6) of the result's RMS, u half an ulp; 3.3 times that: 7.6 ulp for
K = 127), which a library that splits the sum does not show."""
EAGER_FACTOR = 2.0
QUANTILE = 0.999
LOOSE: dict[Precision, tuple[float, float]] = {"tf32": (1e-3, 5e-3), "bf16": (8e-3, 4e-2)}
QUANTILE_SAMPLE = 1 << 22
PLAIN = Leeway()
NOTHING = Largest(0.0, 0.0, None)


@dataclass(frozen=True)
class Errors:
    """Norm-wise and per-element error of one output; infinite where the NaN pattern differs."""

    norm: float
    element: float


@dataclass(frozen=True)
class Comparison:
    """One output of one case. `mismatch` is None where it passes; `largest` is the largest error of
    an element against its own row's scale."""

    found: Errors
    eager: Errors
    allowed: Errors
    mismatch: Mismatch | None
    largest: float = 0.0


def compare_output(
    case: str,
    index: int,
    found: torch.Tensor,
    eager: torch.Tensor,
    oracle: torch.Tensor | None,
    precision: Precision,
    no_oracle: bool,
    leeway: Leeway = PLAIN,
    exact: torch.Tensor | None = None,
) -> Comparison:
    """Judge one output tensor; `oracle` is None for integers and booleans, of which each must be
    what eager has or, where rounding has misled that, what the fp64 run has (`exact`)."""
    if oracle is None:
        return _compare_exact(case, index, found, eager, exact)
    ours = errors(found, oracle, eager)
    theirs = errors(eager, oracle, eager)
    allowed = allowance(theirs, eager.dtype, precision, no_oracle)
    if leeway.constant and _finite_excess(ours, allowed):
        ours = errors(_towards(found, oracle, spread_of(oracle, leeway.blur)), oracle, eager)
    passed = ours.norm <= allowed.norm and ours.element <= allowed.element
    largest = NOTHING
    if passed:
        compared = specials(eager, oracle).compared
        largest = find_largest(found, eager, oracle, compared, allowed.element, leeway)
    if passed and largest.wrong is None:
        return Comparison(ours, theirs, allowed, None, largest.error)
    mismatch = describe(case, index, found, eager, oracle, ours, allowed, largest)
    return Comparison(ours, theirs, allowed, mismatch, largest.error)


def _finite_excess(ours: Errors, allowed: Errors) -> bool:
    too_far = ours.norm > allowed.norm or ours.element > allowed.element
    return too_far and math.isfinite(ours.norm)


def _towards(found: torch.Tensor, oracle: torch.Tensor, room: torch.Tensor) -> torch.Tensor:
    """`found` in fp64, each element moved towards the oracle by up to `room`."""
    import torch

    value = found.double()
    off = value - oracle
    return torch.where(off.isfinite(), oracle + off.sign() * (off.abs() - room).clamp(min=0), value)


def allowance(
    eager: Errors, dtype: torch.dtype, precision: Precision, no_oracle: bool = False
) -> Errors:
    """The largest errors that pass. Without an oracle the floor is 64 ulp: eager's own error is
    unknown then."""
    import torch

    ulp = torch.finfo(dtype).eps
    wide = dtype in (torch.float32, torch.float64)
    norm, element = LOOSE.get(precision, (0.0, 0.0))
    return Errors(
        max(EAGER_FACTOR * eager.norm, ulp * (64 if no_oracle else ULPS), norm),
        max(
            EAGER_FACTOR * eager.element,
            ulp * (64 if no_oracle else ELEMENT_ULPS if wide else ULPS),
            element,
        ),
    )


def errors(value: torch.Tensor, oracle: torch.Tensor, eager: torch.Tensor) -> Errors:
    """Both measures over the elements where eager and the oracle are finite; where both have the
    same NaN or infinity the value must have it too."""
    import torch

    if value.numel() == 0:
        return Errors(0.0, 0.0)
    kinds = specials(eager, oracle)
    if not _same_specials(value, eager, kinds):
        return Errors(math.inf, math.inf)
    difference = torch.where(kinds.compared, value.double() - oracle, 0.0).abs_()
    truth = torch.where(kinds.compared, oracle, 0.0)
    smallest = torch.finfo(eager.dtype).tiny
    norm = max(float(truth.norm()), smallest)
    rms = max(norm / math.sqrt(truth.numel()), smallest)
    return Errors(
        float(difference.norm()) / norm, quantile(difference / truth.abs().clamp(min=rms))
    )


def quantile(values: torch.Tensor) -> float:
    """The 99.9% quantile; of large tensors, that of an evenly strided sample.

    As the least of the largest few: for one element of so many, `kthvalue` runs on one of the GPU's
    multiprocessors for tens of milliseconds.
    """
    import torch

    flat = values.reshape(-1)
    if flat.numel() > QUANTILE_SAMPLE:
        flat = flat[:: flat.numel() // QUANTILE_SAMPLE + 1]
    rank = min(flat.numel(), math.ceil(QUANTILE * flat.numel()))
    return float(torch.topk(flat, flat.numel() - rank + 1, sorted=False).values.min())


@dataclass(frozen=True)
class Specials:
    """Which elements are `compared` as numbers, and which must be the same NaN or infinity."""

    compared: torch.Tensor
    agreed: torch.Tensor


def specials(eager: torch.Tensor, oracle: torch.Tensor) -> Specials:
    """Sort the elements of an answer by what eager and the oracle, rounded, have there."""
    import torch

    rounded = oracle.to(eager.dtype)
    numbers = torch.isfinite(eager) & torch.isfinite(rounded)
    same = (eager == rounded) | (eager.isnan() & rounded.isnan())
    return Specials(numbers, same & ~torch.isfinite(eager))


def _same_specials(value: torch.Tensor, eager: torch.Tensor, kinds: Specials) -> bool:
    import torch

    if not bool(torch.isfinite(value[kinds.compared]).all()):
        return False
    mine, theirs = value[kinds.agreed], eager[kinds.agreed]
    return bool(((mine == theirs) | (mine.isnan() & theirs.isnan())).all())


def _compare_exact(
    case: str,
    index: int,
    found: torch.Tensor,
    eager: torch.Tensor,
    exact: torch.Tensor | None,
) -> Comparison:
    zero = Errors(0.0, 0.0)
    same = found == eager
    if exact is not None:
        same |= found == exact
    if bool(same.all()):
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
    largest: Largest = NOTHING,
) -> Mismatch:
    """The full finding: the first wrong element, how many there are, and their pattern."""
    import torch

    value = found.double()
    rms = float(torch.nan_to_num(oracle, 0.0, 0.0, 0.0).square().mean().sqrt())
    bound = max(allowed.element, allowed.norm) * max(rms, torch.finfo(torch.float32).tiny)
    agrees = (value - oracle).abs() <= bound * (oracle.abs() / max(rms, 1e-300)).clamp(min=1.0)
    same = (value == eager) | (value.isnan() & eager.isnan())
    wrong = ~(agrees | same)
    if found.is_floating_point():
        kinds = specials(eager, oracle)
        wrong &= kinds.compared | kinds.agreed
    if largest.wrong is not None:
        wrong = largest.wrong
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
        largest_error=largest.error,
        largest_allowed=largest.allowed,
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
