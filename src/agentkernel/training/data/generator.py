"""Generated modules, and altered texts of their kernels.

A module is written statement by statement from one seed; nothing here runs or imports torch. A
correct kernel gets variants with one common mistake each, and a drop-in is trimmed to what it
needs to compute.
"""

from __future__ import annotations

import ast
import math
import random
import re
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from agentkernel.domain.base import Frozen, sha256_text
from agentkernel.storage.source_text import parse_source
from agentkernel.training.data.module_writer import AuthorStyle, ModuleDraft
from agentkernel.training.data.operators import OPERATORS, Operator
from agentkernel.training.settings import Source

Change = Callable[[re.Match[str]], str]


@dataclass(frozen=True)
class BrokenKernel:
    """A kernel's text with one mistake, the mistake in words, and its name."""

    text: str
    change: str
    mistake: str


@dataclass(frozen=True)
class Mistake:
    """What is looked for, what it becomes, and how one says it. {0} in `words` is what stood there,
    {1} what stands there now."""

    name: str
    pattern: str
    becomes: str
    words: str


MISTAKES = (
    Mistake("load mask", r"(tl\.load\([^\n]*?), mask=[^\n]*?, other=[^\n,)]+", r"\1",
            "a load has lost its mask: it reads past the end of the tensor"),
    Mistake("store mask", r"(tl\.store\([^\n]*), mask=[^\n]*\)", r"\1)",
            "a store has lost its mask: it writes past the end of the tensor"),
    Mistake("neutral sum", r"(tl\.sum\(tl\.where\([^\n]*?), 0\.0\)", r"\1, 1.0)",
            "what a sum adds for the columns past the end is 1.0 and not 0.0"),
    Mistake("no neutral", r"tl\.sum\(tl\.where\(col_mask, ([a-z_0-9 *]+), 0\.0\)", r"tl.sum(\1",
            "a sum takes in the columns past the end of the row"),
    Mistake("neutral max", r'-float\("inf"\)', r"0.0",
            "a maximum starts from 0.0: rows of negative numbers come out wrong"),
    Mistake("stride", r"\brow \* n_cols \+ col\b", r"row * BLOCK_N + col",
            "rows are BLOCK_N apart in the address, and not n_cols"),
    Mistake("count", r"/ n_cols\b", r"/ BLOCK_N",
            "a mean divides by the tile's width, and not by the row's"),
    Mistake("grid", r"triton\.cdiv\(([^,()]+), ([^()]+)\),\)", r"(\1) // \2,)",
            "the grid is rounded down: the last rows or elements get no program"),
    Mistake("program", r"tl\.program_id\(0\)", r"tl.program_id(1)",
            "the program's number is taken along the wrong axis: all do the first tile"),
    Mistake("block", r"(tl\.program_id\(0\)\.to\(tl\.int64\) \* BLOCK(?:_[MN])?) \+",
            r"\1 + 1 +", "every tile begins one element late"),
    Mistake("epsilon", r"\+ 1e-(0[5-8])", r"+ 1e-2",
            "the epsilon under the root is 1e-2, and not what the module has"),
    Mistake("bias", r" \+ (bias|shift|beta|offset|b)\b(?! \*)", r"",
            "the bias is loaded and never added"),
    Mistake("weight", r" \* (weight|scale|gamma|gain|g)\b", r"",
            "the weight is loaded and never multiplied with"),
    Mistake("cast", r"\.to\(tl\.float32\)", r"",
            "half-precision values are not brought to fp32 before computing"),
    Mistake("half sum", r"(tl\.sum\()(tl\.where\([^\n]*?\))(, axis)", r"\1(\2).to(tl.float16)\3",
            "the sum is accumulated in fp16"),
    Mistake("sign", r"= ([a-z_0-9]+) - ([a-z_0-9]+)$", r"= \1 + \2",
            "a difference has become a sum"),
    Mistake("order", r"= ([a-z_0-9]+) - ([a-z_0-9]+)$", r"= \2 - \1",
            "a difference is taken the wrong way round"),
    Mistake("product", r"= ([a-z_0-9]+) \* ([a-z_0-9]+)$", r"= \1 + \2",
            "a product has become a sum"),
    Mistake("root", r"tl\.rsqrt\(", r"tl.sqrt(",
            "the square root is not inverted"),
    Mistake("where", r"tl\.where\(([^,()]+ [<>]=? [^,()]+), ([^,()]+), ([^,()]+)\)",
            r"tl.where(\1, \3, \2)", "the two branches of a where are swapped"),
    Mistake("constant", r"0\.7071067811865476", r"0.7978845608028654",
            "the constant of GELU is that of its tanh form"),
    Mistake("half", r"\* 0\.5\b", r"* 0.25", "a factor of 0.5 has become 0.25"),
    Mistake("maximum", r"tl\.max\(", r"tl.min(", "the smallest is taken, and not the largest"),
    Mistake("dtype", r"dtype=torch\.float32\)", r"dtype=torch.float16)",
            "the output is allocated in fp16"),
    Mistake("contiguous", r"^        ([a-z_0-9]+) = \1\.contiguous\(\)\n", r"",
            "an input is read as if it were contiguous"),
    Mistake("axis", r"axis=1", r"axis=0", "a reduction goes over rows, and not over columns"),
    Mistake("name", r"tl\.(sum|max|exp|sqrt|abs|where|maximum|sigmoid|rsqrt|log)\(",
            r"tl.reduce_\1(", "a function is called that triton.language does not have"),
    Mistake("torch", r"^        return ([a-z_0-9]+)$", r"        return torch.add(\1, 0)",
            "forward computes with torch after the kernel"),
    Mistake("no launch", r"^        ([a-z_0-9]+_kernel)\[", r"        # \1[",
            "a launch is missing: the output is never written"),
    Mistake("first rows", r"(\b[a-z_0-9]+_kernel)\[\([^\n]*,\)\]", r"\1[(1,)]",
            "one program is launched for all the work"),
    Mistake("exponential", r"\bexp\(([a-z_0-9]+) - ([a-z_0-9]+)\)", r"exp(\1)",
            "the largest value is not taken off before the exponential: it overflows"),
)  # fmt: skip


