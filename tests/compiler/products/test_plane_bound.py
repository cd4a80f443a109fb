"""Does the bound of docs/planes.md hold: its constants for all numbers, its sum on drawn rows?"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import planes
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from plane_arithmetic import bound, parts_of, parts_product, planes_of, product

ROOT = Path(__file__).parents[3]
MANTISSAS = 1 << 23


@pytest.fixture(scope="module")
def interpreted() -> Iterator[planes.Multiply]:
    with planes.kernel() as multiply:
        yield multiply


@pytest.mark.parametrize("power", [14, -13, -14, -20])
def test_the_constants_hold_for_every_number_of_a_binade(power: int) -> None:
    """From 2^-13 on all are like the first; below it the steps of fp16 stay as they are."""
    bits = torch.arange(MANTISSAS, dtype=torch.int32) + ((127 + power) << 23)
    x = torch.cat(
        [torch.full((1, MANTISSAS // 64), 2.0**14), bits.view(torch.float32).view(64, -1)]
    )
    found = planes_of(x)
    assert bool((found.scale == 1).all()), "the block's scale, which the first row brings to 1"
    off = (x - found.high - found.low / 2048).abs()
    residual = (x - found.high).abs()
    assert bool((off <= (2.0**-23 * x).clamp_min(2.0**-36)).all())
    assert bool((residual <= (2.0**-11 * x).clamp_min(2.0**-25)).all())
    assert bool((found.low.abs() <= 2048 * (2.0**-11 * x).clamp_min(2.0**-25)).all())
    assert float(off[1:].max()) == max(2.0 ** (power - 23), 2.0**-36), "no larger than need be"


@pytest.mark.parametrize("power", [-109, -30, 0, 126])
def test_parts_are_all_of_every_number_of_a_binade(power: int) -> None:
    bits = torch.arange(MANTISSAS, dtype=torch.int32) + ((127 + power) << 23)
    x = bits.view(torch.float32)
    for found in (x, -x):
        high, mid, low = parts_of(found)
        assert bool((high.double() + mid.double() + low.double() == found.double()).all())
        assert bool(((found - high).abs() <= 2.0**-8 * x).all())
        assert bool((mid.abs() <= 2.0**-8 * x).all())
        assert bool((low.abs() < 2.0**-15 * x).all())
        for part in (high, mid, low):
            assert torch.equal(part, part.bfloat16().float())


def test_what_rounds_to_an_infinity_leaves_nan() -> None:
    """So that the tile is multiplied anew, as one with an infinity is."""
    largest = torch.finfo(torch.float32).max
    for value, lost in ((255.4999 * 2.0**120, False), (255.5 * 2.0**120, True), (largest, True),
                        (torch.inf, True), (-largest, True)):  # fmt: skip
        x = torch.full((2, 40), value)
        assert bool(parts_product(x, torch.full((3, 40), 1e-3)).isnan().all()) is lost


class Side(NamedTuple):
    """One large row, the others `below` powers of two under it; columns of K differ by `uneven`."""

    power: int
    below: int
    uneven: int
    mantissa: float
    noise: float
    signs: bool


SIDES = st.builds(
    Side,
    power=st.integers(-50, 50),
    below=st.integers(0, 36),
    uneven=st.integers(0, 8),
    mantissa=st.sampled_from([1.0, 1 + 2.0**-5, planes.WORST, 1 + 2.0**-11]),
    noise=st.sampled_from([0.0, 2.0**-20, 2.0**-6, 1.0]),
    signs=st.booleans(),
)
SMALL = Side(0, 34, 0, 1 + 2.0**-5, 0.0, signs=False)
WORST = Side(0, 0, 0, planes.WORST, 0.0, signs=False)


def drawn(side: Side, count: int, depth: int) -> torch.Tensor:
    x = side.mantissa + side.noise * torch.rand(count, depth)
    x = torch.ldexp(x, torch.tensor(side.power - side.below))
    x[0] = torch.ldexp(x[0], torch.tensor(side.below))
    x = torch.ldexp(x, torch.randint(side.uneven + 1, (depth,)))
    return x * torch.randn(count, depth).sign() if side.signs else x


def share(multiply: planes.Multiply, sides: tuple[Side, Side], depth: int) -> float:
    """The largest part of its bound that an element's error is."""
    torch.manual_seed(depth)
    a, b = drawn(sides[0], 9, depth), drawn(sides[1], 17, depth)
    error = (multiply(a, b).double() - a.double() @ b.double().T).abs()
    return float((error / bound(a, b)).max())


