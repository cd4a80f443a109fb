"""Sums over a softmax's row in the sweep that finds its maximum, as exact as in two."""

import math

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

from agentkernel.compiler.fusion import Region
from agentkernel.compiler.pipeline import Compiled
from agentkernel.compiler.rows_reductions import passes
from tests.compiler.forms import FORMS, compiled_graph, small
from tests.compiler.sandboxed_drop_in import Sandboxed


class Distillation(nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        log_p, log_q = F.log_softmax(x / 2.0, dim=-1), F.log_softmax(y / 2.0, dim=-1)
        return 4.0 * F.kl_div(log_p, log_q, reduction="batchmean", log_target=True)


class Divergence(nn.Module):
    """Row by row, and from its definition."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        p = F.softmax(x, dim=-1)
        return (p * (F.log_softmax(x, dim=-1) - F.log_softmax(y, dim=-1))).sum(-1)


class Symmetric(nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        a, b = F.log_softmax(x, dim=-1), F.log_softmax(y, dim=-1)
        return ((a.exp() - b.exp()) * (a - b)).sum(-1)


class Entropy(nn.Module):
    """Of `x` alone, with the probabilities."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        p = F.softmax(x + y, dim=-1)
        return p, -(p * F.log_softmax(x + y, dim=-1)).sum(-1)


class Expected(nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (F.softmax(x, dim=-1) * (3.0 - y)).sum(-1).mean()


class OfProbabilities(nn.Module):
    """Cross-entropy against class probabilities, smoothed."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(x, y.abs(), label_smoothing=0.1)


class Channels(nn.Module):
    """Over a strided dimension."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        p = F.log_softmax(x, dim=0)
        return (p.exp() * (p - F.log_softmax(y, dim=0))).sum(0)


MODULES = (Distillation, Divergence, Symmetric, Entropy, Expected, OfProbabilities, Channels)


def _pair(rows: int, columns: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x, y = (torch.randn(rows, columns, generator=generator) for _ in range(2))
    return x, y


def _listed(outputs: object) -> tuple[torch.Tensor, ...]:
    return outputs if isinstance(outputs, tuple) else (outputs,)


def _sweeps(compiled: Compiled) -> int:
    """The sums and statistics of the first kernel, one after the other."""
    step = compiled.partition.steps[0]
    assert isinstance(step, Region)
    return len(passes(step.nodes))


@pytest.mark.quick(2)
@pytest.mark.parametrize("kind", MODULES, ids=lambda kind: kind.__name__)
def test_every_form_is_as_close_to_fp64_as_eager_is(box: Sandboxed, kind: type[nn.Module]) -> None:
    module, inputs = kind(), _pair(11, 130)
    compiled = compiled_graph(module, inputs)
    assert _sweeps(compiled) == 1
    for form in FORMS:
        box.check(compiled.write(small(compiled, form)).text, module, inputs)


@pytest.mark.slow
@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    kind=st.sampled_from(MODULES),
    columns=st.sampled_from([35, 130, 255, 515, 640]),
    offset=st.sampled_from([0.0, 50.0, -3000.0]),
    spread=st.sampled_from([1e-3, 1.0, 30.0]),
    order=st.sampled_from(["as drawn", "rising", "falling"]),
    form=st.sampled_from(FORMS),
    seed=st.integers(0, 1000),
)
def test_rows_of_any_size_and_order(
    box: Sandboxed, kind: type[nn.Module], columns: int, offset: float, spread: float, order: str,
    form: str, seed: int,
) -> None:  # fmt: skip
    """A maximum that rises in every tile moves every sum; an offset must not cancel."""
    x, y = _pair(9, columns, seed)
    x, y = x * spread + offset, y * spread
    if order != "as drawn":
        x = x.sort(dim=1, descending=order == "falling").values
    module = kind()
    compiled = compiled_graph(module, (x, y))
    found = box.call(compiled.write(small(compiled, form)).text, module, (x, y))
    eager, truth = _listed(module(x, y)), _listed(module(x.double(), y.double()))
    for ours, theirs, exact in zip(found, eager, truth, strict=True):
        ulp = torch.finfo(torch.float32).eps * (math.log(columns) + 10 * spread)
        allowed = max(4 * float((theirs - exact).abs().max()), 2 * ulp)
        assert float((ours - exact).abs().max()) <= allowed


def test_equal_rows_have_no_divergence_at_all(box: Sandboxed) -> None:
    x, _ = _pair(9, 200)
    compiled = compiled_graph(Divergence(), (x, x.clone()))
    for form in FORMS:
        text = compiled.write(small(compiled, form)).text
        for rows in (x, x - 1e4):
            (found,) = box.call(text, Divergence(), (rows, rows.clone()))
            assert torch.equal(found, torch.zeros(9)), form


@pytest.mark.parametrize("kind", [Divergence, Entropy])
def test_what_is_not_finite_is_where_eager_has_it(box: Sandboxed, kind: type[nn.Module]) -> None:
    x, y = _pair(9, 200)
    x[0, 3], x[1, 190], x[2], x[3, 0] = -torch.inf, -torch.inf, -torch.inf, torch.inf
    x[4, 100], y[5, 7], y[6, 199], y[7, 3] = torch.nan, -torch.inf, torch.inf, torch.nan
    module = kind()
    compiled = compiled_graph(module, (x, y))
    for form in FORMS:
        found = box.call(compiled.write(small(compiled, form)).text, module, (x, y))
        for ours, theirs in zip(found, _listed(module(x, y)), strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-6, equal_nan=True)


class Covariance(nn.Module):
    """Its terms apart would cancel."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return ((x - x.mean(-1, keepdim=True)) * y).sum(-1)


class Peak(nn.Module):
    """Not linear in the softmax."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (F.softmax(x, dim=-1).square() * y).sum(-1)


@pytest.mark.parametrize("kind", [Covariance, Peak])
def test_what_is_not_linear_or_would_cancel_waits_for_its_statistics(
    kind: type[nn.Module],
) -> None:
    assert _sweeps(compiled_graph(kind(), _pair(11, 130))) == 2


def test_statistics_of_fewer_dimensions_are_left_where_they_are(box: Sandboxed) -> None:
    class Ranks(nn.Module):
        """A vector's softmax beside that of a matrix: their last axes are not each other's."""

        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return (F.log_softmax(x, 0) - F.log_softmax(y[0], 0)).sum(0)

    inputs = _pair(33, 33)
    compiled = compiled_graph(Ranks(), inputs)
    box.check(compiled.write(small(compiled, "looped")).text, Ranks(), inputs)


def test_a_sum_over_everything_folds_rows_where_their_statistics_are() -> None:
    class Loss(nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return (F.layer_norm(x, x.shape[-1:]) - y).square().mean()

    steps = compiled_graph(Loss(), _pair(11, 130)).partition.steps
    stored = [
        store.node.shape for step in steps if isinstance(step, Region) for store in step.stores
    ]
    assert [shape[1:] for shape in stored] == [(1,), ()]
