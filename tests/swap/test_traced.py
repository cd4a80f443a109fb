"""What a compiled model asks of its kernels' modules, and the changes that it sees there."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import nn
from torch._dynamo.eval_frame import _debug_get_cache_entry_list

from agentkernel.swap.swap import apply, restore, swap_of
from agentkernel.swap.traced import _read_of_itself
from tests.swap.applied_kernels import Block, block, example, make_kernel
from tests.swap.compiled_kernels import BLOCKS, MARKED_MLP, Graphs, stack

MOST_GUARDS = 60
"""Lines of Dynamo's guards for a region; it was over 140, with seven that are run in Python."""
KERNELS = 2


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch.compiler.reset()
    yield
    torch.compiler.reset()


def guards_of(model: nn.Module, x: torch.Tensor) -> str:
    def run(value: torch.Tensor) -> torch.Tensor:
        return model(value)

    with torch.no_grad():
        torch.compile(run, fullgraph=True, backend="eager")(x)
    (entry,) = _debug_get_cache_entry_list(run.__code__)
    return str(entry.guard_manager)


@pytest.mark.slow
def test_a_region_adds_few_guards() -> None:
    plain = stack()
    restore(plain)
    before = guards_of(plain, example())
    torch.compiler.reset()
    swapped = guards_of(stack(), example())
    extra = swapped.count("\n") - before.count("\n")
    assert extra / (3 * BLOCKS) < MOST_GUARDS
    # Those are for a kernel's text, not for each of its uses.
    assert swapped.count("LAMBDA_GUARD") <= before.count("LAMBDA_GUARD") + 4 * KERNELS


def with_mlp() -> Block:
    model = block()
    apply(model, {"mlp": make_kernel(MARKED_MLP, block().mlp)})
    found = swap_of(model.mlp)
    assert found.traced is not None
    return model


def train(model: Block) -> None:
    model.mlp.down.train()


def hook(model: Block) -> None:
    model.mlp.up.register_forward_hook(lambda module, args, out: out * 2)


def another_child(model: Block) -> None:
    model.mlp.up = nn.Sequential(model.mlp.up, nn.ReLU())  # type: ignore[assignment]


def a_child_more(model: Block) -> None:
    model.mlp.extra = nn.Identity()


def another_size(model: Block) -> None:
    model.mlp.up.out_features = 17


def a_wider_weight(model: Block) -> None:
    model.mlp.down.weight = nn.Parameter(model.mlp.down.weight.double(), requires_grad=False)
    model.mlp.down.bias = nn.Parameter(model.mlp.down.bias.double(), requires_grad=False)
    model.mlp.up.double()
    model.last.double()
    model.norm.double()


@pytest.mark.quick(2)
@pytest.mark.parametrize("change", [train, another_child, a_child_more, another_size])
def test_what_changes_after_compiling_runs_the_original(change: Callable[[Block], None]) -> None:
    model, x, graphs = with_mlp(), example(), Graphs()
    compiled = torch.compile(model, backend=graphs)
    compiled(x)
    assert graphs.marks("cos") == [1]
    change(model)
    assert torch.allclose(compiled(x), model(x), atol=1e-4)
    assert graphs.marks("cos")[1:] == [0]


def test_a_hook_of_a_part_runs_the_original() -> None:
    # As with any model, torch.compile does not ask for hooks that come after it.
    model, x, graphs = with_mlp(), example(), Graphs()
    hook(model)
    compiled = torch.compile(model, fullgraph=True, backend=graphs)
    assert torch.allclose(compiled(x), model(x), atol=1e-4)
    assert graphs.marks("cos") == [0]


def test_another_parameter_is_read_by_the_same_graph() -> None:
    model, x, graphs = with_mlp(), example(), Graphs()
    compiled = torch.compile(model, fullgraph=True, backend=graphs)
    compiled(x)
    model.mlp.down.weight = nn.Parameter(torch.randn(8, 16), requires_grad=False)
    assert torch.allclose(compiled(x), model(x), atol=1e-4)
    model.mlp.down.weight.mul_(3.0)
    assert torch.allclose(compiled(x), model(x), atol=1e-4)
    assert set(graphs.marks("cos")) == {1}


def test_another_dtype_runs_the_original() -> None:
    model, graphs = with_mlp(), Graphs()
    compiled = torch.compile(model, fullgraph=True, backend=graphs)
    compiled(example())
    a_wider_weight(model)
    x = example().double()
    assert torch.allclose(compiled(x), model(x), atol=1e-6)
    assert graphs.marks("cos") == [1, 0]


def test_a_kernel_that_is_taken_out_is_not_run() -> None:
    model, x, graphs = with_mlp(), example(), Graphs()
    compiled = torch.compile(model, fullgraph=True, backend=graphs)
    compiled(x)
    restore(model)
    assert torch.allclose(compiled(x), model(x), atol=1e-5)
    assert graphs.marks("cos") == [1, 0]


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ("return self.weight.stride(0) + self.fc.bias", {"weight.stride", "fc.bias"}),
        ("self.calls = 1", None),
        ("return helper(self)", None),
        ("me = self\n        return me.weight", None),
        ("return x", set()),
    ],
)
def test_what_a_kernel_reads_of_itself(body: str, found: set[str] | None) -> None:
    source = f"class ModelNew:\n    def forward(self, x):\n        {body}\n"
    ast.parse(source)
    assert _read_of_itself(source) == found
