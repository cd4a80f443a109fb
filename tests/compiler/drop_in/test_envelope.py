"""Drop-ins refuse what they were not verified for, and serve the rest of what they promise."""

import math
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from sympy import Eq
from torch import nn
from torch.utils._sympy.functions import FloorDiv, Mod

from agentkernel.compiler.drop_in.envelope import limits_of
from agentkernel.tools.judge.policy.check import check_policy
from agentkernel.tools.problem.capture import capture
from agentkernel.tools.problem.loading import problem_from_module
from tests.compiler.families import OfOne, Wrapped
from tests.compiler.forms import written
from tests.compiler.sandboxed_drop_in import Sandboxed

Inputs = tuple[object, ...]
x, column = torch.randn(7, 33), torch.randn(7, 1)


class Scaled(nn.Module):
    """Takes a number and None."""

    def forward(
        self, a: torch.Tensor, b: torch.Tensor, s: float = 2.0, m: torch.Tensor | None = None
    ) -> torch.Tensor:
        return (a * b * s if m is None else a * b * s + m).softmax(-1)


class Branching(nn.Module):
    """Computes something else for a single row."""

    def forward(self, a: torch.Tensor) -> torch.Tensor:
        return a + 2 if a.shape[0] == 1 else a + 1


class Trained(nn.Module):
    """Reads its mode; `matters`: with an effect."""

    def __init__(self, matters: bool) -> None:
        super().__init__()
        self.matters = matters

    def forward(self, a: torch.Tensor) -> torch.Tensor:
        return a * 2 if self.training and self.matters else a * 3


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    ("given", "named"),
    [
        ((x[:, :20], column, 3.0, None), ""),
        ((x, column[:1], 3.0, None), "b is torch.float32"),
        ((x, x, 3.0, None), "b is torch.float32"),
        ((x.double(), column, 3.0, None), "a is torch.float64"),
        ((x[None], column, 3.0, None), "a is torch.float32"),
        ((x, column, 2.0, None), "s is 2.0"),
        ((x, column, 3.0, x), "m is tensor"),
    ],
)
def test_inputs_outside_what_was_verified_are_refused(
    box: Sandboxed, given: Inputs, named: str
) -> None:
    module = Scaled()
    text = written(module, (x, column, 3.0, None), "persistent")
    if not named:
        torch.testing.assert_close(box.call(text, module, given)[0], module(*given))
    told = box.refusal(text, module, given)
    assert (f"{named}" in told and "this drop-in was verified for" in told) == bool(named), told


def test_fixed_sizes_are_checked(box: Sandboxed) -> None:
    module = Wrapped(nn.LayerNorm(33))
    text = written(module, (x,), "persistent")
    for wrong in (torch.randn(2, 3, 33), torch.randn(3, 32)):
        assert "float32[free, 33]" in box.refusal(text, module, (wrong,))
    assert not box.refusal(text, module, (torch.randn(1, 33),))


def test_what_tracing_assumed_about_sizes_is_checked(box: Sandboxed) -> None:
    halves = OfOne(lambda a: a.chunk(2, 1)[0] * a.chunk(2, 1)[1])
    text = written(halves, (torch.randn(5, 12),), "persistent")
    even = torch.randn(3, 20)
    torch.testing.assert_close(box.call(text, halves, (even,))[0], halves(even))
    assert "sizes are" in box.refusal(text, halves, (torch.randn(3, 21),))


def test_a_size_of_one_is_refused_only_where_the_graph_differs() -> None:
    for module, refused in ((Branching(), True), (OfOne(lambda a: a + 1), False)):
        assert (" < 2" in written(module, (x,), "persistent")) == refused


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    ("module", "differs"),
    [
        (Wrapped(nn.BatchNorm1d(33)), True), (Wrapped(nn.ReLU(), nn.Dropout()), True),
        (Trained(True), True), (Trained(False), False), (Wrapped(nn.LayerNorm(33)), False),
    ],
)  # fmt: skip
def test_training_mode_is_refused_where_it_differs(module: nn.Module, differs: bool) -> None:
    text = written(module, (x,), "persistent")
    assert ("if self.training:\n" in text) == differs
    assert ("Eval mode only" in text) == differs
    assert check_policy(text, "mixed") is None


