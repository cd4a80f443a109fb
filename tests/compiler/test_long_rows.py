"""Rows that outgrow the L2 cache: the last sweep goes backwards, at full width."""

import ast
import re

import pytest
import torch
from torch import nn

from agentkernel.compiler.emit import Schedule
from agentkernel.compiler.fusion import Region
from agentkernel.compiler.providers.rows import region_schedules
from tests.compiler.cross_compile import compiled_cost, imported
from tests.compiler.families import OfOne
from tests.compiler.forms import compiled_graph
from tests.compiler.sandboxed_drop_in import Sandboxed

LONG, SHORT = 40001, 20001
LOOPED = Schedule("looped", 4096, 1, 16)


def _text(module: nn.Module, columns: int, schedule: Schedule = LOOPED) -> str:
    compiled = compiled_graph(module, (torch.randn(2, columns),))
    (step,) = compiled.partition.steps
    assert isinstance(step, Region)
    return compiled.write({step: schedule}).text


@pytest.mark.parametrize("columns", [LONG, SHORT])
@pytest.mark.parametrize("kind", [nn.Softmax, nn.LayerNorm])
def test_long_rows_are_as_close_to_fp64_as_eager_is(
    box: Sandboxed, kind: type[nn.Module], columns: int
) -> None:
    module = nn.Softmax(-1) if kind is nn.Softmax else nn.LayerNorm(columns)
    x = torch.randn(2, columns, generator=torch.Generator().manual_seed(columns))
    text = _text(module, columns)
    assert text.count("for past in") == (1 if columns == LONG else 0)
    box.check(text, module, (x,))


def test_a_backward_sweep_loads_and_stores_16_bytes_a_thread() -> None:
    kernel = imported(_text(nn.Softmax(-1), 65536), "").softmax_kernel
    sizes = {"n_cols": 65536, "BLOCK_N": 4096}
    signature = {name: "constexpr" if name in sizes else "*fp32" for name in kernel.arg_names}
    ptx = compiled_cost(kernel, signature, sizes, {"num_warps": 16}).ptx
    moves = re.findall(r"(?:ld|st)\.global[\w.:]*", ptx)
    assert {move[:2] for move in moves} == {"ld", "st"}
    assert all(".v4" in move for move in moves), moves


@pytest.mark.parametrize("length", [16384, 16385, 65537, 524288, 1 << 20, 3 << 22])
@pytest.mark.parametrize("rows", [1, 7])
def test_few_rows_are_shared_among_programs_whatever_their_length(rows: int, length: int) -> None:
    """A loss of half a million elements is no work for one program: none has more than two tiles
    while others have none."""
    found = compiled_graph(OfOne(lambda x: x.square().sum(1)), (torch.empty(rows, length),))
    (step,) = found.partition.steps
    assert isinstance(step, Region)
    first = region_schedules(step, found.symbols, lambda _: None)[0]
    assert first.form == "split"
    tiles = -(-length // first.block_cols)
    assert first.chunks <= 2 * tiles
    assert rows * first.chunks >= 512 or tiles < 2 * first.chunks


@pytest.mark.parametrize("kind", [nn.Softmax, nn.LayerNorm])
def test_a_number_known_when_compiling_is_plain_arithmetic(kind: type[nn.Module]) -> None:
    """Under triton 3.6 what a function makes of a constexpr is one inside another, from which no
    loop variable can be taken: no backward sweep over a row in chunks compiled."""
    module = nn.Softmax(-1) if kind is nn.Softmax else nn.LayerNorm(1 << 20)
    text = _text(module, 1 << 20, Schedule("split", 4096, 1, 16, chunks=64))
    named = [item for item in ast.walk(ast.parse(text)) if isinstance(item, ast.AnnAssign)]
    assert any(ast.unparse(item.target) == "chunk_size" for item in named)
    for item in named:
        assert not any(isinstance(part, ast.Call) for part in ast.walk(item)), ast.unparse(item)
