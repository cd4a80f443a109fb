"""Which rule of Triton does a compiler's message say was broken, in plain words?

The patterns are messages of Triton 3.6 to 3.9 and of ptxas.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from agentkernel.domain.base import Frozen


class TritonRule(Frozen):
    """A rule of the language, and the usual way to keep it."""

    name: str
    rule: str
    fix: str


class _Row(NamedTuple):
    pattern: str
    name: str
    rule: str
    fix: str


TABLE = (
    _Row(
        r"out of resources?: shared memory|shared memory, \d+ bytes needed|too much shared data",
        "shared memory",
        "One program's tiles, times num_stages, must fit the shared memory of a block.",
        "Take a smaller tile or fewer stages.",
    ),
    _Row(
        r"out of resources?: (registers|threads)|threads, \d+ at most|too many resources requested"
        r"|register allocation failed",
        "registers",
        "A block's threads share one register file, and a block has at most 1024 threads.",
        "Take a smaller tile, or other num_warps.",
    ),
    _Row(
        r"out of resources?: tensor memory|tensor memory, \d+ columns",
        "tensor memory",
        "The accumulators of one program must fit the tensor memory.",
        "Take a smaller tile.",
    ),
    _Row(
        r"arange's range must be a power of 2|[Ss]hape element \d+ must be a power of 2",
        "power of two",
        "The length of tl.arange, and every side of a block, is a power of two.",
        "Round the length up with triton.next_power_of_2 at the launch and mask what lies past it.",
    ),
    _Row(
        r"arange's arguments must be of type tl\.constexpr|must be (a )?constexpr"
        r"|expected a constexpr|[Ss]hape element \d+ must have type `?constexpr",
        "constexpr missing",
        "The bounds of tl.arange and the shapes of blocks are known when the kernel is compiled.",
        "Pass the value as a parameter annotated `: tl.constexpr`.",
    ),
    _Row(
        r"Input shapes should have M >= |[Aa]ll non-batch sizes .*(at least|>=) ?16",
        "tl.dot size",
        "The operands of tl.dot have at least 16 rows, columns and reduced elements.",
        "Pad the tile to 16, or write the product as tl.sum(a * b, axis).",
    ),
    _Row(
        r"must have equal reduction dimensions|[Bb]oth inputs must be either 2D or 3D"
        r"|dot operands must be block",
        "tl.dot shape",
        "tl.dot takes [M, K] and [K, N].",
        "Load the second operand as [K, N], or pass tl.trans of it.",
    ),
    _Row(
        r"[Bb]oth operands must be same dtype|expected matching operand types",
        "tl.dot dtype",
        "Both operands of a product have one dtype.",
        "Cast one with .to(other.dtype) before the product.",
    ),
    _Row(
        r"Cannot make_shape_compatible|Cannot broadcast|rank mismatch|incompatible dimensions",
        "block shapes",
        "Blocks combine where each dimension is equal or 1.",
        "Add the missing dimension with [:, None] or [None, :], or use one BLOCK for both.",
    ),
    _Row(
        r"cannot change total number of elements",
        "reshape",
        "A reshape keeps the number of elements.",
        "Multiply out both shapes and make them equal.",
    ),
    _Row(
        r"(Mask|Other|Value) argument cannot be block type if pointer argument is not a block",
        "scalar pointer",
        "Masks and values are blocks only where the pointer is a block.",
        "Add the offsets to the pointer: ptr + offsets.",
    ),
    _Row(
        r"Unsupported ptr type|Expected pointer argument|[Pp]ointer type mismatch",
        "pointer type",
        "tl.load and tl.store take a pointer, or a pointer plus offsets.",
        "Pass the tensor itself at the launch, not its size or one of its values.",
    ),
    _Row(
        r"`other` cannot be provided without `mask`",
        "load's mask",
        "tl.load takes `other` only together with `mask`.",
        "Give the mask.",
    ),
    _Row(
        r"Mask must have boolean",
        "mask type",
        "A mask is a block of booleans.",
        "Compare offsets with the size: offsets < n.",
    ),
    _Row(
        r"exceeds triton maximum tensor numel",
        "block size",
        "A block has at most 1048576 elements.",
        "Loop over smaller tiles.",
    ),
    _Row(
        r"Loop-carried variable|initial (type|value for)|has (initial )?type .* but is re-assigned"
        r"|Mismatched type for .* between (then|else)",
        "types in a loop",
        "A variable keeps its type and shape through a loop and through both branches.",
        "Start it with tl.zeros(shape, dtype=tl.float32), and cast what is added.",
    ),
    _Row(
        r"Boolean value of Tensor|ambiguous|if.*conditionals can only be scalars",
        "block as condition",
        "`if` takes a scalar; a block has no single truth.",
        "Choose element by element with tl.where.",
    ),
    _Row(
        r"unsupported tensor index|Cannot index|unsupported index",
        "indexing a block",
        "A block has no elements that can be indexed; only [:, None] and [None, :] are known.",
        "Reduce with a mask: tl.sum(tl.where(i == k, x, 0), axis=0).",
    ),
    _Row(
        r"Cannot access global variable",
        "global variable",
        "A kernel sees its parameters, and globals that are tl.constexpr.",
        "Pass the value as a parameter annotated `: tl.constexpr`.",
    ),
    _Row(
        r"module 'triton(\.language)?(\.\w+)*' has no attribute",
        "no such function",
        "The function does not exist in this version of triton.language.",
        "Write it from tl.exp, tl.log, tl.sqrt, tl.where, or take it from tl.extra.cuda.libdevice.",
    ),
    _Row(
        r"NameError|is not defined",
        "unknown name",
        "A kernel uses its parameters, its own variables and functions marked @triton.jit.",
        "Define or import the name, or mark the function @triton.jit.",
    ),
    _Row(
        r"unexpected keyword argument|missing \d+ required|takes \d+ positional",
        "arguments",
        "The call does not fit the function's parameters (a reduction's is called axis, not dim).",
        "Compare names and number of the arguments with the definition.",
    ),
    _Row(
        r"Expected dtype \[|does not support (fp16|bf16)|only supports (integer|floating)",
        "dtype of an operation",
        "The function does not take this dtype.",
        "Cast first: x.to(tl.float32).",
    ),
    _Row(
        r"unsupported AST node|UnsupportedLanguageConstruct|only tuple comprehensions|NYI",
        "unsupported Python",
        "Kernels know no break, continue, with, try, lambda, list or dict.",
        "Write it with for, while, if on scalars, and tl.where.",
    ),
    _Row(
        r"ptxas|PTXASError|LLVM ERROR|PassManager::run failed",
        "back end",
        "The kernel is valid Triton, and the compiler behind it gave up.",
        "Take a simpler tile: fewer stages, smaller blocks, one dot at a time.",
    ),
)


def broken_rule(log: str) -> TritonRule | None:
    """The rule that `log` says was broken, the most particular one first; None where none fits."""
    for row in TABLE:
        if re.search(row.pattern, log):
            return TritonRule(name=row.name, rule=row.rule, fix=row.fix)
    return None
