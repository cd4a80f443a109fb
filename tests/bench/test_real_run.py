"""Does the real loop, without a GPU, bench a small suite, and go on after a kill?"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from agentkernel.bench.suite import Row, gather
from agentkernel.tools.run_store import open_run

HEAD = "import torch\nfrom torch import nn\n\n\n"
TAIL = "\n\ndef get_inputs():\n    return [torch.randn(32, 128)]\n"
MODEL = "class Model(nn.Module):\n    def forward(self, x):\n        return "
SOURCES = {
    "level1/softmax": HEAD + MODEL + "torch.softmax(x, dim=-1)\n" + TAIL,
    "level1/broken": "raise ValueError('no luck')\n",
    "level2/scaled": HEAD + MODEL + "torch.relu(x) * 2.0\n" + TAIL,
    "level2/sorted": HEAD + MODEL + "torch.sort(x, dim=-1).values\n" + TAIL,
}
NAMES = sorted(SOURCES)


def start(folder: Path, *flags: str) -> subprocess.Popen[str]:
    for name, source in SOURCES.items():
        path = folder / "suite" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source)
    words = ["bench", "suite", "--target", "h100", "--out", "out", "--json", *flags]
    environment = {
        **os.environ,
        "CUDA_VISIBLE_DEVICES": "",
        "OMP_NUM_THREADS": "1",
        "XDG_CACHE_HOME": str(folder / "cache"),
    }
    return subprocess.Popen(
        [sys.executable, "-m", "agentkernel", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
        env=environment,
    )


def rows_of(folder: Path) -> dict[str, Row]:
    return {row.name: row for row in gather(folder / "out").values()}


def told(row: Row) -> tuple[object, ...]:
    """What must not depend on kills: all but names and seconds."""
    facts = [
        (item.status, item.correct, item.candidate_sha256, item.candidates) for item in row.samples
    ]
    return (row.name, row.status, row.error, tuple(facts))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Row]:
    """The bench, left alone."""
    folder = tmp_path_factory.mktemp("whole")
    out, err = (child := start(folder)).communicate(timeout=550)
    assert child.returncode == 1, err
    shown = json.loads(out)
    assert [item["name"] for item in shown["rows"]] == NAMES
    assert all(not item["fast"] for item in shown["summary"]["levels"][-1]["against"])
    return rows_of(folder)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_bench_without_a_gpu(whole: dict[str, Row]) -> None:
    assert {name: row.status for name, row in whole.items()} == {
        "level1/broken": "failed",
        "level1/softmax": "verified",
        "level2/scaled": "verified",
        "level2/sorted": "kept_original",
    }
    softmax = whole["level1/softmax"].samples[0]
    assert (softmax.correct, softmax.interpreted, softmax.vs_eager) == (True, True, None)
    assert softmax.estimated_time_us is not None
    assert softmax.kernelbench_correct is True, "every bench asks for it"
    assert whole["level2/sorted"].samples[0].kernelbench_correct is False, "no candidate"
    assert all(row.gpu is None for row in whole.values())


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_kills_change_nothing(tmp_path: Path, whole: dict[str, Row]) -> None:
    """In two lanes, what is under way at a kill is two problems."""
    for wait_s in (9.0, 14.0):
        child = start(tmp_path, "--lanes", "2")
        time.sleep(wait_s)
        child.send_signal(signal.SIGKILL)
        child.communicate()
    child = start(tmp_path, "--lanes", "2")
    _, err = child.communicate(timeout=550)
    assert child.returncode == 1, err
    found = rows_of(tmp_path)
    assert {name: told(row) for name, row in found.items()} == {
        name: told(row) for name, row in whole.items()
    }
    lines = [
        json.loads(line)["name"]
        for path in (tmp_path / "out").glob("rows*.jsonl")
        for line in path.read_text().splitlines()
    ]
    assert sorted(lines) == NAMES, "no problem has two rows"
    for manifest in (tmp_path / "out" / "runs").rglob("run.json"):
        store = open_run(manifest.parent.parent, manifest.parent.name)
        done = Counter(
            (item.task, item.key) for item in store.records.executions() if item.finished
        )
        store.close()
        assert set(done.values()) <= {1}
