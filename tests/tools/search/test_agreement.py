"""A broken schedule is told from a rounding one."""

from __future__ import annotations

import math
import random

from agentkernel.tools.search.worker import Sketch, disagreements


def sketches(count: int, rounding: float = 1e-3) -> dict[int, Sketch]:
    generator = random.Random(0)
    values = [generator.gauss(0, 1) for _ in range(200)]
    return {
        index: Sketch(0, tuple(value * (1 + generator.gauss(0, rounding)) for value in values))
        for index in range(count)
    }


def test_rounding_is_no_disagreement() -> None:
    assert disagreements(sketches(6, rounding=5e-3)) == {}


def test_a_wrong_tail_stands_out() -> None:
    held = sketches(5)
    held[3] = Sketch(0, held[3].samples[:150] + (0.0,) * 50)
    assert list(disagreements(held)) == [3]
    assert "away from that of most" in disagreements(held)[3]


def test_nan_and_other_sizes_stand_out() -> None:
    held = sketches(5)
    held[0] = held[0]._replace(nan_count=7)
    held[4] = Sketch(0, held[4].samples[:-1])
    assert set(disagreements(held)) == {0, 4}


def test_nan_that_most_have_is_no_reason() -> None:
    held = {index: item._replace(nan_count=3) for index, item in sketches(4).items()}
    assert disagreements(held) == {}


def test_zero_everywhere_but_in_one() -> None:
    held = {index: Sketch(0, (0.0,) * 10) for index in range(3)} | {3: Sketch(0, (1.0,) * 10)}
    assert list(disagreements(held)) == [3]


def test_an_infinite_sample_is_far() -> None:
    held = sketches(4)
    held[2] = Sketch(0, (math.inf, *held[2].samples[1:]))
    assert list(disagreements(held)) == [2]


def test_two_have_no_majority() -> None:
    held = sketches(1) | {1: Sketch(0, (5.0,) * 200)}
    assert disagreements(held) == {}
