"""Do kernels reach past 2**31 elements? The interpreter's sizes never do, so their IR is read."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
import torch
from torch import nn

from agentkernel.agents.compiler_coder import partitions
from agentkernel.compiler.emit import Schedule
from agentkernel.tools.problem.capture import capture
from agentkernel.tools.problem.loading import problem_from_module
from tests.compiler.emitted_ttir import ttir_of
from tests.compiler.forms import small

NARROW = re.compile(r"arith\.muli .*: tensor<.*xi32>")
"""A product of indices, which a column's offset is, in 32 bits."""
FUNCTIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "columns": lambda x: x.sum(0),
    "turned": lambda x: (x.t() + 1.0).contiguous(),
    "largest of columns": lambda x: torch.softmax(x, 0),
}


class Only(nn.Module):
    def __init__(self, function: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(x)


def kernels(function: Callable[[torch.Tensor], torch.Tensor], form: str, *shape: int) -> list[str]:
    """The IR of what is drafted for an input of this shape, which takes no memory."""
    x = torch.empty(shape, device="meta")
    loaded = problem_from_module(Only(function), (x,))
    compiled = partitions(loaded, capture(loaded), "mixed")[0]
    return ttir_of(compiled.write(small(compiled, form)).text, (x,))


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
    loaded = problem_from_module(Only(lambda x: x.sum(1)), (x,))
    compiled = partitions(loaded, capture(loaded), "mixed")[0]
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
    loaded = problem_from_module(Fixed(), (x,))
    compiled = partitions(loaded, capture(loaded), "mixed")[0]
    assert "_col.to(tl.int64)" not in compiled.write(small(compiled, "looped")).text
    assert "col.to(tl.int64)" not in compiled.write(small(compiled, "looped")).text
