import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from agentkernel.compiler.lift.inductor_codegen import written_out_attention


@settings(max_examples=40, deadline=None)
@given(
    length=st.integers(1, 9), keys=st.integers(1, 9), width=st.integers(1, 8),
    mask=st.sampled_from(("none", "causal", "bool", "float")), scaled=st.booleans(),
    seed=st.integers(0, 99),
)  # fmt: skip
def test_it_is_what_torch_computes(
    length: int, keys: int, width: int, mask: str, scaled: bool, seed: int
) -> None:
    torch.manual_seed(seed)
    q = torch.randn(2, 3, length, width, dtype=torch.float64)
    k, v = (torch.randn(2, 3, keys, width, dtype=torch.float64) for _ in range(2))
    given_mask = {
        "bool": torch.rand(length, keys) > 0.5,
        "float": torch.randn(length, keys, dtype=torch.float64),
    }.get(mask)
    options = {"attn_mask": given_mask, "is_causal": mask == "causal"}
    options |= {"scale": 0.3} if scaled else {}
    found = written_out_attention(q, k, v, **options)
    assert torch.allclose(found, F.scaled_dot_product_attention(q, k, v, **options), atol=1e-12)


def test_groups_share_their_keys() -> None:
    q, k, v = torch.randn(1, 4, 5, 8), torch.randn(1, 2, 5, 8), torch.randn(1, 2, 5, 8)
    theirs = F.scaled_dot_product_attention(q, k, v, enable_gqa=True)
    assert torch.allclose(written_out_attention(q, k, v, enable_gqa=True), theirs, atol=1e-5)


def test_dropout_is_refused() -> None:
    x = torch.randn(1, 1, 2, 2)
    with pytest.raises(NotImplementedError, match="random"):
        written_out_attention(x, x, x, None, 0.1)
