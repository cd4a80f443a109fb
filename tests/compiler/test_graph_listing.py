"""Listings say what is computed from what, in the words of module and kernel."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from agentkernel.compiler.graph_listing import MAX_LINES, graph_listing
from agentkernel.tools.problem.capture import capture
from agentkernel.tools.problem.loading import load_problem
from agentkernel.training.data.generator import make_problem

HEAD = "import torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n\n\n"


def listed(tmp_path: Path, body: str, inputs: str) -> str:
    path = tmp_path / "problem.py"
    text = f"{HEAD}class Model(nn.Module):\n{body}\n\n\ndef get_inputs():\n    return [{inputs}]\n"
    path.write_text(f"{text}\n\ndef get_init_inputs():\n    return []\n", encoding="utf-8")
    return graph_listing(capture(load_problem(str(path))))


def test_a_line_says_operator_operands_shape_and_another_type(tmp_path: Path) -> None:
    body = (
        "    def __init__(self):\n        super().__init__()\n"
        "        self.shift = nn.Parameter(torch.ones(5))\n\n"
        "    def forward(self, x, y):\n"
        "        z = x + y * 0.5 + self.shift\n        return z * (z > 0).float()"
    )
    assert listed(tmp_path, body, "torch.rand(3, 5), torch.rand(3, 1)").splitlines() == [
        "self.shift [5]",
        "mul = mul(y, 0.5) [3, 1]",
        "add = add(x, mul) [3, 5]",
        "add_1 = add(add, self.shift) [3, 5]",
        "gt = gt(add_1, 0) bool[3, 5]",
        "_to_copy = _to_copy(gt, dtype=float32) [3, 5]",
        "mul_1 = mul(add_1, _to_copy) [3, 5]",
    ]


def test_weights_come_first_those_that_are_used_in_the_order_of_their_use(tmp_path: Path) -> None:
    body = (
        "    def __init__(self):\n        super().__init__()\n"
        "        self.unused = nn.Parameter(torch.ones(9))\n"
        "        self.proj = nn.Linear(5, 2)\n"
        "        self.scale = torch.ones(1, 5)\n"
        "        self.register_buffer('mask', torch.ones(3, 1, dtype=torch.bool))\n\n"
        "    def forward(self, x):\n"
        "        return self.proj(torch.where(self.mask, x, self.scale))"
    )
    assert listed(tmp_path, body, "torch.rand(3, 5)").splitlines() == [
        "self.mask bool[3, 1]",
        "self.scale [1, 5]",
        "self.proj.weight [2, 5]",
        "self.proj.bias [2]",
        "where = where(self.mask, x, self.scale) [3, 5]",
        "linear = linear(where, self.proj.weight, self.proj.bias) [3, 2]",
    ]


def test_the_type_of_the_first_input_goes_without_saying(tmp_path: Path) -> None:
    body = "    def forward(self, x):\n        return x.sum(-1, keepdim=True)"
    inputs = "torch.rand(3, 5, dtype=torch.bfloat16)"
    assert listed(tmp_path, body, inputs) == "sum = sum(x, [-1], True) [3, 1]"


def test_parts_are_of_what_was_split_and_an_open_end_is_an_end(tmp_path: Path) -> None:
    body = (
        "    def forward(self, x):\n        a, b = x[:, 2:].chunk(2, dim=-1)\n        return a * b"
    )
    lines = listed(tmp_path, body, "torch.rand(3, 6)").splitlines()
    assert "slice_1 = slice(slice, 1, 2, end) [3, 4]" in lines
    assert "split = split(slice_1, 2, -1)" in lines
    assert lines[-3:] == [
        "getitem = getitem(split, 0) [3, 2]",
        "getitem_1 = getitem(split, 1) [3, 2]",
        "mul = mul(getitem, getitem_1) [3, 2]",
    ]


def test_what_computes_nothing_has_no_line(tmp_path: Path) -> None:
    body = (
        "    def __init__(self):\n        super().__init__()\n"
        "        self.drop = nn.Dropout(0.5)\n\n"
        "    def forward(self, x):\n        return torch.exp(self.drop(x).clone())"
    )
    assert listed(tmp_path, body, "torch.rand(3, 6)") == "exp = exp(x) [3, 6]"


def test_an_input_keeps_its_name_to_itself(tmp_path: Path) -> None:
    body = "    def forward(self, mul, x):\n        return mul * 2 + x * 3"
    assert listed(tmp_path, body, "torch.rand(3, 6), torch.rand(3, 6)").splitlines() == [
        "mul_1 = mul(mul, 2) [3, 6]",
        "mul_2 = mul(x, 3) [3, 6]",
        "add = add(mul_1, mul_2) [3, 6]",
    ]


def test_how_it_was_captured_is_not_said(tmp_path: Path) -> None:
    body = "    def forward(self, x):\n        return x + torch.arange(6, device=x.device)"
    found = listed(tmp_path, body, "torch.rand(3, 6)")
    assert found.splitlines()[0] == "arange = arange(6) int64[6]"
    assert "meta" not in found


def test_a_line_that_would_be_cut_is_not_said_at_all(tmp_path: Path) -> None:
    body = f"    def forward(self, x):\n        return torch.cat([{'x, ' * 120}], 0)"
    assert listed(tmp_path, body, "torch.rand(3, 6)") == ""


def test_a_long_graph_is_not_listed(tmp_path: Path) -> None:
    for count, some in ((MAX_LINES, True), (MAX_LINES + 1, False)):
        lines = "\n".join(["        x = torch.exp(x)"] * count)
        body = f"    def forward(self, x):\n{lines}\n        return x"
        assert bool(listed(tmp_path, body, "torch.rand(3, 6)")) == some


@pytest.mark.quick(3)
@pytest.mark.parametrize("seed", range(7_000, 7_012))
def test_each_operand_of_a_made_module_is_an_input_or_stands_above(
    seed: int, tmp_path: Path
) -> None:
    path = tmp_path / "problem.py"
    path.write_text(make_problem(seed).text, encoding="utf-8")
    captured = capture(load_problem(str(path)))
    known = {*captured.user_inputs}
    known |= {f"self.{name}" for name in torch.nn.Module.state_dict(_model(path))}
    for line in graph_listing(captured).splitlines():
        name, equal, rest = line.partition(" = ")
        if not equal:
            assert name.split(" ", 1)[0] in known
            continue
        operands = rest.partition("(")[2].rpartition(")")[0]
        words = [word.strip("[] ") for word in operands.split(",")]
        named = {word for word in words if word[:1].isalpha() and "=" not in word}
        assert named <= known | {"None", "True", "False", "end", "inf"}, line
        known.add(name)


def _model(path: Path) -> torch.nn.Module:
    loaded = load_problem(str(path))
    model = loaded.namespace.Model(*loaded.namespace.get_init_inputs())
    assert isinstance(model, torch.nn.Module)
    return model