def broken_variants(kernel: str, seed: int) -> Iterator[BrokenKernel]:
    """Texts of `kernel` with one mistake each, in an order that `seed` decides, each mistake at one
    place. Nobody knows yet that a judge refuses them: a mask may have been needless."""
    rng = random.Random(f"broken {seed}")
    for mistake in rng.sample(MISTAKES, len(MISTAKES)):
        places = list(re.finditer(mistake.pattern, kernel, re.MULTILINE))
        if not places:
            continue
        place = rng.choice(places)
        text = kernel[: place.start()] + place.expand(mistake.becomes) + kernel[place.end() :]
        text = _commented(text) if mistake.name == "no launch" else text
        if text != kernel and _reads(text):
            yield BrokenKernel(text, mistake.words, mistake.name)


def _commented(text: str) -> str:
    """The rest of the launch that was taken out is taken out too."""
    lines, found, depth = text.splitlines(), [], 0
    for line in lines:
        if depth or re.match(r"        # [a-z_0-9]+_kernel\[", line):
            depth += line.count("(") + line.count("[") - line.count(")") - line.count("]")
            continue
        found.append(line)
    return "\n".join(found) + "\n"


def _reads(text: str) -> bool:

    try:
        parse_source(text)
    except SyntaxError:
        return False
    return True


