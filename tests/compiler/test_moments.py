"""Mean and variance from sums about a centre are as good as eager's, whatever the row."""

from collections.abc import Callable

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn

from agentkernel.compiler.emit import Schedule
from agentkernel.compiler.fusion import Region
from tests.compiler.forms import compiled_graph
from tests.compiler.sandboxed_drop_in import Sandboxed

COLUMNS = 4000


class Normed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(COLUMNS)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(x)


def _first_columns_apart(x: torch.Tensor) -> torch.Tensor:
    x[:, :32] += 3000.0
    return x


def _one_spike(x: torch.Tensor) -> torch.Tensor:
    x[:, 5] = 1e5
    return x


def _squares_that_overflow_about_the_start(x: torch.Tensor) -> torch.Tensor:
    x[:, :32], x[:, 32:] = 0.0, 1e18
    return x


ROWS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "usual": lambda x: x,
    "far from zero": lambda x: x + 1e4,
    "first columns apart": _first_columns_apart,
    "one spike in the sample": _one_spike,
    "sorted": lambda x: (100.0 * x).sort(dim=1).values,
    "tiny": lambda x: x * 1e-20,
    "squares that overflow about the start": _squares_that_overflow_about_the_start,
    "squares that overflow": lambda x: x * 1e19,
}


class Moments(nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.var_mean(x, 1)


def _drop_in(module: nn.Module, x: torch.Tensor, tile: int = 1024) -> str:
    compiled = compiled_graph(module, (x,))
    (step,) = compiled.partition.steps
    assert isinstance(step, Region)
    return compiled.write({step: Schedule("looped", tile, 1)}).text


@pytest.mark.quick(2)
@pytest.mark.parametrize("shape", ROWS)
def test_any_row_is_as_close_to_fp64_as_eager_has_it(box: Sandboxed, shape: str) -> None:
    module = Normed().eval()
    x = ROWS[shape](torch.randn(4, COLUMNS, generator=torch.Generator().manual_seed(1)))
    box.check(_drop_in(module, x), module, (x,))


@pytest.mark.slow
@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    offset=st.floats(-1e4, 1e4, width=32),
    raised=st.integers(0, COLUMNS),
    height=st.floats(-1e5, 1e5, width=32),
    seed=st.integers(0, 1000),
)
def test_rows_with_a_raised_start(
    box: Sandboxed, offset: float, raised: int, height: float, seed: int
) -> None:
    module = Normed().eval()
    x = torch.randn(4, COLUMNS, generator=torch.Generator().manual_seed(seed)) + offset
    x[:, :raised] += height
    box.check(_drop_in(module, x), module, (x,))


def test_rows_that_are_not_finite_stay_so(box: Sandboxed) -> None:
    module = Normed().eval()
    x = torch.randn(4, COLUMNS)
    x[0, 3], x[1, 100], x[2] = torch.inf, torch.nan, 7.0
    (found,) = box.call(_drop_in(module, x), module, (x,))
    with torch.no_grad():
        assert torch.equal(found.isnan(), module(x).isnan())
    assert torch.allclose(found[2], module.norm.bias.detach().expand(COLUMNS))


def test_rows_shorter_than_the_sample_do_not_see_their_neighbours(box: Sandboxed) -> None:
    x = torch.randn(4, 16)
    x[1], x[3, 2] = torch.nan, torch.inf
    module = nn.Sequential(nn.LayerNorm(16)).eval()
    text = _drop_in(module, x, 16)
    box.check(text, module, (x,))


@pytest.mark.quick(1)
@pytest.mark.parametrize("columns", [1025, 3000, 20000])
def test_a_mean_near_zero_keeps_its_digits(box: Sandboxed, columns: int) -> None:
    x = torch.randn(8, columns, generator=torch.Generator().manual_seed(columns))
    box.check(_drop_in(Moments(), x), Moments(), (x,))


def test_the_variance_of_a_ramp_keeps_its_digits(box: Sandboxed) -> None:
    class Variance(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.var(1)

    steepness = torch.linspace(1.0, 2.0, 16)[:, None]
    x = steepness * torch.arange(1500.0) + 0.1 * torch.randn(16, 1500)
    text = _drop_in(Variance(), x, 4096)
    found, truth = box.call(text, Variance(), (x,))[0].double(), x.double().var(1)
    assert float(((found - truth) / truth).abs().max()) < 4 * torch.finfo(torch.float32).eps


@pytest.mark.quick(1)
@pytest.mark.parametrize("share", [0.01, 0.1, 1.0])
def test_a_small_mean_does_not_take_on_the_error_of_a_centre_of_its_own(
    box: Sandboxed, share: float
) -> None:
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(32, 65536, generator=generator)
    x *= torch.rand(x.shape, generator=generator) < share
    text = _drop_in(Moments(), x, 4096)
    mean = box.call(text, Moments(), (x,))[1].double()
    truth = x.double()
    assert float(((mean - truth.mean(1)).abs() / truth.std(1)).max()) < 1e-8
