"""Form and values of outputs against the reference, and the precision rule.

strict: allowed is the largest of twice eager's own error against the fp64 oracle, a floor of 4
ulp of the output dtype (8 an element of fp32), one and a half times what honest evaluations of
the original come to (`rounding_noise`), and what PyTorch's own flags permit. The measures are
those of `errors`: zeros do not make small outputs pass, and no element has to be closer than its
own format can be. The looser classes only raise the floor: tf32 to 1e-3 norm-wise and 5e-3 per
element, bf16 to 8e-3 and 4e-2. A third check covers the single elements that neither average
sees.

Honest evaluations are made only where an output would be refused without them, and no more than
it takes to pass it.

NaN and infinities must lie where eager has them, wherever the oracle (rounded to the output's
dtype) has the same ones; where the two disagree nothing is compared.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, cast

from agentkernel.domain.plain_text import plain_line
from agentkernel.domain.verdict import (
    CaseResult,
    Failure,
    InputsChanged,
    Measure,
    Mismatch,
    Precision,
    WrongMeta,
)
from agentkernel.tools.judge.cases.plan import Case
from agentkernel.tools.judge.cases.values import pieces
from agentkernel.tools.judge.comparison.errors import (
    HONEST,
    Errors,
    LargestError,
    Leeway,
    Suspects,
    Tally,
    blocks,
    errors,
    specials,
    spread_of,
)
from agentkernel.tools.problem.structures import tree_text
from agentkernel.tools.sandbox.protocol import JSON, WorkerFailed

if TYPE_CHECKING:
    import torch

    from agentkernel.tools.judge.reference.oracle import Answer


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
UNMOVED = 64
"""So many elements, over all evaluations that move further, of which none was excused: no more of
them are made."""
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


@dataclass(frozen=True)
class OutputValues:
    """One output as the candidate (`found`), eager and the fp64 run have it. `oracle` is None for
    integers and booleans, whose fp64 run is `exact`; `no_oracle`: eager stands in for it."""

    found: torch.Tensor
    eager: torch.Tensor
    oracle: torch.Tensor | None
    exact: torch.Tensor | None = None
    no_oracle: bool = False


def compare_output(
    case: str, index: int, values: OutputValues, precision: Precision, leeway: Leeway = PLAIN
) -> Comparison:
    """Judge one output tensor. Of integers and booleans each must be what eager has or, where
    rounding has misled that, what the fp64 run or an honest evaluation has, or point at a value
    that is as good."""
    found, eager, oracle = values.found, values.eager, values.oracle
    if oracle is None:
        return _compare_exact(case, index, values, leeway)
    tally = Tally(oracle.numel())
    suspects = Suspects(_ulps(eager.dtype, ELEMENT_ULPS), leeway.columns)
    for piece in blocks(oracle):
        tally.add(found[piece], eager[piece], oracle[piece])
        compared = specials(eager[piece], oracle[piece]).compared
        suspects.add(found[piece], eager[piece], oracle[piece], compared)
    ours, theirs = tally.errors(0), tally.errors(1)
    allowed = allowance(theirs, eager.dtype, precision, values.no_oracle)
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
    permit, until the output passes; elements that are still wrong by themselves, with the same
    evaluations moved further."""
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
    return _with_further(ruled, suspects, leeway, seen)


def _with_further(
    ruled: RuleResult, suspects: Suspects, leeway: Leeway, seen: Sequence[torch.Tensor]
) -> PopulationResult:
    """With evaluations that move `HONEST` times as far, for elements that alone are wrong: `HONEST`
    times what an honest one is off there says nothing where a step or a saturated function follows
    (tanh of a sum that cancels is 1 or -1, and no evaluation is off by half of that)."""
    far: list[torch.Tensor] = []
    for evaluate, name in ((leeway.further, ""), (leeway.permitted_further, leeway.permits)):
        wrong = _wrong_count(ruled)
        for draw in range(HONEST_DRAWS if evaluate is not None and wrong else 0):
            value = evaluate(draw)  # type: ignore[misc]
            if value is None:
                break
            far.append(suspects.at(value))
            largest = suspects.result(ruled.allowed.element, leeway.perturb, seen, far)
            ruled = RuleResult(ruled.ours, ruled.allowed, largest)
            if ruled.passed:
                return PopulationResult(ruled, name)
            if (draw + 1) * wrong > UNMOVED and _wrong_count(ruled) == wrong:
                break
    return PopulationResult(ruled, "")


