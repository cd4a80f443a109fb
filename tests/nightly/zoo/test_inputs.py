from __future__ import annotations

import pytest
import torch

from agentkernel.domain.errors import ProblemError
from agentkernel.nightly.zoo.loader import parse_model_input


def test_integers_stay_below_their_limit() -> None:
    item = parse_model_input("ids=i64[64,64]<10")
    torch.manual_seed(0)
    value = item.value()
    assert isinstance(value, torch.Tensor)
    assert (item.spec.name, value.shape, value.dtype) == ("ids", (64, 64), torch.int64)
    assert set(value.flatten().tolist()) == set(range(10))


def test_blanks_around_the_limit_and_small_types_are_fine() -> None:
    value = parse_model_input("x=u8[4096] < 256").value()
    assert isinstance(value, torch.Tensor)
    assert value.dtype == torch.uint8
    assert value.max() > 200


def test_without_a_limit_the_syntax_is_that_of_a_problem() -> None:
    floats, bits = (parse_model_input(text).value() for text in ("x=f16[64]", "m=i64[64]"))
    assert isinstance(floats, torch.Tensor)
    assert isinstance(bits, torch.Tensor)
    assert floats.dtype == torch.float16
    assert set(bits.tolist()) == {0, 1}
    assert parse_model_input("flag=True").value() is True
    assert parse_model_input("mask=None").value() is None


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("x=f32[4]<10", "'x=f32[4]<10' ends in '<10' and has float32. Expected that of integers"),
        ("x=i64[4]<0", "has the limit '0'. Expected a whole number from 1 to"),
        ("x=i8[4]<129", "has the limit '129'. Expected a whole number from 1 to 128"),
        ("x=i64[4]<many", "has the limit 'many'"),
        ("x=f32[4];f32[8]", "has 2 shape sets. Expected one"),
        ("x=f32[4,0]", "Input 'x' has no elements"),
        ("f32[4]", "does not read as name=dtype[shape]"),
        ("x=f31[4]", "has dtype 'f31'"),
    ],
)
def test_a_mistake_is_one_line(text: str, line: str) -> None:
    with pytest.raises(ProblemError) as caught:
        parse_model_input(text)
    assert line in str(caught.value)
    assert "\n" not in str(caught.value)
