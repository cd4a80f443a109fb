import sympy
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from agentkernel.compiler.drop_in.wrapper import return_text
from agentkernel.tools.problem.capture import capture
from agentkernel.tools.problem.loading import problem_from_module
from agentkernel.tools.problem.specialise import specialise


class Reshaped(nn.Module):
    """Has sizes in its arguments, and an arithmetic of them."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows, columns = x.shape
        return x.reshape(rows * columns // 2, 2).sum(0) / (rows + 1)


@settings(max_examples=6, deadline=None)
@given(rows=st.integers(2, 9), half=st.integers(2, 9))
def test_no_symbol_is_left_and_every_name_stays(rows: int, half: int) -> None:
    captured = capture(problem_from_module(Reshaped(), [torch.randn(rows, 2 * half)]))
    fixed = specialise(captured)
    assert captured.free_dims
    assert (fixed.free_dims, fixed.guards) == ((), ())
    kept = {node.name: node for node in fixed.graph.graph.nodes}
    for node in captured.graph.graph.nodes:
        value = node.meta.get("val")
        if isinstance(value, torch.Tensor):
            mine = kept[node.name].meta["val"]
            assert mine.device.type == "meta"
            assert mine.shape == torch.Size(
                int(size.node.hint) if isinstance(size, torch.SymInt) else size
                for size in value.shape
            )
    leaves = str(fixed.graph.graph)
    assert f"[{rows * half}, 2]" in leaves
    assert "sym_size" not in leaves


def test_the_numbers_are_those_of_the_graph() -> None:
    module, x = Reshaped(), torch.randn(6, 10)
    fixed = specialise(capture(problem_from_module(module, [x])))
    assert torch.equal(fixed.graph(x)[0], module(x))
    assert not [n for n in fixed.graph.graph.nodes if isinstance(n.meta.get("val"), sympy.Basic)]


def test_an_input_that_is_named_as_a_builtin_keeps_its_name() -> None:
    captured = capture(problem_from_module(nn.Conv2d(2, 2, 3), [torch.randn(1, 2, 5, 5)]))
    assert "input" in captured.user_inputs
    names = {node.name for node in specialise(captured).graph.graph.nodes}
    assert set(captured.user_inputs) <= names


class Sized(nn.Module):
    """Returns sizes and a number among its tensors, as patch embeddings do."""

    def forward(self, x: torch.Tensor) -> tuple[int, torch.Tensor, dict[str, int]]:
        return x.shape[0] // 2, x.relu(), {"columns": x.shape[1] + 1, "heads": 4}


def test_sizes_among_the_outputs_are_the_numbers_that_they_are() -> None:
    captured = capture(problem_from_module(Sized(), [torch.randn(6, 10)]))
    assert captured.plain_outputs == {3: 4}
    fixed = specialise(captured)
    assert [name is None for name in fixed.outputs] == [True, False, True, True]
    assert fixed.plain_outputs == {0: 3, 2: 11, 3: 4}
    assert return_text(fixed, ["out"]) == "return (3, out, {'columns': 11, 'heads': 4})"
