"""Scan kernels: every operation in every form, read backwards and later, against fp64."""

from collections.abc import Callable

import pytest
import sympy
import torch
import torch.nn.functional as F
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from torch import nn

from agentkernel.compiler.fusion import Region
from agentkernel.compiler.ir import GraphBuilder, Node
from agentkernel.compiler.lowering.index_maps import all_indices, read_at
from agentkernel.compiler.providers import provider_of
from agentkernel.compiler.providers.scan import Scan
from agentkernel.tools.problem.loading import problem_from_module
from tests.compiler.families import functional
from tests.compiler.forms import FORMS, accepted_text, compiled_graph, written
from tests.compiler.sandboxed_drop_in import Sandboxed

Function = Callable[[torch.Tensor], torch.Tensor]
SIZES = (17, 33, 67, 128, 129, 191, 257)
"""Odd, prime, a power of two, and one more."""
ULP = 2.0**-23
ROUNDINGS = 16
"""Of an ulp of the sum of the sizes, which a chain of a few hundred additions keeps to."""
FUNCTIONS: dict[str, Function] = {
    "cumsum": lambda x: torch.cumsum(x, -1),
    "columns": lambda x: torch.cumsum(x, 0),
    "cumprod": lambda x: torch.cumprod(1 + x / 8, -1),
    "logcumsumexp": lambda x: torch.logcumsumexp(8 * x, -1),
    "masked": lambda x: torch.cumsum(torch.where(x > 0, x, 0.0), -1) * 2,
    "exclusive": lambda x: torch.cumsum(x, -1) - x,
    "backwards": lambda x: torch.cumsum(x.exp().flip(-1), -1).flip(-1) + x,
    "backwards_columns": lambda x: torch.logcumsumexp(x.flip(0), 0).flip(0),
    "cut": lambda x: torch.cumsum(torch.cat([torch.zeros_like(x[:, :1]), x], -1)[:, :-1], -1),
    "later": lambda x: torch.cat([torch.zeros_like(x[:, :2]), x.cumsum(-1)[:, :-2]], -1),
    "padded": lambda x: F.pad(x.cumsum(-1), (1, 0)),
    "padded_twice": lambda x: F.pad(x.cumsum(-1), (3, 2)),
    "vector": lambda x: torch.cumsum(x.flatten(), 0),
    "of_softmax": lambda x: torch.cumsum(torch.softmax(x, -1), -1),
    "reduced": lambda x: torch.cumsum(x, -1).amax(-1),
    "of_scan": lambda x: torch.cumsum(x * torch.exp(-torch.cumsum(x / 64, -1)), -1),
}
"""Each is one kernel."""


def _module(name: str) -> nn.Module:
    return functional(FUNCTIONS[name])


def _sizes(name: str, x: torch.Tensor) -> torch.Tensor:
    """What rounding is relative to: the largest partial result in each row or column."""
    return FUNCTIONS[name](x.double()).abs().amax() + x.double().abs().sum(-1).amax()


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_form_is_right_and_one_kernel(box: Sandboxed, name: str) -> None:
    torch.manual_seed(0)
    x = torch.randn(9, 67)
    compiled = compiled_graph(_module(name), (x,))
    (step,) = compiled.partition.steps
    assert isinstance(step, Region)
    assert isinstance(provider_of(step), Scan)
    for form in FORMS:
        (found,) = box.call(written(_module(name), (x,), form), _module(name), (x,))
        truth = FUNCTIONS[name](x.double())
        assert (found - truth).abs().max() <= ROUNDINGS * ULP * _sizes(name, x), form


@settings(
    deadline=None, database=None, phases=[Phase.generate], derandomize=True, max_examples=4,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)  # fmt: skip
@given(
    name=st.sampled_from(["cumsum", "columns", "logcumsumexp", "backwards", "later"]),
    rows=st.sampled_from(SIZES), length=st.sampled_from(SIZES), form=st.sampled_from(FORMS),
    seed=st.integers(0, 9),
)  # fmt: skip
def test_any_size_is_right(
    box: Sandboxed, name: str, rows: int, length: int, form: str, seed: int
) -> None:
    x = torch.randn(rows, length, generator=torch.Generator().manual_seed(seed))
    (found,) = box.call(written(_module(name), (x,), form), _module(name), (x,))
    truth = FUNCTIONS[name](x.double())
    assert (found - truth).abs().max() <= ROUNDINGS * ULP * _sizes(name, x)


