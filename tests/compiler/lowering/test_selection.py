"""The few largest or smallest elements of a row are those that eager picks."""

from __future__ import annotations

import pytest
import torch
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st

from tests.compiler.families import functional
from tests.compiler.forms import written
from tests.compiler.lowering.cases import FLOATS, FORMS, no_library_call
from tests.compiler.sandboxed_drop_in import Sandboxed

LENGTHS = (3, 5, 8, 13, 33, 65, 127)


@pytest.mark.quick(1)
@pytest.mark.parametrize("largest", [True, False])
def test_it_is_a_kernel_of_our_own(largest: bool) -> None:
    assert no_library_call(lambda x: torch.topk(x, 2, largest=largest), "a b")
    assert not no_library_call(lambda x: torch.topk(x, 9, largest=largest)[0] * 2.0, "a 2*b")


@settings(
    max_examples=12,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
)
@example(3, 5, 3, -1, False, torch.float32, "single", "numbers that are none", 7)
@example(3, 33, 2, 0, True, torch.float16, "looped", "few values", 7)
@given(
    rows=st.sampled_from((1, 3, 5, 9)),
    length=st.sampled_from(LENGTHS),
    k=st.integers(1, 3),
    dim=st.sampled_from((0, -1)),
    largest=st.booleans(),
    dtype=FLOATS,
    form=FORMS,
    kind=st.sampled_from(("normal", "few values", "infinite", "numbers that are none")),
    seed=st.integers(0, 1 << 20),
)
def test_values_are_eagers_and_stand_at_their_places(
    box: Sandboxed, rows: int, length: int, k: int, dim: int, largest: bool, dtype: torch.dtype,
    form: str, kind: str, seed: int,
) -> None:  # fmt: skip
    torch.manual_seed(seed)
    x = torch.randn(rows, length).to(dtype)
    if kind == "few values":
        x = x.round()
    some = torch.rand(rows, length) < 0.7
    if kind != "normal" and kind != "few values":
        x[some] = torch.inf if not largest else -torch.inf
    if kind == "numbers that are none":
        x[torch.rand(rows, length) < 0.5] = torch.nan
    x = x.movedim(-1, dim).contiguous()
    module = functional(lambda x: torch.topk(x, k, dim, largest))
    values, places = box.call(written(module, (x,), form), module, (x,))
    wanted = torch.topk(x, k, dim, largest).values
    assert torch.equal(values.nan_to_num(1e4), wanted.nan_to_num(1e4))
    assert torch.equal(x.gather(dim, places).nan_to_num(1e4), wanted.nan_to_num(1e4))
    ordered = places.sort(dim).values
    assert not (ordered.diff(dim=dim) == 0).any(), "no element twice"
