"""Is an operation written out by hand found beside the one call, and nothing else taken for it?"""

from __future__ import annotations

import pytest

from agentkernel.domain.knowledge import ReductionClass, Structure
from agentkernel.knowledge.graph_structure import (
    PARTS,
    composite_names,
    similarity,
    with_composites,
)
from agentkernel.knowledge.op_names import canonical_op
from agentkernel.knowledge.search import structure_words


def of(ops: str, reduction: ReductionClass | None = None) -> Structure:
    return Structure(ops=tuple(ops.split()), reduction=reduction)


@pytest.mark.parametrize(
    ("ops", "reduction", "name"),
    [
        ("mean sub pow mean add sqrt div mul add", "row", "layer_norm"),
        ("mean var sub add rsqrt mul", "row", "layer_norm"),
        ("mean var sub add sqrt div", "spatial", "instance_norm"),
        ("var_mean sub add rsqrt mul mul add", "column", "batch_norm"),
        ("pow mean add rsqrt mul mul", "row", "rms_norm"),
        ("amax sub exp sum div", "row", "softmax"),
        ("amax sub exp sum log add", "row", "logsumexp"),
        ("div transpose matmul add softmax matmul", "contraction", "scaled_dot_product_attention"),
        ("matmul mul exp sum div matmul", "contraction", "scaled_dot_product_attention"),
        ("sub pow mean", "whole", "mse_loss"),
        ("sub abs mean", "whole", "l1_loss"),
        ("linear sigmoid mul", "contraction", "silu"),
        ("max sub exp sum log sub", "row", "log_softmax"),
        ("softmax log", "row", "log_softmax"),
        ("matmul mul add compare where softmax matmul", "none", "scaled_dot_product_attention"),
        ("log_softmax gather neg mean", "whole", "cross_entropy"),
        ("pow sum sqrt div", "row", "norm"),
        ("mul sum norm norm mul div", "row", "cosine_similarity"),
        ("clamp mul sub abs neg exp log add mean", "whole", "binary_cross_entropy_with_logits"),
        ("sub abs mul mul div sub compare where mean", "whole", "huber_loss"),
        ("pow mul add mul tanh add mul mul", "none", "gelu"),
        ("div erf add mul mul", "none", "gelu"),
        ("exp log tanh mul", "none", "mish"),
        ("exp add log", "none", "softplus"),
        ("add relu6 mul div", "none", "hardswish"),
        ("add clamp div", "none", "hardsigmoid"),
        ("neg exp add div", "none", "sigmoid"),
    ],
)
def test_what_is_written_out_is_recognised(ops: str, reduction: ReductionClass, name: str) -> None:
    structure = of(ops, reduction)
    assert name in composite_names(structure)
    assert name.split("_")[0] in structure_words(structure)
    other = "tan" if name != "silu" else "relu"
    assert similarity(structure, of(name, reduction)) > similarity(structure, of(other, reduction))


@pytest.mark.parametrize(
    ("ops", "reduction"),
    [
        ("mean sub", "row"),
        ("sub pow mean", "row"),
        ("sub pow mean sqrt", "whole"),
        ("matmul relu matmul", "contraction"),
        ("exp sum relu tanh add div", "row"),
        ("mean sub pow mean add sqrt div", None),
        ("expsum div", "row"),
        ("matmul linear softmax matmul", "contraction"),
        ("add clamp mul", "none"),
        ("mul erf add", "none"),
    ],
)
def test_nothing_else_is(ops: str, reduction: ReductionClass | None) -> None:
    structure = of(ops, reduction)
    assert composite_names(structure) == ()
    assert with_composites(structure) == structure.ops


def test_who_says_the_name_has_it_already() -> None:
    assert composite_names(of("layer_norm", "row")) == ()
    assert with_composites(of("add layer_norm relu", "row")) == ("add", "layer_norm", "relu")


def test_the_rest_of_the_program_stays_where_it_is() -> None:
    found = with_composites(of("linear amax sub exp sum div dropout matmul", "contraction"))
    assert found == ("linear", "softmax", "dropout", "matmul")


def test_all_names_are_canonical() -> None:
    unknown = {op for name, parts in PARTS.items() for op in (name, *parts) if not canonical_op(op)}
    assert not unknown
