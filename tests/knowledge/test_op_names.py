import pytest
import torch
from torch import nn

from agentkernel.knowledge.documents import OP_PATTERNS
from agentkernel.knowledge.op_names import (
    FAMILIES,
    canonical_op,
    einsum_ops,
    expansion,
    family,
    reduction_of,
    strongest,
    weight,
)


@pytest.mark.parametrize(
    ("spellings", "expected"),
    [
        (
            ("aten._softmax.default", "aten::softmax", "F.softmax", "nn.Softmax", "softmax_"),
            "softmax",
        ),
        (("aten.softmax.int", "torch.nn.Softmax2d", "torch.softmax", "Tensor.softmax"), "softmax"),
        (
            ("torch.relu_", "nn.ReLU", "F.relu", "aten.relu.default", "torch.nn.functional.relu"),
            "relu",
        ),
        (
            ("nn.BatchNorm2d", "nn.BatchNorm1d", "aten._native_batch_norm_legit_no_training"),
            "batch_norm",
        ),
        (("nn.LazyBatchNorm2d", "F.batch_norm", "aten.native_batch_norm.default"), "batch_norm"),
        (("+", "torch.add", "Tensor.add_", "aten.add.Tensor"), "add"),
        (("@", "torch.bmm", "aten.mm.default", "torch.linalg.matmul", "Tensor.mv"), "matmul"),
        (("-", "aten.rsub.Scalar"), "sub"),
        (("nn.Linear", "aten.addmm.default", "F.linear"), "linear"),
        (("nn.LeakyReLU", "F.leaky_relu_"), "leaky_relu"),
        (("nn.ConvTranspose2d", "aten.conv_transpose2d.input"), "conv_transpose2d"),
        (("nn.CrossEntropyLoss", "aten.cross_entropy_loss.default"), "cross_entropy"),
        (("nn.SmoothL1Loss", "nn.HuberLoss"), "huber_loss"),
        (("nn.Upsample", "aten.upsample_nearest2d.vec", "F.interpolate"), "interpolate"),
        (("Tensor.permute", "Tensor.t", "aten.transpose.int"), "transpose"),
        (("torch.linalg.norm", "aten.linalg_vector_norm.default", "Tensor.norm"), "norm"),
        (("torch.some_new_op", "aten.some_new_op.default"), "some_new_op"),
    ],
)
def test_one_name_for_all_spellings(spellings: tuple[str, ...], expected: str) -> None:
    assert {canonical_op(name) for name in spellings} == {expected}


@pytest.mark.parametrize(
    "name",
    [
        *("aten.view.default", "Tensor.reshape", "nn.Dropout", "F.dropout2d", "nn.Identity"),
        *("Tensor.unsqueeze", "torch.zeros", "aten._to_copy.default", "aten.sym_size.int"),
        *("nn.Module", "nn.Sequential", "Tensor.no_such_method", "append", "torch.is_tensor", ""),
    ],
)
def test_what_computes_nothing_has_no_name(name: str) -> None:
    assert canonical_op(name) is None


def test_no_spelling_stands_for_two_ops() -> None:
    every = [
        spelling
        for ops in FAMILIES.values()
        for op, others in ops.items()
        for spelling in (op, *others.split())
    ]
    assert len(every) == len(set(every))


def test_the_patterns_ops_have_a_name() -> None:
    assert [op for op in OP_PATTERNS if canonical_op(op) is None] == []


def test_torchs_activations_and_losses_are_named_alike_as_module_and_function() -> None:
    modules = [
        *nn.modules.activation.__all__,
        *nn.modules.loss.__all__,
        *nn.modules.pooling.__all__,
    ]
    unnamed = [name for name in modules if not expansion(f"torch.nn.{name}")]
    assert unnamed == []
    known = {op for ops in FAMILIES.values() for op in ops}
    odd = [
        name
        for name in nn.modules.activation.__all__
        if not {*expansion(f"torch.nn.{name}")} <= known
    ]
    assert odd == []


def test_every_aten_op_of_the_table_can_be_found_again() -> None:
    for ops in FAMILIES.values():
        for op in ops:
            assert canonical_op(op) == op
            if hasattr(torch.ops.aten, op):
                assert canonical_op(f"aten.{op}.default") == op


def test_what_torch_writes_as_several_ops() -> None:
    assert expansion("F.normalize") == ("norm", "clamp", "div")
    assert expansion("nn.MultiheadAttention")[1] == "scaled_dot_product_attention"
    assert expansion("nn.Flatten") == ()


@pytest.mark.parametrize(
    ("op", "dims", "rank", "expected"),
    [
        ("relu", None, 2, "none"),
        ("softmax", (-1,), None, "row"),
        ("softmax", (1,), 2, "row"),
        ("softmax", (1,), 4, "column"),
        ("softmax", None, 3, "row"),
        ("sum", None, 3, "whole"),
        ("sum", (0, 1), 2, "whole"),
        ("mean", (2, 3), 4, "spatial"),
        ("mean", (-2, -1), None, "spatial"),
        ("mean", (0, 2), 4, "column"),
        ("layer_norm", None, 3, "row"),
        ("group_norm", None, 4, "spatial"),
        ("avg_pool2d", None, 4, "spatial"),
        ("mse_loss", None, 2, "whole"),
        ("cumsum", (1,), 2, "scan"),
        ("conv2d", None, 4, "contraction"),
        ("batch_norm", None, 4, "none"),
    ],
)
def test_what_an_op_reduces(
    op: str, dims: tuple[int, ...] | None, rank: int | None, expected: str
) -> None:
    assert reduction_of(op, dims, rank) == expected


def test_the_strongest_reduction_names_the_program() -> None:
    assert strongest(["none", "whole", "row"]) == "row"
    assert strongest(["row", "contraction"]) == "contraction"
    assert strongest([]) == "none"


def test_weights_follow_the_family() -> None:
    assert family("conv2d") == "contraction"
    assert weight("conv2d") > weight("sum") > weight("exp") > weight("add") >= weight("transpose")
    assert weight("some_new_op") == weight("exp")


@pytest.mark.parametrize(
    ("equation", "ops"),
    [
        ("ij,jk->ik", ("matmul",)),
        ("bqhd, bkhd -> bhqk", ("matmul",)),
        ("...ij,...jk", ("matmul",)),
        ("ij,j->i", ("matmul",)),
        ("bi,ij,bj->bij", ("mul", "mul")),
        ("ab,bc,cd->ad", ("matmul", "matmul")),
        ("i,j->ij", ("mul",)),
        ("bi,bi->b", ("mul", "sum")),
        ("ij->ji", ("transpose",)),
        ("ii->", ("sum",)),
        ("ij->ij", ()),
        ("1j,jk", ("einsum",)),
    ],
)
def test_what_an_einsum_computes(equation: str, ops: tuple[str, ...]) -> None:
    assert einsum_ops(equation) == ops
