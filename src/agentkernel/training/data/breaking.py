"""Which mistakes do people make in kernels, and what does a right kernel look like with one?"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from agentkernel.storage.source_text import parse_source

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
