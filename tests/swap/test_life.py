from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrize

from agentkernel.domain.errors import ProblemError
from agentkernel.swap.swap import apply, counts, restore, swap_of, without_kernels
from tests.swap.applied_kernels import (
    MLP,
    WRONG,
    Block,
    Mlp,
    block,
    example,
    make_kernel,
    norm_kernel,
)


def swapped() -> Block:
    model = block()
    apply(
        model,
        {"norm": norm_kernel(WRONG), "mlp": make_kernel(MLP, Mlp()), "last": norm_kernel(WRONG)},
    )
    return model


def picture(model: nn.Module) -> dict[str, tuple[type, dict[str, object], dict[str, object]]]:
    """Class, attributes and tensors (the objects) of every module."""
    return {
        name: (type(module), dict(vars(module)), dict(module._parameters))
        for name, module in model.named_modules()
    }


def same(one: dict[str, object], other: dict[str, object]) -> bool:
    return list(one) == list(other) and all(one[key] is other[key] for key in one)


def test_restore_gives_back_what_was_there() -> None:
    model = block()
    before = picture(model)
    apply(
        model,
        {
            "norm": norm_kernel(),
            "mlp": make_kernel(MLP, Mlp()),
            "": make_kernel(RETURNS, nn.Identity()),
        },
    )
    model(example())
    assert type(model.norm) is not nn.LayerNorm
    assert restore(model) == 3
    after = picture(model)
    for name, (kind, own, tensors) in before.items():
        assert after[name][0] is kind
        assert same(own, after[name][1])
        assert same(dict(tensors), dict(after[name][2]))
    assert restore(model) == 0
    assert counts(model) == {}


def test_without_kernels_is_a_copy_where_some_are_in_and_the_model_itself_where_none_is() -> None:
    plain, model = block(), swapped()
    assert without_kernels(plain) is plain
    bare = without_kernels(model)
    assert [type(item) for item in bare.modules()] == [type(item) for item in plain.modules()]
    assert not counts(bare)
    assert set(counts(model)) == {"norm", "mlp", "last"}
    assert torch.equal(bare(example()), plain(example()))


def test_a_model_that_cannot_be_copied_is_told_to_be_restored_first() -> None:
    model = swapped()
    model.computed = torch.ones(2, requires_grad=True) * 2
    with pytest.raises(ProblemError, match=r"cannot be copied: .* Next: agentkernel.restore"):
        without_kernels(model)
    assert set(counts(model)) == {"norm", "mlp", "last"}


RETURNS = """from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return x + 1
"""


def test_it_looks_as_before() -> None:
    plain, model = block(), swapped()
    assert repr(model) == repr(plain)
    assert list(model.state_dict()) == list(plain.state_dict())
    assert len(list(model.parameters())) == len(list(plain.parameters()))
    assert [name for name, _ in model.named_modules()] == [n for n, _ in plain.named_modules()]
    assert isinstance(model.norm, nn.LayerNorm)
    kind = type(model.norm)
    assert (kind.__name__, kind.__module__) == ("LayerNorm", nn.LayerNorm.__module__)
    assert kind is type(model.last), "one class for all modules of a class"


def test_the_state_dict_has_the_same_objects() -> None:
    model = block()
    before = {name: value.data_ptr() for name, value in model.state_dict().items()}
    apply(model, {"norm": norm_kernel()})
    after = {name: value.data_ptr() for name, value in model.state_dict().items()}
    assert after == before
    swap = swap_of(model.norm)
    assert swap.new.weight is model.norm.weight, "the object itself, no copy"


@pytest.mark.parametrize("assign", [False, True])
def test_a_loaded_state_is_read(assign: bool) -> None:
    model, x = swapped(), example()
    other = block(seed=5)
    model.load_state_dict(other.state_dict(), assign=assign)
    model.requires_grad_(False)
    want = nn.functional.layer_norm(x, (8,), other.norm.weight, other.norm.bias) + 0.25
    assert torch.allclose(model.norm(x), want, atol=1e-5)
    assert counts(model)["norm"].kernel == 1


def test_there_and_back_in_dtype_and_mode() -> None:
    model, x = swapped(), example()
    model.to(torch.float64)(x.double())
    assert counts(model)["norm"].reasons == {"dtype": 1}
    model.to(torch.float32)(x)
    assert counts(model)["norm"].kernel == 1
    model.train()(x)
    model.eval()(x)
    assert counts(model)["norm"].kernel == 2
    assert counts(model)["norm"].reasons == {"dtype": 1, "training": 1}


def test_a_changed_weight_alone_is_seen() -> None:
    model, x = swapped(), example()
    model.norm.weight.data = model.norm.weight.data.double()
    with pytest.raises(RuntimeError):
        model.norm(x)
    assert counts(model)["norm"].reasons == {"dtype": 1}
    model.norm.weight = None  # type: ignore[assignment]
    model.norm(x)
    assert counts(model)["norm"].reasons == {"dtype": 1, "parameters": 1}


def test_a_deep_copy_is_applied_and_independent() -> None:
    model, x = swapped(), example()
    model(x)
    twin = copy.deepcopy(model)
    assert counts(twin)["norm"].kernel == 0
    twin.norm.weight.zero_()
    bias = twin.norm.bias.clone()
    assert torch.allclose(twin.norm(x), (bias + 0.25).expand(4, 8), atol=1e-5)
    assert not torch.allclose(model.norm(x), twin.norm(x))
    assert (counts(model)["norm"].kernel, counts(twin)["norm"].kernel) == (2, 2)
    assert restore(twin) == 3
    assert len(counts(model)) == 3