LICENCE = "Apache-2.0"
"""Of what is generated: this project's own."""
COUNTS = (1, 2, 3, 4, 5)
COUNT_WEIGHTS = (10, 28, 30, 20, 12)
RANK_WEIGHTS = {1: 3, 2: 52, 3: 27, 4: 18}
WIDTHS = (8, 16, 20, 24, 32, 40, 48, 50, 60, 64, 72, 80, 96, 100, 128, 160, 192, 200, 256, 300)
LONG_WIDTHS = (384, 512, 768, 1000, 1024)
LENGTHS = (64, 100, 128, 250, 256, 500, 1000, 1024, 2048)
ROWS = (4, 6, 8, 10, 12, 16, 20, 24, 32, 33, 40, 48, 64)
MOST_INPUT = 6_144
"""Elements of the first input."""
TRIES = 40
ONCE = ("softmax", "search", "layer norm", "rms norm", "nothing", "embedding", "scan", "linear")
"""What is not done twice in one module."""
MODULE_KINDS = {
    "contraction": ("linear",),
    "pool": ("pool",),
    "loss": ("loss", "class loss"),
    "lookup": ("embedding", "scan", "search", "joined"),
    "normalisation": (
        "layer norm",
        "rms norm",
        "channel norm",
        "batch norm",
        "normalise",
        "softmax",
    ),
    "reduction": ("reduction", "whole reduction"),
    "activation": ("unary", "gate"),
    "layout": ("mask", "view", "nothing"),
    "arithmetic": ("scalar", "parameter", "pair", "residual"),
}
"""Kinds of modules by their steps, the rarest steps first: of what is drawn as it comes, half is
normalised or reduced, and one in twenty has a matrix product."""


class GeneratedProblem(Frozen):
    """A problem in the KernelBench convention that has not been run.

    `operators` are the kinds of steps that it was made of, in order; what the graph really holds is
    for whoever captures it to say.
    """

    text: str
    name: str
    operators: tuple[str, ...] = ()
    dtype: str = "float32"
    seed: int | None = None
    licence: str = LICENCE
    source: Source = "generated"

    @property
    def sha256(self) -> str:
        """Identity of the problem's text."""
        return sha256_text(self.text)

    @property
    def kind(self) -> str:
        """The first of MODULE_KINDS that has one of the steps; "" of one that nobody made here."""
        own = {*self.operators}
        return next((name for name, steps in MODULE_KINDS.items() if own & {*steps}), "")


def make_problem(seed: int) -> GeneratedProblem:
    """The module of this seed; the same for ever, as long as the operators stay as they are."""
    rng = random.Random(f"module {seed}")
    writing = _begun(rng)
    wanted = rng.choices(COUNTS, COUNT_WEIGHTS)[0]
    for _ in range(TRIES):
        if len(writing.ops) >= wanted or writing.ended:
            break
        operator = _drawn(rng, writing)
        if called := operator.step(writing):
            writing.words.append(called)
            writing.ops.append(operator.name)
    return GeneratedProblem(
        text=writing.text(),
        name=f"{'_'.join(dict.fromkeys(item.replace(' ', '_') for item in writing.ops))}_{seed}",
        operators=tuple(writing.ops),
        dtype=writing.first_dtype,
        seed=seed,
    )


def _begun(rng: random.Random) -> ModuleDraft:
    rank = rng.choices(list(RANK_WEIGHTS), list(RANK_WEIGHTS.values()))[0]
    dtype = rng.choices(("float32", "float16", "bfloat16"), (84, 8, 8))[0]
    shape = _shape(rng, rank)
    writing = ModuleDraft(rng, AuthorStyle.drawn(rng), list(shape), dtype)
    writing.first_shape, writing.first_dtype = list(shape), dtype
    writing.begin()
    return writing


def _shape(rng: random.Random, rank: int) -> tuple[int, ...]:
    """Sizes as people choose them, at most `MOST_INPUT` elements."""
    while True:
        shape = _sizes(rng, rank)
        if math.prod(shape) <= MOST_INPUT:
            return shape


def _sizes(rng: random.Random, rank: int) -> tuple[int, ...]:
    if rank == 1:
        return (rng.choice(LENGTHS),)
    if rank == 2 and rng.random() < 0.1:
        return rng.choice(ROWS[:6]), rng.choice(LONG_WIDTHS)
    if rank == 2:
        return rng.choice(ROWS), rng.choice(WIDTHS)
    if rank == 3:
        return rng.choice((1, 2, 3, 4, 8)), rng.choice(ROWS[:9]), rng.choice(WIDTHS[:13])
    side = rng.choice((4, 5, 6, 7, 8, 10, 12, 16))
    other = side if rng.random() < 0.8 else rng.choice((4, 6, 9, 12))
    return rng.choice((1, 2, 3, 4)), rng.choice((3, 4, 6, 8, 12, 16)), side, other


