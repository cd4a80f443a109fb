"""Which matrix products take our own GEMM, with which epilogue?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from agentkernel.agents.coders.compiler.gemm import GemmSpec
from agentkernel.agents.coders.compiler.ir import Node
from agentkernel.agents.coders.compiler.kernel import KernelCode
from agentkernel.agents.coders.compiler.region import Region
from agentkernel.agents.coders.compiler.sizes import Symbols


@dataclass(frozen=True, eq=False)
class Anchor:
    """A product of two stored matrices with the pointwise region that follows it, if any."""

    node: Node
    epilogue: Region | None
    result: Node
    returned: bool
    spec: GemmSpec


def emit_anchor(
    anchor: Anchor,
    schedule: dict[str, int],
    name: str,
    buffers: Mapping[Node, str],
    symbols: Symbols,
) -> KernelCode:
    """The product's kernels and launch lines."""
    raise AssertionError(name)
