"""A worker stands still while somebody times on the GPU, and its call goes on behind."""

import contextlib
import os
import shutil
import subprocess
import sys
import threading
import time

import pytest

from agentkernel.runtime import gpu_lock
from agentkernel.runtime.gpu_lock import FOLDER, GpuLock
from agentkernel.tools.sandbox.session import open_worker

TIMED_S = 1.5
BUSY = """import time
longest, before = 0.0, time.monotonic()
end = before + {seconds}
while before < end:
    time.sleep(0.01)
    now = time.monotonic()
    longest, before = max(longest, now - before), now
return longest"""


@contextlib.contextmanager
def timing(folder, after_s):
    """Another holder of the lock, who begins to wait `after_s` from now; when it came in."""
    came_in = []

    def hold():
        time.sleep(after_s)
        with GpuLock(folder).hold("timing"):
            came_in.append(time.monotonic())
            time.sleep(TIMED_S)

    thread = threading.Thread(target=hold)
    thread.start()
    try:
        yield came_in
    finally:
        thread.join()


@pytest.fixture
def lock(tmp_path, monkeypatch):
    monkeypatch.setenv(FOLDER, str(tmp_path))
    return tmp_path


@pytest.mark.quick(1)
def test_a_call_stands_still_while_somebody_times(tier, run, lock):
    with open_worker(device="cpu", interpret=True, tier=tier) as worker:
        run(worker, "return 1")
        began = time.monotonic()
        with gpu_lock.shared(), timing(lock, 0.5) as came_in:
            longest = run(worker, BUSY.format(seconds=4), timeout_s=4.8)
            ended = time.monotonic()
        assert came_in[0] - began < 2.0
        assert longest >= TIMED_S - 0.2
        assert ended > came_in[0] + TIMED_S
        assert run(worker, "return 2") == 2


def test_seconds_that_a_worker_stands_are_none_of_its_call(run, lock):
    """It stands for longer than it may take."""
    with open_worker(device="cpu", interpret=True) as worker:
        run(worker, "return 1")
        with gpu_lock.shared(), timing(lock, 0.1):
            assert run(worker, "import time\ntime.sleep(0.6)\nreturn 3", timeout_s=1.4) == 3


def test_nobody_stands_still_outside_of_the_lock_or_for_others_who_work(run, lock):
    with open_worker(device="cpu", interpret=True) as worker:
        run(worker, "return 1")
        with timing(lock, 0.0):
            assert run(worker, BUSY.format(seconds=1)) < TIMED_S / 2
        other = GpuLock(lock)
        with gpu_lock.shared(), other.hold("working"):
            assert run(worker, BUSY.format(seconds=1)) < TIMED_S / 2


SCRIPT = """
import os
from pathlib import Path
from agentkernel.runtime import gpu_lock
from agentkernel.tools.sandbox.session import open_worker
worker = open_worker(device="cpu", interpret=True)
with gpu_lock.shared():
    print("in", flush=True)
    source = "def run(t):\\n    while True: pass\\n"
    worker.call("agentkernel.tools.sandbox.worker:execute", {"source": source, "tensors": {}}, 100)
"""


def test_a_parent_that_is_killed_takes_a_standing_worker_along(
    tmp_path, nothing_left, tmp_path_factory
):
    folder = tmp_path_factory.mktemp("lock")
    environment = os.environ | {"TMPDIR": str(tmp_path), FOLDER: str(folder)}
    with subprocess.Popen(
        [sys.executable, "-c", SCRIPT], stdout=subprocess.PIPE, text=True, env=environment
    ) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == "in\n"
        with GpuLock(folder).hold("timing"):
            parent.kill()
            parent.wait()
    for left in tmp_path.iterdir():  # nobody is left to remove the folder
        shutil.rmtree(left)
