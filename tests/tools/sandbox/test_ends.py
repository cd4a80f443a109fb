"""Hostile candidates end by name, at once, wholly; the next one is judged as ever."""

import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from agentkernel.tools.sandbox.isolation import Limits
from agentkernel.tools.sandbox.session import open_worker
from agentkernel.tools.sandbox.watchdog import descendants, private_bytes

TIGHT = Limits(
    memory_bytes=1 << 30, scratch_bytes=128 << 20, processes=12, tasks=64, output_bytes=8 << 20,
    reply_bytes=1 << 20,
)  # fmt: skip
ENDS = {
    "fork bomb": ("processes", "import os\nwhile True: os.fork()"),
    "memory": ("memory", "x = []\nwhile True: x.append(bytearray(1 << 24))"),
    "full disk": (
        "disk",
        "n = 0\nwhile True:\n    n += 1\n"
        "    with open(f'f{n}', 'wb') as f: f.write(bytes(1 << 22))",
    ),
}
"""In every tier: what bounds them differs from tier to tier."""
MORE_ENDS = {
    "small processes": (
        "processes",
        "import subprocess, time\nsubprocess.Popen(['sh', '-c', 'f() { f | f & }; f'])\n"
        "time.sleep(100)",
    ),
    "orphans": (
        "processes",
        "import os, time\nfor _ in range(100):\n    if os.fork() == 0:\n"
        "        if os.fork() == 0: time.sleep(1000)\n        os._exit(0)\ntime.sleep(100)",
    ),
    "threads": (
        "processes",
        "import threading, time\n"
        "while True: threading.Thread(target=time.sleep, args=(1000,)).start()",
    ),
    "shared memory": (
        "memory",
        "import mmap\nx = []\nwhile True:\n    m = mmap.mmap(-1, 1 << 24)\n"
        "    m.write(bytes(1 << 24)); x.append(m)",
    ),
    "deleted files": (
        "disk",
        "import os\nx = []\nwhile True:\n    x.append(open('f', 'wb')); os.unlink('f')\n"
        "    x[-1].write(bytes(1 << 22)); x[-1].flush()",
    ),
    "output": ("output", "while True: print('x' * 10000)"),
    "huge reply": ("reply", "return 'x' * (2 << 20)"),
    "crash": ("signal", "import ctypes\nctypes.string_at(0)"),
    "abort": ("signal", "import os\nos.abort()"),
    "exit": ("exit", "import os\nos._exit(0)"),
    "stop": ("stopped", "import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)"),
    "stop all": ("stopped", "import os, signal\nos.kill(0, signal.SIGSTOP)"),
    "kill all": ("signal", "import os, signal\nos.kill(0, signal.SIGKILL)"),
    "hang": ("timeout", "while True: pass"),
    "sleep in C": ("timeout", "import ctypes\nctypes.CDLL(None).sleep(1000)"),
}
PATIENCE_S = {"timeout": 1.5}


def ends(run, cause, body, tier):
    with open_worker(device="cpu", interpret=True, tier=tier, limits=TIGHT) as worker:
        began = time.monotonic()
        reply = run(worker, body, timeout_s=PATIENCE_S.get(cause, 100.0))
        assert (reply.cause, reply.log.split(":")[0]) == (cause, cause), reply
        assert reply.reason == {"memory": "memory", "timeout": "timeout"}.get(cause, "died")
        assert time.monotonic() - began < 60
        assert not worker.alive
        assert run(worker, "return 1") == reply


@pytest.mark.parametrize("name", ENDS)
def test_a_greedy_candidate_ends_by_name(name, tier, run, nothing_left):
    ends(run, *ENDS[name], tier)


RARE = ("orphans", "threads", "abort", "stop all", "sleep in C")


@pytest.mark.parametrize(
    "name",
    [pytest.param(x, marks=[pytest.mark.slow] if x in RARE else []) for x in MORE_ENDS],
)
def test_a_hostile_candidate_ends_by_name(name, run, nothing_left):
    """Behind Landlock alone, where no namespace cleans up."""
    ends(run, *MORE_ENDS[name], "landlock")


