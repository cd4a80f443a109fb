from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from agentkernel.tools.certificate.record import read_certificate
from agentkernel.tools.run_store import open_run

PROBLEM = """import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(256)

    def forward(self, x):
        return self.norm(x)


def get_inputs():
    return [torch.randn(1024, 256)]
"""


class Finished(dict[str, object]):
    """The last JSON object of a run, with the seconds that the run took."""

    seconds: float = 0.0


def start(folder: Path, *words: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [sys.executable, "-m", "agentkernel", *words, "--runs", str(folder / "runs"), "--json"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=folder, env=environment,
    )  # fmt: skip


def optimize(folder: Path) -> subprocess.Popen[str]:
    path = folder / "rows.py"
    path.write_text(PROBLEM)
    return start(folder, "optimize", str(path), "--target", "h100")


def end_of(child: subprocess.Popen[str]) -> Finished:
    begin = time.monotonic()
    out, err = child.communicate(timeout=500)
    assert child.returncode == 0, err
    result = Finished(json.loads(out.splitlines()[-1]))
    result.seconds = time.monotonic() - begin
    return result


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """The real loop on a small LayerNorm, without a GPU, left alone."""
    return end_of(optimize(tmp_path_factory.mktemp("whole")))


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_layer_norm_is_verified_without_a_gpu(whole: Finished) -> None:
    assert (whole["status"], whole["measured"]) == ("verified", False)
    certificate = read_certificate(Path(str(whole["certificate"])))
    assert certificate.basis == "estimated"
    assert certificate.verdict.accepted
    assert certificate.verdict.interpreted
    assert certificate.profile.report.kernels[0].registers


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("seed", range(10))
def test_the_real_loop_survives_a_kill(tmp_path: Path, whole: Finished, seed: int) -> None:
    child = optimize(tmp_path)
    time.sleep(3.0 + random.Random(seed).random() * max(whole.seconds - 3.0, 1.0))
    child.send_signal(signal.SIGKILL)
    child.communicate()
    runs = tmp_path / "runs"
    begun = runs.is_dir() and any(not item.name.startswith(".") for item in runs.iterdir())
    result = end_of(start(tmp_path, "resume", "last") if begun else optimize(tmp_path))
    assert result["status"] == whole["status"]
    assert result["candidate_sha256"] == whole["candidate_sha256"]
    store = open_run(runs, "last")
    try:
        done = Counter(
            (item.task, item.key) for item in store.records.executions() if item.finished
        )
        assert set(done.values()) == {1}
    finally:
        store.close()
