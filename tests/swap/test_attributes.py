"""A replaced attribute that the kernel has as a constant brings the original back."""

from __future__ import annotations

import functools
import threading
from collections import deque
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.nn import functional

from agentkernel.swap.swap import apply, counts, swap_of
from tests.swap.applied_kernels import HEAD, example, make_kernel
from tests.swap.compiled_kernels import Graphs

SOURCE = (
    HEAD
    + """
    def forward(self, x):
        return torch.relu(x) * 3.0 * 0.5 + 1.5 + 0 * torch.cos(x)
"""
)


class Knobs(nn.Module):
    """Reads what is no number: a function, a list, an object, and its class."""

    bias = 0.5

    def __init__(self) -> None:
        super().__init__()
        self.act: Callable[[torch.Tensor], torch.Tensor] = functional.relu
        self.shift = [1.5]
        self.options = {"a": [1, 2]}
        self.config = SimpleNamespace(gain=3.0)
        self.pair: tuple[object, object] = (torch.ones(3), 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.act(x) * self.config.gain * self.bias + self.shift[0]


class Odd(Knobs):
    """Holds what a compiler seldom meets."""

    def __init__(self) -> None:
        super().__init__()
        self.lock = threading.Lock()
        self.queue = deque([1])
        self.part = functools.partial(functional.gelu, approximate="tanh")
        self.hidden = [nn.Identity()]
        self.device = torch.device("cpu")
        self.bound = self.extra_repr


def with_kernel(kind: type[Knobs] = Knobs) -> Knobs:
    model = kind().eval()
    apply(model, {"": make_kernel(SOURCE, model)})
    return model


def in_class(model: nn.Module) -> None:
    Knobs.bias = -3.0


CHANGES: dict[str, Callable[[Knobs], None]] = {
    "function": lambda model: setattr(model, "act", functional.gelu),
    "list": lambda model: setattr(model, "shift", [-9.0]),
    "object": lambda model: setattr(model, "config", SimpleNamespace(gain=-1.0)),
    "dict": lambda model: setattr(model, "options", {"a": [1, 3]}),
    "class": in_class,
    "before the class": lambda model: setattr(model, "bias", 7.0),
}


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch.compiler.reset()
    yield
    Knobs.bias = 0.5
    torch.compiler.reset()


@pytest.mark.quick(3)
@pytest.mark.parametrize("change", CHANGES)
def test_what_is_replaced_runs_the_original(change: str) -> None:
    model, twin, x = with_kernel(), Knobs().eval(), example()
    assert torch.allclose(model(x), twin(x))
    model(x)
    CHANGES[change](model)
    CHANGES[change](twin)
    assert torch.equal(model(x), twin(x))
    found = counts(model)[""]
    assert (found.kernel, found.reasons) == (2, {"attributes": 1})


@pytest.mark.quick(2)
@pytest.mark.parametrize("change", CHANGES)
def test_what_is_replaced_after_compiling_runs_the_original(change: str) -> None:
    model, twin, x, graphs = with_kernel(), Knobs().eval(), example(), Graphs()
    compiled = torch.compile(model, fullgraph=True, backend=graphs)
    assert torch.allclose(compiled(x), twin(x))
    assert graphs.marks("cos") == [1]
    CHANGES[change](model)
    CHANGES[change](twin)
    assert torch.allclose(compiled(x), twin(x))
    assert graphs.marks("cos") == [1, 0]


def test_a_guard_that_is_traced_has_no_objects() -> None:
    model, twin, x, graphs = with_kernel(), Knobs().eval(), example(), Graphs()
    swap = swap_of(model)
    swap.traced = None
    compiled = torch.compile(model, fullgraph=True, backend=graphs)
    assert torch.allclose(compiled(x), twin(x))
    assert graphs.marks("cos") == [0]


class Plain(nn.Module):
    """All that it reads is a constant to the compiler."""

    bias = 0.5

    def __init__(self) -> None:
        super().__init__()
        self.pair = (3.0, 1.5)
        self.spare = torch.ones(3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x) * self.pair[0] * self.bias + self.pair[1]


@pytest.mark.quick(1)
@pytest.mark.parametrize(("name", "value"), [("bias", -3.0), ("pair", (3.0, -1.0))])
def test_a_guard_that_is_traced_sees_constants(
    monkeypatch: pytest.MonkeyPatch, name: str, value: object
) -> None:
    model, twin, x, graphs = Plain().eval(), Plain().eval(), example(), Graphs()
    apply(model, {"": make_kernel(SOURCE, model)})
    swap = swap_of(model)
    assert swap.traced is None, "a tensor has no literal"
    compiled = torch.compile(model, fullgraph=True, backend=graphs)
    assert torch.allclose(compiled(x), twin(x))
    assert graphs.marks("cos") == [1]
    if name in vars(Plain):
        monkeypatch.setattr(Plain, name, value)
    else:
        setattr(model, name, value)
        setattr(twin, name, value)
    assert torch.allclose(compiled(x), twin(x))
    assert graphs.marks("cos") == [1, 0]


def test_what_a_compiler_seldom_meets_breaks_no_graph() -> None:
    model = Odd().eval()
    apply(model, {"": make_kernel(SOURCE, model)})
    graphs, x = Graphs(), example()
    compiled = torch.compile(model, fullgraph=True, backend=graphs)
    assert torch.allclose(compiled(x), Odd().eval()(x))
    assert graphs.marks("cos") == [1]


def test_a_list_that_grows_is_seen_by_a_compiled_model() -> None:
    model, x, graphs = with_kernel(), example(), Graphs()
    compiled = torch.compile(model, fullgraph=True, backend=graphs)
    compiled(x)
    model.shift[0] = -9.0
    assert torch.allclose(compiled(x), Knobs().eval()(x) - 10.5)
    assert graphs.marks("cos") == [1, 0]


def test_an_equal_tuple_with_a_tensor_falls_back() -> None:
    model, x = with_kernel(), example()
    tensor = model.pair[0]
    model.pair = (tensor, 2)
    model(x)
    model.pair = (tensor, 2.0)
    model(x)
    model.pair = (torch.ones(3), 2)
    model(x)
    found = counts(model)[""]
    assert (found.kernel, found.reasons) == (1, {"attributes": 2})
