"""Constructors that need classes, functions and constants of the user's own package."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

from agentkernel.compiler.drop_in.constructor import ConstructorText, emit_constructor
from agentkernel.domain.errors import ProblemError
from agentkernel.tools.problem.loading import LoadedProblem, load_problem, restore_problem

TOP = "agentkernel_try_attic"
NORMS = """\
import torch
from torch import nn

from .consts import EPS, spread


class RMSNorm(nn.Module):
    def __init__(self, width, eps=EPS):
        super().__init__()
        # one number a column
        self.weight = nn.Parameter(spread(width))
        self.eps = eps

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight
"""
CONSTS = """\
import torch

EPS = 1e-6
SHIFT = {}
SHIFT["by"] = 2.0


def spread(width):
    return torch.randn(width) + SHIFT["by"]
"""
BLOCK = """\
from torch import nn
{imports}

class Block(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.norm = {norm}(width)

    def forward(self, x):
        return self.norm(x)
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package with norms and constants, and a folder `blocks` in it for the problem's file."""
    top = tmp_path / TOP
    (top / "blocks").mkdir(parents=True)
    (top / "__init__.py").touch()
    (top / "blocks" / "__init__.py").touch()
    (top / "norms.py").write_text(NORMS)
    (top / "consts.py").write_text(CONSTS)
    monkeypatch.chdir(tmp_path)
    yield top
    for name in [name for name in sys.modules if name.startswith(TOP)]:
        del sys.modules[name]


def loaded_from(package: Path, text: str, place: str = "blocks/block.py") -> LoadedProblem:
    path = package / place
    path.write_text(text)
    return load_problem(f"{path}:Block", ["x=f32[4,8]"])


def same_weights(loaded: LoadedProblem) -> tuple[ConstructorText, nn.Module]:
    """The constructor by itself, with nothing of the package at hand, and what it builds."""
    text = emit_constructor(loaded)
    assert isinstance(text, ConstructorText)
    assert text.obstacle == ""
    assert TOP not in text.text
    module = type(sys)(f"{TOP}_drop_in")
    sys.modules[module.__name__] = module
    try:
        exec(compile(text.text, module.__name__, "exec", dont_inherit=True), vars(module))
    finally:
        del sys.modules[module.__name__]
    torch.manual_seed(3)
    built = module.ModelNew()
    wanted = loaded.build(seed=3).state_dict()
    assert list(built.state_dict()) == list(wanted)
    for name, value in wanted.items():
        assert torch.equal(built.state_dict()[name], value)
        assert torch.equal(eval(text.parameter_expression(name), {"self": built}), value)
    return text, built


IMPORTS = {
    "relative": ("from ..norms import RMSNorm", "RMSNorm"),
    "absolute": (f"from {TOP}.norms import RMSNorm", "RMSNorm"),
    "another name": ("from ..norms import RMSNorm as Norm", "Norm"),
    "module": ("from .. import norms", "norms.RMSNorm"),
    "module by another name": (f"import {TOP}.norms as of", "of.RMSNorm"),
    "dotted": (f"import {TOP}.norms", f"{TOP}.norms.RMSNorm"),
    "star": ("from ..norms import *", "RMSNorm"),
}


@pytest.mark.parametrize("kind", IMPORTS)
def test_a_class_of_the_package_comes_along(kind: str, package: Path) -> None:
    imports, norm = IMPORTS[kind]
    text, built = same_weights(loaded_from(package, BLOCK.format(imports=imports, norm=norm)))
    assert "        # one number a column\n" in text.helpers
    assert text.imports == ("from torch import nn", "import torch")
    assert "def forward" not in text.text
    assert built.get_submodule("norm").eps == 1e-6


def test_an_import_inside_the_constructor(package: Path) -> None:
    source = BLOCK.format(imports="", norm="RMSNorm").replace(
        "        self.norm", "        from ..norms import RMSNorm\n        self.norm"
    )
    same_weights(loaded_from(package, source))


def test_a_forward_of_the_package_that_the_constructor_runs(package: Path) -> None:
    source = BLOCK.format(imports="import torch\nfrom .. import norms", norm="norms.RMSNorm")
    source = source.replace(
        "    def forward",
        "        self.size = self.norm(torch.ones(1, 8)).shape[1]\n\n    def forward",
    )
    text, built = same_weights(loaded_from(package, source))
    assert text.text.count("def forward") == 1
    assert vars(built)["size"] == 8


def test_a_function_that_imports_while_its_module_is_executed(package: Path) -> None:
    """`lazy` is called at import, and `late` names the problem's own file for a base class."""
    (package / "lazy.py").write_text(
        "def width():\n    from .consts import SHIFT\n    return int(SHIFT['by']) * 4\n\n\n"
        "WIDTH = width()\n\n\ndef child():\n    from .late import Child\n    return Child()\n"
    )
    (package / "late.py").write_text(
        "from torch import nn\nfrom .blocks.block import Base\n\n\nclass Child(Base):\n"
        "    def __init__(self):\n        super().__init__()\n        self.more = nn.Linear(2, 3)\n"
    )
    source = BLOCK.format(
        imports="from ..lazy import WIDTH, child\n\n\nclass Base(nn.Module):\n    pass\n",
        norm="(lambda width: (nn.LayerNorm(WIDTH), child())[1])",
    )
    same_weights(loaded_from(package, source))


def test_a_name_that_a_package_passes_on(package: Path) -> None:
    (package / "__init__.py").write_text("from .norms import RMSNorm as Norm\n")
    (package / "blocks" / "__init__.py").write_text("from .block import Block\n")
    source = BLOCK.format(imports=f"from {TOP} import Norm", norm="Norm")
    loaded_from(package, source)
    same_weights(load_problem(f"{TOP}.blocks:Block", ["x=f32[4,8]"]))


def test_two_names_alike(package: Path) -> None:
    """Each module keeps its own `EPS`, `_fill` and `Norm`, private state under its own name."""
    (package / "other.py").write_text(
        "import torch\nfrom torch import nn\n\nEPS = 5\n\n\n"
        "def _fill():\n    return torch.rand(EPS)\n\n\nclass Norm(nn.Module):\n"
        "    def __init__(self, width):\n        super().__init__()\n"
        "        self.__scale = nn.Parameter(_fill())\n        self.__more(width)\n\n"
        "    def __more(self, width):\n        self.fill = [EPS for EPS in range(width)]\n"
        '        self.words = f"{EPS} of {width}"\n'
    )
    source = (
        "import torch\nfrom torch import nn\nfrom ..other import Norm as Other\n\nEPS = 3\n\n\n"
        "def _fill(Norm):\n    return Other(Norm)\n\n\nclass Norm(nn.Module):\n"
        "    def __init__(self):\n        super().__init__()\n"
        "        self.weight = nn.Parameter(torch.rand(EPS))\n\n\n"
        "class Block(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.first, self.second = Norm(), _fill(4)\n\n"
        "    def forward(self, x):\n        return x\n"
    )
    loaded = loaded_from(package, source)
    _, built = same_weights(loaded)
    second = built.get_submodule("second")
    assert vars(second)["fill"] == [0, 1, 2, 3]
    assert vars(second)["words"] == "5 of 4"
    assert {name: len(value) for name, value in built.state_dict().items()} == {
        "first.weight": 3,
        "second._Norm__scale": 5,
    }


def test_a_local_variable_does_not_hide_a_class(package: Path) -> None:
    source = BLOCK.format(imports="from ..norms import RMSNorm as Norm", norm="Norm").replace(
        "width=8", "width=8, RMSNorm=None"
    )
    same_weights(loaded_from(package, source))


def test_modules_that_import_each_other(package: Path) -> None:
    (package / "parts.py").write_text(
        "import torch\nfrom torch import nn\nfrom . import norms\nfrom .blocks import block\n\n\n"
        "class Part(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.norm = norms.RMSNorm(block.WIDTH)\n"
    )
    source = BLOCK.format(imports="from .. import parts\n\nWIDTH = 8\n", norm="make").replace(
        "class Block", "def make(width):\n    return parts.Part()\n\n\nclass Block"
    )
    same_weights(loaded_from(package, source))


def test_a_base_class_and_a_settings_object(package: Path) -> None:
    (package / "settings.py").write_text(
        "from __future__ import annotations\nfrom dataclasses import dataclass, field\n"
        "from typing import TYPE_CHECKING\n\nfrom .consts import EPS\n\n"
        "if TYPE_CHECKING:\n    from .blocks.block import Block\n\n\n"
        "@dataclass(frozen=True)\nclass Settings:\n    block: Block | None = None\n"
        "    width: int = 8\n    eps: float = EPS\n"
        "    sizes: list[int] = field(default_factory=list)\n\n    @property\n"
        "    def double(self) -> int:\n        return 2 * self.width\n"
    )
    (package / "base.py").write_text(
        "from torch import nn\n\nfrom .settings import Settings\n\n\nclass Base(nn.Module):\n"
        "    def __init__(self, settings: Settings | None = None):\n        super().__init__()\n"
        "        self.settings = settings or Settings()\n        self.post()\n\n"
        "    def post(self):\n        raise NotImplementedError\n\n"
        "    def unused(self):\n        return 1\n"
    )
    source = (
        "from torch import nn\nfrom ..base import Base\n\n\nclass Block(Base):\n"
        "    def post(self):\n"
        "        self.proj = nn.Linear(self.settings.width, self.settings.double)\n\n"
        "    def forward(self, x):\n        return self.proj(x)\n"
    )
    text, _ = same_weights(loaded_from(package, source))
    assert "unused" not in text.text


@pytest.mark.parametrize(
    ("imports", "norm", "named"),
    [
        ("from .._fast import Norm", "Norm", f"from {TOP}._fast import Norm"),
        ("from .. import norms", "getattr(norms, 'RMSNorm')", f"import {TOP}.norms as norms"),
    ],
)
def test_what_cannot_come_along_is_named(
    imports: str, norm: str, named: str, package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A module without source, such as a C extension, and a module as a value."""
    compiled = type(sys)(f"{TOP}._fast")
    compiled.Norm = nn.LayerNorm  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, compiled.__name__, compiled)
    text = emit_constructor(loaded_from(package, BLOCK.format(imports=imports, norm=norm)))
    assert isinstance(text, ConstructorText)
    assert text.foreign_imports == (TOP,)
    assert f"it needs '{named}'" in text.obstacle
    assert "Next: " in text.obstacle


def test_the_files_that_come_along_decide_the_problem(package: Path) -> None:
    source = BLOCK.format(imports="from ..norms import RMSNorm", norm="RMSNorm")
    before = loaded_from(package, source).problem
    (package / "consts.py").write_text(CONSTS.replace("1e-6", "1e-5"))
    after = loaded_from(package, source)
    assert before.sha256 != after.problem.sha256
    same_weights(after)
    with pytest.raises(ProblemError, match="has changed"):
        restore_problem(before)


@pytest.mark.parametrize("module", [f"{TOP}_norms", TOP])
def test_files_beside_one_that_is_in_no_package(module: str, package: Path) -> None:
    """A module in the same folder, which imports another one, and a package there."""
    folder = package.parent
    (folder / f"{TOP}_norms.py").write_text(NORMS.replace("from .consts", f"from {TOP}_consts"))
    (folder / f"{TOP}_consts.py").write_text(CONSTS)
    (package / "__init__.py").write_text("from .norms import RMSNorm\n")
    source = BLOCK.format(imports=f"from {module} import RMSNorm", norm="RMSNorm")
    loaded = loaded_from(folder, source, "block.py")
    same_weights(loaded)
    before = loaded.problem.sha256
    for file in (folder / f"{TOP}_consts.py", package / "consts.py"):
        file.write_text(CONSTS.replace("2.0", "3.0"))
    again = loaded_from(folder, source, "block.py")
    assert again.problem.sha256 != before
    _, built = same_weights(again)
    assert built.state_dict()["norm.weight"].mean() > 2.0
    with pytest.raises(ProblemError, match="has changed"):
        restore_problem(loaded.problem)
