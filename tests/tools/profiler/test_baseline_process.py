"""The baselines' process is gone with its parent, whatever it is at."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

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