def _wrong_count(ruled: RuleResult) -> int:
    """How many elements are wrong where nothing else is."""
    wrong = ruled.largest.wrong
    return 0 if wrong is None or "largest" not in ruled.shares else wrong.numel()


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
    values: OutputValues,
    leeway: Leeway,
) -> Comparison:
    found, eager = values.found, values.eager
    same = found == eager
    if values.exact is not None:
        same |= found == values.exact
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
    # Where NaN made the error infinite the first of them is named, not the first wrong element.
    odd = wrong & value.isnan() & ~oracle.isnan()
    shown = odd if bool(odd.any()) else wrong
    flat = int(shown.reshape(-1).to(torch.uint8).argmax())
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


SCALAR_TOLERANCE = 1e-6
PERMITTED = "products and convolutions rounded to TF32, as PyTorch's flags permit on a GPU"
ALIKE = ("normal", "own")
"""Distributions that are the same in every channel."""
CONSTANT = ("zeros", "ones", "constant")
STEPS: dict[Precision, float] = {"strict": 0.0, "tf32": 2.0**-10, "bf16": 2.0**-8}
"""By how much, at least, inputs move when ill conditioning is looked for."""


@dataclass(frozen=True)
class CaseOutcome:
    """What one case gave. `failure` is None where it passed."""

    results: tuple[CaseResult, ...]
    launches: tuple[str, ...]
    failure: Failure | None
    refused: WorkerFailed | None = None
    """How the worker failed, where it did."""
    permitted: str = ""
    """What PyTorch's flags permit and an output needed."""
    products: tuple[str, ...] = ()
    """Products that lose precision by their types, as far as the interpreter read them."""
    outside: str = ""
    """Which lines read memory of no tensor of the launch."""
    races: tuple[str, ...] = ()
    """Loads that depend on how two programs follow each other, by line."""

    def failed(self, failure: Failure) -> CaseOutcome:
        """The same with `failure`."""
        results = tuple(item.evolve(passed=False) for item in self.results)
        return dataclasses.replace(self, results=results, failure=failure)


def check_outputs(
    case: Case,
    answer: Answer,
    reply: dict[str, JSON],
    found: Sequence[torch.Tensor | None],
    precision: Precision,
) -> CaseOutcome:
    """Compare form first, then values. `found` holds the parent's buffers, None for no tensor."""
    launches = reply_strings(reply.get("launches"))
    wrong = check_form(case, answer, reply)
    if wrong is not None:
        return CaseOutcome((), launches, wrong, outside=loads_outside(reply))
    compared: list[Comparison] = []
    for index, leaf in enumerate(answer.leaves):
        buffer = found[index]
        if buffer is not None:
            values = OutputValues(
                found=buffer,
                eager=cast("torch.Tensor", leaf),
                oracle=answer.oracle[index],
                exact=answer.exact[index],
                no_oracle=answer.no_oracle,
            )
            leeway = _leeway(case, answer, index, precision)
            compared.append(compare_output(case.label, index, values, precision, leeway))
    mismatch = next((item.mismatch for item in compared if item.mismatch is not None), None)
    result = case_result(case, compared, mismatch is None)
    failure = explain_mismatch(mismatch, case, reply)
    permitted = next((item.permitted for item in compared if item.permitted), "")
    products = reply_strings(reply.get("products"))
    races = reply_strings(reply.get("races"))
    outside = loads_outside(reply)
    return CaseOutcome((result,), launches, failure, None, permitted, products, outside, races)


def check_state(
    case: Case, answer: Answer, state: dict[str, torch.Tensor], precision: Precision
) -> Failure | None:
    """What the reference leaves alone must be the same bit for bit; what it wrote to is compared
    like an output."""
    for name, value in state.items():
        after = answer.state_after[name]
        if name not in answer.wrote_state:
            if not same_bits(value, after):
                return InputsChanged(case=case.label, name=name)
            continue
        oracle = answer.state_oracle.get(name)
        label = f"{case.label}, buffer {name}"
        values = OutputValues(value, after, oracle, no_oracle=answer.no_oracle)
        found = compare_output(label, 0, values, precision)
        if found.mismatch is not None:
            return found.mismatch
    return None


