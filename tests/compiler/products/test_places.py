"""Epilogues that read and store otherwise than the product lies."""

from __future__ import annotations

import pytest
import torch
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from torch import nn

from agentkernel.compiler.partitions import partitions
from agentkernel.compiler.pipeline import Compiled
from agentkernel.compiler.products.step import ProductStep
from agentkernel.tools.problem.capture import capture
from agentkernel.tools.problem.loading import problem_from_module
from tests.compiler.forms import TILE
from tests.compiler.sandboxed_drop_in import Sandboxed

FORMS = ("positions", "heads", "both", "weights of heads")


class Heads(nn.Module):
    """A projection with a table that each sequence begins anew, or heads stored one by one."""

    def __init__(self, form: str, heads: int = 3, head: int = 16) -> None:
        super().__init__()
        self.form, self.head = form, head
        self.layer = nn.Linear(24, heads * head)
        self.gain = nn.Parameter(torch.rand(heads, 1, 1) + 0.5)

    def forward(self, x: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
        y = self.layer(x)
        if self.form in ("positions", "both"):
            y = y + table
        if self.form == "positions":
            return y
        y = y.unflatten(-1, (-1, self.head)).transpose(-2, -3)
        scaled = y * self.gain if self.form == "weights of heads" else torch.relu(y)
        return scaled.contiguous()


def fused(module: Heads, *given_tensors: torch.Tensor) -> tuple[Compiled, ProductStep]:
    loaded = problem_from_module(module.eval(), given_tensors)
    found = partitions(loaded, capture(loaded), "triton")[0]
    (step,) = found.partition.steps
    assert isinstance(step, ProductStep)
    return found, step


def inputs(module: Heads, batch: int, tokens: int) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(batch, tokens, 24), torch.randn(tokens, module.layer.out_features)


@settings(
    max_examples=8,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
)
@given(
    form=st.sampled_from(FORMS), heads=st.integers(1, 4), head=st.sampled_from((16, 17, 24, 32)),
    batch=st.integers(2, 4), tokens=st.integers(2, 23),
    more=st.sampled_from(({}, {"SPLIT_K": 2}, {"PERSIST": 3, "DESCRIPTORS": 2})),
)  # fmt: skip
def test_places_are_those_of_eager(
    box: Sandboxed, form: str, heads: int, head: int, batch: int, tokens: int, more: dict[str, int]
) -> None:
    torch.manual_seed(0)
    module = Heads(form, heads, head)
    given_tensors = inputs(module, batch, tokens)
    found, step = fused(module, *given_tensors)
    box.check(found.write({step: TILE | more}).text, module, given_tensors)


def test_tma_stores_what_lies_as_the_product_does_alone() -> None:
    for form, stored in (("positions", True), ("heads", False)):
        module = Heads(form)
        found, step = fused(module, *inputs(module, 2, 9))
        text = found.write({step: TILE | {"PERSIST": 3, "DESCRIPTORS": 2}}).text
        assert ("out_box.store" in text) == stored


class Turned(Heads):
    """Neighbours in a row would be stored far from each other."""

    def forward(self, x: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.layer(x)).transpose(-1, -2).contiguous()


@pytest.mark.parametrize("module", [Turned("heads"), Heads("heads", 6, 8)], ids=["turned", "thin"])
def test_a_scattered_store_is_a_kernel_of_its_own(module: Heads) -> None:
    loaded = problem_from_module(module.eval(), inputs(module, 2, 9))
    steps = partitions(loaded, capture(loaded), "triton")[0].partition.steps
    assert len(steps) == 2
