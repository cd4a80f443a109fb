"""Slices give what the module gives as a whole, along every axis that is proven."""

from __future__ import annotations

from typing import cast

import pytest
import torch
from torch.utils._pytree import tree_leaves

from agentkernel.tools.judge.reference.axis import Axis
from agentkernel.tools.judge.reference.sliced import Sliced, all_slicings
from agentkernel.tools.problem.capture import capture
from agentkernel.tools.problem.loading import problem_from_module
from tests.tools.judge.sliced_modules import MODULES, TARGETS, examples

EVERY_RUN = ("broadcast", "product", "norm of all", "attention", "convolution", "views", "ignored")
NAMES = [
    name if name in EVERY_RUN else pytest.param(name, marks=pytest.mark.slow)
    for name in (*MODULES, *TARGETS)
]


@pytest.mark.quick(3)
@pytest.mark.parametrize("name", NAMES)
def test_slices_are_the_whole(name: str) -> None:
    module, inputs = examples(name)
    loaded = problem_from_module(module, inputs)
    captured = capture(loaded)
    found = list(all_slicings(captured, loaded.problem.shape_sets[0]))
    assert found
    wide = [item.double() if item.is_floating_point() else item for item in inputs]
    with torch.no_grad():
        expected = tree_leaves(module.double()(*wide))
    module.float()
    for slicing in found:
        sliced = Sliced(captured, slicing, module, inputs, units=2)
        whole = sliced.whole()
        for index, axis in enumerate(slicing.outputs):
            if axis is None:
                got = cast("torch.Tensor", whole[index])
            else:
                parts = [sliced.block(*units)[index] for units in sliced.ranges()]
                got = torch.cat(cast("list[torch.Tensor]", parts), dim=cast(Axis, axis).dim)
            torch.testing.assert_close(got, expected[index], rtol=1e-12, atol=1e-12)
