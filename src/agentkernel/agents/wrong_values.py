"""What do a few figures of a wrong result say about the mistake behind it?

Of the output the judge keeps the first wrong element, the share and pattern of the wrong ones, and
||out - oracle|| / ||oracle||. That norm tells more than one element: it is |c - 1| where the whole
output is c times the right one, 2 where it is negated, 1 where it is zero, and near sqrt(2) where
right values stand in wrong places.
"""

from __future__ import annotations

import math
import re
from typing import Literal

from agentkernel.domain.verdict import CaseResult, Mismatch, Verdict

ErrorForm = Literal[
    "special values", "rounding", "negated", "zero", "constant factor", "misplaced", "other"
]
WIDE = 0.9
"""Share of wrong elements from which on the norm speaks for the whole output."""
SAME = 0.02
ROUNDING = 100
"""Up to as many times the allowed error the formula is taken to be right."""
FACTORS = (
    (math.log(2), "ln 2, as if exp2 or log2 stood for exp or log"),
    (1 / math.log(2), "1 / ln 2, as if exp or log stood for exp2 or log2"),
    (math.sqrt(2), "sqrt(2)"),
    (math.sqrt(0.5), "1 / sqrt(2)"),
)
MANTISSAS = (
    (2.0**-8, "bf16 (2^-8): a product or a cast ran in bf16"),
    (2.0**-11, "tf32 or fp16 (2^-11): a tl.dot without input_precision, or a cast"),
    (2.0**-24, "fp32 (2^-24): the order of a long sum, or a fast approximation"),
)
LAYOUT = re.compile(r"\b(strided|expanded|offset) inputs\b")
DTYPE = re.compile(r"\b(float\d+|bfloat16|int\d+|uint8|bool)\[")


def error_form(found: Mismatch) -> ErrorForm:
    """What kind of error it is."""
    if not (math.isfinite(found.found) and math.isfinite(found.expected)):
        return "special values"
    if found.norm_error < ROUNDING * found.norm_allowed:
        return "rounding"
    times = ratio(found)
    wide = found.wrong_share > WIDE
    if wide and times is not None:
        if _near(times, -1.0) and _near(found.norm_error, 2.0):
            return "negated"
        if found.found == 0 and _near(found.norm_error, 1.0):
            return "zero"
        if abs(found.norm_error - abs(times - 1)) <= SAME * abs(times - 1):
            return "constant factor"
    if not wide and found.found == 0 and found.expected != 0:
        return "zero"
    if wide and abs(found.norm_error - math.sqrt(2)) < 0.1:
        return "misplaced"
    return "other"


def ratio(found: Mismatch) -> float | None:
    """Found / expected of the first wrong element; None where it says nothing."""
    if found.expected == 0 or not (math.isfinite(found.found) and math.isfinite(found.expected)):
        return None
    return found.found / found.expected


def explain_error(found: Mismatch, form: ErrorForm) -> str:
    """`form` in words, with what usually causes it."""
    match form:
        case "special values":
            return nan_origin(found)
        case "rounding":
            return f"right but for rounding, {rounding_text(found.norm_error)}"
        case "negated":
            return "every value has the wrong sign"
        case "zero":
            where = "everywhere" if found.wrong_share > WIDE else "in the wrong places"
            return f"0 {where}: never written, masked away, or multiplied by an empty sum"
        case "constant factor":
            return f"the whole output is {factor_text(ratio(found) or 0.0)}"
        case "misplaced":
            return (
                "values of the right size that do not belong there: transposed, permuted, or "
                "read with wrong strides or a wrong row"
            )
    return (
        "no constant factor fits: look for a missing term (bias, residual, eps), a wrong axis of a "
        "reduction, or a partial sum"
    )


def factor_text(times: float) -> str:
    """`4 times too large, as if ...`."""
    known = next((words for value, words in FACTORS if _near(times, value, 0.005)), None)
    if known is not None:
        return f"{times:.4g} times the right one: {known}"
    for value, words in ((times, "times too large"), (1 / times, "times too small")):
        if value >= 1.5 and abs(value - round(value)) < 0.005 * value:
            return (
                f"{round(value)} {words}: a sum for a mean (or the other way round), a scale "
                "used twice or not at all, or an atomic add repeated"
            )
    return f"{times:.4g} times the right one: a scale is missing or used twice"


