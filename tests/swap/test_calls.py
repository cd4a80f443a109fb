from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from agentkernel.swap.swap import apply, counts, restore
from tests.swap.applied_kernels import (
    RAISES,
    WRONG,
    Block,
    Mlp,
    block,
    example,
    make_kernel,
    mlp_kernel,
    norm_kernel,
)
from tests.swap.refused_calls import (
    CALLS,
    SCALED,
    Scaled,
    call_with_trained_weight,
    child_added,
    child_changed,
    child_hook,
    child_replaced,
    child_trained,
    swapped,
)

WRONG_BY = 0.25


def runs_kernel(found: torch.Tensor, module: nn.LayerNorm, x: torch.Tensor) -> bool:
    with torch.no_grad():
        plain = nn.functional.layer_norm(x, (8,), module.weight, module.bias)
    return torch.allclose(found, plain + WRONG_BY, atol=1e-4)


def test_the_kernel_runs_on_the_modules_own_tensors() -> None:
    model, x = block(), example()
    want = model(x)
    applied = apply(model, {"norm": norm_kernel(), "mlp": mlp_kernel(), "last": norm_kernel()})
    assert applied.paths == ("norm", "mlp", "last")
    assert torch.allclose(model(x), want, atol=1e-5)
    assert {path: call.kernel for path, call in counts(model).items()} == {
        "norm": 1,
        "mlp": 1,
        "last": 1,
    }
    model.mlp.down.weight.mul_(2.0)
    got = model(x)
    restore(model)
    assert torch.allclose(got, model(x), atol=1e-5)


def test_a_wrong_kernel_shows() -> None:
    model, x = swapped(), example()
    assert runs_kernel(model.norm(x), model.norm, x)
    assert counts(model)["norm"].kernel == 1


@pytest.mark.parametrize("reason", CALLS)
def test_outside_of_what_was_verified_the_original_runs(reason: str) -> None:
    model, x = swapped(), example()
    found = CALLS[reason](model, x)
    got = counts(model)["norm"]
    assert (got.kernel, dict(got.reasons)) == (0, {reason: got.fallback})
    assert got.fallback >= 1
    if found.device.type != "meta":
        restore(model)
        assert torch.equal(found.detach(), CALLS[reason](model, example()).detach())


def test_a_trained_weight_records_gradients_by_the_original() -> None:
    model = swapped()
    call_with_trained_weight(model, example()).sum().backward()  # type: ignore[no-untyped-call]
    assert model.norm.weight.grad is not None
    assert counts(model)["norm"].reasons == {"grad": 1}
    with torch.no_grad():
        model.norm(example())
    assert counts(model)["norm"].kernel == 1, "without gradients the kernel may run"


def test_a_default_device_is_no_mode_that_matters() -> None:
    model, x = swapped(), example()
    with torch.device("cpu"):
        model.norm(x)
    assert counts(model)["norm"].kernel == 1


@pytest.mark.quick(5)
@pytest.mark.parametrize(
    ("args", "kwargs", "reason"),
    [
        ((3.0,), {}, None),
        ((), {"scale": 3.0}, None),
        ((3.0, None), {}, None),
        ((3.0,), {"mask": None, "exact": True}, None),
        ((), {}, "argument"),
        ((3,), {}, "argument"),
        ((3.0,), {"mask": 1}, "arguments"),
        ((3.0,), {"exact": False}, "arguments"),
    ],
)
def test_keywords_and_defaults_bind_to_positions(
    args: tuple[object, ...], kwargs: dict[str, object], reason: str | None
) -> None:
    model, x = Scaled().eval(), example()
    apply(model, {"": make_kernel(SCALED, Scaled(), x, 3.0)})
    model(x, *args, **kwargs)
    got = counts(model)[""]
    assert got.reasons == ({} if reason is None else {reason: 1})
    assert got.kernel == (reason is None)


def test_another_number_of_arguments_is_the_originals_mistake() -> None:
    model = swapped()
    with pytest.raises(TypeError, match="positional"):
        model.norm(example(), 1)
    with pytest.raises(TypeError, match="nonsense"):
        model.norm(example(), nonsense=1)
    assert counts(model)["norm"].reasons == {"arguments": 2}


