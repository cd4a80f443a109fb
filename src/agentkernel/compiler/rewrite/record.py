"""What did a rewrite do: which steps, why each holds, and what was saved?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch.fx import Node

    from agentkernel.compiler.rewrite.draft import Draft
    from agentkernel.tools.problem.capture import Captured

FLOPS_PER_BYTE = 12
"""Operations that take as long as moving a byte: 51 TFLOP/s (fp32 cuBLAS) over a copy of 4.3 TB/s,
both measured on an H200."""


@dataclass(frozen=True)
class Cost:
    """What a graph does if each op is one launch: operations, and bytes read and written."""

    flops: int
    bytes_moved: int

    @property
    def units(self) -> float:
        """One figure to compare by: bytes, with operations at their worth in bytes."""
        return self.bytes_moved + self.flops / FLOPS_PER_BYTE


@dataclass(frozen=True)
class Step:
    """One application of a rule: `removed` nodes gave way to `added` ones."""

    rule: str
    derivation: str
    removed: tuple[str, ...]
    added: tuple[str, ...]
    before: Cost
    after: Cost


@dataclass(frozen=True)
class Rewritten:
    """A graph with the same inputs and outputs, and the steps that led to it, in order.

    `degenerate` lists positions in `captured.outputs` whose value is the same for every finite
    input. `complete` is False where the bound on the steps ended the search.
    """

    captured: Captured
    steps: tuple[Step, ...]
    degenerate: tuple[int, ...]
    before: Cost
    after: Cost
    complete: bool = True


@dataclass(frozen=True)
class Change:
    """What a rule proposes: each old node's value from now on, and the line that says why."""

    derivation: str
    replaced: dict[Node, Node]


@dataclass(frozen=True)
class Rule:
    """`apply` looks at one node, adds nodes before it and says what they replace, or None.

    `finite_only`: right for finite values alone; infinities may turn up where eager has NaN.
    """

    name: str
    apply: Callable[[Draft, Node], Change | None]
    finite_only: bool = False
