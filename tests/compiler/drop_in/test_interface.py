"""The signature of a drop-in is the original's: its names, its order and its defaults."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from agentkernel.compiler.drop_in.interface import Signature, signature_of
from agentkernel.compiler.emit import Names
from agentkernel.tools.problem.loading import problem_from_module


class Layer(nn.Module):
    """Called as a decoder layer of a language model is: all but the first are optional."""

    def forward(self, x, mask=None, places=None, cache=None, use_cache=False, tables=None):
        return x * tables[0] + tables[1]


class Required(nn.Module):
    """What comes before `tables` must be given, since `tables` must be."""

    def forward(self, x, tables, mask=None, *, more=None, scale=2.0):
        return x * tables[0] + more[0]


def signature(module: nn.Module, *args: object, **kwargs: object) -> Signature:
    loaded = problem_from_module(module, list(args), kwargs)
    count = len(loaded.problem.shape_sets[0].inputs)
    return signature_of(loaded, Names(), count, "VERIFIED")


def given() -> tuple[torch.Tensor, tuple[torch.Tensor, torch.Tensor]]:
    return torch.randn(2, 8), (torch.randn(2, 8), torch.randn(2, 8))


def called(found: Signature, *args: object, **kwargs: object) -> object:
    """What a function of this signature makes of a call: its inputs from left to right."""
    head = f"def f({', '.join(found.parameters)}):\n"
    body = "".join(f"    {line}\n" for line in found.lines)
    space: dict[str, object] = {"VERIFIED": "Verified otherwise."}
    exec(f"{head}{body}    return [{', '.join(found.inputs)}]", space)
    return list(map(id, space["f"](*args, **kwargs)))  # type: ignore[operator]


def test_what_is_nested_keeps_its_default_and_so_does_all_before_it() -> None:
    x, tables = given()
    found = signature(Layer(), x, tables=tables)
    told = "x, mask=None, places=None, cache=None, use_cache=False, tables=None"
    assert ", ".join(found.parameters) == told
    inputs = (x, None, None, None, False, *tables)
    assert called(found, x, tables=tables) == list(map(id, inputs))
    with pytest.raises(ValueError, match=r"tables is None; Verified"):
        called(found, x)


def test_by_name_alone_too() -> None:
    x, tables = given()
    found = signature(Required(), x, tables, more=(x,))
    assert ", ".join(found.parameters) == "x, tables, mask=None, *, more=None, scale=2.0"
    assert called(found, x, tables, more=(x,)) == list(map(id, (x, *tables, x)))
    with pytest.raises(ValueError, match="more is None"):
        called(found, x, tables)


class Builtin(nn.Module):
    """A parameter may be called as a function of Python's, or as a variable of a kernel."""

    def forward(self, input, row, mask=None, type=1):  # noqa: A002
        return input[0] + row


def test_callers_may_use_the_names_of_the_original() -> None:
    x, _ = given()
    found = signature(Builtin(), (x,), x)
    assert ", ".join(found.parameters) == "input, row, mask=None, type=1"
    assert called(found, row=x, input=(x,)) == [id(x), id(x)]
    with pytest.raises(ValueError, match="mask is 3, type is 1; Verified"):
        called(found, input=(x,), row=x, mask=3)


class Alike(nn.Module):
    """Variables of one parameter would have the names of others."""

    def forward(self, mask, *, mask_value, mask_0):
        return mask[0] - mask[1] + mask_value + mask_0


def test_no_variable_has_the_name_of_another_parameter() -> None:
    x, tables = given()
    found = signature(Alike(), tables, mask_value=x, mask_0=x + 1)
    other = x + 2
    inputs = called(found, tables, mask_value=x, mask_0=other)
    assert inputs == list(map(id, (*tables, x, other)))


class Masked(nn.Module):
    """Verified with a mask, called without."""

    def forward(self, x, mask=None, scale=None):
        return x if mask is None else x * mask


def test_none_for_a_tensor_that_was_given_is_refused_by_its_name() -> None:
    x, (mask, _) = given()
    found = signature(Masked(), x, mask)
    assert ", ".join(found.parameters) == "x, mask=None, scale=None"
    assert called(found, x, mask=mask) == [id(x), id(mask)]
    with pytest.raises(ValueError, match="mask is None; Verified"):
        called(found, x)
