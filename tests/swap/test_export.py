"""Is what a run is exported as taken up by pip, by the Hub's loader and by torch.library?"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from agentkernel.cli.app import run as command
from agentkernel.domain.errors import KernelRefused, OutputError, RunNotFound
from agentkernel.domain.region import Kernel
from agentkernel.swap.export import export_run, package_name
from agentkernel.tools.problem.loading import load_problem
from tests.swap.applied_kernels import TRITON, make_kernel
from tests.swap.test_found import write_run

NORM_FILE = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(8))
        self.bias = nn.Parameter(torch.rand(8))

    def forward(self, x):
        return nn.functional.layer_norm(x, (8,), self.weight, self.bias)


def get_inputs():
    return [torch.randn(4, 8)]


def get_init_inputs():
    return []
"""
PAIR = NORM_FILE.replace("        return nn", "        return x, nn")
USE_MODULE = """
import torch
made = ModelNew()
x = torch.randn(4, 8)
made.load_state_dict({"weight": torch.full((8,), 2.0), "bias": torch.ones(8)})
want = torch.nn.functional.layer_norm(x, (8,), made.weight, made.bias)
torch.testing.assert_close(made.eval().requires_grad_(False)(x), want)
print("right")
"""
USE_OPERATOR = """
import torch, norm_op
from torch.nn.functional import layer_norm
op = norm_op.norm
x, weight, bias = torch.randn(4, 8), torch.rand(8), torch.rand(8)
torch.testing.assert_close(op(x, weight, bias), layer_norm(x, (8,), weight, bias))
tracked = [item.clone().requires_grad_() for item in (x, weight, bias)]
gradients = torch.autograd.grad(op(*tracked).sin().sum(), tracked)
wanted = torch.autograd.grad(layer_norm(tracked[0], (8,), *tracked[1:]).sin().sum(), tracked)
torch.testing.assert_close(gradients, wanted)
fake = op(*(item.to("meta") for item in (x, weight, bias)))
assert (fake.device.type, fake.shape) == ("meta", (4, 8))
torch.library.opcheck(op, tuple(tracked))
print("right")
"""


def kernel_of(folder: Path, text: str = NORM_FILE) -> Kernel:
    """A kernel of a module in a file, with gradients."""
    file = folder / "norm.py"
    file.write_text(text)
    loaded = load_problem(str(file))
    made = make_kernel(TRITON, loaded.build(seed=0, device="cpu"))
    verdict = made.certificate.verdict
    assert verdict is not None
    problem = loaded.problem
    certificate = made.certificate.evolve(
        problem=problem,
        problem_sha256=problem.sha256,
        verdict=verdict.evolve(problem=problem.sha256, gradients=True),
    )
    return made.evolve(certificate=certificate)


@pytest.fixture
def run_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "run-1"
    folder.mkdir()
    write_run(folder, kernel_of(tmp_path))
    (folder / "run.json").write_text("{}")
    return folder


def python(code: str, *path: Path) -> str:
    """What code says in a process that knows nothing of this package."""
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    environment["PYTHONPATH"] = os.pathsep.join(map(str, path))
    guard = "import sys; sys.modules['agentkernel'] = None\n"
    words = [sys.executable, "-W", "ignore", "-c", guard + code]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_wheel_is_installed_and_imported(run_folder: Path, tmp_path: Path) -> None:
    made = export_run(run_folder, "wheel", tmp_path / "out")
    again = export_run(run_folder, "wheel", tmp_path / "again")
    assert made.path.read_bytes() == again.path.read_bytes()
    site = tmp_path / "site"
    words = ["-m", "pip", "install", "-q", "--no-deps", "--no-index", "--target", str(site)]
    pip = subprocess.run([sys.executable, *words, str(made.path)], capture_output=True, text=True)
    assert pip.returncode == 0, pip.stderr
    assert (site / "norm_kernel" / "certificate.json").is_file()
    assert python(made.use + USE_MODULE, site) == "right"


def test_a_hub_repository_is_loaded_as_the_hub_loads_it(run_folder: Path, tmp_path: Path) -> None:
    made = export_run(run_folder, "hub", tmp_path)
    variant = made.path / "build" / "torch-universal"
    metadata = json.loads((variant / "metadata.json").read_text())
    assert metadata["name"] == "norm"
    assert (made.path / "README.md").read_text().startswith("---\ntags:\n- kernel\n---\n")
    code = (
        "import importlib.util as u, sys\n"
        f"spec = u.spec_from_file_location({metadata['id']!r}, {str(variant / '__init__.py')!r})\n"
        "module = sys.modules[spec.name] = u.module_from_spec(spec)\n"
        "spec.loader.exec_module(module)\n"
        "ModelNew = module.ModelNew\n"
    )
    assert python(code + USE_MODULE) == "right"


def test_an_operator_has_a_fake_tensor_and_the_originals_gradients(
    run_folder: Path, tmp_path: Path
) -> None:
    made = export_run(run_folder, "torch-library", tmp_path / "out")
    assert made.use.startswith("import norm_op; torch.ops.agentkernel_")
    assert python(USE_OPERATOR, made.path.parent) == "right"


def test_a_module_of_two_tensors_is_no_operator_yet(tmp_path: Path) -> None:
    folder = tmp_path / "run-1"
    folder.mkdir()
    write_run(folder, kernel_of(tmp_path, PAIR))
    with pytest.raises(KernelRefused, match="more than one tensor"):
        export_run(folder, "torch-library", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_nothing_is_written_over_and_a_kept_baseline_is_refused(
    run_folder: Path, tmp_path: Path
) -> None:
    for form in ("hub", "wheel", "torch-library"):
        export_run(run_folder, form, tmp_path / "out")  # type: ignore[arg-type]
        with pytest.raises(OutputError, match="there already"):
            export_run(run_folder, form, tmp_path / "out")  # type: ignore[arg-type]
    write_run(run_folder, kernel_of(tmp_path), kept=True)
    with pytest.raises(KernelRefused, match="kept a baseline"):
        export_run(run_folder, "hub", tmp_path / "other")
    path = run_folder / "certificate.json"
    path.write_text(path.read_text().replace("accepted", "excepted"))
    with pytest.raises((RunNotFound, KernelRefused)):
        export_run(run_folder, "hub", tmp_path / "other")
    assert not (tmp_path / "other").exists()


def test_the_command_says_how_it_is_used(
    run_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(["export", str(run_folder), "--as", "wheel", "--out", str(tmp_path / "o")]) == 0
    shown = capsys.readouterr().out
    assert "use it  from norm_kernel import ModelNew" in shown
    assert command(["export", str(run_folder), "--as", "egg"]) == 2


@pytest.mark.parametrize(
    ("problem", "name"),
    [
        ("LayerNorm.v2", "layernorm_v2"),
        ("2d", "kernel_2d"),
        ("class", "kernel_class"),
        ("é", "kernel"),
    ],
)
def test_a_name_can_be_imported(problem: str, name: str) -> None:
    assert package_name(problem) == name
    assert name.isidentifier()
