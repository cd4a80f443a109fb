"""Helpers of lifted files compile with every Triton, and their moments are right."""

from __future__ import annotations

import ast
from collections.abc import Callable
from types import SimpleNamespace

import numpy as np
import pytest

from agentkernel.compiler.kernel_helpers import LIFTED_HELPERS, lifted_helper_sources


def _known_when_compiled(condition: ast.expr, function: ast.FunctionDef) -> bool:
    """Whether a condition is a `tl.constexpr` parameter or about a dtype."""
    fixed = {
        item.arg
        for item in function.args.args
        if item.annotation is not None and ast.unparse(item.annotation) == "tl.constexpr"
    }
    if isinstance(condition, ast.Name):
        return condition.id in fixed
    return any(
        isinstance(part, ast.Attribute) and part.attr == "dtype" for part in ast.walk(condition)
    )


@pytest.mark.parametrize("name", LIFTED_HELPERS)
def test_no_helper_returns_from_inside_a_branch_taken_at_run_time(name: str) -> None:
    # Triton 3.6 refuses such a call in a loop ("unresolved materialization"); 3.9 compiles it.
    functions = [
        node
        for node in ast.walk(ast.parse(LIFTED_HELPERS[name][0]))
        if isinstance(node, ast.FunctionDef)
    ]
    assert functions
    early = [
        part.lineno
        for function in functions
        for branch in ast.walk(function)
        if isinstance(branch, ast.If) and not _known_when_compiled(branch.test, function)
        for part in ast.walk(branch)
        if isinstance(part, ast.Return)
    ]
    assert not early


def _as_numpy(name: str) -> Callable[..., tuple[np.ndarray, np.ndarray, np.ndarray]]:
    tl = SimpleNamespace(
        where=np.where, zeros_like=np.zeros_like, constexpr=int,
        full=lambda shape, value, dtype: np.full(shape, value, dtype),
    )  # fmt: skip
    names: dict[str, object] = {"tl": tl, "triton": SimpleNamespace(jit=lambda function: function)}
    exec("\n".join(lifted_helper_sources([name])), names)
    made = names[name]
    assert callable(made)
    return made


def _moments(values: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean, sum of squared deviations and count of each column of [rows, columns]."""
    step = _as_numpy("welford_step")
    # What the running moments hold before the first value must not matter.
    found = tuple(np.full(values.shape[1], 7.0) for _ in range(3))
    for index, row in enumerate(values):
        found = step(row, *found, index == 0)
    return found[0], found[1], found[2]


def test_moments_of_a_step_at_a_time_are_those_of_all_values() -> None:
    values = np.random.default_rng(0).normal(3.0, 2.0, (9, 5))
    mean, squares, count = _moments(values)
    np.testing.assert_allclose(mean, values.mean(0))
    np.testing.assert_allclose(squares, values.var(0) * 9)
    np.testing.assert_array_equal(count, np.full(5, 9.0))


@pytest.mark.parametrize("left", [0, 1, 4])
def test_moments_of_two_parts_are_those_of_all_values(left: int) -> None:
    values = np.random.default_rng(1).normal(3.0, 2.0, (9, 5))
    parts = [
        _moments(part) if len(part) else tuple(np.zeros(5) for _ in range(3))
        for part in (values[:left], values[left:])
    ]
    mean, squares, count = _as_numpy("welford_merge")(*parts[0], *parts[1])
    np.testing.assert_allclose(mean, values.mean(0))
    np.testing.assert_allclose(squares, values.var(0) * 9)
    np.testing.assert_array_equal(count, np.full(5, 9.0))


def test_two_empty_parts_are_an_empty_part() -> None:
    empty = tuple(np.zeros(3) for _ in range(3))
    with np.errstate(invalid="ignore"):
        found = _as_numpy("welford_merge")(*empty, *empty)
    for part in found:
        np.testing.assert_array_equal(part, np.zeros(3))


@pytest.mark.parametrize("special", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("place", [0, 3])
def test_what_is_not_finite_stays_so_in_the_mean(special: float, place: int) -> None:
    values = np.random.default_rng(2).normal(size=(6, 2))
    values[place, 0] = special
    with np.errstate(invalid="ignore"):
        mean, squares, count = _moments(values)
        expected = values.var(0) * 6
    assert not np.isfinite(mean[0])
    assert not np.isfinite(squares[0])
    np.testing.assert_allclose(squares[1], expected[1])
    np.testing.assert_array_equal(count, np.full(2, 6.0))
