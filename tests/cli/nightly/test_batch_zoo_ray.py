"""Is a night's table the same on a Ray cluster of 1, 2 and 4 workers, of which one is killed?"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from agentkernel.domain.nightly import NightlyRun

MAIN = "import sys; from agentkernel.cli.app import main; main(sys.argv[1:])"
LIMIT_S = 900.0


def words(*more: str) -> list[str]:
    """Two models of the tiny zoo that share a region, in few seconds a region."""
    return [
        *("batch", "tiny", "--only", "transformer-block", "--only", "residual-mlp"),
        *("--target", "h100", "--json", "-c", "judge.seeds=1", "-c", "budget.rounds=1"),
        *("-c", "knowledge.limit=0", *more),
    ]


def started(folder: Path, *more: str) -> subprocess.Popen[bytes]:
    """The command in a process and with folders of its own."""
    folder.mkdir()
    own = {f"XDG_{name}_HOME": str(folder / name.lower()) for name in ("DATA", "CACHE", "CONFIG")}
    with (folder / "out.txt").open("wb") as out:
        return subprocess.Popen(
            [sys.executable, "-c", MAIN, *words(*more)],
            cwd=folder,
            env={**os.environ, **own},
            stdout=out,
            stderr=subprocess.STDOUT,
        )


def told(folder: Path) -> NightlyRun:
    """The night in the last line; every line is JSON, so that nothing of Ray is between them."""
    values = [json.loads(line) for line in (folder / "out.txt").read_text().splitlines()]
    return NightlyRun.model_validate(values[-1]["night"])


def table(night: NightlyRun) -> tuple[object, object]:
    """What a reader sees, without ids, moments and seconds."""
    models = [
        (
            *(row.name, row.form, row.verified, row.swapped, row.error),
            *(row.estimated_eager_us, row.estimated_us, row.estimated_speedup),
        )
        for row in night.models
    ]
    regions = [(row.signature, row.status, row.sha256, row.time_us) for row in night.regions]
    return models, regions


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> tuple[object, object]:
    """The table of the processes of this machine."""
    folder = tmp_path_factory.mktemp("local") / "night"
    assert started(folder, "--workers", "2").wait(LIMIT_S) == 0
    return table(told(folder))


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2, 4])
def test_the_table_is_the_same_with_a_worker_killed(
    tmp_path: Path, local: tuple[object, object], workers: int
) -> None:
    pytest.importorskip("ray")
    folder = tmp_path / "night"
    child = started(folder, "--ray", "local", "--workers", str(workers))
    try:
        end = time.monotonic() + LIMIT_S
        while not (drafts := workers_at(child.pid, "ray::draft")):
            assert child.poll() is None, (folder / "out.txt").read_text()
            assert time.monotonic() < end
            time.sleep(0.1)
        os.kill(drafts[0], signal.SIGKILL)
        assert child.wait(LIMIT_S) == 0
    finally:
        child.kill()
        child.wait()
    night = told(folder)
    assert night.workers == workers
    assert [(item.job.split()[0], item.again) for item in night.lost] == [("draft", 1)]
    assert table(night) == local


def workers_at(root: int, title: str) -> list[int]:
    """The processes of this title that come from process `root`."""
    parents: dict[int, int] = {}
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            pid, after = int(folder.name), (folder / "stat").read_text().rpartition(")")[2]
            parents[pid] = int(after.split()[1])
            if (folder / "cmdline").read_bytes().startswith(title.encode()):
                found.append(pid)
    return [pid for pid in found if comes_from(pid, root, parents)]


def comes_from(pid: int, root: int, parents: dict[int, int]) -> bool:
    while pid > 1:
        if pid == root:
            return True
        pid = parents.get(pid, 0)
    return False
