"""Explanations of compiler messages by Triton's rules, and of wrong values by their error form.

The patterns are messages of Triton 3.6 to 3.9 and of ptxas. Of a wrong output the judge keeps
the first wrong element, the share and pattern of the wrong ones, and ||out - oracle|| /
||oracle||. That norm is |c - 1| where the whole output is c times the right one, 2 where it is
negated, 1 where it is zero, and near sqrt(2) where right values are in wrong places.
"""

from __future__ import annotations

import math
import re
from typing import Literal, NamedTuple

from agentkernel.domain.verdict import CaseResult, Mismatch, Verdict


class TritonRule(NamedTuple):
    """A rule of the language, what is said where it is broken, and the usual way to keep it."""

    pattern: str
    name: str
    rule: str
    fix: str


TABLE = (
    TritonRule(
        r"out of resources?: shared memory|shared memory, \d+ bytes needed|too much shared data",
        "shared memory",
        "One program's tiles, times num_stages, must fit the shared memory of a block.",
        "Take a smaller tile or fewer stages.",
    ),
    TritonRule(
        r"out of resources?: (registers|threads)|threads, \d+ at most|too many resources requested"
        r"|register allocation failed",
        "registers",
        "A block's threads share one register file, and a block has at most 1024 threads.",
        "Take a smaller tile, or other num_warps.",
    ),
    TritonRule(
        r"out of resources?: tensor memory|tensor memory, \d+ columns",
        "tensor memory",
        "The accumulators of one program must fit the tensor memory.",
        "Take a smaller tile.",
    ),
    TritonRule(
        r"arange's range must be a power of 2|[Ss]hape element \d+ must be a power of 2",
        "power of two",
        "The length of tl.arange, and every side of a block, is a power of two.",
        "Round the length up with triton.next_power_of_2 at the launch and mask what lies past it.",
    ),
    TritonRule(
        r"arange's arguments must be of type tl\.constexpr|must be (a )?constexpr"
        r"|expected a constexpr|[Ss]hape element \d+ must have type `?constexpr",
        "constexpr missing",
        "The bounds of tl.arange and the shapes of blocks are known when the kernel is compiled.",
        "Pass the value as a parameter annotated `: tl.constexpr`.",
    ),
    TritonRule(
        r"Input shapes should have M >= |[Aa]ll non-batch sizes .*(at least|>=) ?16",
        "tl.dot size",
        "The operands of tl.dot have at least 16 rows, columns and reduced elements.",
        "Pad the tile to 16, or write the product as tl.sum(a * b, axis).",
    ),
    TritonRule(
        r"must have equal reduction dimensions|[Bb]oth inputs must be either 2D or 3D"
        r"|dot operands must be block",
        "tl.dot shape",
        "tl.dot takes [M, K] and [K, N].",
        "Load the second operand as [K, N], or pass tl.trans of it.",
    ),
    TritonRule(
        r"[Bb]oth operands must be same dtype|expected matching operand types",
        "tl.dot dtype",
        "Both operands of a product have one dtype.",
        "Cast one with .to(other.dtype) before the product.",
    ),
    TritonRule(
        r"Cannot make_shape_compatible|Cannot broadcast|rank mismatch|incompatible dimensions",
        "block shapes",
        "Blocks combine where each dimension is equal or 1.",
        "Add the missing dimension with [:, None] or [None, :], or use one BLOCK for both.",
    ),
    TritonRule(
        r"cannot change total number of elements",
        "reshape",
        "A reshape keeps the number of elements.",
        "Multiply out both shapes and make them equal.",
    ),
    TritonRule(
        r"(Mask|Other|Value) argument cannot be block type if pointer argument is not a block",
        "scalar pointer",
        "Masks and values are blocks only where the pointer is a block.",
        "Add the offsets to the pointer: ptr + offsets.",
    ),
    TritonRule(
        r"Unsupported ptr type|Expected pointer argument|[Pp]ointer type mismatch",
        "pointer type",
        "tl.load and tl.store take a pointer, or a pointer plus offsets.",
        "Pass the tensor itself at the launch, not its size or one of its values.",
    ),
    TritonRule(
        r"`other` cannot be provided without `mask`",
        "load's mask",
        "tl.load takes `other` only together with `mask`.",
        "Give the mask.",
    ),
    TritonRule(
        r"Mask must have boolean",
        "mask type",
        "A mask is a block of booleans.",
        "Compare offsets with the size: offsets < n.",
    ),
    TritonRule(
        r"exceeds triton maximum tensor numel",
        "block size",
        "A block has at most 1048576 elements.",
        "Loop over smaller tiles.",
    ),
    TritonRule(
        r"Loop-carried variable|initial (type|value for)|has (initial )?type .* but is re-assigned"
        r"|Mismatched type for .* between (then|else)",
        "types in a loop",
        "A variable keeps its type and shape through a loop and through both branches.",
        "Start it with tl.zeros(shape, dtype=tl.float32), and cast what is added.",
    ),
    TritonRule(
        r"Boolean value of Tensor|ambiguous|if.*conditionals can only be scalars",
        "block as condition",
        "`if` takes a scalar; a block has no single truth.",
        "Choose element by element with tl.where.",
    ),
    TritonRule(
        r"unsupported tensor index|Cannot index|unsupported index",
        "indexing a block",
        "A block has no elements that can be indexed; only [:, None] and [None, :] are known.",
        "Reduce with a mask: tl.sum(tl.where(i == k, x, 0), axis=0).",
    ),
    TritonRule(
        r"Cannot access global variable",
        "global variable",
        "A kernel sees its parameters, and globals that are tl.constexpr.",
        "Pass the value as a parameter annotated `: tl.constexpr`.",
    ),
    TritonRule(
        r"module 'triton(\.language)?(\.\w+)*' has no attribute",
        "no such function",
        "The function does not exist in this version of triton.language.",
        "Write it from tl.exp, tl.log, tl.sqrt, tl.where, or take it from tl.extra.cuda.libdevice.",
    ),
    TritonRule(
        r"NameError|is not defined",
        "unknown name",
        "A kernel uses its parameters, its own variables and functions marked @triton.jit.",
        "Define or import the name, or mark the function @triton.jit.",
    ),
    TritonRule(
        r"unexpected keyword argument|missing \d+ required|takes \d+ positional",
        "arguments",
        "The call does not fit the function's parameters (a reduction's is called axis, not dim).",
        "Compare names and number of the arguments with the definition.",
    ),
    TritonRule(
        r"Expected dtype \[|does not support (fp16|bf16)|only supports (integer|floating)",
        "dtype of an operation",
        "The function does not take this dtype.",
        "Cast first: x.to(tl.float32).",
    ),
    TritonRule(
        r"unsupported AST node|UnsupportedLanguageConstruct|only tuple comprehensions|NYI",
        "unsupported Python",
        "Kernels know no break, continue, with, try, lambda, list or dict.",
        "Write it with for, while, if on scalars, and tl.where.",
    ),
    TritonRule(
        r"ptxas|PTXASError|LLVM ERROR|PassManager::run failed",
        "back end",
        "The kernel is valid Triton, and the compiler behind it gave up.",
        "Take a simpler tile: fewer stages, smaller blocks, one dot at a time.",
    ),
)


