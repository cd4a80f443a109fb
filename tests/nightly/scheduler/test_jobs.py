"""Is what a model prints kept from the lines of the command?"""

from __future__ import annotations

from pathlib import Path

import pytest

from agentkernel.domain.nightly import Zoo, ZooModel
from agentkernel.nightly.scheduler.engine import printing_to_stderr, run_job
from agentkernel.nightly.scheduler.jobs import CutDone, CutJob, ZooPart

NOISY = """
import os
from torch import nn

print("imported")


class Noisy(nn.Module):
    def forward(self, x):
        print("called")
        os.write(1, b"written")
        return x + 1
"""


def test_what_a_model_prints_goes_to_stderr(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "noisy.py").write_text(NOISY)
    model = ZooModel(name="noisy", model="noisy.py:Noisy", inputs=("x=f32[4]",))
    zoo = Zoo(name="zoo", models=(model,), folder=str(tmp_path))
    print("before")
    answer = run_job(CutJob(night="n", part=ZooPart(zoo=zoo, sha256="0" * 64), target="h100-sxm"))
    print("after")
    assert isinstance(answer, CutDone)
    out, err = capfd.readouterr()
    assert out == "before\nafter\n"
    assert {"imported", "called", "written"} <= set(err.replace("written", "\nwritten\n").split())


def test_stdout_is_the_commands_again_after_a_failure(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ValueError, match="no"), printing_to_stderr():
        raise ValueError("no")
    print("told")
    assert capfd.readouterr().out == "told\n"