@pytest.mark.quick(1)
@pytest.mark.parametrize("form", ["persistent", "looped"])
@pytest.mark.parametrize("shape", [(3, 0), (0, 33), (0, 0)])
def test_no_elements_give_an_empty_output(
    box: Sandboxed, form: str, shape: tuple[int, ...]
) -> None:
    module = Wrapped(nn.Softmax(-1))
    (found,) = box.call(written(module, (x,), form), module, (torch.empty(shape),), "persistent")
    assert found.shape == shape


def test_no_elements_are_refused_where_the_output_has_some(box: Sandboxed) -> None:
    module = OfOne(lambda a: a.sum(1))
    assert "sizes are" in box.refusal(
        written(module, (x,), "persistent"), module, (torch.empty(3, 0),)
    )


@pytest.mark.quick(1)
@pytest.mark.parametrize("form", ["persistent", "looped", "split"])
def test_nan_beside_infinity_stays_nan(box: Sandboxed, form: str) -> None:
    inf, nan = float("inf"), float("nan")
    rows = torch.randn(8, 67)
    rows[0, 3], rows[0, 40] = nan, inf
    rows[1], rows[1, 50] = -inf, nan
    rows[2, 5] = inf
    rows[3] = -inf
    rows[4, 6] = -inf
    rows[5, 60], rows[6] = nan, 500.0
    rows[6, 66], rows[7, 1] = inf, 500.0
    for call in (
        lambda a: a.logsumexp(1), lambda a: a.softmax(1), lambda a: a.log_softmax(1),
        lambda a: a.amax(1),
    ):  # fmt: skip
        module = OfOne(call)
        (found,) = box.call(written(module, (rows,), form), module, (rows,), "persistent")
        torch.testing.assert_close(found, module(rows), equal_nan=True)


def test_longer_rows_than_captured_get_more_warps() -> None:
    text = written(OfOne(lambda a: F.softmax(a, -1)), (torch.randn(64, 100),), "persistent")
    assert "else 16" in text


def test_limits_are_found_once_for_a_graph() -> None:
    loaded = problem_from_module(OfOne(lambda a: a + 1), (x,))
    captured = capture(loaded)
    assert limits_of(loaded, captured) is limits_of(loaded, captured)


@pytest.mark.quick(2)
@pytest.mark.parametrize("form", ["looped", "single"])
@pytest.mark.parametrize("dim", [0, 1])
def test_an_index_that_is_computed_with_has_64_bits(box: Sandboxed, form: str, dim: int) -> None:
    def count(a: torch.Tensor) -> torch.Tensor:
        index = torch.arange(a.shape[dim], device=a.device)
        return (index if dim else index[:, None]) * 2**28 + a.long()

    module, rows = OfOne(count), torch.randn(20, 70)
    (found,) = box.call(written(module, (rows,), form), module, (rows,), "persistent")
    assert torch.equal(found, module(rows))


class Differences(nn.Module):
    """Slices whole dimensions, which tracing leaves out where their size is 1."""

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return a[:, None] - b[None, :]


def test_a_whole_slice_does_not_keep_sizes_of_1_out() -> None:
    loaded = problem_from_module(Differences(), (torch.randn(9), torch.randn(11)))
    spans = limits_of(loaded, capture(loaded)).spans
    assert [span.least for span in spans.values()] == [1, 1]


def test_a_size_at_which_an_assumption_has_no_value_is_refused() -> None:
    loaded = problem_from_module(OfOne(lambda a: a + 1), (torch.randn(8, 6),))
    captured = capture(loaded)
    node = next(iter(captured.graph.graph.nodes))
    rows, columns = (size.node.expr for size in node.meta["val"].shape)
    halves = Eq(Mod(rows * columns, FloorDiv(rows * columns, 2)), 0)
    spans = limits_of(loaded, replace(captured, guards=(halves,))).spans
    assert [span.least for span in spans.values()] == [1, 1]


def padded_to_even(x: torch.Tensor) -> torch.Tensor:
    """As many columns as an even number holds, of which the printer says `math.ceil`."""
    more = max(math.ceil(x.shape[-1] / 2) * 2 - x.shape[-1], 0)
    return nn.functional.avg_pool1d(nn.functional.pad(x, (0, more)), 2)


def test_a_guard_with_a_rounded_quotient_is_tried() -> None:
    assert "class ModelNew" in written(OfOne(padded_to_even), (torch.randn(2, 3, 7),), "looped")
