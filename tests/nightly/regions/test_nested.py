"""Does a region whose calls are nested come through cut, signature, problem and kernel?"""

from __future__ import annotations

import copy
import re

import cloudpickle
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.utils._pytree import tree_leaves, tree_structure

from agentkernel.domain.errors import KernelRefused
from agentkernel.domain.problem import DataStructure
from agentkernel.domain.region import Kernel
from agentkernel.nightly.regions.cut import RegionCall, cut_model, region_problem
from agentkernel.swap.swap import apply, counts, restore
from agentkernel.tools.problem.call_arguments import BoundCall, bind_call
from agentkernel.tools.problem.structures import FlatData, flatten_data, unflatten_data, values_of
from agentkernel.tools.targets import load_targets
from tests.nightly.regions.region_models import WIDTH, Cache, FakeLoaded, loaded
from tests.swap.applied_kernels import HEAD, make_kernel

H100 = load_targets()["h100-sxm"]
TENSOR = torch.ones(1)


class Mix(nn.Module):
    """x * weight, and every other tensor of the call times its number."""

    def __init__(self, returns: DataStructure | None = None) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(WIDTH))
        self.returns = returns
        self.values = {} if returns is None else values_of(returns)

    def forward(
        self, x: torch.Tensor, data: object = None, *, mask: object = None, **rest: object
    ) -> object:
        given = (data, mask, [rest[key] for key in sorted(rest)])
        total = x * self.weight
        tensors = [item for item in tree_leaves(given) if isinstance(item, torch.Tensor)]
        for index, item in enumerate(tensors):
            total = total + (index + 1) * item
        if self.returns is None:
            return total
        return unflatten_data(
            self.returns, [total + index for index in range(self.returns.tensors)], self.values
        )


class Outer(nn.Module):
    """Calls `inner` on `structure`, a pair of arguments and keywords, filled with tensors."""

    def __init__(self, structure: DataStructure, returns: DataStructure | None = None) -> None:
        super().__init__()
        self.structure = structure
        self.inner = Mix(returns)

    def forward(self, x: torch.Tensor) -> object:
        args, kwargs = unflatten_data(
            self.structure, [x * (index + 2) for index in range(self.structure.tensors)]
        )
        return self.inner(x, *args, **kwargs)


def structure_of(value: object) -> DataStructure:
    found = flatten_data(value)
    assert isinstance(found, FlatData)
    return found.structure


def mixed(args: object = (), kwargs: object = None, returns: object = TENSOR) -> FakeLoaded:
    """A model whose inner call is given by example; tensors stand for tensors."""
    call = structure_of((args, kwargs or {}))
    out = structure_of(returns)
    return loaded(lambda: Outer(call, None if out.kind == "tensor" else out))


def source_of(call: RegionCall, offset: float = 0.0) -> str:
    """The region in torch alone, on tensors by position. `weight` is its only parameter."""
    inputs = call.problem.live_inputs
    numbers = [i for i, item in enumerate(inputs) if isinstance(item, torch.Tensor)][1:]
    terms = [f" + {n + 1} * t[{i}]" for n, i in enumerate(numbers)]
    outputs = 1 if call.returns is None else call.returns.tensors
    flat = ", ".join(f"total + {index}" for index in range(outputs))
    return (
        HEAD
        + f"""        self.weight = nn.Parameter(torch.empty({WIDTH}))

    def forward(self, *t):
        total = t[0] * self.weight{"".join(terms)} + {offset}
        return ({flat}) if {outputs} > 1 else total
"""
    )


def kernel_of(call: RegionCall, offset: float = 0.0) -> Kernel:
    module = call.problem.live
    assert module is not None
    return make_kernel(
        source_of(call, offset),
        module,
        *call.problem.live_inputs,
        parameters=call.parameters,
        signature=call.signature,
        arguments=call.arguments,
        returns=call.returns,
    )


def same(one: object, two: object) -> bool:
    pairs = zip(tree_leaves(one), tree_leaves(two), strict=True)
    return tree_structure(one) == tree_structure(two) and all(
        (a is None and b is None) or torch.allclose(a, b, atol=1e-5) for a, b in pairs
    )


LEAVES = st.sampled_from([TENSOR, TENSOR, None, 2, 0.5, True, "a"])
DATA = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=2),
        st.lists(inner, max_size=2).map(tuple),
        st.dictionaries(st.sampled_from(["a", "b"]), inner, max_size=2),
    ),
    max_leaves=5,
)
RETURNS = st.sampled_from(
    [
        TENSOR,
        {"out": TENSOR, "none": None},
        (TENSOR, None, (TENSOR, [TENSOR])),
        [TENSOR, (TENSOR,)],
        {"only": (TENSOR,)},
    ]
)


