"""Indexing by ATen operators is Tensor's own."""

import pytest
import torch

from agentkernel.compiler.lift.no_driver import indexed

X = torch.arange(120).view(4, 5, 6)
ROWS, COLUMNS = torch.tensor([[3], [0]]), torch.tensor([1, 2, 4])


@pytest.mark.parametrize(
    "items",
    [
        (1,), (-1, 2), (slice(1, 3),), (slice(None), slice(None, None, 2)), (None, ..., None),
        (..., 0), (0, ..., slice(1, 4)), (ROWS,), (ROWS, COLUMNS), (..., ROWS, COLUMNS),
        (slice(None), COLUMNS), (2, None, COLUMNS), (slice(None), None, None, COLUMNS), (...,),
    ],
    ids=str,
)  # fmt: skip
def test_it_is_what_torch_indexes(items: tuple[object, ...]) -> None:
    found = indexed(X, items)  # type: ignore[arg-type]
    assert torch.equal(found, X[items])
