"""Does a process that only compiles give way, with all that it starts?"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

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


def nice_of_a_child() -> int:
    """What a process has that is started now."""
    asks = "import os; print(os.getpriority(os.PRIO_PROCESS, 0))"
    return int(subprocess.check_output([sys.executable, "-c", asks], text=True))


def test_what_is_started_behind_others_stays_there_and_we_come_back() -> None:
    own, me = os.getpriority(os.PRIO_PROCESS, 0), threading.get_native_id()
    with pool.at_priority(pool.BASELINE_NICE):
        inside, child = os.getpriority(os.PRIO_PROCESS, me), nice_of_a_child()
    expected = pool.BASELINE_NICE if pool.may_raise_priority() else own
    assert (inside, child) == (expected, expected)
    assert (os.getpriority(os.PRIO_PROCESS, me), nice_of_a_child()) == (own, own)


def session_nice(pid: int) -> int | None:
    """What proc(5)'s `autogroup` says: `/autogroup-4 nice 0`. None where it says nothing, as of a
    session that began before anybody asked for sessions to be weighed."""
    fields = Path(f"/proc/{pid}/autogroup").read_text().split()
    return int(fields[-1]) if fields else None


def weighs_sessions() -> bool:
    """Whether a new session has a niceness that its leader may set: it takes a kernel with
    autogroups, `kernel.sched_autogroup_enabled`, and a /proc that can be written."""
    asks = "echo 0 > /proc/$$/autogroup && grep -q nice /proc/$$/autogroup"
    said = subprocess.run(["sh", "-c", asks], start_new_session=True, stderr=subprocess.DEVNULL)
    return said.returncode == 0


weighed = pytest.mark.skipif(not weighs_sessions(), reason="this system weighs no sessions")


@weighed
def test_the_session_of_what_is_timed_is_in_front_with_it() -> None:
    """The niceness of a thread counts within its own session alone."""
    own = session_nice(os.getpid())
    waits = [sys.executable, "-c", "input()"]
    with subprocess.Popen(waits, stdin=subprocess.PIPE, start_new_session=True) as leader:
        with pool.raised_priority([leader.pid]):
            raised = session_nice(leader.pid)
        assert raised == (pool.TIMED_NICE if pool.may_raise_priority() else 0)
        assert session_nice(leader.pid) == 0
        leader.communicate(b"\n")
    with subprocess.Popen(waits, stdin=subprocess.PIPE) as member:
        with pool.raised_priority([member.pid]):
            assert session_nice(member.pid) == own
        member.communicate(b"\n")


LEADER = """
import os
from pathlib import Path
from agentkernel.runtime import pool
with pool.at_priority(pool.BASELINE_NICE):
    print(Path("/proc/self/autogroup").read_text().split()[-1])
print(Path("/proc/self/autogroup").read_text().split()[-1])
"""


@weighed
@pytest.mark.skipif(not pool.may_raise_priority(), reason="it takes CAP_SYS_NICE")
def test_a_process_that_leads_its_session_takes_it_along_and_back() -> None:
    said = subprocess.check_output(
        [sys.executable, "-c", LEADER], text=True, start_new_session=True
    )
    assert said.split() == [str(pool.BASELINE_NICE), "0"]


NOBODY = """
import os
from agentkernel.runtime import pool
os.setuid(65534)
with pool.at_priority(pool.BASELINE_NICE):
    print(pool.may_raise_priority(), os.getpriority(os.PRIO_PROCESS, 0))
"""


@pytest.mark.skipif(os.getuid() != 0, reason="only root may become another user")
def test_who_could_not_come_back_stays_where_it_is() -> None:
    said = subprocess.check_output([sys.executable, "-c", NOBODY], text=True)
    assert said.split() == ["False", str(os.getpriority(os.PRIO_PROCESS, 0))]


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
