"""Problems named by a module, and files whose imports start from their package."""

import inspect
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from agentkernel.bench.batch import read_list
from agentkernel.cli.app import run
from agentkernel.domain.errors import ProblemError
from agentkernel.tools.problem.loading import (
    LoadedProblem,
    declared_problem,
    load_problem,
    restore_problem,
)
from agentkernel.tools.problem.packages import imports_of, is_dotted, package_of, search_path

TOP = "agentkernel_try_shop"
MODEL = """import torch
from torch import nn
from ..acts import act


class Scale(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(n))

    def forward(self, x):
        from ..late import TWICE

        return act(x) * self.weight * TWICE


class Model(Scale):
    pass


def get_inputs():
    return [torch.randn(8, 16)]


def get_init_inputs():
    return [16]
"""
ACTS = "import torch\nfrom .late import TWICE\n\n\ndef act(x):\n    return torch.tanh(x)\n"


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with the package `shop`; it is the current one."""
    inner = tmp_path / TOP / "layers"
    inner.mkdir(parents=True)
    (tmp_path / TOP / "__init__.py").touch()
    (tmp_path / TOP / "acts.py").write_text(ACTS)
    (tmp_path / TOP / "late.py").write_text("TWICE = 2\n")
    (inner / "__init__.py").write_text("from .model import Scale as Scaled\n")
    (inner / "model.py").write_text(MODEL)
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    for name in [name for name in sys.modules if name.split(".")[0] == TOP]:
        del sys.modules[name]


def answer(loaded: LoadedProblem) -> torch.Tensor:
    return loaded.build(seed=0)(torch.ones(8, 16))


TWO_TANH = 2 * torch.tanh(torch.ones(8, 16))


@pytest.mark.parametrize(
    ("reference", "flags"),
    [
        (f"{TOP}.layers.model", ((), "")),
        (f"{TOP}/layers/model.py", ((), "")),
        (f"{TOP}.layers.model:Scale", (("x=f32[8,16]",), "16")),
        (f"{TOP}.layers:Scaled", (("x=f32[8,16]",), "16")),
    ],
)
def test_a_module_of_a_package_loads(
    shop: Path, reference: str, flags: tuple[tuple[str, ...], str]
) -> None:
    path = list(sys.path)
    loaded = load_problem(reference, *flags)
    assert sys.path == path
    torch.testing.assert_close(answer(loaded), TWO_TANH)
    assert loaded.problem.source == MODEL
    forward = loaded.module_class.forward
    assert inspect.getsource(forward) in MODEL
    assert forward.__code__.co_filename.endswith(f"/{TOP}/layers/model.py"), "libraries ask for it"
    package = loaded.problem.package
    assert package.name == f"{TOP}.layers"
    names = [item.path.removeprefix(f"{TOP}/") for item in package.files]
    assert names == ["__init__.py", "acts.py", "late.py", "layers/__init__.py"]
    torch.testing.assert_close(answer(restore_problem(loaded.problem)), TWO_TANH)


def test_a_file_and_its_module_are_one_problem_wherever_they_lie(shop: Path) -> None:
    one, other = load_problem(f"{TOP}.layers.model"), load_problem(f"{TOP}/layers/model.py")
    assert one.problem.sha256 == other.problem.sha256
    shutil.copytree(shop / TOP, shop / "copy" / TOP)
    sys.modules.pop(TOP)
    moved = load_problem(f"copy/{TOP}/layers/model.py").problem
    assert moved.package != one.problem.package
    assert moved.sha256 == one.problem.sha256


def test_an_import_in_the_forward_alone_is_found(shop: Path) -> None:
    path = shop / TOP / "layers" / "late.py"
    path.write_text(MODEL.replace("from ..acts import act", "act = torch.tanh"))
    (shop / TOP / "layers" / "__init__.py").touch()
    torch.testing.assert_close(answer(load_problem(str(path))), TWO_TANH)


def test_what_a_file_imports_is_part_of_its_hash(shop: Path) -> None:
    before = load_problem(f"{TOP}.layers.model")
    (shop / TOP / "late.py").write_text("TWICE = 3\n")
    with pytest.raises(ProblemError, match=r"late\.py' in .* has changed.*Next: bring that text"):
        restore_problem(before.problem)
    after = load_problem(f"{TOP}.layers.model")
    assert after.problem.sha256 != before.problem.sha256
    torch.testing.assert_close(answer(after), 1.5 * TWO_TANH)


def test_a_package_that_moved_is_found_on_the_search_path(
    shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = load_problem(f"{TOP}.layers.model").problem
    (shop / "other").mkdir()
    shutil.move(shop / TOP, shop / "other" / TOP)
    with pytest.raises(ProblemError, match=r"is gone.*Next: put it back, or set PYTHONPATH"):
        restore_problem(problem)
    monkeypatch.syspath_prepend(shop / "other")
    for name in [name for name in sys.modules if name.split(".")[0] == TOP]:
        del sys.modules[name]
    torch.testing.assert_close(answer(restore_problem(problem)), TWO_TANH)


def test_a_file_without_relative_imports_is_a_problem_as_ever(shop: Path) -> None:
    path = shop / TOP / "alone.py"
    path.write_text(MODEL.replace("from ..acts import act", "act = torch.tanh\nTWICE = 2").replace(
        "from ..late import TWICE", "pass"
    ))  # fmt: skip
    problem = load_problem(f"{TOP}.alone").problem
    assert problem.package is None
    assert '"package"' not in problem.model_dump_json()
    assert problem.sha256 == load_problem(str(path)).problem.sha256


def test_an_installed_package_is_named_by_its_version() -> None:
    functional = Path(torch.nn.__file__).parent / "modules" / "activation.py"
    package = package_of(functional, functional.read_text())
    assert (package.name, package.version) == ("torch.nn.modules", torch.__version__)
    assert package.files == ()


@pytest.mark.parametrize(
    ("reference", "said"),
    [
        ("nowhere", "No such file or module: 'nowhere'"),
        (f"{TOP}.layers.modle", f"such as '{TOP}.layers.model'"),
        (f"{TOP}.acts.act", f"write '{TOP}.acts:act'"),
        (f"{TOP}.layers.model:Nothing", "It has: Scale, Model"),
        (TOP, f"{TOP}/__init__.py has no torch module named 'Model'"),
        ("notes", "'notes' is a folder without __init__.py"),
        ("torch._C:X", "'torch._C' is no Python source"),
        ("v1.0/m.py", "can be called 'v1.0'"),
        ("torch/m.py", "has the name of one that is imported already"),
        ("lonely/m.py", "No module named 'lonely.acts'"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(
    shop: Path, capsys: pytest.CaptureFixture[str], reference: str, said: str
) -> None:
    for name in ("v1.0", "torch", "lonely", "notes"):
        (shop / name).mkdir()
        (shop / name / "m.py").write_text(MODEL.replace("from ..", "from ."))
    assert run(["optimize", reference, "--target", "h100"]) == 2
    captured = capsys.readouterr()
    assert captured.err.count("\n") == 1
    assert said in captured.err
    assert "Traceback" not in captured.out


def test_a_batch_names_modules_too(shop: Path) -> None:
    (shop / "list.yaml").write_text(f"problems:\n  - {TOP}.layers.model\n  - a.py:B\n")
    files = [item.file for item in read_list(shop / "list.yaml").problems]
    assert files == [f"{TOP}.layers.model", str(shop / "a.py:B")]


def test_imports_and_dotted_names_are_told_apart() -> None:
    found = imports_of("import a.b\nfrom . import c\ndef f():\n    from ..d import e\n")
    assert set(found) == {(0, "a.b"), (1, "c"), (2, "d"), (2, "d.e")}
    assert [is_dotted(item) for item in ("a.b", "a", "a.py", "./a", "a/b.c")] == [
        True, True, False, False, False
    ]  # fmt: skip


def test_a_class_is_called_as_its_file_says(shop: Path) -> None:
    """Without --input, where the file has get_inputs: of any class of the file."""
    place = shop / TOP / "layers" / "model.py"
    loaded = load_problem(f"{place}:Scale")
    assert (loaded.problem.name, loaded.problem.class_name) == ("scale", "Scale")
    assert loaded.init_args == (16,)
    assert torch.equal(answer(loaded), TWO_TANH)
    again = restore_problem(loaded.problem)
    assert torch.equal(answer(again), TWO_TANH)
    assert declared_problem(again).sha256 == declared_problem(loaded).sha256
    asked = load_problem(f"{place}:Scale", ["x=f32[4,16]"], "16")
    assert asked.problem.origin == "class"
    with pytest.raises(ProblemError, match="--input"):
        load_problem(f"{place}:Scale", init="16")


def test_a_folder_that_comes_last_hides_nothing(tmp_path: Path) -> None:
    before = list(sys.path)
    with search_path(tmp_path, last=True):
        assert sys.path == [*before, str(tmp_path.resolve())]
    with search_path(tmp_path):
        assert sys.path == [str(tmp_path.resolve()), *before]
        with search_path(tmp_path, last=True):
            assert sys.path == [str(tmp_path.resolve()), *before]
        assert sys.path == [str(tmp_path.resolve()), *before]
    assert sys.path == before
