"""Products of vectors, of broadcast batches and by einsum are products or sums."""

from __future__ import annotations

import pytest
import torch
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from tests.compiler.lowering.cases import FLOATS, FORMS, SIZES, Call, check_case, no_library_call
from tests.compiler.sandboxed_drop_in import Sandboxed

CALLS: dict[str, tuple[Call, str]] = {
    "matrix by vector": (lambda x, y: x @ y, "a b c,c"),
    "vector by matrix": (lambda x, y: x @ y, "c,c b"),
    "vectors": (lambda x, y: torch.dot(x, y), "b,b"),
    "added": (lambda x, y, z: torch.addmv(z, x, y, alpha=0.5), "a b,b,a"),
    "left batch": (lambda x, y: x @ y, "a c,3 c b"),
    "both batches": (lambda x, y: x @ y, "2 1 a c,3 c b"),
    "batches": (lambda x, y, z: torch.baddbmm(z, x, y, beta=0), "2 a c,2 c b,2 a b"),
    "einsum": (lambda x, y: torch.einsum("bhid,bhjd->bhij", x, y), "1 2 a c,1 2 b c"),
    "last letter": (lambda x, y: torch.einsum("bijl,lk->bikj", x, y), "1 2 a c,c b"),
    "outer": (lambda x, y: torch.einsum("bi,bj->bij", x, y), "2 a,2 b"),
    "rows": (lambda x, y: torch.einsum("bid,bd->bi", x, y), "2 a c,2 c"),
    "distances": (lambda x, y: torch.cdist(x.float(), y.float(), p=1.0), "2 a c,2 b c"),
    "bilinear, few results": (lambda x, y, w, z: F.bilinear(x, y, w, z), "a b,a c,2 b c,2"),
    "bilinear, many": (lambda x, y, w, z: F.bilinear(x, y, w, z), "2 a b,2 a c,40 b c,40"),
    "bilinear, no bias": (lambda x, y, w: F.bilinear(x, y, w) * 2.0, "a b,a c,c b c"),
    "euclidean": (lambda x, y: torch.cdist(x.float(), y.float()), "2 a c,2 b c"),
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
@example("bilinear, few results", (9, 33, 17), torch.float16, "single")
@example("bilinear, many", (5, 3, 7), torch.float32, "single")
@given(name=st.sampled_from(sorted(CALLS)), sizes=SIZES, dtype=FLOATS, form=FORMS)
def test_it_computes_what_eager_does(
    box: Sandboxed, name: str, sizes: tuple[int, int, int], dtype: torch.dtype, form: str
) -> None:
    check_case(box, CALLS[name], sizes, dtype, form)
