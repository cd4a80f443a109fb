"""Sizes at the ends of what a file may have been written for: none, past its tiles and numbers."""

from __future__ import annotations

import ast
import dataclasses
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from agentkernel.tools.judge.cases.cases import Case
from agentkernel.tools.judge.cases.shapes import (
    CaseShape,
    past_tile,
    with_empty_size,
    with_many_elements,
)
from agentkernel.tools.judge.policy.kernel_text import large_numbers, largest_tile

if TYPE_CHECKING:
    from agentkernel.tools.problem.capture import Captured

LARGEST_NUMBER, LARGEST_FILLED = 1 << 19, 1 << 21
"""Up to so large a number of a file a tensor of more elements is asked, and of so many at most."""


def end_cases(
    small: Case,
    asked: Sequence[CaseShape],
    captured: Captured,
    tree: ast.Module,
    limit: int,
    rows: int | None = None,
) -> list[Case]:
    """`small` with sizes of zero; with one past the largest tile of the file `tree`, of at most
    `limit` elements, where none is `asked`; and with a tensor of more elements than the largest of
    the file's numbers that none of those `asked` has, in at most `rows` rows (where programs run
    one after the other, thousands take minutes): offsets may be cut to fewer bits."""
    inputs = small.shape.inputs
    tile = largest_tile(tree)
    longer = past_tile(inputs, captured, limit, tile, asked) if tile else None
    most = max((math.prod(x.shape) for shape in asked for x in shape.inputs.tensors), default=0)
    numbers = large_numbers(tree, most, LARGEST_NUMBER)
    full = (
        with_many_elements(inputs, captured, numbers[-1] + 1, LARGEST_FILLED, rows)
        if numbers
        else None
    )
    found = [*with_empty_size(inputs, captured), longer, full]
    return [dataclasses.replace(small, shape=shape) for shape in found if shape is not None]
