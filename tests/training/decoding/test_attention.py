from __future__ import annotations

from typing import Any

import pytest
import torch

from agentkernel.training.model_shape import make_new
from agentkernel.training.settings import NewModel
from agentkernel.training.sft import setup
from agentkernel.training.sft.examples import make_tokenizer
from agentkernel.training.sft.setup import (
    _half,
    _varlen,
    attend,
    register_attention,
    without_cudnn_attention,
)

TOKENIZER = make_tokenizer(["x = 1\n"], 300)
NEW = NewModel(vocabulary=300, hidden=32, layers=2, heads=2, intermediate=32, window=64)
DOCUMENTS = ([5, 9, 12, 40, 41], [7, 7, 30], [100])


def _packed() -> dict[str, object]:
    lengths = [len(item) for item in DOCUMENTS]
    ends = torch.tensor([0, *torch.tensor(lengths).cumsum(0).tolist()], dtype=torch.int32)
    return {
        "input_ids": torch.tensor([[token for item in DOCUMENTS for token in item]]),
        "position_ids": torch.cat([torch.arange(length) for length in lengths])[None],
        "cu_seq_lens_q": ends,
        "cu_seq_lens_k": ends,
        "max_length_q": max(lengths),
        "max_length_k": max(lengths),
        "use_cache": False,
    }


def test_a_packed_document_is_read_as_if_it_were_alone() -> None:
    model = make_new(NEW, TOKENIZER, seed=0)
    with torch.no_grad():
        alone = [model(torch.tensor([item])).logits[0] for item in DOCUMENTS]
        model.set_attn_implementation(register_attention())
        together = model(**_packed()).logits[0]
    torch.testing.assert_close(together, torch.cat(alone), rtol=1e-5, atol=1e-6)


def test_without_documents_a_row_is_one() -> None:
    query, key, value = torch.randn(3, 1, 2, 6, 8).unbind()
    whole, _ = attend(torch.nn.Identity(), query, key, value, None)
    ends = torch.tensor([0, 6], dtype=torch.int32)
    named, _ = attend(
        torch.nn.Identity(), query, key, value, None, cu_seq_lens_q=ends, max_length_q=6
    )
    assert whole.shape == (1, 6, 2, 8)
    torch.testing.assert_close(whole, named)


def test_fewer_key_heads_than_query_heads() -> None:
    query, (key, value) = torch.randn(1, 4, 6, 8), torch.randn(2, 1, 2, 6, 8).unbind()
    ends = torch.tensor([0, 2, 6], dtype=torch.int32)
    found, _ = attend(torch.nn.Identity(), query, key, value, None, cu_seq_lens_q=ends)
    key, value = (item.repeat_interleave(2, dim=1) for item in (key, value))
    expected, _ = attend(torch.nn.Identity(), query, key, value, None, cu_seq_lens_q=ends)
    torch.testing.assert_close(found, expected)


def test_autocast_says_what_queries_in_fp32_are_computed_in() -> None:
    query = torch.randn(1, 2, 3, 8)
    assert _half(query) is None
    assert _half(query.bfloat16()) is torch.bfloat16
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert _half(query) is torch.bfloat16


@pytest.mark.gpu
def test_a_packed_batch_in_bf16_goes_to_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    model = make_new(NEW, TOKENIZER, seed=0)
    model.to("cuda")  # type: ignore[arg-type]
    packed = {
        name: value.cuda() if isinstance(value, torch.Tensor) else value
        for name, value in _packed().items()
    }
    calls: list[torch.dtype] = []

    def counted(query: torch.Tensor, *others: Any) -> torch.Tensor:
        calls.append(query.dtype)
        return _varlen(query, *others)

    monkeypatch.setattr(setup, "_varlen", counted)
    with torch.no_grad():
        alone = [model(torch.tensor([item]).cuda()).logits[0] for item in DOCUMENTS]
        model.set_attn_implementation(register_attention())
        with torch.autocast("cuda", dtype=torch.bfloat16):
            together = model(**packed).logits[0]
    assert calls == [torch.bfloat16] * NEW.layers
    torch.testing.assert_close(together.float(), torch.cat(alone), rtol=5e-2, atol=5e-2)


@pytest.mark.gpu
@pytest.mark.parametrize("size", [64, 20])
@pytest.mark.parametrize("scaling", [None, 0.3])
def test_the_kernel_for_many_lengths_says_the_same(size: int, scaling: float | None) -> None:
    torch.manual_seed(0)
    query, key, value = (
        torch.randn(1, heads, 48, size, device="cuda", dtype=torch.bfloat16) for heads in (4, 2, 2)
    )
    ends = torch.tensor([0, 5, 17, 48], dtype=torch.int32, device="cuda")
    found = _varlen(query, key, value, ends, 31, scaling)
    exact, _ = attend(
        torch.nn.Identity(),
        query.float(),
        key.float(),
        value.float(),
        None,
        scaling,
        cu_seq_lens_q=ends,
    )
    torch.testing.assert_close(found.float(), exact[0], rtol=3e-2, atol=3e-2)


def test_a_training_asks_every_kernel_but_cudnns_and_leaves_the_choice_as_it_was() -> None:
    before = torch.backends.cuda.cudnn_sdp_enabled()
    with without_cudnn_attention():
        assert not torch.backends.cuda.cudnn_sdp_enabled()
        assert torch.backends.cuda.flash_sdp_enabled()
        assert torch.backends.cuda.mem_efficient_sdp_enabled()
        assert torch.backends.cuda.math_sdp_enabled()
    assert torch.backends.cuda.cudnn_sdp_enabled() == before


@pytest.mark.gpu
def test_rows_that_see_nothing_have_finite_gradients_on_a_gpu() -> None:
    tokens, lead = 704, 64  # of this width modulo 128 cuDNN's backward gives nan
    query, key, value = (
        torch.randn(2, 8, tokens, 64, device="cuda", dtype=torch.bfloat16).requires_grad_()
        for _ in range(3)
    )
    mask = torch.ones(tokens, tokens, dtype=torch.bool, device="cuda").tril()[None, None]
    mask = mask & (torch.arange(tokens, device="cuda") >= lead)
    with without_cudnn_attention():
        found = torch.nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        found[:, :, lead:].sum().backward()
    for item in (query, key, value):
        assert item.grad is not None
        assert item.grad.isfinite().all()