def rounding_text(norm_error: float) -> str:
    """The format whose rounding is about as large as the error."""
    for ulp, words in MANTISSAS:
        if norm_error >= ulp / 4:
            return f"as large as that of {words}"
    return "below that of fp32: accumulate in fp32 and in the original's order"


def nan_origin(found: Mismatch) -> str:
    """Where a NaN or infinity comes from, or why one is missing; from the values of the case."""
    if math.isnan(found.expected) or math.isinf(found.expected):
        return (
            "the original gives nan or inf here and the candidate hides it: tl.maximum and "
            "comparisons drop NaN (propagate_nan, x != x)"
        )
    values = found.case.partition(",")[0]
    if values in ("large", "inf"):
        return "an overflow: subtract the maximum before exp, accumulate in fp32"
    if values in ("zeros", "constant", "tiny", "sparse"):
        return "0 / 0 or the log or root of 0: keep the original's eps where the original has it"
    if math.isinf(found.found):
        return "an overflow, or a division by 0: accumulate in fp32, look at masked lanes"
    return (
        "inf - inf, 0 / 0, or memory past the edge: give masked loads a neutral `other` "
        "(0 for sums, -inf for maxima), and a row that is masked whole a finite maximum"
    )


def location_text(found: Mismatch) -> str:
    """Where the wrong elements lie, in words that name tiles and programs."""
    index = list(found.first_index)
    match found.pattern:
        case "all":
            return "all of the output"
        case "tail":
            return f"the tail, from {index} on to the end: the last, partial tile"
        case "one row":
            return f"one row, at {index}: one program, or the one row that is reduced otherwise"
        case "nan":
            return f"nan, first at {index}"
        case "order":
            return f"other values when programs run in another order, first at {index}"
    if found.pattern.startswith("every "):
        return f"{found.pattern} row or column, first at {index}: one lane or tile of each group"
    return f"scattered, {found.wrong_share:.2%} of the elements, first at {index}"


def tile_edges(found: Mismatch, constants: dict[str, int]) -> str:
    """Which tile size the first wrong index is a multiple of; "" for none."""
    edges = [
        f"{place} is {place // size} x {name} ({size})"
        for place in found.first_index
        for name, size in sorted(constants.items())
        if size >= 8 and place and place % size == 0
    ]
    return "; ".join(edges[:4])


def passing_text(verdict: Verdict) -> str:
    """What the same file is right for; "" where nothing passed before."""
    good = [item for item in verdict.cases if item.passed]
    bad = next((item for item in verdict.cases if not item.passed), None)
    if not good or bad is None:
        return ""
    layout, plain = input_layout(bad), [item for item in good if not input_layout(item)]
    if layout and plain:
        return (
            f"right with contiguous inputs, wrong with {layout} ones: it takes the inputs for "
            "contiguous and ignores their strides (x.contiguous(), or x.stride() to the kernel)"
            if layout != "offset"
            else "right with aligned inputs, wrong with ones that begin off a 16-byte boundary"
        )
    words = f"right for {_values(good)}, wrong for {bad.distribution} values at {bad.shapes}"
    if all(item.shapes != bad.shapes for item in good):
        return f"{words}: it depends on the shape"
    if all(item.distribution != bad.distribution for item in good):
        return f"{words}: it depends on the values"
    return words


def input_layout(case: CaseResult) -> str:
    """How the inputs of a case lie in memory, "" where they are contiguous; its label says so."""
    found = LAYOUT.search(case.label)
    return found[1] if found else ""


def input_dtypes(verdict: Verdict) -> tuple[str, ...]:
    """The dtypes of the inputs, each once."""
    found = (name for item in verdict.cases for name in DTYPE.findall(item.shapes))
    return tuple(dict.fromkeys(found))


def _values(cases: list[CaseResult]) -> str:
    kinds = dict.fromkeys(f"{item.distribution} values at {item.shapes}" for item in cases)
    return "; ".join(list(kinds)[:4])


def _near(value: float, target: float, room: float = SAME) -> bool:
    return abs(value - target) <= room * abs(target)
