"""The baselines' process is gone with its parent, whatever it is at."""

import os
import pickle
import signal
import subprocess
import sys
import time
from collections import deque
from pathlib import Path

import pytest

from agentkernel.runtime import gpu_lock
from agentkernel.runtime.stages import recording
from agentkernel.tools.profiler.baselines import BaselineProcess

PARENT = """
import sys, time
from agentkernel.tools.profiler.baselines import BaselineProcess

def busy(path):
    open(path, "w").close()
    import time
    time.sleep(60)

class Slow:
    def __reduce__(self):
        return busy, (sys.argv[1],)

twin = BaselineProcess()
twin.post({"do": "nothing", "slow": Slow()})
print(twin.pids[0], flush=True)
time.sleep(60)
"""


def gone(pid, within_s):
    end = time.monotonic() + within_s
    while time.monotonic() < end:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return True
        if state == "Z":
            return True
        time.sleep(0.02)
    return False


def test_a_busy_twin_ends_with_its_parent(tmp_path):
    mark = tmp_path / "busy"
    words = [sys.executable, "-c", PARENT, str(mark)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as parent:
        pid = int(parent.stdout.readline())
        end = time.monotonic() + 60
        while not mark.exists() and time.monotonic() < end:
            time.sleep(0.05)
        assert mark.exists()
        assert not gone(pid, 0)
        os.kill(parent.pid, signal.SIGKILL)
    assert gone(pid, 5)


def test_answers_that_came_before_they_were_asked_for_are_kept():
    process = BaselineProcess()
    try:
        requests = [{"do": "compile", "shape_set": 0, "mode": mode} for mode in ("default", "slow")]
        for request in requests:
            process.post(request)
        assert not process.answered(), "it has not even started"
        end = time.monotonic() + 90
        while not process.answered() and time.monotonic() < end:
            time.sleep(0.05)
        assert process.answered()
        process.close()  # nothing can be asked of it any more
        with recording() as clock:
            found = process.ask(requests[1], 1.0)
        assert "KeyError" in found.reason
        assert clock.times()[-1].overlapped is False, "its time was told as it was taken"
    finally:
        process.close()


def test_one_that_is_gone_keeps_nobody_waiting():
    process = BaselineProcess()
    process.post({"do": "nothing"})
    process.close()
    assert process.answered()
    assert process.ask({"do": "nothing"}, 1.0).reason == "died"


class Answering:
    """A process that stood at the gate for 30 s, of which its caller waited for a moment."""

    alive, pid = True, 1

    def send(self, frame):
        pass

    def receive(self, limit_s):
        time.sleep(0.05)
        return pickle.dumps({"ok": {}, "took_s": 40.0, "queued_s": 30.0})


@pytest.mark.parametrize("others", [True, False])
def test_its_time_at_the_gate_is_no_time_of_the_run(tmp_path, monkeypatch, others):
    monkeypatch.delenv(gpu_lock.FOLDER, raising=False)
    if others:
        monkeypatch.setenv(gpu_lock.FOLDER, str(tmp_path))
    process = BaselineProcess.__new__(BaselineProcess)
    process._process, process._posted, process._taken = Answering(), deque(), deque()
    before = gpu_lock.waited_s()
    assert process.ask({"do": "prepare", "shape_set": 0}, 1.0) == {}
    waited_s = gpu_lock.waited_s() - before
    assert (0.05 <= waited_s < 5) if others else waited_s == 0
