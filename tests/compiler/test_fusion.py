"""Which values share a kernel, and which are stored between two."""

from collections.abc import Callable

import pytest
import torch
from torch import nn

from agentkernel.compiler.fusion import Partition
from agentkernel.compiler.partitions import split_rival
from tests.compiler.forms import compiled_graph


def parts(call: Callable[..., object], *inputs: torch.Tensor, cut: bool = False) -> Partition:
    def forward(_: nn.Module, *args: torch.Tensor) -> object:
        return call(*args)

    module: nn.Module = type("Functional", (nn.Module,), {"forward": forward})()
    found = compiled_graph(module, inputs)
    slow = split_rival(found, "mixed") if cut else found
    return slow.partition


X, Y = torch.randn(12, 40), torch.randn(12, 40)
CASES: dict[str, tuple[Callable[..., object], int]] = {
    "a chain with a broadcast": (lambda x, y: torch.relu(x * y + y[:1]), 1),
    "a norm and what surrounds it": (
        lambda x, y: torch.tanh(nn.functional.layer_norm(x + y, (40,))) * y, 1,
    ),
    "softmax reads its row once": (lambda x, y: torch.softmax(x - y, 1), 1),
    "rows, then all of them": (lambda x, y: (x * y).sum(1).mean(), 2),
    "two outputs of one read": (lambda x, y: (x + y, (x + y).sum(1)), 1),
    "a part of a value, which is stored whole": (lambda x, y: (x * y)[:, 1:], 2),
    "a value and its transpose": (lambda x, y: (x @ y.t()) * 2 + (x @ y.t()).t(), 2),
}  # fmt: skip


@pytest.mark.quick(4)
@pytest.mark.parametrize("name", CASES)
def test_as_few_kernels_as_the_data_flow_allows(name: str) -> None:
    call, expected = CASES[name]
    assert len(parts(call, X, Y).steps) == expected


def test_producers_come_before_consumers() -> None:
    steps = parts(lambda x, y: torch.softmax((x * y).sum(1), 0), X, Y).steps
    assert len(steps) == 2
    first, second = steps
    stored = {store.node for store in first.stores}  # type: ignore[union-attr]
    assert {access.buffer for access in second.layout.loads.values()} <= stored  # type: ignore[union-attr]


def test_what_nothing_needs_is_left_out() -> None:
    (step,) = parts(lambda x, y: (x.exp(), x + 1)[1], X, Y).steps
    assert {node.op for node in step.nodes} == {"add"}  # type: ignore[union-attr]


def test_what_is_halved_goes_through_memory_once() -> None:
    first, second = parts(lambda x, y: torch.tanh(torch.relu(x * y) + 1.0), X, Y, cut=True).steps
    before, after = ([node.op for node in item.nodes] for item in (first, second))  # type: ignore[union-attr]
    assert (before[0], after[-1]) == ("mul", "tanh")
    (stored,) = first.stores  # type: ignore[union-attr]
    assert {access.buffer for access in second.layout.loads.values()} == {stored.node}  # type: ignore[union-attr]
    assert len(parts(lambda x, y: x * y, X, Y, cut=True).steps) == 1
