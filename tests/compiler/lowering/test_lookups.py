"""Buckets, bags, one-hot vectors and windows hold what eager's hold."""

from __future__ import annotations

import pytest
import torch
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from torch import nn

from agentkernel.compiler.fusion import Region
from tests.compiler.forms import compiled_graph
from tests.compiler.lowering.cases import FLOATS, FORMS, SIZES, Call, check_case, no_library_call
from tests.compiler.sandboxed_drop_in import Sandboxed

F = nn.functional


def steps(x: torch.Tensor) -> torch.Tensor:
    """Rows in order, of the shape of x."""
    return x * 0.0 + torch.arange(x.shape[-1], device=x.device) * 0.3 - 1.0


CALLS: dict[str, tuple[Call, str]] = {
    "buckets": (lambda x, y: torch.searchsorted(steps(y), x), "a b,a c"),
    "right": (lambda x: torch.bucketize(x, x.new_tensor([-1.0, 0.0, 0.5, 1.0]), right=True), "a b"),
    "classes": (lambda x: F.one_hot(x, 33).float(), "ib 2"),
    "summed bags": (lambda x, table: F.embedding_bag(x, table, mode="sum"), "ib c,a 5"),
    "mean bags": (lambda x, table: F.embedding_bag(x, table, mode="mean") * 2.0, "ib c,a 5"),
    "largest bags": (lambda x, table: F.embedding_bag(x, table, mode="max"), "ib c,a 5"),
    "windows": (lambda x: x.exp().unfold(1, 3, 2).mean(-1), "a b+2"),
    "diagonal": (lambda x: x.diagonal(1, 0, 2) * 2.0, "a 3 b"),
    "trace": (lambda x: x.exp().trace(), "a b"),
    "grid": (lambda x, y: torch.stack(torch.meshgrid(x, y, indexing="xy")), "a,b"),
    "pixels": (lambda x: F.pixel_shuffle(x.exp(), 2) * 2.0, "2 4*a b 3"),
    "back": (lambda x: F.pixel_unshuffle(x.exp(), 2) * 2.0, "2 a 2*b 4"),
}  # fmt: skip


@pytest.mark.quick(1)
@pytest.mark.parametrize("name", CALLS)
def test_it_is_a_kernel_of_our_own(name: str) -> None:
    assert no_library_call(*CALLS[name])


@settings(
    max_examples=15,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
)
@given(name=st.sampled_from(sorted(CALLS)), sizes=SIZES, dtype=FLOATS, form=FORMS)
def test_it_computes_what_eager_does(
    box: Sandboxed, name: str, sizes: tuple[int, int, int], dtype: torch.dtype, form: str
) -> None:
    check_case(box, CALLS[name], sizes, dtype, form)


class Searched(nn.Module):
    """The places of some values among sorted bounds, and a softmax beside them."""

    def forward(
        self, x: torch.Tensor, y: torch.Tensor, z: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        return torch.searchsorted(x, y) * 2.0, z.softmax(1)


@pytest.mark.parametrize(
    ("many", "rows", "free"), [(1024, 3, False), (1024, 32768, True), (5, 3, True)]
)
def test_calls_that_take_much_of_the_time_are_spared_by_known_sizes(
    many: int, rows: int, free: bool
) -> None:
    """How many steps a search takes follows from the number of bounds, which is free."""
    bounds, values = torch.randn(19).sort().values, torch.empty(many, 4096)
    found = compiled_graph(Searched(), [bounds, values, torch.empty(rows, 4096)])
    assert bool(found.captured.free_dims) == free
    assert all(isinstance(step, Region) for step in found.partition.steps) != free
