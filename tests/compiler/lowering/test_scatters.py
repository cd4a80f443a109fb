"""Additive scatters are kernels of ours that add as eager does, and refuse what eager refuses."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st

from agentkernel.compiler.fusion import LibraryStep
from agentkernel.compiler.ir import UnsupportedOp
from agentkernel.compiler.partitions import partitions
from agentkernel.tools.judge.judge import judge
from agentkernel.tools.judge.settings import JudgeSettings
from agentkernel.tools.problem.capture import capture
from agentkernel.tools.problem.loading import problem_from_module
from tests.compiler.families import functional
from tests.compiler.forms import assert_accepted, compiled_graph, small
from tests.compiler.sandboxed_drop_in import Sandboxed

Call = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], object]


def _mean(x: torch.Tensor, index: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
    total = torch.zeros_like(x).index_add(0, index, source * source.sigmoid())
    ones = torch.ones_like(source[:, :1])
    degree = torch.zeros_like(x[:, :1]).index_add(0, index, ones)
    return total / degree.clamp(min=1.0)


def _wide(index: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
    return index[:, None].expand_as(source)


CALLS: dict[str, Call] = {
    "rows": lambda x, i, s: torch.zeros_like(x).index_add(0, i, s),
    "columns": lambda x, i, s: torch.zeros_like(x.t()).contiguous().index_add(1, i, s.t().exp()),
    "into x": lambda x, i, s: x.index_add(0, i, s, alpha=2) * x,
    "into a sum": lambda x, i, s: (x.exp() * 2).index_add(0, i, s),
    "into itself": lambda x, i, s: s.exp().index_add(0, i % len(s), s.exp()),
    "into ones": lambda x, i, s: torch.ones_like(x).index_add(0, i, s),
    "mean": _mean,
    "neighbours": lambda x, i, s: torch.zeros_like(x).index_add(0, i, x.index_select(0, i) * s),
    "scattered": lambda x, i, s: torch.zeros_like(x).scatter_add(0, _wide(i, s), s.tanh()) + 1.0,
    "reduced": lambda x, i, s: x.scatter_reduce(0, _wide(i, s), s, "sum"),
    "put": lambda x, i, s: torch.zeros_like(x).index_put((i - len(x),), s, accumulate=True),
    "pairs": lambda x, i, s: x.index_put((i, i % x.shape[1]), s[:, 0], accumulate=True),
    "one number": lambda x, i, s: torch.zeros_like(x).index_put((i,), s[0, 0], accumulate=True),
    "vector": lambda x, i, s: torch.zeros_like(x[:, 0]).index_add(0, i, s[:, 0]),
    "twice": lambda x, i, s: (x.index_add(0, i, s), x.index_add(0, i, s * 3.0)),
    "read again": lambda x, i, s: torch.zeros_like(x).index_add(0, i, s)[i] + s,
    "a view": lambda x, i, s: torch.zeros_like(x).index_add(0, i, s).t(),
    "turned twice": lambda x, i, s: torch.zeros_like(x).index_add(0, i, s).t().contiguous().t(),
    "messages too": lambda x, i, s: (torch.zeros_like(x).index_add(0, i, s.exp()), s.exp()),
    "one place": lambda x, i, s: torch.zeros_like(x[:, 0]).index_add(
        0, i[:1].expand(len(i)), s[:, 0]
    ),
    "one row": lambda x, i, s: x.scatter_add(0, i[:1, None].expand_as(s), s),
    "places of their own": lambda x, i, s: torch.zeros_like(x).index_add(
        0, torch.arange(len(i), device=i.device) % len(x) + 0 * i, s
    ),
    "counted": lambda x, i, s: torch.zeros_like(x[:, 0], dtype=torch.int64).index_add(
        0, i.int(), i + (1 << 40) + 1, alpha=3
    ),
}


def operands(
    sizes: tuple[int, int, int], data: int = 0, dtype: torch.dtype = torch.float32
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Rows, an index with repeats, and what is added to them."""
    torch.manual_seed(data)
    rows, count, width = sizes
    x, source = torch.randn(rows, width).to(dtype), torch.randn(count, width).to(dtype)
    return x, torch.randint(0, rows, (count,)), source


@settings(
    max_examples=12,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
)
@example(name="rows", form="looped", sizes=(7, 31, 67), data=0)
@example(name="mean", form="single", sizes=(5, 33, 3), data=1)
@given(
    name=st.sampled_from(sorted(CALLS)),
    form=st.sampled_from(("looped", "single")),
    sizes=st.tuples(*[st.sampled_from((2, 3, 5, 13, 17, 65))] * 3),
    data=st.integers(0, 1 << 30),
)
def test_sums_are_those_of_eager(
    box: Sandboxed, name: str, form: str, sizes: tuple[int, int, int], data: int
) -> None:
    _check(box, name, form, operands(sizes, data))


@pytest.mark.quick(2)
@pytest.mark.parametrize("name", CALLS)
def test_each_is_a_kernel_of_ours(box: Sandboxed, name: str) -> None:
    _check(box, name, "looped", operands((5, 17, 3)))


