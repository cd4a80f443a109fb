"""Kernels in a model run, agree with fp64 and are timed in all forms on a real GPU."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
import torch
from torch import nn

from agentkernel.swap.end_to_end import Oracle, check_end_to_end
from agentkernel.swap.selection import best_form, time_forms
from agentkernel.swap.swap import apply, counts
from agentkernel.tools.profiler.rounds import Pace
from tests.swap.applied_kernels import TRITON, block, example, norm_kernel

pytestmark = pytest.mark.gpu
KERNELS = {"norm": norm_kernel(TRITON), "last": norm_kernel(TRITON)}


class Call:
    def __init__(self, x: torch.Tensor) -> None:
        self.args = (x,)
        self.kwargs: Mapping[str, object] = {}


class Source:
    def build(self, device: str = "cpu") -> nn.Module:
        return block().to(device)

    def make_call(self, device: str = "cpu", seed: int = 0) -> Call:
        return Call(example(seed).to(device))


@pytest.mark.parametrize("form", ["regions", "regions+torch.compile"])
def test_the_whole_is_right(form: str) -> None:
    found = check_end_to_end(Oracle(Source(), "cuda"), KERNELS, form=form)  # type: ignore[arg-type]
    assert found.accepted, found.reason


def test_all_forms_have_times() -> None:
    found = time_forms(Source(), KERNELS, device="cuda", pace=Pace(seconds=1.0))
    assert len(found.timings) == 4, found.failed
    assert best_form(found) in found.timings


def test_a_model_that_moves_takes_its_kernels_along() -> None:
    torch.set_float32_matmul_precision("highest")  # trainers in the same process allow TF32
    model, x = block(), example()
    apply(model, KERNELS)
    want = model(x)
    assert counts(model)["norm"].reasons == {"device": 1}
    assert torch.allclose(model.cuda()(x.cuda()).cpu(), want, atol=1e-5)
    assert counts(model)["norm"].kernel == 1
    with pytest.raises(RuntimeError):
        model(x)
    assert counts(model)["norm"].kernel == 1
