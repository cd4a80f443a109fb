import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from agentkernel.tools.roofline.op_cost import is_fill, is_free, op_cost, op_name, stored_bytes

aten = torch.ops.aten
SIZE = st.integers(min_value=1, max_value=64)


def cost(op, *args):
    return op_cost(op, args, op(*args), int)


def empty(*shape, dtype=torch.float32):
    return torch.empty(shape, dtype=dtype, device="meta")


@given(SIZE, SIZE, SIZE)
def test_a_product_is_2mnk_and_moves_each_matrix_once(m, n, k):
    found = cost(aten.mm.default, empty(m, k), empty(k, n))
    assert (found.flops, found.bytes_moved) == (2 * m * n * k, 4 * (m * k + k * n + m * n))
    assert found.kind == "matmul"


@given(SIZE, SIZE, SIZE)
def test_a_bias_adds_one_an_output(m, n, k):
    found = cost(aten.linear.default, empty(m, k), empty(n, k), empty(n))
    assert found.flops == 2 * m * n * k + m * n
    again = cost(aten.addmm.default, empty(n), empty(m, k), empty(k, n))
    assert again.flops == found.flops


def test_batched_product():
    found = cost(aten.bmm.default, empty(3, 4, 5), empty(3, 5, 6))
    assert found.flops == 2 * 3 * 4 * 5 * 6


@pytest.mark.parametrize(
    ("weight", "stride", "transposed", "groups", "flops", "channels"),
    [
        ((12, 4, 3, 3), [1, 1], False, 2, 2 * (2 * 12 * 16 * 16) * (4 * 3 * 3), 4),
        ((8, 6, 4, 4), [2, 2], True, 1, 2 * (2 * 8 * 16 * 16) * (6 * 4 * 4), 8),
        ((8, 6, 4, 4), [2, 2], True, 4, 2 * (2 * 8 * 16 * 16) * (6 * 4 * 4), 2),
        ((8, 1, 3, 3), [1, 1], False, 8, 2 * (2 * 8 * 16 * 16) * (3 * 3), 0),
    ],
    ids=[
        "the taps of its group",
        "transposed: from its input",
        "transposed, of a group",
        "depthwise",
    ],
)
def test_convolution_counts(weight, stride, transposed, groups, flops, channels):
    given = (None, stride, [1, 1], [1, 1], transposed, [0, 0], groups)
    found = cost(aten.convolution.default, empty(2, 8, 16, 16), empty(*weight), *given)
    assert (found.flops, found.kind, found.channels) == (flops, "convolution", channels)


def test_attention_counts_both_products():
    q, k, v = empty(2, 4, 128, 32), empty(2, 4, 256, 32), empty(2, 4, 256, 64)
    found = cost(aten.scaled_dot_product_attention.default, q, k, v)
    assert found.flops == 2 * (2 * 4) * 128 * 256 * (32 + 64)
    causal = cost(aten.scaled_dot_product_attention.default, q, q, q, None, 0.0, True)
    assert causal.flops == 2 * (2 * 4) * 128 * 128 * (32 + 32) // 2


def test_pointwise_is_one_an_element_and_a_broadcast_operand_is_read_once():
    found = cost(aten.mul.Tensor, empty(64, 128), empty(128))
    assert (found.flops, found.kind) == (64 * 128, "pointwise")
    assert found.bytes_moved == 4 * (2 * 64 * 128 + 128)
    assert stored_bytes(empty(128).expand(64, 128), int) == 4 * 128


def test_a_reduction_is_one_an_input_element():
    found = cost(aten.sum.dim_IntList, empty(64, 128, dtype=torch.bfloat16), [1])
    assert (found.flops, found.kind) == (64 * 128, "reduction")
    assert (found.bytes_moved, found.dtype) == (2 * (64 * 128 + 64), "bfloat16")


def test_a_lookup_moves_what_it_reads():
    index = torch.empty(10, dtype=torch.long, device="meta")
    found = cost(aten.embedding.default, empty(100_000, 64), index)
    assert (found.bytes_moved, found.flops) == (2 * 10 * 64 * 4 + 10 * 8, 0)


@pytest.mark.parametrize("op", [aten.view.default, aten.t.default, aten.empty_like.default])
def test_views_and_allocations_are_free(op):
    assert is_free(op)


def test_work_is_not_free():
    assert not is_free(aten.mm.default)
    assert not is_free(aten.clone.default)
    assert not is_free(aten.zeros.default)
    assert is_fill(aten.zeros.default)
    assert op_name(aten.mm.default) == "aten.mm"


def test_einsum_multiplies_over_all_its_letters():
    found = op_cost(
        aten.einsum.default,
        ("...bij, bjk -> ...bik", [empty(7, 3, 4, 5), empty(3, 5, 6)]),
        empty(7, 3, 4, 6),
        int,
    )
    assert (found.flops, found.kind) == (2 * 7 * 3 * 4 * 5 * 6, "matmul")


def test_a_loss_counts_what_it_reads():
    found = cost(aten.mse_loss.default, empty(64, 128), empty(64, 128))
    assert (found.flops, found.bytes_moved) == (64 * 128, 4 * (2 * 64 * 128 + 1))


def test_one_channel_of_all_groups_is_no_depthwise_convolution():
    given = (None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1)
    found = cost(aten.convolution.default, empty(2, 1, 16, 16), empty(8, 1, 3, 3), *given)
    assert found.channels == 1
