"""Products with diagonal matrices scale rows or columns."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from tests.compiler.rewrite.checks import PROPERTY, checked

RULE = "diagonal products"


class Scaled(nn.Module):
    """diag(d) B, A diag(d), or a linear layer of or by a diagonal matrix."""

    def __init__(self, form: str) -> None:
        super().__init__()
        self.form = form

    def forward(self, d: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        matrix = torch.diag(d) if d.dim() == 1 else torch.diag_embed(d)
        if self.form == "rows":
            return matrix @ x
        if self.form == "columns":
            return x.mT @ matrix
        if self.form == "linear of it":
            return nn.functional.linear(matrix, x.mT)
        return nn.functional.linear(x.mT, matrix, d)


@PROPERTY
@given(
    form=st.sampled_from(["rows", "columns", "linear of it", "linear by it"]),
    n=st.integers(2, 20),
    m=st.integers(2, 20),
)
def test_rows_and_columns(form: str, n: int, m: int) -> None:
    result = checked(Scaled(form), [torch.randn(n), torch.randn(n, m)], specials=False)
    assert result.rules[0] == RULE
    assert not any("mm" in op or "matmul" in op or "linear" in op for op in result.ops)


@pytest.mark.parametrize("form", ["rows", "columns"])
def test_a_batch(form: str) -> None:
    result = checked(Scaled(form), [torch.randn(3, 9), torch.randn(3, 9, 4)], specials=False)
    assert result.rules[0] == RULE


class Beside(nn.Module):
    """Not the main diagonal."""

    def forward(self, d: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return torch.diag(d, 1) @ x


def test_another_diagonal_stays() -> None:
    result = checked(Beside(), [torch.randn(6), torch.randn(7, 4)], specials=False)
    assert RULE not in result.rules