@pytest.mark.parametrize("function", [torch.cummax, torch.cummin])
@pytest.mark.parametrize("form", FORMS)
def test_extrema_and_their_places_are_those_of_eager(
    box: Sandboxed, function: Callable[..., object], form: str
) -> None:
    """The last place of equal values, NaN from the first on, infinities."""
    torch.manual_seed(0)
    x = torch.randint(-3, 3, (5, 129)).float()
    x[0, 40], x[0, 90], x[1, :] = float("nan"), float("nan"), float("inf")
    x[2, :] = -float("inf")
    x[3, 1] = float("inf")
    module = functional(lambda x: tuple(function(x, -1)))
    values, places = box.call(written(module, (x,), form), module, (x,))
    wanted, where = module(x)
    torch.testing.assert_close(values, wanted, rtol=0, atol=0, equal_nan=True)
    assert torch.equal(places, where)


def test_values_alone_carry_no_places() -> None:
    module = functional(lambda x: torch.cummax(x, 0).values)
    assert "last_max" not in written(module, (torch.randn(5, 67),), "looped")


@pytest.mark.parametrize("dtype", [torch.int32, torch.bool, torch.int64, torch.float16])
def test_types_are_those_of_eager(box: Sandboxed, dtype: torch.dtype) -> None:
    """Integers are summed as int64; halves in fp32."""
    torch.manual_seed(0)
    x = (torch.randn(5, 67) * 3).to(dtype)
    module = functional(lambda x: torch.cumsum(x, -1))
    (found,) = box.call(written(module, (x,), "looped"), module, (x,))
    assert found.dtype == module(x).dtype
    exact = torch.cumsum(x.double(), -1).to(found.dtype)
    torch.testing.assert_close(found, exact, rtol=2.0**-10 if dtype == torch.float16 else 0, atol=0)


def test_integers_that_begin_later_stay_integers(box: Sandboxed) -> None:
    x = torch.randint(-(2**40), 2**40, (5, 67))
    module = functional(lambda x: F.pad(x.cumsum(-1)[:, :-1], (1, 0)))
    (found,) = box.call(written(module, (x,), "looped"), module, (x,))
    assert torch.equal(found, module(x))


@pytest.mark.parametrize("value", [float("inf"), -float("inf"), float("nan")])
def test_logcumsumexp_of_what_is_not_finite(box: Sandboxed, value: float) -> None:
    x = torch.randn(3, 67)
    x[0, 20], x[1, :20], x[2, :] = value, value, value
    module = functional(lambda x: torch.logcumsumexp(x, -1))
    (found,) = box.call(written(module, (x,), "looped"), module, (x,))
    torch.testing.assert_close(found, module(x), rtol=1e-5, atol=1e-6, equal_nan=True)


@pytest.mark.parametrize("form", ["looped", "split"])
def test_the_same_bits_in_any_order_of_programs(box: Sandboxed, form: str) -> None:
    x = torch.randn(5, 257)
    text = written(_module("of_scan"), (x,), form)
    first, again = (box.call(text, _module("of_scan"), (x,))[0] for _ in range(2))
    assert torch.equal(first, again)


@pytest.mark.parametrize(
    ("name", "form"),
    [("cumsum", "split"), ("columns", "looped"), ("logcumsumexp", "looped"), ("later", "split")],
)
def test_the_judge_accepts(name: str, form: str) -> None:
    """Of two kernels, the first where rows of a few columns need it too."""
    loaded = problem_from_module(_module(name), (torch.randn(33, 129),))
    accepted_text(loaded, form, budget_s=6.0)


def test_a_scan_read_from_its_end_twice_is_itself() -> None:
    b = GraphBuilder()
    x = b.input("x", torch.float32, (sympy.Integer(5), sympy.Integer(7)))
    scan = b.scan("sum", x, 1)
    once = _flipped(b, scan, 1)
    assert (once.op, once.attrs) == ("sum", (1, True))
    assert _flipped(b, once, 1) is scan


def _flipped(b: GraphBuilder, value: Node, dim: int) -> Node:
    places = all_indices(b, value.shape)
    places[dim] = b.pointwise("sub", int(value.shape[dim]) - 1, places[dim], dtype=torch.int64)
    return read_at(b, value, places, len(value.shape))


def test_a_scan_both_ways_is_two_kernels() -> None:
    module = functional(lambda x: x.cumsum(-1) + x.flip(-1).cumsum(-1).flip(-1))
    assert len(compiled_graph(module, (torch.randn(5, 67),)).partition.steps) == 2


def test_scans_across_each_other_are_two_kernels() -> None:
    module = functional(lambda x: x.cumsum(0).cumsum(1))
    assert len(compiled_graph(module, (torch.randn(5, 67),)).partition.steps) == 2
