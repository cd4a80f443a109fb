"""How far products may round is read and put back, whichever interface said it."""

from collections.abc import Iterator
from contextlib import suppress

import pytest
import torch

from agentkernel.tools.matmul_precision import (
    convolutions_round,
    matmul_precision,
    products_round,
    rounding_as,
)

MATMUL = torch.backends.cuda.matmul


@pytest.fixture(autouse=True)
def put_back() -> Iterator[None]:
    with rounding_as(matmul_precision()):
        yield


@pytest.mark.parametrize("precision", ["highest", "high", "medium"])
def test_the_first_interface_is_read_as_it_was_set(precision: str) -> None:
    torch.set_float32_matmul_precision(precision)
    assert matmul_precision() == precision
    assert products_round() == (precision != "highest") == MATMUL.allow_tf32


def test_the_second_interface_is_read_where_the_first_raises() -> None:
    torch.set_float32_matmul_precision("highest")
    MATMUL.fp32_precision = "tf32"
    with pytest.raises(RuntimeError):
        torch.get_float32_matmul_precision()
    assert matmul_precision() == "high"
    assert products_round()


def test_convolutions_have_a_switch_of_their_own() -> None:
    before = torch.backends.cudnn.conv.fp32_precision
    try:
        for name, rounds in (("ieee", False), ("tf32", True)):
            torch.backends.cudnn.conv.fp32_precision = name
            assert convolutions_round() == rounds
    finally:
        torch.backends.cudnn.conv.fp32_precision = before


@pytest.mark.parametrize("second", [None, "tf32", "ieee"])
@pytest.mark.parametrize("first", ["highest", "high"])
def test_what_was_there_is_put_back(first: str, second: str | None) -> None:
    torch.set_float32_matmul_precision(first)
    if second is not None:
        MATMUL.fp32_precision = second
    found = MATMUL.fp32_precision, torch.backends.mkldnn.matmul.fp32_precision
    with suppress(ArithmeticError), rounding_as("medium"):
        assert torch.get_float32_matmul_precision() == "medium"
        raise ArithmeticError
    assert (MATMUL.fp32_precision, torch.backends.mkldnn.matmul.fp32_precision) == found
    assert matmul_precision() == ("high" if found[0] == "tf32" else "highest")
