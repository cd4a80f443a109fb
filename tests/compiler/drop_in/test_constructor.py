"""The sliced constructor builds the weights of the user's class from the same seed."""

from __future__ import annotations

import sys
import textwrap
import types
from pathlib import Path

import pytest
import torch
from torch import nn

from agentkernel.compiler.drop_in.constructor import ConstructorText, emit_constructor
from agentkernel.domain.candidate import NoTemplate
from agentkernel.tools.problem.loading import load_problem, problem_from_module

HEAD = """
import math
import numpy as np
from dataclasses import dataclass
from typing import Optional, List
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn import Parameter, Linear
"""

CASES = {
    "plain": """
        class Model(nn.Module):
            \"\"\"A docstring.\"\"\"
            def __init__(self, width, bias: bool = True):
                super().__init__()
                # the layer
                self.ln = nn.LayerNorm(width)
                self.proj = nn.Linear(width, 2 * width, bias=bias)
                self.scale = nn.Parameter(torch.randn(width))
                self.register_buffer("mask", torch.ones(width, width).tril(), persistent=False)

            def forward(self, x):
                return F.gelu(self.proj(self.ln(x)) * np.float32(2))

        def get_init_inputs():
            return [8]
        """,
    "old_super_and_self_reference": """
        class Model(nn.Module):
            EXPANSION = 4
            UNUSED = np.zeros(3)
            def __init__(self, width: Optional[int] = None) -> None:
                super(Model, self).__init__()
                self.up = nn.Linear(width, width * Model.EXPANSION)
                self._init(self.up)

            @staticmethod
            def _init(layer):
                nn.init.xavier_normal_(layer.weight)

            def other(self):
                return np.zeros(3)

            def forward(self, x):
                return self.up(x)

        def get_init_inputs():
            return [6]
        """,
    "inheritance_config_and_helpers": """
        DEPTH = 2
        SIZES: List[int] = []
        for _i in range(DEPTH):
            SIZES.append(4 + _i)
        TABLE = {}
        TABLE["drop"] = 0.1

        @dataclass
        class Config:
            width: int = 4
            layers: int = DEPTH

            @property
            def double(self):
                return 2 * self.width

        def make_block(width):
            return Block(width)

        class Block(nn.Module):
            def __init__(self, width):
                super().__init__()
                self.weight = nn.Parameter(torch.empty(width, width))
                self.drop = nn.Dropout(TABLE["drop"])
                self.reset_parameters()

            def reset_parameters(self):
                nn.init.kaiming_uniform_(self.weight, a=math.sqrt(5))

            def forward(self, x):
                return np.abs(x)

        class Base(nn.Module):
            def __init__(self, config, **kwargs):
                super().__init__()
                self.config = config
                self.blocks = nn.ModuleList(make_block(config.double) for _ in SIZES)
                for key, value in kwargs.items():
                    setattr(self, key, nn.Parameter(torch.full((2,), value)))

            def forward(self, x):
                raise ValueError

        class Model(Base):
            def __init__(self, config=Config(), **kwargs):
                super().__init__(config, **kwargs)
                self.named = nn.ModuleDict({"a": nn.Linear(2, 2), "b": nn.Linear(2, 2)})
                self.seq = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 3))
                self.listed = nn.ParameterList([nn.Parameter(torch.rand(3)) for _ in range(2)])
                self.seq[2].weight = self.seq[0].weight
                self.sizes = SIZES

            def forward(self, x):
                return x

        def get_init_inputs():
            return [], {"gamma": 1.5}
        """,
    "subclass_of_a_torch_layer": """
        class Narrow(nn.Linear):
            def reset_parameters(self):
                nn.init.normal_(self.weight, std=0.02)
                if self.bias is not None:
                    nn.init.zeros_(self.bias)

            def forward(self, x):
                return np.abs(x)

        class Model(Narrow):
            pass

        def get_init_inputs():
            return [3, 4]
        """,
    "private_names_and_two_spaces": """
        class Model(nn.Module):
          def __init__(self):
            super().__init__()
            self.__weight = nn.Parameter(torch.randn(3))
            self.__more()

          def __more(self):
            text = \"\"\"one
        two\"\"\"
            self.bias = nn.Parameter(torch.randn(len(text)))

          def forward(self, x):
            return x
        """,
    "dry_run_in_the_constructor": """
        class Features(nn.Module):
            def __init__(self):
                super().__init__()
                self.conv = nn.Conv2d(1, 2, 3)

            def forward(self, x):
                return F.relu(self.conv(x)).flatten(1)

        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.features = Features()
                size = self._flat_size()
                self.head = nn.Linear(size, 2)

            def _flat_size(self):
                return self.features(torch.zeros(1, 1, 8, 8)).shape[1]

            def forward(self, x):
                return self.head(self.features(x))
        """,
    "weight_norm": """
        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.proj = nn.utils.parametrizations.weight_norm(nn.Linear(3, 4))
                self.lstm = nn.LSTM(3, 4, num_layers=2, bidirectional=True)

            def forward(self, x):
                return self.proj(x)
        """,
}
TAIL = """

def get_inputs():
    return [torch.randn(2, 8)]

if __name__ == "__main__":
    HEAD = Model
"""