def broken_rule(log: str) -> TritonRule | None:
    """The rule that `log` says was broken, the most particular one first; None where none fits."""
    return next((rule for rule in TABLE if re.search(rule.pattern, log)), None)


ErrorForm = Literal[
    "special values", "rounding", "negated", "zero", "constant factor", "misplaced", "other"
]
WIDE = 0.9
"""Share of wrong elements from which on the norm speaks for the whole output."""
SAME = 0.02
ROUNDING, LARGEST_ROUNDING = 100, 0.1
"""Up to as many times the allowed error the formula is taken to be right, as long as no digit of it
is wrong: of 16 bits a hundred times what is allowed is more than the values themselves."""
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
    error, allowed = found.measured
    if error < min(ROUNDING * allowed, LARGEST_ROUNDING):
        return "rounding"
    times = ratio(found)
    wide = found.wrong_share > WIDE
    if wide and times is not None:
        if _near(times, -1.0) and _near(found.norm_error, 2.0):
            return "negated"
        if found.found == 0 and _near(found.norm_error, 1.0):
            return "zero"
    # Of few wrong elements too: others may be NaN or 0 on both sides, or too small to be told.
    if times and abs(found.norm_error - abs(times - 1)) <= SAME * abs(times - 1):
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
            return f"right but for rounding, {rounding_text(found.measured[0])}"
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
