"""The precision rule: how far an output is off, how far it may be, where the wrong elements are.

strict: allowed is the largest of twice eager's own error against the fp64 oracle, a floor of 4 ulp
of the output dtype (8 an element of fp32), one and a half times what honest evaluations of the
original come to (`honest`), and what PyTorch's own flags permit. The measures are those of `tally`:
zeros do not make small outputs pass, and no element is asked to be closer than its own format can
be. The looser classes only raise the floor: tf32 to 1e-3 norm-wise and 5e-3 per element, bf16 to
8e-3 and 4e-2. A third look, in `worst`, is at the single elements that neither average sees.

Honest evaluations are only made where an output would be refused without them, and no more than
it takes to pass it.

NaN and infinities must lie where eager has them, wherever the oracle (rounded to the output's
dtype) has the same ones; where the two disagree nothing is compared.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from agentkernel.domain.rules import Precision
from agentkernel.domain.verdict import Measure, Mismatch
from agentkernel.tools.judge.comparison.tally import Errors, Tally, blocks, errors, specials
from agentkernel.tools.judge.comparison.worst import LargestError, Leeway, Suspects, spread_of

if TYPE_CHECKING:
    import torch

ULPS = 4
ELEMENT_ULPS = 8
"""Of fp32 and fp64: what the 99.9% quantile comes to where some hundred products are added one
after the other (rms u sqrt(K / 6) of the result's RMS, u half an ulp; 3.3 times that: 7.6 ulp for
K = 127), which a library that splits the sum does not show."""
EAGER_FACTOR = 2.0
HONEST_FACTOR = 1.5
HONEST_DRAWS = 16
EXACT_DRAWS = 4
"""So many honest evaluations may say what an integer or a truth value is."""
GIVE_UP_FACTOR = 64.0
"""An output that is so many times further off than two honest evaluations allow is refused without
any more of them."""
LOOSE: dict[Precision, tuple[float, float]] = {"tf32": (1e-3, 5e-3), "bf16": (8e-3, 4e-2)}
PLAIN = Leeway()
ZERO = Errors(0.0, 0.0)


@dataclass(frozen=True)
class Comparison:
    """One output of one case. `mismatch` is None where it passes; `largest` is the largest error of
    an element against its own row's scale; `margin` how much of what is allowed was used;
    `permitted` names what PyTorch's flags permit where the output needed that."""

    found: Errors
    eager: Errors
    allowed: Errors
    mismatch: Mismatch | None
    largest: float = 0.0
    margin: float = 0.0
    permitted: str = ""


@dataclass(frozen=True)
class RuleResult:
    """What the measures of one output come to under one allowance."""

    ours: Errors
    allowed: Errors
    largest: LargestError

    @property
    def shares(self) -> dict[Measure, float]:
        """How much of what is allowed each measure uses."""
        found: dict[Measure, float] = {
            "norm": _share(self.ours.norm, self.allowed.norm),
            "element": _share(self.ours.element, self.allowed.element),
        }
        return found if max(found.values()) > 1 else found | {"largest": self.largest.margin}

    @property
    def passed(self) -> bool:
        """Whether all of them are kept to."""
        return max(self.shares.values()) <= 1 and self.largest.wrong is None


REFUSED = RuleResult(Errors(math.inf, math.inf), ZERO, LargestError(0.0, 0.0, None))
"""What can be said of values that no allowance makes right."""


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
    what eager has or, where rounding has misled that, what the fp64 run (`exact`) or an honest
    evaluation has, or point at a value that is as good."""
    if oracle is None:
        return _compare_exact(case, index, found, eager, exact, leeway)
    tally = Tally(oracle.numel())
    suspects = Suspects(_ulps(eager.dtype, ELEMENT_ULPS), leeway.columns)
    for piece in blocks(oracle):
        tally.add(found[piece], eager[piece], oracle[piece])
        compared = specials(eager[piece], oracle[piece]).compared
        suspects.add(found[piece], eager[piece], oracle[piece], compared)
    ours, theirs = tally.errors(0), tally.errors(1)
    allowed = allowance(theirs, eager.dtype, precision, no_oracle)
    if leeway.constant and _finite_excess(ours, allowed):
        ours = errors(_towards(found, oracle, spread_of(oracle, leeway.perturb)), oracle, eager)
    ruled = RuleResult(ours, allowed, suspects.result(allowed.element, leeway.perturb))
    permitted = ""
    if not ruled.passed:
        ruled, permitted = _widened(ruled, suspects, eager, oracle, leeway)
    margin, largest = max(ruled.shares.values()), ruled.largest.error
    mismatch = None
    if not ruled.passed:
        mismatch = describe(case, index, found, eager, oracle, ruled)
    return Comparison(ours, theirs, ruled.allowed, mismatch, largest, margin, permitted)


class PopulationResult(NamedTuple):
    """What is ruled once other evaluations count, and what PyTorch's flags had to permit."""

    ruled: RuleResult
    permitted: str


