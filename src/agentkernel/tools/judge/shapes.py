"""On which shapes is a candidate tried? The problem's own, scaled where needed, and odd ones."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agentkernel.domain.problem import ShapeSet, TensorSpec

if TYPE_CHECKING:
    from agentkernel.tools.capture import Captured, FreeDim

LADDER = (257, 127, 65, 33, 17, 7, 3, 1)
ODD_SETS = ((33, 127, 65, 17), (257, 3, 129, 5), (1, 37, 3, 129), (7, 65, 33, 3), (3, 17, 5, 33))
ODD_COUNT = 3
SMALL = (3, 5, 2, 4, 1)
FACTORS = (1, 2, 4, 8)
"""An odd size that the graph refuses is tried doubled: even, and still off every tile."""


@dataclass(frozen=True)
class CaseShape:
    """One set of inputs with where it comes from: "declared", "scaled" or "odd"."""

    inputs: ShapeSet
    origin: str
    index: int

    @property
    def label(self) -> str:
        """For people."""
        return self.inputs.label

    @property
    def elements(self) -> int:
        """Elements of all tensor inputs together."""
        return count_elements(self.inputs)


def count_elements(inputs: ShapeSet) -> int:
    """Elements of all tensors of `inputs`."""
    return sum(math.prod(spec.shape) for spec in inputs.tensors)


def scaled(inputs: ShapeSet, captured: Captured, limit: int, index: int = 0) -> CaseShape:
    """`inputs` with its largest free sizes halved until at most `limit` elements are left.

    Of the sizes on the way that the captured graph holds for, the smallest ones; where it holds for
    none, the reference decides.
    """
    free = captured.free_dims
    sizes = {item.symbol: _size(inputs, item) for item in free}
    small = inputs
    while count_elements(replace_sizes(inputs, free, sizes)) > limit:
        symbol = max(sizes, key=lambda name: sizes[name], default=None)
        if symbol is None or sizes[symbol] <= 2:
            break
        sizes[symbol] = max(2, sizes[symbol] // 2)
        if captured.admits(sizes):
            small = replace_sizes(inputs, free, sizes)
    if count_elements(small) > limit:
        small = replace_sizes(inputs, free, sizes)
    return CaseShape(small, "declared" if small == inputs else "scaled", index)


def odd_shapes(
    inputs: ShapeSet, captured: Captured, limit: int, larger: int | None = None
) -> tuple[CaseShape, ...]:
    """Up to three sets off every tile size that the captured graph holds for, at most `limit`
    elements each where that can be had; then one past a declared size, and one past the declared
    number of elements, of at most `larger`."""
    free = captured.free_dims
    symbols = list(dict.fromkeys(item.symbol for item in free))
    found: list[CaseShape] = []
    for pattern in ODD_SETS if symbols else ():
        sizes = {name: pattern[i % len(pattern)] for i, name in enumerate(symbols)}
        while count_elements(replace_sizes(inputs, free, sizes)) > limit:
            largest = max(sizes, key=lambda name: sizes[name])
            if sizes[largest] == 1:
                break
            sizes[largest] = next(size for size in LADDER if size < sizes[largest])
        admitted = _admitted(sizes, captured)
        if admitted is None:
            continue
        candidate = CaseShape(replace_sizes(inputs, free, admitted), "odd", 0)
        if candidate.inputs not in [item.inputs for item in found]:
            found.append(candidate)
    past = (beyond(inputs, captured, larger or limit), fuller(inputs, captured, larger or limit))
    return (*found[:ODD_COUNT], *dict.fromkeys(item for item in past if item is not None))


def beyond(inputs: ShapeSet, captured: Captured, limit: int) -> CaseShape | None:
    """A set in which one free size is past the declared one, the others small: a launch grid or a
    tile count taken from the declared sizes shows. None where that takes more than `limit`."""
    free = captured.free_dims
    declared = {item.symbol: _size(inputs, item) for item in free}
    for name in sorted(declared, key=lambda key: declared[key]):
        for others in SMALL:
            for more in FACTORS:
                sizes = dict.fromkeys(declared, others) | {name: declared[name] + more}
                larger = replace_sizes(inputs, free, sizes)
                if count_elements(larger) <= limit and captured.admits(sizes):
                    return CaseShape(larger, "odd", 0)
    return None


def fuller(inputs: ShapeSet, captured: Captured, limit: int) -> CaseShape | None:
    """The declared set with one free size a little larger: a launch grid for the declared number of
    elements shows. None where that takes more than `limit`."""
    free = captured.free_dims
    declared = {item.symbol: _size(inputs, item) for item in free}
    for name in sorted(declared, key=lambda key: -declared[key]):
        for more in FACTORS:
            sizes = declared | {name: declared[name] + more}
            larger = replace_sizes(inputs, free, sizes)
            if count_elements(larger) <= limit and captured.admits(sizes):
                return CaseShape(larger, "odd", 0)
    return None


def _admitted(sizes: Mapping[str, int], captured: Captured) -> dict[str, int] | None:
    """`sizes` times the least factor with which the graph holds for them."""
    for factor in FACTORS:
        raised = {name: factor * size for name, size in sizes.items()}
        if captured.admits(raised):
            return raised
    return None


def replace_sizes(inputs: ShapeSet, free: Sequence[FreeDim], sizes: Mapping[str, int]) -> ShapeSet:
    """`inputs` with every free dimension set to its symbol's size."""
    shapes = {
        i: list(spec.shape) for i, spec in enumerate(inputs.inputs) if isinstance(spec, TensorSpec)
    }
    for item in free:
        shapes[item.input_index][item.dim] = sizes[item.symbol]
    return ShapeSet(
        inputs=tuple(
            spec.model_copy(update={"shape": tuple(shapes[i])})
            if isinstance(spec, TensorSpec)
            else spec
            for i, spec in enumerate(inputs.inputs)
        )
    )


def _size(inputs: ShapeSet, item: FreeDim) -> int:
    spec = inputs.inputs[item.input_index]
    return spec.shape[item.dim] if isinstance(spec, TensorSpec) else 1
