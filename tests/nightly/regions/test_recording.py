"""Does a recording know every submodule's calls, and what keeps one from being a region?"""

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from agentkernel.domain.errors import ProblemError
from agentkernel.nightly.regions.recording import record, record_inputs
from agentkernel.tools.problem.call_arguments import BoundCall, UnboundCall, bind_call, describe
from tests.nightly.regions.region_models import WIDTH, Cache, FakeLoaded, Gate, Mlp, Tower, loaded


def recorded(make, *shape):
    source = loaded(make, *shape)
    module = source.build()
    return {item.path: item for item in record(source, module).calls}


class Both(nn.Module):
    """`inner` of a kind, called on what `call` gives it."""

    def __init__(self, inner, call=lambda inner, x: inner(x)):
        super().__init__()
        self.inner = inner
        self.call = call

    def forward(self, x):
        self.call(self.inner, x)
        return x + 1


class Function(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


def test_calls_are_counted_by_path_and_shape():
    def call(inner, x):
        return inner(x), inner(x), inner(x[:1])

    source = loaded(lambda: Both(nn.Linear(WIDTH, 4), call))
    module = source.build()
    calls = [item for item in record(source, module).calls if item.path == "inner"]
    assert [(item.specs, item.calls) for item in calls] == [
        (("float32[2,4,16]:64,16,1",), 2),
        (("float32[1,4,16]:1,16,1",), 1),
    ]


def test_no_memory_is_touched_and_no_hook_is_left():
    source = loaded(Tower)
    module = source.build()
    calls = record(source, module).calls
    tensors = [x for item in calls for x in item.arguments if isinstance(x, torch.Tensor)]
    assert tensors
    assert all(item.is_meta for item in tensors)
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in module.modules())


def test_equal_layers_have_equal_traces_whatever_their_number_says():
    calls = recorded(Tower)
    traces = {calls[f"layers.{index}.mlp"].trace for index in range(3)}
    assert len(traces) == 1
    assert calls["layers.0.mlp"].trace != calls["layers.0.gate"].trace


def test_a_swap_of_two_equal_parameters_is_another_trace():
    class Swap(nn.Module):
        def __init__(self, swap):
            super().__init__()
            self.a, self.b = nn.Parameter(torch.ones(4)), nn.Parameter(torch.ones(4))
            self.swap = swap

        def forward(self, x):
            first, second = (self.b, self.a) if self.swap else (self.a, self.b)
            return x * first - second

    straight, swapped = (
        recorded(lambda s=s: Both(Swap(s)), 2, 4)["inner"].trace for s in (False, True)
    )
    assert straight != swapped


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (lambda x: x, "it returns one of its inputs, or a view of it"),
        (lambda x: x.transpose(0, 1), "it returns one of its inputs, or a view of it"),
        (lambda x: {"y": x.mT}, "it returns one of its inputs, or a view of it"),
        (lambda x: (x + 1, 3), "it returns a tuple, no tensors in tuples, lists and dicts"),
        (lambda x: None, "it returns a NoneType, no tensors in tuples, lists and dicts"),
        (lambda x: {"y": x + 1, "z": [x + 2, None]}, None),
        (lambda x: torch.empty(3), "it does no work on the device"),
        (lambda x: (x + 1, None), None),
    ],
)
def test_what_is_returned_decides(function, reason):
    assert recorded(lambda: Both(Function(function)))["inner"].refused == reason


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (
            lambda inner, x: inner(x, mask=(x, {"a": [slice(3)]})),
            "argument \"mask[1]['a'][0]\" is a slice, no tensor or plain data",
        ),
        (
            lambda inner, x: inner(x, mask=torch.Size([1])),
            "argument 'mask' is a Size, no tensor or plain data",
        ),
        (
            lambda inner, x: inner(x, cache=Cache()),
            "argument 'cache' is a Cache, no tensor or plain data",
        ),
        (lambda inner, x: inner(x, mask=x[:0]), "argument 'mask' has no elements: [0, 4, 16]"),
        (lambda inner, x: inner(x, mask=x.to_sparse()), "argument 'mask' is a sparse tensor"),
        (lambda inner, x: inner(x, cache=1, mask=(x, {"a": [x, 2.5]})), None),
        (lambda inner, x: inner(x=x, cache=None), None),
    ],
)
def test_arguments_decide(call, reason):
    assert recorded(lambda: Both(Gate(), call))["inner"].refused == reason


