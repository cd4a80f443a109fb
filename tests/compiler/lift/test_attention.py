"""Attention stays one call in what TorchInductor is given, on a machine without a GPU too."""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from agentkernel.compiler.lift.attention import whole_attention

FUSED = torch.ops.agentkernel.attention.default


def calls_of(shapes: list[tuple[int, ...]], **options: object) -> list[object]:
    """The operators of a call on tensors of a GPU that need not be there; all shapes come out."""
    with FakeTensorMode(allow_non_fake_inputs=True):
        given = [torch.empty(shape, device="cuda", dtype=torch.float16) for shape in shapes]
        traced = make_fx(lambda *x: whole_attention(*x, **options))(*given)
        (result,) = traced.graph.output_node().args
        assert result.meta["val"].shape == (*shapes[0][:-1], shapes[2][-1])
    return [node.target for node in traced.graph.nodes if node.op == "call_function"]


@pytest.mark.parametrize("batch", [(), (2,)])
@pytest.mark.parametrize("mask", [(), ((5, 7),), ((4, 5, 7),)])
def test_it_is_one_call(batch: tuple[int, ...], mask: tuple[tuple[int, ...], ...]) -> None:
    shapes = [(*batch, 4, length, 8) for length in (5, 7, 7)]
    called = calls_of([*shapes, *mask], scale=0.5)
    assert called.count(FUSED) == 1
    assert not any("softmax" in str(item) or "mm" in str(item) for item in called)


def test_groups_share_their_keys() -> None:
    called = calls_of([(1, 4, 5, 8), (1, 2, 5, 8), (1, 2, 5, 8)], enable_gqa=True, is_causal=True)
    assert called == [FUSED]


def test_more_batch_dimensions_are_one() -> None:
    called = calls_of([(2, 3, 4, 5, 8)] * 3)
    assert called.count(FUSED) == 1
    with pytest.raises(NotImplementedError, match="broadcast"):
        calls_of([(2, 3, 4, 5, 8), (1, 3, 4, 5, 8), (2, 3, 4, 5, 8)])


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_result_lies_as_the_kernels_of_a_gpu_lay_it_out(dtype: torch.dtype, inside: bool) -> None:
    """Those for 16 bits as the queries lie, that for fp32 with the heads inside."""
    with FakeTensorMode(allow_non_fake_inputs=True):
        q = torch.empty((2, 5, 4, 8) if inside else (2, 4, 5, 8), device="cuda", dtype=dtype)
        q = q.transpose(1, 2) if inside else q
        traced = make_fx(lambda x: whole_attention(x, x, x))(q)
        (result,) = traced.graph.output_node().args
    heads_inside = inside or dtype == torch.float32
    assert result.meta["val"].stride() == ((160, 8, 32, 1) if heads_inside else (160, 40, 8, 1))


def test_dropout_is_refused() -> None:
    x = torch.randn(1, 1, 2, 2)
    with pytest.raises(NotImplementedError, match="random"):
        whole_attention(x, x, x, None, 0.1)
