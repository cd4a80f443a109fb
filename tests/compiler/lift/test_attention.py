"""Attention stays one call in what TorchInductor is given, on a machine without a GPU too."""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from agentkernel.compiler.lift.inductor_codegen import whole_attention

FUSED = torch.ops.aten._scaled_dot_product_efficient_attention.default


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
    assert called.count(FUSED) == 1


def test_dropout_is_refused() -> None:
    x = torch.randn(1, 1, 2, 2)
    with pytest.raises(NotImplementedError, match="random"):
        whole_attention(x, x, x, None, 0.1)