def named_python(pid):
    """False too for what has just gone."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().startswith("python")
    except OSError:
        return False


def until_it_fails(run, worker):
    """A signal takes a while to come."""
    end = time.monotonic() + 10
    while (reply := run(worker, "return 1")) == 1 and time.monotonic() < end:
        time.sleep(0.02)
    return reply


@pytest.mark.quick(1)
def test_a_killed_worker_is_named(tier, run, nothing_left):
    with open_worker(device="cpu", interpret=True, tier=tier) as worker:
        for pid in descendants(os.getpid()):
            words = Path(f"/proc/{pid}/status").read_text().split("NSpid:")[1].splitlines()[0]
            if words.split()[-1] == str(worker.pid):
                os.kill(pid, signal.SIGKILL)
        reply = until_it_fails(run, worker)
        assert (reply.cause, reply.reason) == ("signal", "died")
        assert "SIGKILL" in reply.log


@pytest.mark.quick(1)
def test_a_killed_launcher_takes_all_along(tier, run, nothing_left):
    before = set(descendants(os.getpid()))  # servers of the tests before this one
    with open_worker(device="cpu", interpret=True, tier=tier) as worker:
        body = "import os, time\nif os.fork() == 0: time.sleep(1000)\nreturn 1"
        assert run(worker, body) == 1
        pids = [pid for pid in descendants(os.getpid()) if pid not in before]
        launcher = next(pid for pid in pids if named_python(pid) and len(descendants(pid)) == 2)
        os.kill(launcher, signal.SIGKILL)
        reply = until_it_fails(run, worker)
        assert (reply.cause, reply.reason) == ("launcher", "died")


@pytest.mark.quick(1)
def test_a_stopped_launcher_hangs_nothing(tier, run, nothing_left):
    with open_worker(device="cpu", interpret=True, tier=tier) as worker:
        top = worker._process._process.pid
        for pid in [top, *descendants(top)]:
            if named_python(pid):
                os.kill(pid, signal.SIGSTOP)
        reply = run(worker, "return 1", timeout_s=1.0)
        assert reply.cause == "timeout"


@pytest.mark.quick(1)
def test_a_killed_judge_takes_all_along(tier, nothing_left, tmp_path):
    script = (
        "import os\n"
        "from agentkernel.tools.sandbox.session import open_worker\n"
        f"w = open_worker(device='cpu', interpret=True, tier={tier!r})\n"
        "print('ready', flush=True)\n"
        "w.call('agentkernel.tools.sandbox.worker:execute', {'source': 'import os\\nos.fork()\\n"
        "while True: pass'}, 100)\n"
    )
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    parent = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, env=environment
    )
    with parent:
        assert parent.stdout.readline() == "ready\n"
        time.sleep(0.5)
        pids = descendants(parent.pid)
        assert len(pids) >= 2
        parent.kill()
        parent.wait()
        end = time.monotonic() + 10
        while any(private_bytes(pid) for pid in pids) and time.monotonic() < end:
            time.sleep(0.05)
    assert not any(private_bytes(pid) for pid in pids)
    # Nobody is left to remove the folder.
    for folder in tmp_path.iterdir():
        shutil.rmtree(folder)


def test_the_next_candidate_is_judged_as_ever(run, nothing_left):
    """The launcher's word on the first is not taken for the second."""
    first = open_worker(device="cpu", interpret=True, limits=TIGHT)
    with first, open_worker(device="cpu", interpret=True, limits=TIGHT) as second:
        assert run(first, ENDS["fork bomb"][1]).cause == "processes"
        assert run(second, "return 1") == 1


def test_while_nobody_asks_the_launcher_still_watches(run, nothing_left):
    limits = replace(TIGHT, memory_bytes=700 << 20)
    with open_worker(device="cpu", interpret=True, tier="landlock", limits=limits) as worker:
        body = (
            "import threading\ndef eat():\n    x = []\n"
            "    while True: x.append(bytearray(1 << 24))\n"
            "threading.Thread(target=eat, daemon=True).start()\nreturn 1"
        )
        assert run(worker, body) == 1
        end = time.monotonic() + 60
        while worker.alive and time.monotonic() < end:
            time.sleep(0.05)
        assert run(worker, "return 1").cause == "memory"


@pytest.mark.slow
def test_what_the_parent_shares_is_not_counted(run, nothing_left):
    import torch

    limits = Limits(memory_bytes=600 << 20)
    with open_worker(device="cpu", interpret=True, tier="landlock", limits=limits) as worker:
        ref = worker.share(torch.zeros(1 << 28))
        body = "import time\nt['x'].add_(1)\ntime.sleep(0.5)\nreturn float(t['x'][5])"
        assert run(worker, body, {"x": ref}) == 1.0
        worker.release([ref])
        assert run(worker, "import time\ntime.sleep(0.5)\nreturn 1") == 1