def test_keywords_go_to_their_places_and_gaps_get_defaults():
    class Three(nn.Module):
        def forward(self, x, y=2, *, z=1):
            return x

    x = torch.ones(1)
    assert bind_call(Three(), (x,), {}) == BoundCall((x,), ("x",))
    assert bind_call(Three(), (), {"y": 5, "x": x}) == BoundCall((x, 5), ("x", "y"))
    assert bind_call(Three(), (x,), {"z": 1}) == BoundCall((x,), ("x",))
    named = bind_call(Three(), (x,), {"z": 2})
    assert (named.inputs, named.structure.text) == ((x,), "((*,), {'z': 2})")
    assert isinstance(bind_call(Three(), (3,), {}), UnboundCall)
    assert isinstance(bind_call(Three(), (x, 1, 2), {}), UnboundCall)
    assert bind_call(Gate(), (x,), {"mask": 1}) == BoundCall((x, 1), ("x", "mask"))


def test_strides_are_told_but_for_dimensions_of_one():
    x = torch.ones(4, 6).t()
    assert describe((x, 0.5, None)) == ("float32[6,4]:1,6", "0.5", "None")
    one = torch.ones(1, 6)
    assert describe((one,)) == describe((one.as_strided((1, 6), (99, 1)),))


class Routed(nn.Module):
    """As many rows as the values say go through `part`; all of them through `whole`."""

    def __init__(self):
        super().__init__()
        self.whole, self.part = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x):
        y = self.whole(x)
        return y.sum() + self.part(x[x[:, 0] > 0]).sum()


def test_shapes_that_depend_on_values_are_no_region():
    calls = recorded(Routed, 64, 4)
    assert calls["whole"].refused is None
    assert calls["part"].refused == "its shapes or ops change with the values of the inputs"


def test_a_forward_that_raises_is_one_line():
    source = loaded(lambda: nn.Linear(3, 3))
    with pytest.raises(ProblemError, match="The forward of model raised RuntimeError"):
        record(source, source.build())


def test_inputs_are_the_models_own_values_with_their_strides():
    class Wide(nn.Module):
        def __init__(self):
            super().__init__()
            self.mlp = Mlp()

        def forward(self, x):
            wide = x[:1].expand(3, 4, WIDTH)
            y = self.mlp(wide) + self.mlp(x[:, :, :]).sum()
            x.zero_()
            return y

    kept = []

    def inputs(generator):
        kept.append(torch.randn(2, 4, WIDTH, generator=generator))
        return (kept[-1].clone(),)

    source = FakeLoaded(Wide, inputs)
    wide, plain = record_inputs(source, source.build(), "mlp")
    assert wide.inputs[0].stride() == (0, WIDTH, 1)
    assert torch.equal(wide.inputs[0][2], kept[0][0])
    assert torch.equal(plain.inputs[0], kept[0])


class Counts(nn.Module):
    """Keeps what its forward computes: on itself, in a list, in an object, or on its child."""

    def __init__(self, how):
        super().__init__()
        self.how = how
        self.aux, self.losses, self.state = None, [], SimpleNamespace(seen=0)
        self.kept = {"last": [None]}
        self.child = nn.Identity()
        self.child.value = torch.zeros(2)

    def forward(self, x):
        y = torch.relu(x) * 2
        if self.how == "aux":
            self.aux = y.square().mean()
        elif self.how == "losses":
            self.losses.append(y.mean())
        elif self.how == "state":
            self.state.seen += 1
        elif self.how == "kept":
            self.kept["last"][0] = y.mean()
        elif self.how == "child.value":
            self.child.value = y.mean()
        return y


@pytest.mark.parametrize("how", ["aux", "losses", "state", "kept", "child.value", ""])
@pytest.mark.parametrize("real", [False, True])
def test_what_a_forward_keeps_is_no_region_and_is_taken_back(how, real):
    def call(inner, x):
        return inner(x) if not real or x.sum() < 1e9 else x

    source = loaded(lambda: Both(Counts(how), call))
    module = source.build()
    inner, value, last = module.inner, module.inner.child.value, module.inner.kept["last"]
    found = {item.path: item.refused for item in record(source, module).calls}
    reason = f"it sets its attribute {how!r}" if how else None
    assert found["inner"] == reason
    record_inputs(source, module, "inner")
    assert (inner.aux, inner.losses, inner.state.seen) == (None, [], 0)
    assert inner.kept["last"] is last
    assert last == [None]
    assert inner.child.value is value
    assert type(value) is torch.Tensor
