"""Files for the declared sizes alone are accepted as such, and only if they say so."""

from __future__ import annotations

import pytest

from tests.tools.judge.sources import problem_of

SHAPE = "        if tuple(x.shape) != (512, 96):\n            raise ValueError('sizes')\n"
ENTRY = "        x = x.contiguous()\n"


@pytest.fixture
def fixed(sources):
    """A norm with its row length written into it: 96 columns, whatever comes."""
    return sources.NORM.replace("n = x.shape[-1]", "n = 96")


@pytest.fixture
def problem(sources):
    return sources.NORM_PROBLEM.replace("512, 96", "64, 96")


def refusing(text, condition):
    guard = f"        if {condition}:\n            raise ValueError('other sizes')\n"
    assert ENTRY in text
    return text.replace(ENTRY, guard + ENTRY)


@pytest.mark.slow
def test_a_file_that_raises_at_other_sizes_holds_for_the_declared_ones(judged, problem, fixed):
    text = refusing(fixed, "x.shape != (64, 96)")
    verdict = judged(problem, text, declared_sizes=True)
    assert verdict.accepted, verdict.failure
    assert verdict.declared_sizes
    assert {case.shapes for case in verdict.cases} == {verdict.cases[0].shapes}


def test_it_is_refused_where_nobody_asked_for_that(judged, problem, fixed):
    verdict = judged(problem, refusing(fixed, "x.shape != (64, 96)"))
    assert not verdict.accepted
    assert not verdict.declared_sizes


def test_a_wrong_answer_at_other_sizes_is_refused(judged, sources):
    """A grid for the declared number of rows leaves the rows past it as they were."""
    text = sources.ADD.replace("n = x.numel()", "n = 1000")
    verdict = judged(sources.ADD_PROBLEM, text, declared_sizes=True)
    assert not verdict.accepted
    assert verdict.gate in ("correctness", "run")


def test_being_right_at_other_sizes_is_fine_too(judged, sources):
    verdict = judged(sources.ADD_PROBLEM, sources.ADD, declared_sizes=True)
    assert verdict.accepted, verdict.failure


ROWS = problem_of("x / x.abs().sum(1, keepdim=True)", "torch.randn(16, 24)")


def rows_file(sources, raises):
    """A drop-in for ROWS that has both sizes written into it, and raises where `raises` holds."""
    return (
        sources.HEAD
        + f"""
@triton.jit
def rows_kernel(x_ptr, y_ptr, BLOCK: tl.constexpr):
    cols = tl.arange(0, BLOCK)
    at = tl.program_id(0) * 24 + cols
    x = tl.load(x_ptr + at, mask=cols < 24, other=0.0)
    tl.store(y_ptr + at, x / tl.sum(tl.abs(x), axis=0), mask=cols < 24)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        if {raises}:
            raise ValueError("other sizes")
        y = torch.zeros_like(x)
        rows_kernel[(16,)](x, y, BLOCK=32)
        return y
"""
    )


def test_a_file_that_looks_at_every_size_is_accepted(judged, sources):
    verdict = judged(ROWS, rows_file(sources, "x.shape != (16, 24)"), declared_sizes=True)
    assert verdict.accepted, verdict.failure


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    "raises", ["x.shape[1] != 24", "x.shape[0] != 16", "x.numel() != 16 * 24", "x.numel() < 384"]
)
def test_a_file_that_looks_at_less_than_the_sizes_is_refused(judged, sources, raises):
    verdict = judged(ROWS, rows_file(sources, raises), declared_sizes=True)
    assert not verdict.accepted
    assert verdict.gate in ("correctness", "run")
