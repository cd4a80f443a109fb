"""Capture sees what the module computes, and names what it cannot take."""

import inspect
import time
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import sympy
import torch
from torch import nn
from torch._decomp import decomposition_table
from torch._export import utils
from torch._ops import OperatorBase
from torch._subclasses.fake_impls import op_implementations_dict
from torch.export import exported_program
from torch.utils._sympy.functions import Mod

from agentkernel.domain.errors import ProblemError
from agentkernel.domain.problem import ShapeSet, TensorSpec
from agentkernel.tools.problem.capture import FreeDim, capture
from agentkernel.tools.problem.composite_operators import kept_tables
from agentkernel.tools.problem.loading import load_problem, problem_from_module
from agentkernel.tools.problem.specialise import specialise


class Norm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.ln = nn.LayerNorm(8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu_(self.ln(x))


class Branch(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x if x.sum() > 0 else -x


class Square(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ x


class Structured(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = torch.arange(8.0)

    def forward(self, x: torch.Tensor, k: int) -> dict[str, object]:
        return {"a": x * self.scale, "b": None, "c": [x + k]}


class Head(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8 * 9, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(nn.functional.max_pool2d(x, 2).flatten(1))


class Pooled(nn.Module):
    """The head of a small MobileNet, whose sizes torch cannot solve for: what pooling leaves is one
    place."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 4, 3, 4, 1), nn.AvgPool2d(7))
        self.head = nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(x).view(x.shape[0], -1))


class Statistics(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.bn = nn.BatchNorm1d(8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        bn = self.bn
        return nn.functional.batch_norm(x, bn.running_mean, bn.running_var, training=True)


def _targets(graph: torch.fx.GraphModule) -> list[str]:
    return [str(node.target) for node in graph.graph.nodes if node.op == "call_function"]


def test_a_norm_stays_whole_functional_and_its_batch_stays_free() -> None:
    captured = capture(problem_from_module(Norm(), (torch.randn(4, 8),)))
    assert _targets(captured.graph) == ["aten.layer_norm.default", "aten.relu.default"]
    assert captured.parameters == {"p_ln_weight": "ln.weight", "p_ln_bias": "ln.bias"}
    (free,) = captured.free_dims
    assert free == FreeDim(free.symbol, 0, 0, 4)
    assert captured.static_reason is None


def test_a_failed_trace_of_free_sizes_leaves_nothing_to_that_of_the_declared_ones() -> None:
    captured = capture(problem_from_module(Pooled(), (torch.randn(2, 3, 28, 28),)))
    assert captured.static_reason is not None
    assert captured.free_dims == ()


def test_values_carry_no_memory() -> None:
    problem = problem_from_module(Norm(), (torch.empty(1 << 40, 8, device="meta"),))
    (free,) = capture(problem).free_dims
    assert free.size == 1 << 40


def test_plain_tensors_scalars_and_nested_outputs() -> None:
    captured = capture(problem_from_module(Structured(), (torch.randn(4, 8), 3)))
    assert (captured.user_inputs, list(captured.constants.values())) == (("x", "k"), ["scale"])
    assert [name is None for name in captured.outputs] == [False, True, False]


class Gated(nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.relu(x) * y


@pytest.mark.quick(1)
@pytest.mark.parametrize("order", [(1, 8, 33), (8, 1, 33), (33, 8, 1)])
def test_a_size_of_one_that_another_set_lets_vary_stays_free(order: tuple[int, ...]) -> None:
    problem = problem_from_module(Gated(), (torch.randn(4, 8), torch.randn(4, 8)))
    names = ("x", "y")
    sets = tuple(
        ShapeSet(
            inputs=tuple(TensorSpec(name=name, dtype="float32", shape=(b, 8)) for name in names)
        )
        for b in order
    )
    several = replace(problem, problem=problem.problem.evolve(shape_sets=sets), live_inputs=())
    captured = capture(several)
    free = [dim for dim in captured.free_dims if dim.dim == 0]
    assert [dim.size for dim in free] == [order[0]] * 2
    assert all(captured.admits({free[0].symbol: b, free[1].symbol: b}) for b in order)


class Constants(nn.Module):
    """Tensors that forward makes of numbers: here, on its input's device, with dimensions."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        low = torch.min(x, torch.tensor(0.5)) + torch.tensor(3, device=x.device)
        return low * torch.tensor([1.0, float("inf")], device=x.device)


def test_tensors_of_numbers_are_calls_or_have_a_text() -> None:
    captured = capture(problem_from_module(Constants(), (torch.randn(4, 2),)))
    made = [node.args for node in captured.graph.graph.nodes if "full" in str(node.target)]
    assert sorted(made) == [([], 0.5), ([], 3)]
    (path,) = captured.constants.values()
    text = 'torch.tensor([1.0, float("inf")], dtype=torch.float32)'
    assert captured.literals == {path: text}


def test_training_statistics_are_listed_as_mutations() -> None:
    captured = capture(problem_from_module(Statistics(), (torch.randn(4, 8),)))
    assert captured.mutated_buffers == ("bn.running_mean", "bn.running_var")


class Keeps(nn.Module):
    """Keeps a number, a tensor, an entry of a list, or something on its child."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how, self.calls, self.table = how, 0, torch.ones(8)
        self.child = nn.Identity()
        self.seen: list[torch.Tensor] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(x) * self.table
        if self.how == "calls":
            self.calls += 1
        if self.how == "table":
            self.table = y.mean()
        if self.how == "seen":
            self.seen.append(y)
        if self.how == "child.last":
            self.child.last = y
        return y


@pytest.mark.quick(1)
@pytest.mark.parametrize("how", ["calls", "table", "seen", "child.last", ""])
def test_an_attribute_that_forward_sets_is_named_and_taken_back(how: str) -> None:
    module = Keeps(how).eval()
    table = module.table
    assert capture(problem_from_module(module, (torch.randn(4, 8),))).side_effect == (how or None)
    assert (module.calls, module.seen, hasattr(module.child, "last")) == (0, [], False)
    assert module.table is table
    assert not module._forward_hooks
    assert not module._forward_pre_hooks


class Elsewhere(nn.Module):
    """Computes with a tensor that stays on the CPU when the module and its inputs move."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * torch.arange(8)


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (Branch(), "branches on tensor values"),
        (Square(), "on inputs x float32[4, 8]"),
        (Elsewhere(), "makes a tensor on the CPU"),
    ],
)
def test_one_clear_line_for_what_cannot_be_captured(
    module: nn.Module, message: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ProblemError) as raised:
        capture(problem_from_module(module, (torch.randn(4, 8),)))
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)
    assert capfd.readouterr().err == ""


def test_sizes_with_which_a_guard_divides_by_zero_are_not_admitted() -> None:
    captured = capture(problem_from_module(Head(), (torch.randn(4, 8, 6, 6),)))
    height, width = (dim for dim in captured.free_dims if dim.dim > 1)
    declared = {dim.symbol: dim.size for dim in captured.free_dims}
    assert captured.admits(declared)
    assert captured.admits(declared | {height.symbol: 7, width.symbol: 7})
    assert not captured.admits(declared | {height.symbol: 1}), "a pool over nothing"


def test_sizes_with_which_a_guard_takes_the_rest_of_a_negative_number_are_not_admitted() -> None:
    captured = capture(problem_from_module(Norm(), (torch.randn(4, 8),)))
    rows = captured.free_dims[0]
    size = sympy.Symbol(rows.symbol, positive=True, integer=True)
    guarded = replace(captured, guards=(sympy.Eq(Mod(size - 2, 2), 0),))
    assert guarded.admits({rows.symbol: 4})
    assert not guarded.admits({rows.symbol: 5})
    assert not guarded.admits({rows.symbol: 1})


@pytest.fixture
def library() -> Iterator[torch.library.Library]:
    """A library of operators that is gone after the test."""
    with torch.library._scoped_library("agentkernel_capture", "DEF") as found:
        yield found


class Doubled(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        doubled: torch.Tensor = torch.ops.agentkernel_capture.doubled(x)
        return doubled + 1


def _kernels(table: Iterable[OperatorBase]) -> list[tuple[str, object, str, str]]:
    """Every kernel of these operators, and their rules for fake tensors, by what it calls."""
    rules = [(str(item), None, op_implementations_dict.get(item)) for item in table]
    kernels = [(str(item), key, call) for item in table for key, call in item.py_kernels.items()]
    return [(name, key, *_called(call)) for name, key, call in [*rules, *kernels]]


def _called(call: object) -> tuple[str, str]:
    function = call.func if isinstance(call, partial) else call
    given = [*call.args, *call.keywords.values()] if isinstance(call, partial) else []
    bound = [_called(value) if isinstance(value, partial) else str(value) for value in given]
    return getattr(function, "__qualname__", repr(function)), str(bound)


@pytest.mark.slow
def test_torch_has_the_tables_that_it_would_have_made() -> None:
    capture(problem_from_module(Norm(), (torch.randn(4, 8),)))
    table, _ = exported_program._split_decomp_table_to_cia_and_python_decomp({})
    before = _kernels(table)
    with exported_program._override_composite_implicit_decomp(table):
        made = _kernels(table)
    assert len(made) > 10 * len(table)
    with kept_tables(), exported_program._override_composite_implicit_decomp(table):
        assert sorted(map(str, _kernels(table))) == sorted(map(str, made))
    assert _kernels(table) == before


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    ("module", "value"),
    [
        (Norm(), torch.randn(4, 8)),
        (Head(), torch.randn(4, 8, 6, 6)),
        (Statistics(), torch.randn(4, 8)),
        (nn.MultiheadAttention(8, 2, batch_first=True), torch.randn(2, 4, 8)),
        (nn.GRU(8, 8), torch.randn(3, 2, 8)),
    ],
    ids=lambda given: type(given).__name__,
)
def test_the_graph_is_the_one_of_a_torch_left_alone(
    module: nn.Module, value: torch.Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    inputs = (value,) * (3 if isinstance(module, nn.MultiheadAttention) else 1)
    problem = problem_from_module(module, inputs)
    ours = capture(problem)
    monkeypatch.setattr("agentkernel.tools.problem.composite_operators.KNOWN_TORCH", ())
    theirs = capture(problem)
    assert (ours.graph.code, ours.guards) == (theirs.graph.code, theirs.guards)


def test_torch_makes_its_tables_once(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = problem_from_module(Norm(), (torch.randn(4, 8),))
    capture(problem)
    capture(problem)
    override = exported_program._override_composite_implicit_decomp
    collect = utils._materialize_cpp_cia_ops
    asked: list[int] = []

    def listed() -> None:
        asked.append(-1)
        collect()

    def counted(table: dict[OperatorBase, object]) -> AbstractContextManager[None]:
        asked.append(len(table))
        return override(table)

    monkeypatch.setattr(exported_program, "_override_composite_implicit_decomp", counted)
    monkeypatch.setattr(utils, "_materialize_cpp_cia_ops", listed)
    capture(problem)
    assert asked == [-1, 0], "the operators are listed once, none gets its kernels anew"
    assert exported_program._override_composite_implicit_decomp is counted, "it is put back"


def test_a_composite_operator_that_comes_later_stays_whole(library: torch.library.Library) -> None:
    capture(problem_from_module(Norm(), (torch.randn(4, 8),)))
    library.define("doubled(Tensor x) -> Tensor")  # type: ignore[no-untyped-call]
    library.impl("doubled", lambda x: x * 2, "CompositeImplicitAutograd")  # type: ignore[no-untyped-call]
    problem = problem_from_module(Doubled(), (torch.randn(4, 8),))
    whole = ["agentkernel_capture.doubled.default", "aten.add.Tensor"]
    assert _targets(capture(problem).graph) == whole
    operator = torch.ops.agentkernel_capture.doubled.default

    @operator.py_impl(torch._C.DispatchKey.CompositeImplicitAutograd)
    def tripled(x: torch.Tensor) -> torch.Tensor:
        return x * 3

    assert _targets(capture(problem).graph) == whole
    assert operator.py_kernels[torch._C.DispatchKey.CompositeImplicitAutograd] is tripled


def test_without_the_names_of_torch_nothing_is_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(utils, "_materialize_cpp_cia_ops")
    override = exported_program._override_composite_implicit_decomp
    with kept_tables():
        assert exported_program._override_composite_implicit_decomp is override


class Given(nn.Module):
    """Keeps a tensor that its constructor is given, as parameter or buffer."""

    def __init__(self, weight: torch.Tensor, *, learned: bool = True) -> None:
        super().__init__()
        if learned:
            self.weight = nn.Parameter(weight)
        else:
            self.register_buffer("weight", weight)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ self.weight


@pytest.mark.parametrize("learned", [True, False])
def test_a_tensor_given_to_the_constructor_stays_real(tmp_path: Path, learned: bool) -> None:
    own = inspect.getsource(Given).replace("= True", f"= {learned}").replace("Given", "Model")
    path = tmp_path / "problem.py"
    path.write_text(
        f"import torch\nfrom torch import nn\n\n\n{own}\n\n"
        "def get_inputs():\n    return [torch.randn(4, 8)]\n\n\n"
        f"def get_init_inputs():\n    return [torch.ones(8, 2)]\n"
    )
    captured = capture(load_problem(str(path)))
    assert list(captured.parameters.values()) == ["weight"]


class Losses(nn.Module):
    """A loss of each sample, under the shape of the batch."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        losses = nn.functional.cross_entropy(x.flatten(0, 1), y.flatten(), reduction="none")
        return losses.view(y.shape)


def test_losses_of_samples_have_a_shape_with_free_sizes() -> None:
    table = dict(decomposition_table)
    inputs = (torch.randn(4, 7, 9), torch.randint(0, 9, (4, 7)))
    captured = capture(problem_from_module(Losses(), inputs))
    losses, viewed = list(captured.graph.graph.nodes)[-3:-1]
    assert losses.meta["val"].ndim == 1
    assert viewed.meta["val"].ndim == 2
    assert captured.free_dims
    assert dict(decomposition_table) == table


class Recurrent(nn.Module):
    """All results of a recurrent layer."""

    def __init__(self, layer: nn.RNNBase) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: torch.Tensor) -> object:
        return self.layer(x)


@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("both", [False, True])
@pytest.mark.parametrize("cell", [nn.LSTM, nn.GRU, nn.RNN])
def test_a_recurrent_layer_is_traced_by_the_shapes_of_its_results(
    cell: type[nn.RNNBase], both: bool, batch_first: bool
) -> None:
    module = Recurrent(cell(6, 4, 2, batch_first=batch_first, bidirectional=both)).eval()
    x = torch.randn(3, 5, 6)
    captured = capture(problem_from_module(module, [x]))
    assert len(captured.free_dims) == 2
    fixed = {node.name: node.meta.get("val") for node in specialise(captured).graph.graph.nodes}
    eager = torch.utils._pytree.tree_leaves(module(x))
    for name, theirs in zip(captured.outputs, eager, strict=True):
        ours = fixed[name]
        assert (ours.shape, ours.stride(), ours.dtype) == (
            theirs.shape, theirs.stride(), theirs.dtype
        )  # fmt: skip


def test_a_trace_of_a_recurrent_layer_takes_no_longer_for_more_steps() -> None:
    module = Recurrent(nn.LSTM(8, 8, 6)).eval()
    begin = time.monotonic()
    capture(problem_from_module(module, [torch.randn(2000, 2, 8)]))
    assert time.monotonic() - begin < 30  # stepping through takes minutes
    assert torch.ops.aten.lstm.input.py_kernels, "what torch has of its own is back"