@pytest.mark.slow
@settings(max_examples=6, deadline=None, derandomize=True)
@given(
    args=st.lists(DATA, max_size=1).map(tuple),
    kwargs=st.dictionaries(st.sampled_from(["mask", "cos", "zed"]), DATA, max_size=2),
    returns=RETURNS,
)
def test_from_the_cut_to_the_kernel_and_back(
    args: tuple[object, ...], kwargs: dict[str, object], returns: object
) -> None:
    source = mixed(args, kwargs, returns)
    region = next(item for item in cut_model(source, H100).regions if item.uses[0].path == "inner")
    call = region_problem(source, "inner", signature=region.signature)
    assert (call.signature, call.parameters) == (region.signature, region.uses[0].parameters)
    problem = call.problem
    wanted = problem.build(seed=0)(*problem.make_inputs(seed=0))
    leaves = wanted if isinstance(wanted, tuple) else (wanted,)
    assert all(isinstance(item, torch.Tensor) for item in leaves)

    model, (x,) = source.build(), source.make_call(seed=3).args
    want = model(x)
    apply(model, {"inner": kernel_of(call)}, {"inner": call.parameters})
    assert same(model(x), want)
    assert counts(model)["inner"].kernel == 1
    assert counts(model)["inner"].reasons == {}
    restore(model)
    assert type(model.inner) is Mix
    assert vars(model.inner).keys() == vars(source.build().inner).keys()
    assert same(model(x), want)


def signature(args: object = (), kwargs: object = None, returns: object = TENSOR) -> str:
    return region_problem(mixed(args, kwargs, returns), "inner").signature


def test_a_keyword_and_its_position_are_one_region() -> None:
    pair = (TENSOR, TENSOR)
    assert signature((pair,)) == signature((), {"data": pair})
    assert signature((pair,), {"zed": None}) == signature((pair,))


@pytest.mark.slow
def test_equal_tensors_in_another_structure_are_another_region() -> None:
    t = TENSOR
    calls = [
        ((), {"data": (t, t)}),
        ((), {"data": [t, t]}),
        ((), {"data": (t, (t,))}),
        ((), {"data": (t, t, None)}),
        ((), {"data": {"a": t, "b": t}}),
        ((), {"data": t, "mask": t}),
        ((), {"data": t, "zed": t}),
    ]
    assert len({signature(*call) for call in calls}) == len(calls)
    outputs = [{"a": t}, {"b": t}, (t, (None,)), t]
    assert len({signature((), {}, item) for item in outputs}) == len(outputs)


def test_a_plain_call_has_no_structure() -> None:
    call = region_problem(mixed((TENSOR,)), "inner")
    assert (call.arguments, call.returns) == (None, None)
    assert type(call.problem.live) is Mix


def test_the_inputs_of_the_problem_have_names() -> None:
    call = region_problem(mixed(((TENSOR, None),), {"mask": {"in": TENSOR}}), "inner")
    specs = call.problem.problem.shape_sets[0].inputs
    assert [item.name for item in specs] == ["x", "data_0", "mask_in"]
    assert call.problem.problem.class_name == "Mix"
    assert call.arguments is not None
    assert call.arguments.text == "((*, (*, None)), {'mask': {'in': *}})"


def test_names_that_are_alike_are_told_apart() -> None:
    bound = bind_call(
        Mix(), (TENSOR, {"a b": TENSOR, "a_b": TENSOR}), {"data_a": None, "lambda": TENSOR}
    )
    assert isinstance(bound, BoundCall)
    assert bound.names == ("x", "data_a_b", "data_a_b_", "input_lambda")


def test_a_problem_goes_to_another_process() -> None:
    call = region_problem(mixed(((TENSOR, TENSOR),), {}, {"a": TENSOR}), "inner")
    module = cloudpickle.loads(cloudpickle.dumps(call.problem.live))
    inputs = call.problem.live_inputs
    assert list(module.state_dict()) == ["weight"]
    assert torch.equal(module(*inputs), call.problem.build(seed=0)(*inputs))
    double = copy.deepcopy(module).double()(*inputs)
    assert torch.allclose(double.float(), module(*inputs), atol=1e-5)


SWAPPED = 1000.0


def swapped() -> nn.Module:
    """Its kernel, off by a thousand, is for a pair and a mask by keyword."""
    source = mixed(((TENSOR, None),), {"mask": [TENSOR, 2]})
    model = source.build()
    apply(model, {"inner": kernel_of(region_problem(source, "inner"), SWAPPED)})
    return model


X = torch.randn(2, 4, WIDTH)


