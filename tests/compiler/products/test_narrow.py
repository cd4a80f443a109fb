"""Products of one or two columns are one pass over their operand, and slices are right."""

import itertools
from collections.abc import Callable

import pytest
import sympy
import torch
from torch import nn
from torch.nn import functional as F

from agentkernel.agents.compiler_coder import simplified
from agentkernel.compiler.fusion import topological
from agentkernel.compiler.ir import GraphBuilder, Node
from agentkernel.compiler.lowering import lower
from agentkernel.compiler.lowering.products import slice_at
from agentkernel.compiler.lowering.reductions import MANY_PROGRAMS, over_rows
from agentkernel.compiler.lowering.registry import Lowering
from agentkernel.tools.problem.capture import Captured, capture
from agentkernel.tools.problem.loading import LoadedProblem, problem_from_module
from agentkernel.tools.targets import find_target
from tests.compiler.first_drafts import drafted
from tests.compiler.forms import assert_accepted

TARGET = find_target("h200").target


class Columns(nn.Module):
    """x W with a few columns, W stored either way."""

    def __init__(self, columns: int, *, turned: bool, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(24, columns, dtype=dtype))
        self.linear = nn.Linear(24, columns, dtype=dtype)
        self.turned = turned

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.linear(x) if self.turned else x @ self.weight)


class SummedRows(nn.Module):
    """linear, then a sum over its outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(40, 56)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.linear(x).sum(1, keepdim=True))


class Pooled(nn.Module):
    """A pooling, of averages by default, with a function after it."""

    def __init__(self, pool: Callable[..., torch.Tensor] = F.avg_pool2d, **options: object) -> None:
        super().__init__()
        self.pool, self.options = pool, options

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.pool(x, **self.options))


@pytest.fixture(autouse=True)
def seeded() -> None:
    """The same weights in every run: of few outputs eager may have one right by chance."""
    torch.manual_seed(0)


def ops(captured: Captured) -> list[str]:
    """What the lowered graph computes."""
    return [node.op for node in topological(lower(captured).outputs)]


def accepted(problem: LoadedProblem, source: str, seeds: int = 2) -> None:
    assert_accepted(problem, capture(problem), source, seeds, budget_s=0.0)


@pytest.mark.quick(3)
@pytest.mark.parametrize(("columns", "products"), [(1, 0), (2, 0), (3, 1)])
@pytest.mark.parametrize("turned", [True, False])
def test_up_to_two_columns_are_sums_over_rows(columns: int, products: int, turned: bool) -> None:
    problem = problem_from_module(Columns(columns, turned=turned), (torch.randn(17, 24),))
    assert ops(capture(problem)).count("product") == products


FEWER = [(1, True, torch.float16), (1, False, torch.float32), (2, True, torch.float32),
         (2, False, torch.float16)]  # fmt: skip
"""Each count, order and dtype, and each two of them, once."""
PRODUCTS = itertools.product((1, 2), (True, False), (torch.float32, torch.float16))


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    ("columns", "turned", "dtype"),
    [pytest.param(*item, marks=[pytest.mark.slow] * (item not in FEWER)) for item in PRODUCTS],
)
def test_such_products_are_accepted(columns: int, turned: bool, dtype: torch.dtype) -> None:
    module = Columns(columns, turned=turned, dtype=dtype).eval()
    problem = problem_from_module(module, (torch.randn(17, 24).to(dtype),))
    accepted(problem, drafted(problem, "fused"))


@pytest.mark.slow
def test_a_summed_layer_reads_its_input_once_and_stores_no_product() -> None:
    problem = problem_from_module(SummedRows().eval(), (torch.randn(37, 40),))
    source = drafted(problem, "algebra")
    assert source.count("tl.load(x_ptr") == 1
    assert "tl.dot" not in source
    lowered = ops(simplified(problem, capture(problem)).captured)
    assert "product" not in lowered
    assert "iota" not in lowered, "a choice between columns is left"
    accepted(problem, source)


def fresh() -> Lowering:
    return Lowering(captured=None)  # type: ignore[arg-type]


def size(*values: int) -> tuple[sympy.Expr, ...]:
    return tuple(sympy.Integer(value) for value in values)


def test_long_narrow_matrices_are_folded_in_slices() -> None:
    state = fresh()
    matrix = state.b.input("weight", torch.float32, size(4096, 4096))
    whole = over_rows(state, "sum", matrix)
    assert whole.shape == size(1, 4096)
    second = whole.root
    assert second.op == "sum"
    first = second.args[0]
    assert (first.op, first.attrs[0]) == ("sum", (1,))
    slices = int(first.shape[0])
    assert MANY_PROGRAMS // 2 < slices * 4096 // 64 <= MANY_PROGRAMS


@pytest.mark.parametrize("shape", [(64, 64), (4097, 4096), (64, 1 << 20)])
def test_what_is_small_or_wide_or_uneven_is_folded_at_once(shape: tuple[int, int]) -> None:
    state = fresh()
    matrix = state.b.input("weight", torch.float32, size(*shape))
    assert over_rows(state, "sum", matrix).args == (matrix,)


def two_rows(b: GraphBuilder, other: Node) -> Node:
    """Row 0: the numbers; row 1: the numbers where `other` holds, else 0."""
    first = b.reshape(b.pointwise("eq", b.iota(size(2), 0), 0), size(2, 1))
    numbers = b.input("numbers", torch.float32, size(1, 8))
    return b.pointwise("where", b.pointwise("logical_or", first, other), numbers, 0.0)


def test_a_row_of_a_choice_is_the_chosen_one() -> None:
    b = GraphBuilder()
    other = b.input("other", torch.bool, size(1, 8))
    both = two_rows(b, other)
    assert slice_at(b, both, 0, 0).name == "numbers"
    second = slice_at(b, both, 0, 1)
    assert second.op == "where"
    assert second.args[0] is other
    assert second.shape == size(1, 8)


def test_a_stored_value_is_sliced() -> None:
    b = GraphBuilder()
    stored = b.input("x", torch.float32, size(3, 8))
    assert slice_at(b, stored, 0, 1).op == "slice"
    long = b.pointwise("exp", stored)
    assert slice_at(b, long, 0, 1).op == "slice", "a long dimension is not computed again"


def test_a_part_keeps_its_rank_where_it_is_a_known_constant() -> None:
    b = GraphBuilder()
    chosen = b.pointwise("eq", b.iota(size(2), 0), 0)
    assert slice_at(b, chosen, 0, 1).shape == size(1)
    mixed = b.pointwise("mul", chosen, b.input("x", torch.float32, size(3, 2)))
    assert slice_at(b, mixed, 1, 0).shape == size(3, 1)


class Constant(nn.Module):
    """Part of what is the same for every input."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.relu() + torch.arange(2, dtype=x.dtype, device=x.device)[1:2]