@pytest.mark.parametrize("sizes", [(1, 1, 1), (1, 300, 1), (300, 1, 70), (3, 1, 1)])
def test_one_row_one_element_and_one_column(box: Sandboxed, sizes: tuple[int, int, int]) -> None:
    for form in ("looped", "single"):
        _check(box, "rows", form, operands(sizes))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_sixteen_bits_are_added_in_fp32(box: Sandboxed, dtype: torch.dtype) -> None:
    _check(box, "rows", "looped", operands((3, 65, 5), dtype=dtype))


def _check(
    box: Sandboxed, name: str, form: str, given_: tuple[torch.Tensor, torch.Tensor, torch.Tensor]
) -> None:
    module = functional(CALLS[name])
    found = compiled_graph(module, given_)
    assert not any(isinstance(step, LibraryStep) for step in found.partition.steps)
    text = found.write(small(found, form)).text
    assert "tl.atomic_add" in text
    assert "tl.device_assert" in text
    box.check(text, module, given_)


LEFT: dict[str, Call] = {
    "another reduction": lambda x, i, s: x.scatter_reduce(0, _wide(i, s), s, "amax") * 2,
    "without itself": lambda x, i, s: (
        2 * x.scatter_reduce(0, _wide(i, s), s, "sum", include_self=False)
    ),
    "doubles": lambda x, i, s: x.double().index_add(0, i, s.double()) * 2,
    "strides of their own": lambda x, i, s: (
        2 * torch.zeros_like(x.t()).index_put((i % x.shape[1],), s[:, :1], accumulate=True)
    ),
    "a part of the source": lambda x, i, s: x.scatter_add(0, _wide(i, s)[:3], s) * 2,
}


@pytest.mark.parametrize("name", LEFT)
def test_others_stay_with_the_library(box: Sandboxed, name: str) -> None:
    module, inputs = functional(LEFT[name]), operands((5, 17, 3))
    found = compiled_graph(module, inputs)
    text = found.write(small(found, "looped")).text
    assert "tl.atomic_add" not in text
    box.check(text, module, inputs)


def test_an_index_that_selects_nothing_is_refused_or_adds_nothing(box: Sandboxed) -> None:
    """A call without an index says so, and never returns what was not written."""
    module, inputs = functional(CALLS["rows"]), operands((5, 17, 3))
    found = compiled_graph(module, inputs)
    text = found.write(small(found, "looped")).text
    x, _, _ = inputs
    empty = (x, torch.zeros(0, dtype=torch.int64), torch.zeros(0, 3))
    assert "verified" in box.refusal(text, module, empty)


class Added(torch.nn.Module):
    def forward(self, x: torch.Tensor, i: torch.Tensor, s: torch.Tensor) -> torch.Tensor:
        return torch.zeros_like(x).index_add(0, i, s) * 2


class Put(torch.nn.Module):
    def forward(self, x: torch.Tensor, i: torch.Tensor, s: torch.Tensor) -> torch.Tensor:
        return x.index_put((i,), s, accumulate=True) * 2


@pytest.mark.parametrize("module", [Added(), Put()])
def test_sizes_that_eager_compares_in_each_call_are_left_to_it(module: torch.nn.Module) -> None:
    """Of two free sizes that are no one size in the graph a kernel would not know that they are
    equal: rows longer than those that they are added to would be written past the end."""
    inputs = (torch.randn(5, 6), torch.randint(0, 5, (17,)), torch.randn(17, 6))
    loaded = problem_from_module(module.eval(), inputs)
    found = partitions(loaded, capture(loaded), "mixed")[0]
    assert found.captured.free_dims
    assert "tl.atomic_add" not in found.write(small(found, "looped")).text


@pytest.mark.slow
@pytest.mark.parametrize("name", ["neighbours", "scattered", "put", "mean"])
def test_places_outside_are_refused_as_eager_refuses_them(name: str) -> None:
    module = functional(CALLS[name])
    loaded = problem_from_module(module.eval(), operands((6, 20, 5)))
    captured = capture(loaded)
    found = partitions(loaded, captured, "mixed")[0]
    text = found.write(small(found, "looped")).text
    assert_accepted(loaded, captured, text)
    silent = text.replace("@triton.jit(debug=True)", "@triton.jit").replace(
        ", sanitize_overflow=False", ""
    )
    settings_ = JudgeSettings(seed=0, policy="mixed", seeds=1, budget_s=2.0)
    assert not judge(loaded, captured, silent, settings_).accepted


def test_an_epilogue_of_a_product_adds_nothing() -> None:
    """A product whose rows are scattered keeps its own store."""
    module = functional(lambda x, i, s: torch.zeros_like(x).index_add(0, i, s @ s.t() @ s))
    found = compiled_graph(module, operands((5, 17, 3))).own_products()
    assert found.write(small(found, "looped")).text.count("tl.atomic_add") == 1


def test_a_policy_of_kernels_alone_is_served() -> None:
    loaded = problem_from_module(functional(CALLS["mean"]).eval(), operands((5, 17, 3)))
    try:
        found = partitions(loaded, capture(loaded), "triton")
    except UnsupportedOp as error:
        pytest.fail(str(error))
    assert found
