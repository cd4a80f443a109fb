"""A call after one that passed still runs the original wherever the guard would refuse it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from agentkernel.swap import guard as passed_module
from agentkernel.swap.swap import Swap, apply, counts, swap_of
from tests.swap.applied_kernels import Block, block, example, make_kernel, mlp_kernel
from tests.swap.refused_calls import (
    CALLS,
    SCALED,
    Scaled,
    child_added,
    child_changed,
    child_hook,
    child_replaced,
    child_trained,
    swapped,
)


def warm(model: nn.Module, x: torch.Tensor) -> Swap:
    """`model` after two calls of its kernel, the second of which was let through at once."""
    swap = swap_of(model)
    model(x)
    assert swap.passed.holds((x,))
    model(x)
    assert (swap.called, dict(swap.reasons)) == (2, {})
    return swap


@pytest.mark.parametrize("reason", CALLS)
def test_what_the_guard_refuses_is_refused_after_a_call_that_passed(reason: str) -> None:
    model, x = swapped(), example()
    swap = warm(model.norm, example())
    CALLS[reason](model, x)
    assert (swap.called, set(swap.reasons)) == (2, {reason})


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (child_hook, "hooks"),
        (child_replaced, "children"),
        (child_added, "children"),
        (child_trained, "training"),
        (child_changed, "hooks"),
        (lambda model: model.mlp.up.add_module("more", nn.Identity()), "children"),
        (lambda model: model.mlp.up.register_forward_pre_hook(lambda *_: None), "hooks"),
        (lambda model: setattr(model.mlp.down, "in_features", 17), "attributes"),
        (lambda model: setattr(model.mlp.down, "in_features", 16.0), "attributes"),
        (lambda model: delattr(model.mlp.down, "in_features"), "attributes"),
        (lambda model: setattr(model.mlp.up, "bias", None), "parameters"),
        (lambda model: model.mlp.up.half(), "dtype"),
        (lambda model: model.mlp.up.weight.t_(), "shape"),
        (lambda model: model.mlp.up.bias.resize_(3), "shape"),
    ],
)
def test_a_change_below_is_seen_at_the_next_call(
    change: Callable[[Block], object], reason: str
) -> None:
    model, x = block(), example()
    apply(model, {"mlp": mlp_kernel()})
    swap = warm(model.mlp, x)
    change(model)
    try:
        model.mlp(x)
    except (RuntimeError, TypeError):
        assert reason in ("hooks", "dtype", "shape")
    assert (swap.called, dict(swap.reasons)) == (2, {reason: 1})


def test_another_dictionary_of_attributes_is_seen() -> None:
    model, x = block(), example()
    apply(model, {"mlp": mlp_kernel()})
    swap = warm(model.mlp, x)
    model.mlp.up.__dict__ = {**vars(model.mlp.up), "training": True}
    model.mlp(x)
    assert dict(swap.reasons) == {"training": 1}


def test_a_global_hook_and_gradients_are_seen() -> None:
    model, x = block(), example()
    apply(model, {"mlp": mlp_kernel()})
    swap = warm(model.mlp, x)
    handle = nn.modules.module.register_module_forward_hook(lambda *_: None)
    try:
        model.mlp(x)
    finally:
        handle.remove()
    assert dict(swap.reasons) == {"hooks": 1}
    model.requires_grad_()
    with torch.no_grad():
        model.mlp(x)
        model.mlp(x)
    model.mlp(x)
    assert (swap.called, dict(swap.reasons)) == (4, {"hooks": 1, "grad": 1})
    with torch.inference_mode():
        model.mlp(x)
    assert swap.called == 5


def test_a_replaced_parameter_is_read() -> None:
    model, x = swapped(), example()
    warm(model.norm, x)
    model.norm.bias = nn.Parameter(torch.full((8,), 3.0), requires_grad=False)
    model.norm.weight = nn.Parameter(torch.zeros(8), requires_grad=False)
    assert torch.equal(model.norm(x), torch.full((4, 8), 3.25))
    assert counts(model)["norm"].kernel == 3


def test_scalars_are_compared_as_they_are_written() -> None:
    model, x = Scaled().eval(), example()
    apply(model, {"": make_kernel(SCALED, Scaled(), x, 2.0)})
    swap = swap_of(model)
    for scale in (2.0, float("2"), 2, -2.0):
        model(x, scale)
    assert (swap.called, dict(swap.reasons)) == (2, {"argument": 2})


def test_memory_that_does_not_hold_the_values_is_refused() -> None:
    model, x = swapped(), example()
    swap = warm(model.norm, x)
    negated = torch._neg_view(x)
    assert negated.is_neg()
    want = nn.functional.layer_norm(-x, (8,), model.norm.weight, model.norm.bias)
    assert torch.allclose(model.norm(negated), want, atol=1e-5)
    with pytest.raises(RuntimeError):
        model.norm(x.to_sparse())
    assert dict(swap.reasons) == {"lazy": 1, "layout": 1}


def test_nothing_that_passed_is_kept_alive_or_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    import weakref

    model, x = swapped(), example()
    warm(model.norm, x)
    gone = weakref.ref(x)
    del x
    assert gone() is None
    monkeypatch.setattr(passed_module, "TELLS", False)
    model, x = swapped(), example()
    model.norm(x)
    swap = swap_of(model.norm)
    assert (swap.called, swap.passed) == (1, None)


def test_this_pythons_dictionaries_tell() -> None:
    assert passed_module.TELLS
