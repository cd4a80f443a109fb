"""Each value of a kernel has a name of its own, and none is written out twice."""

import ast
from collections import Counter
from collections.abc import Callable, Iterator

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from agentkernel.agents.compiler_coder import variants
from agentkernel.tools.targets import find_target
from tests.compiler.families import functional
from tests.compiler.forms import compiled_graph
from tests.compiler.sandboxed_drop_in import Sandboxed


class Named(nn.Module):
    """Two parameters over the columns, under names that a kernel uses itself."""

    def __init__(self, first: str, second: str, columns: int) -> None:
        super().__init__()
        self.names = first, second
        for name in self.names:
            self.register_parameter(name, nn.Parameter(torch.randn(columns)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first, second = (getattr(self, name) for name in self.names)
        return (x + first) * second


class Projected(nn.Module):
    """A product, and a parameter beside it under a name that its kernel uses itself."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.project = nn.Linear(20, 33)
        self.name = name
        self.register_parameter(name, nn.Parameter(torch.randn(33)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.project(x) + getattr(self, self.name))


class Peaks(nn.Module):
    """The largest of each row and where it is, with a parameter added under `name`."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name
        self.register_parameter(name, nn.Parameter(torch.randn(24)))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        moved = x + getattr(self, self.name)
        return moved.amax(1), moved.argmax(1)


def _draft(module: nn.Module, inputs: tuple[torch.Tensor, ...]) -> str:
    compiled = compiled_graph(module.eval(), inputs)
    first = next(iter(variants(compiled, lambda _: None, find_target("h100").target, 1)))
    return first.source.text


@pytest.mark.quick(1)
@pytest.mark.parametrize("first", ["offset", "row", "near", "col_mask", "BLOCK_N"])
def test_parameters_may_be_called_as_what_a_kernel_counts_with(box: Sandboxed, first: str) -> None:
    torch.manual_seed(0)
    module, inputs = Named(first, "beta", 24), (torch.randn(7, 24),)
    box.check(_draft(module, inputs), module, inputs)


@pytest.mark.quick(1)
@pytest.mark.parametrize("name", ["a", "b", "out", "rows", "tile_mask", "acc", "partial"])
def test_parameters_may_be_called_as_parts_of_a_product(box: Sandboxed, name: str) -> None:
    torch.manual_seed(0)
    module, inputs = Projected(name), (torch.randn(7, 20),)
    box.check(_draft(module, inputs), module, inputs)


@pytest.mark.quick(1)
@pytest.mark.parametrize("name", ["max_along", "place_of_max", "part"])
def test_parameters_may_be_called_as_its_helpers(box: Sandboxed, name: str) -> None:
    torch.manual_seed(0)
    module, inputs = Peaks(name), (torch.randn(7, 24),)
    box.check(_draft(module, inputs), module, inputs)


@pytest.mark.parametrize(
    "module",
    [
        functional(lambda x: torch.softmax(x.mean(1, keepdim=True) + 0.7, 1)),
        functional(lambda x: F.layer_norm(x.sum(1, keepdim=True), (1,))),
    ],
)
def test_rows_of_one_element_are_stored(box: Sandboxed, module: nn.Module) -> None:
    torch.manual_seed(0)
    inputs = (torch.randn(9, 20),)
    box.check(_draft(module, inputs), module, inputs)


@pytest.mark.quick(4)
@pytest.mark.parametrize(
    "module",
    [
        functional(lambda x, y: torch.relu(1 - x * torch.sign(y))),
        functional(lambda x, y: torch.where((x / 0.25 + y).float() > 0, x / 0.25 + y, y)),
        functional(lambda x, y: F.silu(torch.tanh(x) + y).clamp(min=0.1)),
        functional(lambda x, y: F.selu(torch.softmax(x * y, -1))),
        functional(lambda x, y: F.hardswish(F.mish(x * y) + y)),
    ],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_no_value_is_written_out_twice(module: nn.Module, dtype: torch.dtype) -> None:
    text = _draft(module, (torch.randn(9, 24, dtype=dtype), torch.randn(9, 24, dtype=dtype)))
    assert not _repeated(text), text


@pytest.mark.parametrize(
    "call", [lambda x: torch.cosh(x + 85), lambda x: torch.logaddexp(80 * x, x - 3), torch.cosh]
)
def test_sums_of_exponentials_do_not_overflow(
    box: Sandboxed, call: Callable[[torch.Tensor], torch.Tensor]
) -> None:
    torch.manual_seed(0)
    module, inputs = functional(call), (torch.randn(7, 24),)
    box.check(_draft(module, inputs), module, inputs)


def test_a_negated_mask_chooses(box: Sandboxed) -> None:
    module, inputs = functional(lambda x: torch.where(~(x > 0.1), x, 2 * x)), (torch.randn(7, 24),)
    box.check(_draft(module, inputs), module, inputs)


def _repeated(text: str) -> list[str]:
    """Arithmetic that stands twice in one kernel, addresses and masks aside."""
    found: list[str] = []
    for function in ast.parse(text).body:
        if isinstance(function, ast.FunctionDef) and "kernel" in function.name:
            counted = Counter(_arithmetic(function))
            found += [code for code, count in counted.items() if count > 1]
    return found


def _arithmetic(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Call) and ast.unparse(node.func) in ("tl.load", "tl.program_id"):
        return
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub | ast.Mult | ast.Div):
        yield ast.unparse(node)
    for child in ast.iter_child_nodes(node):
        yield from _arithmetic(child)
