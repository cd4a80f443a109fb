"""Kernels reach past 2**31 elements: their IR is read, for no interpreted size does."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
import torch
from torch import nn

from agentkernel.compiler.emit import Schedule
from tests.compiler.emitted_ttir import ttir_of
from tests.compiler.families import OfOne
from tests.compiler.forms import compiled_graph, written

NARROW = re.compile(r"arith\.muli .*: tensor<.*xi32>")
"""A product of indices, which a column's offset is, in 32 bits."""
FUNCTIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "columns": lambda x: x.sum(0),
    "turned": lambda x: (x.t() + 1.0).contiguous(),
    "largest of columns": lambda x: torch.softmax(x, 0),
}


def kernels(function: Callable[[torch.Tensor], torch.Tensor], form: str, *shape: int) -> list[str]:
    """The IR of what is drafted for an input of this shape, which takes no memory."""
    x = torch.empty(shape, device="meta")
    return ttir_of(written(OfOne(function), (x,), form), (x,))


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    ("name", "form"), [("columns", "looped"), ("turned", "single"), ("largest of columns", "split")]
)
def test_offsets_of_columns_are_wide(name: str, form: str) -> None:
    for code in kernels(FUNCTIONS[name], form, 1 << 17, 1 << 15):
        assert not NARROW.search(code), code
        assert "xi64>" in code


def test_a_chunk_of_a_row_past_32_bits_starts_in_64() -> None:
    x = torch.empty(2, 1 << 33, device="meta")
    compiled = compiled_graph(OfOne(lambda x: x.sum(1)), (x,))
    schedule = {step: Schedule("split", 1024, chunks=8) for step in compiled.partition.steps}
    first, *_ = ttir_of(compiled.write(schedule).text, (x,))
    starts = [line for line in first.splitlines() if re.search(r"arith\.muli %chunk", line)]
    assert starts
    assert all("i64" in line for line in starts), first


class Fixed(nn.Module):
    """Sizes that a weight fixes."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(64, 128, device="meta"))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x * self.weight).sum(1)


def test_what_cannot_be_far_stays_in_32_bits() -> None:
    x = torch.empty(4, 64, 128, device="meta")
    assert "col.to(tl.int64)" not in written(Fixed(), (x,), "looped")
