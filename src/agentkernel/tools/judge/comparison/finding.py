"""Do a candidate's outputs have the right form and the right values?"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from agentkernel.domain.plain_text import plain_line
from agentkernel.domain.rules import Precision
from agentkernel.domain.verdict import CaseResult, Failure, InputsChanged, Mismatch, WrongMeta
from agentkernel.tools.judge.cases.cases import Case
from agentkernel.tools.judge.cases.values import pieces
from agentkernel.tools.judge.comparison.compare import Comparison, compare_output
from agentkernel.tools.judge.comparison.worst import Leeway
from agentkernel.tools.problem.structures import tree_text
from agentkernel.tools.sandbox.protocol import JSON
from agentkernel.tools.sandbox.session import WorkerFailed

if TYPE_CHECKING:
    import torch

    from agentkernel.tools.judge.reference.reference import Answer

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
        results = tuple(item.model_copy(update={"passed": False}) for item in self.results)
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
            compared.append(
                compare_output(
                    case.label,
                    index,
                    buffer,
                    cast("torch.Tensor", leaf),
                    answer.oracle[index],
                    precision,
                    answer.no_oracle,
                    _leeway(case, answer, index, precision),
                    answer.exact[index],
                )
            )
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
        found = compare_output(label, 0, value, after, oracle, precision, answer.no_oracle)
        if found.mismatch is not None:
            return found.mismatch
    return None


def same_bits(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Bit for bit, any NaN being like any other; piece by piece, so that masks stay small."""
    pairs = zip(pieces(one), pieces(other), strict=True)
    return all(bool(((a == b) | (a.isnan() & b.isnan())).all()) for a, b in pairs)


def _leeway(case: Case, answer: Answer, index: int, precision: Precision) -> Leeway:
    step = max(STEPS[precision], answer.rounding)
    known = answer.population
    eager = cast("torch.Tensor", answer.leaves[index])
    return Leeway(
        honest=None if known is None else known.honest(index),
        permitted=None if known is None else known.permitted(index),
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
        return mismatch.model_copy(update={"pattern": "order"})
    outside = loads_outside(reply)
    return (
        mismatch.model_copy(update={"case": f"{case.label} ({outside})"}) if outside else mismatch
    )


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
