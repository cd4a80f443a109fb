"""Operators whose index eager refuses below zero, as those whose index TorchInductor asserts."""

from __future__ import annotations

import pytest
import torch

from agentkernel.compiler.lift.inductor_codegen import UNWRAPPED, without_wrapping

SELECT, ADD, COPY = UNWRAPPED


@pytest.mark.parametrize("kind", [torch.int64, torch.int32])
@pytest.mark.parametrize("dim", [0, 1, -1])
@pytest.mark.parametrize("target", UNWRAPPED)
def test_it_is_what_torch_computes(
    target: torch._ops.OpOverload, dim: int, kind: torch.dtype
) -> None:
    torch.manual_seed(0)
    x = torch.randn(5, 4, 5)
    index = torch.tensor([3, 0, 2]) if target is COPY else torch.tensor([3, 0, 3])
    index = index if target is COPY else index.to(kind)  # eager's copy takes int64 alone
    source = [] if target is SELECT else [torch.randn_like(x.index_select(dim, index))]
    found = without_wrapping(target, x, dim, index, *source)
    assert found is not None
    torch.testing.assert_close(found, target(x, dim, index, *source))


def test_a_factor_is_multiplied_in() -> None:
    x, index, source = torch.randn(5, 4), torch.tensor([1, 1, 0]), torch.randn(3, 4)
    found = without_wrapping(ADD, x, 0, index, source, alpha=3)
    assert found is not None
    torch.testing.assert_close(found, x.index_add(0, index, source, alpha=3))


def test_other_operators_and_numbers_stay() -> None:
    x = torch.randn(5)
    assert without_wrapping(torch.ops.aten.take.default, x, 0, torch.tensor([1])) is None
    assert without_wrapping(SELECT, x, 0, torch.tensor(1)) is None
    assert without_wrapping(SELECT, x[0], 0, torch.tensor([0])) is None
