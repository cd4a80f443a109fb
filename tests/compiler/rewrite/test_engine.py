"""The engine stops, keeps what it must keep, and takes back what does not pay."""

import itertools

import pytest
import torch
from hypothesis import given
from torch import fx, nn

from agentkernel.compiler.rewrite import RULES, Change, Rule, rewrite
from agentkernel.compiler.rewrite.draft import Draft
from agentkernel.tools.problem.capture import capture
from agentkernel.tools.problem.loading import problem_from_module
from tests.compiler.random_graphs import RandomGraph, random_graphs
from tests.compiler.rewrite.checks import PROPERTY, checked, ops_of

F = nn.functional
Tensor = torch.Tensor


@PROPERTY
@given(drawn=random_graphs())
def test_random_graphs_stay_the_same(drawn: tuple[RandomGraph, tuple[Tensor, Tensor]]) -> None:
    module, inputs = drawn
    result = checked(module, inputs, specials=False, seeds=1)
    units = [(step.before.units, step.after.units) for step in result.rewritten.steps]
    assert all(after < before for before, after in units)


class Everything(nn.Module):
    """Several outputs, a None, an int input, a constant tensor and a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(16, 64)
        self.register_buffer("shift", torch.ones(64))
        self.table = torch.arange(64.0)

    def forward(self, x: Tensor, k: int) -> dict[str, object]:
        y = self.layer(x)
        return {"sum": y.sum(1), "none": None, "more": [torch.relu(y.relu()) * self.table, x + k]}


def test_inputs_parameters_outputs_and_fake_values_are_kept() -> None:
    problem = problem_from_module(Everything(), (torch.randn(64, 16), 3))
    captured = capture(problem)
    result = rewrite(captured)
    found = result.captured
    assert [step.rule for step in result.steps] == ["dead clamps"]
    kept = ("user_inputs", "parameters", "constants", "free_dims", "output_tree", "static_reason")
    assert all(getattr(found, name) == getattr(captured, name) for name in kept)
    assert [name is None for name in found.outputs] == [False, True, False, False]
    nodes = {node.name: node for node in found.graph.graph.nodes}
    olds = {node.name: node for node in captured.graph.graph.nodes}
    for name, old in zip(found.outputs, captured.outputs, strict=True):
        if name is not None and old is not None:
            assert nodes[name].meta["val"].shape == olds[old].meta["val"].shape
    assert all("val" in node.meta for node in nodes.values() if node.op != "output")


class Builtin(nn.Module):
    """Its argument is called as a builtin is."""

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002
        return torch.relu(input.relu())


def test_an_input_that_is_called_as_a_builtin_keeps_its_name() -> None:
    captured = capture(problem_from_module(Builtin(), (torch.randn(8, 16),)))
    found = rewrite(captured).captured
    assert found.user_inputs == ("input",)
    assert [node.name for node in found.graph.graph.nodes if node.op == "placeholder"] == ["input"]


def test_dead_calls_go_and_random_ones_stay() -> None:
    captured = capture(problem_from_module(Chain(), (torch.randn(4, 8),)))
    graph = captured.graph.graph
    (x,) = (node for node in graph.nodes if node.op == "placeholder")
    with graph.inserting_before(graph.output_node()):
        for op in (torch.ops.aten.tanh.default, torch.ops.aten.bernoulli.default):
            graph.call_function(op, (x,)).meta["val"] = x.meta["val"]
    result = rewrite(captured, ())
    assert [(step.rule, step.removed) for step in result.steps] == [
        ("dead nodes", ("tanh_default",))
    ]
    assert ops_of(result.captured)[-1] == "aten.bernoulli.default"


def test_a_rewritten_graph_has_fake_values_without_memory() -> None:
    class Huge(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.softmax(x + 1.0, 1).amax(1)

    problem = problem_from_module(Huge(), (torch.empty(1 << 40, 8, device="meta"),))
    assert [step.rule for step in rewrite(capture(problem)).steps] == ["softmax shift"]


class Chain(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        for _ in range(6):
            x = torch.relu(x)
        return x


def test_the_steps_are_bounded_and_the_bound_is_told() -> None:
    captured = capture(problem_from_module(Chain(), (torch.randn(4, 8),)))
    cut = rewrite(captured, most_steps=2)
    assert (len(cut.steps), cut.complete) == (2, False)
    whole = rewrite(captured)
    assert (len(whole.steps), whole.complete) == (5, True)
    assert ops_of(whole.captured) == ["aten.relu.default"]
    assert rewrite(whole.captured).steps == ()


def test_a_change_that_costs_more_is_taken_back() -> None:
    def dearer(draft: Draft, node: fx.Node) -> Change | None:
        if "relu" not in node.name:
            return None
        twice = draft.call(torch.ops.aten.exp.default, node.args[0])
        return Change("dearer", {node: draft.call(torch.ops.aten.softmax.int, twice, 1)})

    captured = capture(problem_from_module(Chain(), (torch.randn(4, 8),)))
    result = rewrite(captured, (Rule("dearer", dearer),))
    assert result.steps == ()
    assert ops_of(result.captured) == ops_of(captured)
    assert result.after == result.before


def test_rules_for_finite_values_wait_to_be_asked_for() -> None:
    def never(draft: Draft, node: fx.Node) -> Change | None:
        raise AssertionError(node.name)

    captured = capture(problem_from_module(Chain(), (torch.randn(4, 8),)))
    rewrite(captured, (Rule("finite", never, finite_only=True),))
    with pytest.raises(AssertionError, match="relu"):
        rewrite(captured, (Rule("finite", never, finite_only=True),), infinities=False)


def test_rules_have_names_of_their_own_and_say_what_they_assume() -> None:
    import sys

    names = [rule.name for rule in RULES]
    assert len(set(names)) == len(names)
    for rule in RULES:
        text = sys.modules[rule.apply.__module__].__doc__ or ""
        for word in ("Derivation:", "Conditions:", "NaN and infinities:"):
            assert word in text, (rule.name, word)


def test_nothing_to_do_leaves_the_same_calls() -> None:
    class Plain(nn.Module):
        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            return torch.addmm(x, y, x.t())

    result = checked(Plain(), [torch.randn(6, 6), torch.randn(6, 6)])
    assert result.rules == []
    assert result.rewritten.before == result.rewritten.after
    assert all(a == b for a, b in itertools.pairwise([result.ops, ops_of(result.captured)]))


class Free(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + 1


def test_what_is_tried_settles_no_size() -> None:
    """`polar` is an operator in C++ that, called on its own, takes a free size for its number."""
    captured = capture(problem_from_module(Free(), (torch.randn(8, 15),)))
    draft = Draft(captured.graph.graph, frozenset(), lambda _: 1)
    (x,) = (node for node in captured.graph.graph.nodes if node.name == "x")
    before = [str(size) for size in x.meta["val"].shape]
    with draft.before(captured.graph.graph.output_node()):
        made = draft.call(torch.ops.aten.polar.default, x, x)
    assert not any(size.isdigit() for size in before)
    assert [str(size) for size in x.meta["val"].shape] == before
    assert [str(size) for size in made.meta["val"].shape] == before