def _widened(
    ruled: RuleResult, suspects: Suspects, eager: torch.Tensor, oracle: torch.Tensor, leeway: Leeway
) -> PopulationResult:
    """With one honest evaluation more each time, then with those that do what PyTorch's flags
    permit, until the output passes."""
    seen: list[torch.Tensor] = []
    allowed = ruled.allowed
    for evaluate, name in ((leeway.honest, ""), (leeway.permitted, leeway.permits)):
        draws = HONEST_DRAWS if evaluate is not None and math.isfinite(ruled.ours.norm) else 0
        for draw in range(draws):
            value = evaluate(draw)  # type: ignore[misc]
            if value is None:
                break
            seen.append(suspects.at(value))
            theirs = errors(value, oracle, eager)
            if math.isfinite(theirs.norm):
                allowed = Errors(
                    max(allowed.norm, HONEST_FACTOR * theirs.norm),
                    max(allowed.element, HONEST_FACTOR * theirs.element),
                )
            largest = suspects.result(allowed.element, leeway.perturb, seen)
            ruled = RuleResult(ruled.ours, allowed, largest)
            if ruled.passed:
                return PopulationResult(ruled, name)
            if draw and max(ruled.shares.values()) > GIVE_UP_FACTOR:
                break
    return PopulationResult(ruled, "")


def _share(error: float, allowed: float) -> float:
    return error / allowed if allowed else math.inf if error else 0.0


def _ulps(dtype: torch.dtype, wide: float) -> float:
    """`wide` ulp for fp32 and fp64, `ULPS` for the narrow types."""
    import torch

    return torch.finfo(dtype).eps * (wide if dtype in (torch.float32, torch.float64) else ULPS)


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
    """The largest errors that pass without a look at honest evaluations. Without an oracle the
    floor is 64 ulp: eager's own error is unknown then."""
    import torch

    norm, element = LOOSE.get(precision, (0.0, 0.0))
    unknown = 64 * torch.finfo(dtype).eps if no_oracle else 0.0
    return Errors(
        max(EAGER_FACTOR * eager.norm, unknown, _ulps(dtype, ULPS), norm),
        max(EAGER_FACTOR * eager.element, unknown, _ulps(dtype, ELEMENT_ULPS), element),
    )


def _compare_exact(
    case: str,
    index: int,
    found: torch.Tensor,
    eager: torch.Tensor,
    exact: torch.Tensor | None,
    leeway: Leeway,
) -> Comparison:
    same = found == eager
    if exact is not None:
        same |= found == exact
    right = bool(same.all()) or (leeway.pointed(found) if leeway.pointed is not None else None)
    for draw in range(EXACT_DRAWS if right is None and leeway.honest is not None else 0):
        honest = leeway.honest(draw)  # type: ignore[misc]
        if honest is None:
            break
        same |= found == honest
        right = bool(same.all())
    if right:
        return Comparison(ZERO, ZERO, ZERO, None)
    mismatch = describe(case, index, found, eager, eager.double(), REFUSED)
    return Comparison(REFUSED.ours, ZERO, ZERO, mismatch, margin=math.inf)


def describe(
    case: str,
    index: int,
    found: torch.Tensor,
    eager: torch.Tensor,
    oracle: torch.Tensor,
    ruled: RuleResult,
) -> Mismatch:
    """The full finding: the first wrong element, how many there are, and their pattern."""
    import torch

    value = found.double()
    wrong = _wrong_places(found, value, eager, oracle, ruled)
    flat = int(wrong.reshape(-1).to(torch.uint8).argmax())
    where = tuple(int(i) for i in torch.unravel_index(torch.tensor(flat), found.shape))
    shares = ruled.shares
    return Mismatch(
        case=case,
        output=index,
        norm_error=ruled.ours.norm,
        norm_allowed=ruled.allowed.norm,
        element_error=ruled.ours.element,
        element_allowed=ruled.allowed.element,
        first_index=where,
        expected=float(oracle.reshape(-1)[flat]),
        found=float(value.reshape(-1)[flat]),
        wrong_share=float(wrong.double().mean()),
        pattern=place_pattern(wrong, value, eager),
        largest_error=ruled.largest.error,
        largest_allowed=ruled.largest.allowed,
        measure=max(shares, key=lambda name: shares[name]),
        margin=max(shares.values()),
    )


def _wrong_places(
    found: torch.Tensor,
    value: torch.Tensor,
    eager: torch.Tensor,
    oracle: torch.Tensor,
    ruled: RuleResult,
) -> torch.Tensor:
    """Which elements are to be shown as wrong: never none."""
    import torch

    allowed = ruled.allowed
    if "largest" in ruled.shares and ruled.largest.wrong is not None:
        wrong = torch.zeros(found.numel(), dtype=torch.bool, device=found.device)
        wrong[ruled.largest.wrong] = True
        return wrong.reshape(found.shape)
    rms = float(torch.nan_to_num(oracle, 0.0, 0.0, 0.0).square().mean().sqrt())
    bound = max(allowed.element, allowed.norm) * max(rms, torch.finfo(torch.float32).tiny)
    agrees = (value - oracle).abs() <= bound * (oracle.abs() / max(rms, 1e-300)).clamp(min=1.0)
    same = (value == eager) | (value.isnan() & eager.isnan())
    wrong = ~(agrees | same)
    if found.is_floating_point():
        kinds = specials(eager, oracle)
        wrong &= kinds.compared | kinds.agreed
    return wrong if bool(wrong.any()) else (value - oracle).abs() > bound / 8


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
