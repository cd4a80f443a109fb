"""Other sizes than the declared ones at which a kernel stands for its module.

The certificate says for which sizes the verified graph is the same, and the judge asked the kernel
at some of them; the module at hand must have that graph for all of them. Sizes of 0, and those at
which a tensor has more elements than 32 bits count, are the original's: no judge was there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import sympy
import torch

from agentkernel.compiler.drop_in.envelope import SizeTest, size_test
from agentkernel.tools.problem.module_graph import (
    assumptions,
    free_signature,
    holds_for_one,
    naming,
    size_names,
)

if TYPE_CHECKING:
    from torch import nn

    from agentkernel.domain.certificate import ModuleGraph
    from agentkernel.domain.region import Kernel
    from agentkernel.tools.problem.capture import Captured
    from agentkernel.tools.problem.graph_identity import SignedModule

MOST_ELEMENTS = 2**31 - 1
MOST_KNOWN = 4096
"""Sets of sizes that are kept with what was found of them."""


@dataclass(frozen=True)
class FreeForms:
    """`dims`: an input each, its dimensions' names in the graph, "" where a size is fixed.
    `declared` are the sizes by name, `tests` hold of others; `ones` may be 1, one at a time."""

    dims: tuple[tuple[str, ...], ...]
    declared: Mapping[str, int]
    tests: tuple[SizeTest, ...]
    ones: frozenset[str]
    known: dict[tuple[int, ...], bool] = field(default_factory=dict, compare=False)

    def admits(self, sizes: Mapping[str, int]) -> bool:
        """Whether the kernel stands for the module at these values of all names."""
        key = tuple(sizes[name] for name in self.declared)
        if key not in self.known:
            if len(self.known) >= MOST_KNOWN:
                self.known.clear()
            self.known[key] = self._admits(sizes)
        return self.known[key]

    def _admits(self, sizes: Mapping[str, int]) -> bool:
        if sizes == self.declared:
            return True
        one = [name for name, size in sizes.items() if size == 1 != self.declared[name]]
        if min(sizes.values()) < 1 or len(one) > 1 or not self.ones.issuperset(one):
            return False
        return all(test(sizes) for test in self.tests)


def free_forms(
    kernel: Kernel, verified: ModuleGraph | None, signed: SignedModule, module: nn.Module
) -> FreeForms | None:
    """The other sizes at which `kernel` stands for `module`, whose graph is `signed`; None where
    the certificate or the judge knows none, or the module's graph for other sizes is another."""
    if verified is None or verified.free is None or not judged_sizes(kernel):
        return None
    captured = signed.graph
    if free_signature(captured, module) != verified.free.signature:
        return None
    names = size_names(captured)
    declared = {names[item.symbol]: item.size for item in captured.free_dims}
    dims, tests = _dims(captured), _tests(captured, declared)
    if dims is None or not all(test(declared) for test in tests):
        return None
    ones = frozenset(
        name
        for symbol, name in names.items()
        if name in verified.free.ones and holds_for_one(signed.loaded, captured, module, symbol)
    )
    return FreeForms(dims, declared, tests, ones)


def judged_sizes(kernel: Kernel) -> bool:
    """Whether the judge asked the kernel at other sizes than the declared ones."""
    verdict = kernel.certificate.verdict
    if verdict is None or verdict.declared_sizes:
        return False
    return len({case.shapes for case in verdict.cases}) > 1


def _dims(captured: Captured) -> tuple[tuple[str, ...], ...] | None:
    """`FreeForms.dims`; None where a size of an input is neither fixed nor a name."""
    names, named = size_names(captured), naming(captured)
    values = {node.name: node.meta.get("val") for node in captured.graph.graph.nodes}
    free = {(item.input_index, item.dim): names[item.symbol] for item in captured.free_dims}
    found = []
    for index, placeholder in enumerate(captured.user_inputs):
        value = values.get(placeholder)
        shape: Sequence[object] = value.shape if isinstance(value, torch.Tensor) else ()
        own = [free.get((index, dim), "") for dim in range(len(shape))]
        for name, size in zip(own, shape, strict=True):
            if not name and getattr(named(size), "free_symbols", None):
                return None
        found.append(tuple(own))
    return tuple(found)


def _tests(captured: Captured, declared: Mapping[str, int]) -> tuple[SizeTest, ...]:
    """What tracing took for granted, and that no tensor of the graph has too many elements."""
    named, found = naming(captured), [*assumptions(captured)]
    for node in captured.graph.graph.nodes:
        value = node.meta.get("val")
        if isinstance(value, torch.Tensor) and isinstance(value.numel(), torch.SymInt):
            found.append(sympy.Le(named(value.numel()), MOST_ELEMENTS))
    wanted = (item for item in dict.fromkeys(found) if item != sympy.true)
    return tuple(size_test(item, tuple(declared)) for item in wanted)
