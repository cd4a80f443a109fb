"""Constructors that are given objects of the problem's own classes: configurations."""

from __future__ import annotations

import pickle
import subprocess
import sys
import types
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from agentkernel.agents.compiler_coder import family
from agentkernel.compiler.drop_in.constructor import ConstructorText, emit_constructor
from agentkernel.compiler.partitions import partitions
from agentkernel.domain.profile import CompileReport
from agentkernel.tools.compile.candidate import compile_candidate
from agentkernel.tools.problem.capture import capture
from agentkernel.tools.problem.loading import LoadedProblem, load_problem
from agentkernel.tools.sandbox.protocol import pack_request
from agentkernel.tools.targets import find_target

TOP = "agentkernel_try_nets"
HEAD = "import torch\nfrom torch import nn\n"
PLAIN = """

class Model(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.norm = nn.LayerNorm(cfg.width)
        self.act = nn.Tanh()

    def forward(self, x):
        return self.act(self.norm(x))
"""
TAIL = """

def get_inputs():
    return [torch.randn(4, 16)]


def get_init_inputs():
    return [make()]
"""
CONFIGS = {
    "dataclass": """from dataclasses import dataclass

@dataclass
class Cfg:
    width: int = 16

def make(): return Cfg()
"""
    + PLAIN,
    "plain class": """class Cfg:
    def __init__(self, width): self.width = width

def make(): return Cfg(16)
"""
    + PLAIN,
    "namespace": "from types import SimpleNamespace\ndef make(): return SimpleNamespace(width=16)\n"
    + PLAIN,
    "pydantic": """from pydantic import BaseModel, Field

class Cfg(BaseModel):
    width: int = Field(16, gt=0)

def make(): return Cfg()
"""
    + PLAIN,
    "a base class is asked for": """from dataclasses import dataclass

@dataclass
class Base:
    width: int = 16

class Cfg(Base):
    pass

def make(): return Cfg()

class Model(nn.Module):
    def __init__(self, cfg: Base):
        "Doc."
        super().__init__()
        if not isinstance(cfg, Base):
            raise TypeError(cfg)
        self.norm = nn.LayerNorm(cfg.width)
        self.act = nn.Tanh()

    def forward(self, x):
        return self.act(self.norm(x))
""",
    "enums, nested": """from dataclasses import dataclass, field
from enum import Enum

class Act(Enum):
    TANH = "tanh"
    RELU = "relu"

@dataclass(frozen=True)
class Inner:
    width: int = 16

@dataclass(slots=True)
class Cfg:
    inner: Inner = field(default_factory=Inner)
    acts: tuple = (Act.TANH,)

def make(): return Cfg()

def pick(kind):
    return {Act.TANH: nn.Tanh, Act.RELU: nn.ReLU}[kind]()

class Model(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.norm = nn.LayerNorm(cfg.inner.width)
        self.act = pick(cfg.acts[0]) if cfg.acts[0] is not Act.RELU else None

    def forward(self, x):
        return self.act(self.norm(x))
""",
}
BUILD = """import pickle, sys, types
args, kwargs, text = pickle.load(sys.stdin.buffer)
module = sys.modules["drop_in"] = types.ModuleType("drop_in")
exec(text, vars(module))
print(repr(module.ModelNew(*args, **kwargs)).replace("ModelNew", "Model"))
"""


def built_elsewhere(loaded: LoadedProblem) -> str:
    """The drop-in's module, built in a process that can import none of the problem's modules."""
    text = emit_constructor(loaded)
    assert isinstance(text, ConstructorText)
    assert text.foreign_imports == ()
    done = subprocess.run(
        [sys.executable, "-I", "-c", BUILD], cwd="/", capture_output=True, timeout=120, check=False,
        input=pack_request((loaded.init_args, loaded.init_kwargs, text.text)),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode().strip()


@pytest.fixture
def package(tmp_path: Path) -> Iterator[Path]:
    """A file with relative imports, whose configuration comes from two folders above."""
    inner = tmp_path / TOP / "layers"
    inner.mkdir(parents=True)
    (tmp_path / TOP / "__init__.py").touch()
    (inner / "__init__.py").touch()
    text = "from dataclasses import dataclass\n\n\n@dataclass\nclass Cfg:\n    width: int = 16\n"
    (tmp_path / TOP / "config.py").write_text(text)
    own = f"{HEAD}from ..config import Cfg\n{PLAIN}\n\ndef make():\n    return Cfg()\n{TAIL}"
    (inner / "norm.py").write_text(own)
    yield inner / "norm.py"
    for name in [name for name in sys.modules if name.split(".")[0] == TOP]:
        del sys.modules[name]


@pytest.mark.parametrize("name", CONFIGS)
def test_a_process_without_the_problem_builds_the_same(name: str, tmp_path: Path) -> None:
    path = tmp_path / "problem.py"
    path.write_text(HEAD + CONFIGS[name] + TAIL)
    loaded = load_problem(str(path))
    assert built_elsewhere(loaded) == repr(loaded.build(seed=0))


def test_a_configuration_of_a_package_goes_along(package: Path) -> None:
    loaded = load_problem(str(package))
    assert built_elsewhere(loaded) == repr(loaded.build(seed=0))


def test_a_candidate_with_a_configuration_compiles_in_the_sandbox(package: Path) -> None:
    loaded, target = load_problem(str(package)), find_target("h100").target
    choices = partitions(loaded, capture(loaded), "mixed")
    source = family(choices, "default", lambda _: None, target)[0].source.text
    assert isinstance(compile_candidate(loaded, source, target), CompileReport)


def test_a_drop_in_refuses_another_configuration(tmp_path: Path) -> None:
    path = tmp_path / "problem.py"
    path.write_text(HEAD + CONFIGS["enums, nested"] + TAIL)
    loaded = load_problem(str(path))
    text = emit_constructor(loaded)
    assert isinstance(text, ConstructorText)
    module = types.ModuleType("drop_in")
    exec(text.text, vars(module))
    own = vars(loaded.namespace)
    for other in (own["Cfg"](acts=(own["Act"].RELU,)), own["Cfg"](inner=own["Inner"](8))):
        with pytest.raises(ValueError, match=r"verified for cfg\.inner\.width=16, "):
            module.ModelNew(other)
    assert isinstance(module.ModelNew(own["Cfg"]()).act, torch.nn.Tanh)


def test_a_class_of_a_known_package_goes_by_its_name() -> None:
    assert pickle.loads(pack_request(torch.nn.Linear)) is torch.nn.Linear
    assert len(pack_request(LoadedProblem)) < 200