@settings(max_examples=200, deadline=None, database=None)
@given(sides=st.tuples(SIDES, SIDES), depth=st.integers(1, 700))
@example(sides=(SMALL, SMALL), depth=128)
@example(sides=(SMALL, WORST), depth=128)
@example(sides=(WORST, WORST), depth=4096)
def test_the_emulation_keeps_the_bound(sides: tuple[Side, Side], depth: int) -> None:
    assert share(product, sides, depth) <= 1


@settings(max_examples=20, deadline=None, database=None)
@given(sides=st.tuples(SIDES, SIDES), depth=st.integers(1, 300))
@example(sides=(SMALL, SMALL), depth=128)
@example(sides=(SMALL, WORST), depth=128)
@example(sides=(WORST, WORST), depth=256)
def test_the_kernel_keeps_the_bound(
    interpreted: planes.Multiply, sides: tuple[Side, Side], depth: int
) -> None:
    assert share(interpreted, sides, depth) <= 1


@settings(max_examples=200, deadline=None, database=None)
@given(sides=st.tuples(SIDES, SIDES), depth=st.integers(1, 700))
@example(sides=(SMALL, SMALL), depth=128)
@example(sides=(WORST, WORST), depth=4096)
def test_parts_keep_their_bound(sides: tuple[Side, Side], depth: int) -> None:
    """That of docs/planes.md, in whatever range the numbers lie."""
    torch.manual_seed(depth)
    a, b = drawn(sides[0], 9, depth), drawn(sides[1], 17, depth)
    sums = a.double().abs() @ b.double().abs().T
    steps = 6 * 32 + -(-depth // 32) + 1
    least = (2.0**-22 + 2.0**-30) * sums + steps * 2.0**-24 * (1 + 2.0**-7) * sums
    least += 6 * depth * 2.0**-149  # what fp32 loses of products that are subnormal
    error = (parts_product(a, b).double() - a.double() @ b.double().T).abs()
    assert bool((error <= least).all())


def test_no_smaller_constant_holds() -> None:
    found = planes.measure("adversarial", 64)
    assert 0.98 * 2.0**-21 < found.planes_norm < 1.02 * 2.0**-21


def test_the_script_prints_rows_below_their_bounds(tmp_path: Path) -> None:
    picture = tmp_path / "planes.svg"
    script = ROOT / "benchmarks" / "precision" / "planes.py"
    words = [sys.executable, script, "--depths", "64", "--kernel", "64", "--svg", picture]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    rows = [line.split(" | ") for line in done.stdout.splitlines() if " | 64 | " in line]
    assert [row[0] for row in rows] == 2 * [f"| {kind}" for kind in planes.KINDS]
    assert all(0 < float(row[4]) < float(row[5]) for row in rows)
    assert "planes, adversarial rows" in picture.read_text()


def test_the_page_quotes_every_kind_at_every_depth() -> None:
    """Errors depend on the order in which a CPU's library adds, to which bounds are indifferent."""
    page = (ROOT / "docs" / "planes.md").read_text(encoding="utf-8")
    found = {}
    for line in page.splitlines():
        cells = line.strip("| ").split(" | ")
        if cells[0] in planes.KINDS:
            found[cells[0], cells[1]] = cells
    wanted = [(kind, f"{depth:,}") for kind in planes.KINDS for depth in planes.DEPTHS]
    assert list(found) == wanted
    assert all(float(cells[4]) < float(cells[5]) for cells in found.values())
    for kind in planes.KINDS:
        assert found[kind, "64"][5] == f"{planes.measure(kind, 64).bound:.1e}"
