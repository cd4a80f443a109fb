"""Rows side by side in memory: a warp's lanes lie along them, whatever their number."""

import pytest
import torch
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from torch import nn

from agentkernel.compiler.emit import Schedule
from agentkernel.compiler.fusion import Region
from agentkernel.compiler.providers.rows import region_schedules
from tests.compiler.cross_compile import compiled_cost, imported
from tests.compiler.families import OfOne
from tests.compiler.forms import compiled_graph
from tests.compiler.sandboxed_drop_in import Sandboxed


class Channels(nn.Module):
    """A softmax over dimension 1."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x, 1)


class Middle(nn.Module):
    """Means and a difference over dimension 2, on both sides of which are others."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        mean = x.mean(2, keepdim=True)
        return mean, (x - mean).abs()


class Turned(nn.Module):
    """No reduction: the last two dimensions change places."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.transpose(-1, -2).contiguous() + 1.0


class Weighted(nn.Module):
    """Means whose weights all elements of the last dimension share, and the weights' own scan,
    spread and softmax beside them."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        weight = x[..., :1].sigmoid()
        shares = (x * weight.softmax(2)).sum(2)
        running = x * weight.cumsum(2)
        return shares, x.sum(2) / weight.sum(2), running, x.sum(2) - weight.var(2)


class Bags(nn.Module):
    """Means of the rows of a table that are named along a middle dimension."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(9, width))

    def forward(self, ids: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return (nn.functional.embedding(ids, self.table) * weight[..., None]).mean(1)


def _text(module: nn.Module, x: torch.Tensor, schedule: Schedule) -> str:
    compiled = compiled_graph(module, (x,))
    assert all(isinstance(step, Region) for step in compiled.partition.steps)
    return compiled.write(dict.fromkeys(compiled.partition.steps, schedule)).text


@pytest.mark.quick(2)
@pytest.mark.parametrize("rows", [8, 32, 64])
@pytest.mark.parametrize(("bag", "width"), [(5, 64), (17, 37), (3, 128)])
def test_rows_of_a_table_are_read_along_the_table(
    box: Sandboxed, bag: int, width: int, rows: int
) -> None:
    """What the rows of a tile share, the indices and weights, is loaded once for all of them."""
    torch.manual_seed(bag)
    module, inputs = Bags(width), (torch.randint(0, 9, (3, bag)), torch.randn(3, bag))
    found = compiled_graph(module, inputs)
    (step,) = found.partition.steps
    assert isinstance(step, Region)
    assert region_schedules(step, found.symbols, lambda _: None)[0].block_rows >= 32
    for form, block in (("persistent", 32), ("looped", 2)):
        text = found.write({step: Schedule(form, block, rows)}).text  # type: ignore[arg-type]
        loads = [line for line in text.splitlines() if "tl.load(ids_ptr" in line]
        assert loads
        assert width % rows != 0 or not any("row_mask" in line for line in loads)
        box.check(text, module, inputs)


@pytest.mark.quick(2)
@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
@example(Weighted(), 2, 5, 33, 64, 16, "persistent")
@example(Weighted(), 3, 2, 17, 65, 32, "looped")
@given(
    module=st.sampled_from([Channels(), Middle(), Turned(), Weighted()]),
    outer=st.integers(1, 3),
    middle=st.sampled_from([2, 5, 21]),
    length=st.sampled_from([17, 32, 33]),
    inner=st.sampled_from([7, 37, 64, 65]),
    rows=st.sampled_from([8, 16, 32]),
    form=st.sampled_from(["persistent", "looped"]),
)
def test_rows_of_any_number_on_any_axes(
    box: Sandboxed, module: nn.Module, outer: int, middle: int, length: int, inner: int, rows: int,
    form: str,
) -> None:  # fmt: skip
    x = torch.randn(outer, middle, length, inner, generator=torch.Generator().manual_seed(inner))
    tile = 64 if form == "persistent" else 16
    used = "tile" if isinstance(module, Turned) else form
    box.check(_text(module, x, Schedule(used, tile, rows)), module, (x,))


def test_a_warp_reads_neighbours_where_the_rows_are_odd_in_number() -> None:
    """Each thread holds the columns of one row: no shuffles, one load a column, no division."""
    text = _text(Channels(), torch.randn(2, 21, 33, 513), Schedule("persistent", 32, 128, 4))
    kernel = imported(text, "").softmax_kernel
    sizes = {"n_cols": 21, "x_dim1": 21, "x_dim2": 33, "x_dim3": 513, "BLOCK_M": 128, "BLOCK_N": 32}
    signature = {name: "constexpr" if name in sizes else "*fp32" for name in kernel.arg_names}
    cost = compiled_cost(kernel, signature, sizes, {"num_warps": 4})
    assert cost.ptx.count("shfl") == 0
    assert cost.instructions < 25 * 32


@pytest.mark.parametrize(("columns", "programs"), [(4096, 200), (1 << 20, 4096)])
def test_few_columns_fill_the_card_by_narrow_tiles(columns: int, programs: int) -> None:
    found = compiled_graph(OfOne(lambda x: torch.logsumexp(x, 0)), (torch.empty(4096, columns),))
    (step,) = found.partition.steps
    assert isinstance(step, Region)
    first = region_schedules(step, found.symbols, lambda _: None)[0]
    assert columns // first.block_rows >= programs
    assert first.block_rows * 4 >= 64, "a line of memory is not read in smaller parts"
