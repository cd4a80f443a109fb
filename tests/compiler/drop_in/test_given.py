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


def drop_in_of(loaded: LoadedProblem) -> types.ModuleType:
    """The module of the drop-in's constructor."""
    text = emit_constructor(loaded)
    assert isinstance(text, ConstructorText)
    module = types.ModuleType("drop_in")
    exec(text.text, vars(module))
    return module


def test_a_drop_in_refuses_another_configuration(tmp_path: Path) -> None:
    path = tmp_path / "problem.py"
    path.write_text(HEAD + CONFIGS["enums, nested"] + TAIL)
    loaded = load_problem(str(path))
    module = drop_in_of(loaded)
    own = vars(loaded.namespace)
    others = {
        r"cfg\.acts\[0\] is 'RELU'; .* verified for 'TANH' alone": {"acts": (own["Act"].RELU,)},
        r"cfg\.inner\.width is 8; .* verified for 16 alone": {"inner": own["Inner"](8)},
        r"len\(cfg\.acts\) is 2; .* verified for 1 alone": {"acts": (own["Act"].TANH,) * 2},
        r"type\(cfg\.inner\).__name__ is 'NoneType'; .* for 'Inner' alone": {"inner": None},
    }
    for words, changed in others.items():
        with pytest.raises(ValueError, match=words):
            module.ModelNew(own["Cfg"](**changed))
    assert isinstance(module.ModelNew(own["Cfg"]()).act, torch.nn.Tanh)


MODULE = """
class Model(nn.Module):
    def __init__(self, {takes}):
        super().__init__()
        self.norm = nn.LayerNorm(16)

    def forward(self, x):
        return self.norm(x)


def get_inputs():
    return [torch.randn(4, 16)]


def get_init_inputs():
    return {given}
"""
IMPORTS = """import functools
from collections import namedtuple
from dataclasses import dataclass
from types import SimpleNamespace
from pydantic import BaseModel
"""
OBJECTS = {
    "a flag in a dataclass": (
        "@dataclass\nclass C:\n    causal: bool = True", "C()", "C(causal=False)", "a.causal"
    ),
    "a field that nothing reads": (
        "@dataclass\nclass C:\n    eps: float = 1e-5", "C()", "C(eps=1e-2)", "a.eps is 0.01"
    ),
    "a named tuple": ("C = namedtuple('C', 'heads')", "C(4)", "C(8)", "a.heads is 8"),
    "pydantic": ("class C(BaseModel):\n    heads: int = 4", "C()", "C(heads=8)", "a.heads is 8"),
    "a namespace": (
        "", "SimpleNamespace(heads=4)", "SimpleNamespace(heads=8)", "a.heads is 8"
    ),
    "a field that it had not": (
        "def scale(x): return getattr(x, 'scale', 1.0)", "SimpleNamespace(heads=4)",
        "SimpleNamespace(heads=4, scale=2.0)", r"hasattr\(a, 'scale'\) is True",
    ),
    "slots": (
        "class C:\n    __slots__ = ('n',)\n    def __init__(self, n): self.n = n",
        "C(4)", "C(8)", "a.n is 8",
    ),
    "a dictionary": ("", "{'heads': 4}", "{'heads': 8}", r"a is {'heads': 8}"),
    "a list": ("", "[1, 2, 4]", "[1, 2, 8]", r"a is \[1, 2, 8\]"),
    "a dtype": ("", "torch.float32", "torch.float16", "a is 'torch.float16'"),
    "an infinity": ("", "float('inf')", "4.0", "a is '4.0'"),
    "a class": ("", "nn.GELU", "nn.ReLU", "a is 'ReLU'"),
    "a module": ("", "nn.LayerNorm(16, eps=1e-5)", "nn.LayerNorm(16, eps=0.1)", "a.eps is 0.1"),
    "a partial": (
        "", "functools.partial(nn.LayerNorm, eps=1e-5)",
        "functools.partial(nn.LayerNorm, eps=0.1)", "a.keywords is {'eps': 0.1}",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", OBJECTS)
def test_what_a_constructor_is_given_is_what_was_verified(name: str, tmp_path: Path) -> None:
    head, given, other, words = OBJECTS[name]
    path = tmp_path / "problem.py"
    text = MODULE.format(takes="a, field=None, given=0", given=f"[{given}]")
    path.write_text(f"{HEAD}{IMPORTS}\n{head}\n{text}")
    loaded = load_problem(str(path))
    module, own = drop_in_of(loaded), vars(loaded.namespace)
    module.ModelNew(eval(given, own))
    with pytest.raises(ValueError, match=words):
        module.ModelNew(eval(other, own))
    with pytest.raises(ValueError, match=r"field is 2; "):
        module.ModelNew(eval(given, own), 2)


INHERITED = {
    "an alias": "class Block(nn.Module):\n    def __init__(self, a, *, eps=1e-5):\n"
    "        super().__init__()\n        self.norm = nn.LayerNorm(a, eps=eps)\n"
    "    def forward(self, x):\n        return self.norm(x)\n\nModel = Block\n",
    "a base class of torch": "class Model(nn.LayerNorm):\n    def forward(self, x):\n"
    "        return super().forward(x) + 1\n",
    "a base class, and a constant": "EPS = nn.Tanh\nclass Base(nn.Module):\n"
    "    def __init__(self, a, eps=1e-5, act=EPS):\n"
    "        super().__init__()\n        self.norm = nn.LayerNorm(a, eps=eps)\n\n"
    "class Model(Base):\n    def forward(self, x):\n        return self.norm(x)\n",
    "a constructor of one line": "class Model(nn.LayerNorm):\n"
    "    def __init__(self, a, eps=1e-5): super().__init__(a, eps=eps)\n"
    "    def forward(self, x):\n        return super().forward(x) + 1\n",
}


@pytest.mark.parametrize("name", INHERITED)
def test_a_constructor_that_is_inherited_is_checked_too(name: str, tmp_path: Path) -> None:
    path = tmp_path / "problem.py"
    path.write_text(HEAD + INHERITED[name] + TAIL.replace("make()", "16"))
    loaded = load_problem(str(path))
    module = drop_in_of(loaded)
    assert module.ModelNew(16).state_dict().keys() == loaded.build(seed=0).state_dict().keys()
    with pytest.raises(ValueError, match=r"verified for .*1e-05"):
        module.ModelNew(16, eps=0.5)
    with pytest.raises(ValueError, match=r"verified for .*16"):
        module.ModelNew(32)


def test_a_class_of_a_known_package_goes_by_its_name() -> None:
    assert pickle.loads(pack_request(torch.nn.Linear)) is torch.nn.Linear
    assert len(pack_request(LoadedProblem)) < 200