def executed(text: ConstructorText, monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    """The pieces as a module; only this file's own classes pass through here."""
    module = types.ModuleType("emitted_module")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec(compile(text.text, module.__name__, "exec"), vars(module))
    return module


def constructor_of(
    tmp_path: Path, body: str, monkeypatch: pytest.MonkeyPatch
) -> tuple[ConstructorText, nn.Module]:
    path = tmp_path / "problem.py"
    path.write_text(HEAD + textwrap.dedent(body) + TAIL)
    loaded = load_problem(str(path))
    text = emit_constructor(loaded)
    assert isinstance(text, ConstructorText)
    namespace = executed(text, monkeypatch)
    torch.manual_seed(7)
    built = namespace.ModelNew(*loaded.init_args, **loaded.init_kwargs)
    reference = loaded.build(seed=7)
    assert list(built.state_dict()) == list(reference.state_dict())
    found = dict([*built.named_parameters(), *built.named_buffers()])
    wanted = dict([*reference.named_parameters(), *reference.named_buffers()])
    assert found.keys() == wanted.keys()
    assert all(torch.equal(found[name], wanted[name]) for name in wanted)
    built.load_state_dict(reference.state_dict())
    return text, built


@pytest.mark.parametrize("name", CASES)
def test_the_same_seed_gives_the_same_weights(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text, built = constructor_of(tmp_path, CASES[name], monkeypatch)
    assert text.foreign_imports == ()
    assert "np." not in text.text
    tensors = dict(built.named_parameters(remove_duplicate=False))
    tensors.update(built.named_buffers())
    for state_name, tensor in tensors.items():
        assert eval(text.parameter_expression(state_name), {"self": built}) is tensor


def test_expressions_index_containers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text, _ = constructor_of(tmp_path, CASES["inheritance_config_and_helpers"], monkeypatch)
    assert text.parameter_expression("blocks.1.weight") == "self.blocks[1].weight"
    assert text.parameter_expression("named.a.bias") == 'self.named["a"].bias'
    assert text.parameter_expression("listed.1") == "self.listed[1]"
    assert text.parameter_expression("seq.2.weight") == "self.seq[2].weight"


def test_forward_and_comments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text, _ = constructor_of(tmp_path, CASES["plain"], monkeypatch)
    assert "def forward" not in text.text
    assert "        # the layer\n" in text.body
    assert text.imports == ("import torch", "import torch.nn as nn")


def test_a_forward_that_construction_runs_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text, _ = constructor_of(tmp_path, CASES["dry_run_in_the_constructor"], monkeypatch)
    assert text.text.count("def forward") == 1


def test_foreign_imports_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    body = """
        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.weight = nn.Parameter(torch.full((3,), float(np.sqrt(2.0))))

            def forward(self, x):
                return x
        """
    text, _ = constructor_of(tmp_path, body, monkeypatch)
    assert text.foreign_imports == ("numpy",)


def test_an_alias_becomes_the_base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    body = """
        class Inner(nn.Module):
            def __init__(self):
                super().__init__()
                self.proj = nn.Linear(2, 2)

            def forward(self, x):
                return x

        Model = Inner
        """
    text, _ = constructor_of(tmp_path, body, monkeypatch)
    assert text.header == "class ModelNew(Model):"


def test_a_constructor_that_runs_its_forward_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "problem.py"
    body = """
        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.a = nn.Parameter(torch.ones(2))
                self.size = self(torch.ones(2)).numel()

            def forward(self, x):
                return x + self.a
        """
    path.write_text(HEAD + textwrap.dedent(body) + TAIL)
    found = emit_constructor(load_problem(str(path)))
    assert isinstance(found, NoTemplate)
    assert "forward" in found.reason


class Odd(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.seq = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.BatchNorm1d(3))
        self.shared = self.seq[0]
        self.listed = nn.ParameterList([torch.rand(2)])
        self.nested = nn.ModuleList([nn.Sequential(nn.Linear(2, 2)), self.seq])
        self.odd = nn.Module()
        self.odd.register_parameter("a-b", nn.Parameter(torch.ones(2)))
        self.tied = nn.Linear(2, 3)
        self.tied.weight = self.seq[0].weight
        self.register_buffer("steps", torch.tensor([0.1, float("inf")]), persistent=False)
        self.register_buffer("kept", torch.arange(3))


def test_a_live_module_is_restated_as_containers(monkeypatch: pytest.MonkeyPatch) -> None:
    live = Odd().eval()
    text = emit_constructor(problem_from_module(live, (torch.ones(2),)))
    assert isinstance(text, ConstructorText)
    built = executed(text, monkeypatch).ModelNew()
    built.load_state_dict(live.state_dict())
    for name, tensor in live.named_parameters(remove_duplicate=False):
        found = eval(text.parameter_expression(name), {"self": built})
        assert torch.equal(found, tensor)
        assert found.requires_grad == tensor.requires_grad
    assert text.parameter_expression("seq.2.running_mean") == "self.seq[2].running_mean"
    assert built.tied.weight is built.get_submodule("seq.0").weight
    assert torch.equal(built.steps, live.steps)
    assert built.kept.dtype == torch.int64


def test_a_live_sequential_is_a_list_that_loads() -> None:
    live = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Sequential(nn.Linear(4, 2)))
    text = emit_constructor(problem_from_module(live, (torch.ones(2, 3),)))
    assert isinstance(text, ConstructorText)
    namespace: dict[str, type[nn.Module]] = {}
    exec(text.text, namespace)
    built = namespace["ModelNew"]()
    built.load_state_dict(live.state_dict())
    scope = {"self": built}
    for name, tensor in live.named_parameters():
        assert torch.equal(eval(text.parameter_expression(name), scope), tensor)


def test_a_live_module_with_hidden_state_is_refused() -> None:
    live = nn.Linear(2, 2)
    live.register_buffer("cache", torch.rand(4096), persistent=False)
    found = emit_constructor(problem_from_module(live, (torch.ones(2),)))
    assert isinstance(found, NoTemplate)
    assert "cache" in found.reason