def test_strides_are_those_that_were_verified() -> None:
    model, x = block(), example().t().contiguous().t()
    apply(model, {"norm": norm_kernel(WRONG, input_strides=(x.stride(),))})
    assert runs_kernel(model.norm(x), model.norm, x)
    model.norm(x.contiguous())
    assert counts(model)["norm"].reasons == {"stride": 1}
    one = example(batch=1)
    apply(model, {"norm": make_kernel(WRONG, nn.LayerNorm(8), one)})
    model.norm(one.as_strided((1, 8), (3, 1)))
    assert counts(model)["norm"].kernel == 1, "nobody takes a step along one element"


def test_a_kernel_that_raises_is_switched_off_at_the_third_time() -> None:
    model, x = block(), example()
    want = model.norm(x)
    apply(model, {"norm": norm_kernel(RAISES)})
    for _ in range(5):
        assert torch.equal(model.norm(x), want)
    got = counts(model)["norm"]
    assert got.reasons == {"raised": 3, "off": 2}
    assert got.off == "raised 3 times: RuntimeError: out of registers"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (child_hook, "hooks"),
        (child_replaced, "children"),
        (child_added, "children"),
        (child_trained, "training"),
        (child_changed, "hooks"),
    ],
)
def test_children_that_the_kernel_would_pass_over(
    change: Callable[[Block], None], reason: str
) -> None:
    model = block()
    apply(model, {"mlp": mlp_kernel()})
    change(model)
    model.mlp.eval() if reason != "training" else None
    try:
        model.mlp(example())
    except RuntimeError:
        assert change is child_changed
    assert counts(model)["mlp"].reasons == {reason: 1}


def test_a_global_hook_sees_every_child() -> None:
    model = block()
    apply(model, {"mlp": mlp_kernel()})
    seen: list[str] = []
    handle = nn.modules.module.register_module_forward_hook(
        lambda module, _, __: seen.append(type(module).__name__)
    )
    try:
        model.mlp(example())
    finally:
        handle.remove()
    assert seen == ["Linear", "Linear", "Mlp"]
    assert counts(model)["mlp"].reasons == {"hooks": 1}


def test_an_inner_kernel_runs_where_the_outer_one_may_not() -> None:
    model, x = block(), example()
    apply(model, {"norm": norm_kernel(WRONG)})
    outer = make_kernel(RAISES, nn.Identity(), x, parameters=())
    apply(model, {"": outer})
    model(x)
    got = counts(model)
    assert (got[""].reasons, got["norm"].kernel) == ({"raised": 1}, 1)


def test_torch_compile_traces_the_kernel_and_its_guard() -> None:
    torch.compiler.reset()
    model, x = swapped(), example()
    compiled = torch.compile(model.norm, fullgraph=True, backend="eager")
    assert runs_kernel(compiled(x), model.norm, x)
    twice = {name: value * 2 for name, value in model.norm.state_dict().items()}
    model.norm.load_state_dict(twice, assign=True)
    model.norm.requires_grad_(False)
    assert runs_kernel(compiled(x), model.norm, x), "tensors that were replaced are read"
    wide = torch.cat([x, x])
    want = nn.functional.layer_norm(wide, (8,), model.norm.weight, model.norm.bias)
    assert torch.allclose(compiled(wide), want, atol=1e-5), "the original for other shapes"
    assert torch.allclose(compiled(x.t().contiguous().t()), want[:4], atol=1e-5)


def test_an_export_has_the_original() -> None:
    model, x = swapped(), example()
    program = torch.export.export(model.norm, (x,))
    want = nn.functional.layer_norm(x, (8,), model.norm.weight, model.norm.bias)
    assert torch.allclose(program.module()(x), want, atol=1e-5)


def test_the_other_mlp_has_its_own_names() -> None:
    class Other(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(16, 8), nn.Linear(8, 16)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.a(nn.functional.gelu(self.b(x)))

    torch.manual_seed(0)
    model, x = Other().eval().requires_grad_(False), example()
    want = model(x)
    names = ("b.weight", "b.bias", "a.weight", "a.bias")
    assert tuple(Mlp().state_dict()) == mlp_kernel().parameters
    apply(model, {"": mlp_kernel()}, {"": names})
    assert torch.allclose(model(x), want, atol=1e-5)
    assert counts(model)[""].kernel == 1
