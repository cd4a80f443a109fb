"""Where do any number of small and different modules come from?

Nothing here runs or imports torch: a module is written, statement by statement, from one seed.
"""

from __future__ import annotations

import math
import random

from agentkernel.domain.base import Frozen, sha256_text
from agentkernel.training.data.operators import OPERATORS, Operator
from agentkernel.training.data.writing import AuthorStyle, ModuleDraft
from agentkernel.training.training import Source

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
        if operator.step(writing):
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
