"""Nested and named arguments as one flat list of inputs, and what capture makes of them."""

import re
from pathlib import Path

import pytest
import torch
from torch import nn

from agentkernel.domain.errors import ProblemError
from agentkernel.domain.problem import Problem
from agentkernel.tools.problem.arguments import called_flat
from agentkernel.tools.problem.capture import capture
from agentkernel.tools.problem.inputs import parse_input
from agentkernel.tools.problem.loading import load_problem, problem_from_module


class Cell(nn.Module):
    def forward(
        self, x: torch.Tensor, state: tuple[torch.Tensor, ...], *, alpha: float, flip: bool = True
    ) -> torch.Tensor:
        return x * alpha + state[0] - state[1] if flip else x


class Accumulate(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(5), persistent=False)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x.add_(y)
        self.total.add_(x.sum(0))
        return torch.relu(x), x


class Asks(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        places = torch.arange(x.shape[1], device=x.device)
        with torch.autocast(device_type=x.device.type, enabled=False):
            return x + places


@torch.library.custom_op("agentkernel_tests::halved", mutates_args=())
def halved(x: torch.Tensor) -> torch.Tensor:
    return x / 2


@halved.register_fake
def halved_form(x: torch.Tensor) -> torch.Tensor:
    return torch.empty(x.shape, dtype=x.dtype, device=x.device)


class Halves(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor = halved(x)
        return x * made


class Branches(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x) * 2 if x.device.type == "cuda" else torch.tanh(x)


def test_a_built_module_is_called_on_the_flat_list() -> None:
    x, h, c = (torch.randn(4, 5) for _ in range(3))
    loaded = problem_from_module(Cell(), (x, (h, c)), {"alpha": 0.5})
    assert loaded.problem.shape_sets[0].label == (
        "x float32[4, 5], state[0] float32[4, 5], state[1] float32[4, 5], alpha=0.5"
    )
    assert loaded.problem.arguments.text == "((*, (*, *)), {'alpha': *})"
    found = loaded.build(seed=0)(*loaded.make_inputs(seed=0))
    torch.testing.assert_close(found, x * 0.5 + h - c)
    assert capture(loaded).user_inputs == ("x", "state_0", "state_1", "alpha")


class Again(torch.autograd.Function):
    """Calls the module's own forward, in its own form, as a drop-in's Function does."""

    @staticmethod
    def forward(ctx: object, module: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return module.forward({"x": x}, y=y)

    @staticmethod
    def backward(ctx: object, gradient: torch.Tensor) -> tuple[object, ...]:
        return None, gradient * 2, gradient


class Recorded(nn.Module):
    """Takes a dict and a keyword; its gradients come from a Function that calls it again."""

    def forward(self, given: dict[str, torch.Tensor], *, y: torch.Tensor) -> torch.Tensor:
        if torch.is_grad_enabled() and given["x"].requires_grad:
            return Again.apply(self, given["x"], y)  # type: ignore[no-untyped-call]
        return given["x"] * 2 + y


def test_a_module_called_flat_may_call_its_own_forward() -> None:
    x, y = torch.randn(3), torch.randn(3)
    loaded = problem_from_module(Recorded(), [{"x": x}], {"y": y})
    for names in ((), ("given['x']", "y")):
        flat = called_flat(Recorded(), loaded.problem.arguments, names)
        leaves = x.clone().requires_grad_(), y.clone().requires_grad_()
        found = flat(*leaves)
        assert torch.equal(found, x * 2 + y)
        gradients = torch.autograd.grad(found.sum(), leaves)
        assert torch.equal(gradients[0], torch.full((3,), 2.0))


def test_a_keyword_with_a_place_is_a_plain_argument() -> None:
    loaded = problem_from_module(nn.Linear(8, 4), (), {"input": torch.randn(2, 8)})
    assert loaded.problem.arguments is None
    assert '"arguments"' not in loaded.problem.model_dump_json()


def test_a_required_argument_that_is_missing_is_named() -> None:
    with pytest.raises(
        ProblemError, match=r"missing a required .*'alpha'.*in example_inputs or example_kw"
    ):
        problem_from_module(Cell(), (torch.randn(4, 5), (torch.randn(4, 5),)))


def test_a_missing_input_names_the_flag(tmp_path: Path) -> None:
    path = tmp_path / "add.py"
    path.write_text(
        "from torch import nn\n\n\nclass Add(nn.Module):\n"
        "    def forward(self, x, residual):\n        return x + residual\n"
    )
    with pytest.raises(ProblemError, match=r"'residual'.* Next: add it with --input \"name="):
        load_problem(f"{path}:Add", ["x=f32[4,8]"])
    misfit = load_problem(f"{path}:Add", ["x=f32[4,512]", "residual=f32[3,8]"])
    with pytest.raises(ProblemError) as caught:
        capture(misfit)
    words = str(caught.value)
    assert "512" in words
    assert not re.search(r"\bs\d+\b", words), "a symbol of the exporter's"


def test_keywords_come_from_the_file_and_from_the_flag(tmp_path: Path) -> None:
    path = tmp_path / "cell.py"
    path.write_text(
        "\ufeffimport torch\nfrom torch import nn\n"
        "class Model(nn.Module):\n    def forward(self, x, *, alpha):\n        return x * alpha\n"
        "def get_inputs():\n    return [torch.randn(4, 5)]\n"
        "def get_kwargs():\n    return {'alpha': 0.5}\n",
        encoding="utf-8",
    )
    label = "x float32[4, 5], alpha="
    assert load_problem(str(path)).problem.shape_sets[0].label == f"{label}0.5"
    named = load_problem(str(path), kwargs="alpha=0.25")
    assert named.problem.shape_sets[0].label == f"{label}0.25"
    given = load_problem(f"{path}:Model", ["x=torch.float32[4,5]"], kwargs="alpha=2")
    assert given.problem.shape_sets[0].label == f"{label}2"


def test_an_input_may_be_nested() -> None:
    _, (value,) = parse_input("state=(f32[8, 4], {'m': float32[8]}, 3)")
    assert isinstance(value, tuple)
    assert value[1]["m"].shape == (8,)  # type: ignore[call-overload,index,union-attr]


def test_what_forward_changes_in_place_is_known() -> None:
    found = capture(problem_from_module(Accumulate(), (torch.randn(4, 5), torch.randn(4, 5))))
    assert (found.mutated_buffers, found.mutated_inputs) == (("total",), ("x",))
    assert (len(found.written), found.returned_inputs) == (2, (None, "x"))


def test_a_forward_hears_the_device_of_the_target() -> None:
    found = capture(problem_from_module(Asks(), (torch.randn(4, 5),)))
    assert found.static_reason is None


def test_the_rule_for_fake_tensors_of_an_operator_hears_where_they_are() -> None:
    found = capture(problem_from_module(Halves(), (torch.randn(4, 5),)))
    names = [str(node.target) for node in found.graph.graph.nodes]
    assert "agentkernel_tests.halved.default" in names


@pytest.mark.skipif(torch.cuda.is_available(), reason="the GPU's branch is the one that is judged")
def test_a_branch_on_the_device_is_refused_by_name() -> None:
    with pytest.raises(ProblemError, match="Branches asks for the device"):
        capture(problem_from_module(Branches(), (torch.randn(4, 5),)))


LABELS = """
import torch
from torch import nn


class Picked(nn.Module):
    def forward(self, x, labels, more=None):
        return x.gather(-1, labels[..., None]) + (0 if more is None else more[0][..., None])
"""


def test_labels_of_a_class_lie_below_their_limit(tmp_path: Path) -> None:
    (tmp_path / "picked.py").write_text(LABELS)
    lines = ["x=f32[64,512]", "labels=i64[64]<512", "more=(i64[64]<9, f32[2])"]
    loaded = load_problem(f"{tmp_path / 'picked.py'}:Picked", inputs=lines)
    _, labels, more, _ = loaded.make_inputs(seed=0)
    assert isinstance(labels, torch.Tensor)
    assert isinstance(more, torch.Tensor)
    assert 400 < labels.max() < 512
    assert more.max() == 8
    spec = loaded.problem.shape_sets[0].tensors[1]
    assert Problem.model_validate_json(loaded.problem.model_dump_json()) == loaded.problem
    assert spec.evolve(below=None).model_dump() == {
        "name": "labels", "dtype": "int64", "shape": (64,)
    }  # fmt: skip


SLIPS = """
import torch
from torch import nn


class Gate(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.proj = nn.Linear(width, width)

    def forward(self, x):
        return {forward}


Model = Gate


def get_inputs():
    return {inputs}


def get_init_inputs():
    return {init}
"""


@pytest.mark.parametrize(
    ("forward", "inputs", "init", "line"),
    [
        (
            "self.porj(x)", "[torch.randn(4, 8)]", "[8]",
            "no attribute 'porj' at gate.py:12 on inputs x float32[4, 8]. Expected: it runs on "
            "them. Next: fix gate.py:12.",
        ),
        (
            "self.proj(x)", "[torch.randn(4, 7)]", "[8]",
            "at gate.py:12 on inputs x float32[4, 7]. Expected: it runs on them. Next: check "
            "shapes and dtypes against the constructor.",
        ),
        (
            "self.proj(x)", "{'x': torch.randn(4, 8)}", "[8]",
            "get_inputs() gave a dict. Expected a list of forward's positional arguments. Next: "
            "let get_kwargs() give the dict",
        ),
        ("self.proj(x)", "torch.randn(4, 8)", "[8]", "get_inputs() gave a Tensor. Expected a list"),
        (
            "self.proj(x)", "[torch.randn(4, 8)]", "[]",
            "Expected: it accepts (). Next: let get_init_inputs() give its arguments",
        ),
        (
            "self.proj(x)", "[torch.randn(4, 8)]", "[-1]",
            "Expected: it accepts (-1). Next: run it by itself",
        ),
    ],
)  # fmt: skip
def test_a_slip_of_a_problem_is_told_with_its_place_and_a_way_on(
    forward: str, inputs: str, init: str, line: str, tmp_path: Path
) -> None:
    path = tmp_path / "gate.py"
    path.write_text(SLIPS.format(forward=forward, inputs=inputs, init=init))
    with pytest.raises(ProblemError) as caught:
        capture(load_problem(str(path)))
    assert line in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_class_that_misses_its_arguments_is_told_how_to_get_them(tmp_path: Path) -> None:
    path = tmp_path / "gate.py"
    path.write_text(SLIPS.format(forward="self.proj(x)", inputs="[]", init="[]"))
    with pytest.raises(
        ProblemError, match=r"with --init, literals .* Model = Gate, get_inputs\(\)"
    ):
        capture(load_problem(f"{path}:Gate", inputs=["x=f32[4,8]"]))
