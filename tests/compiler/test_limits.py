"""A module is traced no more often than its limits take; declared sets and sizes of 0 that it
leaves out are named."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from agentkernel.compiler.drop_in import envelope
from agentkernel.compiler.ir import UnsupportedOp
from agentkernel.compiler.partitions import partitions
from agentkernel.tools.problem.capture import Captured, capture
from agentkernel.tools.problem.loading import LoadedProblem, load_problem, problem_from_module
from tests.compiler.forms import compiled_graph, small
from tests.compiler.sandboxed_drop_in import Sandboxed


@pytest.mark.parametrize(("module", "differs"), [(nn.Dropout(0.5), True), (nn.ReLU(), False)])
def test_training_mode_is_traced_once_a_graph(
    module: nn.Module, differs: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = problem_from_module(module.eval(), [torch.randn(4, 6)])
    captured, traced = capture(loaded), []

    def counted(problem: LoadedProblem, *, training: bool = False) -> Captured:
        traced.append(training)
        return capture(problem, training=training)

    monkeypatch.setattr(envelope, "capture", counted)
    assert [envelope.eval_only_once(loaded, captured) for _ in range(3)] == [differs] * 3
    assert traced == ([False, True] if differs else [])


class OneRow(nn.Module):
    """One row is another graph; a layer of 6 columns admits no other number of them."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x.expand(3, 6) + 1.0 if x.shape[0] == 1 else x * 2.0)


@pytest.mark.quick(1)
@pytest.mark.parametrize(("layer", "differ"), [(nn.Linear(6, 6), "y"), (nn.ReLU(), "yyn")])
def test_a_size_of_1_is_traced_apart_only_where_several_may_be_1(
    layer: nn.Module, differ: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All together, then one by one: with numbers, and where that differs with symbols too."""
    loaded = problem_from_module(OneRow(layer).eval(), [torch.randn(4, 6)])
    captured, traced = capture(loaded), []

    def counted(problem: LoadedProblem, *, symbolic: bool) -> Captured:
        traced.append(symbolic)
        return capture(problem, symbolic=symbolic)

    monkeypatch.setattr(envelope, "capture", counted)
    spans = envelope.limits_of(loaded, captured).spans
    assert [spans[item.symbol].least for item in captured.free_dims] == [2, 1][: len(spans)]
    assert traced == [
        symbolic for one in differ for symbolic in ((False, True) if one == "y" else (False,))
    ]


class Heads(nn.Module):
    """Heads put side by side: for one row that is a view, for several it takes a copy."""

    def __init__(self, end: str) -> None:
        super().__init__()
        self.end = end

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = (2.0 * x).transpose(0, 1).reshape(-1, 24)
        if self.end == "written to":
            y.add_(1.0)
        return {"read": y + 1.0, "viewed": y.view(-1, 4, 6)}.get(self.end, y)


@pytest.mark.parametrize(
    ("end", "least"), [("read", 1), ("returned", 2), ("viewed", 2), ("written to", 2)]
)
def test_a_reshape_that_copies_for_some_sizes_is_one_graph_where_nobody_sees_the_copy(
    end: str, least: int
) -> None:
    loaded = problem_from_module(Heads(end), [torch.randn(4, 5, 24)[:, :3]])
    captured = capture(loaded)
    first = captured.free_dims[0].symbol
    assert envelope.limits_of(loaded, captured).spans[first].least == least


SEVERAL = """
import torch
from torch import nn


class Cut(nn.Module):
    def forward(self, x):
        return torch.relu(x[:, :64]) * 2.0


class Halves(nn.Module):
    def forward(self, x):
        left, right = x.chunk(2, -1)
        return left * torch.sigmoid(right)


class Sum(nn.Module):
    def forward(self, x, y):
        return torch.relu(x + y)


class Scaled(nn.Module):
    def forward(self, x, scale):
        return torch.relu(x) * scale
"""


@pytest.mark.parametrize(
    ("name", "inputs", "refused"),
    [
        ("Cut", ["x=f32[8,128];f32[8,96];f32[1,70]"], ""),
        ("Cut", ["x=f32[8,128];f32[8,32]"], "x float32[8, 32]: the graph of x float32[8, 128] "
         "holds for x_dim1 >= 65 alone"),
        ("Halves", ["x=f32[8,32];f32[8,34]"], ""),
        ("Halves", ["x=f32[8,32];f32[8,33]"], "x_dim1 a multiple of 2, x_dim1 >= 4 alone"),
        ("Sum", ["x=f32[8,32];f32[1,1]", "y=f32[8,32];f32[1,1]"], ""),
        ("Sum", ["x=f32[8,32];f32[8,32]", "y=f32[8,32];f32[1,32]"], "y.shape[0] == x_dim0 alone"),
        ("Sum", ["x=f32[8,32];f32[1,32]", "y=f32[1,32];f32[8,32]"], "y.shape[0] == 1 alone"),
        ("Sum", ["x=f32[8,32];f16[8,32]", "y=f32[8,32];f32[8,32]"],
         "x float32 of 2 dimensions alone"),
        ("Scaled", ["x=f32[8,32];f32[4,32]", "scale=2.0;3.0"], "holds for scale=2.0 alone"),
    ],
)  # fmt: skip
def test_a_graph_that_one_declared_set_leaves_is_refused_by_name(
    name: str, inputs: list[str], refused: str, tmp_path: Path
) -> None:
    (tmp_path / "several.py").write_text(SEVERAL)
    loaded = load_problem(f"{tmp_path / 'several.py'}:{name}", inputs)
    found = envelope.refused_set(loaded, capture(loaded))
    assert found.endswith(refused) if refused else found == ""
    if refused:
        with pytest.raises(UnsupportedOp, match="a run of its own"):
            partitions(loaded, capture(loaded), "mixed")
    else:
        assert partitions(loaded, capture(loaded), "mixed")


def test_a_refused_0_is_told_in_the_refusal(box: Sandboxed) -> None:
    """A sum along a size of 0 has nothing to add; one without rows is empty."""
    module = SumOfRows()
    x = torch.randn(4, 6)
    compiled = compiled_graph(module, [x])
    text = compiled.write(small(compiled, "single")).text
    told = box.refusal(text, module, [torch.ones(4, 0)])
    assert "x_dim1=0" in told
    assert "x_dim1 >= 1" in told
    assert "x_dim0 >= 1" not in told


class SumOfRows(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.sum(1)
