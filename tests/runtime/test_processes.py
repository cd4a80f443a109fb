"""Does a process that only compiles give way, with all that it starts?"""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import pytest

from agentkernel.runtime import pool
from agentkernel.runtime.pool import lower_priority

FAMILY = """
import os, subprocess, sys
sys.stdin.readline()
asks = "import os; print(os.getpriority(os.PRIO_PROCESS, 0))"
subprocess.run([sys.executable, "-c", asks], check=True)
"""


def test_what_it_starts_gives_way_too_and_we_do_not() -> None:
    own = os.getpriority(os.PRIO_PROCESS, 0)
    process = subprocess.Popen(
        [sys.executable, "-c", FAMILY], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    lower_priority(process.pid)
    assert process.communicate("\n")[0] == "10\n"
    assert os.getpriority(os.PRIO_PROCESS, 0) == own
    lower_priority(process.pid)


def test_who_gives_way_already_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Under `nice -n 15`, without the right to raise a priority, nothing is asked for."""
    monkeypatch.setattr(os, "getpriority", lambda which, who: 15)

    def refused(*_: int) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "setpriority", refused)
    lower_priority(0)


def test_who_is_timed_is_in_front_for_so_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process without the right to raise a priority is not stopped by it."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        before = os.getpriority(os.PRIO_PROCESS, child.pid)
        with pool.raised_priority([child.pid, 2**22 + 1]):
            inside = os.getpriority(os.PRIO_PROCESS, child.pid)
            assert inside in {pool.TIMED_NICE, before}
        assert os.getpriority(os.PRIO_PROCESS, child.pid) == before

        def refused(*_: int) -> None:
            raise PermissionError

        monkeypatch.setattr(os, "setpriority", refused)
        with pool.raised_priority([child.pid]):
            assert os.getpriority(os.PRIO_PROCESS, child.pid) == before
        child.communicate(b"\n")


def test_a_raised_priority_ends_with_an_error_too() -> None:
    own = threading.get_native_id()
    before = os.getpriority(os.PRIO_PROCESS, own)
    with pytest.raises(KeyError), pool.raised_priority([own]):
        raise KeyError
    assert os.getpriority(os.PRIO_PROCESS, own) == before
