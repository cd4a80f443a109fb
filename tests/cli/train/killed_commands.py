"""What does a command line come to that is killed while it works, and given again?"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

TOO_LONG_S = 240.0
LOOK_S = 0.002


def finished(words: Sequence[str], folder: Path) -> str:
    """What `agentkernel WORDS` prints, run in `folder` to its end, which has to be a good one."""
    done = subprocess.run(
        [sys.executable, "-m", "agentkernel", *words],
        cwd=folder,
        env=_environment(folder),
        capture_output=True,
        text=True,
        timeout=TOO_LONG_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def killed(words: Sequence[str], folder: Path, at_work: Callable[[], bool]) -> None:
    """Give the same command a SIGKILL as soon as it is `at_work`: seen in what it leaves, by no
    clock."""
    log = folder / "killed.log"
    with (
        log.open("w") as said,
        subprocess.Popen(
            [sys.executable, "-m", "agentkernel", *words],
            cwd=folder,
            env=_environment(folder),
            stdout=said,
            stderr=said,
        ) as process,
    ):
        until = time.monotonic() + TOO_LONG_S
        try:
            while not at_work():
                assert process.poll() is None, f"it ended first: {log.read_text()}"
                assert time.monotonic() < until, f"it never began: {log.read_text()}"
                time.sleep(LOOK_S)
        finally:
            process.kill()
    assert process.returncode < 0, f"it ended by itself: {log.read_text()}"


def _environment(folder: Path) -> dict[str, str]:
    """No GPU, no cache and no data of the user's, and the packages of this process."""
    return os.environ | {
        "PYTHONPATH": os.pathsep.join(item for item in sys.path if item),
        "CUDA_VISIBLE_DEVICES": "",
        "OMP_NUM_THREADS": "1",
        "XDG_CACHE_HOME": str(folder / "cache"),
        "XDG_DATA_HOME": str(folder / "user-data"),
    }