def test_a_part_of_a_constant_is_covered() -> None:
    problem = problem_from_module(Constant(), (torch.randn(5, 2),))
    assert "relu" in ops(capture(problem)) or "maximum" in ops(capture(problem))


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    "options",
    [{"kernel_size": 4}, {"kernel_size": (2, 3)}, {"kernel_size": 2, "divisor_override": 3}],
    ids=str,
)
def test_windows_side_by_side_are_one_sum(options: dict[str, object]) -> None:
    problem = problem_from_module(Pooled(**options), (torch.randn(2, 3, 13, 18),))
    found = ops(capture(problem))
    assert found.count("sum") == 1
    assert "aten.avg_pool2d.default" not in found


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    ("pool", "sizes"),
    [(F.max_pool1d, (3, 13)), (F.max_pool2d, (2, 3, 13, 18)), (F.max_pool3d, (2, 6, 7, 8))],
    ids=["1d", "2d", "3d"],
)
def test_the_largest_of_windows_side_by_side_is_one_maximum(
    pool: Callable[..., torch.Tensor], sizes: tuple[int, ...]
) -> None:
    problem = problem_from_module(Pooled(pool, kernel_size=2), (torch.randn(sizes),))
    found = ops(capture(problem))
    assert found.count("max") == 1
    assert not any("pool" in op for op in found)


@pytest.mark.slow
@pytest.mark.parametrize("pool", [F.avg_pool2d, F.max_pool2d], ids=["avg", "max"])
@pytest.mark.parametrize("options", [{"kernel_size": (2, 3)}, {"kernel_size": 4}], ids=str)
def test_such_poolings_are_accepted(
    pool: Callable[..., torch.Tensor], options: dict[str, object]
) -> None:
    problem = problem_from_module(Pooled(pool, **options).eval(), (torch.randn(2, 3, 13, 18),))
    accepted(problem, drafted(problem, "fused"), seeds=1)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_a_largest_of_half_precision_is_accepted(dtype: torch.dtype) -> None:
    x = torch.randn(2, 4, 9, dtype=dtype)
    problem = problem_from_module(Pooled(F.max_pool1d, kernel_size=2).eval(), (x,))
    accepted(problem, drafted(problem, "fused"), seeds=1)