@pytest.mark.quick(3)
@pytest.mark.parametrize(
    ("args", "kwargs", "reason"),
    [
        (((X, None),), {"mask": [X, 2]}, None),
        ((), {"mask": [X, 2], "data": (X, None), "zed": None}, None),
        (([X, None],), {"mask": [X, 2]}, "arguments"),
        (((X,),), {"mask": [X, 2]}, "arguments"),
        (((X, X),), {"mask": [X, 2]}, "arguments"),
        ((X,), {"mask": [X, 2]}, "arguments"),
        (((X, None),), {"mask": [X, 3]}, "arguments"),
        (((X, None),), {"mask": [X, True]}, "arguments"),
        (((X, None),), {}, "arguments"),
        (((X, None),), {"mask": [X, 2], "zed": 1}, "arguments"),
        (((X[:1], None),), {"mask": [X, 2]}, "shape"),
        (((None, None),), {"mask": [X, 2]}, "type"),
        (((X.double(), None),), {"mask": [X, 2]}, "dtype"),
    ],
)
def test_another_call_runs_the_original(
    args: tuple[object, ...], kwargs: dict[str, object], reason: str | None
) -> None:
    inner = swapped().get_submodule("inner")
    found = inner(X, *args, **kwargs)
    assert counts(inner)[""].reasons == ({} if reason is None else {reason: 1})
    restore(inner)
    want = inner(X, *args, **kwargs)
    assert torch.allclose(
        found - want, torch.tensor(SWAPPED if reason is None else 0.0).to(found), atol=1e-2
    )


def test_torch_compile_traces_a_nested_call() -> None:
    torch.compiler.reset()
    source = mixed(
        ((TENSOR, None),), {"mask": {"a": TENSOR}}, {"out": TENSOR, "two": (TENSOR, None)}
    )
    model = source.build()
    inner = model.get_submodule("inner")
    want = inner(X, (X, None), mask={"a": X})
    apply(model, {"inner": kernel_of(region_problem(source, "inner"), SWAPPED)})
    compiled = torch.compile(inner, fullgraph=True, backend="eager")
    found = compiled(X, (X, None), mask={"a": X})
    assert tree_structure(found) == tree_structure(want)
    assert torch.allclose(found["out"] - want["out"], torch.tensor(SWAPPED), atol=1e-2)
    other = compiled(X, (X, 1), mask={"a": X})
    assert torch.allclose(other["out"], want["out"], atol=1e-5)


def test_a_copy_keeps_its_kernel() -> None:
    model = copy.deepcopy(swapped())
    model(X)
    assert counts(model)["inner"].kernel == 1


def test_a_structure_of_another_number_of_tensors_is_refused() -> None:
    source = mixed(((TENSOR, None),))
    kernel = kernel_of(region_problem(source, "inner"))
    other = kernel.evolve(arguments=structure_of(((TENSOR,), {})))
    with pytest.raises(KernelRefused, match=r"has 2 inputs, and its arguments .* hold 1 tensors"):
        apply(source.build(), {"inner": other})


class Odd(nn.Module):
    """Does to its arguments what no kernel does."""

    def __init__(self, what: str) -> None:
        super().__init__()
        self.what = what

    def forward(self, x: torch.Tensor, data: list[torch.Tensor], out: object = None) -> object:
        if self.what == "in place":
            data[0].add_(1)
        if self.what == "appends":
            data.append(x + 1)
        if self.what == "replaces":
            data[0] = x + 1
        if self.what == "branches" and x.sum() > 0:
            return x - 1
        if self.what == "aliases":
            return {"a": x + 1, "b": (data[0].mT,)}
        return x + 2


class Around(nn.Module):
    def __init__(self, what: str, third: object = None) -> None:
        super().__init__()
        self.inner, self.third = Odd(what), third

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.inner(x, [x * 2], self.third)
        return x * 3


@pytest.mark.parametrize(
    ("what", "third", "reason"),
    [
        ("in place", None, "it writes to its input 'data_0'"),
        ("appends", None, "it changes its arguments"),
        ("replaces", None, "it changes its arguments"),
        ("branches", None, "change with the values|branches on tensor values"),
        ("aliases", None, "it returns one of its inputs, or a view of it"),
        ("", Cache(), "argument 'out' is a Cache, no tensor or plain data"),
        ("", (torch.ones(0),), r"argument 'out\[0\]' has no elements: \[0\]"),
    ],
)
def test_what_stays_refused_says_why(what: str, third: object, reason: str) -> None:
    cut = cut_model(loaded(lambda: Around(what, third)), H100)
    assert not [use for region in cut.regions for use in region.uses if use.path]
    (refused,) = [item for item in cut.refused if item.path == "inner"]
    assert re.search(reason, refused.reason)
