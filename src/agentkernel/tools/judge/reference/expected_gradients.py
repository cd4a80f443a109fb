"""Gradients that a reference has, in its own dtype and in fp64, for given gradients of its outputs.

Where infinities and NaN are given, eager's 0 times an infinity is NaN also in a gradient that does
not depend on them; a candidate may have that NaN, or what the gradient is without it.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, cast

import torch
from torch.utils._pytree import tree_leaves

from agentkernel.tools.judge.reference.masked_nan import without_specials, without_unused_nan
from agentkernel.tools.judge.reference.oracle import as_float64, value_as_float64
from agentkernel.tools.judge.worker.gradients import (
    BackwardPass,
    Round,
    gradients,
    record_forward,
)

if TYPE_CHECKING:
    from torch import nn

    from agentkernel.tools.judge.reference.oracle_inputs import ReferenceCase

Gradients = Mapping[str, "torch.Tensor"]
Ends = Sequence["torch.Tensor | None"]


class ExpectedGradients(NamedTuple):
    """Gradients of the reference in each round, in its own dtype and in fp64; `finite`: eager's
    where infinities and NaN were given, with finite values in their place."""

    eager: Mapping[Round, Gradients]
    exact: Mapping[Round, Gradients]
    finite: Gradients


def expected_gradients(
    reference_case: ReferenceCase,
    rounds: Mapping[Round, Ends],
    way: BackwardPass,
    elementwise: bool,
) -> ExpectedGradients:
    """What the reference has. NaN that infinities make of 0 in gradients that do not depend on them
    are left out of the fp64 ones, as they are of outputs (of an `elementwise` module none are)."""
    own = _Backward(reference_case.model, reference_case.inputs, way)
    double = _Backward(
        as_float64(reference_case.model),
        [value_as_float64(item) for item in reference_case.inputs],
        way,
    )
    wide = {name: [x if x is None else x.double() for x in ends] for name, ends in rounds.items()}
    eager, exact = own.gradients(rounds), double.gradients(wide)
    finite: Gradients = {}
    if "infinite" in rounds and not elementwise:
        names = [name for name in exact["infinite"] if name in eager["infinite"]]

        def run(ends: Sequence[object]) -> list[object]:
            found = double.once(cast("Ends", ends))
            return [found[name] for name in names]

        values: list[object] = [exact["infinite"][name] for name in names]
        leaves = [eager["infinite"][name] for name in names]
        try:
            values = without_unused_nan(values, leaves, wide["infinite"], run)
            finite = own.once(cast("Ends", without_specials(rounds["infinite"])))
        except torch.OutOfMemoryError:
            # Then eager's own NaN are asked for, as they stand.
            torch.cuda.empty_cache()
            return ExpectedGradients(eager, exact, {})
        exact["infinite"] = dict(zip(names, cast("list[torch.Tensor]", values), strict=True))
    return ExpectedGradients(eager, exact, finite)


class _Backward:
    """One call of a copy of `model`, differentiated as often as wanted."""

    def __init__(self, model: nn.Module, inputs: Sequence[object], way: BackwardPass) -> None:
        own = copy.deepcopy(model).train(way.training)
        self._recorded = record_forward(own, dict(own.named_parameters()), inputs, way.wanted)
        self._leaves = tree_leaves(self._recorded.result)
        self._way = way

    def once(self, ends: Ends) -> Gradients:
        """The gradients for `ends`."""
        return gradients(self._recorded, self._leaves, ends, self._way.twice, last=False)

    def gradients(self, rounds: Mapping[Round, Ends]) -> dict[Round, Gradients]:
        """Those of each round, with those once inputs were changed, which are the first ones."""
        found = {name: self.once(ends) for name, ends in rounds.items()}
        if "changed" in self._way.rounds:
            found["changed"] = found[self._way.rounds[0]]
        return found
