"""Does whoever times have the GPU alone, and does everybody get a turn?"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from agentkernel.runtime import gpu_lock as doors
from agentkernel.runtime.gpu_lock import GpuLock
from agentkernel.tools.sandbox.watchdog import readable

OTHER = """
import sys
from pathlib import Path
from agentkernel.runtime.gpu_lock import GpuLock
with GpuLock(Path(sys.argv[1])).hold(sys.argv[2]):
    print("in", flush=True)
    sys.stdin.readline()
"""


def other(folder: Path, kind: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", OTHER, str(folder), kind],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def entered(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    assert process.stdout.readline() == "in\n"


def leave(process: subprocess.Popen[str]) -> None:
    process.communicate("\n", timeout=20)


def waits(process: subprocess.Popen[str]) -> bool:
    """True where it has not come in after a moment that is long beside an open door."""
    assert process.stdout is not None
    return not readable((process.stdout.fileno(),), 0.5)


def test_two_may_work_and_one_who_times_waits_for_both(tmp_path: Path) -> None:
    first, second = other(tmp_path, "working"), other(tmp_path, "working")
    entered(first)
    entered(second)
    timer = other(tmp_path, "timing")
    assert waits(timer)
    leave(first)
    assert waits(timer)
    leave(second)
    entered(timer)
    leave(timer)


def test_who_times_is_not_starved_by_those_who_come_later(tmp_path: Path) -> None:
    first = other(tmp_path, "working")
    entered(first)
    timer = other(tmp_path, "timing")
    assert waits(timer)
    late = other(tmp_path, "working")
    assert waits(late)
    leave(first)
    entered(timer)
    assert waits(late)
    leave(timer)
    entered(late)
    leave(late)


def test_a_process_that_dies_leaves_the_gate_open(tmp_path: Path) -> None:
    timer = other(tmp_path, "timing")
    entered(timer)
    timer.kill()
    timer.communicate(timeout=20)
    with GpuLock(tmp_path).hold("working"):
        pass


def test_a_part_without_the_gpu_lets_others_time(tmp_path: Path) -> None:
    gate = GpuLock(tmp_path)
    with gate.hold("working"):
        with gate.pause():
            timer = other(tmp_path, "timing")
            entered(timer)
            leave(timer)
        timer = other(tmp_path, "timing")
        assert waits(timer)
    entered(timer)
    leave(timer)


def test_waiting_to_time_inside_work_is_refused(tmp_path: Path) -> None:
    gate = GpuLock(tmp_path)
    with (
        gate.hold("working"),
        pytest.raises(RuntimeError, match="timing inside working"),
        gate.hold("timing"),
    ):
        pass
    with gate.hold("timing"), gate.hold("working"):
        pass


def test_without_others_every_door_is_open() -> None:
    gate = GpuLock(None)
    begin = time.monotonic()
    with gate.hold("working"), gate.pause():
        pass
    with gate.pause():
        pass
    assert time.monotonic() - begin < 1.0


AS_TOLD = """
import sys
from agentkernel.runtime import gpu_lock
with gpu_lock.exclusive():
    print("in", flush=True)
    sys.stdin.readline()
"""


def test_a_run_alone_gets_a_gate_for_itself_and_what_it_starts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(doors.FOLDER, raising=False)
    with doors.shared():
        pass
    with doors.private_lock():
        folder = Path(os.environ[doors.FOLDER])
        assert not doors.has_other_users()
        with doors.shared():
            child = subprocess.Popen(
                [sys.executable, "-c", AS_TOLD],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            assert waits(child)
        entered(child)
        leave(child)
    assert doors.FOLDER not in os.environ
    assert not folder.exists()
    with doors.exclusive():
        pass


def test_a_gate_that_others_share_is_left_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(doors.FOLDER, str(tmp_path))
    with doors.private_lock():
        assert os.environ[doors.FOLDER] == str(tmp_path)
        assert doors.has_other_users()
    assert os.environ[doors.FOLDER] == str(tmp_path)


def test_seconds_before_a_closed_door_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(doors.FOLDER, str(tmp_path))
    before = doors.waited_s()
    timer = other(tmp_path, "timing")
    entered(timer)
    ending = threading.Timer(0.3, leave, [timer])
    ending.start()
    with doors.shared():
        assert 0.1 < doors.waited_s() - before < 20
    ending.join()