def _drawn(rng: random.Random, writing: ModuleDraft) -> Operator:
    """The next kind of step, by weight; not the same one of the long ones again."""
    fresh = [item for item in OPERATORS if item.name not in ONCE or item.name not in writing.ops]
    return rng.choices(fresh, [item.weight for item in fresh])[0]


LONG_ROWS = "_long_rows_kernel"
"""How the kernel for rows that are too long for the usual one ends."""
EXPECTED = "VERIFIED"


def trimmed_kernel(kernel: str) -> str:
    """`kernel` without its envelope: the file's docstring, refusals of other inputs, what is
    returned for empty ones, the second kernel for long rows, and the gradients.

    What is left is another text, right for fewer inputs, and is to be judged by itself. The text as
    it is where it cannot be read.
    """
    try:
        tree = parse_source(kernel)
    except SyntaxError:
        return kernel
    lines = kernel.splitlines()
    edits: list[tuple[int, int, list[str]]] = []
    backward = [item for item in tree.body if _is_gradients(item)]
    formulas = {name.id for x in backward for name in ast.walk(x) if isinstance(name, ast.Name)}
    for place, node in enumerate(tree.body):
        named = isinstance(node, ast.FunctionDef) and (
            node.name.endswith(LONG_ROWS) or node.name in formulas
        )
        if named or node in backward or _is_docstring(node, place):
            edits.append((_first(node), _last(node), []))
        elif isinstance(node, ast.ClassDef):
            edits += _forward_edits(node, lines)
    for first, last, instead in sorted(edits, reverse=True):
        lines[first - 1 : last] = instead
    return _without_expected(_spaced("\n".join(lines)))


def _is_gradients(node: ast.stmt) -> bool:
    """The class with the backward pass."""
    return isinstance(node, ast.ClassDef) and any(
        ast.unparse(base) == "torch.autograd.Function" for base in node.bases
    )


def _without_expected(kernel: str) -> str:
    """`kernel` without the sentence that refusals end with, where none is left to say it."""
    tree = parse_source(kernel)
    names = [item.id for item in ast.walk(tree) if isinstance(item, ast.Name)]
    lines = kernel.splitlines()
    for node in tree.body:
        if names.count(EXPECTED) == 1 and _is_expected(node):
            del lines[node.lineno - 1 : _last(node)]
    return _spaced("\n".join(lines))


def _forward_edits(model: ast.ClassDef, lines: list[str]) -> list[tuple[int, int, list[str]]]:
    edits: list[tuple[int, int, list[str]]] = []
    forwards = [x for x in model.body if isinstance(x, ast.FunctionDef) and x.name == "forward"]
    for node in forwards[0].body if forwards else ():
        if not isinstance(node, ast.If):
            continue
        if "is_grad_enabled" in ast.unparse(node.test):
            edits.append((node.lineno, _last(node), []))
            continue
        if "training" in ast.unparse(node.test):  # there the module computes something else
            continue
        only = node.body[0] if len(node.body) == 1 else None
        if isinstance(only, ast.Raise | ast.Return) and not node.orelse:
            edits.append((node.lineno, _last(node), []))
        elif node.orelse and LONG_ROWS in ast.unparse(ast.Module(node.orelse, [])):
            kept = lines[node.body[0].lineno - 1 : _last(node.body[-1])]
            dedented = textwrap.dedent("\n".join(kept)).splitlines()
            indent = " " * node.col_offset
            edits.append((node.lineno, _last(node), [f"{indent}{line}" for line in dedented]))
    return edits


def _is_docstring(node: ast.stmt, place: int) -> bool:
    return place == 0 and isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _is_expected(node: ast.stmt) -> bool:
    if not isinstance(node, ast.Assign) or not isinstance(node.targets[0], ast.Name):
        return False
    return node.targets[0].id == EXPECTED


def _first(node: ast.stmt) -> int:
    decorators = getattr(node, "decorator_list", [])
    return int(min([node.lineno, *(item.lineno for item in decorators)]))


def _last(node: ast.stmt) -> int:
    return node.end_lineno or node.lineno


def _spaced(text: str) -> str:
    """At most two empty lines in a row, none at the ends."""
    while "\n\n\n\n" in text:
        text = text.replace("\n\n\n\n", "\n\n\n")
    return text.strip("\n") + "\n"
