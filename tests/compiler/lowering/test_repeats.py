"""Tensors whose elements repeat are read in place, as eager makes them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from tests.compiler.families import functional
from tests.compiler.forms import written
from tests.compiler.sandboxed_drop_in import Sandboxed

CALLS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "middle": lambda x: x.repeat_interleave(3, 1) * 2.0,
    "last": lambda x: x.repeat_interleave(2, -1).exp(),
    "flat": lambda x: x.repeat_interleave(2) + 1.0,
    "summed": lambda x: x.exp().repeat_interleave(2, 0).sum(-1),
    "normed": lambda x: x.softmax(-1).repeat_interleave(2, 1),
}


@pytest.mark.quick(3)
@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("form", ["looped", "persistent"])
def test_elements_repeat_as_eager_repeats_them(box: Sandboxed, name: str, form: str) -> None:
    module, x = functional(CALLS[name]).eval(), torch.randn(4, 5, 7)
    text = written(module, (x,), form)
    assert "repeat_interleave" not in text.partition("class ModelNew")[2]
    box.check(text, module, (x,))
