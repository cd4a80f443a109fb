"""Full tiles without a mask: 16 bytes a thread whatever the number of elements."""

import re

import pytest
import torch
from torch import nn

from agentkernel.compiler.emit import Schedule
from agentkernel.compiler.fusion import Region
from tests.compiler.cross_compile import compiled_cost, imported
from tests.compiler.forms import compiled_graph
from tests.compiler.sandboxed_drop_in import Sandboxed


class Twice(nn.Module):
    """Two values stored, a number of the row's own between."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        shared = torch.sigmoid(x) * y
        return shared + 1.0, shared * torch.relu(x)


class Flipped(nn.Module):
    """Reads each place through its index."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x.flip(0) - torch.cat([y[1:], y[:1]])


def _text(module: nn.Module, shape: tuple[int, ...]) -> str:
    compiled = compiled_graph(module, (torch.randn(shape), torch.randn(shape)))
    (step,) = compiled.partition.steps
    assert isinstance(step, Region)
    return compiled.write({step: Schedule("flat", 4096)}).text


@pytest.mark.parametrize("kind", [Twice, Flipped])
def test_full_and_last_tiles_have_what_eager_has(box: Sandboxed, kind: type[nn.Module]) -> None:
    text = _text(kind(), (257, 257))
    assert "// BLOCK_N:" in text
    for shape in ((257, 257), (3, 5), (64, 64), (63, 65), (8193, 1)):
        inputs = tuple(torch.randn(shape) for _ in range(2))
        box.check(text, kind(), inputs)


def test_a_full_tile_loads_and_stores_16_bytes_a_thread() -> None:
    text = _text(Twice(), (257, 257))
    kernel = next(value for name, value in vars(imported(text, "")).items() if "_kernel" in name)
    kinds = {"n_elements": "i32", "BLOCK_N": "constexpr"}
    signature = {name: kinds.get(name, "*fp32") for name in kernel.arg_names}
    ptx = compiled_cost(kernel, signature, {"BLOCK_N": 1024}, {"num_warps": 4}, odd=True).ptx
    moves = re.findall(r"(?:ld|st)\.global[\w.:]*", ptx)
    assert sum(".v4" in move for move in moves) == 2 * (2 + 2)
    assert any(".v4" not in move for move in moves)


def test_what_threads_divide_evenly_has_no_second_text() -> None:
    assert "// BLOCK_N:" not in _text(Twice(), (256, 257))