def test_a_deep_copy_of_a_module_that_knows_itself() -> None:
    model = block()
    object.__setattr__(model.norm, "me", [model.norm])
    apply(model, {"norm": norm_kernel()})
    twin = copy.deepcopy(model)
    assert vars(twin.norm)["me"][0] is twin.norm


@pytest.mark.quick(1)
@pytest.mark.parametrize("make", [pickle.dumps, "torch.save", copy.copy])
def test_what_is_saved_is_the_original_class(
    make: Callable[..., object] | str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Training in this process forbids torch to load more than weights from then on.
    monkeypatch.delenv("TORCH_FORCE_WEIGHTS_ONLY_LOAD", raising=False)
    model = swapped().norm
    if make is copy.copy:
        twin = copy.copy(model)
        assert type(twin) is nn.LayerNorm
        assert "_agentkernel_swap" not in vars(twin)
        return
    if make == "torch.save":
        file = io.BytesIO()
        torch.save(model, file)
        data = file.getvalue()
        loaded = torch.load(io.BytesIO(data), weights_only=False)
    else:
        data = pickle.dumps(model)
        loaded = pickle.loads(data)
    assert b"agentkernel" not in data
    assert type(loaded) is nn.LayerNorm
    assert torch.equal(loaded.weight, model.weight)
    assert type(model) is not nn.LayerNorm, "saving leaves the kernel in"


def test_hooks_of_the_module_and_its_parents_fire() -> None:
    model, x = swapped(), example()
    seen: list[str] = []
    model.norm.register_forward_pre_hook(lambda *_: seen.append("before"))
    model.norm.register_forward_hook(lambda *_: seen.append("after"))
    model.register_forward_hook(lambda *_: seen.append("whole"))
    model(x)
    assert seen == ["before", "after", "whole"]
    assert counts(model)["norm"].kernel == 1


def test_a_functional_call_reads_what_it_is_given() -> None:
    model, x = swapped(), example()
    given = {"norm.weight": torch.zeros(8), "norm.bias": torch.full((8,), 3.0)}
    inner: list[torch.Tensor] = []
    model.norm.register_forward_hook(lambda _, __, out: inner.append(out))
    torch.func.functional_call(model, given, (x,))
    assert torch.allclose(inner[0], torch.full((4, 8), 3.25))
    model(x)
    assert torch.allclose(inner[1], swapped().norm(x)), "and its own again after it"
    assert counts(model)["norm"].kernel == 2


class Double(nn.Module):
    def forward(self, weight: torch.Tensor) -> torch.Tensor:
        return weight * 2


def test_parametrizations_fall_back() -> None:
    model, x = swapped(), example()
    parametrize.register_parametrization(model.norm, "weight", Double())
    want = nn.functional.layer_norm(x, (8,), model.norm.weight, model.norm.bias)
    assert torch.equal(model.norm(x), want)
    assert counts(model)["norm"].reasons == {"children": 1}
    assert restore(model) == 3
    assert torch.equal(model.norm(x), want)


def test_a_shared_module_has_one_kernel() -> None:
    model, x = block(), example()
    model.last = model.norm
    apply(model, {"norm": norm_kernel(WRONG)})
    model(x)
    assert counts(model)["norm"].kernel == 2
    assert restore(model) == 1


def test_replicas_run_the_original() -> None:
    model, x = swapped(), example()
    replica = model.norm._replicate_for_data_parallel()  # type: ignore[no-untyped-call]
    replica.weight, replica.bias = model.norm.weight.clone(), model.norm.bias.clone()
    want = nn.functional.layer_norm(x, (8,), model.norm.weight, model.norm.bias)
    assert torch.equal(replica(x), want)
    assert counts(model)["norm"].reasons == {"replica": 1}


def test_applied_twice_the_second_stands() -> None:
    model, x = swapped(), example()
    model.norm(x)
    apply(model, {"norm": norm_kernel()})
    want = nn.functional.layer_norm(x, (8,), model.norm.weight, model.norm.bias)
    assert torch.allclose(model.norm(x), want, atol=1e-5)
    assert counts(model)["norm"].kernel == 1
    assert len(counts(model)) == 3, "kernels at other paths stay"
    assert type(model.norm).__mro__[1] is nn.LayerNorm, "one layer, not two"


def test_tied_tensors_follow_one_another() -> None:
    source = """import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Parameter(torch.empty(8))
        self.b = self.a
        self.register_buffer("unread", torch.empty(3))

    def forward(self, x):
        return x * self.a * self.b
"""

    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.full((8,), 3.0), requires_grad=False)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.weight * self.weight

    model, x = Tied().eval(), example()
    kernel = make_kernel(source, Tied(), x, parameters=("a",))
    apply(model, {"": kernel}, {"": ("weight",)})
    assert torch.allclose(model(x), x * 9)
    model.weight = nn.Parameter(torch.full((8,), 2.0), requires_grad=False)
    assert torch.allclose(model(x), x * 4)
    assert counts(model)[""].kernel == 2
    swap = swap_of(model)
    assert swap is not None
    assert not hasattr(swap.new, "unread"), "a read of what has no counterpart raises"
