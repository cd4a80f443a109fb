"""What a profile holds where nothing can be measured."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from agentkernel.domain.errors import MissingDependency
from agentkernel.domain.profile import Profile, ProfileFailed
from agentkernel.tools.problem.capture import capture
from agentkernel.tools.problem.loading import LoadedProblem, load_problem
from agentkernel.tools.profiler import ProfileSession, ProfileSettings, measure_baselines, profile
from agentkernel.tools.targets import ResolvedTarget, load_targets, resolve

PROBLEM = """
import torch
from torch import nn
class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x) + 1.0
def get_inputs():
    return [torch.randn(1024, 1024)]
"""
CANDIDATE = """
import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def relu_add(x, out, n, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + places, mask=places < n)
    tl.store(out + places, tl.maximum(value, 0.0) + 1.0, mask=places < n)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        relu_add[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), BLOCK=1024)
        return out
"""


@pytest.fixture(scope="module")
def problem(tmp_path_factory: pytest.TempPathFactory) -> LoadedProblem:
    path: Path = tmp_path_factory.mktemp("problem") / "relu_add.py"
    path.write_text(PROBLEM)
    return load_problem(str(path))


@pytest.fixture
def elsewhere() -> ResolvedTarget:
    """The H100 as seen from a machine without a GPU."""
    return resolve(load_targets()["h100-sxm"], None)


def test_without_a_gpu_everything_is_an_estimate(
    problem: LoadedProblem, elsewhere: ResolvedTarget
) -> None:
    found = profile(problem, capture(problem), CANDIDATE, elsewhere)
    assert isinstance(found, Profile)
    assert not found.measured
    assert found.measured_on is None
    assert [kernel.name for kernel in found.report.kernels] == ["relu_add"]
    assert found.estimate.time_us < found.baseline_estimate.time_us


def test_a_candidate_that_does_not_compile_has_no_profile(
    problem: LoadedProblem, elsewhere: ResolvedTarget
) -> None:
    broken = CANDIDATE.replace("tl.maximum(value, 0.0)", "tl.no_such_thing(value)")
    found = profile(problem, capture(problem), broken, elsewhere, ProfileSettings())
    assert isinstance(found, ProfileFailed)
    assert (found.side, found.reason) == ("candidate", "compile")
    assert "no_such_thing" in found.log


def test_baselines_cannot_be_had_without_a_gpu(
    problem: LoadedProblem, elsewhere: ResolvedTarget
) -> None:
    with pytest.raises(MissingDependency, match="no local GPU"):
        measure_baselines(problem, elsewhere)


def test_importing_the_profiler_does_not_import_torch() -> None:
    code = (
        "import sys, agentkernel.tools.profiler, agentkernel.tools.search\n"
        "print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_without_a_gpu_there_are_no_quick_times(
    problem: LoadedProblem, elsewhere: ResolvedTarget
) -> None:
    with ProfileSession(problem, elsewhere, ProfileSettings()) as session:
        assert session.quick_times() is None
