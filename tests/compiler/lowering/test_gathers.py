"""Tables are read at computed places as in eager, and places outside of them are refused."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st
from torch import nn
from torch.utils._pytree import tree_flatten

from agentkernel.compiler.partitions import partitions
from agentkernel.compiler.pipeline import Compiled
from agentkernel.compiler.providers import provider_of
from agentkernel.compiler.providers.protocol import Setting
from agentkernel.tools.judge.judge import judge
from agentkernel.tools.judge.settings import JudgeSettings
from agentkernel.tools.problem.capture import Captured, capture
from agentkernel.tools.problem.loading import LoadedProblem, problem_from_module
from tests.compiler.families import functional
from tests.compiler.first_drafts import TARGET
from tests.compiler.forms import assert_accepted, compiled_graph, small
from tests.compiler.sandboxed_drop_in import Sandboxed

FORMS = ("looped", "single", "persistent")


class Picks(nn.Module):
    """`call` of a table of its own and the indices that it is given."""

    def __init__(
        self, table: torch.Tensor, call: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
    ) -> None:
        super().__init__()
        self.table = nn.Parameter(table)
        self.call = call

    def forward(self, index: torch.Tensor) -> torch.Tensor:
        return self.call(self.table, index)


CALLS: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "first": lambda table, index: table[index] * 2.0,
    "second": lambda table, index: table[:, index].exp(),
    "last": lambda table, index: table[..., index] + 1.0,
    "pair": lambda table, index: table[index, index],
    "selected": lambda table, index: table.index_select(1, index.flatten()),
    "gathered": lambda table, index: table.gather(1, index.flatten()[:, None, None]) * 2.0,
    "normed": lambda table, index: table[index].softmax(-1),
    "computed": lambda table, index: table.exp()[index] * 2.0,
    "turned": lambda table, index: table.transpose(0, 2)[:, 1:].flatten(1)[index],
    "reduced": lambda table, index: table.sum(0)[index] + 1.0,
}


def compiled(module: nn.Module, index: torch.Tensor) -> tuple[LoadedProblem, Captured, Compiled]:
    loaded = problem_from_module(module.eval(), (index,))
    captured = capture(loaded)
    return loaded, captured, partitions(loaded, captured, "mixed")[0]


@settings(
    max_examples=12,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
)
@example(name="gathered", form="persistent", size=3, shape=[2, 5], data=965274705)
@given(
    name=st.sampled_from(sorted(CALLS)),
    form=st.sampled_from(FORMS),
    size=st.integers(2, 9),
    shape=st.lists(st.integers(2, 7), min_size=1, max_size=2),
    data=st.integers(0, 1 << 30),
)
def test_places_are_read_as_eager_reads_them(
    box: Sandboxed, name: str, form: str, size: int, shape: list[int], data: int
) -> None:
    torch.manual_seed(data)
    index = torch.randint(-size, size, shape)
    if name in ("selected", "gathered"):
        index = index.flatten()[:size] % size  # no place below zero, no more rows than there are
    module = Picks(torch.randn(size, size, size), CALLS[name])
    _, _, found = compiled(module, index)
    text = found.write(small(found, form)).text
    box.check(text, module, (index,))


@pytest.mark.quick(1)
@pytest.mark.parametrize("name", ["computed", "turned", "reduced"])
def test_tables_that_are_computed_are_read_as_eager_reads_them(box: Sandboxed, name: str) -> None:
    index = torch.tensor([[1, -3], [0, 2]])
    module = Picks(torch.randn(4, 4, 4), CALLS[name])
    _, _, found = compiled(module, index)
    text = found.write(small(found, "single")).text
    box.check(text, module, (index,))


def test_places_that_another_kernel_has_stored_are_read_from_memory(box: Sandboxed) -> None:
    """A threshold by rank: the place is counted in one kernel, and what stands there read in the
    next, for which schedules ask how places grow."""

    def call(x: torch.Tensor) -> torch.Tensor:
        above = torch.cumsum(x, -1)
        count = (x > above - 1.0).sum(-1, keepdim=True)
        return x - above.gather(-1, count - 1)

    module, x = functional(call), torch.rand(8, 100)
    found = compiled_graph(module, [x])
    setting = Setting(found.symbols, TARGET, "strict", lambda _: None)
    first = {step: provider_of(step).schedules(step, setting)[0] for step in found.partition.steps}
    assert len(first) == 2
    box.check(found.write(first).text, module, (x,))


@pytest.mark.slow
def test_a_place_outside_of_a_dimension_that_is_broadcast_is_refused() -> None:
    module = Picks(torch.randn(1, 5), lambda table, index: table.expand(3, 5)[index])
    loaded, captured, found = compiled(module, torch.randint(0, 3, (4,)))
    text = found.write(small(found, "looped")).text
    assert "tl.device_assert" in text
    assert_accepted(loaded, captured, text)


@pytest.mark.slow
def test_a_place_outside_of_the_table_is_refused_as_eager_refuses_it() -> None:
    module = Picks(torch.randn(6, 5), lambda table, index: nn.functional.embedding(index, table))
    loaded, captured, found = compiled(module, torch.randint(0, 6, (3, 4)))
    text = found.write(small(found, "looped")).text
    assert_accepted(loaded, captured, text)
    assert "tl.device_assert" in text
    silent = text.replace("@triton.jit(debug=True)", "@triton.jit").replace(
        ", sanitize_overflow=False", ""
    )
    settings_ = JudgeSettings(seed=0, policy="mixed", seeds=1, budget_s=2.0)
    assert not judge(loaded, captured, silent, settings_).accepted


class Pools(nn.Module):
    """What `call` makes of rows, of a table of its own and of indices."""

    def __init__(self, call: str) -> None:
        super().__init__()
        self.table = nn.Embedding(10, 8)
        self.call = call

    def forward(self, x: torch.Tensor, index: torch.Tensor) -> object:
        return POOLS[self.call](self, x, index)


POOLS: dict[str, Callable[[Pools, torch.Tensor, torch.Tensor], object]] = {
    "beside": lambda _, x, index: (x.index_select(0, index), x * 2),
    "gathered": lambda _, x, index: x.gather(0, index[:, None].expand(-1, 8)).sum(0),
    "summed": lambda m, _, index: torch.relu(m.table(index).sum(0)) + 1,
    "mean": lambda m, x, index: m.table(index).mean(0) + x,
    "joined": lambda _, x, index: torch.cat([x[index], x]) * 2,
    "counted": lambda _, x, index: x.index_add(0, index, index[:, None].expand(-1, 8) * 2.0),
}


@pytest.mark.parametrize("form", ["looped", "single", "persistent", "split"])
@pytest.mark.parametrize("call", POOLS)
def test_no_indices_at_all_are_taken(box: Sandboxed, call: str, form: str) -> None:
    """What stays of the outputs is what eager has: a sum of nothing is 0, a mean of it NaN."""
    module = Pools(call).eval()
    x = torch.randn(5, 8)
    loaded = problem_from_module(module, (x, torch.tensor([1, 0, 2, 3])))
    captured = capture(loaded)
    first = partitions(loaded, captured, "mixed")[0]
    text = first.write(small(first, form)).text
    for index in (torch.tensor([], dtype=torch.int64), torch.tensor([4, 4, 1])):
        wanted, _ = tree_flatten(module(x, index))
        torch.testing.assert_close(box.call(text, module, (x, index)), wanted, equal_nan=True)


@pytest.mark.parametrize(
    "call",
    [
        lambda table, index: table[index].amax(0),
        lambda table, index: table.sum(0)[index].T @ table.sum(0)[index],
        lambda table, index: table[index].var(0),
    ],
    ids=["maximum", "product", "variance"],
)
def test_what_no_elements_do_not_end_in_a_sum_refuses_none(
    box: Sandboxed, call: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
) -> None:
    module = Picks(torch.randn(5, 4, 3), call)
    _, _, first = compiled(module, torch.tensor([1, 0, 2, 3]))
    text = first.write(small(first, "looped")).text
    told = box.refusal(text, module, (torch.tensor([], dtype=torch.int64),))
    assert "index_dim0 >= 1" in told