def same_bits(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Bit for bit, any NaN being like any other; piece by piece, so that masks stay small. What is
    equal, as weights after a call are, is read once."""
    pairs = zip(pieces(one), pieces(other), strict=True)
    return all(_equal(a, b) or bool(((a == b) | (a.isnan() & b.isnan())).all()) for a, b in pairs)


def _equal(one: torch.Tensor, other: torch.Tensor) -> bool:
    """False too where torch has no such test, as for 8-bit floats on a CPU."""
    import torch

    try:
        return torch.equal(one, other)
    except NotImplementedError:
        return False


def _leeway(case: Case, answer: Answer, index: int, precision: Precision) -> Leeway:
    step = max(STEPS[precision], answer.rounding)
    known = answer.population
    eager = cast("torch.Tensor", answer.leaves[index])
    return Leeway(
        honest=None if known is None else known.honest(index),
        permitted=None if known is None else known.permitted(index),
        further=None if known is None else known.honest(index, HONEST),
        permitted_further=None if known is None else known.permitted(index, HONEST),
        permits=PERMITTED,
        pointed=None if known is None else lambda found: known.points_as_well(index, found, eager),
        perturb=None
        if answer.no_oracle
        else lambda seed: answer.perturbed.output(index, seed, step),
        columns=case.distribution in ALIKE and case.layout != "expanded" and not case.after,
        constant=case.distribution in CONSTANT or case.layout == "expanded",
    )


def explain_mismatch(
    mismatch: Mismatch | None, case: Case, reply: dict[str, JSON]
) -> Mismatch | None:
    """The mismatch in the words that the case's order and loads outside of tensors give it."""
    if mismatch is None:
        return None
    if case.order != "ascending" and case.after:
        return mismatch.evolve(pattern="order")
    outside = loads_outside(reply)
    return mismatch.evolve(case=f"{case.label} ({outside})") if outside else mismatch


def loads_outside(reply: dict[str, JSON]) -> str:
    """Which lines read memory of no tensor of the launch; "" for none."""
    lines = reply_strings(reply.get("loads_outside"))
    return f"loads outside of every tensor: {', '.join(lines)}" if lines else ""


def check_form(case: Case, answer: Answer, reply: dict[str, JSON]) -> WrongMeta | None:
    """What of the outputs is no tensor of the original's form; `answer.leaves` may be fakes."""
    outputs = reply.get("outputs")
    theirs = outputs if isinstance(outputs, list) else []
    tree = tree_text(answer.spec)
    if reply.get("tree") != tree or len(theirs) != len(answer.leaves):
        return WrongMeta(
            case=case.label, output=0, expected=tree, found=str(reply.get("tree"))[:400]
        )
    for index, (leaf, other) in enumerate(zip(answer.leaves, theirs, strict=True)):
        strict = case.layout in ("contiguous", "offset")
        own = answer.aliases[index]
        expected, got = _form(leaf, strict), _form_of_reply(leaf, other, strict, own=own)
        if expected != got and not _as_captured(answer, index, other):
            return WrongMeta(case=case.label, output=index, expected=expected, found=got)
        sizes = getattr(leaf, "shape", ())
        theirs_overlap = _overlaps(sizes, other.get("stride") if isinstance(other, dict) else None)
        if theirs_overlap and not own and not _overlaps(sizes, _steps(leaf)):
            return WrongMeta(
                case=case.label,
                output=index,
                expected="an output whose elements lie apart, as the original's",
                found="several of its elements lie in one place",
            )
        shares = other.get("shares") if isinstance(other, dict) else None
        if shares and not answer.aliases[index]:
            return WrongMeta(
                case=case.label,
                output=index,
                expected="an output in memory of its own, as the original's",
                found=f"it lies in the memory of {str(shares)[:80]}",
            )
        if isinstance(other, dict) and other.get("pretends") is True:
            return WrongMeta(
                case=case.label,
                output=index,
                expected="an output whose gradient reaches an input or a parameter, or none",
                found="it requires a gradient that reaches neither",
            )
        beside = other.get("with", index) if isinstance(other, dict) else index
        if answer.together and beside != index and answer.together[index] == index:
            return WrongMeta(
                case=case.label,
                output=index,
                expected="an output in memory of its own, as the original's",
                found=f"it lies in the memory of output {beside}",
            )
    return None


def _steps(leaf: object) -> JSON:
    import torch

    return list(leaf.stride()) if isinstance(leaf, torch.Tensor) else None


def _overlaps(shape: Sequence[int], steps: JSON) -> bool:
    """Whether a step does not lead past what the smaller ones reach; dimensions of size 1 say
    nothing."""
    if not isinstance(steps, list) or 0 in shape:
        return False
    reach = 0
    for step, size in sorted((int(cast("int", x)), n) for x, n in zip(steps, shape, strict=True)):
        if size > 1 and step <= reach:
            return True
        reach += step * (size - 1)
    return False


def _as_captured(answer: Answer, index: int, reply: JSON) -> bool:
    """Whether an output differs from eager's in nothing but strides, and has those that the same
    module gives on the meta device: attention's depend on the kernel that torch picks here."""
    leaf, own = answer.leaves[index], answer.aliases[index]
    if _form(leaf, False) != _form_of_reply(leaf, reply, False, own=own):
        return False
    strides = answer.strides_elsewhere()[index]
    theirs = reply.get("stride") if isinstance(reply, dict) else None
    sizes = list(getattr(leaf, "shape", ()))
    if strides is None or not isinstance(theirs, list):
        return False
    return all(a == b for a, b, size in zip(theirs, strides, sizes, strict=True) if size != 1)


def _form(leaf: object, strict: bool) -> str:
    import torch

    if not isinstance(leaf, torch.Tensor):
        return repr(leaf)
    dtype = str(leaf.dtype).removeprefix("torch.")
    stride: list[object] = list(leaf.stride()) if strict else ["*"] * leaf.ndim
    return _form_text(dtype, list(leaf.shape), stride, leaf.device.type, "Tensor")


def _form_of_reply(leaf: object, reply: JSON, strict: bool, *, own: bool) -> str:
    """Strides count where the inputs have the usual ones: `strict`. A parameter is an answer only
    where the original returns one of its `own` too."""
    if not isinstance(reply, dict):
        return str(reply)
    if "literal" in reply:
        text = str(reply["literal"])
        return repr(leaf) if _same_scalar(leaf, text) else text
    shape, stride = reply.get("shape"), reply.get("stride")
    if not isinstance(shape, list) or not isinstance(stride, list):
        return str(reply)
    words = [str(reply.get(key)) for key in ("dtype", "device", "type")]
    words[2] = "Tensor" if own and words[2] == "Parameter" else words[2]
    steps = stride if strict else ["*"] * len(stride)
    return _form_text(words[0], shape, steps, words[1], words[2])


def _form_text(
    dtype: str, shape: Sequence[object], stride: Sequence[object], device: str, kind: str
) -> str:
    """Strides of dimensions of size 1 say nothing, nor do those of an empty tensor."""
    steps = [
        "*" if size == 1 or 0 in shape else str(step)
        for size, step in zip(shape, stride, strict=False)
    ]
    kind = "" if kind == "Tensor" else f" {kind}"
    return f"{dtype}{list(shape)} stride ({', '.join(steps)}) on {device}{kind}"


def _same_scalar(leaf: object, text: str) -> bool:
    if isinstance(leaf, float):
        try:
            return math.isclose(leaf, float(text), rel_tol=SCALAR_TOLERANCE)
        except ValueError:
            return False
    return repr(leaf) == text


def case_result(case: Case, compared: Sequence[Comparison], passed: bool) -> CaseResult:
    """The largest figures of what was compared."""
    return CaseResult(
        label=case.label,
        seed=case.seed,
        distribution=case.distribution,
        shapes=case.shape.label,
        norm_error=max((item.found.norm for item in compared), default=0.0),
        eager_norm_error=max((item.eager.norm for item in compared), default=0.0),
        element_error=max((item.found.element for item in compared), default=0.0),
        eager_element_error=max((item.eager.element for item in compared), default=0.0),
        passed=passed,
        largest_error=max((item.largest for item in compared), default=0.0),
        margin=max((item.margin for item in compared), default=0.0),
    )


def reply_strings(value: JSON | None) -> tuple[str, ...]:
    """A list of words from the worker, cut short."""
    items = value[:10_000] if isinstance(value, list) else []
    return tuple(plain_line(str(item))[:200] for item in items)
