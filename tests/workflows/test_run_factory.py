"""A run takes its place among others that share the GPU."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from agentkernel.agents.models.provider import ModelProvider
from agentkernel.domain.candidate import Candidate
from agentkernel.runtime import gpu_lock
from agentkernel.tools.problem.loading import load_problem
from agentkernel.tools.targets import find_target
from agentkernel.workflows.run_factory import (
    LocalRunFactory,
    ProfileScope,
    profile_settings,
    work_key,
)
from tests.workflows.fakes import VERSIONS, settings

COPY = """
import torch
from torch import nn
class Model(nn.Module):
    def forward(self, x):
        return x.clone()
def get_inputs():
    return [torch.randn(64, 1024)]
"""


@pytest.mark.parametrize("others", [False, True])
def test_beside_others_a_profile_leaves_out_what_decides_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, others: bool
) -> None:
    monkeypatch.delenv(gpu_lock.FOLDER, raising=False)
    if others:
        monkeypatch.setenv(gpu_lock.FOLDER, str(tmp_path))
    with gpu_lock.private_lock():
        assert profile_settings(settings(tmp_path / "runs")).records is not others


def test_a_profile_without_max_autotune_is_not_one_with_it() -> None:
    candidate = Candidate(source="a", coder="scripted", round=1)
    scope = ProfileScope(problem="p", target="t", device="d", seed=0, versions=VERSIONS)
    third = scope.evolve(max_autotune=True)
    assert work_key(scope, candidate) != work_key(third, candidate)


@pytest.mark.gpu
def test_a_run_that_measures_has_a_gate_for_as_long_as_it_lasts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(gpu_lock.FOLDER, raising=False)
    path = tmp_path / "copy.py"
    path.write_text(COPY)
    chosen = settings(tmp_path / "runs")
    with LocalRunFactory().equip(
        load_problem(str(path)), chosen, find_target(None), ModelProvider()
    ):
        assert Path(os.environ[gpu_lock.FOLDER]).is_dir()
        assert not gpu_lock.has_other_users()
    assert gpu_lock.FOLDER not in os.environ


def test_a_run_that_ended_holds_no_file_of_the_knowledge_base(tmp_path: Path) -> None:
    path = tmp_path / "copy.py"
    path.write_text(COPY)
    before = open_files("knowledge.sqlite.use")  # those of fixtures
    with LocalRunFactory().equip(
        load_problem(str(path)), settings(tmp_path / "runs"), find_target("h100"), ModelProvider()
    ):
        assert len(open_files("knowledge.sqlite.use")) == len(before) + 1
    assert open_files("knowledge.sqlite.use") == before


def open_files(name: str) -> list[str]:
    links = [f"/proc/self/fd/{number}" for number in os.listdir("/proc/self/fd")]
    targets = [os.readlink(link) for link in links if os.path.lexists(link)]
    return sorted(target for target in targets if target.endswith(name))
