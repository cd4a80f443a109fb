"""Scalar arguments are asked past one, at zero, below it and past every size."""

from agentkernel.domain.problem import ScalarSpec, ShapeSet, TensorSpec
from agentkernel.storage.source_text import read_literal
from agentkernel.tools.judge.cases.plan import Case
from agentkernel.tools.judge.cases.selection import other_scalars, scalar_cases, with_other_scalars
from agentkernel.tools.judge.cases.shapes import CaseShape


def test_numbers_are_asked_on_every_side():
    assert other_scalars(True) == (False,)
    assert other_scalars("mean") == ()
    assert other_scalars(0, 7) == (1, -1, 8)
    found = other_scalars(0.01)
    assert 0.0 in found
    assert max(found) > 2
    assert min(found) <= -1
    assert 0.01 not in found
    assert len(set(other_scalars(0.0))) == len(other_scalars(0.0))


def test_an_integer_is_asked_past_the_longest_dimension():
    inputs = ShapeSet(
        inputs=(
            TensorSpec(name="x", dtype="float32", shape=(4, 60)),
            ScalarSpec(name="shift", literal="5"),
        )
    )
    values = [read_literal(item.inputs[1].literal) for item in with_other_scalars(inputs)]
    assert values == [6, 4, 0, -5, 66]


def test_one_value_of_each_number_comes_at_the_largest_size():
    scalars = (ScalarSpec(name="shift", literal="5"), ScalarSpec(name="alpha", literal="0.5"))
    small, large = (
        CaseShape(ShapeSet(inputs=(x, *scalars)), "declared", 0)
        for x in (TensorSpec(name="x", dtype="float32", shape=(4, n)) for n in (60, 600))
    )
    cases = scalar_cases(Case(small, "normal", 3), large)
    found = [case.shape.inputs.inputs for case in cases]
    assert [item[1:] for item in found] == [
        item.inputs[1:] for item in with_other_scalars(small.inputs)
    ]
    wide = [specs for specs in found if specs[0].shape == (4, 600)]
    assert len(wide) == 2
    assert [specs[1] == scalars[0] for specs in wide] == [False, True]
