"""What a terminal shows of a night: while it goes on, when it is interrupted, and at its end."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from agentkernel.cli.nightly.zoo import print_summary, use_line
from agentkernel.nightly.page.comparison import compare_nights
from tests.nightly.library.library_rows import night
from tests.nightly.page.runs import model

SLOW = """
import time
from torch import nn


class Slow(nn.Module):
    def forward(self, x):
        time.sleep(300)
        return x.relu()
"""
ZOO = 'models: [{name: slow, model: "models.py:Slow", inputs: ["x=f32[8,8]"]}]\n'
LONGEST_S = 120.0


def read(terminal: int, into: list[str]) -> None:
    """What is written before the other side closes it, piece by piece."""
    with contextlib.suppress(OSError):
        into.append(os.read(terminal, 65536).decode(errors="replace"))


def test_the_clock_ticks_and_an_interruption_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "models.py").write_text(SLOW)
    (tmp_path / "slow.yaml").write_text(ZOO)
    homes = ("XDG_DATA_HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME")
    own = {name: str(tmp_path / name) for name in homes}
    terminal, inner = pty.openpty()
    words = ("batch", "slow.yaml", "--target", "h100", "--time", "5m", "--workers", "1")
    child = subprocess.Popen(
        [sys.executable, "-m", "agentkernel", *words],
        cwd=tmp_path,
        env={**os.environ, **own, "TERM": "xterm", "COLUMNS": "200"},
        stdin=inner,
        stdout=inner,
        stderr=inner,
        start_new_session=True,
    )
    os.close(inner)
    said: list[str] = []
    clocks: set[str] = set()
    until = time.monotonic() + LONGEST_S
    try:
        while time.monotonic() < until and len(clocks) < 4:
            read(terminal, said)
            shown = "".join(said)
            if "being cut" in shown:
                clocks |= set(re.findall(r": (\d+ s) of 5 min 0 s", said[-1]))
        assert len(clocks) >= 4, shown  # no job has ended meanwhile
        os.killpg(child.pid, signal.SIGINT)
        said.clear()
        while child.poll() is None and time.monotonic() < until:
            read(terminal, said)
        assert child.returncode == 130
        read(terminal, said)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        os.close(terminal)
    shown = "".join(said)
    assert shown.count("Interrupted. Kept of night ") == 1
    assert "0 kernels, 0 of 1 model cut. Next: the same command goes on with it." in shown
    assert "Traceback" not in shown


def test_the_end_says_how_the_kernels_are_used() -> None:
    helped, plain = model("bert", 100.0, 1.5, 1.2), model("gpt", 100.0, 1.5, 1.0)
    found = use_line(night(models=(helped, plain)), Path("nights/n1"))
    assert found == "use it       agentkernel.apply(model, 'nights/n1', name='bert')"
    assert use_line(night(models=(plain,)), Path("nights/n1")) == ""


def test_a_model_without_kernels_is_told_why(capsys: pytest.CaptureFixture[str]) -> None:
    why = "no kernel is estimated to save anything"
    plain = model("gpt", 100.0, 1.5, 1.0).evolve(form="eager", swapped=0, why=why)
    helped = model("bert", 100.0, 1.5, 1.2).evolve(swapped=2)
    found = night(models=(helped, plain))
    print_summary(found, compare_nights(None, found), Path("nights/n1"), as_json=False)
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if line.startswith("no kernels")] == [
        f"no kernels  gpt runs as eager: {why}"
    ]
